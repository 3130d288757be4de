//! The screen of `berth watch`: what it shows, and how that is drawn.

pub mod feed;
pub mod model;
pub mod view;
