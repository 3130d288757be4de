package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/civo/civogo"
	corev1 "k8s.io/api/core/v1"
)

// civoTerraform makes the calls of Civo's Terraform provider for a network, a firewall, a cluster and a node pool:
// apply, plan, a changed node count, destroy.
func civoTerraform(p *play, url string) {
	p.suite("Civo's Terraform provider, its calls")
	client, err := civogo.NewClientWithURL(token, url, civoRegion)
	var networkID, firewallID, clusterID, version string
	rules := []civogo.FirewallRule{
		{Label: "api", Protocol: "tcp", Ports: "6443", Cidr: []string{"192.0.2.0/24", "198.51.100.0/24"}, Direction: "ingress", Action: "allow"},
		{Label: "all", Protocol: "tcp", Ports: "1-65535", Cidr: []string{"0.0.0.0/0"}, Direction: "egress", Action: "allow"},
		{Label: "ping", Protocol: "icmp", Cidr: []string{"0.0.0.0/0"}, Direction: "egress", Action: "allow"},
	}
	const name, first, second, tags = "compat-tf", "workers", "batch", "env:compat team:b"
	labels := map[string]string{"for": "batch"}
	taints := []corev1.Taint{{Key: "batch", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
	counts := map[string]int{first: 1, second: 1}

	// What a plan compares: every attribute that the provider reads, with what was configured.
	unchanged := func() error {
		networks, err := client.ListNetworks()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(networks, func(n civogo.Network) bool { return n.ID == networkID })
		if at < 0 {
			return fmt.Errorf("the network is not in the list")
		}
		firewall, err := client.FindFirewall(firewallID)
		if err != nil {
			return err
		}
		cluster, err := client.GetKubernetesCluster(clusterID)
		if err != nil {
			return err
		}
		pool, err := client.GetKubernetesClusterPool(clusterID, second)
		if err != nil {
			return err
		}
		main := cluster.Pools[0]
		return all(
			same("the network's label", networks[at].Label, "compat-tf-net"), same("its range", networks[at].CIDR, "10.20.0.0/24"),
			want(slices.Equal(networks[at].NameserversV4, []string{"1.1.1.1", "8.8.8.8"}), "name servers %v", networks[at].NameserversV4),
			same("the firewall's name", firewall.Name, "compat-tf-fw"), same("its network", firewall.NetworkID, networkID),
			sameRules(firewall.Rules, rules),
			same("the cluster's name", cluster.Name, name), same("its network", cluster.NetworkID, networkID),
			same("its firewall", cluster.FirewallID, firewallID), same("its version", cluster.KubernetesVersion, version),
			same("its type", cluster.ClusterType, "k3s"), same("its CNI", cluster.CNIPlugin, "cilium"),
			same("its tags", strings.Join(cluster.Tags, " "), tags), same("its status", cluster.Status, "ACTIVE"),
			same("its default pool", main.ID, first), same("its size", main.Size, civoSize), same("its count", main.Count, counts[first]),
			same("its names", len(main.InstanceNames), counts[first]),
			same("the pool's count", pool.Count, counts[second]), same("its size", pool.Size, civoSize),
			want(maps.Equal(pool.Labels, labels), "the pool's labels are %v", pool.Labels),
			want(slices.Equal(pool.Taints, taints), "the pool's taints are %v", pool.Taints))
	}
	poolReady := func(id string) error {
		return until("the pool "+id, func() (bool, error) {
			cluster, err := client.GetKubernetesCluster(clusterID)
			if err != nil {
				return false, err
			}
			required, running, active := 0, 0, true
			for _, pool := range cluster.RequiredPools {
				if pool.ID == id {
					required = pool.Count
				}
			}
			for _, pool := range cluster.Pools {
				if pool.ID == id {
					running = pool.Count
					active = !slices.ContainsFunc(pool.Instances, func(i civogo.KubernetesInstance) bool { return i.Status != "ACTIVE" })
				}
			}
			return required > 0 && required == running && active, nil
		})
	}

	p.step("plan: the version is offered", func() error {
		if err != nil {
			return err
		}
		versions, err := client.ListAvailableKubernetesVersions()
		for _, offered := range versions {
			if offered.ClusterType == "k3s" && offered.Default && offered.Label != "" {
				version = offered.Version
			}
		}
		return all(err, want(version != "", "no default among %+v", versions))
	})
	p.step("apply: civo_network", func() error {
		made, err := client.CreateNetwork(civogo.NetworkConfig{Label: "compat-tf-net", CIDRv4: "10.20.0.0/24", Region: civoRegion,
			NameserversV4: []string{"1.1.1.1", "8.8.8.8"}})
		if err != nil {
			return err
		}
		networkID = made.ID
		// The provider leaves this one behind; it goes with the network.
		rules := true
		_, err = client.NewFirewall(&civogo.FirewallConfig{Name: "compat-tf-net-default", Region: civoRegion, NetworkID: networkID, CreateRules: &rules})
		return all(err, same("the result", made.Result, "success"))
	})
	p.step("apply: civo_firewall", func() error {
		defaults := false
		made, err := client.NewFirewall(&civogo.FirewallConfig{Name: "compat-tf-fw", Region: civoRegion, NetworkID: networkID,
			CreateRules: &defaults, Rules: rules})
		if err != nil {
			return err
		}
		found, err := client.FindFirewall("compat-tf-fw")
		if err != nil {
			return err
		}
		firewallID = found.ID
		return all(same("the result", made.Result, "success"), same("its network", found.NetworkID, networkID))
	})
	p.step("apply: civo_kubernetes_cluster", func() error {
		made, err := client.NewKubernetesClusters(&civogo.KubernetesClusterConfig{Name: name, NetworkID: networkID, KubernetesVersion: version,
			ClusterType: "k3s", CNIPlugin: "cilium", Tags: tags, InstanceFirewall: firewallID,
			Pools: []civogo.KubernetesClusterPoolConfig{{ID: first, Count: counts[first], Size: civoSize}}})
		if err != nil {
			return err
		}
		clusterID = made.ID
		return until("the cluster", func() (bool, error) {
			cluster, err := client.GetKubernetesCluster(clusterID)
			if err != nil {
				return false, err
			}
			known := slices.Contains([]string{"BUILDING", "AVAILABLE", "UPGRADING", "SCALING", "ACTIVE"}, cluster.Status)
			return cluster.Status == "ACTIVE", want(known, "the provider does not know the status %s", cluster.Status)
		})
	})
	p.step("apply: civo_kubernetes_node_pool, with labels and taints", func() error {
		_, err := client.CreateKubernetesClusterPool(clusterID, &civogo.KubernetesClusterPoolConfig{ID: second, Count: counts[second],
			Size: civoSize, Labels: labels, Taints: taints})
		return all(err, poolReady(second))
	})
	p.step("plan: no changes", unchanged)
	p.step("apply: more nodes in the cluster's own pool", func() error {
		found, err := client.FindKubernetesCluster(clusterID)
		if err != nil {
			return err
		}
		var pools []civogo.KubernetesClusterPoolConfig
		for _, pool := range found.Pools {
			config := civogo.KubernetesClusterPoolConfig{ID: pool.ID, Count: pool.Count, Size: pool.Size, Labels: pool.Labels, Taints: pool.Taints}
			if pool.ID == first {
				config.Count = 2
			}
			pools = append(pools, config)
		}
		counts[first] = 2
		_, err = client.UpdateKubernetesCluster(clusterID, &civogo.KubernetesClusterConfig{Pools: pools})
		return all(err, poolReady(first))
	})
	p.step("apply: more nodes in the other pool", func() error {
		two := 2
		counts[second] = two
		_, err := client.UpdateKubernetesClusterPool(clusterID, second, &civogo.KubernetesClusterPoolUpdateConfig{Count: &two, Region: civoRegion})
		return all(err, poolReady(second))
	})
	p.step("plan: no changes", unchanged)
	p.step("kubectl get nodes, with the kubeconfig from the state", func() error {
		cluster, err := client.GetKubernetesCluster(clusterID)
		if err != nil {
			return err
		}
		names, err := p.nodes([]byte(cluster.KubeConfig))
		return all(err, same("the number of nodes", len(names), 4))
	})
	p.step("destroy: civo_kubernetes_node_pool", func() error {
		_, err := client.DeleteKubernetesClusterPool(clusterID, second)
		return all(err, civoPoolGone(client, clusterID, second))
	})
	p.step("destroy: civo_kubernetes_cluster", func() error {
		_, err := client.DeleteKubernetesCluster(clusterID)
		return all(err, civoGone(client, clusterID))
	})
	p.step("destroy: civo_firewall, civo_network", func() error {
		deleted := func(what string, remove func() (*civogo.SimpleResponse, error)) error {
			return until(what+"'s end", func() (bool, error) {
				answer, err := remove()
				if err != nil {
					return false, err
				}
				return answer.Result == "success", want(answer.Result == "success" || answer.Result == "failed", "result %s", answer.Result)
			})
		}
		err := all(deleted("the firewall", func() (*civogo.SimpleResponse, error) { return client.DeleteFirewall(firewallID) }),
			civoNetworkGone(client, networkID))
		_, gone := client.FindFirewall(firewallID)
		return all(err, want(errors.Is(gone, civogo.ZeroMatchesError), "the firewall is still there: %v", gone))
	})
	p.step("nothing is left", func() error { return onlyDefaults(url) })
}

// sameRules compares what the provider puts into its state, in any order, as it keeps rules in a set.
func sameRules(got, expected []civogo.FirewallRule) error {
	text := func(rules []civogo.FirewallRule) string {
		var lines []string
		for _, rule := range rules {
			slices.Sort(rule.Cidr)
			lines = append(lines, fmt.Sprint(rule.Direction, " ", rule.Action, " ", rule.Protocol, " ", rule.Ports, " ", rule.Cidr, " ", rule.Label))
		}
		slices.Sort(lines)
		return strings.Join(lines, "; ")
	}
	return same("the rules", text(got), text(expected))
}
