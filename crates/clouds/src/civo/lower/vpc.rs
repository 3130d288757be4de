//! CivoVpc → one `civo.network`.
//!
//! Civo's networks have no description and no tags, and Civo itself chooses the default one of a region: `description` and
//! `is_default_for_region` are kept by Berth only.

use crate::decode_spec;
use crate::props::put;
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::unit::{Lowered, Props, Unit};
use berth_model::pb::berth::civo::v1::CivoVpcSpec;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: CivoVpcSpec = decode_spec(input)?;
    let region = super::region(input, &spec.region, "region")?;
    let mut props = Props::new();
    put(&mut props, "network_name", spec.network_name);
    put(&mut props, "region", region.as_str());
    put(&mut props, "ip_range_cidr", spec.ip_range_cidr);
    let mut lowered =
        Lowered { units: vec![Unit::new("network", "civo.network", region, props)], ..Lowered::default() };
    lowered.output("network_id", "network", "id");
    lowered.output("cidr_block", "network", "cidr_block");
    lowered.output("created_at_rfc3339", "network", "created_at");
    Ok(lowered)
}
