//! What the YAML scanner says, in words that help.

use granit_parser::ErrorKind;

/// The message, and help where there is some to give.
pub(super) fn explain(kind: &ErrorKind) -> (String, Option<&'static str>) {
    let (message, help) = match kind {
        kind if is_tab(kind) => ("a tab is used for indentation", Some("YAML allows only spaces there")),
        ErrorKind::UnclosedQuotedScalar => ("a quote is opened here and never closed", None),
        ErrorKind::InvalidQuotedScalarIndent => ("a quote is opened before this line and not closed", None),
        ErrorKind::UnclosedFlowCollection { open: '[' } | ErrorKind::UnexpectedEofFlowSequence => {
            ("a `[` is opened and never closed", None)
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping => ("a `{` is opened and never closed", None),
        ErrorKind::MismatchedFlowCollectionEnd { .. } | ErrorKind::MisplacedFlowCollectionEnd => {
            ("this bracket closes nothing that was opened", None)
        }
        ErrorKind::ExpectedFlowMappingSeparator => ("`,` or `}` is missing before this", None),
        ErrorKind::ExpectedFlowSequenceSeparator => ("`,` or `]` is missing before this", None),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            ("a `:` is not allowed here", Some("check the indentation; text that contains `: ` needs quotes"))
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => ("a `:` is missing after this name", None),
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::InvalidIndentation
        | ErrorKind::InvalidFlowScalarIndent
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::MappingKeyNotAllowed => (
            "this line does not fit the indentation around it",
            Some("entries of one list or mapping start in the same column"),
        ),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => {
            ("a list entry (`- `) is not allowed here", Some("put the first entry on a line of its own"))
        }
        ErrorKind::InvalidMappingValueWhitespace | ErrorKind::FlowMappingValueAdjacentCollection => {
            ("a space is missing after `:`", None)
        }
        ErrorKind::InvalidBlockEntryWhitespace => ("a space is missing after `-`", None),
        ErrorKind::UnknownAnchor => ("this alias names an anchor (`&…`) that is not defined before it", None),
        ErrorKind::UnexpectedCharacter { character: '@' | '`' } => {
            ("text cannot start with this character", Some("put the text in quotes"))
        }
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            ("the file holds a character that YAML does not allow", Some("is it a text file in UTF-8?"))
        }
        ErrorKind::UnknownQuotedScalarEscape => (
            "unknown escape after `\\` in a text with double quotes",
            Some("use single quotes, or write `\\\\` for a backslash"),
        ),
        ErrorKind::InvalidTrailingDoubleQuotedScalar | ErrorKind::InvalidTrailingSingleQuotedScalar => {
            ("there is something after the closing quote", None)
        }
        ErrorKind::BomInsideDocument => ("a byte order mark stands inside the document", None),
        _ => return (format!("this is not valid YAML: {kind}"), None),
    };
    (message.to_owned(), help)
}

/// Whether the trouble is a tab.
pub(super) fn is_tab(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInPlainScalar
            | ErrorKind::TabAtBlockScalarStart
    )
}
