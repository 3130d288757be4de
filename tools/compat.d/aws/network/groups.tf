resource "aws_default_security_group" "main" {
  vpc_id = aws_vpc.main.id
  ingress {
    protocol  = "-1"
    self      = true
    from_port = 0
    to_port   = 0
  }
  dynamic "egress" {
    for_each = local.changed ? ["10.20.0.0/16"] : []
    content {
      protocol    = "-1"
      from_port   = 0
      to_port     = 0
      cidr_blocks = [egress.value]
    }
  }
  tags = local.tags
}

resource "aws_security_group" "inline" {
  name                   = local.replaced ? "compat-inline-two" : "compat-inline"
  description            = "Rules inside the group"
  vpc_id                 = aws_vpc.main.id
  revoke_rules_on_delete = true
  ingress {
    description = local.changed ? "web and more" : "web"
    protocol    = "tcp"
    from_port   = 443
    to_port     = local.changed ? 444 : 443
    cidr_blocks = ["10.0.0.0/8", "192.168.0.0/16"]
  }
  ingress {
    protocol  = "tcp"
    from_port = 9000
    to_port   = 9001
    self      = true
  }
  egress {
    protocol         = "-1"
    from_port        = 0
    to_port          = 0
    cidr_blocks      = ["0.0.0.0/0"]
    ipv6_cidr_blocks = ["::/0"]
  }
  tags = local.tags
}

resource "aws_security_group" "bare" {
  name        = "compat-bare"
  description = "Rules beside the group"
  vpc_id      = aws_vpc.main.id
  tags        = local.tags
}

resource "aws_security_group_rule" "ssh" {
  type              = "ingress"
  security_group_id = aws_security_group.bare.id
  description       = local.changed ? "ssh, changed" : "ssh"
  protocol          = "tcp"
  from_port         = local.replaced ? 2222 : 22
  to_port           = local.replaced ? 2222 : 22
  cidr_blocks       = ["10.0.0.0/8"]
}

resource "aws_security_group_rule" "out" {
  type              = "egress"
  security_group_id = aws_security_group.bare.id
  protocol          = "-1"
  from_port         = 0
  to_port           = 0
  cidr_blocks       = ["0.0.0.0/0"]
}

resource "aws_security_group_rule" "peer" {
  type                     = "ingress"
  security_group_id        = aws_security_group.bare.id
  source_security_group_id = aws_security_group.inline.id
  protocol                 = "udp"
  from_port                = 53
  to_port                  = 53
}

resource "aws_security_group" "single" {
  name        = "compat-single"
  description = "Each rule has an id"
  vpc_id      = aws_vpc.main.id
  tags        = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "https" {
  security_group_id = aws_security_group.single.id
  description       = local.changed ? "https, changed" : "https"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = local.changed ? 8443 : 443
  cidr_ipv4         = "10.0.0.0/8"
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "peer" {
  security_group_id            = local.replaced ? aws_security_group.bare.id : aws_security_group.single.id
  referenced_security_group_id = aws_security_group.single.id
  ip_protocol                  = "tcp"
  from_port                    = 10250
  to_port                      = 10250
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.single.id
  ip_protocol       = "-1"
  cidr_ipv4         = local.changed ? "10.0.0.0/8" : "0.0.0.0/0"
  tags              = local.tags
}

resource "aws_launch_template" "nodes" {
  name                   = local.replaced ? "compat-nodes-two" : "compat-nodes"
  description            = local.changed ? "changed" : "first"
  update_default_version = true
  instance_type          = local.changed ? "m6i.xlarge" : "m6i.large"
  vpc_security_group_ids = [aws_security_group.single.id]
  user_data              = base64encode(local.changed ? "#!/bin/sh\necho two\n" : "#!/bin/sh\necho one\n")
  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size = local.changed ? 60 : 50
      volume_type = "gp3"
      encrypted   = "true"
    }
  }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
  }
  tag_specifications {
    resource_type = "instance"
    tags          = { Name = "compat-node" }
  }
  tags = local.tags
}

output "account" {
  value = data.aws_caller_identity.me.account_id
}

output "vpc" {
  value = { arn = aws_vpc.main.arn, cidr = aws_vpc.main.cidr_block, owner = aws_vpc.main.owner_id }
}

output "subnets" {
  value = [for subnet in aws_subnet.public : { cidr = subnet.cidr_block, zone = subnet.availability_zone }]
}

output "template" {
  value = { latest = aws_launch_template.nodes.latest_version, default = aws_launch_template.nodes.default_version }
}

output "endpoint_state" {
  value = aws_vpc_endpoint.s3.state
}
