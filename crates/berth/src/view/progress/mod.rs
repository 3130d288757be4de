//! Shows the progress of converge: live lines on a terminal, plain lines in a pipe or log. Always on standard error, so that
//! a result on standard output stays clean.

mod board;
mod steps;

pub use steps::Steps;

use crate::args::address::Names;
use crate::view::terminal;
use berth_engine::progress::{Progress, Watcher};
use berth_model::ResourceId;
use board::Board;
pub use board::short;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(120);
/// Without a terminal, a long wait says so again after this long.
const REPEAT: Duration = Duration::from_secs(15);

/// Shorter work is not announced.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for something that has no steps of its own to show, and says so when it takes long.
pub async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    if !terminal::stderr_is_live() {
        eprint_line(&format!("{what} …"));
        return work.await;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg}  {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(format!("{what} …"));
    bar.enable_steady_tick(TICK);
    let done = work.await;
    bar.finish_and_clear();
    done
}

/// The watcher for one run. Dropping it takes the live lines away.
pub struct Display {
    shared: Arc<SharedDisplay>,
    ticker: Option<std::thread::JoinHandle<()>>,
}

struct SharedDisplay {
    started: Instant,
    state: Mutex<Drawn>,
    stop: (Mutex<bool>, Condvar),
}

struct Drawn {
    board: Board,
    surface: Surface,
}

enum Surface {
    Live { multi: MultiProgress, bars: Vec<ProgressBar>, tick: usize },
    Plain { said: BTreeMap<ResourceId, (String, Duration)> },
}

impl Display {
    /// For a run over so many resources.
    pub fn new(total: usize, names: Names) -> Self {
        Self::on(total, names, terminal::stderr_is_live())
    }

    fn on(total: usize, names: Names, live: bool) -> Self {
        let surface = if live {
            let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            Surface::Live { multi, bars: Vec::new(), tick: 0 }
        } else {
            Surface::Plain { said: BTreeMap::new() }
        };
        let shared = Arc::new(SharedDisplay {
            started: Instant::now(),
            state: Mutex::new(Drawn { board: Board::new(total, names), surface }),
            stop: (Mutex::new(false), Condvar::new()),
        });
        let ticker = Arc::clone(&shared);
        let every = if live { TICK } else { Duration::from_secs(1) };
        let ticker = std::thread::Builder::new().name("progress".into()).spawn(move || ticker.run(every)).ok();
        Self { shared, ticker }
    }

    /// Prints a line without tearing the live ones.
    pub fn say(&self, line: &str) {
        self.shared.lock().print(line);
    }
}

impl Watcher for Display {
    fn see(&self, progress: Progress) {
        let now = self.shared.started.elapsed();
        self.shared.lock().see(now, &progress);
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let (stopped, wake) = &self.shared.stop;
        *stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        wake.notify_all();
        if let Some(ticker) = self.ticker.take() {
            _ = ticker.join();
        }
        self.shared.lock().clear();
    }
}

impl SharedDisplay {
    /// A panic elsewhere must not take the display down with it.
    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn run(&self, every: Duration) {
        let (stopped, wake) = &self.stop;
        let mut guard = stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while !*guard {
            let waited = wake.wait_timeout(guard, every).unwrap_or_else(std::sync::PoisonError::into_inner);
            guard = waited.0;
            if !*guard {
                self.lock().tick(self.started.elapsed());
            }
        }
    }
}

impl Drawn {
    fn see(&mut self, now: Duration, progress: &Progress) {
        let ended = self.board.see(now, progress);
        let (Progress::Waits { resource, .. }
        | Progress::Started { resource, .. }
        | Progress::Doing { resource, .. }
        | Progress::Done { resource, .. }
        | Progress::Failed { resource, .. }
        | Progress::Skipped { resource, .. }) = progress;
        if let Surface::Plain { said } = &mut self.surface {
            match (&ended, progress) {
                (None, Progress::Started { .. } | Progress::Doing { .. }) => {
                    let what = match progress {
                        Progress::Doing { what, .. } => what.as_str(),
                        Progress::Started { verb, .. } => verb,
                        _ => "",
                    };
                    // A phase that is reported again is not news.
                    if said.get(resource).is_none_or(|(old, _)| old != what) {
                        said.insert(resource.clone(), (what.to_owned(), now));
                        if let Some(line) = self.board.plain(now, resource) {
                            eprint_line(&line);
                        }
                    }
                }
                _ => _ = said.remove(resource),
            }
        }
        if let Some(line) = ended {
            self.print(&line);
        }
    }

    fn print(&mut self, line: &str) {
        match &self.surface {
            Surface::Live { multi, .. } => _ = multi.println(line),
            Surface::Plain { .. } => eprint_line(line.trim_start()),
        }
    }

    fn tick(&mut self, now: Duration) {
        match &mut self.surface {
            Surface::Live { multi, bars, tick } => {
                *tick += 1;
                let lines = self.board.lines(now, *tick, terminal::stderr_width());
                while bars.len() > lines.len() {
                    if let Some(bar) = bars.pop() {
                        bar.finish_and_clear();
                        multi.remove(&bar);
                    }
                }
                while bars.len() < lines.len() {
                    let bar = multi.add(ProgressBar::new_spinner());
                    if let Ok(style) = ProgressStyle::with_template("{msg}") {
                        bar.set_style(style);
                    }
                    bars.push(bar);
                }
                for (bar, line) in bars.iter().zip(lines) {
                    bar.set_message(line);
                    bar.tick();
                }
            }
            Surface::Plain { said } => {
                let overdue: Vec<ResourceId> = self
                    .board
                    .running()
                    .filter(|id| said.get(id).is_some_and(|(_, at)| now.saturating_sub(*at) >= REPEAT))
                    .take(board::MOST_LINES)
                    .cloned()
                    .collect();
                for id in overdue {
                    if let Some(line) = self.board.plain(now, &id) {
                        eprint_line(&line);
                    }
                    if let Some((_, at)) = said.get_mut(&id) {
                        *at = now;
                    }
                }
            }
        }
    }

    fn clear(&mut self) {
        if let Surface::Live { multi, bars, .. } = &mut self.surface {
            for bar in bars.drain(..) {
                bar.finish_and_clear();
            }
            _ = multi.clear();
        }
    }
}

/// Errors are ignored: standard error may be closed.
fn eprint_line(line: &str) {
    _ = writeln!(std::io::stderr().lock(), "{line}");
}
