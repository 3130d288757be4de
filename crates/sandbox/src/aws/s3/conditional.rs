//! Requests that hold only while an object is, or is not, as the client knows it.

use super::{Version, header, http_date, no_key};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError};

fn failed(condition: &str) -> Box<AwsError> {
    let text = "At least one of the pre-conditions you specified did not hold";
    AwsError::new(412, "PreconditionFailed", text).details(serde_json::json!({"Condition": condition}))
}

fn same(sent: &str, etag: &str) -> bool {
    sent.split(',')
        .map(|one| one.trim().trim_start_matches("W/").trim_matches('"'))
        .any(|one| one == "*" || one == etag)
}

/// Seconds since 1970 of a date as HTTP writes it.
fn seconds(date: &str) -> Option<i64> {
    let format = "%a, %d %b %Y %H:%M:%S GMT";
    let time = jiff::civil::DateTime::strptime(format, date).ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp().as_second())
}

/// For reads. `true`: the client has it already.
pub fn unchanged(ask: &Ask, version: &Version) -> Answer<bool> {
    let modified = version.modified.0.div_euclid(1000);
    if let Some(sent) = header(ask, "if-match")
        && !same(sent, &version.etag)
    {
        return Err(failed("If-Match"));
    }
    if header(ask, "if-match").is_none()
        && let Some(date) = header(ask, "if-unmodified-since").and_then(seconds)
        && modified > date
    {
        return Err(failed("If-Unmodified-Since"));
    }
    if let Some(sent) = header(ask, "if-none-match") {
        return Ok(same(sent, &version.etag));
    }
    Ok(header(ask, "if-modified-since").and_then(seconds).is_some_and(|date| modified <= date))
}

/// For writes: `If-None-Match: *` where nothing may be there, `If-Match` where only a certain object may be replaced.
pub fn may_write(ask: &Ask, current: Option<&Version>, key: &str) -> Answer<()> {
    let current = current.filter(|version| !version.delete_marker);
    match (header(ask, "if-none-match"), current) {
        (Some(sent), Some(version)) if same(sent, &version.etag) => return Err(failed("If-None-Match")),
        _ => {}
    }
    match (header(ask, "if-match"), current) {
        (Some(_), None) => Err(no_key(key)),
        (Some(sent), Some(version)) if !same(sent, &version.etag) => Err(failed("If-Match")),
        _ => Ok(()),
    }
}

/// The same for the source of a copy.
pub fn may_copy(ask: &Ask, version: &Version) -> Answer<()> {
    let modified = version.modified.0.div_euclid(1000);
    let fails = |name: &'static str, wrong: &dyn Fn(&str) -> bool| match header(ask, name) {
        Some(sent) if wrong(sent) => Err(failed(name)),
        _ => Ok(()),
    };
    fails("x-amz-copy-source-if-match", &|sent| !same(sent, &version.etag))?;
    fails("x-amz-copy-source-if-none-match", &|sent| same(sent, &version.etag))?;
    fails("x-amz-copy-source-if-modified-since", &|sent| seconds(sent).is_some_and(|date| modified <= date))?;
    fails("x-amz-copy-source-if-unmodified-since", &|sent| seconds(sent).is_some_and(|date| modified > date))
}

/// `bytes=0-99`, `bytes=100-`, `bytes=-100`: first byte and length. Nothing where it cannot be read, as S3 then sends all.
pub fn range(sent: &str, size: u64) -> Answer<Option<(u64, u64)>> {
    let Some((first, last)) = sent.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Ok(None);
    };
    let outside = || {
        let text = "The requested range is not satisfiable";
        AwsError::new(416, "InvalidRange", text)
            .details(serde_json::json!({"RangeRequested": sent, "ActualObjectSize": size}))
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), _) if first >= size => Err(outside()),
        (Ok(first), Ok(last)) if last < first => Ok(None),
        (Ok(first), Ok(last)) => Ok(Some((first, last.min(size - 1) - first + 1))),
        (Ok(first), Err(_)) if last.is_empty() => Ok(Some((first, size - first))),
        (Err(_), Ok(0)) if first.is_empty() => Err(outside()),
        (Err(_), Ok(_)) if first.is_empty() && size == 0 => Err(outside()),
        (Err(_), Ok(count)) if first.is_empty() => Ok(Some((size - count.min(size), count.min(size)))),
        _ => Ok(None),
    }
}

/// What a write answers with about the time of an object.
pub fn last_modified(version: &Version) -> String {
    http_date(version.modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_in_http() {
        for (sent, size, expected) in [
            ("bytes=0-3", 10, Some((0, 4))),
            ("bytes=5-", 10, Some((5, 5))),
            ("bytes=-3", 10, Some((7, 3))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=2-100", 10, Some((2, 8))),
            ("bytes=3-2", 10, None),
            ("lines=1-2", 10, None),
        ] {
            assert_eq!(range(sent, size).unwrap(), expected, "{sent}");
        }
        assert_eq!(range("bytes=10-", 10).err().unwrap().status, 416);
        assert_eq!(seconds("Sat, 31 Jan 2026 12:00:00 GMT"), Some(1_769_860_800));
    }
}
