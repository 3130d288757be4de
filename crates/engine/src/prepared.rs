//! What a plan found out about a resource, for the run that carries the plan out: lowering and checks are done once.

use crate::lower::{Given, Lookup, given};
use crate::unit::{Lowered, Props};
use crate::unknown::{is_unknown, is_wholly_unknown};
use berth_model::Manifest;
use std::collections::HashSet;

/// A resource's units as the plan lowered them.
pub(crate) struct Prepared {
    /// What other resources gave for it.
    given: Given,
    pub lowered: Lowered,
    /// Keys of the units whose properties were checked against the cloud, and are resolved.
    pub checked: HashSet<String>,
}

impl Prepared {
    pub fn new(lowered: Lowered, given: Given) -> Self {
        Self { given, lowered, checked: HashSet::new() }
    }

    /// Keeps the properties as the check answered them. Those that hold outputs of other units are filled in, and checked,
    /// when these are made.
    pub fn checked(&mut self, key: &str, props: Props) {
        let unit = self.lowered.units.iter_mut().find(|unit| unit.key == key);
        if let Some(unit) = unit.filter(|unit| !unit.props.values().any(is_unknown)) {
            unit.props = props;
            self.checked.insert(key.to_owned());
        }
    }

    /// Whether nothing in it has to be told by apply first.
    pub fn is_known(&self) -> bool {
        self.lowered.units.iter().all(|unit| !unit.props.values().any(is_wholly_unknown))
    }

    /// Whether other resources give now what they gave then.
    pub fn holds(&self, manifest: &Manifest, target: Lookup<'_>) -> bool {
        self.given.is_in(&given(manifest, target))
    }
}
