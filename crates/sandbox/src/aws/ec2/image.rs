//! Images: Amazon Linux, and those that EKS gives its nodes.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::paging;
use super::resource::Cx;
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};
use crate::aws::ids;

/// Who owns EKS's images, and who owns Amazon Linux.
const EKS_OWNER: &str = "602401143452";
const AMAZON: &str = "137112412989";
const EKS_VERSIONS: [&str; 6] = ["1.29", "1.30", "1.31", "1.32", "1.33", "1.34"];
const EKS_RELEASE: &str = "v20251103";
const MADE: &str = "2025-11-03T18:00:00.000Z";

pub struct Image {
    pub id: String,
    name: String,
    description: String,
    owner: &'static str,
    arch: &'static str,
}

fn image(region: &str, name: String, description: String, owner: &'static str, arch: &'static str) -> Image {
    let id = format!("ami-0{}", ids::stable(&format!("{region}/{name}"), 16));
    Image { id, name, description, owner, arch }
}

fn all(region: &str) -> Vec<Image> {
    let mut images = Vec::new();
    for arch in ["x86_64", "arm64"] {
        let name = format!("al2023-ami-2023.9.20251103.0-kernel-6.1-{arch}");
        images.push(image(region, name, format!("Amazon Linux 2023 AMI ({arch} HVM kernel-6.1)"), AMAZON, arch));
        for version in EKS_VERSIONS {
            let name = format!("amazon-eks-node-al2023-{arch}-standard-{version}-{EKS_RELEASE}");
            let description = format!("EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: {version})");
            images.push(image(region, name, description, EKS_OWNER, arch));
        }
    }
    images
}

/// The image of a node with this version and architecture.
pub fn of_node(region: &str, version: &str, arch: &str) -> String {
    let name = format!("amazon-eks-node-al2023-{arch}-standard-{version}-{EKS_RELEASE}");
    image(region, name, String::new(), EKS_OWNER, "x86_64").id
}

impl Image {
    fn show(&self) -> Value {
        let disk = json!({"deleteOnTermination": true, "volumeSize": 20, "volumeType": "gp3", "encrypted": false,
                          "snapshotId": format!("snap-0{}", ids::stable(&self.id, 16))});
        json!({
            "imageId": self.id,
            "imageLocation": format!("amazon/{}", self.name),
            "imageState": "available",
            "imageOwnerId": self.owner,
            "imageOwnerAlias": "amazon",
            "imageType": "machine",
            "isPublic": true,
            "architecture": self.arch,
            "name": self.name,
            "description": self.description,
            "creationDate": MADE,
            "platformDetails": "Linux/UNIX",
            "usageOperation": "RunInstances",
            "rootDeviceName": "/dev/xvda",
            "rootDeviceType": "ebs",
            "virtualizationType": "hvm",
            "hypervisor": "xen",
            "enaSupport": true,
            "sriovNetSupport": "simple",
            "blockDeviceMapping": [{"deviceName": "/dev/xvda", "ebs": disk}],
            "tagSet": [],
        })
    }
}

const FILTERS: &[Filter<Image>] = &[
    ("image-id", |image, _| one(&image.id)),
    ("name", |image, _| one(&image.name)),
    ("description", |image, _| one(&image.description)),
    ("architecture", |image, _| one(image.arch)),
    ("owner-alias", |_, _| one("amazon")),
    ("owner-id", |image, _| one(image.owner)),
    ("is-public", |_, _| one(true)),
    ("state", |_, _| one("available")),
    ("image-type", |_, _| one("machine")),
    ("root-device-type", |_, _| one("ebs")),
    ("root-device-name", |_, _| one("/dev/xvda")),
    ("virtualization-type", |_, _| one("hvm")),
    ("hypervisor", |_, _| one("xen")),
    ("ena-support", |_, _| one(true)),
    ("creation-date", |_, _| one(MADE)),
    ("platform-details", |_, _| one("Linux/UNIX")),
    ("block-device-mapping.volume-type", |_, _| one("gp3")),
];

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    filters.check(FILTERS)?;
    let (ids, owners) = (ask.input.texts("ImageId"), ask.input.texts("Owner"));
    let known = all(ask.region);
    if let Some(unknown) = ids.iter().find(|id| !known.iter().any(|image| image.id == **id)) {
        return match unknown.starts_with("ami-") {
            true => fail("InvalidAMIID.NotFound", format!("The image id '[{unknown}]' does not exist")),
            false => fail("InvalidAMIID.Malformed", format!("Invalid id: \"{unknown}\" (expecting \"ami-...\")")),
        };
    }
    let fits = |image: &Image| {
        let owned = owners.is_empty() || owners.iter().any(|owner| *owner == image.owner || *owner == "amazon");
        let asked = ids.is_empty() || ids.contains(&image.id.as_str());
        owned && asked && filters.fit(image, &cx, FILTERS, &Tags::new())
    };
    let images: Vec<_> = known.into_iter().filter(fits).collect();
    let (images, next) = paging::page(&ask.input, images, (1, 1000))?;
    Ok(json!({"imagesSet": images.iter().map(Image::show).collect::<Vec<_>>(), "nextToken": next}))
}
