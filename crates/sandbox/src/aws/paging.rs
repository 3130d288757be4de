//! Marks of pages: opaque to clients, and holding where the next page begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::errors::{Answer, AwsError};

pub fn marked(place: &str) -> String {
    URL_SAFE_NO_PAD.encode(place)
}

pub fn unmarked(mark: &str) -> Option<String> {
    URL_SAFE_NO_PAD.decode(mark).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// What follows `mark` in rows sorted by `key`, at most `max`, and the mark of the page after it.
pub fn slice<T>(
    mut rows: Vec<T>,
    key: impl Fn(&T) -> String,
    mark: Option<&str>,
    max: usize,
    bad: impl FnOnce() -> Box<AwsError>,
) -> Answer<(Vec<T>, Option<String>)> {
    rows.sort_by_cached_key(|row| key(row));
    if let Some(mark) = mark.filter(|mark| !mark.is_empty()) {
        let after = unmarked(mark).ok_or_else(bad)?;
        rows.retain(|row| key(row) > after);
    }
    let more = rows.len() > max;
    rows.truncate(max);
    let next = if more { rows.last().map(|row| marked(&key(row))) } else { None };
    Ok((rows, next))
}
