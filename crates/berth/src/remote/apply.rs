//! Manifests applied by a server: it plans, keeps what is declared, and its workers carry it out.

use super::carry_out::{Job, carry_out};
use super::{Remote, kept_file};
use crate::args::{Address, ScopeArgs};
use crate::backend::{ApplySource, ChangeOptions, Ended, SavedFile, lookup};
use crate::failure::Failure;
use berth_server::pb;

pub async fn apply(remote: &Remote, source: ApplySource, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
    let (mut loaded, mut promise) = (None, None);
    let (files, count) = match source {
        ApplySource::Files(files) => {
            let found = (files.files(), files.manifests.len());
            loaded = Some(files);
            found
        }
        ApplySource::Stored(addresses) => {
            let files = kept_files(remote, &addresses).await?;
            let count = files.len();
            (files, count)
        }
        ApplySource::Saved(SavedFile::Server(saved)) => {
            let promised = saved.promise()?;
            let count = promised.plan.resources.len();
            promise = Some(promised);
            (saved.files(), count)
        }
        ApplySource::Saved(SavedFile::Local(_)) => {
            return Err(Failure::new("the plan was made by the embedded engine"));
        }
        ApplySource::StackInput(..) => return Err(Failure::new("a server does not take a stack input")),
    };
    let job = Job { files, delete: Vec::new(), loaded, promise: promise.as_ref(), options };
    let ended = carry_out(remote, job).await?;
    Ok(Ended { count, ..ended })
}

/// What a server keeps of resources, as files to be applied again. Secrets are not among it.
async fn kept_files(remote: &Remote, addresses: &[Address]) -> Result<Vec<pb::ManifestFile>, Failure> {
    let mut files: Vec<pb::ManifestFile> = Vec::new();
    for stored in lookup::find(remote, addresses, &ScopeArgs::default()).await? {
        let file = kept_file(&stored)?;
        match files.iter_mut().find(|other| other.name == file.name) {
            Some(same) => same.text.push_str(&format!("\n---\n{}", file.text)),
            None => files.push(file),
        }
    }
    Ok(files)
}
