# Buckets with each of their settings. `step` 1 is the first state, 2 changes in place what can be changed, 3 changes what forces a
# replacement.

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
    tags = { Stack = "compat-storage" }
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

resource "aws_s3_bucket" "state" {
  bucket        = "berth-compat-state"
  force_destroy = true
  tags          = local.tags
}

resource "aws_s3_bucket_versioning" "state" {
  bucket = aws_s3_bucket.state.id
  versioning_configuration {
    status = local.changed ? "Suspended" : "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "state" {
  bucket = aws_s3_bucket.state.id
  rule {
    bucket_key_enabled = local.changed
    apply_server_side_encryption_by_default {
      sse_algorithm = local.changed ? "aws:kms" : "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "state" {
  bucket                  = aws_s3_bucket.state.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = local.changed
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "state" {
  bucket = aws_s3_bucket.state.id
  rule {
    object_ownership = local.changed ? "BucketOwnerPreferred" : "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_policy" "state" {
  bucket = aws_s3_bucket.state.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = local.changed ? "TlsOnlyChanged" : "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.state.arn, "${aws_s3_bucket.state.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
  depends_on = [aws_s3_bucket_public_access_block.state]
}

resource "aws_s3_bucket_lifecycle_configuration" "state" {
  bucket = aws_s3_bucket.state.id
  rule {
    id     = "old-versions"
    status = "Enabled"
    filter {
      prefix = "state/"
    }
    noncurrent_version_expiration {
      noncurrent_days = local.changed ? 60 : 30
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
  rule {
    id     = "archive"
    status = local.changed ? "Disabled" : "Enabled"
    filter {
      tag {
        key   = "class"
        value = "archive"
      }
    }
    transition {
      days          = 90
      storage_class = "GLACIER"
    }
    expiration {
      days = 365
    }
  }
  depends_on = [aws_s3_bucket_versioning.state]
}

resource "aws_s3_bucket" "other" {
  bucket        = local.replaced ? "berth-compat-other-two" : "berth-compat-other"
  force_destroy = true
  tags          = local.tags
}

output "bucket" {
  value = { arn = aws_s3_bucket.state.arn, region = aws_s3_bucket.state.region, domain = aws_s3_bucket.state.bucket_domain_name }
}

output "other" {
  value = aws_s3_bucket.other.arn
}
