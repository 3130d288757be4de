//! The command tree.

use crate::commands::{
    account, accounts, apply, approve, audit, backup, completion, context, delete, describe, doctor, drift, events,
    explain, get, graph, history, import, init, key, kinds, kubeconfig, login, logout, man, outputs, plan, policy,
    refresh, restore, sandbox, schema, server, tasks, token, validate, wait, watch, whoami, worker, workers,
};
use crate::failure::{CommandResult, Failure};
use clap::{ArgAction, Parser, Subcommand};
use std::future::Future;

#[derive(Parser, Debug)]
#[command(
    name = "berth",
    version,
    about = "Gives every Kubernetes cluster its berth in a cloud that you control",
    before_help = "Examples:\n  berth init --out shop/cluster.yaml\n  berth validate -f shop/",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Say more on standard error; twice for every request
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 900)]
    pub verbose: u8,
    /// No colours; NO_COLOR and CLICOLOR=0 do the same
    #[arg(long, global = true, display_order = 901)]
    pub no_color: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Apply(apply::Args),
    Plan(plan::Args),
    Delete(delete::Args),
    Import(import::Args),
    Get(get::Args),
    Describe(describe::Args),
    Outputs(outputs::Args),
    Kubeconfig(kubeconfig::Args),
    History(history::Args),
    Wait(wait::Args),
    Approve(approve::Args),
    Tasks(tasks::Args),
    Events(events::Args),
    Watch(watch::Args),
    Workers(workers::Args),
    Accounts(accounts::Args),
    Account(account::Args),
    Drift(drift::Args),
    Refresh(refresh::Args),
    Validate(validate::Args),
    Graph(graph::Args),
    Init(init::Args),
    Explain(explain::Args),
    Kinds(kinds::Args),
    Schema(schema::Args),
    Server(Box<server::Args>),
    Policy(policy::Args),
    Worker(worker::Args),
    Sandbox(sandbox::Args),
    Login(login::Args),
    Logout(logout::Args),
    Whoami(whoami::Args),
    Context(context::Args),
    Token(token::Args),
    Audit(audit::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Key(key::Args),
    Doctor(doctor::Args),
    Completion(completion::Args),
    Man(man::Args),
}

impl Command {
    pub fn run(self) -> CommandResult {
        match self {
            Command::Apply(args) => apply::run(args),
            Command::Plan(args) => plan::run(args),
            Command::Delete(args) => delete::run(args),
            Command::Import(args) => import::run(args),
            Command::Get(args) => get::run(args),
            Command::Describe(args) => describe::run(args),
            Command::Outputs(args) => outputs::run(args),
            Command::Kubeconfig(args) => kubeconfig::run(args),
            Command::History(args) => history::run(args),
            Command::Wait(args) => wait::run(args),
            Command::Approve(args) => approve::run(args),
            Command::Tasks(args) => tasks::run(args),
            Command::Events(args) => events::run(args),
            Command::Watch(args) => watch::run(args),
            Command::Workers(args) => workers::run(args),
            Command::Accounts(args) => accounts::run(args),
            Command::Account(args) => account::run(args),
            Command::Drift(args) => drift::run(args),
            Command::Refresh(args) => refresh::run(args),
            Command::Validate(args) => validate::run(args),
            Command::Graph(args) => graph::run(args),
            Command::Init(args) => init::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Kinds(args) => kinds::run(args),
            Command::Schema(args) => schema::run(args),
            Command::Server(args) => server::run(*args, 0),
            Command::Policy(args) => policy::run(args),
            Command::Worker(args) => worker::run(args, 0),
            Command::Sandbox(args) => sandbox::run(args),
            Command::Login(args) => login::run(args),
            Command::Logout(args) => logout::run(args),
            Command::Whoami(args) => whoami::run(args),
            Command::Context(args) => context::run(args),
            Command::Token(args) => token::run(args),
            Command::Audit(args) => audit::run(args),
            Command::Backup(args) => backup::run(args),
            Command::Restore(args) => restore::run(args),
            Command::Key(args) => key::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Completion(args) => completion::run(args),
            Command::Man(args) => man::run(args),
        }
    }
}

/// Which threads a command's runtime needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// For commands that make a few requests.
    One,
    /// For servers, and for the engine beside a sandbox.
    Two,
}

impl Threads {
    /// For work in clouds: waiting for answers needs one thread, and serving them beside it another.
    pub fn beside(sandbox: &crate::args::SandboxArgs) -> Self {
        if sandbox.sandbox { Threads::Two } else { Threads::One }
    }
}

/// Runs a command's asynchronous part.
pub fn block_on<T>(threads: Threads, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Two => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads == Threads::Two {
        builder.worker_threads(2);
    }
    let runtime = builder.enable_all().build().map_err(|error| Failure::caused("cannot start the runtime", &error))?;
    let result = runtime.block_on(work);
    // A request that is still under way must not keep the process alive.
    runtime.shutdown_background();
    result
}
