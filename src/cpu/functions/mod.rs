//! Expressions and aggregates of the plan language as DataFusion's, with PostgreSQL's values.
//!
//! - `lower.rs`: plan expressions become DataFusion expressions; `bound.rs`: comparisons with constants
//! - `conditional.rs`: CASE, COALESCE, AND and OR, and which expressions may fail
//! - `call.rs`: the scalar function that every other function of the plan language becomes
//! - `lanes.rs`: columns and constants as slices, and the loops over them
//! - `comparison.rs`, `arithmetic.rs`, `decimal.rs`, `quotient.rs`, `variance.rs`, `cast.rs`, `format.rs`,
//!   `text.rs`, `like.rs`, `datetime.rs`, `calendar.rs`: the functions by family
//! - `aggregate.rs`, `sum.rs`: aggregates
//!
//! Invariants: where DataFusion's own operator has PostgreSQL's value in every case it is used, because
//! pruning and dynamic filters understand it. A function is evaluated only for rows that reach it, and
//! fails only for a row whose arguments are not NULL. No value wraps silently.
//!
//! Deliberately absent: type inference. Every plan expression says its type.

mod aggregate;
mod arithmetic;
mod bound;
mod calendar;
mod call;
mod cast;
mod comparison;
mod conditional;
mod datetime;
mod decimal;
mod format;
mod lanes;
mod like;
mod lower;
mod quotient;
mod sum;
mod text;
mod variance;

#[cfg(test)]
mod tests;

pub(crate) use self::call::normalize_float;

use crate::datafusion::logical_expr::Expr;
use arrow::datatypes::SchemaRef;
use pystachio_plan::{AggregateCall, Expression, Literal, Result};

/// What an expression may refer to.
pub(crate) struct LoweringInput<'a> {
    /// The input's columns, by [`crate::column_name`], with the types they have in the DataFusion plan.
    pub(crate) schema: &'a SchemaRef,
    /// The values of the plan's parameters, by index.
    pub(crate) parameters: &'a [Literal],
}

/// The DataFusion expression with the plan expression's value; columns are unqualified. No analyzer or
/// optimizer of DataFusion sees it: it is made physical as it is. Its Arrow type is that of
/// [`pystachio_plan::DataType::to_arrow`], except that a column keeps the type it has in the input and a literal of type
/// `Numeric` is a decimal of its own scale.
///
/// # Errors
///
/// `NotSupported` for a function that these argument types do not have, and errors of the parameters.
pub(crate) fn lower_expression(expression: &Expression, input: &LoweringInput<'_>) -> Result<Expr> {
    lower::lower(expression, input)
}

/// The `Expr::AggregateFunction` with the call's value, DISTINCT and FILTER included, unnamed.
///
/// # Errors
///
/// As of [`lower_expression`].
pub(crate) fn lower_aggregate(call: &AggregateCall, input: &LoweringInput<'_>) -> Result<Expr> {
    aggregate::lower_aggregate(call, input)
}
