//! `berth watch`: fleet, tasks, events and workers of a server, live and on the whole screen.

use crate::args::ServerArgs;
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::{Remote, with_server};
use crate::view::terminal;
use crate::view::watch::feed::{self, News};
use crate::view::watch::model::{Key, Model};
use crate::view::watch::view::{self, Look};
use jiff::Timestamp;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// At most ten pictures a second.
const FRAME: Duration = Duration::from_millis(100);
/// Ages grow by themselves.
const AGE: Duration = Duration::from_secs(1);
/// How soon the reader of keys sees that nobody listens any more.
const KEYS_EVERY: Duration = Duration::from_millis(250);
const NEWS_HELD: usize = 256;

/// Watch fleet and tasks of the server, live
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth watch\n  berth watch --context prod",
    after_help = "Keys: tab and shift-tab between panes, arrows or j and k to move, enter for details, / to filter, q to quit"
)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: Args) -> CommandResult {
    args.server.server()?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("watch needs a terminal")
            .help("for a log or a program:   berth events -f -o json")
            .help("or, for tasks alone:   berth tasks -w"));
    }
    with_server(&args.server, async |remote| watch(remote.clone()).await)
}

/// The terminal as it was, however this ends: panics are cared for by ratatui's own hook.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn watch(remote: Remote) -> CommandResult {
    let unavailable = |error: std::io::Error| Failure::caused("the terminal cannot be used", &error);
    let mut terminated = signal(SignalKind::terminate()).map_err(unavailable)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(unavailable)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(unavailable)?;
    let mut model = Model::new(remote.place());
    let color = terminal::stdout_color();
    let mut screen = ratatui::try_init().map_err(unavailable)?;
    let _restore = Restore;
    let (send, mut news) = mpsc::channel(NEWS_HELD);
    read_keys(send.clone());
    let _feed = feed::start(remote, send);
    let mut dirty = true;
    let mut drawn: Option<Instant> = None;
    loop {
        let rested = drawn.is_none_or(|at| at.elapsed() >= FRAME);
        if dirty && rested {
            let look = Look { now: Timestamp::now(), color };
            screen.draw(|frame| view::draw(frame, &model, &look)).map_err(unavailable)?;
            drawn = Some(Instant::now());
            dirty = false;
        }
        let pause = if dirty { FRAME } else { AGE };
        tokio::select! {
            Some(one) = news.recv() => match take(&mut model, one) {
                Some(true) => dirty = true,
                Some(false) => {}
                None => return Ok(Exit::Done),
            },
            () = tokio::time::sleep(pause) => dirty = true,
            _ = terminated.recv() => return Ok(Exit::Done),
            _ = hung_up.recv() => return Ok(Exit::Done),
            _ = interrupted.recv() => return Ok(Exit::Done),
        }
    }
}

/// Answers whether something looks different now; `None` ends it.
fn take(model: &mut Model, news: News) -> Option<bool> {
    match news {
        News::Key(key) => return model.press(key).then_some(true),
        News::Resized => {}
        News::Page { resources, last, more } => {
            for resource in &resources {
                model.put(crate::remote::messages::id_of(resource.id.as_ref()), Some(resource));
            }
            model.loaded |= last;
            model.more |= more;
        }
        News::Changed(changed) => {
            for (id, resource) in changed {
                model.put(id, resource.as_ref());
            }
        }
        News::Events(events) => events.into_iter().for_each(|event| model.see(event)),
        News::Tasks(tasks) => {
            if model.tasks == tasks {
                return Some(false);
            }
            model.tasks = tasks;
        }
        News::Workers(workers) => {
            if model.workers == workers {
                return Some(false);
            }
            model.workers = workers;
        }
        News::Trouble(trouble) => {
            if model.trouble == trouble {
                return Some(false);
            }
            model.trouble = trouble;
        }
    }
    Some(true)
}

/// Keys are read by a thread of their own, which ends when nobody listens.
fn read_keys(send: mpsc::Sender<News>) {
    std::thread::spawn(move || {
        while !send.is_closed() {
            match event::poll(KEYS_EVERY) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return,
            }
            let news = match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    meaning(key.code, key.modifiers).map(News::Key)
                }
                Ok(Event::Resize(..)) => Some(News::Resized),
                Ok(_) => None,
                Err(_) => return,
            };
            if let Some(news) = news
                && send.blocking_send(news).is_err()
            {
                return;
            }
        }
    });
}

fn meaning(code: KeyCode, with: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if with.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(_) if with.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => return None,
        KeyCode::Char(letter) => Key::Type(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab | KeyCode::Right => Key::NextPane,
        KeyCode::BackTab | KeyCode::Left => Key::PreviousPane,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Back,
        _ => return None,
    })
}
