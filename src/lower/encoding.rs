//! Which functions of text an engine, which has it in UTF-8, computes as PostgreSQL does in a database of another encoding.

use pystachio_plan::{Expression, Function, Value};

use crate::{Call, FunctionRefusal, Lowered, Meaning, Server, SourceType};

/// How text of the database differs from the same text in UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextForm {
    /// The bytes are the same, and so are the characters.
    #[default]
    Utf8,
    /// SQL_ASCII: the bytes are the same, and PostgreSQL takes each of them for a character.
    Bytes,
    /// A character is one byte, and stands for one code point, which no other character stands for.
    OneByte {
        /// Code points have the order of their bytes.
        is_ordered: bool,
    },
    /// Characters of several bytes, about which nothing is assumed.
    Other,
}

impl TextForm {
    /// Whether text ordered by its bytes has the order of the same text in UTF-8.
    pub fn keeps_byte_order(self) -> bool {
        match self {
            Self::Utf8 | Self::Bytes => true,
            Self::OneByte { is_ordered } => is_ordered,
            Self::Other => false,
        }
    }
}

/// Refuses a call that has another value over text in UTF-8 than over that of the database.
pub(crate) fn check_encoding(
    server: &dyn Server,
    meaning: Meaning,
    call: &Call,
    arguments: &[Lowered],
) -> Result<(), FunctionRefusal> {
    let has_text = call.arguments.iter().any(|argument| argument.of.is_collated_text());
    // Of a number it makes a text.
    let is_character = is(meaning, |function| function == Function::Character);
    let is_same = !(has_text || is_character)
        || match server.text_form() {
            TextForm::Utf8 => true,
            TextForm::Bytes => has_value_of_bytes(meaning, call, arguments),
            TextForm::OneByte { .. } => !is(meaning, |function| {
                matches!(
                    function,
                    // Of bytes, of code points, or in error for texts of so many bytes.
                    Function::OctetLength
                        | Function::Matches(_)
                        | Function::MatchesIgnoringCase(_)
                        | Function::ReplaceMatches(_)
                        | Function::CountMatches(_)
                        | Function::MatchedPart(_)
                        | Function::MatchedParts(_)
                        | Function::Character
                        | Function::ReadDate
                        | Function::ReadTimestamp
                        | Function::Ascii
                        | Function::Digest(_)
                        | Function::Decode
                        | Function::PadLeft
                        | Function::PadRight
                        | Function::Repeat
                )
            }),
            // Their text is a word, such as the name of a time zone, or the value itself.
            TextForm::Other => is(meaning, |function| {
                matches!(
                    function,
                    Function::Extract(_)
                        | Function::DatePart(_)
                        | Function::DateTrunc(_)
                        | Function::LocalTime
                        | Function::Encode
                        | Function::Cast
                )
            }),
        };
    if is_same { Ok(()) } else { Err(FunctionRefusal::Encoding(server.encoding_name())) }
}

/// Whether a function has the same value over the bytes of UTF-8 as over its characters. A text is found in another at
/// the same places: no character of UTF-8 begins within another.
fn has_value_of_bytes(meaning: Meaning, call: &Call, arguments: &[Lowered]) -> bool {
    let constant = |place: usize| match arguments.get(place).map(|argument| &argument.expression) {
        Some(Expression::Literal(literal)) => match &literal.value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    };
    // How many blanks a char(n) ends with depends on how many characters it has.
    let has_blanks = call.arguments.iter().any(|argument| argument.of == SourceType::Character);
    let function = match meaning {
        Meaning::Argument => return true,
        Meaning::FirstCharacters => return false,
        Meaning::Function(function, _) => function,
    };
    match function {
        Function::Length
        | Function::Substring
        | Function::Position
        | Function::Left
        | Function::Right
        | Function::PadLeft
        | Function::PadRight
        | Function::Translate
        | Function::Reverse
        | Function::Repeat
        | Function::Overlay
        | Function::Ascii
        | Function::Character
        | Function::Matches(_)
        | Function::MatchesIgnoringCase(_)
        | Function::ReplaceMatches(_)
        | Function::CountMatches(_)
        | Function::MatchedPart(_)
        | Function::MatchedParts(_)
        | Function::ReadDate
        | Function::ReadTimestamp
        | Function::Decode => false,
        Function::OctetLength | Function::ConcatSkippingNulls | Function::ConcatSeparated => !has_blanks,
        Function::Like | Function::ILike(_) => {
            !has_blanks && constant(1).is_some_and(|pattern| !pattern.contains('_'))
        }
        Function::Trim(_) => arguments.len() == 1 || constant(1).is_some_and(str::is_ascii),
        _ => true,
    }
}

fn is(meaning: Meaning, test: impl Fn(Function) -> bool) -> bool {
    matches!(meaning, Meaning::Function(function, _) if test(function))
}
