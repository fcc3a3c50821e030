//! Whether an expression can be NULL, given which inputs have no NULL.

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, Expression, Literal, NullRule, Value};

/// When a value can be NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Nullability {
    /// Whatever the input is.
    Always,
    /// Only if one of these columns has a NULL.
    WithColumns(BTreeSet<ColumnId>),
}

impl Nullability {
    const NEVER: Self = Self::WithColumns(BTreeSet::new());

    fn is_never(&self) -> bool {
        *self == Self::NEVER
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::WithColumns(mut columns), Self::WithColumns(more)) => {
                columns.extend(more);
                Self::WithColumns(columns)
            }
            _ => Self::Always,
        }
    }
}

/// When an expression can be NULL.
pub(super) fn nullability(expression: &Expression, parameters: &[Literal]) -> Nullability {
    let any = |parts: &[Expression]| {
        parts.iter().map(|part| nullability(part, parameters)).fold(Nullability::NEVER, Nullability::or)
    };
    let constant = |value: Option<&Value>| match value {
        Some(Value::Null) | None => Nullability::Always,
        Some(_) => Nullability::NEVER,
    };
    match expression {
        Expression::Column { id, .. } => Nullability::WithColumns(BTreeSet::from([*id])),
        Expression::Literal(literal) => constant(Some(&literal.value)),
        Expression::Parameter { index, .. } => {
            constant(parameters.get(*index as usize).map(|literal| &literal.value))
        }
        Expression::Case { otherwise: None, .. } => Nullability::Always,
        Expression::Case { branches, otherwise: Some(otherwise), .. } => branches
            .iter()
            .map(|branch| nullability(&branch.result, parameters))
            .fold(nullability(otherwise, parameters), Nullability::or),
        Expression::Call { function, arguments, .. } => match function.entry().nulls {
            NullRule::Never => Nullability::NEVER,
            NullRule::Own | NullRule::StrictAndOwn => Nullability::Always,
            NullRule::AllNull => {
                let parts: Vec<Nullability> =
                    arguments.iter().map(|argument| nullability(argument, parameters)).collect();
                if parts.iter().any(Nullability::is_never) {
                    Nullability::NEVER
                } else {
                    parts.into_iter().fold(Nullability::NEVER, Nullability::or)
                }
            }
            NullRule::Strict | NullRule::SomeNull => any(arguments),
        },
    }
}
