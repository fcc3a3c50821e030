//! Scalar expressions.

use serde::{Deserialize, Serialize};

use crate::{
    ColumnId, DataType, Function, Literal, Value,
    depth::{EXPRESSION_DEPTH_MAX, decode_levels},
};

/// A typed scalar expression over the columns of an operator's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Expression {
    /// A column of the input.
    Column {
        /// Which.
        id: ColumnId,
        /// Its type.
        data_type: DataType,
    },
    /// A constant.
    Literal(Literal),
    /// A value that is known when the query runs: the `index`-th of [`crate::QueryRequest::parameters`].
    Parameter {
        /// Place in the list of parameters.
        index: u32,
        /// Its type.
        data_type: DataType,
    },
    /// A function of other expressions.
    Call {
        /// Which function.
        function: Function,
        /// Its arguments.
        arguments: Vec<Expression>,
        /// The type of its result.
        data_type: DataType,
    },
    /// CASE: the result of the first branch whose condition is true. A branch's result is not evaluated
    /// for rows that an earlier branch decides, so that it can't fail for them.
    Case {
        /// Tried in order.
        branches: Vec<CaseBranch>,
        /// Where no condition is true; NULL if absent.
        otherwise: Option<Box<Expression>>,
        /// The type of every result.
        data_type: DataType,
    },
}

decode_levels!(Expression, EXPRESSION_DEPTH, EXPRESSION_DEPTH_MAX, "expression");

/// How large an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressionSize {
    /// Levels, its own included.
    pub depth: usize,
    /// Expressions in it, itself included.
    pub parts: usize,
}

/// WHEN condition THEN result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseBranch {
    /// A boolean.
    pub condition: Expression,
    /// The value where it is true.
    pub result: Expression,
}

impl Expression {
    /// A column of the input.
    pub fn column(id: ColumnId, data_type: DataType) -> Self {
        Self::Column { id, data_type }
    }

    /// A constant.
    pub fn literal(value: Value, data_type: DataType) -> Self {
        Self::Literal(Literal::new(value, data_type))
    }

    /// An `integer` constant.
    pub fn int32(value: i32) -> Self {
        Self::literal(Value::Int(value.into()), DataType::Int32)
    }

    /// A function of other expressions.
    pub fn call(function: Function, arguments: Vec<Expression>, data_type: DataType) -> Self {
        Self::Call { function, arguments, data_type }
    }

    /// A function with a boolean result.
    pub fn predicate(function: Function, arguments: Vec<Expression>) -> Self {
        Self::call(function, arguments, DataType::Bool)
    }

    /// AND of any number of conditions; `None` of none.
    pub fn all_of(mut conditions: Vec<Expression>) -> Option<Self> {
        match conditions.len() {
            0 | 1 => conditions.pop(),
            _ => Some(Self::predicate(Function::And, conditions)),
        }
    }

    /// The type of the value.
    pub fn data_type(&self) -> &DataType {
        match self {
            Self::Column { data_type, .. }
            | Self::Parameter { data_type, .. }
            | Self::Call { data_type, .. }
            | Self::Case { data_type, .. } => data_type,
            Self::Literal(literal) => &literal.data_type,
        }
    }

    /// Whether the value is NULL wherever a column is, and there is a column.
    pub fn is_null_with_columns(&self) -> bool {
        let mut has_column = false;
        self.walk(&mut |part| has_column = has_column || matches!(part, Self::Column { .. }));
        has_column && self.is_strict()
    }

    fn is_strict(&self) -> bool {
        match self {
            Self::Column { .. } | Self::Literal(_) | Self::Parameter { .. } => true,
            Self::Call { function, arguments, .. } => {
                function.is_strict() && arguments.iter().all(Self::is_strict)
            }
            Self::Case { .. } => false,
        }
    }

    /// How large the expression is.
    pub fn size(&self) -> ExpressionSize {
        let mut size = ExpressionSize { depth: 1, parts: 1 };
        for child in self.children() {
            let below = child.size();
            size.depth = size.depth.max(below.depth + 1);
            size.parts += below.parts;
        }
        size
    }

    /// Calls `visit` on this expression and on everything below it.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }

    /// Applies `change` to everything below this expression and then to itself.
    pub fn map_parts(&mut self, change: &mut dyn FnMut(&mut Expression)) {
        match self {
            Self::Column { .. } | Self::Literal(_) | Self::Parameter { .. } => {}
            Self::Call { arguments, .. } => arguments.iter_mut().for_each(|part| part.map_parts(change)),
            Self::Case { branches, otherwise, .. } => {
                for branch in branches {
                    branch.condition.map_parts(change);
                    branch.result.map_parts(change);
                }
                otherwise.iter_mut().for_each(|part| part.map_parts(change));
            }
        }
        change(self);
    }

    /// The expressions directly below this one.
    pub fn children(&self) -> Vec<&Expression> {
        match self {
            Self::Column { .. } | Self::Literal(_) | Self::Parameter { .. } => Vec::new(),
            Self::Call { arguments, .. } => arguments.iter().collect(),
            Self::Case { branches, otherwise, .. } => branches
                .iter()
                .flat_map(|branch| [&branch.condition, &branch.result])
                .chain(otherwise.as_deref())
                .collect(),
        }
    }
}
