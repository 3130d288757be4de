//! Where the facts come from that commands show: the project's state, or a server. Views do not see the difference.

use crate::args::Which;
use crate::failure::Failure;
use crate::remote::Remote;
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use berth_store::{Filter, HistoryLine, Options, Store, StoredResource};
use secrecy::SecretString;
use std::collections::BTreeMap;

pub enum Source {
    Local(Store),
    Server(Remote),
}

impl Source {
    /// The state must be there; whoever wants to say more about one that is not opens it otherwise.
    pub async fn open(which: Which) -> Result<Self, Failure> {
        Ok(match which {
            Which::Local(path) => Source::Local(Store::open(Options { must_exist: true, ..Options::at(path) }).await?),
            Which::Server(target) => Source::Server(Remote::open(target).await?),
        })
    }

    pub async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, Failure> {
        match self {
            Source::Local(store) => Ok(store.resources(filter).await?),
            Source::Server(remote) => remote.resources(filter).await,
        }
    }

    pub async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, Failure> {
        match self {
            Source::Local(store) => Ok(store.units_of(id).await?),
            Source::Server(remote) => remote.units_of(id).await,
        }
    }

    /// Newest first.
    pub async fn history(&self, id: &ResourceId, limit: u32) -> Result<Vec<HistoryLine>, Failure> {
        match self {
            Source::Local(store) => Ok(store.history(id, limit, 0).await?),
            Source::Server(remote) => remote.history(id, limit).await,
        }
    }

    /// Secret outputs in the clear.
    pub async fn secrets(&self, stored: &StoredResource) -> Result<BTreeMap<String, SecretString>, Failure> {
        match self {
            Source::Local(store) => Ok(store.status_secrets(&stored.id).await?),
            Source::Server(remote) => remote.secrets(&stored.id, stored.secret_names.clone()).await,
        }
    }

    /// Whether what it showed is simulated; `asked` is what the command was told of the project's own state.
    pub fn is_sandbox(&self, asked: bool) -> bool {
        match self {
            Source::Local(_) => asked,
            Source::Server(remote) => remote.is_sandbox(),
        }
    }

    /// Who answers, where that is not plain from the folder.
    pub fn place(&self) -> Option<String> {
        match self {
            Source::Local(_) => None,
            Source::Server(remote) => Some(remote.place()),
        }
    }

    pub async fn close(self) {
        if let Source::Local(store) = self {
            store.close().await;
        }
    }
}
