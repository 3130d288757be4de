//! `berth policy test`: what policies say of plans, without a server and without a cloud.

use crate::failure::{CommandResult, Exit, Failure};
use crate::local::files;
use crate::view::diagnostics::{self, count};
use crate::view::output::{self, Format, OutputArgs};
use crate::view::terminal::harmless_line;
use berth_engine::{Action, Plan, ResourcePlan};
use berth_model::{Diagnostic, MAX_FILE_BYTES, Manifest, PolicyCase, ResourceId, parse, policy_tests};
use berth_server::gate::GateInput;
use berth_server::policy::{Effect, Facts, Policy, Verdict};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A Thursday: what a case's time is when it says none, so that a test means the same every day.
const USUAL_NOW: &str = "2026-01-01T12:00:00Z";

/// Test policies
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth policy test -f policies/ tests.yaml\n  berth policy test -f policies/ -f shop/cluster.yaml"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Say what policies would say, offline
    #[command(
        before_help = "Examples:\n  berth policy test -f policies/ tests.yaml\n  berth policy test -f policies/ -f shop/ --plan plan.json -o json",
        long_about = "Say what policies would say, offline.\n\nWith files of cases (`kind: PolicyTest`), each case is held against its expectation. Without, the other manifests given with -f are judged: as if they were created, or as the plan that `berth plan -o json` printed says."
    )]
    Test(TestArgs),
}

#[derive(clap::Args, Debug)]
struct TestArgs {
    /// Files or folders of cases
    #[arg(value_name = "TESTS")]
    tests: Vec<PathBuf>,
    /// Policies, and manifests to judge: file, folder or `-`; may be given more than once
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    file: Vec<PathBuf>,
    /// A plan that `berth plan -o json` printed; its resources' manifests are given with -f
    #[arg(long, value_name = "FILE", conflicts_with = "tests")]
    plan: Option<PathBuf>,
    /// The time that rules see
    #[arg(long, value_name = "TIME", value_parser = timestamp)]
    now: Option<Timestamp>,
    #[command(flatten)]
    output: OutputArgs,
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("`{text}` is not a time; write 2026-11-13T12:00:00Z"))
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        What::Test(args) => test(args),
    }
}

fn test(args: TestArgs) -> CommandResult {
    let mut texts = Texts::default();
    let manifests = read(&args.file, &mut texts, parse);
    let cases = if args.tests.is_empty() { Vec::new() } else { read(&args.tests, &mut texts, policy_tests) };
    if let Some(exit) = texts.refuse() {
        return Ok(exit);
    }
    let (policies, others): (Vec<Manifest>, Vec<Manifest>) =
        manifests.into_iter().partition(|manifest| manifest.id.kind == "Policy");
    if policies.is_empty() {
        return Err(Failure::new("there is no Policy in what -f names").help("give the policies with -f"));
    }
    let policies: Vec<Policy> = policies.iter().map(|policy| Policy::of(&policy.id, &policy.to_json())).collect();
    if args.tests.is_empty() {
        return judge(&args, &policies, others);
    }
    if let Some(other) = others.first() {
        return Err(Failure::new(format!("{} is not a Policy: a case has its own resource", other.id))
            .help("leave the files of tests out to judge manifests"));
    }
    let format = args.output.output;
    let results: Vec<(PolicyCase, Result<Vec<Verdict>, String>)> =
        cases.into_iter().map(|case| (case.clone(), held(&case, &policies, args.now))).collect();
    tell(&results, format)
}

/// What was read, for showing lines.
#[derive(Default)]
struct Texts {
    texts: BTreeMap<String, String>,
    problems: Vec<Diagnostic>,
    count: usize,
}

