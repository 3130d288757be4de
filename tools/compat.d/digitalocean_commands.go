package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/digitalocean/godo"
)

const (
	oceanRegion = "fra1"
	oceanSize   = "s-2vcpu-4gb"
)

func oceanClient(url string) (*godo.Client, error) {
	client := godo.NewFromToken(token)
	return client, godo.SetBaseURL(url)(client)
}

// everything reads all pages of a list, as doctl does.
func everything[T any](perPage int, list func(*godo.ListOptions) ([]T, *godo.Response, error)) ([]T, error) {
	var found []T
	for page := 1; page <= 1000; page++ {
		some, answer, err := list(&godo.ListOptions{Page: page, PerPage: perPage})
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		if answer.Links == nil || answer.Links.IsLastPage() {
			// The library does not pass on the total of every list.
			return found, want(answer.Meta == nil || answer.Meta.Total == len(found), "total is not %d: %+v", len(found), answer.Meta)
		}
	}
	return nil, errors.New("the list has no last page")
}

func refused(what string, err error, status int) error {
	var answer *godo.ErrorResponse
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: no refusal but %v", what, err)
	}
	return all(same(what+": the status", answer.Response.StatusCode, status),
		want(answer.Message != "" && answer.RequestID != "", "%s: no message or no request id: %+v", what, answer))
}

