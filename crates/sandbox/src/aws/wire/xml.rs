//! Trees as XML. In an object, `@name` is an attribute, `#text` the text of an element, and `#name` a list whose items have that
//! name whatever the protocol says; nulls are left out.

use serde_json::Value;

/// How the items of a list are written.
#[derive(Clone, Copy)]
pub enum Lists {
    /// `<vpcSet><item>…</item></vpcSet>`
    Item,
    /// `<Roles><member>…</member></Roles>`
    Member,
    /// `<Contents>…</Contents><Contents>…</Contents>`
    Flat,
}

pub const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// One element with everything in it.
pub fn element(out: &mut String, name: &str, value: &Value, lists: Lists) {
    match value {
        Value::Null => {}
        Value::Array(items) => match lists {
            Lists::Flat => items.iter().for_each(|item| element(out, name, item, lists)),
            Lists::Item => list(out, name, "item", items, lists),
            Lists::Member => list(out, name, "member", items, lists),
        },
        Value::Object(map) => {
            out.push('<');
            out.push_str(name);
            for (key, value) in map.iter().filter_map(|(key, value)| Some((key.strip_prefix('@')?, value))) {
                out.push_str(&format!(" {key}=\""));
                escape(out, value.as_str().unwrap_or_default());
                out.push('"');
            }
            out.push('>');
            members(out, value, lists);
            close(out, name);
        }
        other => {
            open(out, name);
            scalar(out, other);
            close(out, name);
        }
    }
}

/// The members of an object, without an element around them.
pub fn members(out: &mut String, value: &Value, lists: Lists) {
    let Some(map) = value.as_object() else { return scalar(out, value) };
    for (key, value) in map.iter().filter(|(key, _)| !key.starts_with('@')) {
        match key.as_str() {
            "#text" => scalar(out, value),
            // Flat by itself; what is inside the items is written as everything else.
            key if key.starts_with('#') => {
                value.as_array().into_iter().flatten().for_each(|item| element(out, &key[1..], item, lists));
            }
            key => element(out, key, value, lists),
        }
    }
}

fn list(out: &mut String, name: &str, item: &str, items: &[Value], lists: Lists) {
    open(out, name);
    for value in items {
        match value {
            Value::Null => {}
            value => element(out, item, value, lists),
        }
    }
    close(out, name);
}

fn open(out: &mut String, name: &str) {
    out.push('<');
    out.push_str(name);
    out.push('>');
}

fn close(out: &mut String, name: &str) {
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => escape(out, text),
        Value::Null | Value::Array(_) | Value::Object(_) => {}
        other => out.push_str(&other.to_string()),
    }
}

pub fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#xD;"),
            // XML has no way to write the others.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_written_as_each_protocol_has_them() {
        let value = json!({"a": [{"b": 1}, {"b": true}], "n": null, "t": "<&>"});
        let written = |lists| {
            let mut out = String::new();
            element(&mut out, "R", &value, lists);
            out
        };
        assert_eq!(
            written(Lists::Item),
            "<R><a><item><b>1</b></item><item><b>true</b></item></a><t>&lt;&amp;&gt;</t></R>"
        );
        assert_eq!(
            written(Lists::Member),
            "<R><a><member><b>1</b></member><member><b>true</b></member></a><t>&lt;&amp;&gt;</t></R>"
        );
        assert_eq!(written(Lists::Flat), "<R><a><b>1</b></a><a><b>true</b></a><t>&lt;&amp;&gt;</t></R>");
        let mut out = String::new();
        element(&mut out, "groupSet", &json!({"#groupId": ["a", "b"]}), Lists::Item);
        assert_eq!(out, "<groupSet><groupId>a</groupId><groupId>b</groupId></groupSet>");
        let mut out = String::new();
        element(&mut out, "G", &json!({"@xsi:type": "User", "#text": "x"}), Lists::Flat);
        assert_eq!(out, "<G xsi:type=\"User\">x</G>");
    }
}
