//! Looking for secrets in everything that commands, servers and workers leave behind, in any form they could hide in.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use regex::bytes::Regex;
use std::path::{Path, PathBuf};

/// A text that must not be found, in any form that it could hide in.
pub struct Secret {
    name: String,
    any_form: Regex,
}

impl Secret {
    pub fn new(name: &str, text: &str) -> Self {
        let bytes = text.as_bytes();
        assert!(bytes.len() >= 24, "too short to be unmistakable: {name}");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut forms = vec![
            bytes.to_vec(),
            hex.clone().into_bytes(),
            hex.to_ascii_uppercase().into_bytes(),
            text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            bytes.iter().rev().copied().collect(),
        ];
        // Inside a longer text, base64 starts anywhere: the characters that depend on neighbours are left off.
        for shift in 0..3 {
            let padded = [vec![b'x'; shift], bytes.to_vec()].concat();
            for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
                forms.push(encoded.as_bytes()[(shift * 8).div_ceil(6)..encoded.len() - 2].to_vec());
            }
        }
        let escaped = |form: Vec<u8>| form.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let forms: Vec<String> = forms.into_iter().map(escaped).collect();
        let any_form = Regex::new(&format!("(?-u){}", forms.join("|"))).expect("a pattern");
        Self { name: name.to_owned(), any_form }
    }

    pub fn found_in(&self, bytes: &[u8]) -> Option<String> {
        let found = self.any_form.find(bytes)?;
        Some(format!("{} (as `{}`)", self.name, String::from_utf8_lossy(found.as_bytes())))
    }
}

pub struct Search {
    pub secrets: Vec<Secret>,
    /// Files that the user asked to hold secrets, or wrote himself.
    pub known: Vec<PathBuf>,
}

impl Search {
    #[track_caller]
    pub fn text(&self, place: &str, text: &str) {
        for secret in &self.secrets {
            if let Some(found) = secret.found_in(text.as_bytes()) {
                panic!("{found} is in {place}:\n{text}");
            }
        }
    }

    /// Also while it is written beside its place, as `NAME.….new` or `.NAME.PID`, to be moved there whole.
    fn is_known(&self, path: &Path) -> bool {
        let half = |known: &PathBuf| {
            let text = path.to_str()?.strip_prefix(known.to_str()?)?;
            Some(text.starts_with('.') && text.ends_with(".new") && !text.contains('/'))
        };
        let hidden = |known: &PathBuf| {
            let text = path.file_name()?.to_str()?.strip_prefix('.')?.strip_prefix(known.file_name()?.to_str()?)?;
            let pid = text.strip_prefix('.')?;
            Some(path.parent() == known.parent() && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_half = |known: &PathBuf| half(known) == Some(true) || hidden(known) == Some(true);
        self.known.iter().any(|known| known == path || is_half(known))
    }

    /// Every file below a folder. Files may come and go meanwhile.
    #[track_caller]
    pub fn files(&self, folder: &Path) -> usize {
        let mut count = 0;
        let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                count += self.files(&path);
                continue;
            }
            let Ok(bytes) = std::fs::read(&path) else { continue };
            if self.is_known(&path) {
                continue;
            }
            count += 1;
            for secret in &self.secrets {
                if let Some(found) = secret.found_in(&bytes) {
                    panic!("{found} is in the file {}", path.display());
                }
            }
        }
        count
    }
}

/// What a kubeconfig has that nobody else may have.
pub fn kubeconfig_secrets(text: &str) -> Vec<Secret> {
    let after = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    let mut secrets = Vec::new();
    if let Some(data) = after("client-key-data:") {
        secrets.push(Secret::new("the client key's data", data));
        let pem = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        let pem = String::from_utf8(pem).expect("PEM");
        for line in pem.lines().filter(|line| !line.starts_with('-') && line.len() >= 24) {
            secrets.push(Secret::new("the client key", line));
        }
    }
    if let Some(token) = after("token:") {
        secrets.push(Secret::new("the cluster's token", token));
    }
    assert!(!secrets.is_empty(), "no secret in this kubeconfig:\n{text}");
    secrets
}
