package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/civo/civogo"
)

const (
	civoRegion = "FRA1"
	civoSize   = "g4s.kube.small"
)

// civoCommands makes the calls of Civo's command-line client. Like it, this finds everything by name in lists, and
// takes a cluster's kubeconfig and instances from the list.
func civoCommands(p *play, url string) {
	p.suite("Civo's command-line client, its calls")
	client, err := civogo.NewClientWithURL(token, url, civoRegion)
	var older, newer string
	var network *civogo.Network
	var cluster *civogo.KubernetesCluster
	var kubeconfig []byte
	const name, pool = "compat", "extra-pool"

	find := func() (*civogo.KubernetesCluster, error) { return client.FindKubernetesCluster(name) }
	settled := func(what string, more func(*civogo.KubernetesCluster) bool) error {
		return until(what, func() (bool, error) {
			found, err := find()
			if err != nil {
				return false, err
			}
			cluster = found
			return found.Ready && found.Status == "ACTIVE" && more(found), nil
		})
	}
	anything := func(*civogo.KubernetesCluster) bool { return true }
	nodes := func(expected int) error {
		names, err := p.nodes(kubeconfig)
		return all(err, same("the number of nodes", len(names), expected))
	}

	p.step("region ls, quota show", func() error {
		if err != nil {
			return err
		}
		region, err := client.FindRegion("fra1")
		if err != nil {
			return err
		}
		first, err := client.GetDefaultRegion()
		if err != nil {
			return err
		}
		quota, err := client.GetQuota()
		return all(err, client.Ping(),
			want(client.GetAccountID() != "", "the account has no id"),
			want(region.Features.Kubernetes && !region.OutOfCapacity, "%s offers no clusters: %+v", region.Code, region),
			want(first.Default, "no region is the default"),
			want(quota.InstanceCountLimit > 0, "the quota is empty"))
	})
	p.step("a wrong API key is refused", func() error {
		stranger, err := civogo.NewClientWithURL("wrong", url, civoRegion)
		if err != nil {
			return err
		}
		_, refused := stranger.ListKubernetesClusters()
		return want(errors.Is(refused, civogo.AuthenticationError), "the refusal is %v", refused)
	})
	p.step("size ls", func() error {
		size, err := client.FindInstanceSizes(civoSize)
		if err != nil {
			return err
		}
		return want(strings.EqualFold(size.Type, "kubernetes") && size.CPUCores > 0 && size.RAMMegabytes > 0 && size.Selectable,
			"%+v", size)
	})
	p.step("kubernetes versions", func() error {
		versions, err := client.ListAvailableKubernetesVersions()
		if err != nil {
			return err
		}
		defaults := 0
		for _, version := range versions {
			switch {
			case version.ClusterType != "k3s":
			case version.Default:
				newer = version.Version
				defaults++
			case version.Type == "stable" && newer != "" && older == "":
				older = version.Version
			}
		}
		return all(same("the number of defaults", defaults, 1), want(older != "", "nothing but %s in %+v", newer, versions))
	})
	p.step("kubernetes applications list", func() error {
		applications, err := client.ListKubernetesMarketplaceApplications()
		if err != nil {
			return err
		}
		withPlan, byDefault := false, false
		for _, application := range applications {
			withPlan = withPlan || len(application.Plans) > 0
			byDefault = byDefault || application.Default
		}
		return want(withPlan && byDefault, "%+v", applications)
	})
	p.step("network create, ls, update", func() error {
		made, err := client.CreateNetwork(civogo.NetworkConfig{Label: "compat-old", Region: civoRegion})
		if err != nil {
			return err
		}
		if err := until("the network", func() (bool, error) {
			network, err = client.GetNetwork(made.ID)
			return err == nil && network.Status == "Active", err
		}); err != nil {
			return err
		}
		_, renamed := client.RenameNetwork("compat-net", made.ID)
		_, twice := client.CreateNetwork(civogo.NetworkConfig{Label: "compat-net", Region: civoRegion})
		network, err = client.FindNetwork("compat-net")
		return all(renamed, err, same("the id", network.ID, made.ID), want(network.CIDR != "", "no CIDR"),
			want(errors.Is(twice, civogo.DatabaseNetworkDuplicateNameError), "a second one of that name: %v", twice))
	})
	p.step("network show NAME, network update NAME --nameservers-v4", func() error {
		// The client sends what its user typed as the id, and an empty label with a change of the name servers alone.
		shown, err := client.GetNetwork("compat-net")
		if err != nil {
			return err
		}
		_, updated := client.UpdateNetwork(network.ID, civogo.NetworkConfig{Region: civoRegion, NameserversV4: []string{"9.9.9.9"}})
		found, err := client.FindNetwork("compat-net")
		return all(updated, err, same("the id", shown.ID, network.ID),
			want(err != nil || slices.Equal(found.NameserversV4, []string{"9.9.9.9"}), "%+v", found))
	})
	p.step("network create --create-default-firewall, network remove", func() error { return civoDefaultFirewall(client) })
	p.step("diskimage ls, volumetypes ls, subnet ls, size ls, the default firewall", func() error { return civoLookUps(client, network.ID) })
	p.step("the newer paths, /v2/vpc, show the same", func() error {
		list, err := client.SendGetRequest("/v2/vpc/networks")
		if err != nil {
			return err
		}
		one, err := client.SendGetRequest("/v2/vpc/networks/" + network.ID)
		if err != nil {
			return err
		}
		typed, err := client.FindVPCNetwork("compat-net")
		if err != nil {
			return err
		}
		_, err = client.FindVPCFirewall("default-default")
		return all(err, same("the id", typed.ID, network.ID), want(strings.Contains(string(list), network.ID), "not in %s", list), want(strings.Contains(string(one), "compat-net"), "%s", one))
	})
	p.step("firewall create, rule create, rule ls, rule remove, update", func() error { return civoFirewall(client, network.ID) })
	p.step("kubernetes create --wait", func() error {
		applications, err := client.ListKubernetesMarketplaceApplications()
		if err != nil {
			return err
		}
		var defaults []string
		for _, application := range applications {
			if application.Default {
				defaults = append(defaults, application.Name)
			}
		}
		made, err := client.NewKubernetesClusters(&civogo.KubernetesClusterConfig{
			Name: name, NumTargetNodes: 2, TargetNodesSize: civoSize, NetworkID: network.ID, CNIPlugin: "flannel",
			KubernetesVersion: older, Applications: strings.Join(defaults, ","), FirewallRule: "80,443,6443",
		})
		if err != nil {
			return err
		}
		return all(same("its name", made.Name, name), same("its size", made.NumTargetNode, 2), settled("the cluster", anything))
	})
	p.step("kubernetes ls, show", func() error {
		found, err := find()
		if err != nil {
			return err
		}
		firewall, err := client.FindFirewall(found.FirewallID)
		if err != nil {
			return err
		}
		balancers, err := client.ListLoadBalancers()
		if err != nil {
			return err
		}
		shown := 0
		for _, instance := range found.Instances {
			for _, hostname := range found.Pools[0].InstanceNames {
				if strings.Contains(hostname, instance.Hostname[5:]) && instance.CPUCores > 0 && instance.Status == "ACTIVE" {
					shown++
				}
			}
		}
		ports := []string{}
		for _, rule := range firewall.Rules {
			if rule.Direction == "ingress" {
				ports = append(ports, rule.Ports)
			}
		}
		return all(same("the number of load balancers", len(balancers), 0), same("the number of instances", shown, 2),
			want(len(found.Pools[0].ID) > 6 && found.APIEndPoint != "" && found.MasterIP != "", "%+v", found),
			want(found.UpgradeAvailableTo != "", "no upgrade from %s", found.KubernetesVersion),
			want(len(found.Conditions) == 3 && len(found.InstalledApplications) > 0, "%+v", found),
			want(slices.Contains(ports, "6443") && slices.Contains(ports, "443"), "the firewall opens %v", ports))
	})
	p.step("kubernetes config, kubectl get nodes", func() error {
		kubeconfig = []byte(cluster.KubeConfig)
		return nodes(2)
	})
	p.step("kubernetes node-pool create, ls, scale, instance-ls, instance-delete, delete", func() error {
		return civoPool(client, cluster.ID, pool, settled, nodes)
	})
	p.step("kubernetes update --firewall NAME", func() error {
		own := cluster.FirewallID
		made, err := client.NewFirewall(&civogo.FirewallConfig{Name: "compat-door", Region: civoRegion, NetworkID: network.ID})
		if err != nil {
			return err
		}
		changed, err := client.UpdateKubernetesCluster(cluster.ID, &civogo.KubernetesClusterConfig{FirewallID: "compat-door"})
		if err != nil {
			return err
		}
		_, back := client.UpdateKubernetesCluster(cluster.ID, &civogo.KubernetesClusterConfig{FirewallID: own})
		_, removed := client.DeleteFirewall(made.ID)
		return all(back, removed, same("its firewall", changed.FirewallID, made.ID))
	})
	p.step("kubernetes applications add", func() error {
		_, err := client.UpdateKubernetesCluster(cluster.ID, &civogo.KubernetesClusterConfig{Applications: "Redis"})
		return all(err, settled("Redis", func(found *civogo.KubernetesCluster) bool {
			return slices.ContainsFunc(found.InstalledApplications, func(application civogo.KubernetesInstalledApplication) bool {
				return strings.EqualFold(application.Name, "redis") && application.Installed
			})
		}))
	})
	p.step("kubernetes upgrade", func() error {
		_, err := client.UpdateKubernetesCluster(cluster.ID, &civogo.KubernetesClusterConfig{KubernetesVersion: newer})
		return all(err, settled("the upgrade", func(found *civogo.KubernetesCluster) bool { return found.KubernetesVersion == newer }))
	})
	p.step("kubernetes recycle", func() error {
		old := cluster.Instances[0].Hostname
		_, err := client.RecycleKubernetesCluster(cluster.ID, old)
		return all(err, settled("a new node", func(found *civogo.KubernetesCluster) bool {
			stays := slices.ContainsFunc(found.Instances, func(i civogo.KubernetesInstance) bool { return i.Hostname == old })
			return !stays && len(found.Instances) == 2
		}), nodes(2))
	})
	p.step("refusals become the client's own errors", func() error {
		config := civogo.KubernetesClusterConfig{Name: name, TargetNodesSize: civoSize, NumTargetNodes: 1, NetworkID: network.ID}
		_, twice := client.NewKubernetesClusters(&config)
		config.Name, config.TargetNodesSize = "other", "g9.kube.huge"
		_, size := client.NewKubernetesClusters(&config)
		_, unknown := client.GetKubernetesCluster("00000000-0000-4000-8000-000000000000")
		home, err := client.GetDefaultNetwork()
		if err != nil {
			return err
		}
		_, last := client.DeleteNetwork(home.ID)
		_, used := client.DeleteNetwork(network.ID)
		return all(
			want(errors.Is(twice, civogo.DatabaseKubernetesClusterDuplicateError), "a name twice: %v", twice),
			want(errors.Is(size, civogo.DatabaseSizeNotFoundError), "an unknown size: %v", size),
			want(errors.Is(unknown, civogo.DatabaseKubernetesClusterNotFoundError), "an unknown cluster: %v", unknown),
			want(errors.Is(last, civogo.NetworkDeleteDefaultError), "the default network: %v", last),
			want(errors.Is(used, civogo.DatabaseNetworkDeleteWithInstanceError), "a network in use: %v", used))
	})
	p.step("kubernetes rename, remove", func() error {
		_, err := client.UpdateKubernetesCluster(cluster.ID, &civogo.KubernetesClusterConfig{Name: name + "-two"})
		if err != nil {
			return err
		}
		volumes, err := client.ListVolumesForCluster(name + "-two")
		if err != nil {
			return err
		}
		_, err = client.DeleteKubernetesCluster(cluster.ID)
		return all(err, want(volumes == nil, "it has volumes: %v", volumes), civoGone(client, cluster.ID))
	})
	p.step("firewall remove, network remove", func() error {
		_, err := client.DeleteFirewall(cluster.FirewallID)
		if err != nil {
			return err
		}
		if _, err = client.DeleteNetwork(network.ID); err != nil {
			return err
		}
		return until("the network's end", func() (bool, error) {
			_, err := client.FindNetwork("compat-net")
			return errors.Is(err, civogo.ZeroMatchesError), nil
		})
	})
	p.step("nothing is left", func() error { return onlyDefaults(url) })
}

