//! Which of DataFusion's expressions could fail: what [`pystachio_plan::could_fail`] says of the plan's, for those that
//! DataFusion's rules move about.
//!
//! DataFusion takes every expression for one that may be evaluated for any row. What could fail may not: for a row
//! that a condition drops it would raise an error that PostgreSQL does not raise, and tell what a policy hides.

use std::sync::Arc;

use crate::datafusion::{
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr, ScalarFunctionExpr,
        expressions::{BinaryExpr, NegativeExpr},
    },
};

use pystachio_plan::Expression;

use super::call::ScalarCall;

/// Whether evaluating an expression for rows that PostgreSQL would not evaluate it for could be an error.
pub(super) fn may_fail(expression: &Expression) -> bool {
    pystachio_plan::could_fail(expression, &|_| false)
}

/// Whether evaluating the expression could fail for some row. Casts of DataFusion's own only widen.
pub(crate) fn could_fail(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let own = if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
        function.fun().inner().downcast_ref::<ScalarCall>().is_none_or(ScalarCall::could_fail)
    } else if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        is_arithmetic(*binary.op())
    } else {
        expression.is::<NegativeExpr>()
    };
    own || expression.children().into_iter().any(could_fail)
}

fn is_arithmetic(operator: Operator) -> bool {
    !(operator.supports_propagation() || operator.is_logic_operator())
}
