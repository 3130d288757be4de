//! What the terminal can show, and what must never reach it.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

/// Width used where there is no terminal to ask.
pub const PIPE_WIDTH: usize = 120;
const NARROWEST: usize = 40;

static LINES_STAY: AtomicBool = AtomicBool::new(false);

/// Decides once whether anything is coloured. `NO_COLOR`, `CLICOLOR` and pipes are honoured by the streams themselves.
pub fn choose_color(no_color: bool) {
    if no_color {
        anstream::ColorChoice::Never.write_global();
    }
}

pub fn stderr_color() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

pub fn stdout_color() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Lines of a log between live ones would tear both apart: with a log, progress is lines too.
pub fn keep_lines() {
    LINES_STAY.store(true, Ordering::Relaxed);
}

pub fn stderr_is_live() -> bool {
    !LINES_STAY.load(Ordering::Relaxed)
        && std::io::stderr().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of standard error's terminal, or a fixed width, so that piped output does not depend on where it ran.
pub fn stderr_width() -> usize {
    width_of(terminal_size::terminal_size_of(std::io::stderr()))
}

/// Columns of standard output's terminal; `None` in a pipe, where lines are never folded.
pub fn stdout_width() -> Option<usize> {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map(|_| width_of(size))
}

fn width_of(size: Option<(terminal_size::Width, terminal_size::Height)>) -> usize {
    size.map_or(PIPE_WIDTH, |(width, _)| usize::from(width.0).max(NARROWEST))
}

/// A character that a terminal would act on rather than show: controls, and marks that reorder text.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The visible stand-in for one character. One for one, so that columns stay where they were.
pub fn visible(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        c if acts(c) => '\u{fffd}',
        c => c,
    }
}

/// Text of a user, a cloud or a file, made harmless for a terminal. Line breaks stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().any(|c| acts(c) && c != '\n') {
        Cow::Owned(text.chars().map(|c| if c == '\n' { c } else { visible(c) }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// As [`harmless`], on one line.
pub fn harmless_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(acts) { Cow::Owned(text.chars().map(visible).collect()) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(harmless("a\u{1b}[2Jb\nc"), "a␛[2Jb\nc");
        assert_eq!(harmless_line("a\nb\u{202e}c"), "a␊b\u{fffd}c");
        assert!(matches!(harmless("plain é 漢"), Cow::Borrowed(_)));
    }
}
