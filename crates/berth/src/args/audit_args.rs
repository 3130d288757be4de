//! Where `berth server` offers the head of its audit log.

use crate::failure::Failure;
use berth_server::access::head_sinks::{HeadSinks, Syslog, Webhook};
use secrecy::SecretString;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct AuditArgs {
    /// Append the audit log's head to this file each time it moves: for `berth audit verify --since FILE`
    #[arg(long, help_heading = "Audit log", value_name = "FILE")]
    audit_head_file: Option<PathBuf>,
    /// Send it to a syslog, as unix:/dev/log, udp:HOST:PORT or tcp:HOST:PORT
    #[arg(long, help_heading = "Audit log", value_name = "ADDRESS")]
    audit_head_syslog: Option<Syslog>,
    /// Post it to this address as JSON, with BERTH_AUDIT_WEBHOOK_TOKEN as bearer token where that is set
    #[arg(long, help_heading = "Audit log", value_name = "URL")]
    audit_head_webhook: Option<String>,
}

impl AuditArgs {
    pub fn sinks(&self) -> Result<HeadSinks, Failure> {
        let webhook = match &self.audit_head_webhook {
            Some(text) => {
                let bad = |why: String| Failure::new(format!("--audit-head-webhook is not an address: {why}"));
                let url: reqwest::Url = text.parse().map_err(|error| bad(format!("{error}")))?;
                if !["http", "https"].contains(&url.scheme()) {
                    return Err(bad("it begins with https:// or http://".into()));
                }
                let token = std::env::var("BERTH_AUDIT_WEBHOOK_TOKEN").ok().filter(|token| !token.is_empty());
                Some(Webhook { url, token: token.map(SecretString::from) })
            }
            None => None,
        };
        Ok(HeadSinks { file: self.audit_head_file.clone(), syslog: self.audit_head_syslog.clone(), webhook })
    }
}
