//! Whether a state is of simulated clouds or of real ones: never of both.

use super::Control;
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::ControlError;
use crate::db::Query;
use crate::error::StoreError;
use async_trait::async_trait;

const FOUND: &str = "SELECT value FROM meta WHERE name = 'clouds'";
const SET: &str = "INSERT INTO meta (name, value) VALUES ('clouds', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const ANY_UNIT: &str = "SELECT 1 FROM units LIMIT 1";
const SIMULATED: &str = "simulated";
const REAL: &str = "real";

struct Claim {
    simulated: bool,
    before: bool,
}

#[async_trait]
impl Operation for Claim {
    type Answer = bool;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<bool, ControlError> {
        let found: Option<String> = tx.row(Query::new(FOUND)).await?.map(|row| row.get(0)).transpose()?;
        let is_empty = tx.row(Query::new(ANY_UNIT)).await?.is_none();
        let was = found.as_deref().map_or(self.before, |found| found == SIMULATED);
        if !is_empty && was != self.simulated {
            return Ok(false);
        }
        tx.execute(Query::new(SET).bind(if self.simulated { SIMULATED } else { REAL })).await?;
        Ok(true)
    }
}

impl Control {
    /// Takes the state for simulated clouds, or for real ones; `false` where it holds objects of the others. What a state
    /// from before this was kept is of, `before` says.
    pub async fn claim(&self, simulated: bool, before: bool) -> Result<bool, StoreError> {
        self.write(Claim { simulated, before }).await.map_err(|error| match error {
            ControlError::Store(error) => error,
            other => StoreError::Database(other.to_string()),
        })
    }
}
