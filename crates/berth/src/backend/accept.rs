//! `drift --accept`: what was found becomes what is declared, in the manifests' files and in the state.

use super::Backend;
use crate::args::repeated_flags::command;
use crate::failure::Failure;
use crate::local::manifest_edit::{Edited, set, take, write};
use crate::view::drift_view::{Findings, count};
use crate::view::output::Format;
use crate::view::terminal::harmless;
use berth_engine::Finding;
use berth_model::{Manifest, ResourceId};
use berth_store::StoredResource;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A resource whose findings were taken over, and what the state is to hold of it.
pub struct Accepted<'f> {
    pub stored: StoredResource,
    /// The same as JSON and as a manifest.
    pub json: Value,
    pub manifest: Manifest,
    pub findings: Vec<&'f Finding>,
}

/// Writes what can be accepted and says why the rest cannot. Answers whether anything is left.
pub async fn accept(backend: &dyn Backend, findings: &Findings, format: Format) -> Result<bool, Failure> {
    backend.begin("drift --accept").await?;
    let mut files: BTreeMap<PathBuf, Edited> = BTreeMap::new();
    let mut accepted = Vec::new();
    let mut refused: Vec<(&ResourceId, &Finding, String)> = Vec::new();
    for (id, found) in findings {
        let Some((stored, mut manifest)) = backend.editable(id).await? else { continue };
        let mut taken = Vec::new();
        for finding in found {
            match take(&stored, finding, &mut files) {
                Ok(values) => {
                    values.iter().for_each(|(path, value)| set(&mut manifest, path, value));
                    taken.push(finding);
                }
                Err(why) => refused.push((id, finding, why)),
            }
        }
        if !taken.is_empty() {
            let json = manifest;
            let manifest = stored.manifest(&json)?;
            accepted.push(Accepted { stored, json, manifest, findings: taken });
        }
    }

    let people = format.is_for_people();
    files.retain(|_, edited| edited.before != edited.after);
    for (path, edited) in &files {
        if people {
            let name = path.display().to_string();
            let diff = similar::TextDiff::from_lines(&edited.before, &edited.after);
            anstream::print!("{}", harmless(&diff.unified_diff().header(&name, &name).to_string()));
        }
        // The file is written first: if the rest is interrupted, the next drift check finds the same and it can be accepted again.
        write(path, &edited.after)?;
    }
    let values: usize = accepted.iter().map(|one| one.findings.len()).sum();
    let resources = accepted.len();
    backend.accept(accepted).await?;
    if values > 0 {
        anstream::eprintln!("accepted {} of {}", count(values, "value"), count(resources, "resource"));
    }
    for (id, finding, why) in &refused {
        refusal(id, finding, why).print();
    }
    Ok(!refused.is_empty())
}

fn refusal(id: &ResourceId, finding: &Finding, why: &str) -> Failure {
    let failure = match finding.gone {
        true => Failure::new(format!("{id} is gone, which a manifest cannot say")),
        false => Failure::new(format!("{id}: {} cannot be accepted", finding.field)),
    };
    let failure = failure.help(why);
    match finding.gone {
        true => failure.help(format!("or take it out of the manifests, and:   {}", command("delete", id))),
        false => failure,
    }
}
