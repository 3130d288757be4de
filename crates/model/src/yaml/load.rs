//! Parser events into trees, one document at a time, within limits.

use super::{
    Entry, MAX_ALIAS_NODES, MAX_DEPTH, MAX_DOCUMENTS, MAX_FILE_BYTES, MAX_NODES, Node, Plain, Quotes, Style, Value,
};
use super::{resolve, scan};
use crate::diagnostic::{Diagnostic, Span};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, StructureStyle, Tag};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The documents of a file, one after the other, so that only one tree is in memory at a time.
pub struct Documents<'a> {
    parser: Parser<'a, StrInput<'a>>,
    body: &'a str,
    file: String,
    /// Bytes of a byte order mark before the text that the parser sees.
    shift: usize,
    next_index: usize,
    finished: bool,
}

/// One document.
pub struct Loaded<'a> {
    /// Its number in the file, from 0.
    pub index: usize,
    /// `None` when the document could not be read to its end.
    pub root: Option<Node<'a>>,
    pub problems: Vec<Diagnostic>,
}

/// Why a document was given up.
struct Stop;

impl<'a> Documents<'a> {
    /// Refuses what is too large or not text.
    pub fn new(file: &str, bytes: &'a [u8]) -> Result<Self, Box<Diagnostic>> {
        if bytes.len() > MAX_FILE_BYTES {
            return Err(Box::new(too_large(file, bytes.len() as u64)));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = &bytes[..error.valid_up_to()];
            Box::new(
                Diagnostic::error("the file is not text in UTF-8: this byte cannot be read")
                    .file(file)
                    .at(position(valid))
                    .help("save the file as UTF-8"),
            )
        })?;
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        Ok(Self {
            parser: Parser::new_from_str_with_options(body, options),
            body,
            file: file.to_owned(),
            shift: text.len() - body.len(),
            next_index: 0,
            finished: false,
        })
    }
}

/// The refusal of a file by its size, for those who see the size before they read.
pub fn too_large(file: &str, bytes: u64) -> Diagnostic {
    let (size, limit) = (bytes.div_ceil(1024 * 1024), MAX_FILE_BYTES / (1024 * 1024));
    Diagnostic::error(format!("the file is too large: {size} MiB, and at most {limit} MiB are read"))
        .file(file)
        .help("split the manifests over several files; a folder may hold any number of them")
}

/// The place right after some text.
fn position(before: &[u8]) -> Span {
    let line = before.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // Bytes that continue a character are not counted.
    let column = before[line_start..].iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u32 + 1;
    Span { start: before.len(), end: before.len() + 1, line, column }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Loaded<'a>;

    fn next(&mut self) -> Option<Loaded<'a>> {
        while !self.finished {
            match self.parser.next_event() {
                Some(Ok((Event::DocumentStart(..), span))) => return Some(self.document(span)),
                Some(Ok((Event::StreamEnd, _))) | None => self.finished = true,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    let index = self.next_index;
                    self.next_index += 1;
                    let problem = self.syntax(&error);
                    self.recover();
                    return Some(Loaded { index, root: None, problems: vec![problem] });
                }
            }
        }
        None
    }
}

impl<'a> Documents<'a> {
    fn document(&mut self, start: granit_parser::Span) -> Loaded<'a> {
        let index = self.next_index;
        self.next_index += 1;
        if index == MAX_DOCUMENTS {
            self.finished = true;
            let problem = Diagnostic::error(format!("the file has more than {MAX_DOCUMENTS} documents"))
                .file(self.file.clone())
                .at(span(start, self.shift))
                .help("split the manifests over several files");
            return Loaded { index, root: None, problems: vec![problem] };
        }
        let mut build = Build { docs: self, anchors: HashMap::new(), nodes: 0, copied: 0, problems: Vec::new() };
        let root = build.next().and_then(|event| build.node(event, 0));
        let mut problems = build.problems;
        let Ok(root) = root else {
            self.recover();
            return Loaded { index, root: None, problems };
        };
        match self.parser.next_event() {
            Some(Ok((Event::DocumentEnd, _))) | None => {}
            Some(Ok(_)) => self.recover(),
            Some(Err(error)) => {
                problems.push(self.syntax(&error));
                self.recover();
                return Loaded { index, root: None, problems };
            }
        }
        problems.iter_mut().for_each(|problem| locate(&root, problem));
        Loaded { index, root: Some(root), problems }
    }

    /// Goes on with the next document, so that all documents' problems are reported at once.
    fn recover(&mut self) {
        if !matches!(self.parser.proceed_next_document(), Ok(true)) {
            self.finished = true;
        }
    }

    fn syntax(&self, error: &ScanError) -> Diagnostic {
        let (message, help) = match error.kind() {
            granit_parser::ErrorKind::RecursionLimitExceeded => {
                (format!("the document is nested more than {MAX_DEPTH} levels deep"), None)
            }
            kind => scan::explain(kind),
        };
        let mut place = span(granit_parser::Span::empty(*error.marker()), self.shift);
        if scan::is_tab(error.kind()) {
            self.point_at_tab(&mut place);
        }
        let mut problem = Diagnostic::error(message).file(self.file.clone()).at(place);
        problem.help.extend(help.map(str::to_owned));
        problem
    }
}

