//! What kwok is told to play: nodes as the cloud shows them, pods that come up after a simulated pull.

use std::path::Path;
use std::time::Duration;

/// Set by the sandbox on every node: whether the cloud says that it is ready.
pub const READY_ANNOTATION: &str = "sandbox.berth.dev/ready";

const CONFIG: &str = include_str!("kwok.yaml");

/// What every container wrote, in the form in which container runtimes keep logs.
const LOGS: &str =
    "2024-01-01T00:00:00.000000000Z stdout F The sandbox runs no containers; this one would be running now.\n";

/// Writes the file that kwok reads, and the log of all containers; gives the file's path.
pub fn write_config(folder: &Path, pull: Duration) -> std::io::Result<String> {
    let (config, logs) = (folder.join("kwok.yaml"), folder.join("containers.log"));
    std::fs::write(&logs, LOGS)?;
    let quoted = serde_json::Value::from(logs.to_string_lossy()).to_string();
    let pull = pull.as_millis().to_string();
    let text = CONFIG
        .replace("PULL_MS", &pull)
        .replace("RUN_MS", &pull)
        .replace("LOGS", &quoted)
        .replace("READY", READY_ANNOTATION);
    std::fs::write(&config, text)?;
    Ok(config.to_string_lossy().into_owned())
}
