//! From method, path and query to an action of S3.

use hyper::Method;
use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::aws::ask::Input;
use crate::aws::errors::Answer;
use crate::http::Call;

/// Names of hosts behind which a bucket's name can stand.
const HOSTS: [&str; 2] = ["localhost", "amazonaws.com"];

/// Bucket and key, by path or by host.
fn names(call: &Call) -> (String, String) {
    let path = call.path.strip_prefix('/').unwrap_or(&call.path);
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    if let Some(bucket) = bucket_of_host(call) {
        return (bucket, decode(path));
    }
    match path.split_once('/') {
        Some((bucket, key)) => (decode(bucket), decode(key)),
        None => (decode(path), String::new()),
    }
}

/// `BUCKET` of `BUCKET.localhost:7073`, `BUCKET.s3.localhost` and `BUCKET.s3.REGION.amazonaws.com`.
fn bucket_of_host(call: &Call) -> Option<String> {
    let host = call.headers.get("host")?.to_str().ok()?;
    let host = host.split(':').next().unwrap_or(host);
    let before = HOSTS.iter().find_map(|base| host.strip_suffix(base)?.strip_suffix('.'))?;
    if before == "s3" || before.starts_with("s3.") || before.starts_with("s3-") {
        return None;
    }
    let end = before.rfind(".s3").unwrap_or(before.len());
    Some(before[..end].to_owned())
}

/// A setting of a bucket: the sub-resource that it is, and the actions on it.
pub struct Setting {
    pub query: &'static str,
    get: &'static str,
    put: &'static str,
    /// Empty where it cannot be deleted.
    delete: &'static str,
    /// Where a bucket can have several, each with an id.
    list: &'static str,
}

impl Setting {
    pub fn has_ids(&self) -> bool {
        !self.list.is_empty()
    }
}

pub const SETTINGS: [Setting; 18] = [
    Setting { query: "policy", get: "GetBucketPolicy", put: "PutBucketPolicy", delete: "DeleteBucketPolicy", list: "" },
    Setting { query: "cors", get: "GetBucketCors", put: "PutBucketCors", delete: "DeleteBucketCors", list: "" },
    Setting {
        query: "website",
        get: "GetBucketWebsite",
        put: "PutBucketWebsite",
        delete: "DeleteBucketWebsite",
        list: "",
    },
    Setting { query: "versioning", get: "GetBucketVersioning", put: "PutBucketVersioning", delete: "", list: "" },
    Setting {
        query: "accelerate",
        get: "GetBucketAccelerateConfiguration",
        put: "PutBucketAccelerateConfiguration",
        delete: "",
        list: "",
    },
    Setting {
        query: "requestPayment",
        get: "GetBucketRequestPayment",
        put: "PutBucketRequestPayment",
        delete: "",
        list: "",
    },
    Setting { query: "logging", get: "GetBucketLogging", put: "PutBucketLogging", delete: "", list: "" },
    Setting {
        query: "lifecycle",
        get: "GetBucketLifecycleConfiguration",
        put: "PutBucketLifecycleConfiguration",
        delete: "DeleteBucketLifecycle",
        list: "",
    },
    Setting {
        query: "replication",
        get: "GetBucketReplication",
        put: "PutBucketReplication",
        delete: "DeleteBucketReplication",
        list: "",
    },
    Setting {
        query: "encryption",
        get: "GetBucketEncryption",
        put: "PutBucketEncryption",
        delete: "DeleteBucketEncryption",
        list: "",
    },
    Setting {
        query: "object-lock",
        get: "GetObjectLockConfiguration",
        put: "PutObjectLockConfiguration",
        delete: "",
        list: "",
    },
    Setting {
        query: "publicAccessBlock",
        get: "GetPublicAccessBlock",
        put: "PutPublicAccessBlock",
        delete: "DeletePublicAccessBlock",
        list: "",
    },
    Setting {
        query: "ownershipControls",
        get: "GetBucketOwnershipControls",
        put: "PutBucketOwnershipControls",
        delete: "DeleteBucketOwnershipControls",
        list: "",
    },
    Setting {
        query: "notification",
        get: "GetBucketNotificationConfiguration",
        put: "PutBucketNotificationConfiguration",
        delete: "",
        list: "",
    },
    Setting {
        query: "intelligent-tiering",
        get: "GetBucketIntelligentTieringConfiguration",
        put: "PutBucketIntelligentTieringConfiguration",
        delete: "DeleteBucketIntelligentTieringConfiguration",
        list: "ListBucketIntelligentTieringConfigurations",
    },
    Setting {
        query: "analytics",
        get: "GetBucketAnalyticsConfiguration",
        put: "PutBucketAnalyticsConfiguration",
        delete: "DeleteBucketAnalyticsConfiguration",
        list: "ListBucketAnalyticsConfigurations",
    },
    Setting {
        query: "inventory",
        get: "GetBucketInventoryConfiguration",
        put: "PutBucketInventoryConfiguration",
        delete: "DeleteBucketInventoryConfiguration",
        list: "ListBucketInventoryConfigurations",
    },
    Setting {
        query: "metrics",
        get: "GetBucketMetricsConfiguration",
        put: "PutBucketMetricsConfiguration",
        delete: "DeleteBucketMetricsConfiguration",
        list: "ListBucketMetricsConfigurations",
    },
];

/// The setting that a request is about.
pub fn setting(call: &Call) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| call.query(setting.query).is_some())
}

