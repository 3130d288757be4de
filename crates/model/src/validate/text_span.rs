//! Spans inside a text that is a value of its own, such as a policy's rule.

use crate::diagnostic::Span;
use crate::yaml::{Node, Quotes, Style, Value};

/// Where a line and column of a scalar's text stand in the file. `None` where its lines were joined or escaped, so that
/// they cannot be found again.
pub(super) fn within(file: &str, node: &Node<'_>, (line, column): (usize, usize)) -> Option<Span> {
    let Value::Scalar { text, style } = &node.value else { return None };
    let raw = file.get(node.span.start..node.span.end)?;
    let (start, rest) = match style {
        Style::Plain if raw == text => (node.span.start, raw),
        Style::Quoted(Quotes::Single | Quotes::Double) => {
            let inner = raw.get(1..raw.len().checked_sub(1)?)?;
            (inner == text).then_some((node.span.start + 1, inner))?
        }
        Style::Quoted(Quotes::Block) => block_line(file, node.span.start, line)?,
        Style::Plain => return None,
    };
    if !matches!(style, Style::Quoted(Quotes::Block)) && (line != 1 || raw.contains('\n')) {
        return None;
    }
    let at = rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at);
    let word = rest.get(at..)?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').map(char::len_utf8).sum();
    let first = rest.get(at..)?.chars().next().map_or(0, char::len_utf8);
    let start = start + at;
    let before = file.get(..start)?;
    Some(Span {
        start,
        end: start + first.max(word),
        line: u32::try_from(before.matches('\n').count() + 1).ok()?,
        column: u32::try_from(before.rsplit('\n').next()?.chars().count() + 1).ok()?,
    })
}

/// A line of a literal block, from its first column on, and where it begins.
fn block_line(file: &str, start: usize, line: usize) -> Option<(usize, &str)> {
    // The place of a block may be its `|` or its first line.
    let header = file.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    let header_line = file.get(header..)?.lines().next()?;
    let marker = header_line.trim_end().rsplit([' ', ':']).next()?;
    let first = match marker.chars().next()? {
        '|' => header + header_line.len() + 1,
        '>' => return None,
        _ => {
            let above = file.get(..header.checked_sub(1)?)?;
            let above = above.get(above.rfind('\n').map_or(0, |at| at + 1)..)?;
            above.trim_end().rsplit([' ', ':']).next()?.starts_with('|').then_some(header)?
        }
    };
    let lines = file.get(first..)?.split_inclusive('\n');
    let indent = lines.clone().find(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len())?;
    let mut at = first;
    for (n, content) in lines.enumerate() {
        if n + 1 == line {
            return Some((at + indent.min(content.len()), content.trim_end_matches('\n').get(indent..).unwrap_or("")));
        }
        at += content.len();
    }
    None
}
