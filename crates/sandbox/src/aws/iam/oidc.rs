//! OpenID Connect providers, whose tokens roles can trust.

use serde_json::{Value, json};

use super::entity::*;
use super::model::OidcProvider;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};

const MAX_PROVIDERS: usize = 100;
const MAX_THUMBPRINTS: usize = 5;

fn thumbprints(ask: &Ask) -> Answer<Vec<String>> {
    let given: Vec<String> = ask.input.texts("ThumbprintList").into_iter().map(str::to_owned).collect();
    if given.len() > MAX_THUMBPRINTS {
        return fail("InvalidInput", format!("Thumbprint list must contain fewer than {MAX_THUMBPRINTS} entries."));
    }
    match given.iter().any(|print| print.len() != 40 || !print.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        true => invalid(
            "1 validation error detected: Value at 'thumbprintList' failed to satisfy constraint: Member must satisfy constraint: [Member must have length less than or equal to 40, Member must have length greater than or equal to 40]",
        ),
        false => Ok(given),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let url = ask.input.text("Url").unwrap_or_default().to_owned();
    let Some(rest) = url.strip_prefix("https://").or_else(|| own_issuer(&url)) else {
        return fail("ValidationError", "Invalid Open ID Connect Provider URL");
    };
    let rest = rest.trim_end_matches('/').to_owned();
    if rest.is_empty() || rest.contains(['?', '#', ' ']) {
        return fail("ValidationError", "Invalid Open ID Connect Provider URL");
    }
    let arn = arn(ask, &format!("oidc-provider/{rest}"));
    let (thumbprints, tags) = (thumbprints(ask)?, new_tags(ask)?);
    let tables = &ask.state.store.iam;
    if tables.oidc.get(&arn).is_some() {
        return exists(format!("Provider with url {url} already exists."));
    }
    if tables.oidc.len() >= MAX_PROVIDERS {
        return limit(format!("Cannot exceed quota for OpenIdConnectProvidersPerAccount: {MAX_PROVIDERS}"));
    }
    let client_ids = ask.input.texts("ClientIDList").into_iter().map(str::to_owned).collect();
    let answer = json!({"OpenIDConnectProviderArn": arn, "Tags": shown_tags(&tags)});
    let created = ask.now();
    ask.store().iam.oidc.insert(OidcProvider { arn, url: rest, client_ids, thumbprints, tags, created });
    Ok(answer)
}

/// The issuers of the sandbox's clusters answer on loopback without TLS.
fn own_issuer(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://")?;
    (rest.starts_with("127.0.0.1") || rest.starts_with("localhost")).then_some(rest)
}

pub fn get_provider(ask: &mut Ask) -> Answer<Value> {
    let provider = find::<OidcProvider>(ask)?;
    Ok(json!({
        "Url": shown_url(&provider.url),
        "ClientIDList": provider.client_ids,
        "ThumbprintList": provider.thumbprints,
        "CreateDate": date(provider.created),
        "Tags": shown_tags(&provider.tags),
    }))
}

/// Without the scheme, as IAM shows it. A host with a port, which only the sandbox's own issuers have, keeps it: Terraform's provider
/// cannot read such an address otherwise, and would replace the object at each apply.
fn shown_url(url: &str) -> String {
    let host = url.split('/').next().unwrap_or_default();
    if host.contains(':') { format!("https://{url}") } else { url.to_owned() }
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.iam.oidc, "");
    let shown: Vec<Value> = rows.into_iter().map(|provider| json!({"Arn": provider.arn})).collect();
    Ok(json!({"OpenIDConnectProviderList": shown}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let arn = named::<OidcProvider>(ask)?;
    get::<OidcProvider>(ask, &arn)?;
    ask.store().iam.oidc.remove(&arn);
    Ok(json!({}))
}

pub fn update_thumbprints(ask: &mut Ask) -> Answer<Value> {
    let thumbprints = thumbprints(ask)?;
    change::<OidcProvider, _>(ask, |provider| provider.thumbprints = thumbprints)?;
    Ok(json!({}))
}

pub fn add_client(ask: &mut Ask) -> Answer<Value> {
    let client = ask.input.required("ClientID")?.to_owned();
    change::<OidcProvider, _>(ask, |provider| {
        if !provider.client_ids.contains(&client) {
            provider.client_ids.push(client);
        }
    })?;
    Ok(json!({}))
}

pub fn remove_client(ask: &mut Ask) -> Answer<Value> {
    let client = ask.input.required("ClientID")?.to_owned();
    change::<OidcProvider, _>(ask, |provider| provider.client_ids.retain(|one| *one != client))?;
    Ok(json!({}))
}
