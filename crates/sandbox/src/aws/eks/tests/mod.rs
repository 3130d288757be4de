//! EKS as its clients speak to it, and its clusters' APIs with the tokens that they make.

mod access;
mod client;
mod clusters;
mod node_groups;
