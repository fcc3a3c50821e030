//! Which expressions must not, or should not, be evaluated for rows that do not need them.

use pystachio_plan::{Expression, call_could_fail};

/// Whether an expression is to be evaluated only for rows that reach it: it could fail, or takes long.
pub(super) fn is_lazy(expression: &Expression) -> bool {
    let own = match expression {
        Expression::Call { function, arguments, data_type } => {
            function.entry().is_expensive || call_could_fail(*function, arguments, data_type)
        }
        _ => false,
    };
    own || expression.children().into_iter().any(is_lazy)
}
