//! A pool of a Civo cluster, its nodes and their schedule: what they are at a moment follows from the times in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::SimTime;
use crate::world::{Dice, new_id};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    pub id: String,
    pub size: String,
    /// How many nodes were asked for.
    pub count: usize,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub taints: Vec<Taint>,
    #[serde(default)]
    pub public_ip: bool,
    pub nodes: Vec<Node>,
    pub gone_at: Option<SimTime>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    #[serde(alias = "Key")]
    pub key: String,
    #[serde(alias = "Value")]
    pub value: String,
    #[serde(alias = "Effect")]
    pub effect: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    pub id: String,
    pub name: String,
    pub created_at: SimTime,
    /// When its machine runs.
    pub active_at: SimTime,
    /// When it has joined the cluster.
    pub ready_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Node {
    pub fn there(&self, now: SimTime) -> bool {
        self.gone_at.is_none_or(|at| now < at)
    }

    pub fn status(&self, now: SimTime) -> &'static str {
        match (self.gone_at, now >= self.active_at) {
            (Some(_), _) => "DELETING",
            (None, true) => "ACTIVE",
            (None, false) => "BUILDING",
        }
    }
}

impl Pool {
    pub fn there(&self, now: SimTime) -> bool {
        self.gone_at.is_none_or(|at| now < at)
    }

    pub fn nodes_at(&self, now: SimTime) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.there(now))
    }

    /// Goes to `count` nodes: new ones come in about a minute, the youngest leave in half a minute.
    pub fn scale(&mut self, cluster: &str, count: usize, now: SimTime, dice: &mut Dice, stuck: bool) {
        self.count = count;
        let staying = self.nodes.iter().filter(|node| node.gone_at.is_none()).count();
        for _ in staying..count {
            let at = if stuck { SimTime::NEVER } else { now.plus_ms(dice.seconds(55, 65)) };
            self.nodes.push(self.node(cluster, now, (at, at), dice));
        }
        let leaving = self.nodes.iter_mut().rev().filter(|node| node.gone_at.is_none());
        for node in leaving.take(staying.saturating_sub(count)) {
            node.gone_at = Some(now.plus_ms(dice.seconds(25, 35)));
        }
    }

    pub fn node(&self, cluster: &str, now: SimTime, at: (SimTime, SimTime), dice: &mut Dice) -> Node {
        let short: String = self.id.chars().take(6).collect();
        let name = format!("k3s-{cluster}-{}-node-pool-{short}-{}", dice.suffix(4), dice.suffix(5)).to_lowercase();
        Node { id: new_id(), name, created_at: now, active_at: at.0, ready_at: at.1, gone_at: None }
    }

    pub fn remove(&mut self, now: SimTime, dice: &mut Dice) {
        let gone_at = now.plus_ms(dice.seconds(25, 35));
        self.count = 0;
        self.gone_at = Some(gone_at);
        self.nodes.iter_mut().for_each(|node| node.gone_at = Some(node.gone_at.map_or(gone_at, |at| at.min(gone_at))));
    }
}
