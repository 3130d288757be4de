//! Progress of work on many rows: a line that is overwritten on a terminal, and nothing elsewhere.

use crate::view::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Steps {
    bar: Option<ProgressBar>,
    doing: &'static str,
}

impl Steps {
    pub fn new(doing: &'static str) -> Self {
        let bar = terminal::stderr_is_live().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg}  {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(super::TICK);
            bar.set_message(format!("{doing} …"));
            bar
        });
        Self { bar, doing }
    }

    pub fn rows(&self, table: &str, rows: u64, all: u64) {
        self.say(&format!("{table}: {rows} of {all} rows"));
    }

    pub fn say(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} {what}", self.doing));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
