//! Data as YAML.

pub use berth_model::yaml::to_yaml;