// oceanCommands makes the calls of doctl.
func oceanCommands(p *play, url string) {
	p.suite("doctl, its calls")
	client, err := oceanClient(url)
	ctx := context.Background()
	kube := client.Kubernetes
	var options *godo.KubernetesOptions
	var vpc *godo.VPC
	var cluster *godo.KubernetesCluster
	var kubeconfig []byte

	running := func(what string, more func(*godo.KubernetesCluster) bool, alsoSeen ...string) error {
		return until(what, func() (bool, error) {
			found, _, err := kube.Get(ctx, cluster.ID)
			if err != nil {
				return false, err
			}
			cluster = found
			state := string(found.Status.State)
			known := state == "running" || slices.Contains(alsoSeen, state)
			return state == "running" && more(found), want(known, "the state is %s", state)
		})
	}
	anything := func(*godo.KubernetesCluster) bool { return true }
	nodes := func(expected int) error {
		names, err := p.nodes(kubeconfig)
		return all(err, same("the number of nodes", len(names), expected))
	}

	p.step("account get, ratelimit", func() error {
		if err != nil {
			return err
		}
		account, answer, err := client.Account.Get(ctx)
		if err != nil {
			return err
		}
		return all(want(account.Email != "" && account.UUID != "" && account.Status == "active", "%+v", account),
			want(answer.Rate.Limit > 0 && answer.Rate.Remaining > 0 && !answer.Rate.Reset.IsZero(), "%+v", answer.Rate))
	})
	p.step("a wrong token is refused", func() error {
		stranger := godo.NewFromToken("wrong")
		if err := godo.SetBaseURL(url)(stranger); err != nil {
			return err
		}
		_, _, err := stranger.Account.Get(ctx)
		return refused("a wrong token", err, http.StatusUnauthorized)
	})
	p.step("kubernetes options versions, regions, sizes", func() error {
		options, _, err = kube.GetOptions(ctx)
		if err != nil {
			return err
		}
		region := slices.ContainsFunc(options.Regions, func(r *godo.KubernetesRegion) bool { return r.Slug == oceanRegion })
		size := slices.ContainsFunc(options.Sizes, func(s *godo.KubernetesNodeSize) bool { return s.Slug == oceanSize })
		return want(region && size && len(options.Versions) > 1 && options.Versions[0].KubernetesVersion != "", "%+v", options)
	})
	p.step("vpcs create, list, get, update", func() error {
		made, _, err := client.VPCs.Create(ctx, &godo.VPCCreateRequest{Name: "compat-old", RegionSlug: oceanRegion, IPRange: "10.30.0.0/20"})
		if err != nil {
			return err
		}
		listed, err := everything(5, func(o *godo.ListOptions) ([]*godo.VPC, *godo.Response, error) { return client.VPCs.List(ctx, o) })
		if err != nil {
			return err
		}
		_, _, updated := client.VPCs.Update(ctx, made.ID, &godo.VPCUpdateRequest{Name: "compat", Description: "for compat"})
		vpc, _, err = client.VPCs.Get(ctx, made.ID)
		if err != nil {
			return err
		}
		_, _, twice := client.VPCs.Create(ctx, &godo.VPCCreateRequest{Name: "compat", RegionSlug: oceanRegion})
		return all(updated, refused("a name twice", twice, http.StatusUnprocessableEntity),
			want(len(listed) > 5 && slices.ContainsFunc(listed, func(v *godo.VPC) bool { return v.ID == made.ID }), "not among %d", len(listed)),
			want(vpc.Name == "compat" && vpc.Description == "for compat" && vpc.IPRange == "10.30.0.0/20" && !vpc.Default, "%+v", vpc))
	})
	p.step("kubernetes cluster create --wait", func() error {
		oldest := options.Versions[len(options.Versions)-1].Slug
		cluster, _, err = kube.Create(ctx, &godo.KubernetesClusterCreateRequest{Name: "compat", RegionSlug: oceanRegion, VersionSlug: oldest,
			VPCUUID: vpc.ID, Tags: []string{"compat"}, AutoUpgrade: false, SurgeUpgrade: true,
			NodePools: []*godo.KubernetesNodePoolCreateRequest{{Name: "compat-default-pool", Size: oceanSize, Count: 2}}})
		if err != nil {
			return err
		}
		return running("the cluster", anything, "provisioning")
	})
	p.step("kubernetes cluster list, get, get-upgrades, list-associated-resources", func() error {
		listed, err := everything(200, func(o *godo.ListOptions) ([]*godo.KubernetesCluster, *godo.Response, error) { return kube.List(ctx, o) })
		if err != nil {
			return err
		}
		upgrades, _, err := kube.GetUpgrades(ctx, cluster.ID)
		if err != nil {
			return err
		}
		associated, _, err := kube.ListAssociatedResourcesForDeletion(ctx, cluster.ID)
		if err != nil {
			return err
		}
		user, _, err := kube.GetUser(ctx, cluster.ID)
		if err != nil {
			return err
		}
		_, _, unknown := kube.Get(ctx, "00000000-0000-4000-8000-000000000000")
		return all(same("the number of clusters", len(listed), 1), same("the VPC", listed[0].VPCUUID, vpc.ID),
			want(len(upgrades) > 0, "no upgrades from %s", cluster.VersionSlug), want(user.Username != "", "no user"),
			want(len(associated.Volumes)+len(associated.LoadBalancers) == 0, "%+v", associated),
			want(cluster.Endpoint != "" && cluster.IPv4 != "" && cluster.SurgeUpgrade, "%+v", cluster),
			want(slices.Contains(cluster.Tags, "compat") && slices.Contains(cluster.Tags, "k8s"), "tags %v", cluster.Tags),
			refused("an unknown cluster", unknown, http.StatusNotFound))
	})
	p.step("kubernetes cluster kubeconfig show, kubectl get nodes", func() error {
		config, _, err := kube.GetKubeConfig(ctx, cluster.ID, nil)
		if err != nil {
			return err
		}
		kubeconfig = config.KubeconfigYAML
		return nodes(2)
	})
	p.step("kubernetes cluster kubeconfig exec-credential, kubectl get nodes", func() error {
		names, err := oceanNodes(p, client, cluster)
		return all(err, same("the number of nodes", len(names), 2))
	})
	p.step("kubernetes cluster node-pool create, list, get, update, delete-node, delete", func() error {
		return oceanPool(client, cluster.ID, nodes)
	})
	p.step("kubernetes cluster update", func() error {
		day, err := godo.KubernetesMaintenanceToDay("sunday")
		if err != nil {
			return err
		}
		updated, _, err := kube.Update(ctx, cluster.ID, &godo.KubernetesClusterUpdateRequest{Name: "compat-two", Tags: []string{"compat", "two"},
			AutoUpgrade: godo.PtrTo(true), MaintenancePolicy: &godo.KubernetesMaintenancePolicy{StartTime: "02:00", Day: day},
			ControlPlaneFirewall: &godo.KubernetesControlPlaneFirewall{Enabled: godo.PtrTo(true), AllowedAddresses: []string{"127.0.0.1/32"}}})
		if err != nil {
			return err
		}
		return want(updated.Name == "compat-two" && updated.AutoUpgrade && updated.MaintenancePolicy.StartTime == "02:00" &&
			updated.MaintenancePolicy.Day == day && *updated.ControlPlaneFirewall.Enabled && slices.Contains(updated.Tags, "two"), "%+v", updated)
	})
	p.step("kubernetes cluster registry add, remove", func() error {
		request := &godo.KubernetesClusterRegistryRequest{ClusterUUIDs: []string{cluster.ID}}
		_, added := kube.AddRegistry(ctx, request)
		with, _, err := kube.Get(ctx, cluster.ID)
		if err != nil {
			return err
		}
		_, removed := kube.RemoveRegistry(ctx, request)
		without, _, err := kube.Get(ctx, cluster.ID)
		return all(added, removed, err, want(with.RegistryEnabled && !without.RegistryEnabled, "the registry was not switched"))
	})
	p.step("kubernetes cluster upgrade", func() error {
		upgrades, _, err := kube.GetUpgrades(ctx, cluster.ID)
		if err != nil {
			return err
		}
		_, err = kube.Upgrade(ctx, cluster.ID, &godo.KubernetesClusterUpgradeRequest{VersionSlug: upgrades[0].Slug})
		return all(err, running("the upgrade", func(found *godo.KubernetesCluster) bool { return found.VersionSlug == upgrades[0].Slug }, "upgrading"))
	})
	p.step("vpcs delete is refused while the cluster is in it", func() error {
		_, err := client.VPCs.Delete(ctx, vpc.ID)
		return refused("a VPC in use", err, http.StatusForbidden)
	})
	p.step("kubernetes cluster delete, vpcs delete", func() error {
		_, err := kube.Delete(ctx, cluster.ID)
		return all(err, oceanVpcGone(client, vpc.ID))
	})
	p.step("nothing is left", func() error { return onlyDefaults(url) })
}

