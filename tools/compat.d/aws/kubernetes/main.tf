# An EKS cluster with every part that one has. `step` 1 is the first state, 2 changes in place what can be changed, 3 changes what
# forces a replacement.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "5.100.0"
    }
  }
}

provider "aws" {
  default_tags {
    tags = { Stack = "compat-kubernetes" }
  }
}

variable "step" {
  type    = number
  default = 1
}

locals {
  changed  = var.step >= 2
  replaced = var.step >= 3
  tags     = { Step = local.changed ? "changed" : "first" }
  managed  = "arn:aws:iam::aws:policy"
}

data "aws_availability_zones" "available" {
  state = "available"
}

resource "aws_vpc" "main" {
  cidr_block = "10.30.0.0/16"
}

resource "aws_subnet" "main" {
  count             = 2
  vpc_id            = aws_vpc.main.id
  availability_zone = data.aws_availability_zones.available.names[count.index]
  cidr_block        = cidrsubnet(aws_vpc.main.cidr_block, 8, count.index)
}

resource "aws_security_group" "more" {
  name   = "compat-more"
  vpc_id = aws_vpc.main.id
}

resource "aws_iam_role" "cluster" {
  name = "compat-cluster"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["sts:AssumeRole", "sts:TagSession"], Principal = { Service = "eks.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.cluster.name
  policy_arn = "${local.managed}/AmazonEKSClusterPolicy"
}

resource "aws_iam_role" "node" {
  name = "compat-eks-node"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset(["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"])
  role       = aws_iam_role.node.name
  policy_arn = "${local.managed}/${each.key}"
}

resource "aws_iam_role" "pod" {
  count = 2
  name  = "compat-pod-${count.index}"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["sts:AssumeRole", "sts:TagSession"], Principal = { Service = "pods.eks.amazonaws.com" } }]
  })
}

resource "aws_kms_key" "secrets" {
  description             = "Secrets of the cluster"
  deletion_window_in_days = 7
}

resource "aws_eks_cluster" "main" {
  name     = "compat"
  role_arn = aws_iam_role.cluster.arn
  version  = local.changed ? "1.32" : "1.31"

  # What an import reads, so that importing changes nothing.
  bootstrap_self_managed_addons = false
  access_config {
    authentication_mode                         = local.changed ? "API" : "API_AND_CONFIG_MAP"
    bootstrap_cluster_creator_admin_permissions = true
  }

  enabled_cluster_log_types = local.changed ? ["api", "audit", "authenticator"] : ["api"]
  vpc_config {
    subnet_ids              = aws_subnet.main[*].id
    security_group_ids      = [aws_security_group.more.id]
    endpoint_private_access = local.changed
    endpoint_public_access  = true
    public_access_cidrs     = local.changed ? ["203.0.113.0/24", "127.0.0.0/8"] : ["0.0.0.0/0"]
  }
  kubernetes_network_config {
    service_ipv4_cidr = "172.20.0.0/16"
  }
  encryption_config {
    resources = ["secrets"]
    provider {
      key_arn = aws_kms_key.secrets.arn
    }
  }
  upgrade_policy {
    support_type = local.changed ? "STANDARD" : "EXTENDED"
  }
  tags       = local.tags
  depends_on = [aws_iam_role_policy_attachment.cluster]
}

resource "aws_iam_openid_connect_provider" "cluster" {
  url             = aws_eks_cluster.main.identity[0].oidc[0].issuer
  client_id_list  = ["sts.amazonaws.com"]
  thumbprint_list = ["9e99a48a9960b14926bb7f3b02e22da2b0ab7280"]
}

resource "aws_launch_template" "nodes" {
  name                   = "compat-eks-nodes"
  update_default_version = true
  instance_type          = "m6i.large"
  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size = local.changed ? 80 : 50
      volume_type = "gp3"
    }
  }
}

