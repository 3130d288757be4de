package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"
)

// The provider knows a cluster's own pool by this tag.
const defaultPoolTag = "terraform:default-node-pool"

// oceanTerraform makes the calls of DigitalOcean's Terraform provider for a VPC, a cluster and a node pool: apply, plan,
// a changed node count, destroy.
func oceanTerraform(p *play, url string) {
	p.suite("DigitalOcean's Terraform provider, its calls")
	client, err := oceanClient(url)
	ctx, kube := context.Background(), client.Kubernetes
	var vpcID, clusterID, firstID, secondID, version string
	labels, taints := map[string]string{"for": "batch"}, []godo.Taint{{Key: "batch", Value: "yes", Effect: "NoExecute"}}
	counts := map[string]int{"workers": 1, "batch": 1}

	own := func(tags []string) string {
		kept := slices.DeleteFunc(slices.Clone(tags), func(t string) bool {
			return t == "k8s" || strings.HasPrefix(t, "k8s:") || strings.HasPrefix(t, "terraform:")
		})
		slices.Sort(kept)
		return strings.Join(kept, " ")
	}
	unchanged := func() error {
		vpc, _, err := client.VPCs.Get(ctx, vpcID)
		if err != nil {
			return err
		}
		cluster, _, err := kube.Get(ctx, clusterID)
		if err != nil {
			return err
		}
		pool, _, err := kube.GetNodePool(ctx, clusterID, secondID)
		if err != nil {
			return err
		}
		var main []*godo.KubernetesNodePool
		for _, pool := range cluster.NodePools {
			if slices.Contains(pool.Tags, defaultPoolTag) {
				main = append(main, pool)
			}
		}
		if err := same("the number of default pools", len(main), 1); err != nil {
			return err
		}
		firstID = main[0].ID
		credentials, _, err := kube.GetCredentials(ctx, clusterID, &godo.KubernetesClusterCredentialsGetRequest{})
		if err != nil {
			return err
		}
		return all(
			want(vpc.Name == "compat-tf" && vpc.Description == "" && vpc.IPRange == "10.40.0.0/20" && vpc.RegionSlug == oceanRegion, "%+v", vpc),
			same("the URN", vpc.URN, "do:vpc:"+vpcID), same("the cluster's name", cluster.Name, "compat-tf"),
			same("its region", cluster.RegionSlug, oceanRegion), same("its version", cluster.VersionSlug, version),
			same("its VPC", cluster.VPCUUID, vpcID), same("its tags", own(cluster.Tags), "compat env:tf"), same("ha", cluster.HA, true),
			same("its state", string(cluster.Status.State), "running"), same("surge_upgrade", cluster.SurgeUpgrade, true),
			same("its window", cluster.MaintenancePolicy.StartTime+" "+cluster.MaintenancePolicy.Day.String(), "04:00 sunday"),
			same("the registry", cluster.RegistryEnabled, true), same("isolated_workers", cluster.IsolatedWorkers, true),
			want(cluster.ClusterAutoscalerConfiguration == nil, "the autoscaler's block is %+v", cluster.ClusterAutoscalerConfiguration),
			same("the default pool's count", main[0].Count, counts["workers"]), same("its tags", own(main[0].Tags), "mine"),
			same("the pool's count", pool.Count, counts["batch"]), same("its size", pool.Size, oceanSize),
			want(maps.Equal(pool.Labels, labels), "the pool's labels are %v", pool.Labels),
			want(slices.Equal(pool.Taints, taints), "the pool's taints are %v", pool.Taints),
			want(credentials.ExpiresAt.After(time.Now()), "the credentials ended %s", credentials.ExpiresAt))
	}

	p.step("plan: digitalocean_kubernetes_versions", func() error {
		if err != nil {
			return err
		}
		options, _, err := kube.GetOptions(ctx)
		if err != nil {
			return err
		}
		version = options.Versions[0].Slug
		return nil
	})
	p.step("apply: digitalocean_vpc", func() error {
		made, _, err := client.VPCs.Create(ctx, &godo.VPCCreateRequest{Name: "compat-tf", RegionSlug: oceanRegion, IPRange: "10.40.0.0/20"})
		if err != nil {
			return err
		}
		vpcID = made.ID
		return nil
	})
	p.step("apply: digitalocean_kubernetes_cluster", func() error {
		day, err := godo.KubernetesMaintenanceToDay("sunday")
		if err != nil {
			return err
		}
		// The provider sends blocks that are not in the configuration with nothing but nulls in them.
		made, _, err := kube.Create(ctx, &godo.KubernetesClusterCreateRequest{Name: "compat-tf", RegionSlug: oceanRegion, VersionSlug: version,
			VPCUUID: vpcID, Tags: []string{"env:tf", "compat"}, SurgeUpgrade: true, HA: godo.PtrTo(true), IsolatedWorkers: true,
			MaintenancePolicy:    &godo.KubernetesMaintenancePolicy{StartTime: "04:00", Day: day},
			ControlPlaneFirewall: &godo.KubernetesControlPlaneFirewall{}, RoutingAgent: &godo.KubernetesRoutingAgent{},
			ClusterAutoscalerConfiguration: &godo.KubernetesClusterAutoscalerConfiguration{},
			NodePools: []*godo.KubernetesNodePoolCreateRequest{{Name: "workers", Size: oceanSize, Count: 1,
				Tags: []string{"mine", defaultPoolTag}, Labels: map[string]string{}, Taints: []godo.Taint{}}}})
		if err != nil {
			return err
		}
		clusterID = made.ID
		err = until("the cluster", func() (bool, error) {
			found, _, err := kube.Get(ctx, clusterID)
			if err != nil {
				return false, err
			}
			return found.Status.State == "running", want(found.Status.State != "error", "%s", found.Status.Message)
		})
		_, registry := kube.AddRegistry(ctx, &godo.KubernetesClusterRegistryRequest{ClusterUUIDs: []string{clusterID}})
		return all(err, registry)
	})
	p.step("apply: digitalocean_kubernetes_node_pool, with labels and taints", func() error {
		made, _, err := kube.CreateNodePool(ctx, clusterID, &godo.KubernetesNodePoolCreateRequest{Name: "batch", Size: oceanSize, Count: 1,
			Tags: []string{}, Labels: labels, Taints: taints})
		if err != nil {
			return err
		}
		secondID = made.ID
		return oceanPoolReady(client, clusterID, secondID, 1)
	})
	p.step("plan: no changes", unchanged)
	p.step("apply: a change of the cluster, with the blocks that are not configured", func() error {
		_, _, err := kube.Update(ctx, clusterID, &godo.KubernetesClusterUpdateRequest{Name: "compat-tf", Tags: []string{"env:tf", "compat"},
			SurgeUpgrade: true, ClusterAutoscalerConfiguration: &godo.KubernetesClusterAutoscalerConfiguration{}})
		return err
	})
	p.step("plan: no changes", unchanged)
	p.step("plan: digitalocean_regions, _sizes, _images, _projects, _vpc_peerings", func() error { return oceanLookUps(client, vpcID) })
	p.step("apply: more nodes in the cluster's own pool, and in the other", func() error {
		counts["workers"], counts["batch"] = 3, 2
		no, none := godo.PtrTo(false), godo.PtrTo(0)
		_, _, first := kube.UpdateNodePool(ctx, clusterID, firstID, &godo.KubernetesNodePoolUpdateRequest{Name: "workers", Count: godo.PtrTo(3),
			Tags: []string{"mine", defaultPoolTag}, AutoScale: no, MinNodes: none, MaxNodes: none, Labels: map[string]string{}, Taints: &[]godo.Taint{}})
		_, _, second := kube.UpdateNodePool(ctx, clusterID, secondID, &godo.KubernetesNodePoolUpdateRequest{Name: "batch", Count: godo.PtrTo(2),
			Tags: []string{}, AutoScale: no, MinNodes: none, MaxNodes: none, Labels: labels, Taints: &taints})
		return all(first, second, oceanPoolReady(client, clusterID, firstID, 3), oceanPoolReady(client, clusterID, secondID, 2))
	})
	p.step("plan: no changes", unchanged)
	p.step("kubectl get nodes, with the credentials from the state", func() error {
		cluster, _, err := kube.Get(ctx, clusterID)
		if err != nil {
			return err
		}
		names, err := oceanNodes(p, client, cluster)
		return all(err, same("the number of nodes", len(names), 5))
	})
	p.step("destroy: digitalocean_kubernetes_node_pool", func() error {
		_, err := kube.DeleteNodePool(ctx, clusterID, secondID)
		return all(err, oceanPoolGone(client, clusterID, secondID))
	})
	// The provider holds a cluster for gone as soon as its deletion was accepted, and goes on with the VPC at once.
	p.step("destroy: digitalocean_kubernetes_cluster, digitalocean_vpc", func() error {
		_, err := kube.Delete(ctx, clusterID)
		return all(err, oceanVpcGone(client, vpcID))
	})
	p.step("nothing is left", func() error { return onlyDefaults(url) })
}

