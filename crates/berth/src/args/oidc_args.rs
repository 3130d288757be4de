//! What `berth server` is told about its identity provider.

use crate::failure::Failure;
use berth_server::access::oidc::{GroupRole, OidcConfig};
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct OidcArgs {
    /// Identity provider (OpenID Connect) where people log in
    #[arg(long, help_heading = "Login", value_name = "URL", env = "BERTH_OIDC_ISSUER", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// Name of Berth's client there; a public one, with PKCE and, for --device, device codes
    #[arg(long, help_heading = "Login", value_name = "ID", env = "BERTH_OIDC_CLIENT_ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Whom ID tokens are made for, where that is not the client
    #[arg(long, help_heading = "Login", value_name = "NAME", requires = "oidc_issuer")]
    oidc_audience: Option<String>,
    /// Claim with a person's groups; a path such as realm_access.roles goes deeper
    #[arg(long, help_heading = "Login", value_name = "CLAIM", default_value = "groups", requires = "oidc_issuer")]
    oidc_groups_claim: String,
    /// A group's role, as GROUP=ROLE[:ORG[/ENV]]; may be given more than once. The highest role holds
    #[arg(long, help_heading = "Login", alias = "oidc-group", value_name = "GROUP=ROLE", requires = "oidc_issuer")]
    oidc_role: Vec<GroupRole>,
    /// Scope to ask for beside openid, profile and email; may be given more than once
    #[arg(long, help_heading = "Login", value_name = "SCOPE", requires = "oidc_issuer")]
    oidc_scope: Vec<String>,
    /// Certificates (PEM) that vouch for the provider
    #[arg(long, help_heading = "Login", value_name = "FILE", requires = "oidc_issuer")]
    oidc_ca: Option<PathBuf>,
}

impl OidcArgs {
    pub fn config(&self) -> Result<Option<OidcConfig>, Failure> {
        let (Some(issuer), Some(client_id)) = (&self.oidc_issuer, &self.oidc_client_id) else { return Ok(None) };
        if self.oidc_role.is_empty() {
            return Err(Failure::new("no group has a role, so that nobody could log in")
                .help("give groups roles:   --oidc-role platform=admin --oidc-role shop-developers=operator:shop"));
        }
        let scopes = ["profile".to_owned(), "email".to_owned()].into_iter().chain(self.oidc_scope.iter().cloned());
        Ok(Some(OidcConfig {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            audience: self.oidc_audience.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            roles: self.oidc_role.clone(),
            scopes: scopes.collect(),
            ca: self.oidc_ca.clone(),
        }))
    }
}
