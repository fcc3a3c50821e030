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
    failure::may_fail,
    select::is_selectable,
};

impl LoweringInput<'_> {
    /// CASE.
    ///
    /// Not inlined: what lowers all expressions calls itself for each level, and its frame would grow.
    ///
    /// # Errors
    ///
    /// Those of the parts.
    #[inline(never)]
    pub(super) fn lower_case(
        &self,
        branches: &[CaseBranch],
        otherwise: Option<&Expression>,
        data_type: &DataType,
    ) -> Result<Expr> {
        if is_selected(branches, otherwise, data_type) {
            return self.lower_selected(branches, otherwise, data_type);
        }
        let branches = branches
            .iter()
            .map(|branch| {
                let condition = self.lower(&branch.condition)?;
                let result = self.lower_aligned(&branch.result, data_type)?;
                Ok((Box::new(condition), Box::new(result)))
            })
            .collect::<Result<Vec<_>>>()?;
        let otherwise = otherwise.map(|result| self.lower_aligned(result, data_type)).transpose()?;
        Ok(Expr::Case(Case::new(None, branches, otherwise.map(Box::new))))
    }

    /// CASE of which all parts are evaluated for all rows.
    #[inline(never)]
    fn lower_selected(
        &self,
        branches: &[CaseBranch],
        otherwise: Option<&Expression>,
        data_type: &DataType,
    ) -> Result<Expr> {
        let mut arguments = Vec::with_capacity(2 * branches.len() + 1);
        for branch in branches {
            arguments.push(self.lower(&branch.condition)?);
            arguments.push(self.lower_aligned(&branch.result, data_type)?);
        }
        if let Some(result) = otherwise {
            arguments.push(self.lower_aligned(result, data_type)?);
        }
        Ok(call(Kernel::Select, arguments, data_type))
    }

    /// COALESCE: at once if no argument but the first may fail, otherwise as a CASE.
    ///
    /// # Errors
    ///
    /// Those of the parts.
    pub(super) fn lower_coalesce(&self, arguments: &[Expression], data_type: &DataType) -> Result<Expr> {
        let lowered = arguments
            .iter()
            .map(|argument| self.lower_aligned(argument, data_type))
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
    pub(super) fn lower_and(&self, conditions: &[Expression]) -> Result<Expr> {
        self.lower_logic(conditions, false)
    }

    /// OR, tested in order.
    ///
    /// # Errors
    ///
    /// Those of the parts.
    pub(super) fn lower_or(&self, conditions: &[Expression]) -> Result<Expr> {
        self.lower_logic(conditions, true)
    }

    /// `absorbing` decides alone: false for AND, true for OR.
    fn lower_logic(&self, conditions: &[Expression], absorbing: bool) -> Result<Expr> {
        let mut decided: Option<Expr> = None;
        let mut safe = Vec::new();
        for condition in conditions {
            let lowered = self.lower(condition)?;
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
}

/// Conditions of a CASE that are evaluated for all rows: for rows that earlier ones decide it is wasted.
const SELECTED_BRANCHES_MAX: usize = 8;

/// Whether all conditions and results of a CASE can be evaluated for all rows, at little cost.
fn is_selected(branches: &[CaseBranch], otherwise: Option<&Expression>, data_type: &DataType) -> bool {
    is_selectable(data_type)
        && branches.len() <= SELECTED_BRANCHES_MAX
        && branches.iter().all(|branch| !may_fail(&branch.condition))
        && branches.iter().map(|branch| &branch.result).chain(otherwise).all(is_at_hand)
}

fn is_at_hand(result: &Expression) -> bool {
    match result {
        Expression::Column { .. } | Expression::Literal(_) | Expression::Parameter { .. } => true,
        Expression::Case { branches, otherwise, data_type } => {
            is_selected(branches, otherwise.as_deref(), data_type)
        }
        Expression::Call { .. } => false,
    }
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
