//! Whoever waits inside a call, or follows a stream, does so for as long as their token holds and no longer.

use super::guard::REMEMBERED_FOR;
use super::principal::Principal;
use crate::fault::{Code, Fault};
use berth_store::Control;
use jiff::Timestamp;
use std::time::Instant;

pub struct Standing<'c> {
    control: &'c Control,
    caller: &'c Principal,
    /// When it was last known to hold.
    known: Instant,
}

impl<'c> Standing<'c> {
    /// For a caller who was just let in.
    pub fn new(control: &'c Control, caller: &'c Principal) -> Self {
        Self { control, caller, known: Instant::now() }
    }

    /// To be asked before anything more is handed out. Looks at the database about once a second.
    pub async fn check(&mut self) -> Result<(), Fault> {
        let ended = |why: &str| Fault::new(Code::Unauthenticated, why).help("log in again:   berth login");
        if self.caller.is_expired(Timestamp::now()) {
            return Err(ended("the token has expired"));
        }
        // The server itself has none.
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
