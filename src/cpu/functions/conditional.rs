//! CASE, COALESCE, AND and OR: what is evaluated only for the rows that reach it.
//!
//! DataFusion evaluates a branch of CASE for its own rows only, but both sides of AND and OR for all rows
//! unless one side decides the whole batch. PostgreSQL promises no order for AND and OR, yet it tests from
//! left to right, and queries rely on `b <> 0 AND a / b > 1`: a side that may fail is put into a CASE.

use crate::datafusion::{
    common::ScalarValue,
    logical_expr::{Case, Expr, and, or},
};
use pystachio_plan::{CaseBranch, DataType, Expression, Function, Result};

use super::{
    LoweringInput,
    call::{Kernel, call},
    like::is_simple_pattern,
    lower::{lower, lower_aligned},
};

/// CASE.
///
/// # Errors
///
/// Those of the parts.
pub(super) fn lower_case(
    branches: &[CaseBranch],
    otherwise: Option<&Expression>,
    data_type: &DataType,
    input: &LoweringInput<'_>,
) -> Result<Expr> {
    let branches = branches
        .iter()
        .map(|branch| {
            let condition = lower(&branch.condition, input)?;
            let result = lower_aligned(&branch.result, data_type, input)?;
            Ok((Box::new(condition), Box::new(result)))
        })
        .collect::<Result<Vec<_>>>()?;
    let otherwise = otherwise.map(|result| lower_aligned(result, data_type, input)).transpose()?;
    Ok(Expr::Case(Case::new(None, branches, otherwise.map(Box::new))))
}

/// COALESCE: at once if no argument but the first may fail, otherwise as a CASE.
///
/// # Errors
///
/// Those of the parts.
pub(super) fn lower_coalesce(
    arguments: &[Expression],
    data_type: &DataType,
    input: &LoweringInput<'_>,
) -> Result<Expr> {
    let lowered = arguments
        .iter()
        .map(|argument| lower_aligned(argument, data_type, input))
        .collect::<Result<Vec<Expr>>>()?;
    if !arguments.iter().skip(1).any(may_fail) {
        return Ok(call(Kernel::Function(Function::Coalesce), lowered, data_type));
    }
    let branches = lowered
        .into_iter()
        .map(|argument| (Box::new(argument.clone().is_not_null()), Box::new(argument)))
        .collect();
    Ok(Expr::Case(Case::new(None, branches, None)))
}

/// AND, tested in order.
///
/// # Errors
///
/// Those of the parts.
pub(super) fn lower_and(conditions: &[Expression], input: &LoweringInput<'_>) -> Result<Expr> {
    lower_logic(conditions, false, input)
}

/// OR, tested in order.
///
/// # Errors
///
/// Those of the parts.
pub(super) fn lower_or(conditions: &[Expression], input: &LoweringInput<'_>) -> Result<Expr> {
    lower_logic(conditions, true, input)
}

/// Whether evaluating an expression for rows that PostgreSQL would not evaluate it for could be an error.
pub(super) fn may_fail(expression: &Expression) -> bool {
    let own = match expression {
        Expression::Call { function, arguments, data_type } => {
            function_may_fail(*function, arguments, data_type)
        }
        _ => false,
    };
    own || expression.children().into_iter().any(may_fail)
}

fn function_may_fail(function: Function, arguments: &[Expression], data_type: &DataType) -> bool {
    match function {
        // The precision of a decimal result is a bound that holds for every row.
        Function::Add | Function::Subtract | Function::Multiply | Function::Negate | Function::Absolute => {
            !data_type.is_decimal()
        }
        Function::Divide
        | Function::Modulo
        | Function::DivideDecimal
        | Function::Variance { .. }
        | Function::SquareRoot
        | Function::DateTrunc(_)
        | Function::AddDays
        | Function::SubtractDays
        | Function::DaysBetween
        | Function::AddInterval
        | Function::TimestampDifference => true,
        // Of what is infinite; a date from a file is not.
        Function::Extract(_) | Function::DatePart(_) => arguments
            .first()
            .is_some_and(|value| !matches!(value.data_type(), DataType::Date | DataType::Time)),
        Function::Round | Function::Truncate | Function::Ceiling | Function::Floor => data_type.is_decimal(),
        Function::Cast => match (arguments.first().map(Expression::data_type), data_type) {
            (Some(from), to) if from == to => false,
            (Some(DataType::Int16), DataType::Int32 | DataType::Int64)
            | (Some(DataType::Int32), DataType::Int64) => false,
            (Some(from), to) if from.is_integer() && (to.is_float() || to.is_decimal()) => false,
            (_, to) => *to != DataType::Text,
        },
        Function::Substring => match arguments.get(2) {
            Some(Expression::Literal(count)) => {
                matches!(count.value, pystachio_plan::Value::Int(count) if count < 0)
            }
            other => other.is_some(),
        },
        Function::Like | Function::ILike(_) => match arguments.get(1) {
            Some(Expression::Literal(pattern)) => match &pattern.value {
                pystachio_plan::Value::Text(pattern) => {
                    !is_simple_pattern(pattern) && pattern.ends_with('\\')
                }
                _ => false,
            },
            _ => true,
        },
        _ => false,
    }
}

/// `absorbing` decides alone: false for AND, true for OR.
fn lower_logic(conditions: &[Expression], absorbing: bool, input: &LoweringInput<'_>) -> Result<Expr> {
    let mut decided: Option<Expr> = None;
    let mut safe = Vec::new();
    for condition in conditions {
        let lowered = lower(condition, input)?;
        if !may_fail(condition) {
            safe.push(lowered);
            continue;
        }
        let before = join(decided.take().into_iter().chain(safe.drain(..)).collect(), absorbing);
        decided = Some(match before {
            Some(before) => guard(before, lowered, absorbing),
            None => lowered,
        });
    }
    let all = decided.into_iter().chain(safe).collect();
    Ok(join(all, absorbing).unwrap_or_else(|| boolean(Some(!absorbing))))
}

/// One AND or OR of all, as a balanced tree: DataFusion recurses into it.
fn join(mut conditions: Vec<Expr>, absorbing: bool) -> Option<Expr> {
    let combine = if absorbing { or } else { and };
    while conditions.len() > 1 {
        let mut rest = conditions.into_iter();
        let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(first) = rest.next() {
            pairs.push(match rest.next() {
                Some(second) => combine(first, second),
                None => first,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

/// `before AND next` or `before OR next`, where `next` sees only rows that `before` does not decide.
fn guard(before: Expr, next: Expr, absorbing: bool) -> Expr {
    let unknown = if absorbing { or } else { and }(boolean(None), next.clone());
    let branches = vec![
        (Box::new(boolean(Some(absorbing))), Box::new(boolean(Some(absorbing)))),
        (Box::new(boolean(Some(!absorbing))), Box::new(next)),
    ];
    Expr::Case(Case::new(Some(Box::new(before)), branches, Some(Box::new(unknown))))
}

fn boolean(value: Option<bool>) -> Expr {
    Expr::Literal(ScalarValue::Boolean(value), None)
}
