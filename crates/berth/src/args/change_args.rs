//! How a change is confirmed, and how it is run.

use crate::args::WorkspaceArgs;
use std::time::Duration;

#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// How many resources to work on at once, 64 by default; on a server its workers' --capacity says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parallelism: Option<u16>,
    /// How long one resource may take, such as 90s, 20m or 1h; a resource's annotation `berth.dev/timeout` overrides it
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = duration)]
    pub timeout: Duration,
    /// Begin the work and do not wait for it to end; `berth wait` waits
    #[arg(long)]
    pub no_wait: bool,
    /// On a server: wait also for approvals, as long as --timeout says
    #[arg(long, conflicts_with = "no_wait")]
    pub wait: bool,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    berth_model::duration(text).ok_or_else(|| format!("`{text}` is not a time; write 90s, 20m or 1h"))
}

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct ConfirmArgs {
    /// Do not ask. It never allows replacing or losing data: that takes --allow-replace
    #[arg(short, long)]
    pub yes: bool,
    /// Allow what takes something away: replacements, removed pools, deletions
    #[arg(long, visible_alias = "allow-delete")]
    pub allow_replace: bool,
    /// What is changed is simulated: questions say so.
    #[arg(skip)]
    pub sandbox: bool,
}

impl ConfirmArgs {
    pub fn place(self) -> &'static str {
        if self.sandbox { "sandbox: " } else { "" }
    }
}

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct RecreateArgs {
    /// What is not found was deleted and is made again, also when much of an account seems gone at once
    #[arg(long)]
    pub allow_recreate: bool,
}

/// For commands that change something: how it is run, and where.
#[derive(clap::Args, Clone, Debug)]
pub struct ChangeArgs {
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
}
