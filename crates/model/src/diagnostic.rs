//! What is wrong with a manifest, where, and what would be right. Plain data: how it is shown is up to the caller.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;

/// A place in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
    /// Line of `start`, from 1.
    pub line: u32,
    /// Column of `start` in characters, from 1.
    pub column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// One sentence, lower case, without a full stop.
    pub message: String,
    pub file: String,
    pub span: Option<Span>,
    /// What to say at the place itself where that is not the path: `did you mean …?`.
    pub label: Option<String>,
    /// camelCase path of the field, such as `spec.defaultNodePool.nodeCount`; empty for the document as a whole.
    pub path: String,
    pub help: Vec<String>,
    /// The place holds a secret, or may: the line must not be shown.
    pub secret: bool,
    /// It is a reference to a resource that is not there.
    pub unresolved: Option<Unresolved>,
    /// The tool that the manifest was written for takes it: a check alone accepts it and says so, and no plan is made with it.
    pub elsewhere: bool,
}

/// A reference to a resource that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// Another resource may have been meant, and the help names it.
    SomethingAlike,
    NothingAlike,
}

impl Diagnostic {
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            file: String::new(),
            span: None,
            label: None,
            path: String::new(),
            help: Vec::new(),
            secret: false,
            unresolved: None,
            elsewhere: false,
        }
    }

    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    pub fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub fn label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    pub fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    pub fn secret(mut self, secret: bool) -> Self {
        self.secret |= secret;
        self
    }

    pub fn elsewhere(mut self, elsewhere: bool) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// What to write next to the caret: the label, or else the path.
    pub fn caption(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.path)
    }

    /// `file:line:column`, or as much of it as is known.
    pub fn place(&self) -> String {
        match self.span {
            Some(span) => format!("{}:{}:{}", self.file, span.line, span.column),
            None => self.file.clone(),
        }
    }
}

/// `file:line:col: message`, for logs and tests.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(label) = &self.label {
            write!(f, " ({label})")?;
        }
        Ok(())
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Diagnostic", 7)?;
        out.serialize_field("severity", if self.is_error() { "error" } else { "warning" })?;
        out.serialize_field("file", &self.file)?;
        out.serialize_field("line", &self.span.map(|span| span.line))?;
        out.serialize_field("column", &self.span.map(|span| span.column))?;
        out.serialize_field("path", &self.path)?;
        out.serialize_field("message", &self.message)?;
        let help: Vec<&String> = self.label.iter().chain(&self.help).collect();
        out.serialize_field("help", &help)?;
        out.end()
    }
}