// oceanNodes uses what doctl gives kubectl in place of a password: a token that expires.
func oceanNodes(p *play, client *godo.Client, cluster *godo.KubernetesCluster) ([]string, error) {
	got, _, err := client.Kubernetes.GetCredentials(context.Background(), cluster.ID, &godo.KubernetesClusterCredentialsGetRequest{ExpirySeconds: godo.PtrTo(3600)})
	if err != nil {
		return nil, err
	}
	if got.ExpiresAt.IsZero() || got.Token == "" {
		return nil, fmt.Errorf("no token, or one without an end: %v", got.ExpiresAt)
	}
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": [{"name": "it", "cluster": {"server": %q, "certificate-authority-data": %q}}],
		"contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}], "users": [{"name": "it", "user": {"token": %q}}]}`,
		got.Server, base64.StdEncoding.EncodeToString(got.CertificateAuthorityData), got.Token)
	return p.nodes([]byte(config))
}

func oceanPool(client *godo.Client, cluster string, nodes func(int) error) error {
	ctx, kube := context.Background(), client.Kubernetes
	labels, taints := map[string]string{"for": "batch"}, []godo.Taint{{Key: "batch", Value: "yes", Effect: "NoSchedule"}}
	made, _, err := kube.CreateNodePool(ctx, cluster, &godo.KubernetesNodePoolCreateRequest{Name: "batch", Size: oceanSize, Count: 1, Labels: labels, Taints: taints})
	if err != nil {
		return err
	}
	if err := all(oceanPoolReady(client, cluster, made.ID, 1), nodes(3)); err != nil {
		return err
	}
	listed, err := everything(200, func(o *godo.ListOptions) ([]*godo.KubernetesNodePool, *godo.Response, error) {
		return kube.ListNodePools(ctx, cluster, o)
	})
	if err != nil {
		return err
	}
	_, _, err = kube.UpdateNodePool(ctx, cluster, made.ID, &godo.KubernetesNodePoolUpdateRequest{Name: "batch", Count: godo.PtrTo(2)})
	if err := all(err, same("the number of pools", len(listed), 2), oceanPoolReady(client, cluster, made.ID, 2), nodes(4)); err != nil {
		return err
	}
	pool, _, err := kube.GetNodePool(ctx, cluster, made.ID)
	if err != nil {
		return err
	}
	if err := all(want(maps.Equal(pool.Labels, labels), "labels %v", pool.Labels), want(slices.Equal(pool.Taints, taints), "taints %v", pool.Taints)); err != nil {
		return err
	}
	old := pool.Nodes[0]
	if _, err := kube.DeleteNode(ctx, cluster, made.ID, old.ID, &godo.KubernetesNodeDeleteRequest{Replace: true}); err != nil {
		return err
	}
	if err := oceanPoolReady(client, cluster, made.ID, 2); err != nil {
		return err
	}
	_, _, err = kube.UpdateNodePool(ctx, cluster, made.ID, &godo.KubernetesNodePoolUpdateRequest{Name: "batch", AutoScale: godo.PtrTo(true),
		MinNodes: godo.PtrTo(1), MaxNodes: godo.PtrTo(3)})
	if err != nil {
		return err
	}
	pool, _, err = kube.GetNodePool(ctx, cluster, made.ID)
	if err != nil {
		return err
	}
	replaced := !slices.ContainsFunc(pool.Nodes, func(n *godo.KubernetesNode) bool { return n.ID == old.ID })
	_, deleted := kube.DeleteNodePool(ctx, cluster, made.ID)
	return all(want(replaced, "%s is still there", old.Name), want(pool.AutoScale && pool.MinNodes == 1 && pool.MaxNodes == 3, "%+v", pool),
		deleted, oceanPoolGone(client, cluster, made.ID), nodes(2))
}

