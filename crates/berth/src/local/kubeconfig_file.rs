//! Puts one cluster into a kubeconfig and leaves the rest of the file as it is. Pure: text in, text out.
//!
//! Each entry of Berth's has an extension with the resource, the state, and whether it is simulated,
//! so that a later merge recognises its own entries, and entries of deleted clusters are removed.

use crate::view::yaml::{plain, to_yaml};
use berth_model::ResourceId;
use berth_model::yaml::{Documents, Node, Value as Yaml};
use serde_json::{Map, Value, json};

const EXTENSION: &str = "berth.dev";
/// The lists of a kubeconfig, and what each entry calls its content.
const SECTIONS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// What a user of a kubeconfig may hold: credentials themselves. The others name programs that kubectl starts, and files whose
/// content it sends.
const CREDENTIALS: [&str; 5] = ["client-certificate-data", "client-key-data", "token", "username", "password"];

/// Why a kubeconfig is left alone.
#[derive(Debug, PartialEq, Eq)]
pub enum MergeError {
    Unreadable(String),
    NotAKubeconfig,
    /// The cloud's own kubeconfig lacks something.
    Incomplete(&'static str),
    /// An entry of that name is somebody else's.
    Taken {
        what: &'static str,
    },
}

/// Whose an entry is: a cluster of a state or server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub resource: ResourceId,
    /// The state's path or the server's address.
    pub from: String,
    pub sandbox: bool,
}

impl Owner {
    fn extension(&self) -> Value {
        let mut extension = json!({"resource": self.resource, "from": self.from});
        if self.sandbox {
            extension["sandbox"] = Value::Bool(true);
        }
        extension
    }

    /// Whether an entry is this one's. Entries from before their origin was kept are taken up anew, and only by real ones.
    fn renews(&self, item: &Value, inner: &str) -> bool {
        let Some(found) = extension(item, inner) else { return false };
        let same = found.get("resource") == Some(&json!(self.resource));
        let sandbox = found.get("sandbox").and_then(Value::as_bool).unwrap_or(false);
        let from = found.get("from").and_then(Value::as_str);
        same && sandbox == self.sandbox && from.map_or(!self.sandbox, |from| from == self.from)
    }

    /// Whether it was written for this one beyond doubt.
    fn wrote(&self, item: &Value, inner: &str) -> bool {
        extension(item, inner).is_some_and(|found| *found == self.extension())
    }
}

/// A kubeconfig's current context, to be put in under a name of its own.
#[derive(Debug)]
pub struct Entry {
    name: String,
    owner: Owner,
    contents: [Value; 3],
}

#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    pub text: String,
    /// Something that Berth did not make is not as it was.
    pub touched_others: bool,
}

impl Entry {
    /// Takes the current context out of the kubeconfig that a cloud gave.
    pub fn new(kubeconfig: &str, name: &str, owner: Owner) -> Result<Self, MergeError> {
        let root = read(kubeconfig)?;
        let named = |list: &str, name: &str, inner: &str| -> Option<Value> {
            let items = root.get(list)?.as_array()?;
            let found = items.iter().find(|item| item.get("name").and_then(Value::as_str) == Some(name));
            found?.get(inner).cloned()
        };
        let first = || root.pointer("/contexts/0/name").and_then(Value::as_str);
        let current = root.get("current-context").and_then(Value::as_str).filter(|text| !text.is_empty());
        let context = current.or_else(first).and_then(|name| named("contexts", name, "context"));
        let context = context.ok_or(MergeError::Incomplete("a context"))?;
        let of = |list: &str, key: &str| named(list, context.get(key)?.as_str()?, key);
        let cluster = of("clusters", "cluster").ok_or(MergeError::Incomplete("its cluster"))?;
        let user = of("users", "user").ok_or(MergeError::Incomplete("its user"))?;
        let mut own = json!({"cluster": name, "user": name});
        if let Some(namespace) = context.get("namespace") {
            own["namespace"] = namespace.clone();
        }
        let mut contents = [cluster, user, own];
        for content in &mut contents {
            if !content.is_object() {
                *content = json!({});
            }
            content["extensions"] = json!([{"name": EXTENSION, "extension": owner.extension()}]);
        }
        Ok(Self { name: name.to_owned(), owner, contents })
    }

    fn item(&self, section: usize) -> Value {
        let mut item = Map::new();
        item.insert(SECTIONS[section].1.to_owned(), self.contents[section].clone());
        item.insert("name".to_owned(), Value::String(self.name.clone()));
        Value::Object(item)
    }
}