// civoDefaultFirewall makes a network and its firewall as the client does, and removes the network alone.
func civoDefaultFirewall(client *civogo.Client) error {
	made, err := client.CreateNetwork(civogo.NetworkConfig{Label: "compat-own", Region: civoRegion})
	if err != nil {
		return err
	}
	rules := true
	firewall, err := client.NewFirewall(&civogo.FirewallConfig{Name: "compat-own-default", Region: civoRegion, NetworkID: made.ID, CreateRules: &rules})
	if err != nil {
		return err
	}
	if err := civoNetworkGone(client, made.ID); err != nil {
		return err
	}
	_, gone := client.FindFirewall(firewall.ID)
	return want(errors.Is(gone, civogo.ZeroMatchesError), "the firewall is still there: %v", gone)
}

// civoNetworkGone deletes as the Terraform provider does: again at each look, and any error is the end. It goes on for a
// few more looks than there is a network.
func civoNetworkGone(client *civogo.Client, id string) error {
	after := 0
	return until("the network's end", func() (bool, error) {
		answer, err := client.DeleteNetwork(id)
		if err != nil {
			return false, err
		}
		if _, err := client.GetNetwork(id); errors.Is(err, civogo.DatabaseNetworkNotFoundError) {
			after++
		}
		return after == 3, want(answer.Result == "success", "result %s", answer.Result)
	})
}