resource "aws_eks_node_group" "main" {
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "main"
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = aws_subnet.main[*].id
  version         = aws_eks_cluster.main.version
  launch_template {
    id      = aws_launch_template.nodes.id
    version = aws_launch_template.nodes.latest_version
  }
  scaling_config {
    min_size     = 1
    desired_size = local.changed ? 3 : 2
    max_size     = local.changed ? 5 : 3
  }
  update_config {
    max_unavailable_percentage = local.changed ? 50 : 33
  }
  labels = local.changed ? { pool = "main", tier = "web" } : { pool = "main", old = "yes" }
  dynamic "taint" {
    for_each = local.changed ? ["NO_EXECUTE"] : ["NO_SCHEDULE", "PREFER_NO_SCHEDULE"]
    content {
      key    = "dedicated"
      value  = "compat"
      effect = taint.value
    }
  }
  tags       = local.tags
  depends_on = [aws_iam_role_policy_attachment.node]
}

# Without a launch template: the group chooses disk and machines itself.
resource "aws_eks_node_group" "plain" {
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "plain"
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = [aws_subnet.main[0].id]
  instance_types  = local.replaced ? ["m6i.xlarge"] : ["m6i.large"]
  capacity_type   = "SPOT"
  scaling_config {
    min_size     = 0
    desired_size = 1
    max_size     = 2
  }
  tags       = local.tags
  depends_on = [aws_iam_role_policy_attachment.node]
}

data "aws_eks_addon_version" "cni" {
  addon_name         = "vpc-cni"
  kubernetes_version = aws_eks_cluster.main.version
  most_recent        = true
}

data "aws_eks_addon_version" "dns" {
  addon_name         = "coredns"
  kubernetes_version = aws_eks_cluster.main.version
}

resource "aws_eks_addon" "cni" {
  cluster_name                = aws_eks_cluster.main.name
  addon_name                  = "vpc-cni"
  addon_version               = data.aws_eks_addon_version.cni.version
  resolve_conflicts_on_create = "OVERWRITE"
  resolve_conflicts_on_update = "OVERWRITE"
  configuration_values        = jsonencode({ env = { WARM_IP_TARGET = local.changed ? "3" : "2" } })
  pod_identity_association {
    role_arn        = aws_iam_role.pod[local.changed ? 1 : 0].arn
    service_account = "aws-node"
  }
  tags       = local.tags
  depends_on = [aws_eks_addon.pod_identity]
}

resource "aws_eks_addon" "pod_identity" {
  cluster_name = aws_eks_cluster.main.name
  addon_name   = "eks-pod-identity-agent"
  tags         = local.tags
}

resource "aws_eks_addon" "dns" {
  cluster_name                = aws_eks_cluster.main.name
  addon_name                  = "coredns"
  addon_version               = data.aws_eks_addon_version.dns.version
  resolve_conflicts_on_update = "PRESERVE"
  depends_on                  = [aws_eks_node_group.main, aws_eks_node_group.plain]
}

# A token for the cluster, made without a call.
data "aws_eks_cluster_auth" "main" {
  name = aws_eks_cluster.main.name
}

resource "aws_eks_access_entry" "team" {
  cluster_name      = aws_eks_cluster.main.name
  principal_arn     = aws_iam_role.pod[local.replaced ? 1 : 0].arn
  kubernetes_groups = local.changed ? ["viewers", "editors"] : ["viewers"]
  user_name         = local.changed ? "team-two" : "team"
  tags              = local.tags
}

resource "aws_eks_access_policy_association" "team" {
  cluster_name  = aws_eks_cluster.main.name
  principal_arn = aws_eks_access_entry.team.principal_arn
  policy_arn    = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
  access_scope {
    type       = local.replaced ? "namespace" : "cluster"
    namespaces = local.replaced ? ["default", "team"] : null
  }
}

resource "aws_eks_pod_identity_association" "app" {
  cluster_name    = aws_eks_cluster.main.name
  namespace       = local.replaced ? "app-two" : "app"
  service_account = "app"
  role_arn        = aws_iam_role.pod[local.changed ? 1 : 0].arn
  tags            = local.tags
}

output "cluster" {
  value = { arn = aws_eks_cluster.main.arn, version = aws_eks_cluster.main.version, status = aws_eks_cluster.main.status }
}

output "endpoint" {
  value = aws_eks_cluster.main.endpoint
}

output "issuer" {
  value = aws_eks_cluster.main.identity[0].oidc[0].issuer
}