impl Documents<'_> {
    /// The scanner complains behind a tab; people look for the tab itself.
    fn point_at_tab(&self, place: &mut Span) {
        let before = self.body.get(..place.start.saturating_sub(self.shift)).unwrap_or_default();
        let mut start = before.rfind('\n').map_or(0, |at| at + 1);
        // Where text goes on over lines, the complaint is still about the line before.
        for (number, line) in self.body.get(start..).unwrap_or_default().split('\n').take(3).enumerate() {
            if let Some(at) = line.find('\t') {
                let column = line[..at].chars().count() as u32 + 1;
                let byte = self.shift + start + at;
                *place = Span { start: byte, end: byte + 1, line: place.line + number as u32, column };
                return;
            }
            start += line.len() + 1;
        }
    }
}

/// Puts the path of the mapping in front of the key that a problem of the tree is about.
fn locate(root: &Node<'_>, problem: &mut Diagnostic) {
    let Some(at) = problem.span else { return };
    let mut path = crate::validate::Path::default();
    let mut node = root;
    loop {
        let inside = |node: &Node<'_>, key_column: u32| match &node.value {
            Value::Map { flow: true, .. } | Value::Seq { flow: true, .. } => {
                node.span.start < at.start && at.start < node.span.end
            }
            Value::Map { .. } | Value::Seq { .. } => node.span.start <= at.start && key_column < at.column,
            _ => false,
        };
        let next = match &node.value {
            Value::Map { entries, .. } => {
                let last = entries.iter().rfind(|entry| entry.key_span.start < at.start);
                last.filter(|entry| inside(&entry.node, entry.key_span.column)).map(|entry| {
                    path.push_key(&entry.key);
                    &entry.node
                })
            }
            Value::Seq { items, .. } => {
                let last = items.iter().rposition(|item| item.span.start <= at.start);
                last.filter(|index| inside(&items[*index], 0)).map(|index| {
                    path.push_index(index);
                    &items[index]
                })
            }
            _ => None,
        };
        match next {
            Some(inner) => node = inner,
            None => break,
        }
    }
    if !problem.path.is_empty() {
        let key = std::mem::take(&mut problem.path);
        path.push_key(&key);
    }
    problem.path = path.0;
}

/// Builds the tree of one document.
struct Build<'d, 'a> {
    docs: &'d mut Documents<'a>,
    anchors: HashMap<usize, Option<Node<'a>>>,
    nodes: usize,
    /// Values kept for aliases, and values that aliases became.
    copied: usize,
    problems: Vec<Diagnostic>,
}

type Item<'a> = (Event<'a>, granit_parser::Span);

