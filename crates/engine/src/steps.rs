//! The steps of a plan, and in which order they may be made. Pure.
//!
//! A resource has two steps: what must go, then what must come. What comes waits for the resources that it refers to; what
//! goes waits for those that refer to it.

use crate::graph::{Graph, Walk};
use crate::plan::{Action, ResourcePlan};
use crate::progress::Skip;
use berth_model::ResourceId;
use std::collections::{HashMap, HashSet};

/// One step of a plan. The order is that of the plan: a resource's first step before its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    /// Position of the resource in the plan.
    pub resource: usize,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The whole resource goes, or units of it that must go before their successors come.
    Unmake,
    /// The resource becomes as declared.
    Make,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Run(Step),
    /// The resource at this position is left out: both its steps are over.
    Skip(usize, Skip),
}

pub(crate) struct Steps<'p> {
    plans: &'p [ResourcePlan],
    index: HashMap<&'p ResourceId, usize>,
    /// By position: the resources whose first step comes before this one's, besides those that its plan names.
    unmade_before: HashMap<usize, Vec<usize>>,
    walk: Walk<Step>,
    /// Resources that are not brought to their end.
    left_out: HashSet<usize>,
}

fn unmake(resource: usize) -> Step {
    Step { resource, part: Part::Unmake }
}

fn make(resource: usize) -> Step {
    Step { resource, part: Part::Make }
}

impl ResourcePlan {
    /// Whether something has to go before anything new comes.
    pub(crate) fn goes_first(&self) -> bool {
        self.action == Action::Delete || self.units.iter().any(|unit| unit.delete_first)
    }
}

