//! Objects keep the names that their cloud gave them, on a server, too.

use crate::harness::*;
use crate::support::folder::Folder;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_imports_any_name_and_lists_what_it_cannot() {
    let plane = Plane::start(Setup::default()).await;
    plane.account().await;
    let url = format!("{}/v2/networks", plane.sandbox.url(berth_sandbox::civo::NAME));
    for label in ["My Network", "in\u{200b}visible"] {
        let body = json!({"label": label, "region": "FRA1"}).to_string();
        let request = reqwest::Client::new().post(&url).bearer_auth(CLOUD_TOKEN).body(body).send();
        assert!(request.await.unwrap().status().is_success());
    }
    tokio::task::block_in_place(|| {
        let own = plane.folder.path().join("s0");
        let file = |name: &str| own.join(name).display().to_string();
        let user = Folder::of_user();
        user.berth(&["login", &plane.urls[0], "--ca", &file("ca.pem"), "--token-file", &file("admin.token")]).ok();
        let all = ["import", "--all", "--provider", "civo", "--out", "found"];
        user.berth(&all)
            .exits(1)
            .says("CivoVpc/my-network imported")
            .says("not imported: CivoVpc")
            .says("spec.networkName: network name has characters that cannot be seen");
        user.berth(&["plan", "-f", "found", "--detailed-exitcode"]).ok().says("1 unchanged");
        user.berth(&all).exits(1).says("nothing to import").says("not imported: CivoVpc");
    });
    assert_eq!(plane.made("civo.network"), 2 + 6, "import made nothing: two networks, and the default ones");
}
