//! `berth kubeconfig`: the way into a cluster, printed or merged into a kubeconfig file.

use crate::args::ResourceArgs;
use crate::args::repeated_flags;
use crate::backend::{Access, Backend, lookup, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::kubeconfig_file::{Entry, MergeError, Owner, merge, reaches_further, remove};
use crate::local::{project, sandbox};
use crate::remote::contexts;
use crate::view::output;
use crate::view::resource_view;
use crate::view::terminal::harmless_line;
use berth_engine::parents;
use berth_model::{MAX_FILE_BYTES, ResourceId, registry};
use berth_store::StoredResource;
use secrecy::{ExposeSecret, SecretString};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for another tool that is writing the same kubeconfig.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
/// What contexts of simulated clusters begin with: nobody takes one for a real one.
const SANDBOX_PREFIX: &str = "sandbox-";
/// Files that contexts were merged into and that are remembered.
const FILES_MAX: usize = 100;

/// Print a cluster's kubeconfig, or merge it into yours
#[derive(clap::Args, Debug)]
#[command(
    // `--context` names the kubeconfig's here.
    mut_arg("server_context", |arg| arg.long("berth-context")),
    before_help = "Examples:\n  berth kubeconfig CivoKubernetesCluster/shop --merge\n  berth kubeconfig civokubernetescluster/shop > shop.kubeconfig"
)]
pub struct Args {
    /// The cluster, as Kind/name
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// Put it into $KUBECONFIG or ~/.kube/config, and make it the current context
    #[arg(long, conflicts_with = "out")]
    merge: bool,
    /// The file to merge into
    #[arg(long, value_name = "FILE", requires = "merge")]
    kubeconfig: Option<PathBuf>,
    /// Name of the context; by default the resource's, with its env before it, and `sandbox-` where it is simulated
    #[arg(long, value_name = "NAME", requires = "merge")]
    context: Option<String>,
    /// Take the name even from an entry that Berth did not make
    #[arg(long, requires = "merge")]
    force: bool,
    /// Write it to a file that only you can read
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    resources: ResourceArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let (owner, kubeconfig) = with_backend(&args.resources.workspace, Access::Read, async |backend| {
        let stored = lookup::one(backend, &args.what, &scope).await?;
        let kubeconfig = kubeconfig_of(backend, &stored).await?;
        let owner = Owner { from: backend.origin()?, sandbox: backend.is_sandbox(), resource: stored.id };
        Ok((owner, kubeconfig))
    })?;
    let text = kubeconfig.expose_secret();
    if let Some(field) = reaches_further(text) {
        let id = &owner.resource;
        return Err(Failure::new(format!("the kubeconfig of {id} has a user with `{}`", harmless_line(&field)))
            .note("with it kubectl would start a program or read a file on this machine; it is not given out")
            .help("no cloud makes such ones: find out who wrote it"));
    }
    if args.merge {
        return merge_into(&args, owner, text);
    }
    match &args.out {
        Some(path) => {
            project::write_private(path, text.as_bytes())?;
            anstream::eprintln!("to use it:   export KUBECONFIG={}", path.display());
        }
        None => output::print(text)?,
    }
    Ok(Exit::Done)
}

/// Removes the contexts that were merged for these clusters, from every file that one was merged into. Called when
/// they are deleted: a file that cannot be read or written is reported, and the others are still edited.
pub fn forget(backend: &dyn Backend, ids: &[ResourceId]) -> Result<(), Failure> {
    let (from, sandbox) = (backend.origin()?, backend.is_sandbox());
    let owner = |resource: &ResourceId| Owner { resource: resource.clone(), from: from.clone(), sandbox };
    let owners: Vec<Owner> = ids.iter().filter(|id| has_kubeconfig(id)).map(owner).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let mut files = Merged::load();
    files.extend(target(None).ok());
    files.sort();
    files.dedup();
    for path in files.iter().filter(|path| path.exists()) {
        if let Err(failure) = forget_in(path, &owners) {
            failure.note("the contexts of deleted clusters may still be there").print();
        }
    }
    Ok(())
}

