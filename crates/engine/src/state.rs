//! The states that a resource can be in, and their names.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a resource stands. The names are what is stored, sent and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ResourceState {
    /// Declared, and not carried out yet.
    #[default]
    Pending,
    /// Carried out, and answering.
    Ready,
    /// The last attempt to carry it out failed.
    Failed,
    /// A policy or a permission forbids its plan.
    Blocked,
    /// Its plan waits for approval.
    AwaitingApproval,
    /// On its way out.
    Deleting,
}

impl ResourceState {
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Ready, Self::Failed, Self::Blocked, Self::AwaitingApproval, Self::Deleting];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Blocked => "Blocked",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Deleting => "Deleting",
        }
    }

    /// `None` for a name that this version does not know.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for ResourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_one_name_everywhere() {
        for state in ResourceState::ALL {
            assert_eq!(ResourceState::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            assert_eq!(state.to_string(), state.as_str());
        }
        assert_eq!(ResourceState::parse("ready"), None);
    }
}
