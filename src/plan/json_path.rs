//! Ways to a part of a JSON document, as constants of the plan: `.name` of an object, `[3]` of an array, `/name` or `/3` of either.
//!
//! A backslash stands before each of `.`, `[`, `/` and `\` in a name, which may be empty.

use std::fmt;

/// A way to a part of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonPath {
    /// From the document inwards.
    pub steps: Vec<JsonStep>,
}

/// A step into an object or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonStep {
    /// `-> name`: a field of an object.
    Field(String),
    /// `-> number`: an element of an array, from 0; a negative number counts from the end.
    Element(i32),
    /// A step of `#>`: a field of an object; an element of an array, if the text is a number.
    Either(String),
}

impl JsonPath {
    /// The path of a text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(kind) = rest.next() {
            let mut name = String::new();
            while let Some(next) = rest.next_if(|next| !matches!(next, '.' | '[' | '/')) {
                name.push(if next == '\\' { rest.next()? } else { next });
            }
            steps.push(match kind {
                '.' => JsonStep::Field(name),
                '/' => JsonStep::Either(name),
                '[' => JsonStep::Element(name.strip_suffix(']')?.parse().ok()?),
                _ => return None,
            });
        }
        Some(Self { steps })
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            let (kind, name) = match step {
                JsonStep::Field(name) => ('.', name),
                JsonStep::Either(name) => ('/', name),
                JsonStep::Element(number) => {
                    write!(formatter, "[{number}]")?;
                    continue;
                }
            };
            write!(formatter, "{kind}")?;
            for character in name.chars() {
                if matches!(character, '.' | '[' | '/' | '\\') {
                    write!(formatter, "\\")?;
                }
                write!(formatter, "{character}")?;
            }
        }
        Ok(())
    }
}

impl JsonStep {
    /// The element of an array that a step goes to.
    ///
    /// Source: PostgreSQL 15, `jsonfuncs.c` (`get_path_all`, `jsonb_get_element`), which read a number as C's `strtol` does.
    pub fn element(&self) -> Option<i32> {
        match self {
            Self::Field(_) => None,
            Self::Element(number) => Some(*number),
            Self::Either(text) => {
                let is_blank = |byte: char| matches!(byte, ' ' | '\t'..='\r');
                let digits = text.trim_start_matches(is_blank);
                let number: i32 = digits.parse().ok()?;
                (number != i32::MIN).then_some(number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_text() {
        let either = |name: &str| JsonStep::Either(name.to_owned());
        let steps = [
            JsonStep::Field("a.b[c]/\\d".to_owned()),
            JsonStep::Element(-3),
            either(""),
            either("7"),
            JsonStep::Field(String::new()),
            JsonStep::Field("é\u{1f600}".to_owned()),
        ];
        for count in 0..=steps.len() {
            let path = JsonPath { steps: steps[..count].to_vec() };
            assert_eq!(JsonPath::parse(&path.to_string()), Some(path));
        }
        assert_eq!(JsonPath { steps: steps[..3].to_vec() }.to_string(), r".a\.b\[c]\/\\d[-3]/");
    }

    #[test]
    fn other_texts_are_no_paths() {
        for text in ["a", "[x]", "[1", "[]", ".a\\", "[99999999999]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_step_of_either_may_be_a_number() {
        let number = |text: &str| JsonStep::Either(text.to_owned()).element();
        assert_eq!([number("0"), number("-1"), number(" +2")], [Some(0), Some(-1), Some(2)]);
        assert_eq!([number(""), number("2 "), number("x"), number("-2147483648")], [None; 4]);
        assert_eq!(JsonStep::Field("1".to_owned()).element(), None);
    }
}
