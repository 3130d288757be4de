//! Lists come in pages, with links to the others and the total.

use serde_json::{Value, json};

use crate::http::Call;

const DEFAULT_PER_PAGE: usize = 20;
const MAX_PER_PAGE: usize = 200;

/// Which part of a list a call asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Page {
    number: usize,
    per_page: usize,
}

impl Page {
    pub fn of(call: &Call) -> Page {
        let per_page = call.number("per_page", DEFAULT_PER_PAGE).min(MAX_PER_PAGE);
        Page { number: call.number("page", 1), per_page }
    }

    pub fn offset(self) -> usize {
        (self.number - 1).saturating_mul(self.per_page)
    }

    pub fn len(self) -> usize {
        self.per_page
    }

    /// The whole answer: items under their root, `links` and `meta`.
    pub fn wrap(self, call: &Call, root: &str, items: Vec<Value>, total: usize) -> Value {
        let last = total.div_ceil(self.per_page).max(1);
        let base = call.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("api.digitalocean.com");
        let link = |number: usize| {
            let others = call.query.iter().filter(|(name, _)| name != "page" && name != "per_page");
            let extra: String = others.map(|(name, value)| format!("&{}={}", encode(name), encode(value))).collect();
            json!(format!("http://{base}{}?page={number}&per_page={}{extra}", call.path, self.per_page))
        };
        let mut pages = serde_json::Map::new();
        if self.number > 1 {
            pages.insert("first".into(), link(1));
            pages.insert("prev".into(), link((self.number - 1).min(last)));
        }
        if self.number < last {
            pages.insert("next".into(), link(self.number + 1));
            pages.insert("last".into(), link(last));
        }
        let links = if pages.is_empty() { json!({}) } else { json!({"pages": pages}) };
        json!({root: items, "links": links, "meta": {"total": total}})
    }

    /// The part of a list that is made whole first.
    pub fn cut(self, call: &Call, root: &str, all: Vec<Value>) -> Value {
        let total = all.len();
        let items = all.into_iter().skip(self.offset()).take(self.per_page).collect();
        self.wrap(call, root, items, total)
    }
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
