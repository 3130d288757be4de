//! Services over HTTP, step by step: each step is a request and what must come back.

mod client;
mod enforce;
mod iam;
mod json_services;
mod s3;
mod sts;
