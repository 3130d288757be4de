//! `civo.firewall`: a firewall with its rules. Rules are added before others are removed, so that traffic that stays allowed
//! is never interrupted.

use super::api::region_code;
use super::client::Client;
use super::firewall_rules::{Rule, lines};
use super::wire::{Firewall, NewFirewall};
use crate::one_form;
use crate::props::{optional_text, put, required_text, texts};
use async_trait::async_trait;
use berth_engine::handler::{Handler, Outcome, SummaryFacts, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical};
use berth_engine::{FieldChange, UnitPlan};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub struct FirewallHandler {
    pub client: Arc<Client>,
}

const FIELDS: &[Field] = &[
    Field { name: "name", change: Change::InPlace },
    Field { name: "region", change: Change::Replace },
    Field { name: "network_id", change: Change::Replace },
    Field { name: "rules", change: Change::InPlace },
];

pub fn observed(firewall: &Firewall, region: &str) -> Observed {
    let rules: Vec<Rule> = firewall.rules.iter().flatten().map(Rule::from_civo).collect();
    let mut props = Props::new();
    put(&mut props, "name", firewall.name.as_str());
    put(&mut props, "region", region);
    put(&mut props, "network_id", firewall.network_id.as_str());
    put(&mut props, "rules", lines(&rules));
    Observed { id: firewall.id.clone(), props, outputs: Props::new(), phase: Phase::Ready }
}

fn wanted_rules(props: &Props) -> Outcome<Vec<Rule>> {
    let parse = |line: &String| {
        Rule::from_line(line).ok_or_else(|| Trouble::refused(format!("`{line}` is not a firewall rule")))
    };
    texts(props, "rules").iter().map(parse).collect()
}

impl FirewallHandler {
    async fn one(&self, region: &str, fits: impl Fn(&Firewall) -> bool) -> Outcome<Option<Firewall>> {
        let all = self.client.firewalls(region).await?;
        let Some(firewall) = all.iter().find(|firewall| fits(firewall)) else { return Ok(None) };
        self.client.with_rules(region, firewall.clone()).await.map(Some)
    }
}

/// How many rules it has, for tables.
pub fn rules(observed: &Observed, facts: &mut SummaryFacts) {
    let rules = observed.props.get("rules").and_then(Value::as_array).map(Vec::len);
    facts.notes.extend(rules.map(|n| if n == 1 { "1 rule".to_owned() } else { format!("{n} rules") }));
}

