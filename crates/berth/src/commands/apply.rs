//! `berth apply`: makes the clouds as the manifests say.

use crate::args::repeated_flags::{self, complete};
use crate::args::{Address, ChangeArgs, ConfirmArgs, RecreateArgs, ScopeArgs, Which};
use crate::backend::{Access, ApplySource, ChangeOptions, Ended, SavedFile, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::took_text;
use crate::local::{manifests, stack_input};
use crate::view::diagnostics::count;
use crate::view::output::{self, OutputArgs};
use crate::view::terminal::harmless_line;
use berth_engine::ResourceState;
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
    change: ChangeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let source = match source(&args)? {
        Ok(source) => source,
        Err(exit) => return Ok(exit),
    };
    with_backend(&args.change.workspace, Access::Create, async |backend| {
        let started = Instant::now();
        let format = args.output.output;
        let options = ChangeOptions { confirm: args.confirm, recreate: args.recreate, run: &args.change.run, format };
        let ended = backend.apply(source, &options).await?;
        if ended.exit != Exit::Done || !format.is_for_people() {
            return Ok(ended.exit);
        }
        if ended.idle {
            anstream::eprintln!(
                "nothing to do: {} as declared ({}, {})",
                are(ended.count),
                count(ended.calls as usize, "API call"),
                took_text(started.elapsed())
            );
            return Ok(Exit::Done);
        }
        finish(&ended, &args)?;
        Ok(Exit::Done)
    })
}

/// Everything that is wrong with the input is said before a state is opened.
fn source(args: &Args) -> Result<Result<ApplySource, Exit>, Failure> {
    let which = args.change.workspace.which()?;
    if let Some(path) = &args.stack_input {
        if matches!(which, Which::Server(_)) {
            return Err(Failure::new("a stack input brings credentials of its own, which a server does not take")
                .help("declare an Account with them, and apply the target's manifest with -f")
                .help("to use the embedded engine instead, add --local"));
        }
        let (manifest, credentials) = stack_input::read(path)?;
        return Ok(Ok(ApplySource::StackInput(Arc::new(manifest), credentials)));
    }
    if !args.file.is_empty() {
        let loaded = manifests::load(&args.file, &which)?;
        if loaded.has_errors() {
            return loaded.refuse(args.output.output).map(Err);
        }
        loaded.print();
        return Ok(Ok(ApplySource::Files(loaded.narrow(&args.scope)?)));
    }
    let scope = which.scope(&args.scope);
    if let [only] = args.what.as_slice()
        && Address::parse(only, &scope).is_err()
        && std::path::Path::new(only).is_file()
    {
        if args.scope.is_given() {
            return Err(Failure::new("a saved plan is carried out whole: --env and --org do not go with it"));
        }
        return Ok(Ok(ApplySource::Saved(SavedFile::read(only.as_ref(), &which)?)));
    }
    let addresses = args.what.iter().map(|text| address(text, &scope)).collect::<Result<_, _>>()?;
    Ok(Ok(ApplySource::Stored(addresses)))
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

fn are(count: usize) -> String {
    if count == 1 { "1 resource is".into() } else { format!("all {count} resources are") }
}

fn finish(ended: &Ended, args: &Args) -> Result<(), Failure> {
    let (ready, no_wait) = (ended.count, args.change.run.no_wait);
    let state = if no_wait { "begun" } else { ResourceState::Ready.as_str() };
    anstream::eprintln!(
        "\n{ready} {} {state} in {}",
        if ready == 1 { "resource" } else { "resources" },
        took_text(ended.began.elapsed())
    );
    if no_wait {
        anstream::eprintln!("{}", complete("  to wait for them:   berth wait --all"));
    } else if let Some(cluster) = &ended.cluster {
        let command = repeated_flags::command("kubeconfig --merge", cluster);
        anstream::eprintln!("  to use it:   {}", harmless_line(&command));
    }
    output::print("")
}
