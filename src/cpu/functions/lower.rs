//! Plan expressions become DataFusion expressions.
//!
//! Lowering is methods of [`LoweringInput`], here and in `bound.rs` and `conditional.rs`, so that none of the three imports
//! another.

use std::{cell::Cell, sync::Arc};

use crate::datafusion::{
    common::{Column, ScalarValue},
    logical_expr::{Cast, Expr, Like},
};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType as ArrowType};
use pystachio_engine::{CharacterCase, text_order::TextOrder};
use pystachio_plan::{Ctype, DataType, Error, ErrorKind, Expression, Function, Literal, Result, Value};

use super::{
    LoweringInput,
    call::{Kernel, call},
    like,
    matching::Matcher,
    parts::{PartFinder, PartFunction},
    scalars::{scalar, text_scalar},
};

/// How deep expressions may nest. Lowering and evaluation recurse; this fits a thread's stack.
const DEPTH_MAX: u32 = 1_000;

impl LoweringInput<'_> {
    /// The expression; see [`super::lower_expression`].
    ///
    /// # Errors
    ///
    /// `NotSupported`, and `Internal` for a plan that contradicts itself.
    pub(super) fn lower(&self, expression: &Expression) -> Result<Expr> {
        let _depth = Depth::enter()?;
        match expression {
            Expression::Column { id, .. } => {
                Ok(Expr::Column(Column::new_unqualified(crate::column_name(*id))))
            }
            Expression::Literal(_) | Expression::Parameter { .. } => {
                let value =
                    scalar(self.constant(expression)?.ok_or_else(|| Error::internal("no constant"))?)?;
                Ok(Expr::Literal(value, None))
            }
            Expression::Call { function, arguments, data_type } => {
                self.lower_call(*function, arguments, data_type)
            }
            Expression::Case { branches, otherwise, data_type } => {
                self.lower_case(branches, otherwise.as_deref(), data_type)
            }
        }
    }

    /// The expression in the Arrow type of `data_type`, which is its own type but for precision.
    ///
    /// # Errors
    ///
    /// As of [`Self::lower`].
    pub(super) fn lower_aligned(&self, expression: &Expression, data_type: &DataType) -> Result<Expr> {
        let lowered = self.lower(expression)?;
        let target = data_type.to_arrow();
        let actual = self.arrow_type(expression)?;
        if actual == target {
            return Ok(lowered);
        }
        if let (Expr::Literal(value, _), true) = (&lowered, self.is_null(expression)?) {
            debug_assert!(value.is_null());
            let null =
                ScalarValue::try_from(&target).map_err(|error| crate::error::from_datafusion(&error))?;
            return Ok(Expr::Literal(null, None));
        }
        Ok(call(Kernel::Align, vec![lowered], data_type))
    }

    /// The literal that an expression is, or the value of the parameter that it is.
    ///
    /// # Errors
    ///
    /// `Internal` for a parameter without a value.
    pub(super) fn constant<'e>(&'e self, expression: &'e Expression) -> Result<Option<&'e Literal>> {
        match expression {
            Expression::Literal(literal) => Ok(Some(literal)),
            Expression::Parameter { index, .. } => match self.parameters.get(*index as usize) {
                Some(literal) => Ok(Some(literal)),
                None => Err(Error::internal(format!(
                    "parameter {index} has no value: the query has {} parameters",
                    self.parameters.len()
                ))),
            },
            _ => Ok(None),
        }
    }

    /// The Arrow type of the lowered expression.
    ///
    /// # Errors
    ///
    /// `Internal` for a column that the input does not have.
    pub(super) fn arrow_type(&self, expression: &Expression) -> Result<ArrowType> {
        if let Expression::Column { id, .. } = expression {
            let name = crate::column_name(*id);
            return match self.schema.field_with_name(&name) {
                Ok(field) => Ok(field.data_type().clone()),
                Err(_) => Err(Error::internal(format!("the input has no column {name}"))),
            };
        }
        match self.constant(expression)? {
            Some(literal) => Ok(literal.data_type.to_arrow()),
            None => Ok(expression.data_type().to_arrow()),
        }
    }

    fn is_null(&self, expression: &Expression) -> Result<bool> {
        Ok(self.constant(expression)?.is_some_and(|literal| literal.value == Value::Null))
    }

    fn lower_call(&self, function: Function, arguments: &[Expression], data_type: &DataType) -> Result<Expr> {
        let first = || arguments.first().ok_or_else(|| missing(function));
        let second = || arguments.get(1).ok_or_else(|| missing(function));
        let boxed = || Ok::<_, Error>(Box::new(self.lower(first()?)?));
        match function {
            Function::And => self.lower_and(arguments),
            Function::Or => self.lower_or(arguments),
            Function::Not => Ok(Expr::Not(boxed()?)),
            Function::IsNull => Ok(Expr::IsNull(boxed()?)),
            Function::IsNotNull => Ok(Expr::IsNotNull(boxed()?)),
            Function::IsTrue => Ok(Expr::IsTrue(boxed()?)),
            Function::IsNotTrue => Ok(Expr::IsNotTrue(boxed()?)),
            Function::IsFalse => Ok(Expr::IsFalse(boxed()?)),
            Function::IsNotFalse => Ok(Expr::IsNotFalse(boxed()?)),
            Function::Coalesce => self.lower_coalesce(arguments, data_type),
            Function::NullIf => {
                let value = self.lower_aligned(first()?, data_type)?;
                let equal = self.lower_comparison(Function::Equal, first()?, second()?)?;
                Ok(call(Kernel::NullWhere, vec![value, equal], data_type))
            }
            Function::Greatest | Function::Least => {
                let arguments = arguments
                    .iter()
                    .map(|argument| self.lower_aligned(argument, data_type))
                    .collect::<Result<Vec<Expr>>>()?;
                Ok(call(Kernel::Function(function), arguments, data_type))
            }
            Function::Equal
            | Function::NotEqual
            | Function::Less
            | Function::LessEqual
            | Function::Greater
            | Function::GreaterEqual
            | Function::IsDistinctFrom
            | Function::IsNotDistinctFrom => self.lower_comparison(function, first()?, second()?),
            Function::In => self.lower_in(arguments),
            Function::Like => self.lower_like(first()?, second()?),
            Function::Upper(ctype) => self.with_letters(Kernel::Upper, ctype, arguments, data_type),
            Function::Lower(ctype) => self.with_letters(Kernel::Lower, ctype, arguments, data_type),
            Function::Matches(ctype) => self.lower_match(ctype, false, first()?, second()?),
            Function::MatchesIgnoringCase(ctype) => self.lower_match(ctype, true, first()?, second()?),
            Function::ReplaceMatches(ctype)
            | Function::CountMatches(ctype)
            | Function::MatchedPart(ctype)
            | Function::MatchedParts(ctype) => self.lower_parts(function, ctype, arguments, data_type),
            Function::SortKey(collator) => {
                let text = self.lower(first()?)?;
                Ok(call(Kernel::SortKey(TextOrder::of(collator)?), vec![text], data_type))
            }
            Function::InitCap(ctype) => self.with_letters(Kernel::InitCap, ctype, arguments, data_type),
            Function::JsonPart
            | Function::JsonbPart
            | Function::JsonPartText
            | Function::JsonbPartText
            | Function::JsonbType
            | Function::JsonbLength
            | Function::JsonbText
            | Function::JsonbExists
            | Function::JsonbContains => {
                let lowered = arguments.iter().map(|argument| self.lower(document(argument)));
                let arguments = lowered.collect::<Result<Vec<Expr>>>()?;
                Ok(call(Kernel::Function(function), arguments, data_type))
            }
            Function::ILike(ctype) => self.with_letters(Kernel::ILike, ctype, arguments, data_type),
            Function::Cast => self.lower_cast(first()?, data_type),
            _ => {
                let arguments =
                    arguments.iter().map(|argument| self.lower(argument)).collect::<Result<Vec<Expr>>>()?;
                Ok(call(Kernel::Function(function), arguments, data_type))
            }
        }
    }

    fn lower_like(&self, text: &Expression, pattern: &Expression) -> Result<Expr> {
        let lowered = self.lower(text)?;
        if let Some(Literal { value: Value::Text(literal), .. }) = self.constant(pattern)?
            && like::is_simple_pattern(literal)
            && let Some(literal) = text_scalar(&self.arrow_type(text)?, literal)
        {
            let literal = Box::new(Expr::Literal(literal, None));
            return Ok(Expr::Like(Like::new(false, Box::new(lowered), literal, None, false)));
        }
        let pattern = self.lower(pattern)?;
        Ok(call(Kernel::Function(Function::Like), vec![lowered, pattern], &DataType::Bool))
    }

    /// A match with a regular expression, which is compiled here if it is a constant.
    fn lower_match(
        &self,
        ctype: Ctype,
        ignores_case: bool,
        text: &Expression,
        pattern: &Expression,
    ) -> Result<Expr> {
        let constant = match self.constant(pattern)? {
            Some(Literal { value: Value::Text(pattern), .. }) => Some(pattern.as_str()),
            _ => None,
        };
        let matcher = Matcher::new(CharacterCase::of(ctype)?, ignores_case, constant)?;
        let arguments = vec![self.lower(text)?, self.lower(pattern)?];
        Ok(call(Kernel::Matches(Arc::new(matcher)), arguments, &DataType::Bool))
    }

    /// What parts of a text match a regular expression, which is compiled here if it is a constant. Not inlined: calls nest.
    #[inline(never)]
    fn lower_parts(
        &self,
        function: Function,
        ctype: Ctype,
        arguments: &[Expression],
        data_type: &DataType,
    ) -> Result<Expr> {
        let constant = |argument: Option<&Expression>| match argument {
            Some(argument) => Ok(self.constant(argument)?.map(|literal| literal.value.clone())),
            None => Ok::<_, Error>(None),
        };
        let constant = match (constant(arguments.get(1))?, constant(arguments.last())?) {
            (Some(Value::Text(pattern)), Some(Value::Bool(ignores_case))) => Some((pattern, ignores_case)),
            _ => None,
        };
        let part = match function {
            Function::ReplaceMatches(_) => PartFunction::Replace,
            Function::CountMatches(_) => PartFunction::Count,
            Function::MatchedPart(_) => PartFunction::One,
            _ => PartFunction::Groups,
        };
        let finder = PartFinder::new(CharacterCase::of(ctype)?, part, constant)?;
        let arguments =
            arguments.iter().map(|argument| self.lower(argument)).collect::<Result<Vec<Expr>>>()?;
        Ok(call(Kernel::Parts(Arc::new(finder)), arguments, data_type))
    }

    /// A function whose letters are those of a ctype.
    fn with_letters(
        &self,
        kernel: impl FnOnce(Arc<CharacterCase>) -> Kernel,
        ctype: Ctype,
        arguments: &[Expression],
        data_type: &DataType,
    ) -> Result<Expr> {
        let arguments =
            arguments.iter().map(|argument| self.lower(argument)).collect::<Result<Vec<Expr>>>()?;
        Ok(call(kernel(CharacterCase::of(ctype)?), arguments, data_type))
    }

    fn lower_cast(&self, value: &Expression, data_type: &DataType) -> Result<Expr> {
        if value.data_type() == data_type {
            return self.lower_aligned(value, data_type);
        }
        let lowered = self.lower(value)?;
        match (value.data_type(), data_type) {
            // Widening can't fail, and DataFusion's pruning knows its own cast.
            (DataType::Int16, DataType::Int32 | DataType::Int64) | (DataType::Int32, DataType::Int64)
                if !matches!(lowered, Expr::Literal(..)) =>
            {
                Ok(Expr::Cast(Cast::new(Box::new(lowered), data_type.to_arrow())))
            }
            _ => Ok(call(Kernel::Function(Function::Cast), vec![lowered], data_type)),
        }
    }
}

fn missing(function: Function) -> Error {
    Error::internal(format!("{function:?} has too few arguments"))
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts how deep the lowering of an expression is.
struct Depth;

impl Depth {
    fn enter() -> Result<Self> {
        let depth = DEPTH.get() + 1;
        if depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("expression nests too deep: more than {DEPTH_MAX} levels"),
            )
            .with_hint("Split the expression, for example over subqueries."));
        }
        DEPTH.set(depth);
        Ok(Self)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

const _: () = assert!(DECIMAL128_MAX_PRECISION == 38);

/// A document of a function of JSON, without the cast that it is the result of: the function reads it to its end itself.
fn document(argument: &Expression) -> &Expression {
    match argument {
        Expression::Call { function: Function::JsonCast | Function::JsonbCast, arguments, .. } => {
            arguments.first().unwrap_or(argument)
        }
        _ => argument,
    }
}
