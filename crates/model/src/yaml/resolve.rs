//! What a scalar without quotes means: YAML 1.2's core schema, decimal numbers only.

/// What a plain scalar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is not a whole one in decimal notation, or too large.
    Number,
    Text,
}

pub fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Bool(true),
        "false" | "False" | "FALSE" => return Plain::Bool(false),
        ".inf" | ".Inf" | ".INF" | "-.inf" | "-.Inf" | "-.INF" | "+.inf" | "+.Inf" | "+.INF" | ".nan" | ".NaN"
        | ".NAN" => return Plain::Number,
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Plain::Text;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        // Readers disagree on whether `010` is ten or eight.
        if digits.len() > 1 && digits.starts_with('0') {
            return Plain::Number;
        }
        return text.parse().map_or(Plain::Number, Plain::Int);
    }
    if let Some(rest) = digits.strip_prefix("0x") {
        return if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_hexdigit()) {
            Plain::Number
        } else {
            Plain::Text
        };
    }
    if let Some(rest) = digits.strip_prefix("0o") {
        return if !rest.is_empty() && rest.bytes().all(|b| (b'0'..=b'7').contains(&b)) {
            Plain::Number
        } else {
            Plain::Text
        };
    }
    if is_float(digits) { Plain::Number } else { Plain::Text }
}

/// A whole number that is written with a point, such as `3.0`.
pub fn whole(text: &str) -> Option<i64> {
    let (digits, zeros) = text.split_once('.')?;
    let fits = !zeros.is_empty() && zeros.bytes().all(|b| b == b'0');
    match resolve(digits) {
        Plain::Int(number) if fits => Some(number),
        _ => None,
    }
}

/// `digits[.digits][e[+-]digits]` or `.digits…`.
fn is_float(digits: &str) -> bool {
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    if let Some(exponent) = exponent {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if exponent.is_empty() || !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return false;
        }
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    !(whole.is_empty() && fraction.is_empty()) && all_digits(whole) && all_digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_yaml_1_2_says() {
        for (text, expected) in [
            ("", Plain::Null),
            ("~", Plain::Null),
            ("true", Plain::Bool(true)),
            ("yes", Plain::Text),
            ("3", Plain::Int(3)),
            ("-3", Plain::Int(-3)),
            ("1.29", Plain::Number),
            ("1.29.0", Plain::Text),
            ("1.29.0-k3s1", Plain::Text),
            ("1e3", Plain::Number),
            ("1e", Plain::Text),
            (".5", Plain::Number),
            (".", Plain::Text),
            ("010", Plain::Number),
            ("0x1f", Plain::Number),
            ("99999999999999999999", Plain::Number),
            ("02:00", Plain::Text),
            ("fra1", Plain::Text),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        assert_eq!((whole("3.0"), whole("-3.00"), whole("0.0")), (Some(3), Some(-3), Some(0)));
        for other in ["3", "3.", "3.5", ".0", "03.0", "1e3", "a.0", "99999999999999999999.0"] {
            assert_eq!(whole(other), None, "{other}");
        }
    }
}
