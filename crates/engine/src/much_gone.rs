//! Much gone at once is a question: a wrong account, a wrong address or a cloud's outage looks as if everything had been
//! deleted.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Up to this many objects may go together without a question.
pub const FEW_GONE: usize = 3;
/// It is much when more than one of this many is gone.
pub const SHARE_GONE: usize = 5;

/// How many objects of an account were looked for and not found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneCount {
    pub account: String,
    /// Objects that are not found.
    pub gone: usize,
    /// Objects that were looked for.
    pub of: usize,
}

impl GoneCount {
    /// Whether so much seems gone that it is a question.
    pub fn is_much(&self) -> bool {
        is_much(self.gone, self.of)
    }
}

impl fmt::Display for GoneCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} objects of account {} seem gone", self.gone, self.of, self.account)
    }
}

pub fn is_much(gone: usize, of: usize) -> bool {
    gone > FEW_GONE && gone.saturating_mul(SHARE_GONE) > of
}

/// Counts what was looked for, by account.
#[derive(Default)]
pub(crate) struct Tally<'a>(BTreeMap<&'a str, (usize, usize)>);

impl<'a> Tally<'a> {
    pub fn add(&mut self, account: &'a str, is_gone: bool) {
        let (gone, of) = self.0.entry(account).or_default();
        *gone += usize::from(is_gone);
        *of += 1;
    }

    pub fn counts(self) -> Vec<GoneCount> {
        self.0.into_iter().map(|(account, (gone, of))| GoneCount { account: account.to_owned(), gone, of }).collect()
    }

    pub fn much_gone(self) -> Vec<GoneCount> {
        self.counts().into_iter().filter(GoneCount::is_much).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_few_and_more_than_a_fifth() {
        assert!(!is_much(3, 3), "a few");
        assert!(is_much(4, 4));
        assert!(is_much(4, 19) && !is_much(4, 20), "a fifth is not more than a fifth");
        assert!(!is_much(100, 10_000) && is_much(2_001, 10_000));
        let mut tally = Tally::default();
        (0..8).for_each(|n| tally.add(if n % 2 == 0 { "a" } else { "b" }, n % 2 == 0));
        assert_eq!(tally.much_gone(), [GoneCount { account: "a".into(), gone: 4, of: 4 }]);
    }
}
