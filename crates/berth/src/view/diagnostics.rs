//! Shows what is wrong with manifests: the line itself, a caret, the field, what would be right.

use crate::view::terminal::{self, harmless, harmless_line, visible};
use annotate_snippets::renderer::{DEFAULT_ERROR_STYLE, DEFAULT_HELP_STYLE, DEFAULT_LINE_NUM_STYLE};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use berth_model::{Diagnostic, Severity, Span};
use std::fmt::Write;

/// Characters of a line that are shown; longer ones are cut around the spot.
const LINE_CHARS: usize = 100;
/// Problems that are shown; a generated file with a mistake in every line says the same thing often enough by then.
const MOST_SHOWN: usize = 100;

/// Renders each problem, with a line between them. `source` gives the text of a file by its name.
pub fn render<'a>(diagnostics: &[Diagnostic], source: impl Fn(&str) -> Option<&'a str>, styled: bool) -> String {
    let renderer = if styled { Renderer::styled() } else { Renderer::plain() }.term_width(LINE_CHARS + 40);
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MOST_SHOWN) {
        let text = source(&diagnostic.file).filter(|_| !diagnostic.secret);
        let shown = match (diagnostic.span, text) {
            (Some(span), Some(text)) => with_line(diagnostic, span, text, &renderer),
            _ => without_line(diagnostic, styled),
        };
        out.push_str(shown.trim_end());
        out.push_str("\n\n");
    }
    if diagnostics.len() > MOST_SHOWN {
        _ = writeln!(out, "… and {} more, not shown\n", diagnostics.len() - MOST_SHOWN);
    }
    out
}

fn with_line(diagnostic: &Diagnostic, span: Span, text: &str, renderer: &Renderer) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let Cut { line, start, end } = cut(text, span);
    let column = line[..start].chars().count() + 1;
    let path = harmless_line(&diagnostic.file);
    let caption = harmless_line(diagnostic.caption());
    let mut mark = AnnotationKind::Primary.span(start..end);
    if !caption.is_empty() {
        mark = mark.label(caption);
    }
    let snippet = Snippet::source(line).line_start(span.line as usize).path(path.clone()).annotation(mark);
    let help = diagnostic.help.iter().map(|help| Level::HELP.message(harmless_line(help)));
    let group = level.primary_title(harmless(&diagnostic.message)).element(snippet).elements(help);
    let rendered = renderer.render(&[group]);
    // Where a line was cut, the renderer counts from the cut.
    let (title, place) = rendered.split_at(rendered.find("-->").unwrap_or(0));
    let counted = format!("{path}:{}:{column}", span.line);
    format!("{title}{}", place.replacen(&counted, &format!("{path}:{}:{}", span.line, span.column), 1))
}

/// For what has no line to show, or one that must not be shown.
fn without_line(diagnostic: &Diagnostic, styled: bool) -> String {
    let (error, frame, help) =
        if styled { (DEFAULT_ERROR_STYLE, DEFAULT_LINE_NUM_STYLE, DEFAULT_HELP_STYLE) } else { Default::default() };
    let word = if diagnostic.is_error() { "error" } else { "warning" };
    let mut out = format!("{error}{word}{error:#}: {}\n", harmless(&diagnostic.message));
    if !diagnostic.file.is_empty() {
        _ = writeln!(out, "  {frame}-->{frame:#} {}", harmless_line(&diagnostic.place()));
    }
    if !diagnostic.caption().is_empty() {
        _ = writeln!(out, "   {frame}={frame:#} {}", harmless_line(diagnostic.caption()));
    }
    for line in &diagnostic.help {
        _ = writeln!(out, "   {frame}={frame:#} {help}help{help:#}: {}", harmless_line(line));
    }
    out
}

/// A piece of one line, harmless for a terminal, and the spot in its bytes.
struct Cut {
    line: String,
    start: usize,
    end: usize,
}

fn cut(text: &str, span: Span) -> Cut {
    let start = floor(text, span.start);
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    // Only so much of the line is looked at, however long it is.
    let from = floor(text, begin.max(start.saturating_sub(4 * LINE_CHARS)));
    let until = floor(text, end.min(span.end.max(start) + 4 * LINE_CHARS).min(start + 8 * LINE_CHARS));
    let before: Vec<char> = text[from..start].chars().collect();
    let spot_end = floor(text, span.end.clamp(start, until));
    let spot: Vec<char> = text[start..spot_end].chars().filter(|c| *c != '\r').take(LINE_CHARS / 2).collect();
    let after: Vec<char> = text[start..until].chars().filter(|c| *c != '\r').skip(spot.len()).collect();

    let room = LINE_CHARS - spot.len();
    let left = before.len().min(if after.len() < room / 2 { room - after.len() } else { room / 2 });
    let right = after.len().min(room - left);
    let mut line = String::new();
    if from > begin || left < before.len() {
        line.push('…');
    }
    line.extend(before[before.len() - left..].iter().map(|c| shown(*c)));
    let start = line.len();
    line.extend(spot.iter().map(|c| shown(*c)));
    let stop = line.len();
    line.extend(after[..right].iter().map(|c| shown(*c)));
    if until < end || right < after.len() {
        line.push('…');
    }
    let stop = stop.max(line[start..].chars().next().map_or(start, |c| start + c.len_utf8()));
    Cut { line, start, end: stop }
}

