//! A small cloud in memory: unique names, provisioning time, objects that show up late, and calls that fail on demand.

use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::unit::{Observed, Phase, Props};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The call fails and changed nothing.
    Before,
    /// The call takes effect and its answer is lost.
    After,
    /// The call is refused, and the cloud says for how many seconds.
    Asks(u64),
    /// The process dies before the call reaches the cloud.
    KillBefore,
    /// The process dies after the call took effect.
    KillAfter,
}

pub type Faults = Arc<dyn Fn(usize, &str) -> Fault + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Object {
    pub id: String,
    pub unit_type: String,
    pub props: Props,
    pub token: String,
    pub shown_from: Instant,
    pub ready_at: Instant,
    pub gone_at: Option<Instant>,
    pub broken: bool,
}

#[derive(Clone)]
pub struct Inner {
    pub objects: BTreeMap<String, Object>,
    next_id: u32,
    /// Calls so far, reads too.
    pub calls: usize,
    /// Changes that took effect, in order, such as `create fake.network net`.
    pub log: Vec<String>,
    /// What was lowered and checked, in order.
    pub asked: Vec<String>,
    pub faults: Faults,
    pub dead: bool,
    pub lag: Duration,
    pub build: Duration,
    /// New objects of this type fail in the cloud.
    pub breaks: Option<&'static str>,
    /// Accepts updates of this field and does nothing.
    pub ignores: Option<&'static str>,
}

#[derive(Clone)]
pub struct Cloud(Arc<Mutex<Inner>>);

impl Cloud {
    pub fn new() -> Self {
        Self::from(Inner {
            objects: BTreeMap::new(),
            next_id: 0,
            calls: 0,
            log: Vec::new(),
            asked: Vec::new(),
            faults: Arc::new(|_, _| Fault::None),
            dead: false,
            lag: Duration::ZERO,
            build: Duration::from_millis(60),
            breaks: None,
            ignores: None,
        })
    }

    pub fn from(inner: Inner) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn copy(&self) -> Self {
        Self::from(self.lock().clone())
    }

    pub fn set_faults(&self, faults: impl Fn(usize, &str) -> Fault + Send + Sync + 'static) {
        let mut inner = self.lock();
        inner.calls = 0;
        inner.faults = Arc::new(faults);
    }

    /// What is there and not on its way out.
    pub fn here(&self) -> Vec<Object> {
        self.lock().objects.values().filter(|o| o.gone_at.is_none()).cloned().collect()
    }

    /// One call: counted, perhaps failed before or after `effect`.
    async fn call<T>(&self, what: &str, effect: impl FnOnce(&mut Inner) -> Outcome<T>) -> Outcome<T> {
        // Calls take time, so that those of other units come in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut inner = self.lock();
        if inner.dead {
            return Err(Trouble::refused("the process is dead"));
        }
        let now = Instant::now();
        inner.objects.retain(|_, o| o.gone_at.is_none_or(|at| at > now));
        let index = inner.calls;
        inner.calls += 1;
        let fault = (inner.faults.clone())(index, what);
        let lost = || Trouble::new(Class::Retry { after: None }, format!("{what}: the answer was lost"));
        match fault {
            Fault::None => effect(&mut inner),
            Fault::Before => Err(lost()),
            Fault::Asks(seconds) => {
                let after = Some(Duration::from_secs(seconds));
                Err(Trouble::new(Class::Retry { after }, format!("{what}: too many requests")))
            }
            Fault::After => effect(&mut inner).and_then(|_| Err(lost())),
            Fault::KillBefore => {
                inner.dead = true;
                Err(lost())
            }
            Fault::KillAfter => {
                let result = effect(&mut inner);
                inner.dead = true;
                result
            }
        }
    }

    pub async fn read(&self, id: &str) -> Outcome<Option<Observed>> {
        self.call("read", |inner| Ok(inner.shown(|o| o.id == id).map(observed))).await
    }

    /// By its token, or like a cloud that has only names: by the name and, for a pool, the size.
    pub async fn find(&self, unit_type: &str, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        self.call("find", |inner| {
            let begun = token.and_then(|token| inner.shown(|o| o.token == token && o.unit_type == unit_type));
            let same_size =
                |o: &Object| token.is_none() || unit_type == "fake.pool" && o.props.get("size") == desired.get("size");
            let named =
                || inner.shown(|o| o.unit_type == unit_type && place(o, &o.props) == place(o, desired) && same_size(o));
            Ok(begun.or_else(named).map(observed))
        })
        .await
    }

