//! `berth delete`: takes away what was applied, those that refer to others first.

use crate::args::{Address, ChangeArgs, ConfirmArgs, RecreateArgs, ScopeArgs};
use crate::backend::{Access, Backend, ChangeOptions, lookup, with_backend};
use crate::commands::kubeconfig;
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{print_result, took_text};
use crate::local::manifests;
use crate::view::output::OutputArgs;
use berth_engine::{Known, Plan, Report, parents};
use berth_model::ResourceId;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

/// Delete what was applied
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth delete CivoKubernetesCluster/shop\n  berth delete -f shop/ --yes --allow-delete"
)]
pub struct Args {
    /// Resources, as Kind/name
    #[arg(value_name = "KIND/NAME", conflicts_with = "file")]
    what: Vec<String>,
    /// Manifests of the resources; may be given more than once
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required_unless_present = "what")]
    file: Vec<PathBuf>,
    /// Also delete everything that refers to them
    #[arg(long)]
    cascade: bool,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

enum What {
    Ids(Vec<ResourceId>),
    Addresses(Vec<Address>),
}

pub fn run(args: Args) -> CommandResult {
    let which = args.change.workspace.which()?;
    let scope = which.scope(&args.scope);
    let what = if args.file.is_empty() {
        What::Addresses(lookup::addresses(&args.what, &scope)?)
    } else {
        let loaded = manifests::load(&args.file, &which)?;
        if loaded.has_errors() {
            return loaded.refuse(args.output.output);
        }
        let loaded = loaded.narrow(&args.scope)?;
        What::Ids(loaded.manifests.into_iter().map(|m| m.id).collect())
    };
    with_backend(&args.change.workspace, Access::Clouds, async |backend| delete(&args, backend, &what).await)
}

async fn delete(args: &Args, backend: &dyn Backend, what: &What) -> CommandResult {
    backend.begin("delete").await?;
    let known = backend.known().await?;
    let mut ids = meant(backend, &known, what).await?;
    if ids.is_empty() {
        return nothing(args);
    }
    include_referrers(&known, &mut ids, args.cascade)?;
    let ids: Vec<ResourceId> = ids.into_iter().collect();
    let format = args.output.output;
    let options =
        ChangeOptions { confirm: args.confirm, recreate: RecreateArgs::default(), run: &args.change.run, format };
    let ended = backend.delete(known, ids.clone(), &options).await?;
    if ended.exit != Exit::Done {
        return Ok(ended.exit);
    }
    if !args.change.run.no_wait {
        kubeconfig::forget(backend, &ids)?;
    }
    if format.is_for_people() {
        let done = if args.change.run.no_wait { "being deleted" } else { "deleted" };
        anstream::eprintln!("\n{} {done} in {}", ids.len(), took_text(ended.began.elapsed()));
    }
    Ok(Exit::Done)
}

fn nothing(args: &Args) -> CommandResult {
    anstream::eprintln!("nothing to delete: none of these is applied");
    print_result(&Plan::default(), &Report::default(), Duration::ZERO, 0, args.output.output)?;
    Ok(Exit::Done)
}

/// What is to be deleted, of what there is.
async fn meant(backend: &dyn Backend, known: &Known, what: &What) -> Result<BTreeSet<ResourceId>, Failure> {
    let mut ids: BTreeSet<ResourceId> = BTreeSet::new();
    let addresses = match what {
        // A folder may hold manifests that were never applied; these need no deletion.
        What::Ids(all) => {
            ids.extend(all.iter().filter(|id| known.resources.contains_key(id)).cloned());
            return Ok(ids);
        }
        What::Addresses(addresses) => addresses,
    };
    for address in addresses {
        let mut found: Vec<&ResourceId> = known.resources.keys().filter(|id| address.matches(id)).collect();
        // The same command continues an interrupted deletion, so a resource that is already deleted is not an error.
        if found.is_empty() && !backend.was_deleted(address).await? {
            return Err(lookup::not_applied(backend, address).await?);
        }
        // A name must match exactly one resource.
        if address.name.is_some() && found.len() > 1 {
            found.sort();
            return Err(lookup::ambiguous(address, &found));
        }
        ids.extend(found.into_iter().cloned());
    }
    Ok(ids)
}

/// Those that refer to what goes must go too, or stay in the way.
fn include_referrers(known: &Known, ids: &mut BTreeSet<ResourceId>, cascade: bool) -> Result<(), Failure> {
    let mut referrers: HashMap<ResourceId, Vec<&ResourceId>> = HashMap::new();
    for (id, resource) in &known.resources {
        for parent in parents(&resource.manifest) {
            referrers.entry(parent).or_default().push(id);
        }
    }
    let mut next: Vec<ResourceId> = ids.iter().cloned().collect();
    let mut in_the_way: BTreeSet<(ResourceId, ResourceId)> = BTreeSet::new();
    while let Some(id) = next.pop() {
        for child in referrers.get(&id).into_iter().flatten() {
            if ids.contains(*child) {
                continue;
            }
            if cascade {
                ids.insert((*child).clone());
                next.push((*child).clone());
            } else {
                in_the_way.insert((id.clone(), (*child).clone()));
            }
        }
    }
    let Some((parent, child)) = in_the_way.first() else { return Ok(()) };
    let more =
        if in_the_way.len() > 1 { format!(", and {} more like it", in_the_way.len() - 1) } else { String::new() };
    Err(Failure::new(format!("{parent} cannot be deleted: {child} refers to it{more}"))
        .help("delete that one first, or add --cascade to delete it too"))
}