// oceanPoolReady waits as the Terraform provider does: as many nodes as there should be, all of them running.
func oceanPoolReady(client *godo.Client, cluster, pool string, count int) error {
	return until("the node pool", func() (bool, error) {
		found, _, err := client.Kubernetes.GetNodePool(context.Background(), cluster, pool)
		if err != nil {
			return false, err
		}
		waiting := slices.ContainsFunc(found.Nodes, func(n *godo.KubernetesNode) bool { return n.Status.State != "running" })
		return found.Count == count && len(found.Nodes) == count && !waiting, nil
	})
}

func oceanPoolGone(client *godo.Client, cluster, pool string) error {
	return until("the node pool's end", func() (bool, error) {
		_, answer, err := client.Kubernetes.GetNodePool(context.Background(), cluster, pool)
		if err != nil && answer != nil && answer.StatusCode == http.StatusNotFound {
			return true, nil
		}
		return false, err
	})
}

// oceanVpcGone deletes as the Terraform provider does, which takes 403, and nothing else, as "something is still in it".
func oceanVpcGone(client *godo.Client, vpc string) error {
	return until("the VPC's end", func() (bool, error) {
		answer, err := client.VPCs.Delete(context.Background(), vpc)
		if err != nil && answer != nil && answer.StatusCode == http.StatusForbidden {
			return false, nil
		}
		return err == nil, err
	})
}
