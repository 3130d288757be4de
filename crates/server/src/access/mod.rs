//! Who may do what: tokens, roles and scopes, the layer that every call goes through, audit, and people's login.
//!
//! Every call is authenticated and its role is checked in one place ([`layer`]), by what the descriptors say of its method.
//! Whether a resource is in the caller's scope is asked of the [`Principal`] by the service that knows the resource.

mod attempts;
pub mod audit;
pub mod authenticate;
pub mod head_sinks;
pub mod layer;
mod live_tokens;
pub mod oidc;
pub mod principal;
mod revalidate;
pub mod service;
pub mod token;
pub mod trust;

pub use authenticate::Authenticator;
pub use layer::AccessLayer;
pub use principal::{Principal, Role, principal};
pub use revalidate::Revalidation;
