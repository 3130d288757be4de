//! A large fleet.

use crate::*;
use berth_engine::record::{Recorder, Status};
use berth_store::Filter;
use secrecy::SecretString;
use std::time::Instant;

on_both! {
    twenty_thousand_resources_and_units,
}

const FLEET: usize = 20_000;

async fn twenty_thousand_resources_and_units(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let ids: Vec<_> = (0..FLEET).map(|number| vpc(&format!("net-{number:05}"))).collect();
    let spec = json!({"region": "fra1", "clusterName": "a-cluster", "kubernetesVersion": "1.30.5-k3s1",
        "defaultNodePool": {"size": "g4s.kube.medium", "nodeCount": 3}, "network": {"valueFrom": {"name": "net"}}});
    let clock = Instant::now();
    let saved = run.save_resources(ids.iter().map(|id| new_resource(id, spec.clone())).collect()).await.unwrap();
    assert_eq!(saved.len(), FLEET);
    println!("saved {FLEET} resources in {:?}", clock.elapsed());
    let clock = Instant::now();
    // Sealing is slow without optimisation, so only some clusters have a kubeconfig of the usual size.
    let (small, usual) = (SecretString::from("x".repeat(60)), SecretString::from("x".repeat(9000)));
    for chunk in ids.chunks(512) {
        let writes = chunk.iter().map(async |id| {
            let kubeconfig = if id.name.ends_with('7') { &usual } else { &small };
            let secrets = std::collections::BTreeMap::from([("kubeconfig".to_owned(), kubeconfig.clone())]);
            let outputs = json!({"cluster_id": id.name, "endpoint": "https://1.2.3.4:6443"});
            run.save_unit(UnitState {
                id: Some(format!("obj-{}", id.name)),
                outputs: props(outputs.clone()),
                secrets: secrets.clone(),
                ..unit(id, "cluster", "t1")
            })
            .await
            .unwrap();
            run.status(id, Status { secrets, ..ready(outputs) }).await.unwrap();
        });
        futures::future::join_all(writes).await;
    }
    run.finish().await;
    println!("saved {FLEET} units and statuses, each acknowledged, in {:?}", clock.elapsed());

    let clock = Instant::now();
    let store = open(&home.place.address).await;
    println!("opened in {:?}", clock.elapsed());
    let clock = Instant::now();
    let resources = store.resources(&Filter::default()).await.unwrap();
    let units = store.all_units().await.unwrap();
    println!("loaded all in {:?}", clock.elapsed());
    assert_eq!((resources.len(), units.len()), (FLEET, FLEET));
    for (at, (resource, unit)) in resources.iter().zip(&units).enumerate() {
        assert_eq!((&resource.id, &unit.resource), (&ids[at], &ids[at]));
        assert_eq!(resource.status.outputs["cluster_id"], unit.outputs["cluster_id"]);
        assert_eq!(unit.id.as_deref(), Some(format!("obj-{}", ids[at].name).as_str()));
        assert_eq!(resource.secret_names, ["kubeconfig"]);
    }
    assert_eq!(resources[FLEET - 1].sealed_manifest().unwrap()["spec"], spec);
}