// oceanLookUps asks for what the documents of the provider and of doctl ask for.
func oceanLookUps(client *godo.Client, vpc string) error {
	ctx := context.Background()
	regions, err := everything(50, func(o *godo.ListOptions) ([]godo.Region, *godo.Response, error) { return client.Regions.List(ctx, o) })
	if err != nil {
		return err
	}
	sizes, err := everything(50, func(o *godo.ListOptions) ([]godo.Size, *godo.Response, error) { return client.Sizes.List(ctx, o) })
	if err != nil {
		return err
	}
	image, _, err := client.Images.GetBySlug(ctx, "ubuntu-22-04-x64")
	if err != nil {
		return err
	}
	project, _, err := client.Projects.GetDefault(ctx)
	if err != nil {
		return err
	}
	resources, _, err := client.Projects.ListResources(ctx, project.ID, nil)
	if err != nil {
		return err
	}
	peerings, _, err := client.VPCs.ListVPCPeeringsByVPCID(ctx, vpc, nil)
	if err != nil {
		return err
	}
	every, _, err := client.VPCs.ListVPCPeerings(ctx, nil)
	if err != nil {
		return err
	}
	subnets, _, err := client.VPCs.ListSubnets(ctx, vpc, nil)
	if err != nil {
		return err
	}
	droplets, _, err := client.Droplets.List(ctx, nil)
	if err != nil {
		return err
	}
	private := !slices.ContainsFunc(regions, func(r godo.Region) bool { return !slices.Contains(r.Features, "private_networking") })
	small := slices.ContainsFunc(sizes, func(s godo.Size) bool { return s.Slug == "s-1vcpu-1gb" })
	return all(want(private, "%+v", regions), want(small, "no s-1vcpu-1gb"), same("the image", image.Distribution, "Ubuntu"),
		want(project.IsDefault, "%+v", project), same("the number of its resources", len(resources), 1),
		same("the number of peerings, subnets and Droplets", len(peerings)+len(every)+len(subnets)+len(droplets), 0))
}
