//! Validates the manifests of a request: each by itself, all together, and against stored resources. All errors are reported at
//! once, with positions.

use super::uses;
use crate::access::Principal;
use crate::api::ServerState;
use crate::api::arguments::invalid_argument;
use crate::fault::{Code, Fault};
use crate::pb;
use berth_clouds::accounts::Declared;
use berth_clouds::address;
use berth_model::{Diagnostic, Manifest, ResourceId, Severity, graph, parse};
use berth_store::ListQuery;
use std::collections::{HashMap, HashSet};

/// Files in one request.
const FILES_MAX: usize = 10_000;
/// Manifests in one request.
pub const MANIFESTS_MAX: usize = 10_000;
const FILE_NAME_BYTES_MAX: usize = 4096;
/// Beyond so many bytes, reading them would hold up others on the same thread.
const READ_APART_BYTES: usize = 128 << 10;
/// Resources that a misspelt name is compared with.
const NEAR_MAX: u32 = 1000;
/// What is told of a request that is wrong in very many places.
const PROBLEMS_MAX: usize = 1000;

/// Manifests without errors.
pub struct Checked {
    pub manifests: Vec<Manifest>,
    pub warnings: Vec<pb::Problem>,
}

pub async fn check(server: &ServerState, caller: &Principal, files: Vec<pb::ManifestFile>) -> Result<Checked, Fault> {
    if files.len() > FILES_MAX {
        return Err(invalid_argument("files", &format!("there are at most {FILES_MAX}")));
    }
    if let Some(at) = files.iter().position(|file| file.name.len() > FILE_NAME_BYTES_MAX || file.name.contains('\0')) {
        let why = format!("it has at most {FILE_NAME_BYTES_MAX} bytes, and no NUL");
        return Err(invalid_argument(&format!("files[{at}].name"), &why));
    }
    let order: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let size: usize = files.iter().map(|file| file.text.len()).sum();
    let (manifests, mut problems) = if size > READ_APART_BYTES {
        let read = tokio::task::spawn_blocking(move || read(files)).await;
        read.map_err(|_| Fault::new(Code::Internal, "the manifests could not be read"))?
    } else {
        read(files)
    };
    if manifests.len() > MANIFESTS_MAX {
        return Err(invalid_argument("files", &format!("there are at most {MANIFESTS_MAX} manifests in a request")));
    }
    if manifests.is_empty() {
        // Nothing to work on is a mistake, even where each file by itself may be empty.
        problems.iter_mut().for_each(|problem| problem.severity = Severity::Error);
    }
    let known = known(server, caller, &manifests).await?;
    let joined = graph(&manifests, &known);
    let missing = joined.diagnostics.iter().any(|problem| problem.unresolved.is_some());
    let joined = if missing {
        let near = near(server, caller, &manifests, known).await?;
        graph(&manifests, &near)
    } else {
        joined
    };
    problems.extend(joined.diagnostics);
    let rank: HashMap<&str, usize> = order.iter().enumerate().rev().map(|(at, name)| (name.as_str(), at)).collect();
    problems.sort_by_key(|problem| (rank.get(problem.file.as_str()).copied(), problem.span.map(|span| span.start)));
    problems.dedup();
    if problems.iter().any(Diagnostic::is_error) {
        return Err(invalid(&problems));
    }
    urls(server, &manifests).await?;
    uses::check(server, caller, &manifests).await?;
    Ok(Checked { manifests, warnings: problems.iter().map(pb::Problem::from).collect() })
}

/// Accounts name addresses that workers call, with a token of theirs or not: not any.
async fn urls(server: &ServerState, manifests: &[Manifest]) -> Result<(), Fault> {
    let mut problems = Vec::new();
    for manifest in manifests.iter().filter(|manifest| manifest.id.kind == "Account") {
        let declared = Declared::read(&manifest.id, &manifest.resolve(&|_| Some(String::new())))?;
        let Some(url) = declared.api_url.as_deref().filter(|_| server.config.simulated.is_none()) else { continue };
        let allowed = match server.allow_url(&declared) {
            Ok(()) => address::check_now(url).await,
            refused => refused,
        };
        if let Err(trouble) = allowed {
            let mut problem = manifest.problem(&format!("spec.{}.apiUrl", declared.provider), trouble.to_string());
            problem.help = trouble.help_lines();
            problems.push(problem);
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(invalid(&problems)) }
}

fn read(files: Vec<pb::ManifestFile>) -> (Vec<Manifest>, Vec<Diagnostic>) {
    let (mut manifests, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        let (mut some, mut wrong) = parse(&file.name, file.text.as_bytes());
        manifests.append(&mut some);
        problems.append(&mut wrong);
    }
    (manifests, problems)
}

pub fn invalid(problems: &[Diagnostic]) -> Fault {
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let message = match problems.iter().find(|problem| problem.is_error()) {
        Some(only) if errors == 1 => only.message.clone(),
        _ => format!("{errors} errors; nothing was changed"),
    };
    let mut fault = Fault::new(Code::InvalidManifest, message);
    fault.problems = problems.iter().take(PROBLEMS_MAX).map(pb::Problem::from).collect();
    fault
}

/// What the manifests refer to and is stored. What the caller may not see, and what is going, is not there.
async fn known(server: &ServerState, caller: &Principal, manifests: &[Manifest]) -> Result<HashSet<ResourceId>, Fault> {
    let mut known = HashSet::new();
    let own: HashSet<&ResourceId> = manifests.iter().map(|manifest| &manifest.id).collect();
    let targets: HashSet<ResourceId> = manifests
        .iter()
        .flat_map(|manifest| manifest.refs())
        .map(|reference| reference.to)
        .filter(|to| !own.contains(to) && caller.may_see(to))
        .collect();
    for target in targets {
        if let Some(stored) = server.control.store().resource(&target).await? {
            if stored.deleting {
                return Err(Fault::new(
                    Code::Refused,
                    format!("{target} is being deleted, and something refers to it"),
                )
                .help("wait until it is gone, then apply it together with what refers to it"));
            }
            known.insert(target);
        }
    }
    Ok(known)
}

/// The same with what a missing name may have been meant to be.
async fn near(
    server: &ServerState,
    caller: &Principal,
    manifests: &[Manifest],
    mut known: HashSet<ResourceId>,
) -> Result<HashSet<ResourceId>, Fault> {
    let missing: HashSet<(String, String, String)> = manifests
        .iter()
        .flat_map(|manifest| manifest.refs())
        .filter(|reference| !known.contains(&reference.to))
        .map(|reference| (reference.to.kind, reference.to.org, reference.to.env))
        .collect();
    for (kind, org, env) in missing.into_iter().take(8) {
        let (kind, org, env) = (Some(kind), Some(org), Some(env));
        let query = ListQuery { kind, org, env, limit: NEAR_MAX, ..ListQuery::default() };
        let found = server.control.list(&query).await?.resources;
        known.extend(found.into_iter().map(|one| one.resource.id).filter(|id| caller.may_see(id)));
    }
    Ok(known)
}