impl Texts {
    /// Says what is wrong, if anything is.
    fn refuse(&self) -> Option<Exit> {
        let source = |name: &str| self.texts.get(name).map(String::as_str);
        if self.problems.is_empty() {
            return None;
        }
        let affected: BTreeSet<&str> = self.problems.iter().map(|problem| problem.file.as_str()).collect();
        diagnostics::print(&self.problems, source, affected.len(), self.count.max(affected.len()));
        self.problems.iter().any(Diagnostic::is_error).then_some(Exit::Failed)
    }
}

/// Reads the documents of one file, named and in bytes.
type Parse<T> = fn(&str, &[u8]) -> (Vec<T>, Vec<Diagnostic>);

fn read<T>(paths: &[PathBuf], texts: &mut Texts, parse: Parse<T>) -> Vec<T> {
    let files::SourceFiles { sources, problems, .. } = files::read(paths);
    texts.problems.extend(problems);
    let mut all = Vec::new();
    for source in sources {
        let (found, problems) = parse(&source.name, &source.bytes);
        texts.count += found.len();
        texts.problems.extend(problems);
        texts.texts.insert(source.name, String::from_utf8_lossy(&source.bytes).into_owned());
        all.extend(found);
    }
    all
}

/// What the policies say of a case, or why it does not count.
fn held(case: &PolicyCase, policies: &[Policy], now: Option<Timestamp>) -> Result<Vec<Verdict>, String> {
    let now = match (case.now.as_str(), now) {
        ("", Some(now)) => now,
        ("", None) => timestamp(USUAL_NOW)?,
        (given, _) => timestamp(given)?,
    };
    let id = &case.resource.id;
    let manifest = case.resource.redacted().to_json();
    let old = case.old.clone().or_else(|| (case.action == "delete").then(|| manifest["spec"].clone()));
    let input = GateInput {
        old: old.map(|spec| json!({"spec": spec})),
        applied_by: case.actor.clone(),
        ..GateInput::new(id.clone(), manifest)
    };
    let facts = Facts::of(id, &input, &case.action, case.units.clone(), now);
    Ok(policies.iter().filter(|policy| policy.concerns(id)).filter_map(|policy| policy.judge(&facts)).collect())
}

/// The strongest of what was said.
fn outcome(verdicts: &[Verdict]) -> &'static str {
    let says = |effect| verdicts.iter().any(|verdict| verdict.effect == effect);
    if says(Effect::Deny) {
        "deny"
    } else if says(Effect::Warn) {
        "warn"
    } else {
        "allow"
    }
}

/// What is not as the case expects it; nothing when it passed.
fn missed(case: &PolicyCase, verdicts: &[Verdict]) -> Option<String> {
    let got = outcome(verdicts);
    if got != case.expect {
        return Some(format!("expected {}, got {got}", case.expect));
    }
    let of_effect = || verdicts.iter().filter(|verdict| verdict.effect.name() == got);
    if !case.policy.is_empty() && of_effect().all(|verdict| verdict.policy != case.policy) {
        return Some(format!("expected it from policy {}", case.policy));
    }
    let is_meant = |verdict: &Verdict| {
        verdict.message.contains(&case.message) && [&verdict.policy, ""].contains(&case.policy.as_str())
    };
    if !case.message.is_empty() && !of_effect().any(is_meant) {
        return Some(format!("expected a message with `{}`", case.message));
    }
    None
}

