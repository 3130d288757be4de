//! How Civo words its errors.

use crate::http::{Dialect, Refusal};
use berth_engine::handler::Class;
use serde::Deserialize;

pub struct CivoErrors;

#[derive(Deserialize, Default)]
struct Body {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    details: Option<String>,
    #[serde(default)]
    result: Option<String>,
}

impl Dialect for CivoErrors {
    fn cloud(&self) -> &'static str {
        "Civo"
    }

    fn read(&self, body: &[u8]) -> (String, String) {
        let body: Body = serde_json::from_slice(body).unwrap_or_default();
        let words: Vec<String> = [body.reason, body.details].into_iter().flatten().filter(|w| !w.is_empty()).collect();
        // Quota errors come with one line for each quota.
        (body.code.or(body.result).unwrap_or_default(), words.join(", ").replace('\n', " "))
    }

    fn class(&self, refusal: &Refusal) -> Option<Class> {
        let code = refusal.code.as_str();
        Some(match code {
            "database_account_not_found"
            | "database_account_access_denied"
            | "database_api_key_not_found"
            | "account_not_enabled_inc_card"
            | "account_not_enabled_without_card"
            | "requires_authentication" => Class::Unauthorized,
            "quota_limit_reached" | "out_of_capacity" | "region_unavailable" => Class::Quota,
            // Busy with something that ends by itself: another change, or objects that are on their way out.
            "cannot_scale_already_rescaling_cluster"
            | "database_quota_lock_failed"
            | "database_network_delete_with_instance" => Class::Retry { after: None },
            "database_kubernetes_cluster_not_found"
            | "database_cluster_pool_not_found"
            | "database_network_not_found"
            | "database_firewall_not_found"
            | "database_firewall_rules_find"
            | "database_kubernetes_node_not_found" => Class::NotFound,
            _ if code.starts_with("authentication_") => Class::Unauthorized,
            // Such as database_network_exists, database_duplicate_cluster_name_not_allowed.
            _ if code.contains("_duplicate") || code.ends_with("_exists") => Class::Taken { id: None },
            // A size or an application that is not there is a mistake in the request, not an object that went away.
            _ if code.ends_with("_not_found") && refusal.change => Class::Refused,
            // Not in Civo's words, so not Civo's answer: taking it for "gone" could make something twice.
            _ if refusal.status == 404 => Class::Refused,
            _ => return None,
        })
    }

    fn help(&self, refusal: &Refusal, class: &Class) -> Vec<String> {
        match class {
            Class::Unauthorized if refusal.code.starts_with("account_not_enabled") => {
                vec!["the account is not enabled yet: see https://dashboard.civo.com".into()]
            }
            Class::Unauthorized => vec![
                "check the token: https://dashboard.civo.com/security shows it; CIVO_TOKEN or the Account gives it to Berth"
                    .into(),
            ],
            Class::Quota if refusal.code == "quota_limit_reached" => vec![
                "see what is used:   civo quota show".into(),
                "ask for more at https://dashboard.civo.com/quota/edit, or ask for less in the manifest".into(),
            ],
            Class::Quota => vec!["the region has no room just now: choose another in spec.region, or try again later".into()],
            _ => Vec::new(),
        }
    }
}
