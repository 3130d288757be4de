//! `berth apply`: makes the clouds as the manifests say.

use crate::args::repeated_flags::complete;
use crate::args::{Address, ConfirmArgs, RecreateArgs, RunArgs, ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{allowed, carry_out, make_plan, moved, took_text};
use crate::local::saved_plan::SavedPlan;
use crate::local::workspace::Workspace;
use crate::local::{manifests, policies, stored};
use crate::remote::carry_out::Job;
use crate::remote::contexts::Target;
use crate::remote::saved_plan::SavedServerPlan;
use crate::remote::{self, Remote};
use crate::source::Source;
use crate::view::output::{self, Format, OutputArgs};
use crate::view::terminal::harmless_line;
use crate::view::{drift_view, plan_view};
use berth_clouds::Credentials;
use berth_engine::Request;
use berth_engine::ResourceState;
use berth_model::{Manifest, ResourceId};
use berth_server::pb;
use berth_store::{Filter, NewResource, Run};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Make the clouds as the manifests say
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth apply -f shop/\n  berth apply -f examples/civo/dev.yaml --sandbox --yes")]
pub struct Args {
    /// A saved plan, or resources that are applied already, as Kind/name
    #[arg(value_name = "PLAN|KIND/NAME", conflicts_with_all = ["file", "stack_input"])]
    what: Vec<String>,
    /// File, folder or `-` for standard input; may be given more than once
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required_unless_present_any = ["what", "stack_input"])]
    file: Vec<PathBuf>,
    /// Project Planton's stack input: a target with its provider's credentials
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "env", "org"])]
    stack_input: Option<PathBuf>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    recreate: RecreateArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where the manifests come from.
enum From {
    Manifests { manifests: Vec<Arc<Manifest>>, credentials: Option<Credentials> },
    State(Vec<Address>),
    Saved(Box<SavedPlan>),
}

pub fn run(args: Args) -> CommandResult {
    if let Which::Server(target) = args.workspace.which()? {
        return on_server(args, target);
    }
    let from = match source(&args)? {
        Ok(from) => from,
        Err(exit) => return Ok(exit),
    };
    block_on(Threads::beside(&args.workspace.sandbox), apply(args, from))
}

/// Everything that is wrong with the input is said before a state is opened.
fn source(args: &Args) -> Result<Result<From, Exit>, Failure> {
    if let Some(path) = &args.stack_input {
        let (manifest, credentials) = crate::local::stack_input::read(path)?;
        return Ok(Ok(From::Manifests { manifests: vec![Arc::new(manifest)], credentials }));
    }
    if !args.file.is_empty() {
        let loaded = manifests::load(&args.file, &args.workspace.which()?)?;
        if loaded.has_errors() {
            return loaded.refuse(args.output.output).map(Err);
        }
        loaded.print();
        let loaded = loaded.narrow(&args.scope)?;
        let manifests = loaded.manifests.into_iter().map(Arc::new).collect();
        return Ok(Ok(From::Manifests { manifests, credentials: None }));
    }
    if let [only] = args.what.as_slice()
        && Address::parse(only, &args.scope).is_err()
        && std::path::Path::new(only).is_file()
    {
        if args.scope.is_given() {
            return Err(carried_out_whole());
        }
        return Ok(Ok(From::Saved(Box::new(SavedPlan::read(only.as_ref())?))));
    }
    let addresses = args.what.iter().map(|text| address(text, &args.scope)).collect::<Result<_, _>>()?;
    Ok(Ok(From::State(addresses)))
}

fn carried_out_whole() -> Failure {
    Failure::new("a saved plan is carried out whole: --env and --org do not go with it")
}

/// What is typed here without `-f` is often meant to be a file.
fn address(text: &str, scope: &ScopeArgs) -> Result<Address, Failure> {
    Address::parse(text, scope).map_err(|failure| {
        let path = std::path::Path::new(text);
        if path.exists() {
            return Failure::new(format!("`{text}` is neither a saved plan nor a resource"))
                .help(format!("to apply manifests:   berth apply -f {text}"));
        }
        if path.extension().is_some() || text.ends_with('/') {
            return Failure::new(format!("there is no file `{text}`"))
                .help("a plan is made with:   berth plan -f FILE --out PLAN");
        }
        failure
    })
}