/// A field of some user that reaches beyond the kubeconfig: a program to start, a file to send. Whoever made the text, a cloud or
/// a worker of a server, has no say on this machine.
pub fn reaches_further(kubeconfig: &str) -> Option<String> {
    let root = read(kubeconfig).ok()?;
    let users = root.get("users").and_then(Value::as_array).into_iter().flatten();
    let mut fields = users.filter_map(|user| user.get("user")?.as_object()).flat_map(Map::keys);
    fields.find(|field| !CREDENTIALS.contains(&field.as_str()) && *field != "extensions").cloned()
}

/// Puts the entry into the file's text and makes it the current one. `force` replaces a foreign entry of the same name.
pub fn merge(text: &str, entry: &Entry, force: bool) -> Result<Merged, MergeError> {
    let before = if text.trim().is_empty() { json!({"apiVersion": "v1", "kind": "Config"}) } else { read(text)? };
    let mut after = match before {
        Value::Null => json!({"apiVersion": "v1", "kind": "Config"}),
        Value::Object(_) => before.clone(),
        _ => return Err(MergeError::NotAKubeconfig),
    };
    let mut touched_others = false;
    let current = before.get("current-context").and_then(Value::as_str).unwrap_or_default();
    for (index, (section, inner)) in SECTIONS.into_iter().enumerate() {
        let list = &mut after[section];
        if list.is_null() {
            *list = json!([]);
        }
        let items = list.as_array_mut().ok_or(MergeError::NotAKubeconfig)?;
        if index == 2 && !current.is_empty() && current != entry.name {
            let kept = items.iter().find(|item| item.get("name").and_then(Value::as_str) == Some(current));
            touched_others |= kept.is_none_or(|item| extension(item, inner).is_none());
        }
        match items.iter_mut().find(|item| item.get("name").and_then(Value::as_str) == Some(&entry.name)) {
            Some(item) => {
                if !entry.owner.renews(item, inner) {
                    if !force {
                        return Err(MergeError::Taken { what: inner });
                    }
                    touched_others = true;
                }
                *item = entry.item(index);
            }
            None => items.push(entry.item(index)),
        }
    }
    after["current-context"] = Value::String(entry.name.clone());
    if after == before {
        return Ok(Merged { text: text.to_owned(), touched_others: false });
    }
    // The edited text is parsed again to verify that it has the intended content.
    match edit(text, entry).filter(|edited| read(edited).is_ok_and(|read| read == after)) {
        Some(text) => Ok(Merged { text, touched_others }),
        None => Ok(Merged { touched_others: touched_others || !text.trim().is_empty(), text: to_yaml(&after) }),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Removed {
    pub text: String,
    /// Names of the contexts that are gone.
    pub contexts: Vec<String>,
}

/// Removes the entries of these owners; `None` if there are none. Entries that other contexts use remain.
pub fn remove(text: &str, owners: &[Owner]) -> Result<Option<Removed>, MergeError> {
    let mut after = read(text)?;
    let named = |item: &Value| item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let gone = |item: &Value, inner: &str| owners.iter().any(|owner| owner.wrote(item, inner));
    let mut removed: [Vec<String>; 3] = Default::default();
    // Contexts first: entries that the remaining contexts refer to are in use.
    for index in [2, 0, 1] {
        let (section, inner) = SECTIONS[index];
        let used: Vec<String> = after["contexts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|context| {
                context.pointer(&format!("/context/{inner}")).and_then(Value::as_str).unwrap_or_default().to_owned()
            })
            .collect();
        let Some(items) = after.get_mut(section).and_then(Value::as_array_mut) else { continue };
        items.retain(|item| {
            let goes = gone(item, inner) && (index == 2 || !used.contains(&named(item)));
            if goes {
                removed[index].push(named(item));
            }
            !goes
        });
    }
    if removed.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let current = after.get("current-context").and_then(Value::as_str).unwrap_or_default().to_owned();
    let unset = removed[2].contains(&current);
    if unset {
        after["current-context"] = json!("");
    }
    let cut = cut(text, &removed, unset).filter(|cut| read(cut).is_ok_and(|read| same(&read, &after)));
    let [_, _, contexts] = removed;
    Ok(Some(Removed { text: cut.unwrap_or_else(|| to_yaml(&after)), contexts }))
}

/// The same, where a list that has become empty is none.
fn same(read: &Value, meant: &Value) -> bool {
    let full = |value: &Value| {
        let mut value = value.clone();
        for (section, _) in SECTIONS {
            if value.get(section).is_none_or(Value::is_null) {
                value[section] = json!([]);
            }
        }
        value
    };
    full(read) == full(meant)
}

/// The entries of these names cut out of the text itself, by section.
fn cut(text: &str, removed: &[Vec<String>; 3], unset: bool) -> Option<String> {
    let root = Documents::new("kubeconfig", text.as_bytes()).ok()?.next()?.root?;
    let mut edits: Vec<(usize, usize, &str)> = Vec::new();
    for (names, (section, _)) in removed.iter().zip(SECTIONS) {
        if names.is_empty() {
            continue;
        }
        let Yaml::Seq { items, flow: false } = &root.entry(section, section)?.node.value else { return None };
        for item in items {
            let name = item.entry("name", "name").and_then(|entry| entry.node.text());
            if name.is_some_and(|name| names.iter().any(|one| one == name)) {
                let (start, end) = item_lines(text, item)?;
                edits.push((start, end, ""));
            }
        }
    }
    if unset {
        let node = &root.entry("current-context", "current-context")?.node;
        edits.push((node.span.start, node.span.end, "\"\""));
    }
    edits.sort_by_key(|(start, ..)| std::cmp::Reverse(*start));
    let mut out = text.to_owned();
    for (start, end, new) in edits {
        out.get(start..end)?;
        out.replace_range(start..end, new);
    }
    Some(out)
}

/// What Berth says of an entry that it made.
fn extension<'v>(item: &'v Value, inner: &str) -> Option<&'v Value> {
    let extensions = item.get(inner)?.get("extensions")?.as_array()?;
    let ours = extensions.iter().find(|e| e.get("name").and_then(Value::as_str) == Some(EXTENSION))?;
    ours.get("extension")
}

