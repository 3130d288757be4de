//! EKS's errors: each says which cluster, node group or add-on it is about.

use serde_json::json;

use crate::aws::errors::AwsError;

/// What an error is about.
#[derive(Clone, Copy, Default)]
pub struct About<'a> {
    pub cluster: Option<&'a str>,
    pub node_group: Option<&'a str>,
    pub addon: Option<&'a str>,
}

impl<'a> About<'a> {
    pub fn cluster(name: &'a str) -> About<'a> {
        About { cluster: Some(name), ..About::default() }
    }

    pub fn node_group(cluster: &'a str, name: &'a str) -> About<'a> {
        About { cluster: Some(cluster), node_group: Some(name), addon: None }
    }

    pub fn addon(cluster: &'a str, name: &'a str) -> About<'a> {
        About { cluster: Some(cluster), node_group: None, addon: Some(name) }
    }

    fn error(self, status: u16, code: &'static str, message: impl Into<String>) -> Box<AwsError> {
        let details = json!({"clusterName": self.cluster, "nodegroupName": self.node_group, "addonName": self.addon});
        AwsError::new(status, code, message).details(details)
    }

    pub fn not_found(self, message: impl Into<String>) -> Box<AwsError> {
        self.error(404, "ResourceNotFoundException", message)
    }

    pub fn in_use(self, message: impl Into<String>) -> Box<AwsError> {
        self.error(409, "ResourceInUseException", message)
    }

    pub fn bad_parameter(self, message: impl Into<String>) -> Box<AwsError> {
        self.error(400, "InvalidParameterException", message)
    }

    pub fn bad_request(self, message: impl Into<String>) -> Box<AwsError> {
        self.error(400, "InvalidRequestException", message)
    }

    pub fn limit(self, message: impl Into<String>) -> Box<AwsError> {
        self.error(400, "ResourceLimitExceededException", message)
    }
}

/// No machines for a control plane in a zone.
pub fn unsupported_zone(cluster: &str, zone: &str, valid: &[String]) -> Box<AwsError> {
    let message = format!(
        "Cannot create cluster '{cluster}' because {zone}, the targeted availability zone, does not currently have sufficient \
         capacity to support the cluster. Retry and choose from these availability zones: {}",
        valid.join(", ")
    );
    let details = json!({"clusterName": cluster, "nodegroupName": null, "validZones": valid});
    AwsError::new(400, "UnsupportedAvailabilityZoneException", message).details(details)
}
