//! The error of a call. gRPC and REST share the type; each shows it in its own form.

use crate::pb;
use berth_engine::handler::Trouble;
use berth_model::Diagnostic;
use berth_store::{ControlError, StoreError};
use prost::Message;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidManifest,
    InvalidArgument,
    Unauthenticated,
    Denied,
    NotFound,
    /// Someone else changed it meanwhile.
    Conflict,
    /// It cannot be done as things are: something refers to it, it waits for another.
    Refused,
    TooLarge,
    TooMany,
    TimedOut,
    /// Try again: a database or a worker did not answer.
    Unavailable,
    Internal,
}

/// Every code with its name in problem documents, its HTTP status and its gRPC code.
const CODES: [(Code, &str, u16, tonic::Code); 12] = [
    (Code::InvalidManifest, "invalid-manifest", 422, tonic::Code::InvalidArgument),
    (Code::InvalidArgument, "invalid-argument", 400, tonic::Code::InvalidArgument),
    (Code::Unauthenticated, "unauthenticated", 401, tonic::Code::Unauthenticated),
    (Code::Denied, "denied", 403, tonic::Code::PermissionDenied),
    (Code::NotFound, "not-found", 404, tonic::Code::NotFound),
    (Code::Conflict, "conflict", 409, tonic::Code::Aborted),
    (Code::Refused, "refused", 409, tonic::Code::FailedPrecondition),
    (Code::TooLarge, "too-large", 413, tonic::Code::OutOfRange),
    (Code::TooMany, "too-many", 429, tonic::Code::ResourceExhausted),
    (Code::TimedOut, "timed-out", 504, tonic::Code::DeadlineExceeded),
    (Code::Unavailable, "unavailable", 503, tonic::Code::Unavailable),
    (Code::Internal, "internal", 500, tonic::Code::Internal),
];

impl Code {
    pub const ALL: [Code; 12] = [
        Code::InvalidManifest,
        Code::InvalidArgument,
        Code::Unauthenticated,
        Code::Denied,
        Code::NotFound,
        Code::Conflict,
        Code::Refused,
        Code::TooLarge,
        Code::TooMany,
        Code::TimedOut,
        Code::Unavailable,
        Code::Internal,
    ];

    fn row(self) -> &'static (Code, &'static str, u16, tonic::Code) {
        CODES.iter().find(|row| row.0 == self).unwrap_or(&CODES[11])
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn http(self) -> u16 {
        self.row().2
    }

    pub fn grpc(self) -> tonic::Code {
        self.row().3
    }

    pub fn named(name: &str) -> Option<Self> {
        CODES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub code: Code,
    /// Lower case, names the object.
    pub message: String,
    /// What to check and what to type.
    pub help: Vec<String>,
    pub problems: Vec<pb::Problem>,
    pub conflicts: Vec<pb::Conflict>,
    /// The server's certificate is signed by an authority that this machine does not know. Never travels: the side that
    /// connects finds it out.
    pub unknown_authority: bool,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            help: Vec::new(),
            problems: Vec::new(),
            conflicts: Vec::new(),
            unknown_authority: false,
        }
    }

    pub fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    pub fn detail(&self) -> pb::ErrorDetail {
        pb::ErrorDetail {
            code: self.code.name().into(),
            message: self.message.clone(),
            help: self.help.clone(),
            problems: self.problems.clone(),
            conflicts: self.conflicts.clone(),
        }
    }

    /// As a caller reads it.
    pub fn from_status(status: &tonic::Status) -> Self {
        if let Ok(detail) = pb::ErrorDetail::decode(status.details())
            && let Some(code) = Code::named(&detail.code)
        {
            let pb::ErrorDetail { message, help, problems, conflicts, .. } = detail;
            return Self { help, problems, conflicts, ..Self::new(code, message) };
        }
        let code = CODES.iter().find(|row| row.3 == status.code()).map_or(Code::Internal, |row| row.0);
        Self::new(code, status.message())
    }
}

impl From<Fault> for tonic::Status {
    fn from(fault: Fault) -> Self {
        let details = fault.detail().encode_to_vec();
        tonic::Status::with_details(fault.code.grpc(), fault.message, details.into())
    }
}

impl From<StoreError> for Fault {
    /// What the database said is for the log: it may name hosts and paths.
    fn from(error: StoreError) -> Self {
        // The one that the caller can mend.
        if let StoreError::TooLarge { .. } = error {
            return Fault::new(Code::TooLarge, error.to_string());
        }
        // What one resource holds cannot be read, and trying again will not help: the others are as they were.
        if error.is_of_one_row() {
            tracing::warn!(%error, "something in the state cannot be read");
            return Fault::new(Code::Internal, error.to_string())
                .help("apply it again with its secrets, or restore the state from a backup");
        }
        tracing::warn!(%error, "the state could not be read or written");
        Fault::new(Code::Unavailable, "the state cannot be read or written just now").help("try again in a moment")
    }
}

impl From<ControlError> for Fault {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        match error {
            ControlError::Store(error) => error.into(),
            ControlError::NotFound(_) => Fault::new(Code::NotFound, message),
            ControlError::Refused(_) => Fault::new(Code::Refused, message),
            ControlError::Going { .. } => {
                Fault::new(Code::Refused, message).help("wait until it is gone, or apply both together to keep it")
            }
            ControlError::InUse { .. } => {
                Fault::new(Code::Refused, message).help("delete that one first, or add --cascade to delete it too")
            }
            ControlError::OwnChange { .. } => Fault::new(Code::Denied, message),
            ControlError::UnknownAuthor { .. } => {
                Fault::new(Code::Denied, message).help("apply it again, unchanged; then somebody else can approve it")
            }
            ControlError::UsedLogin => Fault::new(Code::Unauthenticated, message).help("log in again:   berth login"),
            ControlError::Fenced => Fault::new(Code::Conflict, message),
            ControlError::Conflict { .. } => Fault::new(Code::Conflict, message)
                .help("someone else changed it meanwhile: look at what is stored, then apply again"),
            ControlError::OtherPlan { .. } => {
                Fault::new(Code::Conflict, message).help("look at the plan that waits now, then approve that one")
            }
        }
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        Self { help: trouble.help_lines(), ..Fault::new(Code::Refused, trouble.to_string()) }
    }
}

impl From<&Diagnostic> for pb::Problem {
    fn from(diagnostic: &Diagnostic) -> Self {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let span = diagnostic.span;
        Self {
            severity: if diagnostic.is_error() { "error" } else { "warning" }.into(),
            message: diagnostic.message.clone(),
            file: diagnostic.file.clone(),
            line: span.map_or(0, |s| s.line),
            column: span.map_or(0, |s| s.column),
            path: diagnostic.path.clone(),
            help: diagnostic.help.clone(),
            start: span.map_or(0, |s| number(s.start)),
            end: span.map_or(0, |s| number(s.end)),
            label: diagnostic.label.clone().unwrap_or_default(),
            secret: diagnostic.secret,
            resource: None,
        }
    }
}