fn read(text: &str) -> Result<Value, MergeError> {
    let unreadable = |message: String| MergeError::Unreadable(message);
    let mut documents = Documents::new("kubeconfig", text.as_bytes()).map_err(|problem| unreadable(problem.message))?;
    let Some(first) = documents.next() else { return Ok(Value::Null) };
    if let Some(problem) = first.problems.into_iter().next() {
        return Err(unreadable(problem.message));
    }
    if documents.next().is_some() {
        return Err(MergeError::NotAKubeconfig);
    }
    Ok(first.root.as_ref().map_or(Value::Null, plain))
}

/// The same change in the text itself; `None` where the text is not laid out as kubeconfigs usually are.
fn edit(text: &str, entry: &Entry) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let root = Documents::new("kubeconfig", text.as_bytes()).ok()?.next()?.root?;
    if !matches!(root.value, Yaml::Map { flow: false, .. }) {
        return None;
    }
    // From the end of the text to its beginning, so that places stay valid while it is changed.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    let mut tail = String::new();
    for (index, (section, _)) in SECTIONS.into_iter().enumerate() {
        let item = to_yaml(&json!([entry.item(index)]));
        let Some(list) = root.entry(section, section) else {
            tail.push_str(&format!("{section}:\n{item}"));
            continue;
        };
        match &list.node.value {
            Yaml::Seq { items, flow: false } if !items.is_empty() => {
                let named =
                    |node: &&Node<'_>| node.entry("name", "name").and_then(|e| e.node.text()) == Some(&entry.name);
                let (start, end) = match items.iter().find(named) {
                    Some(item) => item_lines(text, item)?,
                    None => {
                        let (_, end) = item_lines(text, items.last()?)?;
                        (end, end)
                    }
                };
                let dash = dash_column(text, items.first()?)?;
                let pad = " ".repeat(dash);
                let mut lines: String = item.lines().map(|line| format!("{pad}{line}\n")).collect();
                if start == end && !text[..start].ends_with('\n') {
                    lines.insert(0, '\n');
                }
                edits.push((start, end, lines));
            }
            Yaml::Seq { items, .. } if items.is_empty() => {
                edits.push((list.node.span.start, list.node.span.end, format!("\n{}", item.trim_end())));
            }
            Yaml::Null if list.node.span.start < list.node.span.end => {
                edits.push((list.node.span.start, list.node.span.end, format!("\n{}", item.trim_end())));
            }
            _ => return None,
        }
    }
    let name = to_yaml(&json!(entry.name));
    match root.entry("current-context", "current-context").map(|e| &e.node) {
        Some(node) if node.span.start < node.span.end => {
            edits.push((node.span.start, node.span.end, name.trim_end().to_owned()));
        }
        Some(_) => return None,
        None => tail.push_str(&format!("current-context: {name}")),
    }
    edits.sort_by_key(|(start, ..)| std::cmp::Reverse(*start));
    let mut out = text.to_owned();
    if !tail.is_empty() {
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&tail);
    }
    for (start, end, new) in edits {
        if !out.is_char_boundary(start) || !out.is_char_boundary(end) || start > end {
            return None;
        }
        out.replace_range(start..end, &new);
    }
    Some(out)
}

