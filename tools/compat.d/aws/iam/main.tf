# What stands around a cluster: roles and policies, a key, a log group, a queue with the rule that fills it. `step` 1 is the first
# state, 2 changes in place what can be changed, 3 changes what forces a replacement.

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
    tags = { Stack = "compat-iam" }
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
  account  = data.aws_caller_identity.me.account_id
}

data "aws_caller_identity" "me" {}

data "aws_partition" "here" {}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = local.changed ? ["sts:AssumeRole", "sts:TagSession"] : ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_policy" "boundary" {
  name = "compat-boundary"
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "*", Resource = "*" }]
  })
}

resource "aws_iam_role" "node" {
  name                  = local.replaced ? "compat-node-three" : "compat-node"
  path                  = local.replaced ? "/compat/" : "/"
  description           = local.changed ? "changed" : "first"
  assume_role_policy    = data.aws_iam_policy_document.trust.json
  max_session_duration  = local.changed ? 7200 : 3600
  permissions_boundary  = local.changed ? aws_iam_policy.boundary.arn : null
  force_detach_policies = true
  tags                  = local.tags
}

resource "aws_iam_policy" "own" {
  name        = local.replaced ? "compat-own-two" : "compat-own"
  path        = "/compat/"
  description = "A policy of our own"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "Read"
      Effect   = "Allow"
      Action   = local.changed ? ["ec2:Describe*", "eks:DescribeCluster"] : ["ec2:Describe*"]
      Resource = "*"
    }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy_attachment" "own" {
  role       = aws_iam_role.node.name
  policy_arn = aws_iam_policy.own.arn
}

resource "aws_iam_role_policy_attachment" "managed" {
  # By its id, which changes when the role is replaced: the new role has no attachments.
  role       = aws_iam_role.node.id
  policy_arn = "arn:${data.aws_partition.here.partition}:iam::aws:policy/AmazonEKSWorkerNodePolicy"
}

resource "aws_iam_role_policy" "inline" {
  name = "compat-inline"
  role = aws_iam_role.node.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = local.changed ? ["s3:GetObject", "s3:PutObject"] : ["s3:GetObject"]
      Resource = "arn:aws:s3:::compat-*/*"
    }]
  })
}

resource "aws_iam_instance_profile" "node" {
  name = local.replaced ? "compat-node-two" : "compat-node"
  role = aws_iam_role.node.name
  tags = local.tags
}

resource "aws_iam_openid_connect_provider" "issuer" {
  url             = local.replaced ? "https://two.example.com/id" : "https://oidc.example.com/id"
  client_id_list  = local.changed ? ["sts.amazonaws.com", "berth.example.com"] : ["sts.amazonaws.com"]
  thumbprint_list = [local.changed ? "1111111111111111111111111111111111111111" : "9e99a48a9960b14926bb7f3b02e22da2b0ab7280"]
  tags            = local.tags
}

resource "aws_kms_key" "main" {
  description             = local.changed ? "changed" : "first"
  deletion_window_in_days = 7
  enable_key_rotation     = true
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([{
      Sid       = "Owner"
      Effect    = "Allow"
      Principal = { AWS = "arn:aws:iam::${local.account}:root" }
      Action    = "kms:*"
      Resource  = "*"
      }], local.changed ? [{
      Sid       = "Logs"
      Effect    = "Allow"
      Principal = { Service = "logs.amazonaws.com" }
      Action    = "kms:Encrypt"
      Resource  = "*"
    }] : [])
  })
  tags = local.tags
}

resource "aws_kms_alias" "main" {
  name          = local.replaced ? "alias/compat-two" : "alias/compat"
  target_key_id = aws_kms_key.main.key_id
}

resource "aws_cloudwatch_log_group" "cluster" {
  name              = local.replaced ? "/aws/eks/compat-two/cluster" : "/aws/eks/compat/cluster"
  retention_in_days = local.changed ? 30 : 7
  tags              = local.tags
}

resource "aws_sqs_queue" "events" {
  name                       = local.replaced ? "compat-events-two" : "compat-events"
  message_retention_seconds  = local.changed ? 600 : 300
  visibility_timeout_seconds = local.changed ? 45 : 30
  sqs_managed_sse_enabled    = true
  tags                       = local.tags
}

resource "aws_sqs_queue_policy" "events" {
  queue_url = aws_sqs_queue.events.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = local.changed ? "EventsChanged" : "Events"
      Effect    = "Allow"
      Principal = { Service = ["events.amazonaws.com", "sqs.amazonaws.com"] }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.events.arn
    }]
  })
}

resource "aws_cloudwatch_event_rule" "spot" {
  name        = local.replaced ? "compat-spot-two" : "compat-spot"
  description = local.changed ? "changed" : "first"
  event_pattern = jsonencode({
    source        = ["aws.ec2"]
    "detail-type" = local.changed ? ["EC2 Instance Rebalance Recommendation"] : ["EC2 Spot Instance Interruption Warning"]
  })
  tags = local.tags
}

resource "aws_cloudwatch_event_target" "queue" {
  rule      = aws_cloudwatch_event_rule.spot.name
  target_id = local.replaced ? "queue-two" : "queue"
  arn       = aws_sqs_queue.events.arn
  input     = local.changed ? jsonencode({ changed = true }) : null
}

output "role" {
  value = aws_iam_role.node.arn
}

output "policy" {
  value = aws_iam_policy.own.arn
}

output "profile" {
  value = aws_iam_instance_profile.node.arn
}

output "issuer" {
  value = aws_iam_openid_connect_provider.issuer.arn
}

output "log_group" {
  value = aws_cloudwatch_log_group.cluster.arn
}

output "queue" {
  value = { arn = aws_sqs_queue.events.arn, name = aws_sqs_queue.events.name }
}

output "rule" {
  value = aws_cloudwatch_event_rule.spot.arn
}
