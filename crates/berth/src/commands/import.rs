//! `berth import`: takes over what is already in a cloud. Writes its manifest, and then shows that nothing would change.

use crate::args::address::find_kind;
use crate::args::{Address, RunArgs, ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{carry_out, make_plan, print_result};
use crate::local::workspace::Workspace;
use crate::remote::carry_out::tell;
use crate::remote::contexts::Target;
use crate::remote::follow::{Goal, Watch, follow};
use crate::remote::{CLOUDS_WITHIN, Remote, messages};
use crate::view::output::{Format, OutputArgs};
use crate::view::plan_view;
use berth_clouds::import::{self, LeftOut, Taken};
use berth_engine::handler::{Catalog, Raised};
use berth_engine::identity::other_account;
use berth_engine::unit::Identity;
use berth_engine::{Action, Plan, Report, Request, ResourcePlan};
use berth_model::{Manifest, ResourceId, phrasing};
use berth_server::pb;
use berth_store::{NewResource, Run};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Take over what is already in a cloud
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth import CivoKubernetesCluster/shop 3f0c…\n  berth import --all --provider civo --out imported/"
)]
pub struct Args {
    /// What to call it, as Kind/name
    #[arg(value_name = "KIND/NAME", required_unless_present = "all", requires = "id")]
    what: Option<String>,
    /// Its id in the cloud
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Everything in the account; exits with 1 when there is something that cannot be imported
    #[arg(long, conflicts_with_all = ["what", "id"], requires = "provider")]
    all: bool,
    /// With --all: which cloud
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(berth_clouds::registry::names()))]
    provider: Option<String>,
    /// Name of the Account to use; the provider's only one, or the environment's token, when omitted
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Region that the object is in; all regions are searched when omitted
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// File, or folder with --all, to write manifests to; `<kind>-<name>.yaml` or `imported/` when omitted
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Environment that the imported resources will belong to
    #[arg(long, value_name = "ENV")]
    env: Option<String>,
    /// Organisation that they will belong to
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = ScopeArgs { env: args.env.clone(), org: args.org.clone() };
    for (flag, text) in [("--org", &args.org), ("--env", &args.env)] {
        if text.as_deref().is_some_and(|text| !berth_model::is_scope_name(text)) {
            return Err(Failure::new(format!("{flag} is not a name for new resources"))
                .help("use lower-case letters, digits and hyphens, starting and ending with a letter or digit"));
        }
    }
    let address = args.what.as_deref().map(|text| Address::parse(text, &scope)).transpose()?;
    if address.as_ref().is_some_and(|a| a.name.is_none()) {
        return Err(Failure::new("the imported resource needs a name")
            .help("write Kind/name, such as CivoKubernetesCluster/shop"));
    }
    if let Which::Server(target) = args.workspace.which()? {
        return block_on(Threads::One, on_server(&args, target, address));
    }
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open(&args.workspace).await?;
        let result = import(&args, &workspace, address).await;
        workspace.close().await;
        result
    })
}

