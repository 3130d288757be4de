//! Logs in at an identity provider. The result is an ID token, which the server exchanges for one of its own tokens.

mod callback;
mod code;
mod device;
mod provider;

pub use code::by_browser;
pub use device::by_device;
pub use provider::Provider;

use secrecy::SecretString;

/// What the provider said of who signed in.
pub struct SignedIn {
    pub id_token: SecretString,
    /// The nonce that the ID token was requested with; empty if the provider does not support nonces.
    pub nonce: String,
}
