//! A cloud's refusals: how each cloud writes them, and what they mean for the engine.

use super::transport::lost_class;
use berth_engine::handler::{Class, Trouble};
use reqwest::{Method, StatusCode};
use std::time::Duration;

/// How much of a cloud's error text is repeated.
const MAX_WORDS_CHARS: usize = 400;

/// What a cloud said when it did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The cloud's own word for it, or empty.
    pub code: String,
    /// The cloud's own sentence, or empty.
    pub words: String,
    /// Whether a change was asked for.
    pub change: bool,
}

/// How one cloud words its errors.
pub trait Dialect: Send + Sync {
    /// The cloud's name, as users know it: `Civo`.
    fn cloud(&self) -> &'static str;

    /// Reads code and words from an error's body.
    fn read(&self, body: &[u8]) -> (String, String);

    /// What a refusal means, where the status alone does not tell. `None` leaves it to [`class_of_status`].
    fn class(&self, _refusal: &Refusal) -> Option<Class> {
        None
    }

    /// What to check and what to type, for refusals of this class.
    fn help(&self, _refusal: &Refusal, _class: &Class) -> Vec<String> {
        Vec::new()
    }
}

/// What an HTTP status means where a cloud says nothing more precise.
pub fn class_of_status(status: u16) -> Class {
    match status {
        401 | 403 => Class::Unauthorized,
        404 | 410 => Class::NotFound,
        402 => Class::Quota,
        408 | 425 | 429 | 500..=599 => Class::Retry { after: None },
        _ => Class::Refused,
    }
}

fn clip(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= MAX_WORDS_CHARS {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(MAX_WORDS_CHARS).collect();
    clipped.push('…');
    clipped
}

/// What an answer other than success means for the caller: status, the pause that it asks for, and body.
pub fn trouble(
    dialect: &dyn Dialect,
    method: &Method,
    path: &str,
    (status, after, body): (StatusCode, Option<Duration>, &[u8]),
) -> Trouble {
    let (code, words) = dialect.read(body);
    let change = *method != Method::GET;
    let refusal = Refusal { status: status.as_u16(), code: clip(&code), words: clip(&words), change };
    let class = match dialect.class(&refusal) {
        Some(class) => class,
        // From a proxy that does not know, or from a cloud that failed half way.
        None if matches!(refusal.status, 408 | 500 | 502 | 504) => lost_class(method),
        None => class_of_status(refusal.status),
    };
    let class = if let Class::Retry { after: None } = class { Class::Retry { after } } else { class };
    let mut said = refusal.status.to_string();
    if let Some(reason) = status.canonical_reason()
        && refusal.code.is_empty()
    {
        said = format!("{said} {reason}");
    }
    if !refusal.code.is_empty() {
        said = format!("{said} {}", refusal.code);
    }
    if !refusal.words.is_empty() {
        said = format!("{said}: {}", refusal.words);
    }
    let help = dialect.help(&refusal, &class);
    let trouble = Trouble::new(class, format!("{} answered {said}", dialect.cloud()));
    help.into_iter().fold(trouble.call(format!("{method} {path}")), Trouble::help)
}
