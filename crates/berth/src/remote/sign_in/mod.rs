//! Signing in at an identity provider: what comes of it is an ID token, which the server takes for a token of its own.

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
    /// The value that the ID token was made for; empty where the provider has none in it.
    pub nonce: String,
}