/// The same by a server: it keeps what it took over, and its manifests are written here.
async fn on_server(args: &Args, target: Target, address: Option<Address>) -> CommandResult {
    let started = Instant::now();
    let default = Which::Server(target.clone()).scope(&ScopeArgs { env: args.env.clone(), org: args.org.clone() });
    let (org, env) = (default.org.unwrap_or_default(), default.env.unwrap_or_default());
    let provider = match &address {
        Some(address) => find_kind(&address.kind)?.provider.clone(),
        None => args.provider.clone().unwrap_or_default(),
    };
    if provider.is_empty() {
        return Err(Failure::new("an account is not in a cloud: there is nothing to import"));
    }
    if let Some(address) = &address {
        let name = address.name.clone().unwrap_or_default();
        let id = ResourceId { kind: address.kind.clone(), name, org: org.clone(), env: env.clone() };
        absent(&file_for(args, &id))?;
    }
    let remote = Remote::open(target).await?;
    let since = remote.last_event().await?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut request = tonic::Request::new(pb::ImportRequest {
        provider,
        kind: address.as_ref().map(|a| a.kind.clone()).unwrap_or_default(),
        name: address.as_ref().and_then(|a| a.name.clone()).unwrap_or_default(),
        org,
        env,
        object_id: text(&args.id),
        account: text(&args.account),
        region: text(&args.region),
    });
    request.set_timeout(CLOUDS_WITHIN);
    let mut resources = remote.client.resources();
    let answer = remote.by_worker(resources.import(request)).await;
    let pb::ImportResponse { resources: imported, left_out } =
        answer.map_err(|status| remote.fail(&status))?.into_inner();
    let left_out: Vec<LeftOut> = left_out
        .into_iter()
        .map(|one| LeftOut { kind: one.kind, name: one.name, object: one.object_id, reason: one.reason })
        .collect();
    let format = args.output.output;
    let people = matches!(format, Format::Table | Format::Wide);
    if imported.is_empty() {
        anstream::eprintln!("nothing to import: everything that Berth can describe is managed already");
        print_result(&Plan::default(), &Report::default(), Duration::ZERO, 0, format)?;
        return Ok(with_left_out(Exit::Done, &left_out));
    }
    let mut plan = Plan::default();
    let mut goals = Vec::new();
    for one in &imported {
        let id = messages::id_of(one.id.as_ref());
        let mut file = file_for(args, &id);
        // It is imported by now: its manifest must not be lost over a file that is there.
        let mut number = 2;
        while file.exists() {
            file.set_file_name(format!("{}-{}-{number}.yaml", id.kind.to_ascii_lowercase(), id.name));
            number += 1;
        }
        write_new(&file, &one.text)?;
        if people {
            anstream::eprintln!("{id} imported; its manifest is {}", file.display());
        }
        let (units, after) = (Vec::new(), Vec::new());
        plan.resources.push(ResourcePlan {
            id: id.clone(),
            action: Action::Resume,
            units,
            after,
            typical_seconds: None,
            strays: Vec::new(),
        });
        goals.push(Goal { id, gone: false, generation: 1, before: None });
    }
    if args.run.no_wait {
        let pending = goals.into_iter().map(|goal| goal.id).collect();
        print_result(&plan, &Report { pending, ..Report::default() }, started.elapsed(), 0, format)?;
        return Ok(with_left_out(Exit::Done, &left_out));
    }
    let watch = Watch { since, timeout: args.run.timeout, approvals: args.run.wait };
    let followed = follow(&remote, goals, &plan, watch).await?;
    print_result(&plan, &followed.report, started.elapsed(), 0, format)?;
    let exit = tell(&followed, false, started, &args.workspace);
    if exit == Exit::Done && people {
        anstream::eprintln!("nothing in the cloud was changed");
    }
    Ok(with_left_out(exit, &left_out))
}

/// Tells what was not imported, and lets the exit code say so.
fn with_left_out(exit: Exit, left_out: &[LeftOut]) -> Exit {
    for LeftOut { kind, name, object, reason } in left_out {
        anstream::eprintln!("not imported: {kind} {} with the id {object}: {reason}", phrasing::shown(name));
    }
    if left_out.is_empty() { exit } else { Exit::Failed }
}

fn absent(file: &Path) -> Result<(), Failure> {
    if file.exists() {
        return Err(Failure::new(format!("{} exists already; nothing was imported", file.display()))
            .help("choose another place with --out"));
    }
    Ok(())
}

