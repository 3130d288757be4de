//! The sandbox as a process of its own.

use crate::support::folder::Folder;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ANY: [&str; 8] =
    ["--civo", "127.0.0.1:0", "--digitalocean", "127.0.0.1:0", "--aws", "127.0.0.1:0", "--kube", "127.0.0.1:0"];

/// Ended with the test, whatever happens in it.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Ends a sandbox in the background when the test is over.
struct Stop<'a>(&'a Folder);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        _ = self.0.command(&["sandbox", "--stop"]).output();
    }
}

fn get(url: &str, path: &str, token: &str) -> String {
    let address = url.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: bearer {token}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn foreground_serves_and_says_how_to_use_it() {
    let project = Folder::new();
    let mut args = vec!["sandbox", "--speed", "max"];
    args.extend(ANY);
    let child = project.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut serving = Serving(child);
    let out = BufReader::new(serving.0.stdout.take().unwrap());
    let lines: Vec<String> =
        out.lines().map_while(Result::ok).take_while(|line| !line.starts_with("To use it")).collect();
    let url = |cloud: &str| {
        let line = lines.iter().find(|line| line.starts_with(cloud)).expect("its line");
        line.split_whitespace().nth(1).expect("its address").to_owned()
    };
    assert!(get(&url("Civo"), "/v2/regions?region=fra1", "any").starts_with("HTTP/1.1 200"));
    assert!(get(&url("DigitalOcean"), "/v2/regions", "any").starts_with("HTTP/1.1 200"));
}

#[test]
fn background_stays_until_it_is_stopped() {
    let project = Folder::new();
    let _stop = Stop(&project);
    let mut args = vec!["sandbox", "--background", "--speed", "max", "--token", "planted-token"];
    args.extend(ANY);
    let run = project.berth(&args).ok();
    let record: serde_json::Value = serde_json::from_str(&project.read(".berth/sandbox.json")).unwrap();
    let (pid, url) = (record["pid"].as_u64().unwrap(), record["urls"]["civo"].as_str().unwrap());
    assert!(run.stdout.contains(url) && run.stderr.contains(&pid.to_string()), "{run}");
    assert!(get(url, "/v2/regions?region=fra1", "planted-token").starts_with("HTTP/1.1 200"));
    assert!(!get(url, "/v2/regions?region=fra1", "other").starts_with("HTTP/1.1 200"));
    for place in [".berth/sandbox.json", ".berth/sandbox.log"] {
        assert!(!project.read(place).contains("planted-token"), "{place}");
    }
    if let Ok(arguments) = std::fs::read_to_string(format!("/proc/{pid}/cmdline")) {
        assert!(arguments.contains("--detached") && !arguments.contains("planted-token"));
    }

    let again = project.berth(&args).exits(1);
    assert!(again.stderr.contains("has a sandbox running") && again.stderr.contains("berth sandbox --stop"), "{again}");

    project.berth(&["sandbox", "--stop"]).ok();
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).is_err());
    assert!(!project.path().join(".berth/sandbox.json").exists());
    let none = project.berth(&["sandbox", "--stop"]).ok();
    assert_eq!(none.stderr, "no sandbox is running for this project\n");
}

#[test]
fn faults_do_not_hide_the_sandbox_from_commands() {
    let vpc =
        "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanVpc\nmetadata: {name: net}\nspec: {region: fra1}\n";
    for fault in ["civo drop-before", "civo hold-before", "civo delay=1m"] {
        let project = Folder::new();
        let _stop = Stop(&project);
        let mut args = vec!["sandbox", "--background", "--speed", "max", "--fail", fault];
        args.extend(ANY);
        project.berth(&args).ok();
        project.write("net.yaml", vpc);
        project.berth(&["apply", "-f", "net.yaml", "--yes", "--sandbox"]).ok();
        let again = project.berth(&args).exits(1);
        assert!(again.stderr.contains("has a sandbox running"), "{fault}: {again}");
    }
}

#[test]
fn a_record_whose_process_is_gone_is_never_killed() {
    let project = Folder::new();
    let innocent = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let mut innocent = Serving(innocent);
    let record = format!(r#"{{"pid":{},"urls":{{"civo":"http://127.0.0.1:1"}},"speed":"1"}}"#, innocent.0.id());
    project.write(".berth/sandbox.json", &record);
    project.write(".berth/sandbox.lock", "");
    project.berth(&["sandbox", "--stop"]).ok();
    assert!(innocent.0.try_wait().unwrap().is_none(), "it must still run");
}

#[test]
fn what_cannot_start_says_why() {
    let project = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for extra in [&[][..], &["--background"]] {
        let mut args = vec![
            "sandbox",
            "--civo",
            &address,
            "--digitalocean",
            "127.0.0.1:0",
            "--aws",
            "127.0.0.1:0",
            "--kube",
            "127.0.0.1:0",
        ];
        args.extend(extra);
        let started = Instant::now();
        let run = project.berth(&args).exits(1);
        assert!(run.stderr.contains(&format!("cannot listen on {address}")), "{run}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    let rule = project.berth(&["sandbox", "--fail", "explode"]).exits(1);
    assert!(rule.stderr.contains("`explode` is not a rule for --fail"), "{rule}");
}
