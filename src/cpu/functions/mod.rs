//! Expressions and aggregates of the plan language as DataFusion's.

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Expr;
use pystachio_plan::{AggregateCall, Error, ErrorKind, Expression, Literal, Result};

/// What an expression may refer to.
pub(crate) struct LoweringInput<'a> {
    /// The input's columns, by [`crate::column_name`], with the types they have in the DataFusion plan.
    pub(crate) schema: &'a SchemaRef,
    /// The values of the plan's parameters, by index.
    pub(crate) parameters: &'a [Literal],
}

/// The DataFusion expression with the plan expression's value; columns are unqualified. No analyzer or
/// optimizer of DataFusion sees it: it is made physical as it is.
///
/// # Errors
///
/// `NotSupported` and errors of the parameters.
pub(crate) fn lower_expression(expression: &Expression, _input: &LoweringInput<'_>) -> Result<Expr> {
    Err(Error::new(ErrorKind::NotSupported, format!("expression is not supported: {expression:?}")))
}

/// The `Expr::AggregateFunction` with the call's value, DISTINCT and FILTER included, unnamed.
///
/// # Errors
///
/// As of [`lower_expression`].
pub(crate) fn lower_aggregate(call: &AggregateCall, _input: &LoweringInput<'_>) -> Result<Expr> {
    Err(Error::new(ErrorKind::NotSupported, format!("aggregate is not supported: {:?}", call.function)))
}
