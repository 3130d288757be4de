//! Why a server's operation was not done.

use crate::error::StoreError;
use berth_model::ResourceId;

/// Why a server's operation was not done. All but `Store` are answers, not failures.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The caller no longer holds the task: its lease ended, or another worker holds it now.
    #[error("the lease of this task has ended or is another worker's")]
    Fenced,
    /// Another generation is stored than the one that the change was made for (0: there is none).
    #[error("{id} has generation {found}, and the change was made for generation {expected}")]
    Conflict { id: ResourceId, expected: i64, found: i64 },
    /// Another plan waits for an approval than the one that was looked at.
    #[error("another plan of {id} waits for approval than the one that was looked at")]
    OtherPlan { id: ResourceId, waiting: String },
    /// What it refers to is being deleted.
    #[error("{id} cannot be applied: it refers to {parent}, which is being deleted")]
    Going { id: Box<ResourceId>, parent: Box<ResourceId> },
    /// Something that stays refers to what should go.
    #[error("{id} cannot be deleted: {by} refers to it{}", and_more(*.more))]
    InUse { id: Box<ResourceId>, by: Box<ResourceId>, more: usize },
    /// The caller who approves is the one who applied it, under the same or another name.
    #[error("{by} applied {id}: somebody else must approve it")]
    OwnChange { id: Box<ResourceId>, by: String },
    /// Who applied it is known by name alone, from before identities were kept: it cannot be told from the approver.
    #[error("who applied {id} is known by name alone ({by}), so that nobody can be told to be somebody else")]
    UnknownAuthor { id: Box<ResourceId>, by: String },
    /// An ID token that was used to log in before.
    #[error("this login was used already")]
    UsedLogin,
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(", and {more} more like it") } else { String::new() }
}

impl ControlError {
    /// The same again, for each of many that share a fate.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Fenced => Self::Fenced,
            Self::Conflict { id, expected, found } => {
                Self::Conflict { id: id.clone(), expected: *expected, found: *found }
            }
            Self::OtherPlan { id, waiting } => Self::OtherPlan { id: id.clone(), waiting: waiting.clone() },
            Self::Going { id, parent } => Self::Going { id: id.clone(), parent: parent.clone() },
            Self::InUse { id, by, more } => Self::InUse { id: id.clone(), by: by.clone(), more: *more },
            Self::OwnChange { id, by } => Self::OwnChange { id: id.clone(), by: by.clone() },
            Self::UnknownAuthor { id, by } => Self::UnknownAuthor { id: id.clone(), by: by.clone() },
            Self::UsedLogin => Self::UsedLogin,
            Self::NotFound(what) => Self::NotFound(what.clone()),
            Self::Refused(why) => Self::Refused(why.clone()),
            Self::Store(error) => Self::Store(error.again()),
        }
    }
}
