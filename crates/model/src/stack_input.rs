//! Project Planton's stack input: `target` is the manifest, beside it the provider's credentials.

use crate::decode::{self, Origin};
use crate::diagnostic::Diagnostic;
use crate::manifest::Manifest;
use crate::yaml::{Documents, Entry, Node, Value};
use secrecy::SecretString;
use std::sync::Arc;

/// Credentials that came with a stack input.
#[derive(Debug)]
pub struct ProviderCredential {
    /// The cloud's name.
    pub provider: String,
    pub token: SecretString,
    pub region: Option<String>,
}

const TOKENS: [(&str, &str); 3] = [("apiToken", "api_token"), ("token", "token"), ("accessToken", "access_token")];
const REGIONS: [(&str, &str); 2] = [("defaultRegion", "default_region"), ("region", "region")];

/// Reads a stack input in YAML or JSON.
pub fn stack_input(file: &str, bytes: &[u8]) -> Result<(Manifest, Option<ProviderCredential>), Vec<Diagnostic>> {
    let mut documents = Documents::new(file, bytes).map_err(|problem| vec![*problem])?;
    let loaded = documents.next();
    let refuse = |message: &str| Diagnostic::error(message).file(file);
    let Some(loaded) = loaded else { return Err(vec![refuse("the stack input is empty")]) };
    let mut problems = loaded.problems;
    // A stack input has a token somewhere: what could not be read may be it.
    problems.iter_mut().for_each(|problem| problem.secret = true);
    let Some(root) = loaded.root.filter(|root| !root.is_null()) else {
        if problems.is_empty() {
            problems.push(refuse("the stack input is empty"));
        }
        return Err(problems);
    };
    let Some(target) = root.entry("target", "target").filter(|entry| !entry.node.is_null()) else {
        problems.push(refuse("a stack input needs `target`, the manifest").at(root.pointer()).path("target"));
        return Err(problems);
    };
    let name: Arc<str> = file.into();
    let text: Arc<str> = String::from_utf8_lossy(bytes).into();
    let origin = Origin { file: &name, text: &text, index: loaded.index };
    let manifest = decode::document(&origin, &target.node, &mut problems);
    let provider = manifest.as_ref().map(|manifest| manifest.kind.provider.clone()).unwrap_or_default();
    // Under one of these names, or the provider's own: `civoCredential`, `digital_ocean_credential`.
    let of_provider = format!("{provider}credential");
    let config = find(&root, &["providerconfig", "providercredential", &of_provider]);
    let credential = match config.map(|entry| credential(entry, &provider)) {
        None => None,
        Some(Ok(credential)) => Some(credential),
        Some(Err(problem)) => {
            problems.push(problem.file(file));
            None
        }
    };
    match manifest {
        Some(manifest) if problems.is_empty() => Ok((manifest, credential)),
        _ => Err(problems),
    }
}

/// The first entry with one of these names, whatever its case and underscores.
fn find<'n, 't>(node: &'n Node<'t>, names: &[&str]) -> Option<&'n Entry<'t>> {
    let Value::Map { entries, .. } = &node.value else { return None };
    let is = |entry: &Entry<'_>, name: &str| entry.key.replace('_', "").eq_ignore_ascii_case(name);
    let found = names.iter().find_map(|name| entries.iter().find(|entry| is(entry, name)));
    found.filter(|entry| !entry.node.is_null())
}

fn credential(config: &Entry<'_>, provider: &str) -> Result<ProviderCredential, Box<Diagnostic>> {
    // The line may hold the token, so that it is never shown.
    let refuse = |message: String| {
        Box::new(Diagnostic::error(message).at(config.key_span).path(config.key.to_string()).secret(true))
    };
    let text = |node: &Node<'_>, names: &[(&str, &str)]| {
        names
            .iter()
            .find_map(|(json, snake)| node.entry(json, snake))
            .and_then(|entry| entry.node.text().map(str::to_owned))
    };
    if !matches!(config.node.value, Value::Map { .. }) {
        return Err(refuse(format!("{} must be a mapping with `apiToken`", config.key)));
    }
    let block = find(&config.node, &[provider, "credential"]).map_or(&config.node, |entry| &entry.node);
    let token = text(block, &TOKENS).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| refuse(format!("{} has no `apiToken`", config.key)))?;
    Ok(ProviderCredential {
        provider: provider.to_owned(),
        token: token.into(),
        region: text(block, &REGIONS).filter(|region| !region.is_empty()),
    })
}
