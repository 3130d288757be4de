//! What doctl, DigitalOcean's Terraform provider and their documents' examples ask for around a cluster.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::Cloud;

const CLUSTERS: &str = "/v2/kubernetes/clusters";

fn cluster(name: &str) -> Value {
    json!({"name": name, "region": "fra1", "version": "1.33", "node_pools": [{"name": "main", "size": "s-2vcpu-4gb", "count": 1}]})
}

/// The Terraform provider sends a block that is not configured as one of nulls, and plans a change as long as it comes
/// back as a block.
#[tokio::test]
async fn a_block_of_nulls_is_not_configured() {
    let cloud = Cloud::instant().await;
    let id = cloud.cluster("shop").await["id"].as_str().unwrap().to_owned();
    let path = format!("{CLUSTERS}/{id}");
    let nulls = json!({"scale_down_utilization_threshold": null, "scale_down_unneeded_time": null, "expanders": null});
    let set =
        json!({"scale_down_utilization_threshold": 0.6, "scale_down_unneeded_time": "2m0s", "expanders": ["random"]});
    let name = "cluster_autoscaler_configuration";
    for (sent, shown) in [(&nulls, &Value::Null), (&set, &set), (&nulls, &Value::Null)] {
        let (status, changed) = cloud.put(&path, json!({"name": "shop", name: sent})).await;
        assert_eq!((status, &changed["kubernetes_cluster"][name]), (202, shown));
        assert_eq!(&cloud.get(&path).await["kubernetes_cluster"][name], shown);
    }
    let mut body = cluster("store");
    body[name] = nulls;
    assert_eq!(cloud.post(CLUSTERS, body).await.1["kubernetes_cluster"][name], Value::Null);
}

#[tokio::test]
async fn isolated_workers_are_returned() {
    let cloud = Cloud::instant().await;
    let mut body = cluster("shop");
    body["isolated_workers"] = json!(true);
    let (status, made) = cloud.post(CLUSTERS, body).await;
    assert_eq!((status, &made["kubernetes_cluster"]["isolated_workers"]), (201, &json!(true)), "{made}");
    assert_eq!(cloud.cluster("open").await["isolated_workers"], false);
}

#[tokio::test]
async fn regions_sizes_and_images_of_the_documents_are_there() {
    let cloud = Cloud::instant().await;
    let regions = cloud.get("/v2/regions?per_page=200").await;
    for region in regions["regions"].as_array().unwrap() {
        let features = region["features"].as_array().unwrap();
        assert!(features.contains(&json!("private_networking")) && features.contains(&json!("storage")), "{region}");
    }
    let sizes = cloud.get("/v2/sizes?per_page=200").await;
    assert!(sizes["sizes"].as_array().unwrap().iter().any(|size| size["slug"] == "s-1vcpu-1gb"));
    let mut body = cluster("shop");
    body["node_pools"][0]["size"] = json!("s-1vcpu-1gb");
    assert_eq!(cloud.post(CLUSTERS, body).await.0, 422, "too small to be a node");
    let options = cloud.get("/v2/kubernetes/options").await;
    assert!(!options["options"]["sizes"].as_array().unwrap().iter().any(|size| size["slug"] == "s-1vcpu-1gb"));
    let images = cloud.get("/v2/images?type=distribution&per_page=200").await;
    let image = &images["images"][0];
    assert_eq!(&cloud.get(&format!("/v2/images/{}", image["slug"].as_str().unwrap())).await["image"], image);
    assert_eq!(&cloud.get(&format!("/v2/images/{}", image["id"])).await["image"], image);
}

#[tokio::test]
async fn projects_peerings_and_what_a_sandbox_has_none_of_can_be_read() {
    let cloud = Cloud::instant().await;
    let id = cloud.cluster("shop").await["id"].as_str().unwrap().to_owned();
    let project = cloud.get("/v2/projects/default").await["project"].clone();
    assert_eq!(
        (&project["is_default"], &cloud.get("/v2/projects").await["projects"][0]["id"]),
        (&json!(true), &project["id"])
    );
    let resources = cloud.get(&format!("/v2/projects/{}/resources", project["id"].as_str().unwrap())).await;
    assert_eq!(resources["resources"][0]["urn"], format!("do:kubernetes:{id}"));
    let vpc = cloud.get("/v2/vpcs").await["vpcs"][0]["id"].as_str().unwrap().to_owned();
    for (path, root) in [
        ("/v2/vpc_peerings".to_owned(), "vpc_peerings"),
        (format!("/v2/vpcs/{vpc}/peerings"), "vpc_peerings"),
        (format!("/v2/vpcs/{vpc}/subnets"), "vpc_subnets"),
        ("/v2/droplets".to_owned(), "droplets"),
        ("/v2/volumes".to_owned(), "volumes"),
        ("/v2/load_balancers".to_owned(), "load_balancers"),
    ] {
        let list = cloud.get(&path).await;
        assert_eq!((&list[root], &list["meta"]["total"]), (&json!([]), &json!(0)), "{path}");
    }
    assert_eq!(cloud.call(Method::GET, "/v2/vpc_peerings/none", None).await.0, 404);
    assert_eq!(cloud.call(Method::GET, "/v2/vpcs/none/peerings", None).await.0, 404);
    let (status, refused) = cloud.post("/v2/vpc_peerings", json!({"name": "x", "vpc_ids": [vpc]})).await;
    assert_eq!((status, &refused["id"]), (403, &json!("forbidden")));
}
