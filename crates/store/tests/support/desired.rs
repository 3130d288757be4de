//! A resource as it is handed to a server's state, with nothing allowed and nothing expected.

use berth_store::{Desired, NewResource};

pub fn plain_desired(resource: NewResource) -> Desired {
    Desired {
        resource,
        labels: Default::default(),
        parents: Vec::new(),
        account: "main".into(),
        service: "network".into(),
        expect: None,
        allow_replace: false,
        allow_data_loss: false,
        allow_recreate: false,
        ready: false,
        drift_every: None,
        units: Vec::new(),
    }
}