fn tell(results: &[(PolicyCase, Result<Vec<Verdict>, String>)], format: Format) -> CommandResult {
    let mut text = String::new();
    let mut rows = Vec::new();
    let mut failed = 0;
    for (case, verdicts) in results {
        let why = match verdicts {
            Ok(verdicts) => missed(case, verdicts),
            Err(why) => Some(why.clone()),
        };
        let verdicts = verdicts.as_deref().unwrap_or_default();
        let place = format!("{}:{}:{}", case.file, case.span.line, case.span.column);
        text.push_str(&format!("  {} {}\n", if why.is_none() { "✓" } else { "✗" }, harmless_line(&case.name)));
        if let Some(why) = &why {
            failed += 1;
            text.push_str(&format!("      {}\n", harmless_line(why)));
            for verdict in verdicts {
                text.push_str(&format!("      {}\n", harmless_line(&verdict.to_string())));
            }
            text.push_str(&format!("      --> {}\n", harmless_line(&place)));
        }
        rows.push(json!({
            "name": case.name,
            "file": case.file,
            "line": case.span.line,
            "passed": why.is_none(),
            "expected": case.expect,
            "got": outcome(verdicts),
            "why": why,
            "verdicts": verdicts,
        }));
    }
    let passed = results.len() - failed;
    text.push_str(&match failed {
        0 => format!("\n{} passed\n", count(passed, "case")),
        _ => format!("\n{failed} of {} failed\n", count(results.len(), "case")),
    });
    let names = || results.iter().map(|(case, _)| case.name.clone()).collect();
    let value = json!({"passed": passed, "failed": failed, "cases": rows});
    output::show(format, &value, |_| text, names)?;
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}

/// Judges manifests as they are, or as a plan says what becomes of them.
fn judge(args: &TestArgs, policies: &[Policy], manifests: Vec<Manifest>) -> CommandResult {
    let now = args.now.unwrap_or_else(Timestamp::now);
    let manifests: BTreeMap<ResourceId, Manifest> =
        manifests.into_iter().map(|manifest| (manifest.id.clone(), manifest)).collect();
    let plan = match &args.plan {
        Some(path) => read_plan(path)?,
        None => Plan { resources: manifests.keys().map(created).collect(), ..Plan::default() },
    };
    if plan.resources.is_empty() {
        return Err(Failure::new("there is nothing to judge")
            .help("give files of cases, or manifests beside the policies with -f"));
    }
    let mut rows = Vec::new();
    let mut text = String::new();
    let width = plan.resources.iter().map(|r| r.id.to_string().chars().count()).max().unwrap_or_default();
    let mut denied = 0;
    for resource in plan.resources.iter().filter(|r| r.action != Action::Unchanged) {
        let Some(manifest) = manifests.get(&resource.id) else {
            return Err(Failure::new(format!("the plan is about {}, whose manifest is not here", resource.id))
                .help("give its file with -f, as it was given to `berth plan`"));
        };
        let input = GateInput {
            applied_by: "local".into(),
            ..GateInput::new(resource.id.clone(), manifest.redacted().to_json())
        };
        let verdicts = berth_server::gate::verdicts(resource, &input, policies, now);
        let got = outcome(&verdicts);
        denied += usize::from(got == "deny");
        let id = resource.id.to_string();
        text.push_str(&format!("  {:width$}  {got}\n", harmless_line(&id)));
        for verdict in &verdicts {
            text.push_str(&format!("      {}\n", harmless_line(&verdict.to_string())));
        }
        rows.push(json!({"id": resource.id, "got": got, "verdicts": verdicts}));
    }
    let judged = rows.len();
    text.push_str(&match denied {
        0 => format!("\n{} judged, none denied\n", count(judged, "resource")),
        _ => format!("\n{} judged, {denied} denied\n", count(judged, "resource")),
    });
    let names = || plan.resources.iter().map(|r| r.id.to_string()).collect();
    output::show(args.output.output, &json!({"denied": denied, "resources": rows}), |_| text, names)?;
    Ok(if denied == 0 { Exit::Done } else { Exit::Failed })
}

fn created(id: &ResourceId) -> ResourcePlan {
    ResourcePlan {
        id: id.clone(),
        action: Action::Create,
        units: Vec::new(),
        after: Vec::new(),
        typical_seconds: None,
        strays: Vec::new(),
    }
}

fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot read the plan {}: {error}", path.display()))
            .help("a plan as JSON is made with:   berth plan -f FILE -o json > plan.json")
    };
    let size = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > MAX_FILE_BYTES as u64 {
        return Err(unreadable(&"it is too large"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    Plan::from_json(&value).map_err(|error| unreadable(&error))
}
