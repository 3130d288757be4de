"""aws eks, and kubectl with what it gives."""

import base64
import json
import shlex

import furnish
from play import same, until, want

CLUSTER = "cli"


def run(play, cli):
    w = {}
    play.suite("aws eks", chained=True)

    @play.step("network and roles for a cluster")
    def _():
        w["vpc"] = cli.aws("ec2 create-vpc --cidr-block 10.6.0.0/16 --query Vpc.VpcId --output text")
        w["subnets"] = [
            cli.aws(f"ec2 create-subnet --vpc-id {w['vpc']} --cidr-block 10.6.{n}.0/24 --availability-zone eu-central-1{'ab'[n]} --query Subnet.SubnetId --output text")
            for n in range(2)
        ]  # fmt: skip
        for name, service, policies in (
            ("cli-cluster", "eks.amazonaws.com", ["AmazonEKSClusterPolicy"]),
            ("cli-node", "ec2.amazonaws.com", ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"]),
            ("cli-pod", "pods.eks.amazonaws.com", []),
        ):
            document = shlex.quote(furnish.trust(service))
            w[name] = cli.aws(f"iam create-role --role-name {name} --assume-role-policy-document {document} --query Role.Arn --output text")
            for policy in policies:
                cli.aws(f"iam attach-role-policy --role-name {name} --policy-arn arn:aws:iam::aws:policy/{policy}")

    @play.step("create-cluster, wait cluster-active, describe-cluster")
    def _():
        network = f"subnetIds={','.join(w['subnets'])}"
        made = cli.aws(f"eks create-cluster --name {CLUSTER} --role-arn {w['cli-cluster']} --resources-vpc-config {network} --kubernetes-version 1.31 --access-config authenticationMode=API_AND_CONFIG_MAP")
        want(made["cluster"]["status"] in ("CREATING", "ACTIVE"), str(made))
        cli.aws(f"eks wait cluster-active --name {CLUSTER}", timeout=300)
        w["cluster"] = cluster = cli.aws(f"eks describe-cluster --name {CLUSTER}")["cluster"]
        want(cluster["endpoint"].startswith("https://") and cluster["certificateAuthority"]["data"], str(cluster))
        same("its version", cluster["version"], "1.31")
        same("list-clusters", cli.aws("eks list-clusters")["clusters"], [CLUSTER])
        cli.fails(f"aws eks create-cluster --name {CLUSTER} --role-arn {w['cli-cluster']} --resources-vpc-config {network}", "ResourceInUseException", f"Cluster already exists with name: {CLUSTER}")
        cli.fails("aws eks describe-cluster --name none", "ResourceNotFoundException", "No cluster found for name: none.")

    @play.step("the OIDC issuer serves its configuration and keys")
    def _():
        issuer = w["cluster"]["identity"]["oidc"]["issuer"]
        where = cli.aws(f"eks describe-cluster --name {CLUSTER} --query cluster.identity.oidc.issuer --output text")
        found = json.loads(cli.text(f"curl --silent --fail --insecure {issuer}/.well-known/openid-configuration"))
        same("the issuer", found["issuer"], where)
        keys = json.loads(cli.text(f"curl --silent --fail --insecure {found['jwks_uri']}"))
        want(keys["keys"] and keys["keys"][0]["kty"] == "RSA", str(keys))

    @play.step("create-nodegroup, wait nodegroup-active")
    def _():
        cli.aws(f"eks create-nodegroup --cluster-name {CLUSTER} --nodegroup-name pool --node-role {w['cli-node']} --subnets {' '.join(w['subnets'])} --scaling-config minSize=1,maxSize=4,desiredSize=2 --labels tier=web")
        cli.aws(f"eks wait nodegroup-active --cluster-name {CLUSTER} --nodegroup-name pool", timeout=300)
        same("list-nodegroups", cli.aws(f"eks list-nodegroups --cluster-name {CLUSTER}")["nodegroups"], ["pool"])
        pool = cli.aws(f"eks describe-nodegroup --cluster-name {CLUSTER} --nodegroup-name pool")["nodegroup"]
        want(pool["resources"]["autoScalingGroups"] and pool["health"]["issues"] == [], str(pool))

    @play.step("update-kubeconfig, kubectl get nodes")
    def _():
        said = cli.text(f"aws eks update-kubeconfig --name {CLUSTER}")
        want("Added new context" in said, said)
        same("the number of nodes", ready_nodes(cli), 2)
        labels = cli.text("kubectl get nodes -l tier=web -o name")
        same("nodes with the group's label", len(labels.splitlines()), 2)
        groups = cli.text("kubectl get nodes -l eks.amazonaws.com/nodegroup=pool -o name")
        same("nodes that say their group", len(groups.splitlines()), 2)

    @play.step("update-nodegroup-config, update-nodegroup-version: more nodes")
    def _():
        update = cli.aws(f"eks update-nodegroup-config --cluster-name {CLUSTER} --nodegroup-name pool --scaling-config minSize=1,maxSize=4,desiredSize=3 --query update.id --output text")
        until("the update", lambda: status(cli, update, "--nodegroup-name pool") == "Successful", pause=1)
        until("three nodes", lambda: ready_nodes(cli) == 3, pause=1)

    @play.step("tokens: get-token is accepted, others are refused")
    def _():
        token = cli.aws(f"eks get-token --cluster-name {CLUSTER}")["status"]["token"]
        want(token.startswith("k8s-aws-v1."), token)
        server = f"--server {w['cluster']['endpoint']}"
        (cli.folder / "ca.pem").write_bytes(base64.b64decode(w["cluster"]["certificateAuthority"]["data"]))
        plain = f"env KUBECONFIG=/dev/null kubectl {server} --certificate-authority ca.pem"
        cli.text(f"{plain} --token {token} get nodes")
        cli.fails(f"{plain} --token k8s-aws-v1.bm9uc2Vuc2U get nodes", "Unauthorized")

    access(play, cli, w)

    @play.step("add-ons: versions, create, wait addon-active, update, delete")
    def _():
        versions = cli.aws("eks describe-addon-versions --addon-name coredns --kubernetes-version 1.31 --query 'addons[0].addonVersions[].addonVersion'")
        want(len(versions) >= 2, f"one version is no choice: {versions}")
        names = cli.aws("eks describe-addon-versions --kubernetes-version 1.31 --query 'addons[].addonName'")
        want({"vpc-cni", "coredns", "kube-proxy", "aws-ebs-csi-driver", "eks-pod-identity-agent"} <= set(names), str(names))
        cli.aws(f"eks create-addon --cluster-name {CLUSTER} --addon-name coredns --addon-version {versions[-1]}")
        cli.aws(f"eks wait addon-active --cluster-name {CLUSTER} --addon-name coredns", timeout=300)
        same("list-addons", cli.aws(f"eks list-addons --cluster-name {CLUSTER}")["addons"], ["coredns"])
        update = cli.aws(f"eks update-addon --cluster-name {CLUSTER} --addon-name coredns --addon-version {versions[0]} --query update.id --output text")
        until("the update", lambda: status(cli, update, "--addon-name coredns") == "Successful", pause=1)
        shown = cli.aws(f"eks describe-addon --cluster-name {CLUSTER} --addon-name coredns --query addon.addonVersion --output text")
        same("its version", shown, versions[0])
        cli.fails(f"aws eks create-addon --cluster-name {CLUSTER} --addon-name coredns", "ResourceInUseException")
        cli.fails(f"aws eks create-addon --cluster-name {CLUSTER} --addon-name none", "InvalidParameterException")
        cli.aws(f"eks delete-addon --cluster-name {CLUSTER} --addon-name coredns")
        cli.aws(f"eks wait addon-deleted --cluster-name {CLUSTER} --addon-name coredns", timeout=300)

    @play.step("pod identity associations")
    def _():
        made = cli.aws(f"eks create-pod-identity-association --cluster-name {CLUSTER} --namespace app --service-account app --role-arn {w['cli-pod']} --query association.associationId --output text")
        want(made.startswith("a-"), made)
        found = cli.aws(f"eks list-pod-identity-associations --cluster-name {CLUSTER} --namespace app --query 'associations[].associationId'")
        same("what is listed", found, [made])
        shown = cli.aws(f"eks describe-pod-identity-association --cluster-name {CLUSTER} --association-id {made} --query association.roleArn --output text")
        same("its role", shown, w["cli-pod"])
        cli.aws(f"eks delete-pod-identity-association --cluster-name {CLUSTER} --association-id {made}")

    @play.step("updates: version, config, logging; list-updates, describe-update")
    def _():
        cli.fails(f"aws eks update-cluster-version --name {CLUSTER} --kubernetes-version 1.33", "InvalidParameterException")
        update = cli.aws(f"eks update-cluster-version --name {CLUSTER} --kubernetes-version 1.32 --query update.id --output text")
        until("the upgrade", lambda: status(cli, update) == "Successful", pause=1)
        same("its version", cli.aws(f"eks describe-cluster --name {CLUSTER} --query cluster.version --output text"), "1.32")
        logging = shlex.quote('{"clusterLogging":[{"types":["api","audit"],"enabled":true}]}')
        update = cli.aws(f"eks update-cluster-config --name {CLUSTER} --logging {logging} --query update.id --output text")
        until("the update", lambda: status(cli, update) == "Successful", pause=1)
        ids = cli.aws(f"eks list-updates --name {CLUSTER}")["updateIds"]
        want(update in ids and len(ids) >= 2, str(ids))
        # As the SDKs' own waiters do it.
        cli.aws(f"eks wait cluster-active --name {CLUSTER}", timeout=300)

    @play.step("tag-resource, list-tags-for-resource, untag-resource")
    def _():
        arn = w["cluster"]["arn"]
        cli.aws(f"eks tag-resource --resource-arn {arn} --tags team=shop,tier=web")
        cli.aws(f"eks untag-resource --resource-arn {arn} --tag-keys tier")
        same("its tags", cli.aws(f"eks list-tags-for-resource --resource-arn {arn}")["tags"], {"team": "shop"})

    @play.step("delete, in its order: wait nodegroup-deleted, wait cluster-deleted")
    def _():
        cli.fails(f"aws eks delete-cluster --name {CLUSTER}", "ResourceInUseException", "Cluster has nodegroups attached")
        cli.aws(f"eks delete-nodegroup --cluster-name {CLUSTER} --nodegroup-name pool")
        cli.aws(f"eks wait nodegroup-deleted --cluster-name {CLUSTER} --nodegroup-name pool", timeout=300)
        cli.aws(f"eks delete-cluster --name {CLUSTER}")
        cli.aws(f"eks wait cluster-deleted --name {CLUSTER}", timeout=300)
        same("list-clusters", cli.aws("eks list-clusters")["clusters"], [])
        cli.fails("kubectl get nodes --request-timeout=5s")


def access(play, cli, w):
    """Who may do what in the cluster, by access entries."""

    @play.step("access entries and policies: list, create, associate, describe")
    def _():
        listed = cli.aws(f"eks list-access-entries --cluster-name {CLUSTER}")["accessEntries"]
        want(listed, "the creator has no access entry")
        policies = cli.aws("eks list-access-policies --query 'accessPolicies[].name'")
        want({"AmazonEKSClusterAdminPolicy", "AmazonEKSAdminPolicy", "AmazonEKSEditPolicy", "AmazonEKSViewPolicy"} <= set(policies), str(policies))

    @play.step("a role without an access entry is refused; with one and a policy it may just do that")
    def _():
        account = cli.aws("sts get-caller-identity --query Account --output text")
        principal = {"AWS": f"arn:aws:iam::{account}:root"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]})
        role = cli.aws(f"iam create-role --role-name cli-viewer --assume-role-policy-document {shlex.quote(trust)} --query Role.Arn --output text")
        given = cli.aws(f"sts assume-role --role-arn {role} --role-session-name eve")["Credentials"]
        viewer = cli.as_role(given)
        viewer.fails("kubectl get nodes", "You must be logged in to the server")
        cli.aws(f"eks create-access-entry --cluster-name {CLUSTER} --principal-arn {role}")
        viewer.fails("kubectl get pods -n default", "Forbidden", "cannot list resource \"pods\"")
        view = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
        cli.aws(f"eks associate-access-policy --cluster-name {CLUSTER} --principal-arn {role} --policy-arn {view} --access-scope type=cluster")
        shown = cli.aws(f"eks list-associated-access-policies --cluster-name {CLUSTER} --principal-arn {role} --query 'associatedAccessPolicies[].policyArn'")
        same("its policies", shown, [view])
        viewer.text("kubectl get pods -n default")
        viewer.fails("kubectl create namespace mine", "Forbidden")
        cli.text("kubectl create namespace ours")
        cli.aws(f"eks delete-access-entry --cluster-name {CLUSTER} --principal-arn {role}")
        viewer.fails("kubectl get pods -n default", "You must be logged in to the server")


def status(cli, update, more=""):
    found = cli.aws(f"eks describe-update --name {CLUSTER} --update-id {update} {more}")["update"]
    want(found["status"] in ("InProgress", "Successful"), str(found))
    return found["status"]


def ready_nodes(cli):
    condition = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}'
    return cli.text(f"kubectl get nodes -o jsonpath={shlex.quote(condition)}").split().count("True")
