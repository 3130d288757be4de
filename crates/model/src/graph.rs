//! Who needs whom: the graph that references make, its order, and what is wrong with it.

use crate::diagnostic::{Diagnostic, Unresolved};
use crate::id::ResourceId;
use crate::manifest::Manifest;
use crate::phrasing;
use crate::refs::Ref;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The graph of some manifests.
#[derive(Debug, Default)]
pub struct Graph {
    /// What each manifest needs, in the manifests' order. Only resources that are among the manifests or known.
    pub needs: Vec<Vec<Need>>,
    /// Positions of the manifests, each after what it needs. Without those in or behind a cycle.
    pub order: Vec<usize>,
    /// Missing targets, cycles, and resources that are defined twice.
    pub diagnostics: Vec<Diagnostic>,
}

/// One edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The field that says so: `network`.
    pub field: String,
    pub to: ResourceId,
    /// Position among the manifests, or `None` for one that is applied already.
    pub index: Option<usize>,
}

/// Most missing targets for which a near name is looked for: each look goes over all resources.
const MAX_SUGGESTIONS: usize = 100;

/// Builds the graph of manifests, where references may also lead to resources that are `known` already.
pub fn graph(manifests: &[Manifest], known: &HashSet<ResourceId>) -> Graph {
    let mut graph = Graph::default();
    let mut index: HashMap<&ResourceId, usize> = HashMap::with_capacity(manifests.len());
    for (position, manifest) in manifests.iter().enumerate() {
        match index.get(&manifest.id) {
            Some(first) => graph.diagnostics.push(defined_twice(manifest, &manifests[*first])),
            None => {
                index.insert(&manifest.id, position);
            }
        }
    }
    let mut missing = 0;
    for manifest in manifests {
        let mut needs = Vec::new();
        for reference in manifest.refs() {
            let found = index.get(&reference.to).copied();
            if found.is_none() && !known.contains(&reference.to) {
                missing += 1;
                let help = missing <= MAX_SUGGESTIONS;
                let problem = nothing_there(manifest, &reference, help.then_some((manifests, known)));
                graph.diagnostics.push(problem.elsewhere(manifest.of_other_tool()));
                continue;
            }
            needs.push(Need { field: reference.field, to: reference.to, index: found });
        }
        for reference in manifest.named() {
            let found = index.get(&reference.to).copied();
            if (found.is_some() || known.contains(&reference.to)) && reference.to != manifest.id {
                needs.push(Need { field: reference.field, to: reference.to, index: found });
            }
        }
        graph.needs.push(needs);
    }
    graph.sort(manifests);
    graph
}

impl Graph {
    fn sort(&mut self, manifests: &[Manifest]) {
        let count = self.needs.len();
        let mut waits: Vec<usize> = vec![0; count];
        let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (position, needs) in self.needs.iter().enumerate() {
            for target in needs.iter().filter_map(|need| need.index) {
                waits[position] += 1;
                needed_by[target].push(position);
            }
        }
        // Among those that are free to go, the order of the files stays.
        let mut ready: BinaryHeap<Reverse<usize>> = (0..count).filter(|n| waits[*n] == 0).map(Reverse).collect();
        let mut done = vec![false; count];
        loop {
            while let Some(Reverse(position)) = ready.pop() {
                if done[position] {
                    continue;
                }
                done[position] = true;
                self.order.push(position);
                for next in &needed_by[position] {
                    waits[*next] -= 1;
                    if waits[*next] == 0 {
                        ready.push(Reverse(*next));
                    }
                }
            }
            let Some(stuck) = (0..count).find(|n| !done[*n] && waits[*n] > 0) else { return };
            let cycle = self.cycle_from(stuck, &done);
            self.diagnostics.push(self.describe(&cycle, manifests));
            // Taken out, so that the next cycle is found; what waits for this one is not reported again.
            let mut out: Vec<usize> = cycle;
            while let Some(position) = out.pop() {
                if !std::mem::replace(&mut done[position], true) {
                    out.extend(needed_by[position].iter().copied());
                }
            }
        }
    }

    /// Follows needs from a manifest that is in or behind a cycle until one comes round again.
    fn cycle_from(&self, start: usize, done: &[bool]) -> Vec<usize> {
        let mut walked: Vec<usize> = vec![start];
        let mut at: HashMap<usize, usize> = HashMap::from([(start, 0)]);
        let mut position = start;
        loop {
            let next = self.needs[position].iter().filter_map(|need| need.index).find(|target| !done[*target]);
            // One that waits has something to wait for; without it there is nothing to walk on to.
            let Some(next) = next else { return walked };
            if let Some(first) = at.get(&next) {
                return walked.split_off(*first);
            }
            at.insert(next, walked.len());
            walked.push(next);
            position = next;
        }
    }