impl<'p> Steps<'p> {
    pub fn new(plans: &'p [ResourcePlan]) -> Self {
        let index: HashMap<&ResourceId, usize> = plans.iter().enumerate().map(|(i, plan)| (&plan.id, i)).collect();
        let mut graph = Graph::new((0..plans.len()).flat_map(|i| [unmake(i), make(i)]));
        let mut unmade_before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, plan) in plans.iter().enumerate() {
            graph.edge(unmake(i), make(i));
            for other in plan.after.iter().filter_map(|id| index.get(id).copied()) {
                match (plan.action == Action::Delete, plans[other].action == Action::Delete) {
                    (true, true) => graph.edge(unmake(other), unmake(i)),
                    (true, false) => graph.edge(make(other), unmake(i)),
                    (false, _) => {
                        graph.edge(make(other), make(i));
                        graph.edge(unmake(i), unmake(other));
                        if plan.goes_first() && plans[other].goes_first() {
                            unmade_before.entry(other).or_default().push(i);
                        }
                    }
                }
            }
        }
        Self { plans, index, unmade_before, walk: Walk::new(graph), left_out: HashSet::new() }
    }

    /// The next step whose predecessors are over, or `None` for now. `stopped`: nothing more is begun.
    pub fn next(&mut self, stopped: bool) -> Option<Next> {
        while let Some(step) = self.walk.next() {
            let resource = step.resource;
            if !self.has_work(step) || self.left_out.contains(&resource) {
                self.walk.done(step);
                continue;
            }
            let needs = self.missing(step).map(|other| Skip::Needs(self.plans[other].id.clone()));
            let Some(because) = needs.or(stopped.then_some(Skip::Stopped)) else { return Some(Next::Run(step)) };
            self.leave_out(step);
            return Some(Next::Skip(resource, because));
        }
        None
    }

    pub fn done(&mut self, step: Step) {
        self.walk.done(step);
    }

    /// The step is over, and its resource is not brought to its end: what needs it is left out, too.
    pub fn leave_out(&mut self, step: Step) {
        self.left_out.insert(step.resource);
        self.walk.done(step);
    }

    /// Whether nothing is left to do for the resource after this step.
    pub fn is_last(&self, step: Step) -> bool {
        step.part == Part::Make || self.plans[step.resource].action == Action::Delete
    }

    fn has_work(&self, step: Step) -> bool {
        let plan = &self.plans[step.resource];
        match step.part {
            Part::Make => plan.action != Action::Delete,
            Part::Unmake => plan.goes_first(),
        }
    }

    /// A resource that this step needs and that was left out.
    fn missing(&self, step: Step) -> Option<usize> {
        let is_left_out = |other: &usize| self.left_out.contains(other);
        match self.is_last(step) {
            true => {
                self.plans[step.resource].after.iter().filter_map(|id| self.index.get(id).copied()).find(is_left_out)
            }
            // Nothing is taken away from under what could not be taken away itself.
            false => self.unmade_before.get(&step.resource).into_iter().flatten().copied().find(is_left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::UnitPlan;

    fn id(name: &str) -> ResourceId {
        ResourceId::new("CivoVpc", name)
    }

    fn plan(name: &str, action: Action, after: &[&str]) -> ResourcePlan {
        let after = after.iter().map(|name| id(name)).collect();
        ResourcePlan { id: id(name), action, units: Vec::new(), after, typical_seconds: None, strays: Vec::new() }
    }

    /// Its old object goes before the new one comes.
    fn old_first(name: &str, after: &[&str]) -> ResourcePlan {
        let unit = UnitPlan { delete_first: true, ..UnitPlan::untouched("network", "civo.network", "") };
        ResourcePlan { units: vec![unit], ..plan(name, Action::Replace, after) }
    }

    /// All steps in order, with those that fail.
    fn walk(plans: &[ResourcePlan], fails: &[Step]) -> Vec<String> {
        let mut steps = Steps::new(plans);
        let mut told = Vec::new();
        while let Some(next) = steps.next(false) {
            match next {
                Next::Skip(resource, because) => told.push(format!("{} skipped: {because}", plans[resource].id.name)),
                Next::Run(step) => {
                    told.push(format!("{:?} {}", step.part, plans[step.resource].id.name));
                    if fails.contains(&step) { steps.leave_out(step) } else { steps.done(step) }
                }
            }
        }
        told
    }

    #[test]
    fn what_comes_follows_what_it_refers_to() {
        let plans = [plan("net", Action::Create, &[]), plan("cluster", Action::Create, &["net"])];
        assert_eq!(walk(&plans, &[]), ["Make net", "Make cluster"]);
        assert_eq!(walk(&plans, &[make(0)]), ["Make net", "cluster skipped: it needs CivoVpc/net"]);
    }

    #[test]
    fn what_goes_first_goes_in_the_opposite_order() {
        let plans = [old_first("net", &[]), old_first("cluster", &["net"])];
        assert_eq!(walk(&plans, &[]), ["Unmake cluster", "Unmake net", "Make net", "Make cluster"]);
        // What could not go stays in what it is in.
        let failed = walk(&plans, &[unmake(1)]);
        assert_eq!(failed, ["Unmake cluster", "net skipped: it needs CivoVpc/cluster"]);
    }

    #[test]
    fn deletions_follow_those_that_refer_to_them() {
        let plans = [plan("cluster", Action::Delete, &[]), plan("net", Action::Delete, &["cluster"])];
        assert_eq!(walk(&plans, &[]), ["Unmake cluster", "Unmake net"]);
        // What stays lets go first.
        let plans = [plan("cluster", Action::Update, &[]), plan("old-net", Action::Delete, &["cluster"])];
        assert_eq!(walk(&plans, &[]), ["Make cluster", "Unmake old-net"]);
        assert_eq!(walk(&plans, &[make(0)]), ["Make cluster", "old-net skipped: it needs CivoVpc/cluster"]);
    }

    #[test]
    fn a_stopped_run_begins_nothing() {
        let plans = [plan("net", Action::Create, &[]), plan("cluster", Action::Create, &["net"])];
        let mut steps = Steps::new(&plans);
        assert_eq!(steps.next(false), Some(Next::Run(make(0))));
        steps.done(make(0));
        assert_eq!(steps.next(true), Some(Next::Skip(1, Skip::Stopped)));
        assert_eq!(steps.next(true), None);
    }
}
