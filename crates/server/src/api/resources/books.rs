//! Accounts, Environments and Policies: few, and looked at by every apply or plan.

use crate::access::principal::ADMIN_KINDS;
use crate::environment::Environment;
use crate::fault::Fault;
use crate::policy::Policy;
use crate::tasks::listed;
use berth_clouds::accounts::{Accounts, Declared};
use berth_model::{Manifest, ResourceId};
use berth_store::{Control, StoredResource};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// What was read of them.
pub struct Book {
    /// Or why it cannot be read.
    declared: Vec<(Result<Declared, String>, ResourceId)>,
    accounts: Accounts,
    pub environments: Vec<Environment>,
    pub policies: Vec<Policy>,
}

/// Kept between requests where this server is the only one that writes; elsewhere read each time.
#[derive(Default)]
pub struct Books {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    book: Option<Arc<Book>>,
    /// Grows with every change, so that what was read before one is not kept after it.
    changes: u64,
}

impl Books {
    pub async fn open(&self, control: &Control, alone: bool) -> Result<Arc<Book>, Fault> {
        let changes = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(book) = kept.book.as_ref().filter(|_| alone) {
                return Ok(book.clone());
            }
            kept.changes
        };
        let book = Arc::new(Book::read(control).await?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if alone && kept.changes == changes {
            kept.book = Some(book.clone());
        }
        Ok(book)
    }

    /// To be called after one of them was written.
    pub fn close(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.book = None;
        kept.changes += 1;
    }
}

fn readable(stored: &StoredResource) -> Value {
    stored.sealed_manifest().unwrap_or_else(|error| {
        tracing::warn!(resource = %stored.id, %error, "it cannot be read");
        json!({"spec": "unreadable"})
    })
}

/// Whether a resource is kept in a book.
pub fn concerns(id: &ResourceId) -> bool {
    ADMIN_KINDS.contains(&id.kind.as_str())
}

impl Book {
    async fn read(control: &Control) -> Result<Self, Fault> {
        let (mut declared, mut environments, mut policies) = (Vec::new(), Vec::new(), Vec::new());
        for stored in control.store().resources_of_kinds(&ADMIN_KINDS).await? {
            // What is being deleted guards no more, and nothing new is to live in it: when its row goes, nobody closes the
            // book again.
            if stored.deleting {
                continue;
            }
            match stored.id.kind.as_str() {
                // What cannot be read protects, denies, and is chosen by nobody: within its own scope alone.
                "Environment" => environments.push(Environment::of(&stored.id, &readable(&stored))),
                "Policy" => policies.push(Policy::of(&stored.id, &readable(&stored))),
                // Secrets stay sealed: which account it is can be told without them.
                _ => declared.push((listed(&stored).map_err(|fault| fault.message), stored.id)),
            }
        }
        let mut book = Self { declared, accounts: Accounts::default(), environments, policies };
        book.accounts = book.accounts_with(&[])?;
        Ok(book)
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
