//! A resource belongs to the account it was made in: with another token or another address nothing is read, nothing is made,
//! and both accounts are named. Much gone at once is a question.

use crate::harness::Project;
use crate::support::cloud::{Cloud, wait_for};
use crate::support::ran::{self, Ran};
use berth_sandbox::{Config, Speed};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

fn network(name: &str) -> String {
    format!(
        "---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: {name}, region: fra1}}\n"
    )
}

fn networks(count: usize) -> String {
    (0..count).map(|n| network(&format!("n{n}"))).collect::<String>().trim_start_matches("---\n").to_owned()
}

/// The account's id, as the cloud itself tells it.
fn account(cloud: &Cloud) -> String {
    cloud.call(berth_sandbox::civo::NAME, "GET", "/v2/quota", None)["id"].as_str().unwrap().to_owned()
}

fn live(cloud: &Cloud) -> Vec<String> {
    let listed = cloud.call(berth_sandbox::civo::NAME, "GET", "/v2/networks?region=FRA1", None);
    let own = listed.as_array().unwrap().iter().filter(|network| network["default"] != true);
    own.map(|network| network["label"].as_str().unwrap().to_owned()).collect()
}

fn refused(ran: &Ran, own: &str, other: &str) {
    assert_eq!(ran.code, Some(1), "{ran}");
    let said = ran.to_string();
    assert!(said.contains(own) && said.contains(other), "both accounts are named\n{ran}");
    assert!(said.contains("berth account move env:civo") && said.contains("set the token"), "{ran}");
}

#[test]
fn another_address_is_refused_before_anything_is_read_or_made() {
    let (here, elsewhere) = (Cloud::instant(), Cloud::instant());
    let (own, other) = (account(&here), account(&elsewhere));
    assert_ne!(own, other, "two sandboxes are two accounts");
    let project =
        Project::with(&[("all.yaml", &networks(2)), ("new.yaml", network("new").trim_start_matches("---\n"))]);
    let made = project.berth(&here, &["apply", "-f", "all.yaml", "--yes"]);
    assert_eq!(made.code, Some(0), "{made}");

    let commands: [&[&str]; 8] = [
        &["plan", "-f", "all.yaml"],
        &["apply", "-f", "all.yaml", "--yes"],
        &["apply", "-f", "all.yaml", "--yes", "--allow-recreate"],
        &["apply", "-f", "new.yaml", "--yes"],
        &["drift"],
        &["refresh"],
        &["delete", "-f", "all.yaml", "--yes", "--allow-delete"],
        &["import", "--all", "--provider", "civo"],
    ];
    for command in commands {
        let before = elsewhere.mutating();
        elsewhere.faults(&["GET /v2/networks* 500"]);
        let ran = project.berth(&elsewhere, command);
        assert_eq!(elsewhere.matched(), 0, "{command:?} read objects of another account\n{ran}");
        elsewhere.faults(&[]);
        refused(&ran, &own, &other);
        assert_eq!(elsewhere.mutating(), before, "{command:?} changed something\n{ran}");
        assert_eq!(live(&elsewhere), [""; 0], "{command:?}\n{ran}");
    }
    let back = project.berth(&here, &["plan", "-f", "all.yaml", "--detailed-exitcode"]);
    assert_eq!(back.code, Some(0), "with the right address nothing is to be done\n{back}");
}

/// A cloud where each token is an account: one address, and behind it a sandbox for each token.
struct Front {
    url: String,
}

impl Front {
    fn start(accounts: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let accounts = accounts.clone();
                std::thread::spawn(move || forward(client, &accounts));
            }
        });
        Self { url }
    }
}