#[async_trait]
impl Handler for FirewallHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn typical(&self, op: Op, _: &Props, _: &[FieldChange]) -> Typical {
        matches!(op, Op::Create | Op::Replace).then_some(Duration::from_secs(1))
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        wanted_rules(&desired)?;
        if let Some(network) = optional_text(&desired, "network_id") {
            let id = one_form(network);
            let now = observed.and_then(|observed| optional_text(&observed.props, "network_id"));
            // What is no id may be a name, and Civo takes names.
            let id = match now == Some(id.as_str()) || uuid::Uuid::parse_str(&id).is_ok() {
                true => id,
                false => self.client.network_id(required_text(&desired, "region")?, network).await?,
            };
            put(&mut desired, "network_id", id);
        }
        if observed.is_none() {
            self.client.offers.check_region(&self.client.api, required_text(&desired, "region")?, false).await?;
        }
        Ok(desired)
    }

    fn declares(&self, field: &str, found: &Value) -> BTreeMap<String, Value> {
        let lines = found.as_array().filter(|_| field == "rules").into_iter().flatten();
        let Some(rules) = lines.map(|line| line.as_str().and_then(Rule::from_line)).collect::<Option<Vec<Rule>>>()
        else {
            return BTreeMap::new();
        };
        let written =
            |inbound: bool| -> Value { rules.iter().filter(|r| r.inbound == inbound).map(Rule::to_spec).collect() };
        match field {
            "rules" => BTreeMap::from([
                ("inbound_rules".to_owned(), written(true)),
                ("outbound_rules".to_owned(), written(false)),
            ]),
            _ => BTreeMap::new(),
        }
    }

    /// A cluster's own firewall cannot go while the cluster uses it, and Civo's clusters are never without one.
    async fn check_leaving(&self, observed: &Observed, staying: &[UnitPlan]) -> Outcome<()> {
        let moves = |unit: &UnitPlan| {
            unit.op == Some(Op::Replace)
                || unit.op == Some(Op::Create)
                || unit.changes.iter().any(|c| c.field == "firewall")
        };
        if staying.iter().any(|unit| unit.unit_type == "civo.cluster" && moves(unit)) {
            return Ok(());
        }
        let region = required_text(&observed.props, "region")?;
        let users = self.client.clusters_that(region, |cluster| cluster.firewall_id == observed.id).await?;
        if users.is_empty() {
            return Ok(());
        }
        let (name, users) = (required_text(&observed.props, "name")?, users.join(", "));
        Err(Trouble::refused(format!("the firewall `{name}` that apiAllowedCidrs made cannot go: {users} uses it"))
            .help("to open the API to everyone, set apiAllowedCidrs: [0.0.0.0/0]")
            .help("to put another firewall in its place, name it in spec.firewall"))
    }

    /// Civo shows single firewalls only in its list.
    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let region = required_text(props, "region")?;
        Ok(self.one(region, |firewall| firewall.id == id).await?.map(|firewall| observed(&firewall, region)))
    }

    async fn find(&self, desired: &Props, _: Option<&str>) -> Outcome<Option<Observed>> {
        let region = required_text(desired, "region")?;
        let name = required_text(desired, "name")?;
        Ok(self.one(region, |firewall| firewall.name == name).await?.map(|firewall| observed(&firewall, region)))
    }

    async fn create(&self, desired: &Props, _: &str, _: bool) -> Outcome<String> {
        let region = required_text(desired, "region")?;
        let body = NewFirewall {
            name: required_text(desired, "name")?,
            region: &region_code(region),
            network_id: required_text(desired, "network_id")?,
            // Civo's own rules would open everything until the first update.
            create_rules: Some(false),
            rules: Some(wanted_rules(desired)?.iter().map(Rule::to_civo).collect()),
        };
        self.client.api.create_firewall(region, &body).await
    }

    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()> {
        let region = required_text(&observed.props, "region")?;
        if fields.contains(&"name") {
            let body = NewFirewall {
                name: required_text(desired, "name")?,
                region: &region_code(region),
                network_id: required_text(&observed.props, "network_id")?,
                create_rules: None,
                rules: None,
            };
            self.client.api.rename_firewall(region, &observed.id, &body).await?;
        }
        if !fields.contains(&"rules") {
            return Ok(());
        }
        // Read again: an earlier call may have taken effect although its answer was lost.
        let present = self.client.api.firewall_rules(region, &observed.id).await?;
        let wanted = wanted_rules(desired)?;
        let present_lines: HashSet<String> = present.iter().map(|rule| Rule::from_civo(rule).to_line()).collect();
        let wanted_lines: HashSet<String> = wanted.iter().map(Rule::to_line).collect();
        for rule in wanted.iter().filter(|rule| !present_lines.contains(&rule.to_line())) {
            let Err(trouble) = self.client.api.create_rule(region, &observed.id, &rule.to_civo()).await else {
                continue;
            };
            // Civo refuses a rule that is there already, such as one made by an attempt whose answer was lost.
            let now = self.client.api.firewall_rules(region, &observed.id).await?;
            if !now.iter().any(|other| Rule::from_civo(other).to_line() == rule.to_line()) {
                return Err(trouble);
            }
        }
        let mut kept = HashSet::new();
        for rule in &present {
            let line = Rule::from_civo(rule).to_line();
            // A second copy of a rule goes too.
            if wanted_lines.contains(&line) && kept.insert(line) {
                continue;
            }
            match self.client.api.delete_rule(region, &observed.id, &rule.id).await {
                Err(trouble) if !trouble.is_not_found() => return Err(trouble),
                _ => {}
            }
        }
        Ok(())
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = required_text(props, "region").or_else(|_| required_text(&observed.props, "region"))?;
        let deleted = self.client.api.delete_firewall(region, &observed.id).await;
        let help = [
            "a firewall goes once nothing uses it any more",
            "a cluster whose API everyone may reach again needs `apiAllowedCidrs: [0.0.0.0/0]` or another `firewall`",
        ];
        self.client.or_in_use(deleted, region, |cluster| cluster.firewall_id == observed.id, &help).await
    }
}