/// A tab stays one column wide, so that the caret stands where it should.
fn shown(c: char) -> char {
    if c == '\t' { '→' } else { visible(c) }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// `3 errors in 1 of 4 manifests; nothing was changed`.
pub fn summary(diagnostics: &[Diagnostic], affected: usize, manifests: usize) -> String {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let warnings = diagnostics.len() - errors;
    let mut counted = Vec::new();
    if errors > 0 {
        counted.push(count(errors, "error"));
    }
    if warnings > 0 {
        counted.push(count(warnings, "warning"));
    }
    let mut text = counted.join(" and ");
    if manifests > 0 {
        _ = write!(text, " in {affected} of {}", count(manifests, "manifest"));
    }
    if errors > 0 {
        text.push_str("; nothing was changed");
    }
    text
}

pub fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Writes them to standard error, with the summary.
pub fn print<'a>(
    diagnostics: &[Diagnostic],
    source: impl Fn(&str) -> Option<&'a str>,
    affected: usize,
    manifests: usize,
) {
    let text = render(diagnostics, source, terminal::stderr_color());
    anstream::eprint!("{text}{}\n", summary(diagnostics, affected, manifests));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, needle: &str) -> Span {
        let start = text.find(needle).unwrap();
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        Span {
            start,
            end: start + needle.len(),
            line: text[..start].matches('\n').count() as u32 + 1,
            column: text[line_start..start].chars().count() as u32 + 1,
        }
    }

    fn shown(text: &str, needle: &str) -> String {
        let problem = Diagnostic::error("wrong").file("a.yaml").at(at(text, needle)).path("spec.x").help("do this");
        render(&[problem], |_| Some(text), false)
    }

    #[test]
    fn the_line_is_shown_with_a_caret() {
        insta::assert_snapshot!(shown("a: 1\nspec:\n  x: é0\n", "é0"), @r"
        error: wrong
         --> a.yaml:3:6
          |
        3 |   x: é0
          |      ^^ spec.x
          |
          = help: do this
        ");
    }

    #[test]
    fn a_long_line_is_cut_and_keeps_its_column() {
        let text = format!("k: [{}HERE{}]", "abc, ".repeat(100_000), ", def".repeat(100_000));
        let shown = shown(&text, "HERE");
        assert!(shown.contains("a.yaml:1:500005\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 130), "{shown}");
        let line = shown.lines().find(|line| line.contains("HERE")).unwrap();
        let caret = shown.lines().find(|line| line.contains("^^^^")).unwrap();
        let column = |line: &str, what: &str| line[..line.find(what).unwrap()].chars().count();
        assert_eq!(column(line, "HERE"), column(caret, "^^^^"));
    }

    #[test]
    fn nothing_in_a_file_reaches_the_terminal_raw() {
        let shown = shown("x: \u{1b}[31m\tHERE\u{7}\r\n", "HERE");
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\r', '\t']), "{shown}");
    }

    #[test]
    fn spots_at_the_edges_do_not_panic() {
        for text in ["", "x", "é", "a\nb", "a\r\n", "\n\n"] {
            for start in 0..=text.len() + 2 {
                for end in [start, start + 1, text.len() + 5] {
                    let span = Span { start, end, line: 1, column: 1 };
                    let problem = Diagnostic::error("wrong").file("a").at(span);
                    assert!(render(&[problem], |_| Some(text), false).starts_with("error: wrong"));
                }
            }
        }
    }

    #[test]
    fn a_secret_line_is_not_shown() {
        let text = "token: hunter2";
        let problem = Diagnostic::error("wrong").file("a").at(at(text, "hunter2")).path("spec.token").secret(true);
        assert_eq!(render(&[problem], |_| Some(text), false), "error: wrong\n  --> a:1:8\n   = spec.token\n\n");
    }

    #[test]
    fn sums_up() {
        let error = Diagnostic::error("x");
        assert_eq!(summary(std::slice::from_ref(&error), 1, 4), "1 error in 1 of 4 manifests; nothing was changed");
        assert_eq!(summary(&[error.clone(), error], 0, 0), "2 errors; nothing was changed");
    }
}