// civoLookUps asks for what the client's and the provider's documents ask for.
func civoLookUps(client *civogo.Client, network string) error {
	images, err := client.ListDiskImages()
	if err != nil {
		return err
	}
	image, err := client.GetDiskImageByName("ubuntu-focal")
	if err != nil {
		return err
	}
	one, err := client.GetDiskImage(image.ID)
	if err != nil {
		return err
	}
	types, err := client.ListVolumeTypes()
	if err != nil {
		return err
	}
	subnets, err := client.ListSubnets(network)
	if err != nil {
		return err
	}
	size, err := client.FindInstanceSizes("g3.small")
	if err != nil {
		return err
	}
	home, err := client.GetDefaultNetwork()
	if err != nil {
		return err
	}
	firewall, err := client.FindFirewall("default-default")
	if err != nil {
		return err
	}
	applications, err := client.ListKubernetesMarketplaceApplications()
	if err != nil {
		return err
	}
	planned := slices.ContainsFunc(applications, func(a civogo.KubernetesMarketplaceApplication) bool {
		return len(a.Plans) > 1 && a.Plans[0].Configuration["VOLUME_SIZE"].Value != ""
	})
	return all(want(len(images) > 4, "%d disk images", len(images)), same("the image", one.Name, "ubuntu-focal"),
		want(len(types) > 0 && types[0].Enabled, "%+v", types), same("the number of subnets", len(subnets), 0),
		want(strings.EqualFold(size.Type, "instance"), "%+v", size), same("the default firewall's network", firewall.NetworkID, home.ID),
		want(planned, "no plan sets anything: %+v", applications))
}

