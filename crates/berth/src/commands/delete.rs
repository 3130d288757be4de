//! `berth delete`: takes away what was applied, those that refer to others first.

use crate::args::{Address, ConfirmArgs, RecreateArgs, RunArgs, ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::commands::kubeconfig;
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{allowed, carry_out, make_plan, print_result, took_text};
use crate::local::workspace::Workspace;
use crate::local::{manifests, policies, stored};
use crate::remote::carry_out::Job;
use crate::remote::contexts::Target;
use crate::remote::{self, Remote};
use crate::source::Source;
use crate::view::output::{Format, OutputArgs};
use crate::view::plan_view;
use berth_engine::{Known, Plan, Report, parents};
use berth_model::ResourceId;
use berth_store::{Entries, Filter};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many changes are looked through for a resource that is not there.
const JOURNAL_MAX: u32 = 10_000;

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
    run: RunArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

enum What {
    Ids(Vec<ResourceId>),
    Addresses(Vec<Address>),
}

pub fn run(args: Args) -> CommandResult {
    let which = args.workspace.which()?;
    let scope = which.scope(&args.scope);
    let what = if args.file.is_empty() {
        What::Addresses(args.what.iter().map(|text| Address::parse(text, &scope)).collect::<Result<_, _>>()?)
    } else {
        let loaded = manifests::load(&args.file, &which)?;
        if loaded.has_errors() {
            return loaded.refuse(args.output.output);
        }
        let loaded = loaded.narrow(&args.scope)?;
        What::Ids(loaded.manifests.into_iter().map(|m| m.id).collect())
    };
    if let Which::Server(target) = which {
        return block_on(Threads::One, on_server(&args, target, what));
    }
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open_existing(&args.workspace).await?;
        let result = delete(&args, &workspace, what).await;
        workspace.close().await;
        result
    })
}

async fn delete(args: &Args, workspace: &Workspace, what: What) -> CommandResult {
    let run = workspace.store.begin_run("delete").await?;
    let known = workspace.known_all().await?;
    let source = workspace.source();
    let mut ids = meant(&source, &known, &what).await?;
    if ids.is_empty() {
        return nothing(args);
    }
    include_referrers(&known, &mut ids, args.cascade)?;

    let unwanted: Vec<ResourceId> = ids.into_iter().collect();
    let (mut request, clouds) = workspace.request(&[], unwanted).await?;
    request.known = known;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    let format = args.output.output;
    if matches!(format, Format::Table | Format::Wide) {
        anstream::eprint!("{}", plan_view::text(&planned.plan, format == Format::Wide, args.confirm.allow_replace));
    }
    policies::check(&workspace.store, &request, &planned.plan).await?;
    let confirm = ConfirmArgs { sandbox: args.workspace.sandbox.sandbox, ..args.confirm };
    allowed(&planned.plan, confirm, &request)?;
    let started = Instant::now();
    for id in &request.unwanted {
        run.set_deleting(id).await?;
    }
    let count = request.unwanted.len();
    let exit = carry_out(&clouds, &run, &request, planned, &args.run, format).await?;
    if exit == Exit::Done {
        kubeconfig::forget(&source, &args.workspace, &request.unwanted)?;
    }
    if exit == Exit::Done && matches!(format, Format::Table | Format::Wide) {
        anstream::eprintln!("\n{count} deleted in {}", took_text(started.elapsed()));
    }
    Ok(exit)
}

/// The same by a server: it takes away what is left of them, in order, and forgets them.
async fn on_server(args: &Args, target: Target, what: What) -> CommandResult {
    let remote = Remote::open(target).await?;
    let source = Source::Server(remote.clone());
    let mut known = Known::default();
    for stored in source.resources(&Filter::default()).await? {
        known.resources.insert(stored.id.clone(), stored.known()?);
    }
    let mut ids = meant(&source, &known, &what).await?;
    if ids.is_empty() {
        return nothing(args);
    }
    include_referrers(&known, &mut ids, args.cascade)?;
    let count = ids.len();
    let gone: Vec<ResourceId> = ids.iter().cloned().collect();
    let format = args.output.output;
    let job = Job {
        remote: &remote,
        files: Vec::new(),
        delete: ids.into_iter().collect(),
        loaded: None,
        confirm: args.confirm,
        recreate: RecreateArgs::default(),
        run: &args.run,
        format,
        promise: None,
        workspace: &args.workspace,
    };
    let ended = remote::carry_out::carry_out(job).await?;
    if ended.exit == Exit::Done && !args.run.no_wait {
        kubeconfig::forget(&source, &args.workspace, &gone)?;
    }
    if ended.exit == Exit::Done && matches!(format, Format::Table | Format::Wide) {
        let done = if args.run.no_wait { "being deleted" } else { "deleted" };
        anstream::eprintln!("\n{count} {done} in {}", took_text(ended.began.elapsed()));
    }
    Ok(ended.exit)
}

fn nothing(args: &Args) -> CommandResult {
    anstream::eprintln!("nothing to delete: none of these is applied");
    print_result(&Plan::default(), &Report::default(), Duration::ZERO, 0, args.output.output)?;
    Ok(Exit::Done)
}

/// What is to be deleted, of what there is.
async fn meant(source: &Source, known: &Known, what: &What) -> Result<BTreeSet<ResourceId>, Failure> {
    let mut ids: BTreeSet<ResourceId> = BTreeSet::new();
    let addresses = match what {
        // A folder may hold more than what was applied; what is not there needs no deleting.
        What::Ids(all) => {
            ids.extend(all.iter().filter(|id| known.resources.contains_key(id)).cloned());
            return Ok(ids);
        }
        What::Addresses(addresses) => addresses,
    };
    for address in addresses {
        let mut found: Vec<&ResourceId> = known.resources.keys().filter(|id| address.matches(id)).collect();
        // A deletion that was interrupted is gone on with by the same command: what it took away is no mistake.
        if found.is_empty() && !was_here(source, address).await? {
            return Err(stored::not_applied(source, address).await?);
        }
        // Whoever names one means one.
        if address.name.is_some() && found.len() > 1 {
            found.sort();
            return Err(stored::ambiguous(address, &found));
        }
        ids.extend(found.into_iter().cloned());
    }
    Ok(ids)
}

async fn was_here(source: &Source, address: &Address) -> Result<bool, Failure> {
    match source {
        Source::Local(store) => {
            let changes = store.journal(Entries::All, JOURNAL_MAX).await?;
            Ok(changes.iter().any(|change| change.op == "delete" && address.matches(&change.resource)))
        }
        Source::Server(remote) => {
            let Some(name) = &address.name else { return Ok(false) };
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            let (org, env) = (part(&address.org), part(&address.env));
            let id = ResourceId { kind: address.kind.clone(), name: name.clone(), org, env };
            let lines = remote.history(&id, remote::PAGE).await?;
            Ok(lines.iter().any(|line| line.change.as_ref().is_some_and(|change| change.op == "delete")))
        }
    }
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
