# A network with every type of EC2's that a cluster's network needs. `step` 1 is the first state, 2 changes in place what can be
# changed, 3 changes what forces a replacement.

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
    tags = { Stack = "compat-network" }
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
}

data "aws_availability_zones" "available" {
  state = "available"
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

data "aws_caller_identity" "me" {}

data "aws_region" "here" {}

resource "aws_vpc" "main" {
  cidr_block                           = "10.20.0.0/16"
  enable_dns_hostnames                 = true
  enable_network_address_usage_metrics = local.changed
  assign_generated_ipv6_cidr_block     = true
  tags                                 = merge(local.tags, { Name = "compat" })
}

resource "aws_subnet" "public" {
  count                   = 2
  vpc_id                  = aws_vpc.main.id
  availability_zone       = data.aws_availability_zones.available.names[count.index]
  cidr_block              = cidrsubnet(aws_vpc.main.cidr_block, 8, count.index)
  map_public_ip_on_launch = local.changed
  tags                    = merge(local.tags, { Name = "public-${count.index}" })
}

resource "aws_subnet" "private" {
  vpc_id            = aws_vpc.main.id
  availability_zone = data.aws_availability_zones.available.names[0]
  cidr_block        = cidrsubnet(aws_vpc.main.cidr_block, 8, local.replaced ? 20 : 10)
  tags              = merge(local.tags, { Name = "private" })
}

resource "aws_internet_gateway" "main" {
  vpc_id = aws_vpc.main.id
  tags   = local.tags
}

resource "aws_eip" "nat" {
  domain = "vpc"
  tags   = local.tags
}

resource "aws_nat_gateway" "main" {
  allocation_id = aws_eip.nat.id
  subnet_id     = aws_subnet.public[local.replaced ? 1 : 0].id
  tags          = local.tags
  depends_on    = [aws_internet_gateway.main]
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.main.id
  route {
    cidr_block = local.changed ? "192.0.2.0/24" : "198.51.100.0/24"
    gateway_id = aws_internet_gateway.main.id
  }
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.main.id
  }
  tags = local.tags
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.main.id
  tags   = local.tags
}

resource "aws_route" "nat" {
  route_table_id         = aws_route_table.private.id
  destination_cidr_block = local.replaced ? "172.16.0.0/12" : "0.0.0.0/0"
  nat_gateway_id         = local.changed ? null : aws_nat_gateway.main.id
  gateway_id             = local.changed ? aws_internet_gateway.main.id : null
}

resource "aws_route" "six" {
  route_table_id              = aws_route_table.private.id
  destination_ipv6_cidr_block = "::/0"
  gateway_id                  = aws_internet_gateway.main.id
}

resource "aws_route_table_association" "public" {
  count          = 2
  subnet_id      = aws_subnet.public[count.index].id
  route_table_id = local.changed && count.index == 1 ? aws_route_table.private.id : aws_route_table.public.id
}

resource "aws_route_table_association" "private" {
  subnet_id      = aws_subnet.private.id
  route_table_id = aws_route_table.private.id
}

resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.main.id
  service_name      = "com.amazonaws.${data.aws_region.here.name}.${local.replaced ? "dynamodb" : "s3"}"
  vpc_endpoint_type = "Gateway"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = "*"
      Action    = local.changed ? ["s3:GetObject", "s3:ListBucket"] : ["s3:*"]
      Resource  = "*"
    }]
  })
  tags = local.tags
}

resource "aws_vpc_endpoint_route_table_association" "private" {
  vpc_endpoint_id = aws_vpc_endpoint.s3.id
  route_table_id  = aws_route_table.private.id
}

resource "aws_network_acl" "private" {
  vpc_id     = aws_vpc.main.id
  subnet_ids = local.changed ? [aws_subnet.private.id, aws_subnet.public[1].id] : [aws_subnet.private.id]
  egress {
    rule_no    = 100
    protocol   = "-1"
    action     = "allow"
    cidr_block = "0.0.0.0/0"
    from_port  = 0
    to_port    = 0
  }
  ingress {
    rule_no    = 100
    protocol   = "tcp"
    action     = "allow"
    cidr_block = "10.20.0.0/16"
    from_port  = local.changed ? 443 : 1024
    to_port    = 65535
  }
  tags = local.tags
}

# Its rules are objects of their own.
resource "aws_network_acl" "bare" {
  vpc_id = aws_vpc.main.id
  tags   = local.tags
  lifecycle {
    ignore_changes = [ingress, egress]
  }
}

resource "aws_network_acl_rule" "https" {
  network_acl_id = aws_network_acl.bare.id
  rule_number    = local.replaced ? 210 : 200
  egress         = false
  protocol       = "tcp"
  rule_action    = "allow"
  cidr_block     = "0.0.0.0/0"
  from_port      = 443
  to_port        = 443
}

resource "aws_network_acl_rule" "out" {
  network_acl_id = aws_network_acl.bare.id
  rule_number    = 300
  egress         = true
  protocol       = "-1"
  rule_action    = "allow"
  cidr_block     = "0.0.0.0/0"
}

resource "aws_default_network_acl" "main" {
  default_network_acl_id = aws_vpc.main.default_network_acl_id
  ingress {
    rule_no    = local.changed ? 120 : 110
    protocol   = "-1"
    action     = "allow"
    cidr_block = "10.20.0.0/16"
    from_port  = 0
    to_port    = 0
  }
  egress {
    rule_no    = 110
    protocol   = "-1"
    action     = "allow"
    cidr_block = "0.0.0.0/0"
    from_port  = 0
    to_port    = 0
  }
  tags = local.tags
  # Subnets without an ACL of their own are in this one.
  lifecycle {
    ignore_changes = [subnet_ids]
  }
}
