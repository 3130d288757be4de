//! Every kind with everything that can be done to it: what is there before, what is declared after, and the command between.

/// One operation.
pub struct Case {
    pub name: &'static str,
    /// Applied before; empty for none.
    pub before: String,
    /// What must be there after.
    pub after: String,
    /// Resources to delete; none means `apply` of what is declared after.
    pub delete: &'static [&'static str],
}

fn apply(name: &'static str, before: &[&str], after: &[&str]) -> Case {
    Case { name, before: before.join("---\n"), after: after.join("---\n"), delete: &[] }
}

fn delete(name: &'static str, before: &[&str], after: &[&str], delete: &'static [&'static str]) -> Case {
    Case { delete, ..apply(name, before, after) }
}

pub fn net(name: &str, region: &str, more: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net}}\n\
         spec: {{networkName: {name}, region: {region}{more}}}\n"
    )
}

fn firewall(network: &str, ports: &[&str]) -> String {
    let rules = ports.iter().map(|port| format!("    - {{protocol: tcp, portRange: \"{port}\"}}\n"));
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {{name: fw}}\n\
         spec:\n  name: fw\n  networkId: {{valueFrom: {{name: {network}}}}}\n  inboundRules:\n{}",
        rules.collect::<String>()
    )
}

pub struct Civo {
    pub version: &'static str,
    pub size: &'static str,
    pub count: u32,
    pub more: &'static str,
}

pub const CIVO: Civo = Civo { version: "1.30.5-k3s1", size: "g4s.kube.medium", count: 2, more: "" };

impl Civo {
    pub fn text(&self) -> String {
        let Civo { version, size, count, more } = self;
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {{name: shop}}\n\
             spec:\n  clusterName: shop-k8s\n  region: fra1\n  kubernetesVersion: {version}\n\
             \x20 network: {{valueFrom: {{name: net}}}}\n  defaultNodePool: {{size: {size}, nodeCount: {count}}}\n{more}"
        )
    }
}

pub fn civo_pool(size: &str, count: u32, more: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {{name: batch}}\n\
         spec: {{nodePoolName: batch, cluster: {{valueFrom: {{name: shop}}}}, size: {size}, nodeCount: {count}{more}}}\n"
    )
}

pub fn vpc(region: &str, more: &str) -> String {
    format!(
        "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanVpc\nmetadata: {{name: do-net}}\n\
         spec: {{region: {region}{more}}}\n"
    )
}

pub struct DigitalOcean {
    pub region: &'static str,
    pub version: &'static str,
    pub size: &'static str,
    pub count: u32,
    pub more: &'static str,
}

pub const DIGITALOCEAN: DigitalOcean =
    DigitalOcean { region: "fra1", version: "1.32.5-do.0", size: "s-2vcpu-4gb", count: 2, more: "" };

impl DigitalOcean {
    pub fn text(&self) -> String {
        let DigitalOcean { region, version, size, count, more } = self;
        format!(
            "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanKubernetesCluster\nmetadata: {{name: blog}}\n\
             spec:\n  clusterName: blog-k8s\n  region: {region}\n  kubernetesVersion: {version}\n\
             \x20 vpc: {{valueFrom: {{name: do-net}}}}\n  defaultNodePool: {{size: {size}, nodeCount: {count}}}\n{more}"
        )
    }
}

fn do_pool(size: &str, count: u32, more: &str) -> String {
    format!(
        "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanKubernetesNodePool\nmetadata: {{name: waves}}\n\
         spec: {{nodePoolName: waves, cluster: {{valueFrom: {{name: blog}}}}, size: {size}, nodeCount: {count}{more}}}\n"
    )
}

const POOLS: &str = "  additionalNodePools:\n    - {name: web, size: g4s.kube.medium, nodeCount: 2}\n    \
                     - {name: waves, size: g4s.kube.large, nodeCount: 1, autoScale: true, minNodes: 1, maxNodes: 5}\n";
const POOLS_SCALED: &str = "  additionalNodePools:\n    - {name: web, size: g4s.kube.medium, nodeCount: 4}\n    \
                            - {name: waves, size: g4s.kube.large, nodeCount: 1, autoScale: true, minNodes: 1, maxNodes: 9}\n";
const POOLS_ROLLED: &str = "  additionalNodePools:\n    - {name: web, size: g4s.kube.large, nodeCount: 2}\n    \
                            - {name: waves, size: g4s.kube.xlarge, nodeCount: 1, autoScale: true, minNodes: 1, maxNodes: 5}\n";
const POOLS_FEWER: &str = "  additionalNodePools:\n    - {name: web, size: g4s.kube.medium, nodeCount: 2}\n";
const SCALES: &str = ", autoScale: true, minNodes: 1, maxNodes: 5";