fn forget_in(path: &Path, owners: &[Owner]) -> Result<(), Failure> {
    let place = path.display().to_string();
    // Checked without the lock first: most files have no entry of Berth's.
    let look = |text: &str| remove(text, owners).map_err(|error| failure(error, &owners[0].resource, &place, ""));
    if look(&read(path)?)?.is_none() {
        return Ok(());
    }
    let _lock = FileLock::take(path)?;
    if let Some(removed) = look(&read(path)?)? {
        project::write_private(path, removed.text.as_bytes())?;
        for context in removed.contexts {
            anstream::eprintln!("context {} is taken out of {place}", harmless_line(&context));
        }
    }
    Ok(())
}

fn has_kubeconfig(id: &ResourceId) -> bool {
    let kind = registry().kind(&id.kind);
    kind.is_some_and(|kind| kind.secret_outputs().any(|name| name.starts_with("kubeconfig")))
}

/// The files that contexts were merged into, beside the user's configuration.
struct Merged;

impl Merged {
    fn place() -> Option<PathBuf> {
        Some(contexts::folder()?.join("kubeconfigs.json"))
    }

    fn load() -> Vec<PathBuf> {
        let text = Self::place().and_then(|path| read(&path).ok()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// What is not remembered is looked for in the usual places only.
    fn remember(path: &Path) {
        let Some(place) = Self::place() else { return };
        let mut files = Self::load();
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if files.contains(&path) {
            return;
        }
        files.push(path);
        files.drain(..files.len().saturating_sub(FILES_MAX));
        let written = place.parent().map_or(Ok(()), project::make).and_then(|()| {
            let text = output::json(&files)?;
            project::write_private(&place, text.as_bytes())
        });
        if let Err(failure) = written {
            tracing::warn!(%failure, "where the context is could not be written down");
        }
    }
}

async fn kubeconfig_of(backend: &dyn Backend, stored: &StoredResource) -> Result<SecretString, Failure> {
    let id = &stored.id;
    let kind = registry().kind(&id.kind);
    let Some(name) = kind.and_then(|kind| kind.secret_outputs().find(|name| name.starts_with("kubeconfig"))) else {
        return Err(no_cluster(stored)?);
    };
    if !stored.secret_names.iter().any(|has| has == name) {
        let phase = resource_view::phase(stored);
        let why = if phase.is_empty() { String::new() } else { format!(": {phase}") };
        return Err(Failure::new(format!("{id} is not ready, and has no kubeconfig yet{why}"))
            .help(format!("to wait for it:   {}", repeated_flags::command("wait", id))));
    }
    backend.kubeconfig(stored, name).await
}

/// An error for a kind without a kubeconfig, with the cluster that the resource belongs to.
fn no_cluster(stored: &StoredResource) -> Result<Failure, Failure> {
    let manifest = stored.manifest(&stored.sealed_manifest()?)?;
    let failure = Failure::new(format!("a {} has no kubeconfig", stored.id.kind));
    let cluster = parents(&manifest).into_iter().find(|to| to.kind.ends_with("KubernetesCluster"));
    Ok(match cluster {
        Some(cluster) => failure
            .note(format!("{} belongs to {cluster}", stored.id))
            .help(repeated_flags::command("kubeconfig", &cluster)),
        None => failure.help("only clusters have; to see them:   berth get"),
    })
}

fn merge_into(args: &Args, owner: Owner, kubeconfig: &str) -> CommandResult {
    let (id, sandbox) = (&owner.resource.clone(), owner.sandbox);
    let prefix = if sandbox { SANDBOX_PREFIX } else { "" };
    let name = args.context.clone().unwrap_or_else(|| match id.env.as_str() {
        "" => format!("{prefix}{}", id.name),
        env => format!("{prefix}{env}-{}", id.name),
    });
    if !name.starts_with(prefix) {
        return Err(Failure::new(format!("{id} is simulated: its context begins with `{SANDBOX_PREFIX}`"))
            .help(format!("choose such a name:   --context {SANDBOX_PREFIX}{name}")));
    }
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Failure::new("a context needs a name of printable characters"));
    }
    let path = target(args.kubeconfig.as_deref())?;
    let entry =
        Entry::new(kubeconfig, &name, owner).map_err(|error| failure(error, id, "the cluster's kubeconfig", &name))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        project::make(folder)?;
    }
    let _lock = FileLock::take(&path)?;
    let before = read(&path)?;
    let place = path.display().to_string();
    let merged = merge(&before, &entry, args.force).map_err(|error| failure(error, id, &place, &name))?;
    if merged.text != before {
        if merged.touched_others {
            let mut backup = path.clone().into_os_string();
            backup.push(".bak");
            project::write_private(backup.as_ref(), before.as_bytes())?;
            anstream::eprintln!("what was there before is kept in {place}.bak");
        }
        project::write_private(&path, merged.text.as_bytes())?;
    }
    Merged::remember(&path);
    anstream::eprintln!("context {name} is in {place}, and the current one");
    if args.resources.workspace.sandbox.sandbox && sandbox::recorded(&project::folder()?).is_none() {
        anstream::eprintln!("  no sandbox is running, so nothing answers there");
        anstream::eprintln!(
            "  to start one, and then merge again, since its address may be another:   berth sandbox --background"
        );
    } else {
        anstream::eprintln!("  to try it:   kubectl get nodes");
    }
    Ok(Exit::Done)
}

