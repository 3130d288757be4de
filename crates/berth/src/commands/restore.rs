//! `berth restore`: a backup into a database, whole or not at all.

use super::backup::{failure, passphrase, secret_file};
use crate::args::DatabaseArgs;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::confirm;
use crate::view::diagnostics::count;
use crate::view::progress::Steps;
use crate::view::terminal::harmless_line;
use berth_store::{Access, BackupProgress, Identity, Options, Origin, RestoreOptions, Restored, restore};
use secrecy::SecretString;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Restore a backup into a new database, of the same kind or the other
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth restore berth.age --db sqlite:new/state.db --identity me.txt\n  berth restore berth.age --db postgres://berth@db/berth --passphrase-file p.txt",
    group(clap::ArgGroup::new("opens").args(["identity", "passphrase_file"]).required(true))
)]
pub struct Args {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// File with the secret key of age's that opens it
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// File whose first line opens it
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Replace what is in the database. It is asked for twice: also with --yes
    #[arg(long)]
    replace: bool,
    /// Take it though no key here shows who made it; lists the access that comes with it
    #[arg(long)]
    accept_unauthenticated: bool,
    /// With --replace: do not ask
    #[arg(short, long, requires = "replace")]
    yes: bool,
}

pub fn run(args: Args) -> CommandResult {
    if !args.database.is_said() {
        return Err(Failure::new("no database to restore into was named")
            .help("name it with --db sqlite:PATH, --db postgres://… or --state PATH"));
    }
    let identity = match (&args.identity, &args.passphrase_file) {
        (_, Some(path)) => Identity::Passphrase(passphrase(path)?),
        (Some(path), None) => Identity::Keys(SecretString::from(secret_file(path)?.to_string())),
        (None, None) => return Err(Failure::new("neither --identity nor --passphrase-file was given")),
    };
    let location = args.database.location()?;
    if args.replace {
        confirm::replace_all(&location.to_string(), args.yes)?;
    }
    let file = File::open(&args.file)
        .map_err(|error| Failure::caused(format!("cannot open {}", args.file.display()), &error))?;
    let key = args.database.key.source(Some(&location));
    let into = Options { location, key, must_exist: false };
    let shown = into.location.to_string();
    block_on(Threads::Two, async {
        let steps = Steps::new("restoring");
        let progress = |told: BackupProgress<'_>| steps.rows(told.table, told.rows, told.rows_in_all);
        let options =
            RestoreOptions { into, replace: args.replace, accept_unauthenticated: args.accept_unauthenticated };
        let done = restore(BufReader::with_capacity(1 << 20, file), &identity, options, progress).await;
        steps.end();
        let done = done.map_err(|error| failure(error, &args.file))?;
        tell(&done, &shown);
        match done.audit.broken_at {
            None => Ok(Exit::Done),
            Some(line) => Err(Failure::new(format!("the audit log is broken at line {line}"))
                .help("everything was restored; the log was changed before the backup was made, or in it")),
        }
    })
}

/// Whoever made such a backup chose who gets in.
fn warn(access: &[Access]) {
    anstream::eprintln!("warning: nothing shows who made this backup. These tokens work with it:");
    for token in access {
        let scope = match (token.org.as_str(), token.env.as_str()) {
            ("", "") => "everywhere".to_owned(),
            (org, "") => format!("org {org}"),
            ("", env) => format!("env {env}"),
            (org, env) => format!("org {org}, env {env}"),
        };
        anstream::eprintln!("  {}", harmless_line(&format!("{:<9} {} ({scope})", token.role, token.name)));
    }
    if access.is_empty() {
        anstream::eprintln!("  none");
    }
    anstream::eprintln!("  revoke those that you do not know:   berth token revoke NAME");
}

fn tell(done: &Restored, place: &str) {
    let rows = count(usize::try_from(done.rows).unwrap_or(usize::MAX), "row");
    anstream::eprintln!("{rows} of {} tables, as of {}, are in {place}", done.tables, done.at);
    anstream::eprintln!("{} secrets open", done.secrets);
    if done.audit.whole && done.audit.entries > 0 {
        let lines = count(usize::try_from(done.audit.entries).unwrap_or(usize::MAX), "line");
        anstream::eprintln!("the audit log is whole: {lines}");
    }
    match &done.origin {
        Origin::Key(key) => {
            anstream::eprintln!("the backup was made with the key {key}, which is in the key ring here")
        }
        Origin::Passphrase => anstream::eprintln!("the backup was made by someone who knows the passphrase"),
        Origin::Unknown => warn(&done.access),
    }
    if let Some(path) = &done.keys_written {
        anstream::eprintln!("the keys are in {}", path.display());
    }
    anstream::eprintln!("whoever was at work when the backup was made can write nothing here");
}