/// One request and its answer, closed after it.
fn forward(mut client: TcpStream, accounts: &[(&'static str, String)]) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).ok()?;
    let header = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let token = header("authorization")?;
    let (_, url) = accounts.iter().find(|(of, _)| token.ends_with(of))?;
    let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    client.read_exact(&mut body).ok()?;
    let mut cloud = TcpStream::connect(url.trim_start_matches("http://")).ok()?;
    cloud.write_all(text.trim_end_matches("\r\n").as_bytes()).ok()?;
    cloud.write_all(b"\r\nconnection: close\r\n\r\n").ok()?;
    cloud.write_all(&body).ok()?;
    std::io::copy(&mut cloud, &mut client).ok()?;
    Some(())
}

#[test]
fn another_token_is_refused_and_moving_is_a_command_of_its_own() {
    let (anns, bens) = (Cloud::instant(), Cloud::instant());
    let (ann, ben) = (account(&anns), account(&bens));
    let front = Front::start(vec![("anns-token", anns.civo_url.clone()), ("bens-token", bens.civo_url.clone())]);
    let project = Project::with(&[("all.yaml", &networks(3))]);
    let run = |token: &str, args: &[&str]| {
        let mut command: Command = project.command(&anns, args);
        command.env("CIVO_API_URL", &front.url).env("CIVO_TOKEN", token);
        ran::run(&mut command)
    };
    assert_eq!(run("anns-token", &["apply", "-f", "all.yaml", "--yes"]).code, Some(0));
    refused(&run("bens-token", &["plan", "-f", "all.yaml"]), &ann, &ben);
    refused(&run("bens-token", &["apply", "-f", "all.yaml", "--yes", "--allow-recreate"]), &ann, &ben);
    assert_eq!(live(&bens), [""; 0]);

    // What the message says to type: nothing is found there, and so nothing is moved.
    let missing = run("bens-token", &["account", "move", "env:civo"]);
    assert!(missing.code == Some(1) && missing.to_string().contains("3 of 3 objects not found"), "{missing}");
    assert!(missing.to_string().contains("--forget-missing"), "{missing}");
    let dry = run("bens-token", &["account", "move", "env:civo", "--forget-missing", "--dry-run"]);
    assert!(dry.code == Some(0) && dry.to_string().contains("forgotten"), "{dry}");
    let unasked = run("bens-token", &["account", "move", "env:civo", "--forget-missing"]);
    assert!(unasked.code == Some(1) && unasked.to_string().contains("add --yes"), "{unasked}");
    assert_eq!(run("anns-token", &["plan", "-f", "all.yaml", "--detailed-exitcode"]).code, Some(0), "still Ann's");

    let moved = run("bens-token", &["account", "move", "env:civo", "--forget-missing", "--yes"]);
    assert_eq!(moved.code, Some(0), "{moved}");
    let applied = run("bens-token", &["apply", "-f", "all.yaml", "--yes"]);
    assert_eq!(applied.code, Some(0), "{applied}");
    assert_eq!((live(&bens).len(), live(&anns).len()), (3, 3), "Ann's are still there");
    refused(&run("anns-token", &["drift"]), &ben, &ann);

    let unknown = run("bens-token", &["account", "move", "main"]);
    assert!(unknown.code == Some(1) && unknown.to_string().contains("there are: env:civo"), "{unknown}");
}

#[test]
fn what_is_found_by_its_id_is_moved_without_being_made_again() {
    // The same objects under another account: a sandbox's file, of which the account's id is taken away.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clouds.jsonl");
    let config = || Config { speed: Speed::Instant, state: Some(file.clone()), ..Config::default() };
    let cloud = Cloud::start(config());
    let project = Project::with(&[("all.yaml", &networks(4))]);
    assert_eq!(project.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]).code, Some(0));
    let before = account(&cloud);
    cloud.stop();
    let same = Cloud::start(config());
    assert_eq!(account(&same), before, "a sandbox with the same state file is the same account");
    assert_eq!(project.berth(&same, &["plan", "-f", "all.yaml", "--detailed-exitcode"]).code, Some(0));
    same.stop();

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"accounts\":", "\"others\":")).unwrap();
    let other = Cloud::start(config());
    refused(&project.berth(&other, &["plan", "-f", "all.yaml"]), &before, &account(&other));
    let moved = project.berth(&other, &["account", "move", "env:civo", "--yes"]);
    assert!(moved.code == Some(0) && moved.to_string().contains("4 of 4 objects moved"), "{moved}");
    let plan = project.berth(&other, &["plan", "-f", "all.yaml", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(0), "{plan}");
    let again = project.berth(&other, &["account", "move", "env:civo", "--yes"]);
    assert!(again.code == Some(0) && again.to_string().contains("nothing to move"), "{again}");
}