func civoFirewall(client *civogo.Client, network string) error {
	rules := true
	made, err := client.NewFirewall(&civogo.FirewallConfig{Name: "compat-fw", Region: civoRegion, NetworkID: network, CreateRules: &rules})
	if err != nil {
		return err
	}
	before, err := client.ListFirewallRules(made.ID)
	if err != nil {
		return err
	}
	rule, err := client.NewFirewallRule(&civogo.FirewallRuleConfig{FirewallID: made.ID, Protocol: "tcp", StartPort: "8000",
		EndPort: "8080", Cidr: []string{"192.0.2.0/24"}, Direction: "ingress", Action: "allow", Label: "web"})
	if err != nil {
		return err
	}
	listed, err := client.FindFirewall("compat-fw")
	if err != nil {
		return err
	}
	found, err := client.FindFirewallRule(made.ID, rule.ID)
	if err != nil {
		return err
	}
	_, removed := client.DeleteFirewallRule(made.ID, rule.ID)
	_, renamed := client.RenameFirewall(made.ID, &civogo.FirewallConfig{Name: "compat-wall", Region: civoRegion})
	after, err := client.ListFirewallRules(made.ID)
	if err != nil {
		return err
	}
	_, gone := client.DeleteFirewall(made.ID)
	return all(removed, renamed, gone,
		want(len(before) > 0 && len(after) == len(before), "%d rules at first, %d at last", len(before), len(after)),
		same("rules_count", listed.RulesCount, len(before)+1), same("its network", listed.NetworkID, network),
		want(found.Ports == "8000-8080" && found.StartPort == "8000" && found.EndPort == "8080" && found.Label == "web", "%+v", found))
}