impl<'a> Build<'_, 'a> {
    fn next(&mut self) -> Result<Item<'a>, Stop> {
        match self.docs.parser.next_event() {
            Some(Ok(item)) => Ok(item),
            Some(Err(error)) => {
                self.problems.push(self.docs.syntax(&error));
                Err(Stop)
            }
            None => Err(Stop),
        }
    }

    fn problem(&mut self, message: impl Into<String>, at: Span) -> &mut Diagnostic {
        let index = self.problems.len();
        self.problems.push(Diagnostic::error(message).file(self.docs.file.clone()).at(at));
        &mut self.problems[index]
    }

    fn count(&mut self, at: Span) -> Result<(), Stop> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.problem(format!("the document holds more than {MAX_NODES} values"), at);
            return Err(Stop);
        }
        Ok(())
    }

    fn node(&mut self, (event, place): Item<'a>, depth: usize) -> Result<Node<'a>, Stop> {
        let at = span(place, self.docs.shift);
        self.count(at)?;
        if depth > MAX_DEPTH {
            self.problem(format!("the document is nested more than {MAX_DEPTH} levels deep"), at);
            return Err(Stop);
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (self.scalar(text, style, tag.as_deref(), place), anchor),
            Event::SequenceStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), place);
                (self.sequence(at, style, depth)?, anchor)
            }
            Event::MappingStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), place);
                (self.mapping(at, style, depth)?, anchor)
            }
            Event::Alias(target) => (self.alias(target, at)?, 0),
            _ => {
                self.problem("this is not valid YAML", at);
                return Err(Stop);
            }
        };
        if anchor != 0 {
            self.keep(anchor, &node, at)?;
        }
        Ok(node)
    }

    fn scalar(
        &mut self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        place: granit_parser::Span,
    ) -> Node<'a> {
        let at = span(place, self.docs.shift);
        let forced_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
        if !forced_text {
            self.refuse_tag(tag, place);
        }
        let style = match style {
            ScalarStyle::Plain if !forced_text => Style::Plain,
            ScalarStyle::SingleQuoted => Style::Quoted(Quotes::Single),
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Quoted(Quotes::Block),
            _ => Style::Quoted(Quotes::Double),
        };
        if style == Style::Plain && resolve(&text) == Plain::Null {
            return Node { span: at, value: Value::Null };
        }
        Node { span: at, value: Value::Scalar { text, style } }
    }

    fn sequence(&mut self, mut at: Span, style: StructureStyle, depth: usize) -> Result<Node<'a>, Stop> {
        let flow = style == StructureStyle::Flow;
        let mut items: Vec<Node<'a>> = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, end) => {
                    at.end = end_of(flow, items.last().map(|item| item.span.end), end, self.docs.shift, at);
                    return Ok(Node { span: at, value: Value::Seq { items, flow } });
                }
                item => items.push(self.node(item, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, mut at: Span, style: StructureStyle, depth: usize) -> Result<Node<'a>, Stop> {
        let flow = style == StructureStyle::Flow;
        let mut entries: Vec<Entry<'a>> = Vec::new();
        let mut seen: HashSet<Cow<'a, str>> = HashSet::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::MappingEnd {
                at.end = end_of(flow, entries.last().map(|entry| entry.node.span.end), place, self.docs.shift, at);
                return Ok(Node { span: at, value: Value::Map { entries, flow } });
            }
            let key = self.node((event, place), depth + 1)?;
            let item = self.next()?;
            let node = self.node(item, depth + 1)?;
            let key_span = key.span;
            let key = match key.value {
                Value::Scalar { text, style } => {
                    if text == "<<" && style == Style::Plain {
                        self.problem("merge keys (`<<`) are not supported", key_span)
                            .help
                            .push("write the fields out where they belong".to_owned());
                        continue;
                    }
                    text
                }
                Value::Null => Cow::Borrowed(""),
                _ => {
                    self.problem("a name of a field must be text", key_span);
                    continue;
                }
            };
            // Small mappings, which are nearly all, are searched; large ones get an index.
            let twice = if entries.len() < 16 {
                entries.iter().any(|entry| entry.key == key)
            } else {
                if seen.is_empty() {
                    seen.extend(entries.iter().map(|entry| entry.key.clone()));
                }
                !seen.insert(key.clone())
            };
            if twice {
                let first = entries.iter().find(|entry| entry.key == key).map_or(0, |entry| entry.key_span.line);
                let problem = self.problem(format!("{} is given twice", crate::phrasing::shown(&key)), key_span);
                problem.help.push(format!("it is given first in line {first}"));
                problem.path = key.into_owned();
                continue;
            }
            entries.push(Entry { key, key_span, node });
        }
    }

    fn alias(&mut self, target: usize, at: Span) -> Result<Node<'a>, Stop> {
        let Some(known) = self.anchors.get(&target) else {
            self.problem("this alias stands inside the value that it names", at);
            return Err(Stop);
        };
        let copy = known.as_ref().map(|node| (size(node), node.clone()));
        match copy {
            Some((size, node)) if self.copied + size <= MAX_ALIAS_NODES => {
                self.copied += size;
                self.nodes += size;
                Ok(node)
            }
            _ => {
                self.problem(format!("aliases blow the document up to more than {MAX_ALIAS_NODES} values"), at);
                Err(Stop)
            }
        }
    }

    /// Keeps an anchored value for its aliases; one that is too large for any alias is not copied.
    fn keep(&mut self, anchor: usize, node: &Node<'a>, at: Span) -> Result<(), Stop> {
        let size = size(node);
        let kept = size <= MAX_ALIAS_NODES;
        if kept {
            self.nodes += size;
            if self.nodes > MAX_NODES {
                self.problem(format!("anchors hold more than {MAX_NODES} values"), at);
                return Err(Stop);
            }
        }
        self.anchors.insert(anchor, kept.then(|| node.clone()));
        Ok(())
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, place: granit_parser::Span) {
        if let Some(tag) = tag {
            let at = span(place.tag_span().unwrap_or(place), self.docs.shift);
            let name = crate::phrasing::shown(&tag.original());
            self.problem(format!("the tag {name} is not supported"), at).help.push("leave it out".to_owned());
        }
    }
}

/// Number of values in a node.
fn size(node: &Node<'_>) -> usize {
    1 + match &node.value {
        Value::Seq { items, .. } => items.iter().map(size).sum(),
        Value::Map { entries, .. } => entries.iter().map(|entry| 1 + size(&entry.node)).sum::<usize>(),
        _ => 0,
    }
}

/// Where a collection ends: at its bracket, or, without one, where its last value does.
fn end_of(flow: bool, last: Option<usize>, end: granit_parser::Span, shift: usize, start: Span) -> usize {
    match last {
        Some(last) if !flow => last,
        _ => span(end, shift).end.max(start.start),
    }
}

fn span(place: granit_parser::Span, shift: usize) -> Span {
    let byte = |marker: &Marker| marker.byte_offset().unwrap_or_else(|| marker.index()) + shift;
    let start = byte(&place.start);
    Span {
        start,
        end: byte(&place.end).max(start),
        line: u32::try_from(place.start.line()).unwrap_or(u32::MAX),
        column: u32::try_from(place.start.col()).unwrap_or(u32::MAX - 1) + 1,
    }
}
