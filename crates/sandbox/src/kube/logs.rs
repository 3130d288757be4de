//! `kubectl logs`. Nothing runs, so there are lines that could have been written: the same for the same container and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::Value;

use super::Clusters;
use super::api::{Ask, Given};
use super::objects::{At, Objects, meta};
use super::status::{self, Answer};
use crate::clock::SimTime;

/// A container that runs writes a line this often.
const LINE_MS: i64 = 5_000;
/// Lines before these are gone, as if the file had been rotated.
const MAX_LINES: i64 = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A log that is being followed.
#[derive(Debug)]
pub struct LogAsk {
    pub cluster: String,
    namespace: String,
    pod: String,
    container: String,
    timestamps: bool,
    /// What is there already.
    text: String,
    seen: SimTime,
}

/// When a container started, and when it ended if it did.
struct Span {
    from: SimTime,
    to: Option<SimTime>,
    code: i64,
}

fn span(state: &Value) -> Option<Span> {
    let time = |value: &Value| value.as_str()?.parse::<jiff::Timestamp>().ok().map(|at| SimTime(at.as_millisecond()));
    if let Some(from) = time(&state["running"]["startedAt"]) {
        return Some(Span { from, to: None, code: 0 });
    }
    let from = time(&state["terminated"]["startedAt"]).or_else(|| time(&state["terminated"]["finishedAt"]))?;
    Some(Span {
        from,
        to: time(&state["terminated"]["finishedAt"]),
        code: state["terminated"]["exitCode"].as_i64().unwrap_or(0),
    })
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|list| pod["status"][*list].as_array().into_iter().flatten())
        .find(|one| one["name"] == container)
}

pub fn answer(ask: &Ask, objects: &Objects, at: At, now: SimTime) -> Answer<Given> {
    let pod = objects.get(at)?;
    let names: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    let asked = ask.query("container");
    let main: Vec<&str> =
        pod["spec"]["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    let container = match (asked, main.as_slice()) {
        ("", [only]) => *only,
        ("", _) => {
            let why =
                format!("a container name must be specified for pod {}, choose one of: [{}]", at.name, main.join(" "));
            return Err(status::bad_request(why));
        }
        (asked, _) if names.contains(&asked) => asked,
        (asked, _) => return Err(status::bad_request(format!("container {asked} is not valid for pod {}", at.name))),
    };
    let found = status_of(pod, container);
    let state = if ask.flag("previous") {
        let last = found.map(|one| &one["lastState"]).and_then(span);
        let missing = format!("previous terminated container \"{container}\" in pod \"{}\" not found", at.name);
        last.ok_or_else(|| status::bad_request(missing))?
    } else {
        let now_or_last = found.and_then(|one| span(&one["state"]).or_else(|| span(&one["lastState"])));
        let waiting = found.and_then(|one| one["state"]["waiting"]["reason"].as_str()).unwrap_or("ContainerCreating");
        let why = match waiting {
            "ImagePullBackOff" | "ErrImagePull" => "trying and failing to pull image",
            other => other,
        };
        let message = format!("container \"{container}\" in pod \"{}\" is waiting to start: {why}", at.name);
        now_or_last.ok_or_else(|| status::bad_request(message))?
    };
    let since = ask.query("sinceSeconds").parse::<i64>().ok().map(|seconds| now.plus_ms(-seconds * 1000));
    let by_time = ask.query("sinceTime").parse::<jiff::Timestamp>().ok().map(|at| SimTime(at.as_millisecond()));
    let from = since.or(by_time).unwrap_or(SimTime(0));
    let mut all = lines(pod, container, &state, SimTime(from.0 - 1), now);
    if let Ok(count) = ask.query("tailLines").parse::<usize>() {
        all.drain(..all.len().saturating_sub(count));
    }
    let text = joined(&all, ask.flag("timestamps"));
    if ask.flag("follow") && state.to.is_none() {
        return Ok(Given::Log(LogAsk {
            cluster: ask.view.id.clone(),
            namespace: at.namespace.to_owned(),
            pod: at.name.to_owned(),
            container: container.to_owned(),
            timestamps: ask.flag("timestamps"),
            text,
            seen: now,
        }));
    }
    let limit = ask.query("limitBytes").parse().unwrap_or(usize::MAX);
    Ok(Given::Text(200, text.chars().take(limit).collect()))
}

