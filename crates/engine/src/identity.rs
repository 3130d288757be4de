//! An object belongs to the account that it was made in, and is looked at through that account's credentials alone.

use crate::handler::{Class, Outcome, Provider, Trouble};
use crate::unit::{Identity, UnitState};
use secrecy::SecretString;
use std::collections::BTreeMap;

/// Refuses credentials of another account than the one that the unit was made in. `who`: whom they belong to.
pub fn belongs(unit: &UnitState, who: &Identity) -> Outcome<()> {
    match &unit.identity {
        Some(own) if own != who => Err(other_account(&unit.account, own, who)),
        _ => Ok(()),
    }
}

/// What is managed under an account's name is in one cloud account, and the credentials are another's.
pub fn other_account(account: &str, own: &Identity, who: &Identity) -> Trouble {
    let message =
        format!("what account {account} manages was made in {own}, and the credentials in use belong to {who}");
    let credentials = match account.starts_with("env:") {
        true => "set the token and the API address in the environment".to_owned(),
        false => format!("give Account {account} the token and the API address"),
    };
    Trouble::new(Class::OtherAccount, message)
        .help(format!("{credentials} of {}", own.id()))
        .help(format!("or move what is managed to {}:   berth account move {account}", who.id()))
}

/// Not found, and nobody knows whether it was made in this account: that is no proof that it is gone.
pub fn unsure(unit: &UnitState, who: &Identity) -> Trouble {
    let what = match &unit.id {
        Some(id) => format!("{} {id} is not found", unit.unit_type),
        None => format!("{} was begun by an earlier run and is not found", unit.unit_type),
    };
    let message = format!("{what} in {who}, and the state does not say which account it was made in");
    Trouble::refused(message)
        .help("if it was made in another account, use that account's token and API address")
        .help("if it was deleted and is to be made again, add --allow-recreate to plan or apply")
        .help(format!(
            "if it was deleted and is to be forgotten:   berth account move {} --forget-missing",
            unit.account
        ))
}

/// The row with whom the credentials belong to that found its object; `None` where that was known, or the object was not
/// found by its id.
pub fn learned(unit: &UnitState, who: &Identity) -> Option<UnitState> {
    let learns = unit.identity.is_none() && unit.id.is_some();
    learns.then(|| UnitState { identity: Some(who.clone()), ..unit.clone() })
}

/// Secrets that the cloud gives out for a time only; `None` where the kept ones stay good.
pub async fn fresh_secrets(
    provider: &dyn Provider,
    unit: &UnitState,
) -> Outcome<Option<BTreeMap<String, SecretString>>> {
    let handler = provider.handler(&unit.unit_type).filter(|handler| handler.has_fresh_secrets());
    let (Some(handler), Some(id)) = (handler, &unit.id) else { return Ok(None) };
    belongs(unit, &provider.identity().await?)?;
    handler.fresh_secrets(id).await
}
