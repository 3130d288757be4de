//! What may happen to a resource, at random: the steps of histories.

use berth_engine::ResourceState;
use berth_engine::lifecycle::Permissions;
use proptest::prelude::*;

pub fn permissions() -> impl Strategy<Value = Permissions> {
    any::<[bool; 3]>().prop_map(|[replace, data_loss, recreate]| Permissions { replace, data_loss, recreate })
}

/// What may happen next; what makes no sense at that moment is skipped.
#[derive(Clone, Debug)]
pub enum Step {
    Apply {
        is_new: bool,
        retry: bool,
        differs: bool,
        permissions: Permissions,
        drift: bool,
    },
    Delete,
    Decide {
        waits: bool,
    },
    /// Several in a row, as they mostly come: decided, leased, and a plan handed in.
    Begin {
        digest: u8,
        gate: Gate,
    },
    /// Said to be Ready, and done.
    Finish,
    Lease,
    Expire,
    Submit {
        digest: u8,
        gate: Gate,
    },
    Status {
        state: ResourceState,
    },
    Objects,
    Report {
        how: How,
        retry: bool,
    },
    Cancel,
    Check {
        drifted: bool,
        repair: bool,
        late: bool,
    },
    Approve,
    ReferenceReady,
    ReferenceChanged,
    ReferrerGone,
    AccountLeft,
    Pass {
        seconds: u8,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum Gate {
    Proceed,
    Hold,
    Block,
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    Done,
    Failed,
    Refused,
    Cancelled,
}

pub fn step() -> impl Strategy<Value = Step> {
    let gate = prop_oneof![6 => Just(Gate::Proceed), 2 => Just(Gate::Hold), 1 => Just(Gate::Block)];
    let how = prop_oneof![
        6 => Just(How::Done), 2 => Just(How::Failed), 1 => Just(How::Refused), 1 => Just(How::Cancelled)
    ];
    let state = prop_oneof![
        1 => Just(ResourceState::Pending), 4 => Just(ResourceState::Ready), 1 => Just(ResourceState::Failed)
    ];
    prop_oneof![
        3 => (any::<[bool; 4]>(), permissions()).prop_map(|([is_new, retry, differs, drift], permissions)| Step::Apply {
            is_new, retry, differs, permissions, drift
        }),
        1 => Just(Step::Delete),
        9 => (0..3u8, gate.clone()).prop_map(|(digest, gate)| Step::Begin { digest, gate }),
        9 => Just(Step::Finish),
        4 => prop_oneof![5 => Just(false), 1 => Just(true)].prop_map(|waits| Step::Decide { waits }),
        4 => Just(Step::Lease),
        1 => Just(Step::Expire),
        2 => (0..3u8, gate).prop_map(|(digest, gate)| Step::Submit { digest, gate }),
        4 => state.prop_map(|state| Step::Status { state }),
        4 => Just(Step::Objects),
        4 => (how, any::<bool>()).prop_map(|(how, retry)| Step::Report { how, retry }),
        2 => Just(Step::Cancel),
        7 => any::<[bool; 3]>().prop_map(|[drifted, repair, late]| Step::Check { drifted, repair, late }),
        3 => Just(Step::Approve),
        2 => Just(Step::ReferenceReady),
        2 => Just(Step::ReferenceChanged),
        1 => Just(Step::ReferrerGone),
        1 => Just(Step::AccountLeft),
        3 => any::<u8>().prop_map(|seconds| Step::Pass { seconds }),
    ]
}