async fn import(args: &Args, workspace: &Workspace, address: Option<Address>) -> CommandResult {
    let run = workspace.store.begin_run("import").await?;
    let provider_name = match &address {
        Some(address) => find_kind(&address.kind)?.provider.clone(),
        None => args.provider.clone().unwrap_or_default(),
    };
    if provider_name.is_empty() {
        return Err(Failure::new("an account is not in a cloud: there is nothing to import"));
    }
    let (org, env) = (args.org.clone().unwrap_or_default(), args.env.clone().unwrap_or_default());
    let accounts = workspace.accounts(&[]).await?;
    let choice = accounts.choose_for(&provider_name, args.account.as_deref(), &org, &env)?;
    let clouds = accounts.into_clouds();
    let provider = clouds.provider(&choice.name).await?;
    let identity = provider.identity().await?;
    let owners = workspace.store.owners(&choice.name, &org, &env).await?;
    if let Some(own) = owners.first().filter(|_| !owners.contains(&identity)) {
        return Err(other_account(&choice.name, own, &identity).into());
    }

    let mut left_out = Vec::new();
    let taken = match (&address, &args.id) {
        (Some(address), Some(object)) => {
            let name = address.name.clone().unwrap_or_default();
            let id = ResourceId { kind: address.kind.clone(), name, org, env };
            if workspace.store.resource(&id).await?.is_some() {
                return Err(
                    Failure::new(format!("{id} is applied already")).help("choose another name for what is imported")
                );
            }
            if let Some(owner) = workspace.store.units_by_object(object).await?.first() {
                return Err(Failure::new(format!("{object} is managed already, as {}", owner.resource)));
            }
            let scope = args.region.clone().or(choice.region.clone()).unwrap_or_default();
            let raised = provider.raise(&id.kind, object, &scope).await?;
            vec![Taken { id, raised }]
        }
        _ => {
            let mut raised = provider.raise_all().await?;
            if let Some(region) = &args.region {
                let is_there = |v: &serde_json::Value| v.as_str().is_some_and(|v| v.eq_ignore_ascii_case(region));
                raised.retain(|r| r.spec.get("region").is_none_or(is_there));
            }
            let named = name_all(workspace, raised, &org, &env).await?;
            let (fine, not) = import::describable(named, args.account.as_deref());
            left_out = not;
            fine
        }
    };
    if taken.is_empty() {
        anstream::eprintln!("nothing to import: everything that Berth can describe is managed already");
        print_result(&Plan::default(), &Report::default(), Duration::ZERO, clouds.calls(), args.output.output)?;
        return Ok(with_left_out(Exit::Done, &left_out));
    }
    let files: Vec<PathBuf> = taken.iter().map(|one| file_for(args, &one.id)).collect();
    for file in &files {
        absent(file)?;
    }

    let links = links(workspace, &taken).await?;
    let mut manifests = Vec::with_capacity(taken.len());
    for (one, file) in taken.iter().zip(files) {
        let text = import::manifest_text(one, &links, args.account.as_deref());
        let manifest = import::read_back(one, &file.display().to_string(), &text)?;
        manifests.push((Arc::new(manifest), text, file));
    }
    let exit = take_over(args, workspace, &run, &taken, &identity, manifests).await?;
    Ok(with_left_out(exit, &left_out))
}

