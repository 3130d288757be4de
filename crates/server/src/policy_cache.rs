//! A cache of Accounts, Environments and Policies: there are few, and every apply or plan needs all of them.

use crate::access::principal::ADMIN_KINDS;
use crate::environment::Environment;
use crate::fault::Fault;
use crate::policy::Policy;
use crate::tasks::read_account;
use berth_clouds::accounts::{Accounts, Declared};
use berth_model::{Manifest, ResourceId};
use berth_store::{Control, StoredResource};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// All of them, as read from the store.
pub struct CachedPolicies {
    /// Each Account, or the reason why it cannot be read.
    declared: Vec<(Result<Declared, String>, ResourceId)>,
    accounts: Accounts,
    pub environments: Vec<Environment>,
    pub policies: Vec<Policy>,
}

/// Keeps them between requests where this server is the only writer; otherwise each call reads them again.
#[derive(Default)]
pub struct PolicyCache {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    read: Option<Arc<CachedPolicies>>,
    /// Counts changes, so that a read which began before a change is not kept after it.
    changes: u64,
}

impl PolicyCache {
    pub async fn get(&self, control: &Control, alone: bool) -> Result<Arc<CachedPolicies>, Fault> {
        let changes = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(cached) = kept.read.as_ref().filter(|_| alone) {
                return Ok(cached.clone());
            }
            kept.changes
        };
        let cached = Arc::new(CachedPolicies::read(control).await?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if alone && kept.changes == changes {
            kept.read = Some(cached.clone());
        }
        Ok(cached)
    }

    /// To be called after an Account, Environment or Policy was written.
    pub fn clear(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.read = None;
        kept.changes += 1;
    }
}

fn readable(stored: &StoredResource) -> Value {
    stored.sealed_manifest().unwrap_or_else(|error| {
        tracing::warn!(resource = %stored.id, %error, "it cannot be read");
        json!({"spec": "unreadable"})
    })
}

/// Whether the cache holds resources of this kind.
pub fn is_cached(id: &ResourceId) -> bool {
    ADMIN_KINDS.contains(&id.kind.as_str())
}

impl CachedPolicies {
    async fn read(control: &Control) -> Result<Self, Fault> {
        let (mut declared, mut environments, mut policies) = (Vec::new(), Vec::new(), Vec::new());
        for stored in control.store().resources_of_kinds(&ADMIN_KINDS).await? {
            // A resource that is being deleted has no effect any more, and nothing new may use it. It is left out now
            // because the removal of its row does not clear the cache.
            if stored.deleting {
                continue;
            }
            match stored.id.kind.as_str() {
                // An unreadable Environment protects, an unreadable Policy denies, an unreadable Account is never chosen:
                // each within its own scope.
                "Environment" => environments.push(Environment::of(&stored.id, &readable(&stored))),
                "Policy" => policies.push(Policy::of(&stored.id, &readable(&stored))),
                // Secrets stay sealed: they are not needed to choose an account.
                _ => declared.push((read_account(&stored).map_err(|fault| fault.message), stored.id)),
            }
        }
        let mut cached = Self { declared, accounts: Accounts::default(), environments, policies };
        cached.accounts = cached.accounts_with(&[])?;
        Ok(cached)
    }

    fn accounts_with(&self, manifests: &[&Manifest]) -> Result<Accounts, Fault> {
        let mut accounts = Accounts::default();
        for (declared, id) in &self.declared {
            match declared {
                Ok(declared) => accounts.declare(id, declared),
                Err(why) => accounts.declare_unreadable(id, why),
            }
        }
        for manifest in manifests {
            let declared = Declared::read(&manifest.id, &manifest.resolve(&|_| Some(String::new())))?;
            accounts.declare(&manifest.id, &declared);
        }
        Ok(accounts)
    }

    /// Calls `with` with the stored accounts and those among the manifests.
    pub fn with_accounts<T>(
        &self,
        manifests: &[Manifest],
        with: impl FnOnce(&Accounts) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let own: Vec<&Manifest> = manifests.iter().filter(|manifest| manifest.id.kind == "Account").collect();
        if own.is_empty() { with(&self.accounts) } else { with(&self.accounts_with(&own)?) }
    }
}
