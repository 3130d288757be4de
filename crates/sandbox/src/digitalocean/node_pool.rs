//! A pool of nodes and its schedule: what it is at a moment follows from the times in it.

use std::collections::BTreeMap;

use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::table::Object;
use crate::world::{Dice, new_id};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    pub id: String,
    pub name: String,
    pub droplet: u64,
    pub created: SimTime,
    pub ready: SimTime,
    pub gone: Option<SimTime>,
}

/// Some clients send the keys capitalised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taint {
    #[serde(alias = "Key")]
    pub key: String,
    #[serde(default, alias = "Value")]
    pub value: String,
    #[serde(default, alias = "Effect")]
    pub effect: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    pub id: String,
    pub cluster: String,
    pub name: String,
    pub size: String,
    pub count: u32,
    pub tags: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub auto_scale: bool,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub created: SimTime,
    pub updated: SimTime,
    pub nodes: Vec<Node>,
    pub gone: Option<SimTime>,
}

impl Object for Pool {
    const TYPE: &'static str = "digitalocean.pool";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone
    }

    fn weight(&self) -> u64 {
        u64::from(self.count)
    }

    fn ledger(&self, now: SimTime) -> Value {
        let running = self.nodes.iter().filter(|node| node_state(node, now) == "running").count();
        json!({
            "name": self.name, "cluster": self.cluster, "size": self.size, "count": self.count, "running": running,
            "state": if self.gone.is_some() { "deleting" } else { "live" },
        })
    }
}

/// The pool and all its nodes go at that time.
pub fn leave(pool: &mut Pool, at: SimTime) {
    pool.gone = Some(pool.gone.map_or(at, |earlier| earlier.min(at)));
    pool.nodes.iter_mut().for_each(|node| node.gone = Some(node.gone.map_or(at, |earlier| earlier.min(at))));
}

/// Brings the nodes to the pool's count: new ones take minutes, the newest leave first.
pub fn resize(pool: &mut Pool, now: SimTime, dice: &mut Dice, stuck: bool) {
    pool.nodes.retain(|node| node.gone.is_none_or(|gone| gone > now));
    let staying = pool.nodes.iter().filter(|node| node.gone.is_none()).count();
    let wanted = pool.count as usize;
    for _ in staying..wanted {
        let ready = if stuck { SimTime::NEVER } else { now.plus_ms(dice.seconds(120, 180)) };
        let name = format!("{}-{}", pool.name, dice.suffix(5));
        let droplet = dice.rng().random_range(100_000_000..900_000_000);
        pool.nodes.push(Node { id: new_id(), name, droplet, created: now, ready, gone: None });
    }
    let leaving = staying.saturating_sub(wanted);
    for node in pool.nodes.iter_mut().rev().filter(|node| node.gone.is_none()).take(leaving) {
        node.gone = Some(now.plus_ms(dice.seconds(30, 60)));
    }
}

pub fn node_state(node: &Node, now: SimTime) -> &'static str {
    match node.gone {
        Some(_) => "deleting",
        None if now < node.ready => "provisioning",
        None => "running",
    }
}
