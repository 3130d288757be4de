//! Instance types: those that node groups are usually made of.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::resource::Cx;
use super::{paging, places};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};

pub struct InstanceType {
    pub name: &'static str,
    pub cpus: i64,
    pub memory_mib: i64,
    pub arch: &'static str,
    /// Network interfaces, and addresses of each: how many pods fit follows from them.
    pub interfaces: i64,
    pub addresses: i64,
    gpus: i64,
}

const fn x86(name: &'static str, cpus: i64, memory_gib: i64, interfaces: i64, addresses: i64) -> InstanceType {
    InstanceType { name, cpus, memory_mib: memory_gib * 1024, arch: "x86_64", interfaces, addresses, gpus: 0 }
}

const fn arm(name: &'static str, cpus: i64, memory_gib: i64, interfaces: i64, addresses: i64) -> InstanceType {
    InstanceType { arch: "arm64", ..x86(name, cpus, memory_gib, interfaces, addresses) }
}

const fn gpu(
    name: &'static str,
    cpus: i64,
    memory_gib: i64,
    interfaces: i64,
    addresses: i64,
    gpus: i64,
) -> InstanceType {
    InstanceType { gpus, ..x86(name, cpus, memory_gib, interfaces, addresses) }
}

pub static TYPES: &[InstanceType] = &[
    x86("t3.micro", 2, 1, 2, 2),
    x86("t3.small", 2, 2, 3, 4),
    x86("t3.medium", 2, 4, 3, 6),
    x86("t3.large", 2, 8, 3, 12),
    x86("t3.xlarge", 4, 16, 4, 15),
    x86("t3.2xlarge", 8, 32, 4, 15),
    x86("t3a.medium", 2, 4, 3, 6),
    x86("t3a.large", 2, 8, 3, 12),
    arm("t4g.small", 2, 2, 3, 4),
    arm("t4g.medium", 2, 4, 3, 6),
    arm("t4g.large", 2, 8, 3, 12),
    arm("t4g.xlarge", 4, 16, 4, 15),
    x86("m5.large", 2, 8, 3, 10),
    x86("m5.xlarge", 4, 16, 4, 15),
    x86("m5.2xlarge", 8, 32, 4, 15),
    x86("m5.4xlarge", 16, 64, 8, 30),
    x86("m5.8xlarge", 32, 128, 8, 30),
    x86("m5a.large", 2, 8, 3, 10),
    x86("m5a.xlarge", 4, 16, 4, 15),
    x86("m6i.large", 2, 8, 3, 10),
    x86("m6i.xlarge", 4, 16, 4, 15),
    x86("m6i.2xlarge", 8, 32, 4, 15),
    x86("m6i.4xlarge", 16, 64, 8, 30),
    arm("m6g.large", 2, 8, 3, 10),
    arm("m6g.xlarge", 4, 16, 4, 15),
    arm("m6g.2xlarge", 8, 32, 4, 15),
    x86("m7i.large", 2, 8, 3, 10),
    x86("m7i.xlarge", 4, 16, 4, 15),
    x86("m7i.2xlarge", 8, 32, 4, 15),
    arm("m7g.large", 2, 8, 3, 10),
    arm("m7g.xlarge", 4, 16, 4, 15),
    arm("m7g.2xlarge", 8, 32, 4, 15),
    x86("c5.large", 2, 4, 3, 10),
    x86("c5.xlarge", 4, 8, 4, 15),
    x86("c5.2xlarge", 8, 16, 4, 15),
    x86("c5.4xlarge", 16, 32, 8, 30),
    x86("c6i.large", 2, 4, 3, 10),
    x86("c6i.xlarge", 4, 8, 4, 15),
    x86("c6i.2xlarge", 8, 16, 4, 15),
    arm("c6g.large", 2, 4, 3, 10),
    arm("c6g.xlarge", 4, 8, 4, 15),
    arm("c7g.large", 2, 4, 3, 10),
    arm("c7g.xlarge", 4, 8, 4, 15),
    x86("r5.large", 2, 16, 3, 10),
    x86("r5.xlarge", 4, 32, 4, 15),
    x86("r5.2xlarge", 8, 64, 4, 15),
    x86("r6i.large", 2, 16, 3, 10),
    x86("r6i.xlarge", 4, 32, 4, 15),
    arm("r6g.large", 2, 16, 3, 10),
    gpu("g4dn.xlarge", 4, 16, 3, 10, 1),
    gpu("g4dn.2xlarge", 8, 32, 3, 10, 1),
    gpu("g5.xlarge", 4, 16, 4, 15, 1),
    gpu("g5.2xlarge", 8, 32, 4, 15, 1),
    gpu("p3.2xlarge", 8, 61, 4, 15, 1),
];

pub fn find(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|one| one.name == name)
}

impl InstanceType {
    fn burstable(&self) -> bool {
        self.name.starts_with('t')
    }

