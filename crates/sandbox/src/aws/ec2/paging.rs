//! Pages: `MaxResults` and `NextToken`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::aws::ask::Input;
use crate::aws::errors::{Answer, fail};

/// Least and most objects of a page, as most calls have them.
pub const USUAL: (usize, usize) = (5, 1000);
pub const FROM_ONE: (usize, usize) = (1, 200);

pub fn page<T>(input: &Input, rows: Vec<T>, (least, most): (usize, usize)) -> Answer<(Vec<T>, Option<String>)> {
    let size = match input.int("MaxResults") {
        None => most,
        Some(n) if n < least as i64 => {
            let message = format!(
                "Value ( {n} ) for parameter maxResults is invalid. Expecting a value greater than or equal to {least}."
            );
            return fail("InvalidParameterValue", message);
        }
        Some(n) => (n as usize).min(most),
    };
    let from = match input.text("NextToken").filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => match position(token) {
            Some(from) => from,
            None => return fail("InvalidNextToken", format!("The token '{token}' is invalid")),
        },
    };
    let next = (from + size < rows.len()).then(|| URL_SAFE_NO_PAD.encode(format!("from:{}", from + size)));
    Ok((rows.into_iter().skip(from).take(size).collect(), next))
}

fn position(token: &str) -> Option<usize> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    text.strip_prefix("from:")?.parse().ok()
}
