use super::client::{Aws, Expected, Holds, Refused};
use serde_json::{Value, json};

type Step = (&'static str, Value, Expected);

async fn run(aws: &Aws, service: &str, target: &str, steps: &[Step]) {
    for (action, input, expected) in steps {
        let answer = aws.json(service, &format!("{target}.{action}"), input).await;
        answer.check(&format!("{action} {input}"), expected);
    }
}

#[tokio::test]
async fn keys_encrypt_until_they_are_disabled_or_on_their_way_out() {
    let aws = Aws::instant().await;
    let kms = |action: &str| format!("TrentService.{action}");
    let made = aws.json("kms", &kms("CreateKey"), &json!({"Description": "k"})).await.value();
    let id = made["KeyMetadata"]["KeyId"].as_str().unwrap().to_owned();
    run(
        &aws,
        "kms",
        "TrentService",
        &[
            (
                "CreateAlias",
                json!({"AliasName": "x", "TargetKeyId": id}),
                Refused(400, "Alias must start with the prefix"),
            ),
            (
                "CreateAlias",
                json!({"AliasName": "alias/aws/x", "TargetKeyId": id}),
                Refused(400, "NotAuthorizedException"),
            ),
            ("CreateAlias", json!({"AliasName": "alias/x", "TargetKeyId": id}), Holds(&[])),
            ("CreateAlias", json!({"AliasName": "alias/x", "TargetKeyId": id}), Refused(400, "AlreadyExistsException")),
            ("ListAliases", json!({"Limit": 1}), Holds(&["\"Truncated\":true", "NextMarker"])),
            ("GetKeyPolicy", json!({"KeyId": id}), Holds(&[":root"])),
            ("PutKeyPolicy", json!({"KeyId": id, "Policy": "{"}), Refused(400, "MalformedPolicyDocumentException")),
            ("EnableKeyRotation", json!({"KeyId": id}), Holds(&[])),
            ("GetKeyRotationStatus", json!({"KeyId": id}), Holds(&["\"KeyRotationEnabled\":true"])),
            ("DescribeKey", json!({"KeyId": "alias/none"}), Refused(400, "NotFoundException")),
            ("DescribeKey", json!({"KeyId": "alias/aws/ebs"}), Holds(&["\"KeyManager\":\"AWS\""])),
            ("CreateKey", json!({"KeySpec": "RSA_2048"}), Refused(400, "UnsupportedOperationException")),
            ("NoSuchAction", json!({}), Refused(400, "UnknownOperationException")),
        ],
    )
    .await;
    let input = json!({"KeyId": "alias/x", "Plaintext": "aGVsbG8=", "EncryptionContext": {"a": "b"}});
    let blob = aws.json("kms", &kms("Encrypt"), &input).await.value()["CiphertextBlob"].clone();
    run(
        &aws,
        "kms",
        "TrentService",
        &[
            ("Decrypt", json!({"CiphertextBlob": blob, "EncryptionContext": {"a": "b"}}), Holds(&["aGVsbG8="])),
            ("Decrypt", json!({"CiphertextBlob": blob}), Refused(400, "InvalidCiphertextException")),
            ("Decrypt", json!({"CiphertextBlob": "AAAA"}), Refused(400, "InvalidCiphertextException")),
            ("DisableKey", json!({"KeyId": id}), Holds(&[])),
            (
                "Decrypt",
                json!({"CiphertextBlob": blob, "EncryptionContext": {"a": "b"}}),
                Refused(400, "DisabledException"),
            ),
            (
                "ScheduleKeyDeletion",
                json!({"KeyId": id, "PendingWindowInDays": 3}),
                Refused(400, "ValidationException"),
            ),
            ("ScheduleKeyDeletion", json!({"KeyId": id, "PendingWindowInDays": 7}), Holds(&["PendingDeletion"])),
            ("EnableKey", json!({"KeyId": id}), Refused(400, "KMSInvalidStateException")),
            ("CancelKeyDeletion", json!({"KeyId": id}), Holds(&[])),
            ("DescribeKey", json!({"KeyId": id}), Holds(&["\"KeyState\":\"Disabled\""])),
        ],
    )
    .await;
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn queues_hide_what_is_received_and_hold_on_to_their_attributes() {
    let aws = Aws::instant().await;
    let url = "http://127.0.0.1/1/q";
    run(
        &aws,
        "sqs",
        "AmazonSQS",
        &[
            ("GetQueueUrl", json!({"QueueName": "q"}), Refused(400, "com.amazonaws.sqs#QueueDoesNotExist")),
            ("CreateQueue", json!({"QueueName": "q q"}), Refused(400, "InvalidParameterValueException")),
            ("CreateQueue", json!({"QueueName": "q", "Attributes": {"VisibilityTimeout": "60"}}), Holds(&["/q\""])),
            ("CreateQueue", json!({"QueueName": "q", "Attributes": {"VisibilityTimeout": "60"}}), Holds(&["/q\""])),
            (
                "CreateQueue",
                json!({"QueueName": "q", "Attributes": {"VisibilityTimeout": "61"}}),
                Refused(400, "QueueNameExists"),
            ),
            (
                "SetQueueAttributes",
                json!({"QueueUrl": url, "Attributes": {"Nonsense": "1"}}),
                Refused(400, "InvalidAttributeName"),
            ),
            (
                "SetQueueAttributes",
                json!({"QueueUrl": url, "Attributes": {"DelaySeconds": "x"}}),
                Refused(400, "InvalidAttributeValue"),
            ),
            ("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": {"Policy": ""}}), Holds(&[])),
            (
                "SendMessage",
                json!({"QueueUrl": url, "MessageBody": "hello"}),
                Holds(&["5d41402abc4b2a76b9719d911017c592"]),
            ),
            ("ReceiveMessage", json!({"QueueUrl": url}), Holds(&["hello", "ReceiptHandle"])),
            ("ReceiveMessage", json!({"QueueUrl": url}), Holds(&["{}"])),
            (
                "GetQueueAttributes",
                json!({"QueueUrl": url, "AttributeNames": ["All"]}),
                Holds(&["\"ApproximateNumberOfMessagesNotVisible\":\"1\"", "\"VisibilityTimeout\":\"60\""]),
            ),
            ("PurgeQueue", json!({"QueueUrl": url}), Holds(&[])),
            ("DeleteQueue", json!({"QueueUrl": url}), Holds(&[])),
        ],
    )
    .await;
    let gone = aws.json("sqs", "AmazonSQS.GetQueueAttributes", &json!({"QueueUrl": url})).await;
    assert_eq!(gone.headers["x-amzn-query-error"], "AWS.SimpleQueueService.NonExistentQueue;Sender");
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn events_reach_the_queues_of_the_rules_that_match() {
    let aws = Aws::instant().await;
    let queue = json!({"QueueName": "q"});
    aws.json("sqs", "AmazonSQS.CreateQueue", &queue).await.check("CreateQueue", &Holds(&[]));
    let account = aws.query("sts", "GetCallerIdentity", &[]).await.text("Account");
    let arn = format!("arn:aws:sqs:eu-central-1:{account}:q");
    let event = |source: &str| json!({"Entries": [{"Source": source, "DetailType": "t", "Detail": "{\"a\":1}"}]});
    run(
        &aws,
        "events",
        "AWSEvents",
        &[
            ("DescribeRule", json!({"Name": "r"}), Refused(400, "ResourceNotFoundException")),
            ("PutRule", json!({"Name": "r"}), Refused(400, "EventPattern or ScheduleExpression must be specified")),
            ("PutRule", json!({"Name": "r", "EventPattern": "{}"}), Refused(400, "InvalidEventPatternException")),
            (
                "PutRule",
                json!({"Name": "s", "ScheduleExpression": "rate(1 minutes)"}),
                Refused(400, "ScheduleExpression is not valid"),
            ),
            ("PutRule", json!({"Name": "r", "EventPattern": "{\"source\":[\"my.app\"]}"}), Holds(&["rule/r"])),
            (
                "PutTargets",
                json!({"Rule": "r", "Targets": [{"Id": "1", "Arn": arn}]}),
                Holds(&["\"FailedEntryCount\":0"]),
            ),
            ("ListTargetsByRule", json!({"Rule": "r"}), Holds(&[":q"])),
            ("DeleteRule", json!({"Name": "r"}), Refused(400, "Rule can't be deleted since it has targets")),
            ("PutEvents", event("other.app"), Holds(&["EventId"])),
            ("PutEvents", event("my.app"), Holds(&["EventId"])),
            ("RemoveTargets", json!({"Rule": "r", "Ids": ["1"]}), Holds(&[])),
            ("DeleteRule", json!({"Name": "r"}), Holds(&[])),
        ],
    )
    .await;
    let receive = json!({"QueueUrl": "/q", "MaxNumberOfMessages": 10});
    let messages = aws.json("sqs", "AmazonSQS.ReceiveMessage", &receive).await.value();
    assert_eq!(messages["Messages"].as_array().unwrap().len(), 1);
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn log_groups_keep_events_and_tags() {
    let aws = Aws::instant().await;
    let tagged = json!({"logGroupName": "/g", "tags": {"team": "shop"}});
    run(&aws, "logs", "Logs_20140328", &[
        ("CreateLogGroup", tagged.clone(), Holds(&[])),
        ("CreateLogGroup", tagged, Refused(400, "ResourceAlreadyExistsException")),
        ("PutRetentionPolicy", json!({"logGroupName": "/g", "retentionInDays": 2}), Refused(400, "InvalidParameterException")),
        ("PutRetentionPolicy", json!({"logGroupName": "/g", "retentionInDays": 7}), Holds(&[])),
        ("DescribeLogGroups", json!({"logGroupNamePrefix": "/g"}), Holds(&["\"retentionInDays\":7", "log-group:/g:*\""])),
        ("PutLogEvents", json!({"logGroupName": "/g", "logStreamName": "s", "logEvents": []}), Refused(400, "log stream does not exist")),
        ("CreateLogStream", json!({"logGroupName": "/g", "logStreamName": "s"}), Holds(&[])),
        ("PutLogEvents", json!({"logGroupName": "/g", "logStreamName": "s", "logEvents": [{"timestamp": 1, "message": "one error"}, {"timestamp": 2, "message": "two"}]}), Holds(&[])),
        ("GetLogEvents", json!({"logGroupName": "/g", "logStreamName": "s", "limit": 1, "startFromHead": true}), Holds(&["one error", "\"nextForwardToken\":\"f/1\""])),
        ("FilterLogEvents", json!({"logGroupName": "/g", "filterPattern": "-error"}), Holds(&["two"])),
        ("DeleteLogGroup", json!({"logGroupName": "/none"}), Refused(400, "ResourceNotFoundException")),
    ])
    .await;
    run(
        &aws,
        "tagging",
        "ResourceGroupsTaggingAPI_20170126",
        &[
            (
                "GetResources",
                json!({"TagFilters": [{"Key": "team", "Values": ["shop"]}], "ResourceTypeFilters": ["logs:log-group"]}),
                Holds(&["log-group:/g"]),
            ),
            ("GetResources", json!({"ResourceTypeFilters": ["sqs"]}), Holds(&["\"ResourceTagMappingList\":[]"])),
            ("GetTagKeys", json!({}), Holds(&["team"])),
        ],
    )
    .await;
    aws.sandbox.stop().await;
}