fn of_setting(call: &Call, setting: &'static Setting) -> Option<&'static str> {
    let name = match call.method {
        Method::GET if setting.has_ids() && call.query("id").is_none() => setting.list,
        Method::GET => setting.get,
        Method::PUT => setting.put,
        Method::DELETE => setting.delete,
        _ => "",
    };
    (!name.is_empty()).then_some(name)
}

pub fn route(call: &Call) -> Answer<Option<(&'static str, Input)>> {
    let (bucket, key) = names(call);
    let action = match (bucket.is_empty(), key.is_empty()) {
        (true, _) if call.method == Method::GET => Some("ListBuckets"),
        (true, _) => None,
        (false, true) => of_bucket(call),
        (false, false) => of_object(call),
    };
    let input = match (bucket.is_empty(), key.is_empty()) {
        (true, _) => json!({}),
        (false, true) => json!({"Bucket": bucket}),
        (false, false) => json!({"Bucket": bucket, "Key": key}),
    };
    Ok(action.map(|action| (action, Input(input))))
}

fn of_bucket(call: &Call) -> Option<&'static str> {
    let has = |name: &str| call.query(name).is_some();
    if let Some(setting) = setting(call) {
        return of_setting(call, setting);
    }
    // Not simulated, and no bucket made or listed in disguise.
    if ["abac", "metadataConfiguration", "metadataTable", "session"].iter().any(|name| has(name)) {
        return None;
    }
    Some(match call.method {
        Method::HEAD => "HeadBucket",
        Method::GET if has("tagging") => "GetBucketTagging",
        Method::GET if has("acl") => "GetBucketAcl",
        Method::GET if has("policyStatus") => "GetBucketPolicyStatus",
        Method::GET if has("location") => "GetBucketLocation",
        Method::GET if has("versions") => "ListObjectVersions",
        Method::GET if has("uploads") => "ListMultipartUploads",
        Method::GET if call.query("list-type") == Some("2") => "ListObjectsV2",
        Method::GET => "ListObjects",
        Method::PUT if has("tagging") => "PutBucketTagging",
        Method::PUT if has("acl") => "PutBucketAcl",
        Method::PUT => "CreateBucket",
        Method::DELETE if has("tagging") => "DeleteBucketTagging",
        Method::DELETE => "DeleteBucket",
        Method::POST if has("delete") => "DeleteObjects",
        _ => return None,
    })
}

fn of_object(call: &Call) -> Option<&'static str> {
    let has = |name: &str| call.query(name).is_some();
    // Not simulated, and no upload or download in disguise.
    if ["retention", "legal-hold", "torrent", "select", "restore", "renameObject"].iter().any(|name| has(name)) {
        return None;
    }
    let copies = call.headers.contains_key("x-amz-copy-source");
    Some(match call.method {
        Method::HEAD => "HeadObject",
        Method::GET if has("uploadId") => "ListParts",
        Method::GET if has("tagging") => "GetObjectTagging",
        Method::GET if has("acl") => "GetObjectAcl",
        Method::GET if has("attributes") => "GetObjectAttributes",
        Method::GET => "GetObject",
        Method::PUT if has("uploadId") && copies => "UploadPartCopy",
        Method::PUT if has("uploadId") => "UploadPart",
        Method::PUT if has("tagging") => "PutObjectTagging",
        Method::PUT if has("acl") => "PutObjectAcl",
        Method::PUT if copies => "CopyObject",
        Method::PUT => "PutObject",
        Method::DELETE if has("uploadId") => "AbortMultipartUpload",
        Method::DELETE if has("tagging") => "DeleteObjectTagging",
        Method::DELETE => "DeleteObject",
        Method::POST if has("uploads") => "CreateMultipartUpload",
        Method::POST if has("uploadId") => "CompleteMultipartUpload",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hyper::HeaderMap;

    #[test]
    fn actions_follow_from_method_path_and_query() {
        for (method, host, uri, action, bucket, key) in [
            (Method::GET, "127.0.0.1:1", "/", "ListBuckets", None, None),
            (Method::PUT, "127.0.0.1:1", "/b", "CreateBucket", Some("b"), None),
            (Method::GET, "127.0.0.1:1", "/b/?list-type=2&prefix=x", "ListObjectsV2", Some("b"), None),
            (Method::GET, "127.0.0.1:1", "/b?policy=", "GetBucketPolicy", Some("b"), None),
            (Method::GET, "127.0.0.1:1", "/b?inventory", "ListBucketInventoryConfigurations", Some("b"), None),
            (Method::GET, "127.0.0.1:1", "/b/a%20b/c+d", "GetObject", Some("b"), Some("a b/c+d")),
            (Method::PUT, "b.localhost:1", "/k?partNumber=1&uploadId=u", "UploadPart", Some("b"), Some("k")),
            (Method::GET, "my.b.s3.eu-central-1.amazonaws.com", "/k", "GetObject", Some("my.b"), Some("k")),
            (Method::HEAD, "localhost:1", "/b", "HeadBucket", Some("b"), None),
            (Method::HEAD, "s3.eu-central-1.amazonaws.com", "/b", "HeadBucket", Some("b"), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().unwrap());
            let call = Call::new(method, &uri.parse().unwrap(), headers, Bytes::new());
            let (seen, input) = route(&call).unwrap().unwrap();
            assert_eq!((seen, input.text("Bucket"), input.text("Key")), (action, bucket, key), "{host}{uri}");
        }
        let call = Call::new(Method::POST, &"/b".parse().unwrap(), HeaderMap::new(), Bytes::new());
        assert!(route(&call).unwrap().is_none());
    }
}