    pub async fn create(&self, unit_type: &str, props: Props, token: &str) -> Outcome<String> {
        self.call("create", |inner| {
            for (field, other) in [("network_id", "fake.network"), ("cluster_id", "fake.cluster")] {
                if let Some(id) = props.get(field).and_then(Value::as_str) {
                    let there = inner.objects.get(id).is_some_and(|o| o.unit_type == other && o.gone_at.is_none());
                    if !there {
                        return Err(Trouble::refused(format!("there is no {other} {id}")));
                    }
                }
            }
            let taken =
                inner.objects.values().find(|o| o.unit_type == unit_type && place(o, &o.props) == place(o, &props));
            if let Some(other) = taken {
                return Err(Trouble::new(Class::Taken { id: Some(other.id.clone()) }, "the name is taken"));
            }
            inner.next_id += 1;
            let (id, now) = (format!("{unit_type}-{}", inner.next_id), Instant::now());
            inner.log.push(format!("create {unit_type} {}", name_of(&props)));
            let object = Object {
                id: id.clone(),
                unit_type: unit_type.into(),
                props,
                token: token.into(),
                shown_from: now + inner.lag,
                ready_at: now + inner.build,
                gone_at: None,
                broken: inner.breaks == Some(unit_type),
            };
            inner.objects.insert(id.clone(), object);
            Ok(id)
        })
        .await
    }

    pub async fn update(&self, id: &str, desired: &Props, fields: &[&str]) -> Outcome<()> {
        self.call("update", |inner| {
            let taken = inner.objects.values().any(|o| {
                o.id != id
                    && inner.objects.get(id).is_some_and(|own| own.unit_type == o.unit_type)
                    && place(o, &o.props) == place(o, desired)
            });
            let ready_at = Instant::now() + inner.build;
            let ignores = inner.ignores;
            let Some(object) = inner.objects.get_mut(id).filter(|o| o.gone_at.is_none()) else {
                return Err(Trouble::new(Class::NotFound, "nothing to change"));
            };
            if taken {
                return Err(Trouble::refused("another has the name"));
            }
            object.props.extend(
                desired.iter().filter(|(name, _)| Some(name.as_str()) != ignores).map(|(n, v)| (n.clone(), v.clone())),
            );
            object.ready_at = ready_at;
            let line = format!("update {} {} {}", object.unit_type, name_of(&object.props), fields.join(","));
            inner.log.push(line);
            Ok(())
        })
        .await
    }

    pub async fn delete(&self, id: &str) -> Outcome<()> {
        self.call("delete", |inner| {
            let used = inner.objects.values().any(|o| {
                o.gone_at.is_none() && ["network_id", "cluster_id"].iter().any(|f| o.props.get(*f) == Some(&json!(id)))
            });
            if used {
                return Err(Trouble::refused(format!("{id} is in use")));
            }
            let gone_at = Instant::now() + inner.build;
            let Some(object) = inner.objects.get_mut(id).filter(|o| o.gone_at.is_none()) else {
                return Err(Trouble::new(Class::NotFound, "nothing to delete"));
            };
            object.gone_at = Some(gone_at);
            let line = format!("delete {} {}", object.unit_type, name_of(&object.props));
            inner.log.push(line);
            Ok(())
        })
        .await
    }

    pub async fn gate(&self, id: &str) -> Outcome<Option<String>> {
        self.call("gate", |inner| {
            let answers =
                inner.objects.get(id).is_some_and(|o| Instant::now() >= o.ready_at + Duration::from_millis(100));
            Ok((!answers).then(|| "its API does not answer yet".to_owned()))
        })
        .await
    }

    pub async fn other(&self, what: &str) -> Outcome<()> {
        self.call(what, |_| Ok(())).await
    }

    pub async fn page(&self, page: u32, size: usize) -> Outcome<(Vec<(String, Observed)>, bool)> {
        self.call("list", |inner| {
            let now = Instant::now();
            let shown: Vec<_> = inner.objects.values().filter(|o| o.shown_from <= now).collect();
            let from = (page as usize - 1) * size;
            let items = shown.iter().skip(from).take(size).map(|o| (o.unit_type.clone(), observed(o))).collect();
            Ok((items, shown.len() > from + size))
        })
        .await
    }
}

impl Inner {
    fn shown(&self, is_it: impl Fn(&Object) -> bool) -> Option<&Object> {
        let now = Instant::now();
        self.objects.values().find(|o| o.shown_from <= now && is_it(o))
    }
}

pub fn name_of(props: &Props) -> &str {
    ["network_name", "name", "cluster_name", "node_pool_name"]
        .iter()
        .find_map(|n| props.get(*n)?.as_str())
        .unwrap_or("")
}

/// Where a name must be unique.
fn place<'a>(of: &Object, props: &'a Props) -> (Option<&'a Value>, &'a str) {
    (props.get("cluster_id").filter(|_| of.unit_type == "fake.pool"), name_of(props))
}

fn observed(object: &Object) -> Observed {
    let now = Instant::now();
    let phase = match object {
        o if o.gone_at.is_some() => Phase::Deleting,
        o if o.broken => Phase::Failed { reason: "no capacity".into() },
        o if now < o.ready_at => Phase::Pending("building".into()),
        _ => Phase::Ready,
    };
    let outputs = Props::from_iter([("address".to_owned(), json!(format!("addr-{}", object.id)))]);
    Observed { id: object.id.clone(), props: object.props.clone(), outputs, phase }
}
