//! What servers hand to the state and get back from it. Plain data, with public fields.

mod audit;
mod error;
mod resources;
mod tasks;

pub use audit::*;
pub use error::*;
pub use resources::*;
pub use tasks::*;