fn line_start(text: &str, at: usize) -> Option<usize> {
    Some(text.get(..at)?.rfind('\n').map_or(0, |found| found + 1))
}

/// Column of the dash before a list's entry, when the entry begins on the dash's line.
fn dash_column(text: &str, item: &Node<'_>) -> Option<usize> {
    let first = item.entries().first()?.key_span.start;
    let before = text.get(line_start(text, first)?..first)?;
    let dash = before.find('-')?;
    before.chars().all(|c| c == ' ' || c == '-').then_some(dash).filter(|_| before.matches('-').count() == 1)
}

/// From the beginning of the dash's line to the end of the last line that belongs to the entry.
fn item_lines(text: &str, item: &Node<'_>) -> Option<(usize, usize)> {
    let dash = dash_column(text, item)?;
    let start = line_start(text, item.entries().first()?.key_span.start)?;
    let mut end = start;
    let mut at = start;
    for line in text.get(start..)?.split_inclusive('\n') {
        let content = line.trim_end();
        let indent = content.len() - content.trim_start().len();
        if at > start && !content.is_empty() && indent <= dash {
            break;
        }
        at += line.len();
        if !content.is_empty() {
            end = at;
        }
    }
    Some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOUD: &str = "\
apiVersion: v1
kind: Config
clusters:
- cluster: {certificate-authority-data: Q0E=, server: 'https://1.2.3.4:6443'}
  name: shop-k8s
contexts:
- context: {cluster: shop-k8s, user: shop-k8s}
  name: shop-k8s
current-context: shop-k8s
users:
- name: shop-k8s
  user: {client-certificate-data: Q0U=, client-key-data: S0U=}
";

    #[test]
    fn a_clusters_user_holds_credentials_and_names_no_program_and_no_file() {
        assert_eq!(reaches_further(CLOUD), None);
        assert_eq!(reaches_further(&CLOUD.replace("client-key-data: S0U=", "token: abc")), None);
        for field in
            ["exec: {command: sh}", "auth-provider: {name: x}", "tokenFile: /etc/passwd", "client-key: /root/key"]
        {
            let found = reaches_further(&CLOUD.replace("client-key-data: S0U=", field));
            assert_eq!(found.as_deref(), field.split(':').next(), "{field}");
        }
    }

    const MINE: &str = "\
# mine, by hand
apiVersion: v1
clusters:
  # work
  - name: work
    cluster:
      server: https://work:6443   # vpn only
contexts:
  - name: work
    context: {cluster: work, user: me}
current-context: work
kind: Config
preferences: {}
users:
  - name: me
    user:
      token: \"0123\"
";

    fn owner(kind: &str, name: &str) -> Owner {
        Owner { resource: ResourceId::new(kind, name), from: "/work/.berth/state.db".into(), sandbox: false }
    }

    fn entry() -> Entry {
        Entry::new(CLOUD, "shop", owner("CivoKubernetesCluster", "shop")).unwrap()
    }

    #[test]
    fn a_simulated_cluster_never_takes_a_real_ones_place_nor_the_other_way_round() {
        let real = owner("CivoKubernetesCluster", "shop");
        let simulated = Owner { sandbox: true, ..real.clone() };
        let elsewhere = Owner { from: "https://berth.example.com".into(), ..real.clone() };
        let taken = Err(MergeError::Taken { what: "cluster" });
        for (first, second) in [(&real, &simulated), (&simulated, &real), (&real, &elsewhere)] {
            let merged = merge("", &Entry::new(CLOUD, "shop", first.clone()).unwrap(), false).unwrap();
            let other = Entry::new(CLOUD, "shop", second.clone()).unwrap();
            assert_eq!(merge(&merged.text, &other, false), taken);
            assert!(merge(&merged.text, &other, true).is_ok());
        }
        // The form of an earlier version: accepted for real clusters only.
        let old = merge("", &entry(), false).unwrap().text.replace("from: /work/.berth/state.db", "");
        assert!(merge(&old, &entry(), false).is_ok());
        assert_eq!(merge(&old, &Entry::new(CLOUD, "shop", simulated).unwrap(), false), taken);
    }

    #[test]
    fn what_was_put_in_is_taken_out_again_and_nothing_else() {
        let merged = merge(MINE, &entry(), false).unwrap();
        let others = [owner("CivoKubernetesCluster", "other"), Owner { sandbox: true, ..entry().owner }];
        assert_eq!(remove(&merged.text, &others), Ok(None));
        let removed = remove(&merged.text, &[entry().owner]).unwrap().unwrap();
        assert_eq!(removed.contexts, ["shop"]);
        let expected = MINE.replace("current-context: work", "current-context: \"\"");
        assert_eq!(removed.text, expected, "every byte of the others' is there");
        // A cluster that another's context uses stays.
        let used = merged.text.replace("context: {cluster: work, user: me}", "context: {cluster: shop, user: me}");
        let removed = remove(&used, &[entry().owner]).unwrap().unwrap();
        assert!(removed.text.contains("1.2.3.4") && !removed.text.contains("S0U="), "{}", removed.text);
        assert_eq!(remove("", &[entry().owner]), Ok(None));
    }

    #[test]
    fn a_new_file_holds_the_entry_alone() {
        let merged = merge("", &entry(), false).unwrap();
        assert!(!merged.touched_others);
        let read = read(&merged.text).unwrap();
        assert_eq!(read["current-context"], "shop");
        assert_eq!(read["clusters"][0]["cluster"]["server"], "https://1.2.3.4:6443");
        assert_eq!(read["contexts"][0]["context"]["cluster"], "shop");
        let again = merge(&merged.text, &entry(), false).unwrap();
        assert_eq!(again.text, merged.text, "a second merge changes nothing");
    }

    #[test]
    fn what_others_wrote_stays_byte_for_byte() {
        let merged = merge(MINE, &entry(), false).unwrap();
        assert!(merged.touched_others, "the current context was somebody else's");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let now = lines(&merged.text);
        for line in lines(MINE).iter().filter(|line| !line.starts_with("current-context")) {
            assert!(now.contains(line), "{line:?} is gone from\n{}", merged.text);
        }
        assert!(merged.text.starts_with("# mine, by hand\n"));
        let diff: Vec<String> = now.into_iter().filter(|line| !lines(MINE).contains(line)).collect();
        assert_eq!(diff[0], "  - cluster:");
        let read = read(&merged.text).unwrap();
        assert_eq!(read["users"][0]["user"]["token"], "0123");
        assert_eq!(read["clusters"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn own_entries_are_renewed_in_place() {
        let first = merge(MINE, &entry(), false).unwrap();
        let moved = CLOUD.replace("1.2.3.4", "5.6.7.8");
        let owner = owner("CivoKubernetesCluster", "shop");
        let second = merge(&first.text, &Entry::new(&moved, "shop", owner).unwrap(), false).unwrap();
        assert!(!second.touched_others);
        assert_eq!(second.text, first.text.replace("1.2.3.4", "5.6.7.8"));
    }

    #[test]
    fn somebody_elses_name_is_refused_unless_forced() {
        let other = Entry::new(CLOUD, "work", owner("CivoKubernetesCluster", "work")).unwrap();
        assert_eq!(merge(MINE, &other, false), Err(MergeError::Taken { what: "cluster" }));
        let forced = merge(MINE, &other, true).unwrap();
        assert!(forced.touched_others && forced.text.contains("1.2.3.4") && !forced.text.contains("vpn only"));
        // An entry of the same name that belongs to another resource is foreign, too.
        let ours = merge("", &other, false).unwrap();
        let third = Entry::new(CLOUD, "work", owner("DigitalOceanKubernetesCluster", "work")).unwrap();
        assert_eq!(merge(&ours.text, &third, false), Err(MergeError::Taken { what: "cluster" }));
    }

    #[test]
    fn empty_lists_nulls_and_json_are_taken() {
        let empty = "apiVersion: v1\nclusters: []\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: []\n";
        let merged = merge(empty, &entry(), false).unwrap();
        assert!(!merged.touched_others, "{}", merged.text);
        let as_json =
            "{\"apiVersion\": \"v1\", \"kind\": \"Config\", \"clusters\": [{\"name\": \"a\", \"cluster\": {}}]}";
        let merged = merge(as_json, &entry(), false).unwrap();
        assert!(merged.touched_others, "the file is laid out anew");
        assert_eq!(read(&merged.text).unwrap()["clusters"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_kubeconfig_is_left_alone() {
        assert_eq!(merge("- a\n- b\n", &entry(), false), Err(MergeError::NotAKubeconfig));
        assert_eq!(merge("clusters: {a: b}\n", &entry(), false), Err(MergeError::NotAKubeconfig));
        assert!(matches!(merge("a: [\n", &entry(), false), Err(MergeError::Unreadable(_))));
        assert!(Entry::new("kind: Config\n", "x", owner("A", "b")).is_err());
    }
}
