use super::client::{Aws, Expected, Holds, Refused};

/// Method and path, headers, body, what must come back.
type Step<'a> = ((&'a str, &'a str), &'a [(&'a str, &'a str)], &'a str, Expected);

const MAKE: &str =
    "<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>";

async fn run(aws: &Aws, steps: &[Step<'_>]) {
    for (request, headers, body, expected) in steps {
        let answer = aws.send("s3", *request, headers, *body).await;
        answer.check(&format!("{request:?} {headers:?}"), expected);
    }
}

const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>a</ID><Status>Enabled</Status><Filter/><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>";

const BUCKETS: &[Step<'static>] = &[
    (("PUT", "/bucket"), &[], "", Refused(400, "IllegalLocationConstraintException")),
    (("PUT", "/Bad_Name"), &[], MAKE, Refused(400, "InvalidBucketName")),
    (("PUT", "/bucket"), &[], MAKE, Holds(&[])),
    (("PUT", "/bucket"), &[], MAKE, Refused(409, "BucketAlreadyOwnedByYou")),
    (("HEAD", "/none"), &[], "", Refused(404, "")),
    (("GET", "/bucket?location"), &[], "", Holds(&["eu-central-1"])),
    (("GET", "/bucket?policy"), &[], "", Refused(404, "NoSuchBucketPolicy")),
    (("GET", "/bucket?cors"), &[], "", Refused(404, "NoSuchCORSConfiguration")),
    (("GET", "/bucket?lifecycle"), &[], "", Refused(404, "NoSuchLifecycleConfiguration")),
    (("GET", "/bucket?tagging"), &[], "", Refused(404, "NoSuchTagSet")),
    (("GET", "/bucket?encryption"), &[], "", Holds(&["AES256"])),
    (("GET", "/bucket?publicAccessBlock"), &[], "", Holds(&["<BlockPublicPolicy>true<"])),
    (("DELETE", "/bucket?publicAccessBlock"), &[], "", Holds(&[])),
    (("GET", "/bucket?publicAccessBlock"), &[], "", Refused(404, "NoSuchPublicAccessBlockConfiguration")),
    (("GET", "/bucket?ownershipControls"), &[], "", Holds(&["BucketOwnerEnforced"])),
    (("GET", "/bucket?acl"), &[], "", Holds(&["FULL_CONTROL", "xsi:type=\"CanonicalUser\""])),
    (("PUT", "/bucket?acl"), &[("x-amz-acl", "public-read")], "", Refused(400, "AccessControlListNotSupported")),
    (("PUT", "/bucket?lifecycle"), &[], "<LifecycleConfiguration/>", Refused(400, "MalformedXML")),
    (("PUT", "/bucket?lifecycle"), &[], LIFECYCLE, Holds(&[])),
    (("GET", "/bucket?lifecycle"), &[], "", Holds(&["<Days>3</Days>"])),
    (
        ("PUT", "/bucket?versioning"),
        &[],
        "<VersioningConfiguration><Status>On</Status></VersioningConfiguration>",
        Refused(400, "MalformedXML"),
    ),
    (
        ("PUT", "/bucket?tagging"),
        &[],
        "<Tagging><TagSet><Tag><Key>a</Key><Value>b &amp; c</Value></Tag></TagSet></Tagging>",
        Holds(&[]),
    ),
    (("GET", "/bucket?tagging"), &[], "", Holds(&["<Value>b &amp; c</Value>"])),
    (("PUT", "/bucket?policy"), &[], "{", Refused(400, "MalformedPolicy")),
    (("POST", "/bucket?unknown"), &[], "", Refused(404, "")),
    (("PUT", "/bucket/k"), &[], "x", Holds(&[])),
    (("DELETE", "/bucket"), &[], "", Refused(409, "BucketNotEmpty")),
    (("DELETE", "/bucket/k"), &[], "", Holds(&[])),
    (("DELETE", "/bucket"), &[], "", Holds(&[])),
    (("GET", "/bucket?acl"), &[], "", Refused(404, "NoSuchBucket")),
];

#[tokio::test]
async fn buckets_and_their_settings_live_as_in_s3() {
    let aws = Aws::instant().await;
    run(&aws, BUCKETS).await;
    let answer = aws.send("s3", ("PUT", "/bucket"), &[], MAKE).await;
    assert_eq!(answer.headers["location"], "/bucket");
    let answer = aws.send("s3", ("PUT", "/bucket?lifecycle"), &[], LIFECYCLE).await;
    assert_eq!(answer.headers["x-amz-transition-default-minimum-object-size"], "all_storage_classes_128K");
    let answer = aws.send("s3", ("HEAD", "/bucket"), &[], "").await;
    assert_eq!(answer.headers["x-amz-bucket-region"], "eu-central-1");
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn objects_come_back_as_they_were_put() {
    let aws = Aws::instant().await;
    run(
        &aws,
        &[
            (("PUT", "/bucket"), &[], MAKE, Holds(&[])),
            (("GET", "/bucket/none"), &[], "", Refused(404, "NoSuchKey")),
            (
                ("PUT", "/bucket/a%20b"),
                &[("content-type", "text/plain"), ("x-amz-meta-k", "v")],
                "hello world",
                Holds(&[]),
            ),
            (("PUT", "/bucket/a%20b"), &[("if-none-match", "*")], "other", Refused(412, "PreconditionFailed")),
            (("PUT", "/bucket/lock"), &[("if-none-match", "*")], "locked", Holds(&[])),
            (("PUT", "/bucket/x"), &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], "x", Refused(400, "BadDigest")),
            (("PUT", "/bucket/x"), &[("x-amz-checksum-crc32", "AAAAAA==")], "x", Refused(400, "BadDigest")),
            (("GET", "/bucket/a%20b"), &[], "", Holds(&["hello world"])),
            (("GET", "/bucket/a%20b"), &[("range", "bytes=50-")], "", Refused(416, "InvalidRange")),
            (
                ("GET", "/bucket/a%20b"),
                &[("if-none-match", "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"")],
                "",
                Refused(304, ""),
            ),
            (("GET", "/bucket?list-type=2&delimiter=/"), &[], "", Holds(&["<Key>a b</Key>", "<KeyCount>2</KeyCount>"])),
            (
                ("GET", "/bucket?list-type=2&encoding-type=url&max-keys=1"),
                &[],
                "",
                Holds(&["<Key>a%20b</Key>", "<IsTruncated>true<", "<NextContinuationToken>"]),
            ),
            (
                ("PUT", "/bucket/copy"),
                &[("x-amz-copy-source", "/bucket/a%20b")],
                "",
                Holds(&["5eb63bbbe01eeed093cb22bb8f5acdc3"]),
            ),
            (
                ("POST", "/bucket?delete"),
                &[],
                "<Delete><Object><Key>copy</Key></Object></Delete>",
                Holds(&["<Deleted><Key>copy</Key></Deleted>"]),
            ),
            (("GET", "/bucket/copy"), &[], "", Refused(404, "NoSuchKey")),
        ],
    )
    .await;
    let answer = aws.send("s3", ("GET", "/bucket/a%20b"), &[("range", "bytes=0-4")], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (206, "hello"));
    assert_eq!(answer.headers["content-range"], "bytes 0-4/11");
    assert_eq!((answer.headers["x-amz-meta-k"].as_str(), answer.headers["content-type"].as_str()), ("v", "text/plain"));
    let answer = aws.send("s3", ("HEAD", "/bucket/a%20b"), &[], "").await;
    assert_eq!(answer.headers["content-length"], "11");
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn versions_are_kept_until_they_are_deleted_themselves() {
    let aws = Aws::instant().await;
    run(
        &aws,
        &[
            (("PUT", "/bucket"), &[], MAKE, Holds(&[])),
            (
                ("PUT", "/bucket?versioning"),
                &[],
                "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
                Holds(&[]),
            ),
            (("PUT", "/bucket/k"), &[], "one", Holds(&[])),
            (("PUT", "/bucket/k"), &[], "two", Holds(&[])),
        ],
    )
    .await;
    let marker = aws.send("s3", ("DELETE", "/bucket/k"), &[], "").await;
    assert_eq!((marker.status, marker.headers["x-amz-delete-marker"].as_str()), (204, "true"));
    let version = &marker.headers["x-amz-version-id"];
    run(
        &aws,
        &[
            (("GET", "/bucket/k"), &[], "", Refused(404, "NoSuchKey")),
            (("GET", "/bucket?versions"), &[], "", Holds(&["<DeleteMarker>", "<IsLatest>false</IsLatest>"])),
            (("DELETE", "/bucket"), &[], "", Refused(409, "You must delete all versions")),
            (("DELETE", &format!("/bucket/k?versionId={version}")), &[], "", Holds(&[])),
            (("GET", "/bucket/k"), &[], "", Holds(&["two"])),
        ],
    )
    .await;
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn parts_become_one_object() {
    let aws = Aws::instant().await;
    run(&aws, &[(("PUT", "/bucket"), &[], MAKE, Holds(&[]))]).await;
    let upload = aws.send("s3", ("POST", "/bucket/big?uploads"), &[], "").await.text("UploadId");
    let part = |number: u32| format!("/bucket/big?partNumber={number}&uploadId={upload}");
    let large = "x".repeat(5 << 20);
    let first = aws.send("s3", ("PUT", &part(1)), &[], large.as_str()).await.headers["etag"].clone();
    let second = aws.send("s3", ("PUT", &part(2)), &[], "end").await.headers["etag"].clone();
    let complete = |one: &str, two: &str| {
        format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{one}</ETag></Part><Part><PartNumber>2</PartNumber><ETag>{two}</ETag></Part></CompleteMultipartUpload>"
        )
    };
    let path = format!("/bucket/big?uploadId={upload}");
    run(
        &aws,
        &[
            (("GET", "/bucket?uploads"), &[], "", Holds(&["<Key>big</Key>"])),
            (("GET", &path), &[], "", Holds(&["<PartNumber>2</PartNumber>"])),
            (("POST", &path), &[], &complete(&first, "\"0\""), Refused(400, "InvalidPart")),
            (("POST", &path), &[], &complete(&first, &second), Holds(&["-2&quot;</ETag>"])),
            (("POST", &path), &[], &complete(&first, &second), Refused(404, "NoSuchUpload")),
        ],
    )
    .await;
    let answer = aws.send("s3", ("GET", "/bucket/big"), &[("range", "bytes=5242878-")], "").await;
    assert_eq!(answer.body, "xxend");
    aws.sandbox.stop().await;
}
