//! Expressions and aggregates of the plan language as DataFusion's, with PostgreSQL's values.
//!
//! ```text
//! lower, bound, conditional, aggregate ──► failure ──► call ──► comparison, arithmetic, decimal, quotient, variance,
//!                                                               cast, parse, text, form, json, json_text, bytes, like, datetime, bits,
//!                                                               float_function, make_moment, moment_text, read_moment, read_number, number_text,
//!                                                               parts ──► matching, select, repeated
//!                                                                       │
//! scalars      sum ──────────────────────────► shown_number ──► digits ◄─┴─► format ──► calendar
//!                                                                 └──► invocation ──► lanes        faults
//! ```
//!
//! An arrow is an import, and none goes back: what is farther right or below may be imported too.
//!
//! - `lower.rs`: plan expressions become DataFusion expressions; `bound.rs`: comparisons with constants
//! - `conditional.rs`: CASE, COALESCE, AND and OR; `scalars.rs`: single values as DataFusion's
//! - `call.rs`: the scalar function that every other function of the plan language becomes, and the one table that says
//!   how each is evaluated
//! - `failure.rs`: which expressions could fail, the plan's and DataFusion's
//! - `repeated.rs`: texts that many rows share; `select.rs`: CASE over columns and constants
//! - `comparison.rs`, `arithmetic.rs`, `bits.rs`, `float_function.rs`, `decimal.rs`, `quotient.rs`, `root.rs`, `variance.rs`, `cast.rs`,
//!   `parse.rs`, `text.rs`, `form.rs`, `json/`, `json_text.rs`, `bytes.rs`, `like.rs`, `matching.rs`, `datetime.rs`, `make_moment.rs`,
//!   `moment_text.rs`, `read_moment.rs`, `read_number.rs`, `number_text.rs`: the functions by family, none of which knows another
//! - `parts.rs`: those of the parts that match, which compile patterns by `matching.rs`
//! - `invocation.rs`: what a function is evaluated on; `lanes.rs`: columns and constants as slices, and the loops over them
//! - `decimal_text.rs`: decimal numbers in texts
//! - `digits.rs`, `calendar.rs`, `format.rs`, `shown_number.rs`, `faults.rs`: what families share: decimals, dates, texts of values and of
//!   numbers, errors of numbers
//! - `aggregate.rs`, `sum.rs`, `collect.rs`: aggregates
//!
//! Invariants: where DataFusion's own operator has PostgreSQL's value in every case it is used, because
//! pruning and dynamic filters understand it. A function is evaluated only for rows that reach it, and
//! fails only for a row whose arguments are not NULL. No value wraps silently.
//!
//! Deliberately absent: type inference. Every plan expression says its type.

mod aggregate;
mod arithmetic;
mod bits;
mod bound;
mod bytes;
mod calendar;
mod call;
mod cast;
mod collect;
mod comparison;
mod conditional;
mod datetime;
mod decimal;
mod decimal_text;
mod digits;
mod failure;
mod faults;
mod float_extreme;
mod float_function;
mod float_sum;
mod form;
mod format;
mod invocation;
mod json;
mod json_text;
mod lanes;
mod like;
mod list;
mod lower;
mod make_moment;
mod matching;
mod moment_text;
mod number_text;
mod parse;
mod parts;
mod quotient;
mod read_moment;
mod read_number;
mod repeated;
mod root;
mod scalars;
mod select;
mod shown_number;
mod sum;
mod text;
mod variance;
mod zone;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    calendar::{is_infinite_date, is_infinite_timestamp},
    call::normalize_float,
    failure::could_fail,
    float_sum::float_sum,
    format::{write_date, write_time, write_timestamp, write_uuid},
    scalars::scalar,
};

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
    input.lower(expression)
}

/// The `Expr::AggregateFunction` with the call's value, DISTINCT and FILTER included, unnamed.
///
/// # Errors
///
/// As of [`lower_expression`].
pub(crate) fn lower_aggregate(call: &AggregateCall, input: &LoweringInput<'_>) -> Result<Expr> {
    aggregate::lower_aggregate(call, input)
}
