//! Civo: client, unit handlers, lowering, import.

use crate::Credentials;
use berth_engine::handler::{LowerInput, Outcome, Provider, Trouble};
use berth_engine::unit::Lowered;
use std::sync::Arc;

pub fn connect(_credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    Err(Trouble::refused("Civo is not built in yet"))
}

pub fn lower(_input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    Err(Trouble::refused("Civo is not built in yet"))
}
