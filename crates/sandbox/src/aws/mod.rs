//! AWS's APIs: one port for all services and regions, told apart by the scope of the signature.
//!
//! A call goes through one layer of its protocol (`wire`), which turns it into an `Ask`: the name of an action and its input as
//! a tree. The action's function, in the file of its service, answers with a tree, which the same layer writes. So a new action
//! is one function and one line in its service's list.

mod ask;
mod authenticate;
mod ec2;
mod eks;
mod errors;
mod events;
mod iam;
mod ids;
mod in_cluster;
mod kms;
mod logs;
mod paging;
mod permission;
mod principal;
mod resource_names;
mod s3;
mod sigv4;
mod sqs;
mod sts;
mod tables;
mod tagging;
#[cfg(test)]
mod tests;
mod tokens;
mod wire;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use hyper::Method;

use crate::clock::SimTime;
use crate::http::{Call, Cloud, Refusal, Reply};
use crate::kube::KubeServer;
use crate::kube::access::Login;
use crate::registry::{CloudName, CloudOption, CloudOptions, CloudStore, SimulatedCloud};
use crate::table::AnyTable;
use crate::world::{ClusterView, View, World};
use principal::Credentials;
use tables::ServiceTables;

pub const NAME: CloudName = CloudName("aws");

/// Objects of S3 are the largest bodies: states and backups.
const MAX_BODY_BYTES: usize = 64 << 20;

pub static CLOUD: SimulatedCloud = SimulatedCloud {
    name: NAME,
    title: "AWS",
    port: 7073,
    store: || Box::new(Store::default()),
    api: |world, kube, options| Ok(Arc::new(Aws::new(world, kube, options)?)),
    options: &[
        CloudOption {
            name: "credentials",
            value: Some("FILE"),
            help: "Take only requests signed with a key of this file, in the form of ~/.aws/credentials; any key otherwise",
        },
        CloudOption { name: "enforce", value: None, help: "Refuse what a caller's IAM policies do not allow" },
    ],
    storage_class: ("gp2", "kubernetes.io/aws-ebs"),
    clusters: in_cluster::TRAITS,
    client: Some(("aws", |url, token| {
        format!("AWS_ENDPOINT_URL={url} AWS_ACCESS_KEY_ID={token} AWS_SECRET_ACCESS_KEY={token} aws …")
    })),
    environment: &[("AWS_REGION", "eu-central-1"), ("AWS_EC2_METADATA_DISABLED", "true")],
};

type State<'a> = View<'a, Store>;

/// Declares the store with the tables of each service.
macro_rules! store {
    ($($service:ident),+ $(,)?) => {
        /// Every AWS object of the sandbox, by service.
        #[derive(Default)]
        pub struct Store {
            $($service: $service::Tables,)+
        }

        impl Store {
            fn services(&self) -> Vec<&dyn ServiceTables> {
                vec![$(&self.$service),+]
            }

            fn services_mut(&mut self) -> Vec<&mut dyn ServiceTables> {
                vec![$(&mut self.$service),+]
            }
        }
    };
}

store! {
    tokens,
    ec2,
    eks,
    events,
    iam,
    kms,
    logs,
    s3,
    sqs,
    sts,
}

impl CloudStore for Store {
    fn tables(&self) -> Vec<&dyn AnyTable> {
        self.services().into_iter().flat_map(ServiceTables::tables).collect()
    }

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        self.services_mut().into_iter().flat_map(ServiceTables::tables_mut).collect()
    }

    fn seed(&mut self, _now: SimTime) {}

    fn cluster_view(&self, id: &str, now: SimTime) -> Option<ClusterView> {
        eks::cluster_view(self, id, now)
    }
}

pub struct Aws {
    world: Arc<World>,
    kube: Arc<KubeServer>,
    /// The keys that are taken; any when there are none.
    credentials: Option<Credentials>,
    /// Whether IAM policies decide.
    enforce: bool,
    /// Keys of no known secret that turned out to be their own.
    keys_as_secrets: Mutex<BTreeSet<String>>,
}

impl Aws {
    fn new(world: Arc<World>, kube: Arc<KubeServer>, options: &CloudOptions) -> Result<Aws, String> {
        let credentials = options.get("credentials").map(|file| Credentials::read(file.as_ref())).transpose()?;
        Ok(Aws {
            world,
            kube,
            credentials,
            enforce: options.contains_key("enforce"),
            keys_as_secrets: Mutex::default(),
        })
    }
}

impl Cloud for Aws {
    fn name(&self) -> CloudName {
        NAME
    }

    fn handle(&self, call: &Call) -> Reply {
        wire::answer(self, call)
    }

    fn refuse(&self, call: Option<&Call>, refusal: &Refusal) -> Reply {
        wire::refuse(call, refusal)
    }

    /// `/ec2/CreateVpc`, as GET where it only reads.
    fn seen_as(&self, call: &Call) -> (Method, String) {
        wire::seen_as(call)
    }

    /// Signatures stand in for the token.
    fn authorised(&self, _: &Call, _: &str) -> bool {
        true
    }

    fn log_in(&self, cluster: &str, token: &str) -> Result<Login, String> {
        eks::authenticate(self, cluster, token)
    }

    fn cluster_of(&self, token: &str) -> Option<String> {
        eks::cluster_of(self, token)
    }

    fn max_body_bytes(&self) -> usize {
        MAX_BODY_BYTES
    }
}
