//! `berth backup`: everything in a state, encrypted, in one file.

use crate::args::DatabaseArgs;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::diagnostics::count;
use crate::view::progress::Steps;
use berth_store::{Recipients, Store};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use std::path::{Path, PathBuf};

/// A passphrase is a line; an identity file some lines.
const SECRET_FILE_BYTES: u64 = 64 << 10;

/// Back up a state, while a server runs
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth backup --out berth.age --recipient age1…\n  berth backup --db sqlite:berth-server/state.db --out b.age --passphrase-file p.txt",
    group(clap::ArgGroup::new("opens").args(["recipient", "passphrase_file"]).required(true))
)]
pub struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// File to write; one that is there is not overwritten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Public key of whoever may open it, as age-keygen prints it; several may be given
    #[arg(long, value_name = "AGE1…")]
    recipient: Vec<String>,
    /// File whose first line opens it
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Leave the key ring out: whoever restores it needs the ring from elsewhere
    #[arg(long)]
    without_key: bool,
}

pub fn run(args: Args) -> CommandResult {
    let recipients = match &args.passphrase_file {
        Some(path) => Recipients::Passphrase(passphrase(path)?),
        None => Recipients::Keys(args.recipient.clone()),
    };
    let options = args.database.existing()?;
    block_on(Threads::Two, async {
        let store = Store::open(options).await?;
        let steps = Steps::new("backing up");
        let progress = |told: berth_store::BackupProgress<'_>| steps.rows(told.table, told.rows, told.rows_in_all);
        let made = store.backup_to(&args.out, &recipients, !args.without_key, progress).await;
        steps.end();
        store.close().await;
        let made = made.map_err(|error| failure(error, &args.out))?;
        let rows = count(usize::try_from(made.rows).unwrap_or(usize::MAX), "row");
        anstream::eprintln!("{rows} of {} tables are in {}", made.tables, args.out.display());
        anstream::eprintln!(
            "{}",
            match made.with_keys {
                true => "the keys are in it: whoever can open it can read every secret",
                false => "the keys are not in it: keep the key ring, nothing opens without it",
            }
        );
        Ok(Exit::Done)
    })
}

/// An error of a backup or restore, about this file.
pub fn failure(error: berth_store::BackupError, path: &Path) -> Failure {
    let about = match &error {
        berth_store::BackupError::Store(_) => String::new(),
        _ => format!("{}: ", path.display()),
    };
    let failure = Failure::caused(format!("{about}{error}"), &error);
    error.help().into_iter().fold(failure, Failure::help)
}

pub fn passphrase(path: &Path) -> Result<SecretString, Failure> {
    let text = secret_file(path)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(SecretString::from(line.to_owned())),
        None => Err(Failure::new(format!("the first line of {} is empty", path.display()))
            .help("write the passphrase on the first line of the file")),
    }
}

pub fn secret_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::io::Read;
    let mut text = Zeroizing::new(String::with_capacity(SECRET_FILE_BYTES as usize));
    let read = std::fs::File::open(path).and_then(|file| file.take(SECRET_FILE_BYTES).read_to_string(&mut text));
    read.map_err(|error| Failure::caused(format!("cannot read {}", path.display()), &error))?;
    Ok(text)
}
