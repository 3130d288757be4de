//! Resources and the references between them, drawn as text, DOT, Mermaid or SVG. Pure.

mod dot;
mod mermaid;
mod svg;
mod text;

use berth_model::ResourceId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Drawing {
    /// A tree: below each resource, those that refer to it
    Text,
    /// For Graphviz
    Dot,
    /// For Markdown
    Mermaid,
    /// A picture
    Svg,
}

/// A reference: `from` needs `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: ResourceId,
    pub to: ResourceId,
    /// The field that holds the reference.
    pub field: String,
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: BTreeSet<ResourceId>,
    pub edges: BTreeSet<Edge>,
}

impl Graph {
    /// The part that the chosen resources belong to: what they need, and what needs them.
    pub fn around(&self, chosen: impl Fn(&ResourceId) -> bool) -> Self {
        let start: BTreeSet<ResourceId> = self.nodes.iter().filter(|id| chosen(id)).cloned().collect();
        let mut nodes = self.reach(&start, |edge| (&edge.from, &edge.to));
        nodes.extend(self.reach(&start, |edge| (&edge.to, &edge.from)));
        let edges =
            self.edges.iter().filter(|edge| nodes.contains(&edge.from) && nodes.contains(&edge.to)).cloned().collect();
        Self { nodes, edges }
    }

    fn reach<'a>(
        &'a self,
        start: &BTreeSet<ResourceId>,
        step: impl Fn(&'a Edge) -> (&'a ResourceId, &'a ResourceId),
    ) -> BTreeSet<ResourceId> {
        let mut next: BTreeMap<&ResourceId, Vec<&ResourceId>> = BTreeMap::new();
        for edge in &self.edges {
            let (here, there) = step(edge);
            next.entry(here).or_default().push(there);
        }
        let mut seen = start.clone();
        let mut todo: Vec<ResourceId> = start.iter().cloned().collect();
        while let Some(id) = todo.pop() {
            for there in next.get(&id).into_iter().flatten() {
                if seen.insert((*there).clone()) {
                    todo.push((*there).clone());
                }
            }
        }
        seen
    }

    pub fn draw(&self, drawing: Drawing) -> String {
        match drawing {
            Drawing::Text => text::draw(self),
            Drawing::Dot => dot::draw(self),
            Drawing::Mermaid => mermaid::draw(self),
            Drawing::Svg => svg::draw(self),
        }
    }

    /// How many steps each resource is away from one that needs nothing. A cycle's members keep the step they were
    /// reached with, so that a picture of it can still be drawn.
    fn layers(&self) -> BTreeMap<&ResourceId, usize> {
        let mut needs: BTreeMap<&ResourceId, usize> = self.nodes.iter().map(|id| (id, 0)).collect();
        let mut needed_by: BTreeMap<&ResourceId, Vec<&ResourceId>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.from != edge.to) {
            *needs.entry(&edge.from).or_default() += 1;
            needed_by.entry(&edge.to).or_default().push(&edge.from);
        }
        let mut layer: BTreeMap<&ResourceId, usize> = self.nodes.iter().map(|id| (id, 0)).collect();
        let mut ready: Vec<&ResourceId> = needs.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
        while let Some(id) = ready.pop() {
            let here = layer.get(id).copied().unwrap_or(0);
            for from in needed_by.get(id).into_iter().flatten() {
                let deeper = layer.entry(from).or_default();
                *deeper = (*deeper).max(here + 1);
                if let Some(count) = needs.get_mut(from) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(from);
                    }
                }
            }
        }
        layer
    }
}

/// A name with its environment, where it has one.
fn label(id: &ResourceId) -> String {
    if id.env.is_empty() { id.to_string() } else { format!("{id} ({})", id.env) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, name: &str) -> ResourceId {
        ResourceId::new(kind, name)
    }

    fn shop() -> Graph {
        let net = id("CivoVpc", "shop-net");
        let firewall = id("CivoFirewall", "shop-fw");
        let cluster = id("CivoKubernetesCluster", "shop");
        let pool = id("CivoKubernetesNodePool", "shop-batch");
        let alone = id("CivoVpc", "alone");
        let edge = |from: &ResourceId, to: &ResourceId, field: &str| Edge {
            from: from.clone(),
            to: to.clone(),
            field: field.into(),
        };
        Graph {
            edges: [
                edge(&firewall, &net, "network_id"),
                edge(&cluster, &net, "network"),
                edge(&cluster, &firewall, "firewall"),
                edge(&pool, &cluster, "cluster"),
            ]
            .into(),
            nodes: [net, firewall, cluster, pool, alone].into(),
        }
    }

    #[test]
    fn text_shows_each_resource_below_what_it_needs() {
        insta::assert_snapshot!(shop().draw(Drawing::Text), @r"
        CivoVpc/alone
        CivoVpc/shop-net
        ├─ CivoFirewall/shop-fw                      network_id
        │  └─ CivoKubernetesCluster/shop             firewall
        │     └─ CivoKubernetesNodePool/shop-batch   cluster
        └─ CivoKubernetesCluster/shop                network, shown above
        ");
    }

    #[test]
    fn around_keeps_what_is_needed_and_what_needs_it() {
        let part = shop().around(|id| id.name == "shop-fw");
        let names: Vec<&str> = part.nodes.iter().map(|id| id.name.as_str()).collect();
        assert_eq!(names, ["shop-fw", "shop", "shop-batch", "shop-net"]);
        assert_eq!(part.edges.len(), 4);
    }

    #[test]
    fn layers_are_longest_paths_and_a_cycle_ends() {
        let graph = shop();
        let layers = graph.layers();
        assert_eq!(layers[&id("CivoKubernetesCluster", "shop")], 2);
        let (a, b) = (id("A", "a"), id("B", "b"));
        let cycle = Graph {
            edges: [
                Edge { from: a.clone(), to: b.clone(), field: "x".into() },
                Edge { from: b.clone(), to: a.clone(), field: "y".into() },
            ]
            .into(),
            nodes: [a, b].into(),
        };
        assert_eq!(cycle.layers().len(), 2);
        assert!(cycle.draw(Drawing::Text).contains("A/a"));
        assert!(cycle.draw(Drawing::Svg).ends_with("</svg>\n"));
    }

    #[test]
    fn names_are_escaped_in_every_format() {
        let bad =
            ResourceId { kind: "K\"<&>]".into(), name: "n\u{1b}\n\\".into(), org: String::new(), env: "e'\"".into() };
        let graph = Graph { nodes: [bad].into(), edges: BTreeSet::new() };
        for drawing in [Drawing::Text, Drawing::Dot, Drawing::Mermaid, Drawing::Svg] {
            let text = graph.draw(drawing);
            assert!(!text.contains('\u{1b}'), "{drawing:?}: {text}");
        }
        assert!(graph.draw(Drawing::Svg).contains("K&quot;&lt;&amp;&gt;]"));
        assert!(graph.draw(Drawing::Dot).contains("K\\\"<&>]"));
    }
}