fn joined(lines: &[(SimTime, String)], timestamps: bool) -> String {
    let one = |(at, line): &(SimTime, String)| {
        let stamp = at.rfc3339().replace('Z', &format!(".{:03}000000Z", at.0.rem_euclid(1000)));
        if timestamps { format!("{stamp} {line}\n") } else { format!("{line}\n") }
    };
    lines.iter().map(one).collect()
}

/// What a container wrote after one moment and not after the other.
fn lines(pod: &Value, container: &str, span: &Span, after: SimTime, until: SimTime) -> Vec<(SimTime, String)> {
    let until = span.to.unwrap_or(until);
    let spec = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .find(|one| one["name"] == container);
    let image = spec.and_then(|spec| spec["image"].as_str()).unwrap_or_default();
    let mut found = vec![(span.from, format!("level=info msg=\"starting {container}\" image={image}"))];
    if let Some(text) = spec.and_then(echoed) {
        found.extend(text.lines().map(|line| (span.from, line.to_owned())));
    }
    found.push((span.from.plus_ms(200), "level=info msg=\"configuration loaded\"".to_owned()));
    let last = (until.0 - span.from.0) / LINE_MS;
    for number in (last - MAX_LINES).max(1)..=last {
        let at = span.from.plus_ms(number * LINE_MS);
        let took = (number * 7919 + meta(pod, "uid").len() as i64 * 31) % 90 + 3;
        found.push((at, format!("level=info msg=\"request served\" method=GET path=/ status=200 duration={took}ms")));
    }
    if let Some(end) = span.to {
        let line = match span.code {
            0 => "level=info msg=\"done\"".to_owned(),
            code => format!("level=error msg=\"failed\" code={code}"),
        };
        found.push((end, line));
    }
    found.retain(|(at, _)| *at > after && *at <= until.max(span.from.plus_ms(200)));
    found
}

/// What a shell command says it prints.
fn echoed(container: &Value) -> Option<String> {
    let words =
        |field: &str| container[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let line: Vec<String> = words("command").chain(words("args")).collect();
    let script = line
        .last()
        .filter(|script| script.contains("echo "))
        .or_else(|| line.first().filter(|_| line.len() > 1 && line[0] == "echo"))?;
    if script == "echo" {
        return Some(line[1..].join(" "));
    }
    let said: Vec<String> = script
        .split([';', '\n', '&'])
        .filter_map(|part| part.trim().strip_prefix("echo "))
        .map(|text| text.trim_matches(['"', '\'', ' ']).to_owned())
        .collect();
    Some(said.join("\n"))
}

/// The log as a stream: what is there, then each line when its time comes, until the container ends.
pub(super) fn follow(clusters: Arc<Clusters>, asked: LogAsk) -> impl Stream<Item = Bytes> + Send {
    futures::stream::unfold((clusters, asked, false), |(clusters, mut asked, mut begun)| async move {
        loop {
            if !begun {
                begun = true;
                let text = std::mem::take(&mut asked.text);
                // An empty first part makes clients take the stream as open.
                return Some((Bytes::from(text), (clusters, asked, begun)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let view = clusters.world.cluster_view(&asked.cluster).filter(|view| view.api_up)?;
            let more = clusters.with(&view, |objects, now| {
                let pod = objects.peek("", "pods", &asked.namespace, &asked.pod)?;
                let state = span(&status_of(pod, &asked.container)?["state"])?;
                let more = lines(pod, &asked.container, &state, asked.seen, now);
                Some((joined(&more, asked.timestamps), now, state.to.is_some()))
            });
            let (text, now, ended) = more?;
            asked.seen = now;
            if !text.is_empty() {
                return Some((Bytes::from(text), (clusters, asked, begun)));
            }
            if ended {
                return None;
            }
        }
    })
}
