//! `berth outputs`: what a resource gives to others.

use crate::args::ResourceArgs;
use crate::args::repeated_flags;
use crate::backend::{Access, lookup, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::output::{self, OutputArgs, Table};
use crate::view::resource_view::{self, value_text};
use berth_model::{REDACTED, case, phrasing, registry};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

/// Show a resource's outputs
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth outputs CivoKubernetesCluster/shop\n  ID=$(berth outputs civovpc/shop-net network_id)"
)]
pub struct Args {
    /// The resource, as Kind/name
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// Only this output: its bare value, for shells
    #[arg(value_name = "OUTPUT")]
    name: Option<String>,
    /// Show secret outputs in the clear
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let (stored, secrets) = with_backend(&args.resources.workspace, Access::Read, async |backend| {
        let stored = lookup::one(backend, &args.what, &scope).await?;
        let secrets = if args.show_secrets { Some(backend.secrets(&stored).await?) } else { None };
        Ok((stored, secrets))
    })?;
    let mut outputs: Map<String, Value> = stored.status.outputs.clone();
    for name in &stored.secret_names {
        let shown = match secrets.as_ref().and_then(|all| all.get(name)) {
            Some(secret) => secret.expose_secret().to_owned(),
            None => REDACTED.to_owned(),
        };
        outputs.insert(name.clone(), Value::String(shown));
    }

    let Some(name) = &args.name else {
        let names = || outputs.keys().cloned().collect();
        let table = |_| {
            let mut table = Table::new(["OUTPUT", "VALUE"]);
            outputs.iter().for_each(|(name, value)| table.row([name.clone(), value_text(value)]));
            table.render()
        };
        output::show(args.output.output, &outputs, table, names)?;
        return Ok(Exit::Done);
    };
    let asked = case::snake_case(name);
    if !args.show_secrets && stored.secret_names.contains(&asked) {
        return Err(Failure::new(format!("{asked} of {} is secret", stored.id))
            .help("to print it in the clear, add --show-secrets")
            .help(format!(
                "for a kubeconfig that is ready to use:   {}",
                repeated_flags::command("kubeconfig", &stored.id)
            )));
    }
    let Some(value) = outputs.get(&asked) else { return Err(no_output(&stored, &asked)) };
    let value = value.clone();
    output::show(args.output.output, &value, |_| format!("{}\n", value_text(&value)), || vec![asked.clone()])?;
    Ok(Exit::Done)
}

fn no_output(stored: &berth_store::StoredResource, asked: &str) -> Failure {
    let names: Vec<&str> = registry()
        .kind(&stored.id.kind)
        .map(|kind| kind.outputs_shape().fields.iter().map(|field| field.name.as_str()).collect())
        .unwrap_or_default();
    if names.contains(&asked) {
        return Failure::new(format!("{} has no {asked} yet: it is {}", stored.id, or_state(stored)))
            .help(format!("to wait for it:   {}", repeated_flags::command("wait", &stored.id)));
    }
    let failure = Failure::new(format!("{} has no output `{asked}`", stored.id.kind));
    match phrasing::nearest(asked, names.iter().copied()) {
        Some(near) => failure.help(format!("did you mean `{near}`?")),
        None => failure.help(format!("its outputs are {}", phrasing::either(&names))),
    }
}

fn or_state(stored: &berth_store::StoredResource) -> String {
    let phase = resource_view::phase(stored);
    if phase.is_empty() { stored.status.state.as_str().to_lowercase() } else { phase }
}
