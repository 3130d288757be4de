//! Long calls and streams check again and again that the caller's token is still valid.

use super::authenticate::REMEMBERED_FOR;
use super::principal::Principal;
use crate::fault::{Code, Fault};
use berth_store::Control;
use jiff::Timestamp;
use std::time::Instant;

pub struct Revalidation<'c> {
    control: &'c Control,
    caller: &'c Principal,
    /// When the token was last known to be valid.
    known: Instant,
}

impl<'c> Revalidation<'c> {
    /// For a caller whose token was just checked.
    pub fn new(control: &'c Control, caller: &'c Principal) -> Self {
        Self { control, caller, known: Instant::now() }
    }

    /// Must pass before more data is sent. Reads the database about once a second.
    pub async fn check(&mut self) -> Result<(), Fault> {
        let ended = |why: &str| Fault::new(Code::Unauthenticated, why).help("log in again:   berth login");
        if self.caller.is_expired(Timestamp::now()) {
            return Err(ended("the token has expired"));
        }
        // Calls by the server itself carry no token.
        if self.caller.token_id.is_empty() || self.known.elapsed() < REMEMBERED_FOR {
            return Ok(());
        }
        let row = self.control.token(&self.caller.token_id).await?;
        if row.is_none_or(|row| row.revoked_at.is_some()) {
            return Err(ended("the token is not valid any more"));
        }
        self.known = Instant::now();
        Ok(())
    }
}