pub fn civo() -> Vec<Case> {
    let net_a = &*net("net-a", "fra1", "");
    let other = &*net("net-b", "fra1", "").replace("name: net}", "name: other}");
    let fw = &*firewall("net", &["443", "80", "22"]);
    let plain = &*CIVO.text();
    let pools = &*Civo { more: POOLS, ..CIVO }.text();
    let batch = &*civo_pool("g4s.kube.large", 2, "");
    let scaled = &*civo_pool("g4s.kube.large", 2, SCALES);
    vec![
        apply("CivoVpc create", &[], &[net_a]),
        apply("CivoVpc update", &[net_a], &[&net("renamed", "fra1", "")]),
        apply("CivoVpc replace", &[net_a], &[&net("net-a", "lon1", "")]),
        delete("CivoVpc delete", &[net_a], &[], &["CivoVpc/net"]),
        apply("CivoFirewall create", &[net_a], &[net_a, fw]),
        apply("CivoFirewall update", &[net_a, fw], &[net_a, &firewall("net", &["443", "8080", "9090"])]),
        apply("CivoFirewall replace", &[net_a, other, fw], &[net_a, other, &firewall("other", &["443", "80", "22"])]),
        delete("CivoFirewall delete", &[net_a, fw], &[net_a], &["CivoFirewall/fw"]),
        apply("CivoKubernetesCluster create", &[net_a], &[net_a, plain]),
        apply("CivoKubernetesCluster create with pools", &[], &[net_a, pools]),
        apply(
            "CivoKubernetesCluster create with api firewall",
            &[net_a],
            &[net_a, &Civo { more: "  apiAllowedCidrs: [203.0.113.0/24]\n", ..CIVO }.text()],
        ),
        apply("CivoKubernetesCluster scale", &[net_a, plain], &[net_a, &Civo { count: 4, ..CIVO }.text()]),
        apply("CivoKubernetesCluster scale down", &[net_a, plain], &[net_a, &Civo { count: 1, ..CIVO }.text()]),
        apply(
            "CivoKubernetesCluster scale pools",
            &[net_a, pools],
            &[net_a, &Civo { count: 3, more: POOLS_SCALED, ..CIVO }.text()],
        ),
        apply("CivoKubernetesCluster add pools", &[net_a, plain], &[net_a, pools]),
        apply(
            "CivoKubernetesCluster remove a pool",
            &[net_a, pools],
            &[net_a, &Civo { more: POOLS_FEWER, ..CIVO }.text()],
        ),
        apply(
            "CivoKubernetesCluster replace pools",
            &[net_a, pools],
            &[net_a, &Civo { more: POOLS_ROLLED, ..CIVO }.text()],
        ),
        apply(
            "CivoKubernetesCluster update tags, applications, firewall",
            &[net_a, plain],
            &[
                net_a,
                &Civo {
                    more: "  tags: [one, two]\n  applications: [metrics-server]\n  apiAllowedCidrs: [203.0.113.0/24]\n",
                    ..CIVO
                }
                .text(),
            ],
        ),
        apply(
            "CivoKubernetesCluster upgrade",
            &[net_a, plain],
            &[net_a, &Civo { version: "1.31.2-k3s1", ..CIVO }.text()],
        ),
        apply(
            "CivoKubernetesCluster upgrade and scale",
            &[net_a, plain],
            &[net_a, &Civo { version: "1.31.2-k3s1", count: 3, ..CIVO }.text()],
        ),
        apply(
            "CivoKubernetesCluster roll default pool",
            &[net_a, plain],
            &[net_a, &Civo { size: "g4s.kube.large", ..CIVO }.text()],
        ),
        apply(
            "CivoKubernetesCluster replace",
            &[net_a, pools],
            &[net_a, &Civo { more: &*format!("  cni: cilium\n{POOLS}").leak(), ..CIVO }.text()],
        ),
        apply(
            "CivoVpc replace under a cluster",
            &[net_a, plain],
            &[&net("net-a", "lon1", ""), &plain.replace("region: fra1", "region: lon1")],
        ),
        delete("CivoKubernetesCluster delete", &[net_a, pools], &[net_a], &["CivoKubernetesCluster/shop"]),
        apply("CivoKubernetesNodePool create", &[net_a, plain], &[net_a, plain, batch]),
        apply("CivoKubernetesNodePool create autoscaled", &[net_a, plain], &[net_a, plain, scaled]),
        apply(
            "CivoKubernetesNodePool scale",
            &[net_a, plain, batch],
            &[net_a, plain, &civo_pool("g4s.kube.large", 4, "")],
        ),
        apply(
            "CivoKubernetesNodePool labels and taints",
            &[net_a, plain, batch],
            &[
                net_a,
                plain,
                &civo_pool(
                    "g4s.kube.large",
                    2,
                    ", labels: {a: b}, taints: [{key: dedicated, value: batch, effect: NoSchedule}]",
                ),
            ],
        ),
        apply(
            "CivoKubernetesNodePool replace",
            &[net_a, plain, batch],
            &[net_a, plain, &civo_pool("g4s.kube.xlarge", 2, "")],
        ),
        apply(
            "CivoKubernetesNodePool replace autoscaled",
            &[net_a, plain, scaled],
            &[net_a, plain, &civo_pool("g4s.kube.xlarge", 2, SCALES)],
        ),
        delete(
            "CivoKubernetesNodePool delete",
            &[net_a, plain, batch],
            &[net_a, plain],
            &["CivoKubernetesNodePool/batch"],
        ),
        delete(
            "CivoKubernetesNodePool delete autoscaled",
            &[net_a, plain, scaled],
            &[net_a, plain],
            &["CivoKubernetesNodePool/batch"],
        ),
        delete(
            "Civo delete everything",
            &[net_a, fw, pools, batch],
            &[],
            &["CivoKubernetesNodePool/batch", "CivoKubernetesCluster/shop", "CivoFirewall/fw", "CivoVpc/net"],
        ),
    ]
}

