//! A place for one test's state, and ways to look at it or damage it past the store.

use crate::{Store, open, postgres_server};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a state can be made. There is none yet.
pub struct StateLocation {
    pub folder: tempfile::TempDir,
    pub address: String,
}

/// A place with an open state.
pub struct Home {
    pub place: StateLocation,
    pub store: Store,
}

pub fn sqlite() -> StateLocation {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = format!("sqlite:{}", folder.path().join(".berth/state.db").display());
    StateLocation { folder, address }
}

pub async fn postgres() -> StateLocation {
    let server = tokio::task::spawn_blocking(postgres_server::shared).await.expect("the server starts");
    StateLocation { folder: tempfile::tempdir().expect("a temporary folder"), address: server.database().await }
}

/// Sends statements to either database.
macro_rules! raw {
    ($address:expr, $connection:ident => $do:expr) => {
        match $address.strip_prefix("sqlite:") {
            Some(path) => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                let mut $connection = options.connect().await.expect("the file opens");
                $do
            }
            None => {
                let options = sqlx::postgres::PgConnectOptions::from_str($address).expect("an address");
                let mut $connection = options.disable_statement_logging().connect().await.expect("the server answers");
                let done = $do;
                $connection.close().await.expect("the connection closes");
                done
            }
        }
    };
}

impl StateLocation {
    pub async fn open(self) -> Home {
        let store = open(&self.address).await;
        Home { place: self, store }
    }

    pub fn is_sqlite(&self) -> bool {
        self.address.starts_with("sqlite:")
    }

    /// The file of a place of SQLite's.
    pub fn file(&self) -> PathBuf {
        self.address.strip_prefix("sqlite:").expect("a file").into()
    }

    /// How many rows it changed.
    pub async fn sql(&self, text: &str) -> u64 {
        let text = AssertSqlSafe(text.to_owned());
        raw!(&self.address, one => one.execute(text).await.expect(&self.address).rows_affected())
    }

    pub async fn number(&self, text: &str) -> i64 {
        let text = AssertSqlSafe(text.to_owned());
        raw!(&self.address, one => sqlx::query_scalar(text).fetch_one(&mut one).await.expect(&self.address))
    }

    pub async fn texts(&self, text: &str) -> Vec<String> {
        let text = AssertSqlSafe(text.to_owned());
        raw!(&self.address, one => sqlx::query_scalar(text).fetch_all(&mut one).await.expect(&self.address))
    }
}
