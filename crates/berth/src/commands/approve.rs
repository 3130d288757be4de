//! `berth approve`: lets a plan that waits in a protected environment go on, after it was looked at.

use crate::args::ServerResourceArgs;
use crate::args::repeated_flags;
use crate::backend::lookup;
use crate::commands::get;
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::carry_out::judgement;
use crate::remote::{Remote, messages, with_server};
use crate::view::confirm::{ask, is_yes};
use crate::view::output::{self, Format, OutputArgs};
use crate::view::plan_view;
use crate::view::terminal::harmless_line;
use berth_engine::Plan;
use berth_server::pb;
use serde_json::Value;
use std::io::IsTerminal;

/// Approve a plan that waits in a protected environment
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth approve CivoKubernetesCluster/shop --env prod\n  berth approve civovpc/shop-net --env prod --yes"
)]
pub struct Args {
    /// The resource whose plan waits, as Kind/name
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Only this plan: refused when another one waits by now
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    resources: ServerResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let approved = with_server(&args.resources.server, async |remote| {
        let stored = lookup::one(remote, &args.what, &scope).await?;
        approve(&args, remote, &stored.id).await
    })?;
    let shown = messages::stored(&approved);
    let text = |_| {
        let wait = repeated_flags::command("wait", &shown.id);
        format!("{} is approved\n  to follow it:   {}\n", harmless_line(&shown.id.to_string()), harmless_line(&wait))
    };
    output::show(args.output.output, &get::as_json(&shown, approved.sandbox)?, text, || vec![shown.id.to_string()])?;
    Ok(Exit::Done)
}

async fn approve(args: &Args, remote: &Remote, id: &berth_model::ResourceId) -> Result<pb::Resource, Failure> {
    let resource = remote.get(id).await?.unwrap_or_default();
    let answer = remote.client.resources().get_plan(messages::get_request(id)).await;
    let planned = answer.map_err(|status| remote.fail(&status))?.into_inner();
    if !planned.awaiting {
        let failure = Failure::new(format!("{id} has no plan that waits for approval: it is {}", resource.state));
        return Err(match planned.approved_by.as_str() {
            "" => failure,
            by => failure.note(format!("its last plan was approved by {by}")),
        });
    }
    if let Some(digest) = &args.digest
        && *digest != planned.digest
    {
        return Err(Failure::new(format!("another plan of {id} waits by now"))
            .note(format!("asked for {digest}, waiting is {}", planned.digest))
            .help("look at it again, without --digest"));
    }
    let plan = Plan::from_json(&Value::Object(messages::map(planned.plan.as_ref())))
        .map_err(|error| Failure::caused("the server's plan cannot be read", &error))?;
    let format = args.output.output;
    let by = if resource.applied_by.is_empty() { "someone".to_owned() } else { resource.applied_by.clone() };
    anstream::eprintln!("applied by {}, plan {}", harmless_line(&by), harmless_line(&planned.digest));
    anstream::eprint!("{}", plan_view::text(&plan, format == Format::Wide, true));
    judgement(&planned.verdicts).print();
    if !args.yes {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::new("not approved, and there is no terminal to ask on").help("add --yes"));
        }
        if !is_yes(&ask("Approve this? [y/N] ")?) {
            return Err(Failure::new("not approved; it goes on waiting"));
        }
    }
    let request = pb::ApproveRequest {
        kind: id.kind.clone(),
        name: id.name.clone(),
        org: id.org.clone(),
        env: id.env.clone(),
        digest: planned.digest,
    };
    Ok(remote.client.resources().approve(request).await.map_err(|status| remote.fail(&status))?.into_inner())
}