func civoPool(client *civogo.Client, cluster, pool string, settled func(string, func(*civogo.KubernetesCluster) bool) error, nodes func(int) error) error {
	counts := func(count int) func(*civogo.KubernetesCluster) bool {
		return func(found *civogo.KubernetesCluster) bool {
			return slices.ContainsFunc(found.Pools, func(p civogo.KubernetesPool) bool { return p.ID == pool && p.Count == count })
		}
	}
	if _, err := client.CreateKubernetesClusterPool(cluster, &civogo.KubernetesClusterPoolConfig{ID: pool, Count: 1, Size: civoSize}); err != nil {
		return err
	}
	if err := all(settled("the pool", counts(1)), nodes(3)); err != nil {
		return err
	}
	three := 3
	scaled, err := client.UpdateKubernetesClusterPool(cluster, pool, &civogo.KubernetesClusterPoolUpdateConfig{ID: pool, Count: &three, Region: civoRegion})
	if err != nil {
		return err
	}
	if err := all(same("the pool", scaled.ID, pool), settled("three nodes", counts(3)), nodes(5)); err != nil {
		return err
	}
	instances, err := client.ListKubernetesClusterInstances(cluster)
	if err != nil {
		return err
	}
	found, err := client.FindKubernetesClusterPool(cluster, pool[:6])
	if err != nil {
		return err
	}
	if _, err := client.DeleteKubernetesClusterPoolInstance(cluster, pool, found.Instances[0].ID); err != nil {
		return err
	}
	if err := all(same("the number of instances", len(instances), 5), settled("two nodes", counts(2)), nodes(4)); err != nil {
		return err
	}
	if _, err := client.DeleteKubernetesClusterPool(cluster, pool); err != nil {
		return err
	}
	return all(civoPoolGone(client, cluster, pool), settled("the rest", func(found *civogo.KubernetesCluster) bool { return len(found.Pools) == 1 }), nodes(2))
}

// civoPoolGone waits as the Terraform provider does: for this one error, and no other.
func civoPoolGone(client *civogo.Client, cluster, pool string) error {
	return until("the pool's end", func() (bool, error) {
		_, err := client.GetKubernetesClusterPool(cluster, pool)
		if errors.Is(err, civogo.DatabaseClusterPoolNotFoundError) {
			return true, nil
		}
		return false, err
	})
}

func civoGone(client *civogo.Client, cluster string) error {
	return until("the cluster's end", func() (bool, error) {
		found, err := client.GetKubernetesCluster(cluster)
		if errors.Is(err, civogo.DatabaseKubernetesClusterNotFoundError) {
			return true, nil
		}
		if err == nil && found.Status != "DELETING" {
			err = fmt.Errorf("its status is %s", found.Status)
		}
		return false, err
	})
}