pub fn digitalocean() -> Vec<Case> {
    let net = &*vpc("fra1", "");
    let plain = &*DIGITALOCEAN.text();
    let waves = &*do_pool("s-4vcpu-8gb", 2, "");
    let scaled = &*do_pool("s-4vcpu-8gb", 2, ", autoScale: true, minNodes: 1, maxNodes: 5");
    let with = |more| DigitalOcean { more, ..DIGITALOCEAN }.text();
    vec![
        apply("DigitalOceanVpc create", &[], &[net]),
        apply("DigitalOceanVpc update", &[net], &[&vpc("fra1", ", description: changed")]),
        apply("DigitalOceanVpc replace", &[net], &[&vpc("nyc3", "")]),
        delete("DigitalOceanVpc delete", &[net], &[], &["DigitalOceanVpc/do-net"]),
        apply("DigitalOceanKubernetesCluster create", &[net], &[net, plain]),
        apply(
            "DigitalOceanKubernetesCluster create with registry",
            &[],
            &[net, &with("  registryIntegration: true\n  tags: [one]\n"), waves],
        ),
        apply(
            "DigitalOceanKubernetesCluster scale",
            &[net, plain],
            &[net, &DigitalOcean { count: 4, ..DIGITALOCEAN }.text()],
        ),
        apply(
            "DigitalOceanKubernetesCluster update",
            &[net, plain],
            &[
                net,
                &with(
                    "  tags: [one, two]\n  autoUpgrade: true\n  maintenanceWindow: sunday=02:00\n  registryIntegration: true\n",
                ),
            ],
        ),
        apply(
            "DigitalOceanKubernetesCluster upgrade",
            &[net, plain],
            &[net, &DigitalOcean { version: "1.33.1-do.0", ..DIGITALOCEAN }.text()],
        ),
        apply(
            "DigitalOceanKubernetesCluster upgrade and scale",
            &[net, plain],
            &[net, &DigitalOcean { version: "1.33.1-do.0", count: 3, ..DIGITALOCEAN }.text()],
        ),
        apply(
            "DigitalOceanKubernetesCluster roll default pool",
            &[net, plain],
            &[net, &DigitalOcean { size: "s-4vcpu-8gb", ..DIGITALOCEAN }.text()],
        ),
        apply(
            "DigitalOceanKubernetesCluster replace",
            &[net, plain, waves],
            &[&vpc("nyc3", ""), &DigitalOcean { region: "nyc3", ..DIGITALOCEAN }.text(), waves],
        ),
        delete(
            "DigitalOceanKubernetesCluster delete",
            &[net, &with("  registryIntegration: true\n")],
            &[net],
            &["DigitalOceanKubernetesCluster/blog"],
        ),
        apply("DigitalOceanKubernetesNodePool create", &[net, plain], &[net, plain, waves]),
        apply("DigitalOceanKubernetesNodePool create autoscaled", &[net, plain], &[net, plain, scaled]),
        apply(
            "DigitalOceanKubernetesNodePool scale",
            &[net, plain, waves],
            &[net, plain, &do_pool("s-4vcpu-8gb", 4, "")],
        ),
        apply(
            "DigitalOceanKubernetesNodePool update",
            &[net, plain, waves],
            &[
                net,
                plain,
                &do_pool(
                    "s-4vcpu-8gb",
                    2,
                    ", labels: {a: b}, tags: [t], taints: [{key: dedicated, value: batch, effect: NoSchedule}]",
                ),
            ],
        ),
        apply(
            "DigitalOceanKubernetesNodePool replace",
            &[net, plain, waves],
            &[net, plain, &do_pool("s-8vcpu-16gb", 2, "")],
        ),
        delete(
            "DigitalOceanKubernetesNodePool delete",
            &[net, plain, waves],
            &[net, plain],
            &["DigitalOceanKubernetesNodePool/waves"],
        ),
        delete(
            "DigitalOcean delete everything",
            &[net, plain, waves],
            &[],
            &["DigitalOceanKubernetesNodePool/waves", "DigitalOceanKubernetesCluster/blog", "DigitalOceanVpc/do-net"],
        ),
    ]
}