/// Writes manifests and state, shows that the plan is empty, and settles what was taken over.
async fn take_over(
    args: &Args,
    workspace: &Workspace,
    run: &Run,
    taken: &[Taken],
    identity: &Identity,
    manifests: Vec<(Arc<Manifest>, String, PathBuf)>,
) -> CommandResult {
    let all: Vec<Arc<Manifest>> = manifests.iter().map(|(m, ..)| m.clone()).collect();
    let (request, clouds) = workspace.request(&all, Vec::new()).await?;
    run.save_resources(all.iter().map(|m| NewResource::of(m)).collect::<Result<_, _>>()?).await?;
    let result = adopt(run, &request, taken, identity, &clouds).await;
    let checked = match result {
        Ok(()) => {
            let (request, clouds) = workspace.request(&all, Vec::new()).await?;
            match make_plan(&clouds, &request, &workspace.store, &|_| None).await {
                Ok(planned) => {
                    let changes =
                        planned.plan.resources.iter().find(|r| !matches!(r.action, Action::Unchanged | Action::Resume));
                    match changes {
                        None => Ok((request, clouds, planned)),
                        Some(resource) => {
                            anstream::eprint!("{}", plan_view::text(&planned.plan, false, true));
                            Err(Failure::new(format!(
                                "{} would be changed by the manifest made from it; nothing was imported",
                                resource.id
                            ))
                            .help("this is a mistake of Berth's: please report it with the plan above"))
                        }
                    }
                }
                Err(failure) => Err(failure),
            }
        }
        Err(failure) => Err(failure),
    };
    let (request, clouds, planned) = match checked {
        Ok(checked) => checked,
        Err(failure) => {
            // Nothing was changed in the cloud; the state forgets what it was told.
            for one in taken {
                berth_engine::record::Recorder::forget_resource(run, &one.id)
                    .await
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            return Err(failure);
        }
    };
    for (_, text, file) in &manifests {
        write_new(file, text)?;
    }
    let format = args.output.output;
    let exit = carry_out(&clouds, run, &request, planned, &args.run, format).await?;
    if exit == Exit::Done && matches!(format, Format::Table | Format::Wide) {
        for (manifest, _, file) in &manifests {
            anstream::eprintln!("{} imported; its manifest is {}", manifest.id, file.display());
        }
        anstream::eprintln!("the plan is empty: nothing in the cloud was changed");
    }
    Ok(exit)
}

/// Binds the objects to the units that the manifests lower to.
async fn adopt(
    run: &Run,
    request: &Request,
    taken: &[Taken],
    identity: &Identity,
    clouds: &berth_clouds::Clouds,
) -> Result<(), Failure> {
    use berth_engine::record::Recorder;
    let failed = |error: berth_engine::record::RecordError| Failure::new(error.to_string());
    for row in import::rows(clouds, request, taken, Some(identity))? {
        run.save_unit(row).await.map_err(failed)?;
    }
    for one in taken {
        run.event(&one.id, "imported", "").await.map_err(failed)?;
    }
    Ok(())
}

/// Names for everything that is not managed yet.
async fn name_all(workspace: &Workspace, raised: Vec<Raised>, org: &str, env: &str) -> Result<Vec<Taken>, Failure> {
    let managed: HashSet<String> = workspace.store.all_units().await?.into_iter().filter_map(|u| u.id).collect();
    let mut used: HashSet<ResourceId> =
        workspace.store.resources(&Default::default()).await?.into_iter().map(|r| r.id).collect();
    Ok(import::name_all(raised, &managed, &mut used, org, env))
}

/// Where a manifest is written: one file for one, a folder for all.
fn file_for(args: &Args, id: &ResourceId) -> PathBuf {
    match (&args.out, args.all) {
        (Some(file), false) => file.clone(),
        (None, false) => file_name(id),
        (out, true) => out.clone().unwrap_or_else(|| PathBuf::from("imported")).join(file_name(id)),
    }
}

fn file_name(id: &ResourceId) -> PathBuf {
    PathBuf::from(format!("{}-{}.yaml", id.kind.to_ascii_lowercase(), id.name))
}

/// Which resource manages, or will manage, an object that others name by id.
async fn links(workspace: &Workspace, taken: &[Taken]) -> Result<HashMap<String, ResourceId>, Failure> {
    let mut links = import::own_links(taken);
    for (_, _, object) in taken.iter().flat_map(|t| &t.raised.links) {
        if !links.contains_key(object)
            && let Some(unit) = workspace.store.units_by_object(object).await?.into_iter().next()
        {
            links.insert(object.clone(), unit.resource);
        }
    }
    Ok(links)
}

/// Never over a file that is there.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot write {}", path.display()), &error);
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let mut file = std::fs::File::create_new(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)
}
