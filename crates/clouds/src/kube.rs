//! A small Kubernetes client.
