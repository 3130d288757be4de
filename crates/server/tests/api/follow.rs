//! Resources that refer to others follow them, and keep them; what a check finds is as on a laptop.

use crate::world::{World, vpc};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection};

const FIREWALL: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: edge}\n\
spec:\n  name: edge\n  networkId: {valueFrom: {name: net}}\n  inboundRules:\n    - {protocol: tcp, portRange: \"443\", label: HTTPS}\n";
const NET: &str = "/v1/resources/CivoVpc/net";
const EDGE: &str = "/v1/resources/CivoFirewall/edge";

async fn object(world: &World, path: &str) -> String {
    let (_, units) = world.get(&format!("{path}/units")).await;
    units["units"][0]["objectId"].as_str().unwrap_or_else(|| panic!("{units:#}")).to_owned()
}

/// As someone does who does not ask Berth.
async fn take_away(world: &World, what: &str, id: &str) {
    let url = format!("{}/v2/{what}/{id}?region=FRA1", world.sandbox.as_ref().unwrap().url(berth_sandbox::civo::NAME));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.request(Method::DELETE, url).bearer_auth("sandbox").send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_follow_a_parent_that_became_another() {
    let world = World::busy().await;
    assert_eq!(world.apply(&format!("{}---\n{FIREWALL}", vpc("net"))).await.0, 200);
    world.ready(EDGE).await;
    let (network, firewall) = (object(&world, NET).await, object(&world, EDGE).await);
    take_away(&world, "firewalls", &firewall).await;
    take_away(&world, "networks", &network).await;

    // A comparison tells; one that writes down what it saw says so of the resources, and neither mends them.
    let (status, drift) = world.post("/v1/drift", json!({})).await;
    assert_eq!((status, drift["drifted"].as_array().unwrap().len()), (200, 2), "{drift:#}");
    assert_eq!(world.get(NET).await.1["state"], "Ready");
    let (status, drift) =
        world.post("/v1/drift", json!({"refresh": true, "ids": [{"kind": "CivoVpc", "name": "net"}]})).await;
    assert_eq!(status, 200, "{drift:#}");
    let (_, gone) = world.get(NET).await;
    assert_eq!((&gone["state"], &gone["message"]), (&json!("Failed"), &json!("gone: deleted outside")), "{gone:#}");
    assert_eq!(world.get(EDGE).await.1["state"], "Ready");

    // The network alone is applied again. What is in it was made from the id of one that is no more.
    let body = json!({"files": [{"name": "a.yaml", "text": vpc("net")}], "retry": true});
    assert_eq!(world.post("/v1/resources", body).await.0, 200);
    world.ready(NET).await;
    let followed =
        |_: u16, edge: &Value| edge["state"] == "Ready" && edge["drift"].as_array().is_none_or(Vec::is_empty);
    world.until(EDGE, followed).await;
    let (new_network, new_firewall) = (object(&world, NET).await, object(&world, EDGE).await);
    assert!(new_network != network && new_firewall != firewall, "{new_network} {new_firewall}");
    let (_, history) = world.get(&format!("{EDGE}/history")).await;
    assert!(history.to_string().contains("CivoVpc/net has changed"), "{history:#}");
    let (_, drift) = world.post("/v1/drift", json!({})).await;
    assert_eq!(drift["drifted"].as_array().unwrap().len(), 0, "{drift:#}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_refers_to_what_is_going() {
    let world = World::quiet().await;
    assert_eq!(world.apply(&format!("{}---\n{FIREWALL}", vpc("net"))).await.0, 200);
    let (status, refused) = world.delete(NET).await;
    assert_eq!(status, 409, "{refused:#}");
    assert_eq!(refused["detail"], "CivoVpc/net cannot be deleted: CivoFirewall/edge refers to it");
    assert!(refused.to_string().contains("--cascade"), "{refused:#}");
    assert_eq!(world.delete(&format!("{NET}?cascade=true")).await.0, 200);
    // By reference, and by plain name; a plan is refused like an apply.
    let by_name = FIREWALL.replace("{valueFrom: {name: net}}", "{value: net}");
    for text in [FIREWALL, &by_name] {
        let (status, refused) = world.apply(&text.replace("edge", "other")).await;
        if text == FIREWALL {
            assert_eq!(status, 409, "{refused:#}");
            assert!(refused["detail"].as_str().unwrap().contains("CivoVpc/net"), "{refused:#}");
            assert!(refused["detail"].as_str().unwrap().contains("being deleted"), "{refused:#}");
        } else {
            assert_eq!(status, 200, "a plain value is an id of the cloud's: {refused:#}");
        }
    }
    // Together they are wanted again.
    let (status, both) = world.apply(&format!("{}---\n{FIREWALL}", vpc("net"))).await;
    assert_eq!(status, 200, "{both:#}");
    assert_eq!(world.get(NET).await.1["deleting"], false);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_read_does_not_hold_up_the_others() {
    let world = World::busy().await;
    assert_eq!(world.apply(&vpc("broken")).await.0, 200);
    world.ready("/v1/resources/CivoVpc/broken").await;
    // As a later version, or a hand in the database, may leave it.
    let file = world.folder.path().join("server/state.db");
    let mut raw = sqlx::sqlite::SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    let broken = "UPDATE resources SET manifest = '{\"kind\":\"Nothing\"}', state = 'Pending', due_at = 1";
    sqlx::raw_sql(broken).execute(&mut raw).await.unwrap();
    assert_eq!(world.apply(&vpc("fine")).await.0, 200);
    world.ready("/v1/resources/CivoVpc/fine").await;
    let state = "SELECT state || ' ' || message FROM resources WHERE name = 'broken'";
    let told: String = sqlx::query_scalar(state).fetch_one(&mut raw).await.unwrap();
    assert!(told.starts_with("Failed") && told.contains("cannot be read"), "{told}");
    raw.close().await.unwrap();
    world.stop().await;
}
