//! `berth key`: the key ring, and sealing everything with a new key while servers run.

use crate::args::repeated_flags::complete;
use crate::args::{DatabaseArgs, KeyArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::contexts::{self, Target};
use crate::view::confirm;
use crate::view::diagnostics::count;
use crate::view::output::{self, OutputArgs, Table};
use crate::view::progress::Steps;
use berth_model::phrasing::shell_word;
use berth_server::pb::RotateKeysRequest;
use berth_store::{KeyRing, KeySource, Store, StoreError, write_ring};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Manage the keys that secrets are sealed with
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth key new && berth key rotate\n  berth key list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List the keys of the ring, and how many secrets each one seals
    #[command(before_help = "Examples:\n  berth key list\n  berth key list --db sqlite:berth-server/state.db -o json")]
    List {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Add a new key to the ring's file; from then on it seals
    #[command(
        before_help = "Examples:\n  berth key new\n  berth key new --key-file /etc/berth/key\n  berth key new --standby"
    )]
    New {
        #[command(flatten)]
        key: KeyArgs,
        /// Only open with it for now: for servers that each have a file of their own, until all of them have the key
        #[arg(long)]
        standby: bool,
    },
    /// Make a key of the ring the one that seals
    #[command(
        before_help = "Examples:\n  berth key use k1f2e3d4c\n  berth key use k1f2e3d4c --key-file /etc/berth/key"
    )]
    Use {
        /// Id of the key
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Seal everything with the first key of the ring, while servers run
    #[command(
        before_help = "Examples:\n  berth key rotate\n  berth key rotate --db sqlite:berth-server/state.db --key-file berth-server/key"
    )]
    Rotate {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Take a key out of the ring; refused while anything in the state is sealed with it
    #[command(before_help = "Examples:\n  berth key retire k0a1b2c3d\n  berth key retire old --yes")]
    Retire {
        /// Id of the key
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        database: DatabaseArgs,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        What::List { database, output } => list(&database, output),
        What::New { key, standby } => new(&key, standby),
        What::Use { id, key } => make_first(&id, &key),
        What::Rotate { database } => rotate(&database),
        What::Retire { id, database, yes } => retire(&id, &database, yes),
    }
}

/// The file that holds the ring; a ring from a command or the environment cannot be changed here.
fn ring_file(source: &KeySource) -> Result<PathBuf, Failure> {
    source.file().ok_or_else(|| {
        Failure::new("the key ring is not in a file")
            .help("change it where BERTH_KEY or BERTH_KEY_COMMAND takes it from: the first line is the key that seals")
            .help("or name a file with --key-file FILE")
    })
}

fn list(database: &DatabaseArgs, output: OutputArgs) -> CommandResult {
    let options = database.existing()?;
    let (ring, place) = options.key.ring()?;
    let counts = block_on(Threads::Two, async {
        match Store::open(options).await {
            Ok(store) => {
                let counts = store.sealed_by().await?;
                store.close().await;
                Ok(Some(counts))
            }
            // A ring can be looked at before there is a state.
            Err(StoreError::Missing { .. }) if !database.is_said() => Ok(None),
            Err(error) => Err(error.into()),
        }
    })?;
    let lines = lines(&ring, counts.as_ref());
    let value: Vec<Value> = lines
        .iter()
        .map(|line| json!({"id": line.id, "seals": line.seals, "inRing": line.in_ring, "secrets": line.secrets}))
        .collect();
    let table = |_| {
        let mut table = Table::new(["KEY", "USE", "SECRETS"]);
        for line in &lines {
            let secrets = line.secrets.map_or("-".into(), |count| count.to_string());
            let id = if line.id.is_empty() { "(of before keys had ids)" } else { &line.id };
            let way = match (line.in_ring, line.seals) {
                (_, true) => "seals and opens",
                (true, false) => "opens",
                (false, _) if line.id.is_empty() => "opens",
                (false, _) => "not in the ring",
            };
            table.row([id, way, &secrets]);
        }
        table.render()
    };
    output::show(output.output, &value, table, || lines.iter().map(|line| line.id.clone()).collect())?;
    anstream::eprintln!("\nthe ring comes from {place}");
    Ok(Exit::Done)
}

struct Line {
    id: String,
    seals: bool,
    in_ring: bool,
    secrets: Option<u64>,
}

fn lines(ring: &KeyRing, counts: Option<&BTreeMap<String, u64>>) -> Vec<Line> {
    let ids = ring.ids();
    let count = |id: &String| counts.map(|counts| counts.get(id).copied().unwrap_or(0));
    let known = ids.iter().enumerate().map(|(at, id)| Line {
        id: id.clone(),
        seals: at == 0,
        in_ring: true,
        secrets: count(id),
    });
    let others = counts.into_iter().flatten().filter(|(id, _)| !ids.contains(id));
    let others = others.map(|(id, count)| Line { id: id.clone(), seals: false, in_ring: false, secrets: Some(*count) });
    known.chain(others).collect()
}

