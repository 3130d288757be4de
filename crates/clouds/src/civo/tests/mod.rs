mod fleet;
mod kube;
mod lower;
mod sandbox;
