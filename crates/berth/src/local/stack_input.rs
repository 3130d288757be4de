//! Project Planton's stack input: one target, with the credentials of its provider.

use crate::failure::Failure;
use crate::local::files;
use crate::view::diagnostics;
use berth_clouds::Credentials;
use berth_model::{Manifest, stack_input};
use std::path::{Path, PathBuf};

/// The target and its credentials; what is wrong with it has been said when this fails.
pub fn read(path: &Path) -> Result<(Manifest, Option<Credentials>), Failure> {
    let mut read = files::read(&[PathBuf::from(path)]);
    if let Some(problem) = read.problems.first() {
        return Err(Failure::new(problem.message.clone()).note(problem.place()));
    }
    let source = match (read.sources.pop(), read.sources.pop()) {
        (Some(source), None) => source,
        _ => {
            return Err(
                Failure::new(format!("{} is not one file", path.display())).help("give the file of one stack input")
            );
        }
    };
    match stack_input(&source.name, &source.bytes) {
        Ok((manifest, credential)) => {
            let credentials = credential.map(|given| Credentials {
                provider: given.provider,
                token: given.token,
                api_url: None,
                foreign_url: false,
                region: given.region,
                requests_per_second: 0,
                max_concurrent_tasks: 0,
            });
            Ok((manifest, credentials))
        }
        Err(problems) => {
            let text = String::from_utf8_lossy(&source.bytes);
            diagnostics::print(&problems, |_| Some(text.as_ref()), 1, 1);
            Err(Failure::new("the stack input cannot be used; nothing was changed"))
        }
    }
}