fn failure(error: MergeError, id: &ResourceId, place: &str, name: &str) -> Failure {
    match error {
        MergeError::Unreadable(why) => Failure::new(format!("{place} cannot be read as YAML: {why}"))
            .help("mend it, or choose another file with --kubeconfig FILE"),
        MergeError::NotAKubeconfig => Failure::new(format!("{place} is not a kubeconfig; nothing was changed"))
            .help("choose another file with --kubeconfig FILE"),
        MergeError::Incomplete(what) => Failure::new(format!("the kubeconfig of {id} lacks {what}"))
            .help(format!("to look at it:   berth kubeconfig {id}{}", id.flags())),
        MergeError::Taken { what } => {
            Failure::new(format!("{place} has a {what} named `{name}` that is of another cluster; nothing was changed"))
                .note(format!("the one to put there is {id}"))
                .help("choose another name with --context NAME, or add --force to take this one")
        }
    }
}

/// The file asked for, else $KUBECONFIG's first, else ~/.kube/config. A link is followed, so that it stays one.
fn target(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match asked {
        Some(path) => path.to_owned(),
        None => {
            let listed = std::env::var_os("KUBECONFIG")
                .and_then(|list| std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
            match (listed, std::env::var_os("HOME")) {
                (Some(path), _) => path,
                (None, Some(home)) => PathBuf::from(home).join(".kube").join("config"),
                (None, None) => {
                    return Err(
                        Failure::new("neither KUBECONFIG nor HOME is set").help("choose a file with --kubeconfig FILE")
                    );
                }
            }
        }
    };
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

fn read(path: &Path) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot read {}", path.display()), &error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(cannot(error)),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(Failure::new(format!("{} is too large to be a kubeconfig", path.display())));
    }
    Ok(text)
}

/// kubectl's own lock: a file beside the kubeconfig while it is written.
struct FileLock(PathBuf);

impl FileLock {
    fn take(path: &Path) -> Result<Self, Failure> {
        let mut lock = path.to_owned().into_os_string();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let started = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if started.elapsed() >= LOCK_WITHIN {
                        return Err(Failure::new(format!("{} is being written by another tool", path.display()))
                            .help(format!("if none is running, remove {}", lock.display())));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(Failure::caused(format!("cannot lock {}", path.display()), &error)),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}
