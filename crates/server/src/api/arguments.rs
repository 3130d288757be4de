//! Checks of the values that callers send.

use crate::fault::{Code, Fault};
use crate::pb;
use berth_model::ResourceId;

/// Bytes of a kind, name, org or env that a caller gives.
const NAME_BYTES_MAX: usize = 256;
/// Characters of a caller's text that an error repeats.
const SHOWN_MAX: usize = 80;

/// A caller's text in an error: cut short, and without control characters.
pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The identity that a caller gave. The case of the kind does not matter.
pub fn parse_id(kind: String, name: String, org: String, env: String) -> Result<ResourceId, Fault> {
    for (field, text) in [("kind", &kind), ("name", &name), ("org", &org), ("env", &env)] {
        check_text(field, text)?;
    }
    for (field, text) in [("kind", &kind), ("name", &name)] {
        if text.is_empty() {
            return Err(invalid_argument(field, "it is needed"));
        }
    }
    let kind = berth_model::registry().find(&kind).map_or(kind, |found| found.name.clone());
    Ok(ResourceId { kind, name, org, env })
}

pub fn parse_id_message(id: pb::ResourceId) -> Result<ResourceId, Fault> {
    parse_id(id.kind, id.name, id.org, id.env)
}

/// A text that is looked up must be one that could be stored.
pub fn check_text(field: &str, text: &str) -> Result<(), Fault> {
    if text.len() > NAME_BYTES_MAX {
        return Err(invalid_argument(field, &format!("it has at most {NAME_BYTES_MAX} bytes")));
    }
    if text.contains('\0') {
        return Err(invalid_argument(field, "it cannot hold a NUL"));
    }
    Ok(())
}

/// An error about one field of a request, or about all of it where `field` is empty.
pub fn invalid_argument(field: &str, why: &str) -> Fault {
    let message = if field.is_empty() { why.to_owned() } else { format!("{field}: {why}") };
    let mut fault = Fault::new(Code::InvalidArgument, message);
    let (message, path) = (why.to_owned(), field.to_owned());
    fault.problems.push(pb::Problem { severity: "error".into(), message, path, ..pb::Problem::default() });
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_in_any_case_and_names_are_bounded() {
        let found = parse_id("civovpc".into(), "net".into(), String::new(), String::new()).unwrap();
        assert_eq!(found.kind, "CivoVpc");
        assert!(parse_id("CivoVpc".into(), String::new(), String::new(), String::new()).is_err());
        assert!(parse_id("CivoVpc".into(), "x".repeat(300), String::new(), String::new()).is_err());
    }
}
