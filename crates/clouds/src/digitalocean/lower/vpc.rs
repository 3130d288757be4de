//! `DigitalOceanVpc` → one network.

use crate::decode_spec;
use crate::digitalocean::VPC;
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::unit::{Lowered, Props, Unit};
use berth_model::pb::berth::digitalocean::v1::DigitalOceanVpcSpec;
use serde_json::json;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: DigitalOceanVpcSpec = decode_spec(input)?;
    let mut props = Props::new();
    let name = if spec.vpc_name.is_empty() { &input.id.name } else { &spec.vpc_name };
    props.insert("name".into(), json!(name));
    if !spec.vpc_name.is_empty() {
        props.insert("vpc_name".into(), json!(spec.vpc_name));
    }
    props.insert("description".into(), json!(spec.description));
    props.insert("region".into(), json!(spec.region));
    // An omitted range is DigitalOcean's choice, and a default is only ever turned on.
    if !spec.ip_range_cidr.is_empty() {
        props.insert("ip_range_cidr".into(), json!(spec.ip_range_cidr));
    }
    if spec.is_default_for_region {
        props.insert("is_default_for_region".into(), json!(true));
    }
    let mut lowered = Lowered { units: vec![Unit::new("network", VPC, "", props)], ..Lowered::default() };
    lowered.output("vpc_id", "network", "id");
    Ok(lowered)
}
