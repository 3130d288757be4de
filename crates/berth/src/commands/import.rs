//! `berth import`: takes over what is already in a cloud. Writes its manifest, and then shows that nothing would change.

use crate::args::address::find_kind;
use crate::args::{Address, ChangeArgs, ScopeArgs};
use crate::backend::{Access, ImportJob, Imported, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::import_files::ImportFiles;
use crate::view::output::OutputArgs;
use berth_clouds::import::LeftOut;
use berth_model::{ResourceId, phrasing};
use std::path::PathBuf;

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
    change: ChangeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    for (flag, text) in [("--org", &args.org), ("--env", &args.env)] {
        if text.as_deref().is_some_and(|text| !berth_model::is_scope_name(text)) {
            return Err(Failure::new(format!("{flag} is not a name for new resources"))
                .help("use lower-case letters, digits and hyphens, starting and ending with a letter or digit"));
        }
    }
    let given = ScopeArgs { env: args.env.clone(), org: args.org.clone() };
    let address = args.what.as_deref().map(|text| Address::parse(text, &given)).transpose()?;
    if address.as_ref().is_some_and(|a| a.name.is_none()) {
        return Err(Failure::new("the imported resource needs a name")
            .help("write Kind/name, such as CivoKubernetesCluster/shop"));
    }
    let provider = match &address {
        Some(address) => find_kind(&address.kind)?.provider.clone(),
        None => args.provider.clone().unwrap_or_default(),
    };
    if provider.is_empty() {
        return Err(Failure::new("an account is not in a cloud: there is nothing to import"));
    }
    let scope = args.change.workspace.which()?.scope(&given);
    let (org, env) = (scope.org.unwrap_or_default(), scope.env.unwrap_or_default());
    let one = address.zip(args.id.clone()).map(|(address, object)| {
        let name = address.name.unwrap_or_default();
        (ResourceId { kind: address.kind, name, org: org.clone(), env: env.clone() }, object)
    });
    let job = ImportJob {
        provider,
        one,
        account: args.account.as_deref(),
        region: args.region.as_deref(),
        org,
        env,
        files: ImportFiles { out: args.out.clone(), all: args.all },
        run: &args.change.run,
        format: args.output.output,
    };
    let imported = with_backend(&args.change.workspace, Access::Create, async |backend| backend.import(&job).await)?;
    Ok(with_left_out(&imported))
}

/// Tells what was not imported, and lets the exit code say so.
fn with_left_out(Imported { exit, left_out }: &Imported) -> Exit {
    for LeftOut { kind, name, object, reason } in left_out {
        anstream::eprintln!("not imported: {kind} {} with the id {object}: {reason}", phrasing::shown(name));
    }
    if left_out.is_empty() { *exit } else { Exit::Failed }
}