    fn describe(&self, cycle: &[usize], manifests: &[Manifest]) -> Diagnostic {
        let mut names: Vec<String> = cycle.iter().map(|n| manifests[*n].id.to_string()).collect();
        names.extend(names.first().cloned());
        let mut problem: Option<Diagnostic> = None;
        let mut help = Vec::new();
        for (step, position) in cycle.iter().enumerate() {
            let next = cycle[(step + 1) % cycle.len()];
            let Some(need) = self.needs[*position].iter().find(|need| need.index == Some(next)) else { continue };
            let path = format!("spec.{}", need.field);
            let here = manifests[*position].problem(&path, format!("references go in a circle: {}", names.join(" → ")));
            help.push(format!("{} refers to {} at {} ({path})", manifests[*position].id, need.to, here.place()));
            problem.get_or_insert(here);
        }
        let mut problem = problem.unwrap_or_else(|| Diagnostic::error("references go in a circle"));
        problem.help = help;
        problem
    }
}

fn defined_twice(second: &Manifest, first: &Manifest) -> Diagnostic {
    let env = if second.id.env.is_empty() { String::new() } else { format!(" in env {}", second.id.env) };
    let mut problem = second.problem("metadata.name", format!("{} is defined twice{env}", second.id));
    if let Some(place) = first.place() {
        problem.help.push(format!("it is defined first in {place}"));
    }
    problem
}

/// `among`: where to look for what was probably meant.
fn nothing_there(from: &Manifest, to: &Ref, among: Option<(&[Manifest], &HashSet<ResourceId>)>) -> Diagnostic {
    let target = &to.to;
    let scope = match (target.org.as_str(), target.env.as_str()) {
        ("", "") => String::new(),
        ("", env) => format!(" in env {env}"),
        (org, "") => format!(" in org {org}"),
        (org, env) => format!(" in org {org}, env {env}"),
    };
    let message = format!("nothing named `{}` of kind {}{scope} is here or already applied", target.name, target.kind);
    let mut problem = from.problem(&format!("spec.{}", to.field), message);
    problem.unresolved = Some(Unresolved::NothingAlike);
    if let Some(span) = to.span {
        problem.span = Some(span);
    }
    let Some((manifests, known)) = among else { return problem };
    let ids: Vec<&ResourceId> = manifests.iter().map(|manifest| &manifest.id).chain(known).collect();
    let place = |id: &ResourceId| {
        let manifest = manifests.iter().find(|manifest| manifest.id == *id);
        manifest
            .and_then(Manifest::place)
            .map_or("is already applied".to_owned(), |place| format!("is defined in {place}"))
    };
    let same_kind = || ids.iter().filter(|id| id.kind == target.kind);
    if let Some(other) = same_kind().find(|id| id.name == target.name && id.org == target.org) {
        let which = if other.env.is_empty() { "without an env".to_owned() } else { format!("in env {}", other.env) };
        problem.help.push(format!("{other} {which} {}", place(other)));
    } else if let Some(other) = same_kind().find(|id| id.name == target.name) {
        let org = if other.org.is_empty() { "without an org".to_owned() } else { format!("in org {}", other.org) };
        let env = if other.env.is_empty() { String::new() } else { format!(", in env {},", other.env) };
        problem.help.push(format!("{other} {org}{env} {}; references stay in one org", place(other)));
    } else if let Some(other) =
        ids.iter().find(|id| id.name == target.name && id.env == target.env && id.org == target.org && ***id != from.id)
    {
        problem.help.push(format!("{other} {}", place(other)));
    } else {
        let near =
            phrasing::nearest(&target.name, same_kind().filter(|id| id.env == target.env).map(|id| id.name.as_str()));
        let near = near.and_then(|near| same_kind().find(|id| id.name == near && id.env == target.env));
        match near {
            Some(other) => problem.help.push(format!("{other} {}", place(other))),
            None => {
                problem.help.push(format!("to begin one:   berth init {}", target.kind));
                return problem;
            }
        }
    }
    problem.unresolved = Some(Unresolved::SomethingAlike);
    problem
}
