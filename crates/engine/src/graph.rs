//! Order: who comes before whom, at once where nothing forbids it. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Nodes with edges "before → after". The smallest of the free ones comes first, so that output is stable.
#[derive(Debug, Clone)]
pub struct Graph<N> {
    nodes: BTreeMap<N, Node<N>>,
}

#[derive(Debug, Clone)]
struct Node<N> {
    after: Vec<N>,
    /// How many edges lead here from nodes that are not done.
    waits: usize,
}

impl<N: Copy + Ord> Graph<N> {
    pub fn new(nodes: impl IntoIterator<Item = N>) -> Self {
        let nodes = nodes.into_iter().map(|node| (node, Node { after: Vec::new(), waits: 0 }));
        Self { nodes: nodes.collect() }
    }

    pub fn edge(&mut self, before: N, after: N) {
        // The same edge twice is harmless: it is counted twice and taken away twice.
        if before == after || !self.nodes.contains_key(&after) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&before) else { return };
        node.after.push(after);
        if let Some(node) = self.nodes.get_mut(&after) {
            node.waits += 1;
        }
    }

    /// Nodes in order, or the ones that wait for each other in a circle.
    pub fn order(&self) -> Result<Vec<N>, Vec<N>> {
        let mut walk = Walk::new(self.clone());
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = walk.next() {
            order.push(node);
            walk.done(node);
        }
        if order.len() == self.nodes.len() {
            return Ok(order);
        }
        let placed: BTreeSet<N> = order.into_iter().collect();
        Err(self.nodes.keys().filter(|node| !placed.contains(node)).copied().collect())
    }
}

/// Hands out nodes as they become free.
pub struct Walk<N> {
    graph: Graph<N>,
    free: BTreeSet<N>,
}

impl<N: Copy + Ord> Walk<N> {
    pub fn new(graph: Graph<N>) -> Self {
        let free = graph.nodes.iter().filter(|(_, node)| node.waits == 0).map(|(name, _)| *name).collect();
        Self { graph, free }
    }

    /// A node whose predecessors are all done, or `None` for now.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<N> {
        self.free.pop_first()
    }

    pub fn done(&mut self, node: N) {
        let after = self.graph.nodes.get_mut(&node).map(|node| std::mem::take(&mut node.after));
        for name in after.unwrap_or_default() {
            let Some(next) = self.graph.nodes.get_mut(&name) else { continue };
            next.waits -= 1;
            if next.waits == 0 {
                self.free.insert(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_stable_and_respects_edges() {
        let mut graph = Graph::new(0..4);
        graph.edge(3, 0);
        graph.edge(0, 1);
        graph.edge(0, 1);
        assert_eq!(graph.order(), Ok(vec![2, 3, 0, 1]));
    }

    #[test]
    fn a_circle_names_its_members() {
        let mut graph = Graph::new(0..3);
        graph.edge(0, 1);
        graph.edge(1, 0);
        assert_eq!(graph.order(), Err(vec![0, 1]));
    }
}
