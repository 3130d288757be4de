//! Filters of Describe calls: `Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-…`, with `*` and `?` in values.

use super::resource::Cx;
use crate::aws::ask::{Input, Tags};
use crate::aws::errors::{Answer, fail};

/// A filter's name, and what an object has for it; one of those must fit.
pub type Filter<T> = (&'static str, fn(&T, &Cx) -> Vec<String>);

#[derive(Default)]
pub struct Filters(Vec<(String, Vec<String>)>);

impl Filters {
    pub fn read(input: &Input) -> Filters {
        let filter = |one: &Input| {
            let values = one.texts("Value").into_iter().map(str::to_owned).collect();
            (one.text("Name").unwrap_or_default().to_owned(), values)
        };
        Filters(input.list("Filter").iter().map(filter).collect())
    }

    /// The only value of a filter, where it has no wildcards.
    pub fn exact(&self, name: &str) -> Option<&str> {
        let (_, values) = self.0.iter().find(|(own, _)| own == name)?;
        match values.as_slice() {
            [one] if !one.contains(['*', '?', '\\']) => Some(one),
            _ => None,
        }
    }

    pub fn check<T>(&self, known: &[Filter<T>]) -> Answer<()> {
        for (name, _) in &self.0 {
            let general = name.starts_with("tag:") || matches!(name.as_str(), "tag-key" | "tag-value" | "owner-id");
            if !general && !known.iter().any(|(own, _)| own == name) {
                return fail("InvalidParameterValue", format!("The filter '{name}' is invalid"));
            }
        }
        Ok(())
    }

    /// Whether an object has a fitting value for every filter.
    pub fn fit<T>(&self, object: &T, cx: &Cx, known: &[Filter<T>], tags: &Tags) -> bool {
        self.0.iter().all(|(name, patterns)| {
            let any = |value: &str| patterns.iter().any(|pattern| matches(pattern, value));
            if let Some(key) = name.strip_prefix("tag:") {
                return tags.get(key).is_some_and(|value| any(value));
            }
            match (name.as_str(), known.iter().find(|(own, _)| own == name)) {
                (_, Some((_, values))) => values(object, cx).iter().any(|value| any(value)),
                ("tag-key", None) => tags.keys().any(|key| any(key)),
                ("tag-value", None) => tags.values().any(|value| any(value)),
                ("owner-id", None) => any(cx.account),
                _ => false,
            }
        })
    }
}

/// `*` stands for any text, `?` for one character; a backslash takes the meaning from the next.
pub fn matches(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?', '\\']) {
        return pattern == text;
    }
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to go on from if what follows the last star does not fit.
    let mut retry: Option<(std::str::Chars, std::str::Chars)> = None;
    loop {
        let here = (pattern.clone(), text.clone());
        let fits = match pattern.next() {
            Some('*') => {
                text = here.1.clone();
                retry = Some((pattern.clone(), text.clone()));
                true
            }
            Some('?') => text.next().is_some(),
            Some('\\') => pattern.next() == text.next(),
            Some(c) => text.next() == Some(c),
            None if text.next().is_none() => return true,
            None => false,
        };
        if fits {
            continue;
        }
        let Some((after_star, mut rest)) = retry.take() else { return false };
        if rest.next().is_none() {
            return false;
        }
        (pattern, text) = (after_star.clone(), rest.clone());
        retry = Some((after_star, rest));
    }
}

/// A single value.
pub fn one(value: impl ToString) -> Vec<String> {
    vec![value.to_string()]
}

/// A value that may be missing.
pub fn some(value: Option<impl ToString>) -> Vec<String> {
    value.map(|value| value.to_string()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*x", "abc", false),
            ("?b?", "abc", true),
            ("?", "", false),
            ("*ab", "aab", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("", "", true),
            ("*-prod-*", "x-prod-", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