/// The same by a server: it plans, keeps what is declared, and its workers carry it out.
fn on_server(args: Args, target: Target) -> CommandResult {
    let format = args.output.output;
    let local = "to use the embedded engine instead, add --local";
    if args.stack_input.is_some() {
        return Err(Failure::new("a stack input brings credentials of its own, which a server does not take")
            .help("declare an Account with them, and apply the target's manifest with -f")
            .help(local));
    }
    let which = Which::Server(target.clone());
    let scope = which.scope(&args.scope);
    let (mut loaded, mut saved) = (None, None);
    if !args.file.is_empty() {
        let read = manifests::load(&args.file, &which)?;
        if read.has_errors() {
            return read.refuse(format);
        }
        read.print();
        loaded = Some(read.narrow(&args.scope)?);
    }
    if let [only] = args.what.as_slice()
        && Address::parse(only, &scope).is_err()
        && std::path::Path::new(only).is_file()
    {
        if args.scope.is_given() {
            return Err(carried_out_whole());
        }
        saved = Some(SavedServerPlan::read(only.as_ref(), &target.context.server)?);
    }
    let addresses: Vec<Address> = match saved {
        Some(_) => Vec::new(),
        None => args.what.iter().map(|text| address(text, &scope)).collect::<Result<_, _>>()?,
    };
    block_on(Threads::One, async {
        let started = Instant::now();
        let remote = Remote::open(target).await?;
        let files = match (&loaded, &saved) {
            (Some(loaded), _) => loaded.files(),
            (None, Some(saved)) => saved.files(),
            (None, None) => kept_files(&remote, &addresses).await?,
        };
        let promise = saved.as_ref().map(SavedServerPlan::promise).transpose()?;
        let promise = promise.as_ref();
        let promised = promise.map_or(files.len(), |promise| promise.plan.resources.len());
        let count = loaded.as_ref().map_or(promised, |loaded| loaded.manifests.len());
        let job = Job {
            remote: &remote,
            files,
            delete: Vec::new(),
            loaded,
            confirm: args.confirm,
            recreate: args.recreate,
            run: &args.run,
            format,
            promise,
            workspace: &args.workspace,
        };
        let ended = remote::carry_out::carry_out(job).await?;
        if ended.exit != Exit::Done || !matches!(format, Format::Table | Format::Wide) {
            return Ok(ended.exit);
        }
        if ended.idle {
            anstream::eprintln!(
                "nothing to do: {} as declared ({}, {})",
                are(count),
                drift_view::count(ended.calls as usize, "API call"),
                took_text(started.elapsed())
            );
            return Ok(Exit::Done);
        }
        let cluster = ended.plan.resources.iter().map(|r| &r.id).find(|id| id.kind.ends_with("KubernetesCluster"));
        finish(count, cluster.cloned(), ended.began, &args.workspace, args.run.no_wait)?;
        Ok(Exit::Done)
    })
}

/// What a server keeps of resources, as files to be applied again. Secrets are not among it.
async fn kept_files(remote: &Remote, addresses: &[Address]) -> Result<Vec<pb::ManifestFile>, Failure> {
    let source = Source::Server(remote.clone());
    let mut files: Vec<pb::ManifestFile> = Vec::new();
    for stored in stored::find(&source, addresses, &ScopeArgs::default()).await? {
        let file = remote::kept_file(&stored)?;
        match files.iter_mut().find(|other| other.name == file.name) {
            Some(same) => same.text.push_str(&format!("\n---\n{}", file.text)),
            None => files.push(file),
        }
    }
    Ok(files)
}

async fn apply(args: Args, from: From) -> CommandResult {
    let credentials = match &from {
        From::Manifests { credentials, .. } => credentials.clone(),
        _ => None,
    };
    let workspace = Workspace::open(&args.workspace).await?.with_credentials(credentials);
    let result = apply_in(&args, &workspace, from).await;
    workspace.close().await;
    result
}

