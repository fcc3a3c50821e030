//! Searches of text that a kernel tests byte by byte: LIKE with `%` alone, equality.

use bytemuck::Zeroable;
use pystachio_plan::{Expression, Function, Literal, Value};

use super::abi::{SEARCH_BYTES_MAX, SEARCH_PARTS_MAX, SegmentSearch};

/// Parts that a text has one after another. A NULL is never found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSearch {
    parts: Vec<Vec<u8>>,
    begins: bool,
    ends: bool,
    negated: bool,
}

impl TextSearch {
    /// The search that a condition on a text column is; `None` if it is none, or too long for a kernel.
    pub fn of(condition: &Expression, parameters: &[Literal]) -> Option<Self> {
        let Expression::Call { function, arguments, .. } = condition else { return None };
        match (function, arguments.as_slice()) {
            (Function::Not, [inner]) => {
                let search = Self::of(inner, parameters)?;
                Some(Self { negated: !search.negated, ..search })
            }
            (Function::IsTrue, [inner]) => Self::of(inner, parameters),
            (Function::Like, [Expression::Column { .. }, pattern]) => {
                Self::like(text_of(pattern, parameters)?.as_bytes())
            }
            (
                Function::Equal | Function::NotEqual,
                [Expression::Column { .. }, text] | [text, Expression::Column { .. }],
            ) => {
                let text = text_of(text, parameters)?.as_bytes().to_vec();
                let negated = *function == Function::NotEqual;
                Self { parts: vec![text], begins: true, ends: true, negated }.checked()
            }
            _ => None,
        }
    }

    /// A LIKE pattern, with backslash as the escape character.
    fn like(pattern: &[u8]) -> Option<Self> {
        let mut parts = vec![Vec::new()];
        let mut bytes = pattern.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'_' => return None,
                b'%' => parts.push(Vec::new()),
                b'\\' => parts.last_mut()?.push(*bytes.next()?),
                byte => parts.last_mut()?.push(*byte),
            }
        }
        let (begins, ends) = (!parts.first()?.is_empty(), !parts.last()?.is_empty());
        if parts.len() == 1 {
            return Self { parts, begins: true, ends: true, negated: false }.checked();
        }
        parts.retain(|part| !part.is_empty());
        Self { parts, begins, ends, negated: false }.checked()
    }

    fn checked(self) -> Option<Self> {
        let bytes: usize = self.parts.iter().map(Vec::len).sum();
        (self.parts.len() <= SEARCH_PARTS_MAX && bytes <= SEARCH_BYTES_MAX).then_some(self)
    }

    /// As the kernel has it.
    pub(super) fn view(&self) -> SegmentSearch {
        let mut view = SegmentSearch {
            part_count: self.parts.len() as u32,
            begins: self.begins.into(),
            ends: self.ends.into(),
            negated: self.negated.into(),
            ..SegmentSearch::zeroed()
        };
        for ((part, bytes), head) in self.parts.iter().zip(&mut view.part_bytes).zip(&mut view.heads) {
            *bytes = part.len() as u32;
            *head = part.iter().take(4).rev().fold(0, |head, byte| head << 8 | u32::from(*byte));
        }
        for (byte, target) in self.parts.iter().flatten().zip(&mut view.bytes) {
            *target = *byte;
        }
        view
    }
}

fn text_of<'a>(expression: &'a Expression, parameters: &'a [Literal]) -> Option<&'a str> {
    let literal = match expression {
        Expression::Literal(literal) => literal,
        Expression::Parameter { index, .. } => parameters.get(*index as usize)?,
        _ => return None,
    };
    match &literal.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