#[test]
fn a_kubeconfig_is_not_asked_of_another_account() {
    let (here, elsewhere) = (Cloud::instant(), Cloud::instant());
    let cluster = "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanKubernetesCluster\nmetadata: {name: shop}\nspec:\n  clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.33.1-do.0\n  vpc: {value: VPC}\n  defaultNodePool: {size: s-2vcpu-4gb, nodeCount: 1}\n";
    let vpcs = here.call(berth_sandbox::digitalocean::NAME, "GET", "/v2/vpcs", None);
    let vpc = vpcs["vpcs"].as_array().unwrap().iter().find(|vpc| vpc["region"] == "fra1").unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let project = Project::with(&[("shop.yaml", &cluster.replace("VPC", &vpc))]);
    let made = project.berth(&here, &["apply", "-f", "shop.yaml", "--yes"]);
    assert_eq!(made.code, Some(0), "{made}");
    let team = |cloud: &Cloud| {
        let account = cloud.call(berth_sandbox::digitalocean::NAME, "GET", "/v2/account", None);
        account["account"]["team"]["uuid"].as_str().unwrap().to_owned()
    };
    let given = project.berth(&here, &["kubeconfig", "DigitalOceanKubernetesCluster/shop"]);
    assert_eq!(given.code, Some(0), "{given}");
    let ran = project.berth(&elsewhere, &["kubeconfig", "DigitalOceanKubernetesCluster/shop"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let said = ran.to_string();
    assert!(said.contains(&team(&here)) && said.contains(&team(&elsewhere)), "{ran}");
}

/// Takes away what the state knows of accounts: so it is when an earlier version made it.
fn age(project: &Project) {
    use sqlx::Connection;
    let place = format!("sqlite://{}", project.work().join(".berth/state.db").display());
    wait_for(async {
        let mut connection = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let aged = sqlx::query("UPDATE units SET identity = ''").execute(&mut connection).await.unwrap();
        assert!(aged.rows_affected() > 0, "{place}");
        connection.close().await.unwrap();
    });
}

#[test]
fn an_earlier_versions_state_learns_its_account_only_from_what_it_finds() {
    let (here, elsewhere) = (Cloud::instant(), Cloud::instant());
    let project = Project::with(&[("all.yaml", &networks(2))]);
    assert_eq!(project.berth(&here, &["apply", "-f", "all.yaml", "--yes"]).code, Some(0));
    age(&project);

    // Not found is not gone: nobody knows whether this is the account.
    let commands: [&[&str]; 5] = [
        &["plan", "-f", "all.yaml"],
        &["apply", "-f", "all.yaml", "--yes"],
        &["drift"],
        &["refresh"],
        &["delete", "-f", "all.yaml", "--yes", "--allow-delete"],
    ];
    for command in commands {
        let ran = project.berth(&elsewhere, command);
        let said = ran.to_string();
        assert_eq!(ran.code, Some(1), "{command:?}\n{ran}");
        assert!(
            said.contains("does not say which account") && said.contains(&account(&elsewhere)),
            "{command:?}\n{ran}"
        );
        assert!(said.contains("--allow-recreate") && said.contains("--forget-missing"), "what to type\n{ran}");
        assert!(!said.contains("deleted outside"), "{ran}");
        assert_eq!(live(&elsewhere), [""; 0], "{ran}");
    }
    let get = project.berth(&here, &["get", "civovpc"]);
    assert!(!get.to_string().contains("Failed"), "{get}");

    // Found by its id, each unit learns whose it is.
    let plan = project.berth(&here, &["plan", "-f", "all.yaml", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(0), "an old state plans empty\n{plan}");
    let drift = project.berth(&here, &["drift"]);
    assert_eq!(drift.code, Some(0), "{drift}");
    refused(&project.berth(&elsewhere, &["plan", "-f", "all.yaml"]), &account(&here), &account(&elsewhere));

    // What was truly deleted before anything was learned takes a word.
    age(&project);
    let listed = here.call(berth_sandbox::civo::NAME, "GET", "/v2/networks?region=FRA1", None);
    let gone =
        listed.as_array().unwrap().iter().find(|n| n["label"] == "n0").unwrap()["id"].as_str().unwrap().to_owned();
    here.call(berth_sandbox::civo::NAME, "DELETE", &format!("/v2/networks/{gone}?region=FRA1"), None);
    let unsure = project.berth(&here, &["apply", "-f", "all.yaml", "--yes"]);
    assert!(unsure.code == Some(1) && unsure.to_string().contains(&gone), "{unsure}");
    let plan = project.berth(&here, &["plan", "-f", "all.yaml", "--allow-recreate"]);
    assert!(plan.code == Some(0) && plan.to_string().contains("1 unchanged, 1 to create"), "{plan}");
    let applied = project.berth(&here, &["apply", "-f", "all.yaml", "--yes", "--allow-recreate"]);
    assert_eq!(applied.code, Some(0), "{applied}");
    assert_eq!(live(&here).len(), 2);
    refused(&project.berth(&elsewhere, &["drift"]), &account(&here), &account(&elsewhere));
}

#[test]
fn much_gone_at_once_is_a_question() {
    let cloud = Cloud::instant();
    let project = Project::with(&[("all.yaml", &networks(8))]);
    assert_eq!(project.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]).code, Some(0));
    let delete = |names: &[&str]| {
        let listed = cloud.call(berth_sandbox::civo::NAME, "GET", "/v2/networks?region=FRA1", None);
        for network in listed.as_array().unwrap().iter().filter(|n| names.contains(&n["label"].as_str().unwrap())) {
            cloud.call(
                berth_sandbox::civo::NAME,
                "DELETE",
                &format!("/v2/networks/{}?region=FRA1", network["id"].as_str().unwrap()),
                None,
            );
        }
    };
    // A few are made again as ever.
    delete(&["n0", "n1", "n2"]);
    let plan = project.berth(&cloud, &["plan", "-f", "all.yaml"]);
    assert!(plan.code == Some(0) && !plan.to_string().contains("seem gone"), "{plan}");
    assert_eq!(project.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]).code, Some(0));

    delete(&["n0", "n1", "n2", "n3"]);
    let first = |ran: &Ran| ran.stdout.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    let plan = project.berth(&cloud, &["plan", "-f", "all.yaml"]);
    assert!(first(&plan).contains("4 of 8 objects of account env:civo seem gone"), "said first\n{plan}");
    let drift = project.berth(&cloud, &["drift"]);
    assert!(drift.code == Some(2) && first(&drift).contains("4 of 8 objects"), "said first\n{drift}");
    let refreshed = project.berth(&cloud, &["refresh"]);
    assert_eq!(refreshed.code, Some(0), "{refreshed}");
    let get = project.berth(&cloud, &["get", "civovpc"]);
    assert!(!get.to_string().contains("Failed"), "what is a question is not written down as news\n{get}");
    cloud.reset_calls();
    let held = project.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]);
    assert_eq!((held.code, cloud.mutating()), (Some(1), 0), "{held}");
    assert!(held.to_string().contains("--allow-recreate"), "{held}");
    let json = project.berth(&cloud, &["plan", "-f", "all.yaml", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["muchGone"][0]["gone"], &json["muchGone"][0]["of"]), (&4.into(), &8.into()));
    // A saved plan was looked at, and is allowed all the same.
    assert_eq!(project.berth(&cloud, &["plan", "-f", "all.yaml", "--out", "all.plan"]).code, Some(0));
    assert_eq!(project.berth(&cloud, &["apply", "all.plan"]).code, Some(1));
    let allowed = project.berth(&cloud, &["apply", "all.plan", "--allow-recreate"]);
    assert_eq!(allowed.code, Some(0), "{allowed}");
    assert_eq!(live(&cloud).len(), 8);
}