async fn apply_in(args: &Args, workspace: &Workspace, from: From) -> CommandResult {
    let started = Instant::now();
    // Before anything is touched: a plan that was changed gets no further.
    let (given, promised) = match from {
        From::Manifests { manifests, .. } => (Ok(manifests), None),
        From::State(addresses) => (Err(addresses), None),
        From::Saved(saved) => {
            let opened = saved.open(&workspace.store)?;
            (Ok(opened.manifests), Some((opened.unwanted, opened.plan)))
        }
    };
    // Taken before the plan is made: nobody else changes what it is made from.
    let run = workspace.store.begin_run("apply").await?;
    let format = args.output.output;
    let manifests = match given {
        Ok(manifests) => manifests,
        Err(addresses) => applied(workspace, &addresses).await?,
    };
    let unwanted = promised.as_ref().map(|(ids, _)| ids.clone()).unwrap_or_default();
    let place = |id: &ResourceId| manifests.iter().find(|m| m.id == *id).and_then(|m| m.place());
    let (mut request, clouds) = workspace.request(&manifests, unwanted).await?;
    request.allow_recreate = args.recreate.allow_recreate;
    let planned = make_plan(&clouds, &request, &workspace.store, &place).await?;
    if let Some((_, promise)) = &promised
        && !promise.does_what(&planned.plan)
    {
        return Err(moved(promise, &planned.plan));
    }
    if matches!(format, Format::Table | Format::Wide) && !planned.plan.is_quiet() {
        let allowed = args.confirm.allow_replace || promised.is_some();
        anstream::eprint!("{}", plan_view::text(&planned.plan, format == Format::Wide, allowed));
    }
    policies::check(&workspace.store, &request, &planned.plan).await?;
    // A plan that was looked at and saved needs no second yes; what it takes away it said.
    let sandbox = args.workspace.sandbox.sandbox;
    let confirm = match promised.is_some() {
        true => ConfirmArgs { yes: true, allow_replace: true, sandbox },
        false => ConfirmArgs { sandbox, ..args.confirm },
    };
    let work = allowed(&planned.plan, confirm, &request)?;
    let confirmed = Instant::now();
    let settled = save(&run, &mut request).await?;
    if !work && settled && matches!(format, Format::Table | Format::Wide) {
        run.finish().await;
        {
            anstream::eprintln!(
                "nothing to do: {} as declared ({}, {})",
                are(manifests.len()),
                drift_view::count(clouds.calls() as usize, "API call"),
                took_text(started.elapsed())
            );
            return Ok(Exit::Done);
        }
    }
    // How long someone thinks about a plan is no part of carrying it out.
    let started = if work { confirmed } else { started };
    let count = planned.plan.resources.len();
    let cluster =
        planned.plan.resources.iter().map(|r| &r.id).find(|id| id.kind.ends_with("KubernetesCluster")).cloned();
    let exit = carry_out(&clouds, &run, &request, planned, &args.run, format).await?;
    if exit == Exit::Done && matches!(format, Format::Table | Format::Wide) {
        finish(count, cluster, started, &args.workspace, args.run.no_wait)?;
    }
    Ok(exit)
}

fn are(count: usize) -> String {
    if count == 1 { "1 resource is".into() } else { format!("all {count} resources are") }
}

/// Writes the desired state, before anything is done about it. Answers whether all of it was carried out before.
async fn save(run: &Run, request: &mut Request) -> Result<bool, Failure> {
    let resources = request.wanted.iter().map(|w| NewResource::of(&w.manifest)).collect::<Result<Vec<_>, _>>()?;
    let mut all = true;
    for stored in run.save_resources(resources).await? {
        let is_settled = stored.settled();
        all &= is_settled;
        if let Some(known) = request.known.resources.get_mut(&stored.id) {
            known.settled = is_settled;
        }
    }
    Ok(all)
}

/// Manifests of what is applied already.
async fn applied(workspace: &Workspace, addresses: &[Address]) -> Result<Vec<Arc<Manifest>>, Failure> {
    let mut manifests = Vec::new();
    let all = workspace.store.resources(&Filter::default()).await?;
    for address in addresses {
        let before = manifests.len();
        for stored in all.iter().filter(|stored| address.matches(&stored.id)) {
            manifests.push(Arc::new(stored.manifest(&workspace.store.unseal(stored)?)?));
        }
        if manifests.len() == before {
            return Err(stored::not_applied(&workspace.source(), address).await?);
        }
    }
    Ok(manifests)
}

fn finish(
    ready: usize,
    cluster: Option<ResourceId>,
    started: Instant,
    workspace: &WorkspaceArgs,
    no_wait: bool,
) -> Result<(), Failure> {
    let state = if no_wait { "begun" } else { ResourceState::Ready.as_str() };
    anstream::eprintln!(
        "\n{ready} {} {state} in {}",
        if ready == 1 { "resource" } else { "resources" },
        took_text(started.elapsed())
    );
    if no_wait {
        anstream::eprintln!("{}", complete("  to wait for them:   berth wait --all"));
    } else if let Some(cluster) = cluster {
        let command = stored::command("kubeconfig --merge", &cluster, workspace);
        anstream::eprintln!("  to use it:   {}", harmless_line(&command));
    }
    output::print("")
}
