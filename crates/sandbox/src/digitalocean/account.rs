//! What the clients ask about the account and the sandbox never changes: whose it is, its one project, images, VPC peerings
//! and subnets, and lists of things that a sandbox never has any of.

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::errors::{self, Answer};
use super::paging::Page;
use crate::http::{Call, Reply};

const PROJECT: &str = "4e1bfbc3-dc3e-41f2-a18f-1b4d7ba71679";
const SINCE: &str = "2020-01-01T00:00:00Z";

/// Path, and the root of its list.
const EMPTY: &[(&str, &str)] = &[
    ("actions", "actions"),
    ("certificates", "certificates"),
    ("databases", "databases"),
    ("domains", "domains"),
    ("droplets", "droplets"),
    ("firewalls", "firewalls"),
    ("load_balancers", "load_balancers"),
    ("reserved_ips", "reserved_ips"),
    ("snapshots", "snapshots"),
    ("tags", "tags"),
    ("volumes", "volumes"),
    ("vpc_nat_gateways", "vpc_nat_gateways"),
    ("vpc_peerings", "vpc_peerings"),
];

/// Id, slug, name, distribution.
const IMAGES: &[(u64, &str, &str, &str)] = &[
    (195_932_981, "ubuntu-24-04-x64", "24.04 (LTS) x64", "Ubuntu"),
    (195_931_577, "ubuntu-22-04-x64", "22.04 (LTS) x64", "Ubuntu"),
    (194_764_543, "debian-12-x64", "12 x64", "Debian"),
    (194_764_516, "debian-11-x64", "11 x64", "Debian"),
    (194_710_083, "rockylinux-9-x64", "9 x64", "Rocky Linux"),
    (194_709_876, "almalinux-9-x64", "9 x64", "AlmaLinux"),
    (188_374_241, "fedora-42-x64", "42 x64", "Fedora"),
];

/// The answer to a path that is known here; `None` for others.
pub fn route(state: &State, call: &Call, path: &[&str]) -> Option<Answer<Reply>> {
    let paged = |root: &str, all: Vec<Value>| Ok(Reply::json(200, &Page::of(call).cut(call, root, all)));
    let known = path.first().is_some_and(|first| EMPTY.iter().any(|(name, _)| name == first));
    let known = known || matches!(path.first(), Some(&("projects" | "images")));
    let of_vpc = matches!(path, ["vpcs", _, "peerings" | "subnets", ..]);
    if !known && !of_vpc {
        return None;
    }
    if call.method != Method::GET {
        return Some(Err(errors::forbidden("The sandbox does not simulate changes of this resource.")));
    }
    Some(match path {
        ["projects"] => paged("projects", vec![project(state)]),
        ["projects", "default" | PROJECT] => Ok(Reply::json(200, &json!({"project": project(state)}))),
        ["projects", "default" | PROJECT, "resources"] => paged("resources", resources(state)),
        ["images"] => paged("images", images(call)),
        ["images", id] => match IMAGES.iter().find(|image| image.1 == *id || image.0.to_string() == *id) {
            Some(found) => Ok(Reply::json(200, &json!({"image": image(found)}))),
            None => Err(errors::not_found()),
        },
        ["vpcs", id, list @ ("peerings" | "subnets")] => match state.store.vpcs.get(id) {
            Some(_) => paged(&format!("vpc_{list}"), vec![]),
            None => Err(errors::not_found()),
        },
        [name] => match EMPTY.iter().find(|(path, _)| path == name) {
            Some((_, root)) => paged(root, vec![]),
            None => Err(errors::not_found()),
        },
        _ => Err(errors::not_found()),
    })
}

pub fn account(team: &str) -> Value {
    json!({"account": {
        "droplet_limit": 1000, "floating_ip_limit": 5, "reserved_ip_limit": 5, "volume_limit": 100,
        "email": "sandbox@berth.dev", "name": "Sandbox", "uuid": "5a4db0c5-0000-4000-8000-00000000d0c5",
        "email_verified": true, "status": "active", "status_message": "",
        "team": {"uuid": team, "name": "Sandbox"},
    }})
}

fn project(state: &State) -> Value {
    let account = account(state.account);
    json!({
        "id": PROJECT, "owner_uuid": account["account"]["uuid"], "owner_id": 1, "name": "Sandbox",
        "description": "Everything in this sandbox", "purpose": "Operational / Developer tooling",
        "environment": "Development", "is_default": true, "created_at": SINCE,
        "updated_at": state.now.rfc3339(),
    })
}

/// New clusters and networks belong to the default project.
fn resources(state: &State) -> Vec<Value> {
    let store = &state.store;
    let clusters = store.clusters.iter().map(|c| (format!("do:kubernetes:{}", c.id), c.created));
    let resource = |(urn, at): (String, crate::clock::SimTime)| {
        let id = urn.rsplit(':').next().unwrap_or_default().to_owned();
        json!({"urn": urn, "assigned_at": at.rfc3339(), "status": "ok",
               "links": {"self": format!("https://api.digitalocean.com/v2/kubernetes/clusters/{id}")}})
    };
    clusters.map(resource).collect()
}

fn images(call: &Call) -> Vec<Value> {
    // All of them are public images of distributions.
    let wanted = call.query("private").is_none_or(|private| private != "true")
        && call.query("type").is_none_or(|kind| kind == "distribution");
    IMAGES.iter().filter(|_| wanted).map(image).collect()
}

fn image((id, slug, name, distribution): &(u64, &str, &str, &str)) -> Value {
    let regions: Vec<&str> = super::catalog::REGIONS.iter().map(|(region, _, _)| *region).collect();
    json!({
        "id": id, "name": name, "distribution": distribution, "slug": slug, "public": true, "regions": regions,
        "created_at": SINCE, "min_disk_size": 10, "type": "base", "size_gigabytes": 2.5, "description": name,
        "tags": [], "status": "available", "error_message": "",
    })
}
