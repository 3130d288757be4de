//! CivoFirewall → one `civo.firewall`.
//!
//! What no rule allows is refused: a firewall without inbound rules lets nothing in, one without outbound rules lets nothing
//! out. Civo's firewalls have no tags: `tags` is kept by Berth only.

use crate::civo::firewall_rules::{Rule, lines};
use crate::decode_spec;
use crate::props::put;
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::reference_property;
use berth_engine::unit::{Lowered, Props, Unit};
use berth_model::pb::berth::civo::v1::CivoFirewallSpec;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: CivoFirewallSpec = decode_spec(input)?;
    let region = super::region(input, &spec.region, "network_id")?;
    let inbound = spec.inbound_rules.iter().map(|rule| Rule::from_spec(rule, true));
    let rules: Vec<Rule> = inbound.chain(spec.outbound_rules.iter().map(|rule| Rule::from_spec(rule, false))).collect();
    let mut props = Props::new();
    put(&mut props, "name", spec.name.as_str());
    put(&mut props, "region", region.as_str());
    put(&mut props, "network_id", reference_property(spec.network_id.as_ref()));
    put(&mut props, "rules", lines(&rules));
    let mut lowered =
        Lowered { units: vec![Unit::new("firewall", "civo.firewall", region, props)], ..Lowered::default() };
    lowered.output("firewall_id", "firewall", "id");
    lowered.output("created_at_rfc3339", "firewall", "created_at");
    Ok(lowered)
}
