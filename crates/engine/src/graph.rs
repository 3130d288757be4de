//! Order: who comes before whom, at once where nothing forbids it. Pure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nodes `0..n` with edges "before → after". Smallest index first among the free ones, so that output is stable.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    after: Vec<Vec<usize>>,
    waits: Vec<usize>,
}

impl Graph {
    pub fn new(nodes: usize) -> Self {
        Self { after: vec![Vec::new(); nodes], waits: vec![0; nodes] }
    }

    pub fn edge(&mut self, before: usize, after: usize) {
        // The same edge twice is harmless: it is counted twice and taken away twice.
        if before != after {
            self.after[before].push(after);
            self.waits[after] += 1;
        }
    }

    /// Nodes in order, or the ones that wait for each other in a circle.
    pub fn order(&self) -> Result<Vec<usize>, Vec<usize>> {
        let mut walk = Walk::new(self.clone());
        let mut order = Vec::with_capacity(self.waits.len());
        while let Some(node) = walk.next() {
            order.push(node);
            walk.done(node);
        }
        if order.len() == self.waits.len() {
            return Ok(order);
        }
        let mut placed = vec![false; self.waits.len()];
        order.iter().for_each(|node| placed[*node] = true);
        Err((0..self.waits.len()).filter(|node| !placed[*node]).collect())
    }
}

/// Hands out nodes as they become free.
pub struct Walk {
    graph: Graph,
    free: BinaryHeap<Reverse<usize>>,
}

impl Walk {
    pub fn new(graph: Graph) -> Self {
        let free = (0..graph.waits.len()).filter(|node| graph.waits[*node] == 0).map(Reverse).collect();
        Self { graph, free }
    }

    /// A node whose predecessors are all done, or `None` for now.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<usize> {
        self.free.pop().map(|Reverse(node)| node)
    }

    pub fn done(&mut self, node: usize) {
        for after in std::mem::take(&mut self.graph.after[node]) {
            self.graph.waits[after] -= 1;
            if self.graph.waits[after] == 0 {
                self.free.push(Reverse(after));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_stable_and_respects_edges() {
        let mut graph = Graph::new(4);
        graph.edge(3, 0);
        graph.edge(0, 1);
        graph.edge(0, 1);
        assert_eq!(graph.order(), Ok(vec![2, 3, 0, 1]));
    }

    #[test]
    fn a_circle_names_its_members() {
        let mut graph = Graph::new(3);
        graph.edge(0, 1);
        graph.edge(1, 0);
        assert_eq!(graph.order(), Err(vec![0, 1]));
    }
}