fn new(key: &KeyArgs, standby: bool) -> CommandResult {
    let source = key.source(None);
    let path = ring_file(&source)?;
    let made = KeyRing::generate()?;
    let id = made.ids().remove(0);
    let ring = match path.exists() {
        true => {
            let (ring, _) = source.ring()?;
            if ring.ids().len() >= berth_store::KEYS_MAX {
                return Err(Failure::new(format!("the key ring has {} keys already", ring.ids().len()))
                    .help("to take an old one out:   berth key retire ID"));
            }
            if standby { made.after(&ring) } else { ring.after(&made) }
        }
        false => made,
    };
    write_ring(&path, &ring)?;
    output::print(&format!("{id}\n"))?;
    anstream::eprintln!("the new key {id} is in {}", path.display());
    match standby {
        true => {
            anstream::eprintln!("it opens and does not seal yet. Next:");
            anstream::eprintln!("  1. copy the file to every other server (0600); each reads it again by itself");
            anstream::eprintln!("{}", complete(&format!("  2. on every server:   berth key use {id}")));
            anstream::eprintln!("  3. {}", rotate_line(&path, key));
        }
        false => {
            anstream::eprintln!("servers that read this file seal with it within a second. Next:");
            anstream::eprintln!(
                "  1. copy the file to every other server that has its own, now: until then they cannot open what is sealed \
                 with it (`berth key new --standby` avoids that)"
            );
            anstream::eprintln!("  2. {}", rotate_line(&path, key));
            anstream::eprintln!("  3. make a backup; to take the old key out then:   berth key retire ID");
        }
    }
    Ok(Exit::Done)
}

/// How the rest is sealed anew. A ring that was named is a server's: which database it is for, the file beside it tells, or
/// the operator knows.
fn rotate_line(ring: &Path, key: &KeyArgs) -> String {
    let what = "seal the rest with it:   berth key rotate";
    if key.key_file.is_none() {
        return complete(what);
    }
    let database = ring.with_file_name("state.db");
    let url = match database.is_file() {
        true => shell_word(&format!("sqlite:{}", database.display())),
        false => "URL".to_owned(),
    };
    complete(&format!("{what} --db {url}"))
}

fn make_first(id: &str, key: &KeyArgs) -> CommandResult {
    let source = key.source(None);
    let path = ring_file(&source)?;
    let (ring, place) = source.ring()?;
    let Some(changed) = ring.with_first(id) else { return Err(unknown(id, &ring, &place)) };
    write_ring(&path, &changed)?;
    anstream::eprintln!("{} seals from now on; next, {}", changed.ids()[0], rotate_line(&path, key));
    Ok(Exit::Done)
}

fn unknown(id: &str, ring: &KeyRing, place: &str) -> Failure {
    Failure::new(format!("the key ring from {place} has no key `{id}`"))
        .help(format!("it has {}", ring.ids().join(", ")))
}

fn rotate(database: &DatabaseArgs) -> CommandResult {
    if !database.is_said()
        && let Some(target) = contexts::active()?
    {
        return block_on(Threads::One, rotate_at(target));
    }
    let options = database.existing()?;
    block_on(Threads::Two, async {
        let store = Store::open(options).await?;
        let steps = Steps::new("sealing");
        let done = store
            .rotate(|told| steps.say(&format!("pass {}, {}: {} sealed anew", told.pass, told.place, told.resealed)))
            .await;
        steps.end();
        store.close().await;
        let done = done?;
        tell_rotated(done.resealed, &done.key_id);
        Ok(Exit::Done)
    })
}

async fn rotate_at(target: Target) -> CommandResult {
    let client = target.context.connection().connect().await?;
    let steps = Steps::new("sealing");
    let mut request = RotateKeysRequest::default();
    let done = loop {
        // Each answer comes soon; a rotation that was broken off can be begun again.
        let answer = client.access().rotate_keys(request).await;
        let part = match answer {
            Ok(part) => part.into_inner(),
            Err(status) => {
                steps.end();
                return Err(Failure::from(client.fault(&status)));
            }
        };
        if part.next.is_empty() {
            break part;
        }
        steps.say(&format!("{}: {} sealed anew", part.at, part.resealed));
        request = RotateKeysRequest { from: part.next };
    };
    steps.end();
    tell_rotated(done.resealed, &done.key_id);
    Ok(Exit::Done)
}

fn tell_rotated(resealed: u64, key: &str) {
    let rows = count(usize::try_from(resealed).unwrap_or(usize::MAX), "row");
    anstream::eprintln!("{rows} sealed anew; everything is sealed with {key}");
}

fn retire(id: &str, database: &DatabaseArgs, yes: bool) -> CommandResult {
    let options = database.existing()?;
    let path = ring_file(&options.key)?;
    let (ring, place) = options.key.ring()?;
    let Some(name) = ring.name_of(id).map(str::to_owned) else { return Err(unknown(id, &ring, &place)) };
    let state = options.location.to_string();
    let Some(rest) = ring.without(&name) else {
        return Err(
            Failure::new(format!("{name} is the only key of the ring")).help("to add another one:   berth key new")
        );
    };
    if ring.ids()[0] == name {
        return Err(Failure::new(format!("{name} is the key that seals"))
            .help("to make another one the first:   berth key use ID")
            .help("then, to seal everything with it:   berth key rotate"));
    }
    let counts = block_on(Threads::Two, async {
        let store = Store::open(options).await?;
        let counts = store.sealed_by().await?;
        store.close().await;
        Ok(counts)
    })?;
    let named = counts.get(&name).copied().unwrap_or(0);
    let nameless = counts.get("").copied().unwrap_or(0);
    if named + nameless > 0 {
        let secrets = count(usize::try_from(named + nameless).unwrap_or(usize::MAX), "secret");
        let message = match named {
            0 => format!("{secrets} of {state} may be sealed with {name}: they are of before keys had ids"),
            _ => format!("{secrets} of {state} are sealed with {name}"),
        };
        return Err(Failure::new(message).help("to seal them with the first key:   berth key rotate"));
    }
    let warning = format!(
        "{name} goes from {}; other states and older backups without keys that need it cannot be opened any more",
        path.display()
    );
    confirm::proceed(&warning, yes)?;
    write_ring(&path, &rest)?;
    anstream::eprintln!("{name} is no longer in {}; copy the file to every other server", path.display());
    Ok(Exit::Done)
}
