//! Selectors as people know them from Kubernetes.

use super::arguments::{check_text, invalid_argument, shown};
use crate::fault::Fault;
use berth_store::{FieldTerm, LabelTerm};

/// Conditions in one selector.
const TERMS_MAX: usize = 32;
const SELECTOR_BYTES_MAX: usize = 4096;

/// `team=shop,tier!=test,gpu,!old`.
pub fn labels(text: &str) -> Result<Vec<LabelTerm>, Fault> {
    let field = "labelSelector";
    terms(field, text)?
        .into_iter()
        .map(|term| {
            let (name, value, equal) = match split(term) {
                Some(split) => split,
                None => {
                    let (name, absent) = term.strip_prefix('!').map_or((term, false), |name| (name.trim(), true));
                    checked(field, name)?;
                    let name = name.to_owned();
                    return Ok(if absent { LabelTerm::HasNot(name) } else { LabelTerm::Has(name) });
                }
            };
            checked(field, name)?;
            check_text(field, value)?;
            let (name, value) = (name.to_owned(), value.to_owned());
            Ok(if equal { LabelTerm::Is(name, value) } else { LabelTerm::IsNot(name, value) })
        })
        .collect()
}

/// `state=Ready,spec.region!=fra1`.
pub fn fields(text: &str) -> Result<Vec<FieldTerm>, Fault> {
    let field = "fieldSelector";
    terms(field, text)?
        .into_iter()
        .map(|term| {
            let Some((path, value, equal)) = split(term) else {
                return Err(invalid_argument(
                    field,
                    &format!("`{}` is not `field=value` or `field!=value`", shown(term)),
                ));
            };
            let known = ["state", "deleting", "drifted", "account", "service"];
            if !known.contains(&path) && !path.starts_with("spec.") && !path.starts_with("metadata.") {
                let help = format!("it knows {}, and paths such as spec.region", known.join(", "));
                return Err(invalid_argument(field, &format!("there is no field `{}`", shown(path))).help(help));
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
            if path.split('.').any(str::is_empty) || !path.chars().all(plain) {
                return Err(invalid_argument(field, &format!("`{}` is not a path", shown(path))));
            }
            check_text(field, value)?;
            Ok(FieldTerm { path: path.to_owned(), value: value.to_owned(), equal })
        })
        .collect()
}

fn terms<'t>(field: &str, text: &'t str) -> Result<Vec<&'t str>, Fault> {
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(invalid_argument(field, &format!("it has at most {SELECTOR_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let terms: Vec<&str> = text.split(',').map(str::trim).collect();
    if terms.len() > TERMS_MAX {
        return Err(invalid_argument(field, &format!("it has at most {TERMS_MAX} conditions")));
    }
    Ok(terms)
}

fn split(term: &str) -> Option<(&str, &str, bool)> {
    if let Some((name, value)) = term.split_once("!=") {
        return Some((name.trim(), value.trim(), false));
    }
    let (name, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((name.trim(), value.trim(), true))
}

fn checked(field: &str, name: &str) -> Result<(), Fault> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if name.is_empty() || name.len() > 317 || !name.chars().all(fine) {
        return Err(invalid_argument(field, &format!("`{}` is not a label's name", shown(name))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubernetes_reads_them() {
        let is = |name: &str, value: &str| LabelTerm::Is(name.into(), value.into());
        assert_eq!(
            labels("team=shop, tier!=test,gpu,!old,a==b").unwrap(),
            [
                is("team", "shop"),
                LabelTerm::IsNot("tier".into(), "test".into()),
                LabelTerm::Has("gpu".into()),
                LabelTerm::HasNot("old".into()),
                is("a", "b"),
            ]
        );
        assert!(labels("").unwrap().is_empty() && fields(" ").unwrap().is_empty());
        let found = fields("state=Ready,spec.region!=fra1").unwrap();
        assert_eq!((found[0].path.as_str(), found[0].equal), ("state", true));
        assert_eq!((found[1].value.as_str(), found[1].equal), ("fra1", false));
        for bad in ["=x", "a b=c", ",", "!"] {
            assert!(labels(bad).is_err(), "{bad}");
        }
        for bad in ["state", "colour=red", "spec..a=b", "spec.a'b=c"] {
            assert!(fields(bad).is_err(), "{bad}");
        }
    }
}