    fn show(&self) -> Value {
        let gpus = (self.gpus > 0).then(|| {
            let memory = 16_384;
            json!({"gpus": [{"name": if self.name.starts_with("g5") { "A10G" } else { "T4" }, "manufacturer": "NVIDIA",
                             "count": self.gpus, "memoryInfo": {"sizeInMiB": memory}}],
                   "totalGpuMemoryInMiB": memory * self.gpus})
        });
        let threads = if self.arch == "arm64" { 1 } else { 2 };
        json!({
            "instanceType": self.name,
            "currentGeneration": true,
            "freeTierEligible": self.name == "t3.micro",
            "supportedUsageClasses": ["on-demand", "spot"],
            "supportedRootDeviceTypes": ["ebs"],
            "supportedVirtualizationTypes": ["hvm"],
            "bareMetal": false,
            "hypervisor": "nitro",
            "processorInfo": {"supportedArchitectures": [self.arch], "sustainedClockSpeedInGhz": 2.5,
                              "manufacturer": if self.arch == "arm64" { "AWS" } else { "Intel" }},
            "vCpuInfo": {"defaultVCpus": self.cpus, "defaultCores": self.cpus / threads, "defaultThreadsPerCore": threads},
            "memoryInfo": {"sizeInMiB": self.memory_mib},
            "instanceStorageSupported": false,
            "ebsInfo": {"ebsOptimizedSupport": "default", "encryptionSupport": "supported", "nvmeSupport": "required"},
            "networkInfo": {"networkPerformance": "Up to 10 Gigabit", "maximumNetworkInterfaces": self.interfaces,
                            "maximumNetworkCards": 1, "defaultNetworkCardIndex": 0,
                            "ipv4AddressesPerInterface": self.addresses, "ipv6AddressesPerInterface": self.addresses,
                            "ipv6Supported": true, "enaSupport": "required", "efaSupported": false},
            "gpuInfo": gpus,
            "placementGroupInfo": {"supportedStrategies": ["partition", "spread"]},
            "hibernationSupported": false,
            "burstablePerformanceSupported": self.burstable(),
            "dedicatedHostsSupported": !self.burstable(),
            "autoRecoverySupported": true,
            "supportedBootModes": ["legacy-bios", "uefi"],
        })
    }
}

const FILTERS: &[Filter<InstanceType>] = &[
    ("instance-type", |one_type, _| one(one_type.name)),
    ("current-generation", |_, _| one(true)),
    ("bare-metal", |_, _| one(false)),
    ("burstable-performance-supported", |one_type, _| one(one_type.burstable())),
    ("free-tier-eligible", |one_type, _| one(one_type.name == "t3.micro")),
    ("hypervisor", |_, _| one("nitro")),
    ("instance-storage-supported", |_, _| one(false)),
    ("memory-info.size-in-mib", |one_type, _| one(one_type.memory_mib)),
    ("processor-info.supported-architecture", |one_type, _| one(one_type.arch)),
    ("supported-usage-class", |_, _| vec!["on-demand".into(), "spot".into()]),
    ("supported-root-device-type", |_, _| one("ebs")),
    ("supported-virtualization-type", |_, _| one("hvm")),
    ("vcpu-info.default-vcpus", |one_type, _| one(one_type.cpus)),
    ("network-info.maximum-network-interfaces", |one_type, _| one(one_type.interfaces)),
    ("network-info.ipv4-addresses-per-interface", |one_type, _| one(one_type.addresses)),
];

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters, names) = (Cx::of(ask), Filters::read(&ask.input), ask.input.texts("InstanceType"));
    filters.check(FILTERS)?;
    let unknown: Vec<_> = names.iter().filter(|name| find(name).is_none()).copied().collect();
    if !unknown.is_empty() {
        let message = format!("The following supplied instance types do not exist: [{}]", unknown.join(", "));
        return fail("InvalidInstanceType", message);
    }
    let fits = |one: &&InstanceType| {
        (names.is_empty() || names.contains(&one.name)) && filters.fit(*one, &cx, FILTERS, &Tags::new())
    };
    let (types, next) = paging::page(&ask.input, TYPES.iter().filter(fits).collect(), (5, 100))?;
    Ok(json!({"instanceTypeSet": types.into_iter().map(InstanceType::show).collect::<Vec<_>>(), "nextToken": next}))
}

type Offering = (&'static str, String);

const OFFERING_FILTERS: &[Filter<Offering>] =
    &[("instance-type", |(name, _), _| one(name)), ("location", |(_, location), _| one(location))];

pub fn describe_offerings(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    filters.check(OFFERING_FILTERS)?;
    let location_type = ask.input.text("LocationType").unwrap_or("region");
    let zones = places::zones(ask.region);
    let locations: Vec<String> = match location_type {
        "region" => vec![ask.region.to_owned()],
        "availability-zone" => zones.into_iter().map(|zone| zone.name).collect(),
        "availability-zone-id" => zones.into_iter().map(|zone| zone.id).collect(),
        other => {
            return fail("InvalidParameterValue", format!("Value ({other}) for parameter locationType is invalid."));
        }
    };
    let offerings = TYPES.iter().flat_map(|one| locations.iter().map(|location| (one.name, location.clone())));
    let offerings = offerings.filter(|offering| filters.fit(offering, &cx, OFFERING_FILTERS, &Tags::new()));
    let (offerings, next) = paging::page(&ask.input, offerings.collect(), paging::USUAL)?;
    let show =
        |(name, location): Offering| json!({"instanceType": name, "locationType": location_type, "location": location});
    Ok(json!({"instanceTypeOfferingSet": offerings.into_iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}
