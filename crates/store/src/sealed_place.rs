//! The place of a sealed text, which is part of its encryption: the text opens only there.

use crate::error::StoreError;
use crate::seal::random;
use berth_model::ResourceId;
use std::borrow::Cow;

/// Which sealing of a row's secrets is the current one: a random number in the row, drawn each time they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealNumber(pub i64);

impl SealNumber {
    /// Of rows that were sealed before rows had numbers.
    pub const NONE: Self = Self(0);

    pub fn draw() -> Result<Self, StoreError> {
        let mut bytes = [0u8; 8];
        random(&mut bytes)?;
        // Positive, and never the one that means none.
        Ok(Self((i64::from_le_bytes(bytes) & i64::MAX).max(1)))
    }
}

/// Where a secret stands. Parts are written with their lengths, so that no two places look alike.
pub(crate) struct SealedPlace {
    pub bytes: Vec<u8>,
    /// `None` where a text is written once.
    pub number: Option<SealNumber>,
}

impl SealedPlace {
    pub fn new(table: &str, parts: &[&str]) -> Self {
        let mut bytes = Vec::with_capacity(128);
        for part in std::iter::once(&table).chain(parts) {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self { bytes, number: None }
    }

    fn numbered(mut self, number: SealNumber) -> Self {
        self.number = Some(number);
        self
    }

    /// The same place with another seal number.
    pub fn with(&self, number: Option<SealNumber>) -> Self {
        Self { bytes: self.bytes.clone(), number }
    }

    pub fn is_numbered(&self) -> bool {
        self.number.is_some_and(|number| number != SealNumber::NONE)
    }

    /// What a text is bound to. `None` for a text of a form that this place does not have: one without a number opens only
    /// where no text with a number was ever written.
    pub fn bound(&self, numbered: bool) -> Option<Cow<'_, [u8]>> {
        match self.number {
            Some(number) if numbered && number != SealNumber::NONE => {
                let mut bytes = self.bytes.clone();
                bytes.extend_from_slice(&8u64.to_le_bytes());
                bytes.extend_from_slice(&number.0.to_le_bytes());
                Some(bytes.into())
            }
            None | Some(SealNumber::NONE) if !numbered => Some(self.bytes.as_slice().into()),
            _ => None,
        }
    }

    /// A value of the state's own, by its name.
    pub fn meta(name: &str) -> Self {
        Self::new("meta", &[name])
    }

    /// A secret in a manifest, by its JSON pointer. A revision of a manifest keeps it in the same place.
    pub fn manifest(id: &ResourceId, pointer: &str, number: SealNumber) -> Self {
        Self::new("resources.manifest", &[&id.kind, &id.name, &id.org, &id.env, pointer]).numbered(number)
    }

    /// In a file outside the state.
    pub fn file(pointer: &str) -> Self {
        Self::new("file.manifest", &[pointer])
    }

    pub fn status(id: &ResourceId, output: &str, number: SealNumber) -> Self {
        Self::new("resources.secrets", &[&id.kind, &id.name, &id.org, &id.env, output]).numbered(number)
    }

    pub fn unit(id: &ResourceId, key: &str, token: &str, output: &str, number: SealNumber) -> Self {
        let parts = [&id.kind, &id.name, &id.org, &id.env, key, token, output];
        Self::new("units.secrets", &parts).numbered(number)
    }

    /// What a task carries, by the task's id.
    pub fn payload(task: &str) -> Self {
        Self::new("tasks.payload", &[task])
    }

    /// What a task gave back, by the task's id.
    pub fn result(task: &str) -> Self {
        Self::new("tasks.result", &[task])
    }
}
