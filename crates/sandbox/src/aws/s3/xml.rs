//! XML that clients send, as a tree. Names lose their prefixes; attributes are not kept, but for nothing that S3 decides by.

/// How deep elements may be nested; S3's own go to six.
const MAX_DEPTH: usize = 32;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub fn all<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of a child.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim())
    }

    /// The first text of that name anywhere below.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.text_of(name).or_else(|| self.children.iter().find_map(|child| child.find(name)))
    }
}

/// The root element; nothing where the text is not well-formed.
pub fn parse(text: &str) -> Option<Element> {
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut rest = text.trim_start_matches('\u{feff}');
    while !rest.is_empty() {
        let Some(at) = rest.find('<') else {
            return if rest.trim().is_empty() { root } else { None };
        };
        let (before, tag) = rest.split_at(at);
        match open.last_mut() {
            Some(element) => element.text.push_str(&unescape(before)?),
            None if before.trim().is_empty() => {}
            None => return None,
        }
        rest = if let Some(after) = tag.strip_prefix("<!--") {
            after.split_once("-->")?.1
        } else if let Some(after) = tag.strip_prefix("<![CDATA[") {
            let (data, after) = after.split_once("]]>")?;
            open.last_mut()?.text.push_str(data);
            after
        } else if let Some(after) = tag.strip_prefix("<?") {
            after.split_once("?>")?.1
        } else if tag.starts_with("<!") {
            // A document type could define entities.
            return None;
        } else if let Some(after) = tag.strip_prefix("</") {
            let (name, after) = after.split_once('>')?;
            let element = open.pop()?;
            if local(name.trim()) != element.name {
                return None;
            }
            close(&mut open, &mut root, element)?;
            after
        } else {
            let (inside, after) = tag[1..].split_once('>')?;
            let (inside, empty) = match inside.strip_suffix('/') {
                Some(inside) => (inside, true),
                None => (inside, false),
            };
            let name = inside.split_whitespace().next()?;
            let element = Element { name: local(name).to_owned(), ..Element::default() };
            if open.len() >= MAX_DEPTH {
                return None;
            }
            match empty {
                true => close(&mut open, &mut root, element)?,
                false => open.push(element),
            }
            after
        };
    }
    if open.is_empty() { root } else { None }
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn close(open: &mut [Element], root: &mut Option<Element>, element: Element) -> Option<()> {
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None if root.is_none() => *root = Some(element),
        None => return None,
    }
    Some(())
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (entity, after) = after.split_once(';')?;
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => match entity.strip_prefix("#x") {
                Some(digits) => number(digits, 16)?,
                None => number(entity.strip_prefix('#')?, 10)?,
            },
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_trees() {
        let text = "<?xml version=\"1.0\"?>\n<!-- x --><D xmlns=\"u\"><Quiet/>\n<s:Object><Key>a&amp;b &#x41;&#10;</Key></s:Object><Object><Key><![CDATA[<x>]]></Key></Object></D>\n";
        let root = parse(text).unwrap();
        assert_eq!((root.name.as_str(), root.children.len()), ("D", 3));
        let keys: Vec<_> = root.all("Object").map(|object| object.child("Key").unwrap().text.as_str()).collect();
        assert_eq!(keys, ["a&b A\n", "<x>"]);
        assert_eq!(root.find("Key"), Some("a&b A"));
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for text in
            ["", "x", "<a>", "<a></b>", "<a/><b/>", "<a>&nope;</a>", "<a", "<!DOCTYPE a><a/>", &"<a>".repeat(1000)]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
