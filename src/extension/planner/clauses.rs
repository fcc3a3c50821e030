//! The order in which conditions are tested.
//!
//! PostgreSQL tests the conditions of a plan node one after the other, cheap ones first, and not those after one
//! that is not true: `y <> 0` guards `1 / y > 2` wherever the two stand. Engines test in the order of the plan, so
//! the plan has PostgreSQL's.

use pgrx::pg_sys;

use super::nodes::elements;

/// Clauses in the order in which PostgreSQL would test them: those without columns, then by security level, then by cost.
pub unsafe fn in_order(
    root: *mut pg_sys::PlannerInfo,
    clauses: *mut pg_sys::List,
) -> Vec<*mut pg_sys::RestrictInfo> {
    unsafe {
        let mut ranked: Vec<_> = elements::<pg_sys::RestrictInfo>(clauses)
            .map(|clause| {
                let level = (*clause).security_level;
                (!(*clause).pseudoconstant, level, row_cost(root, (*clause).clause.cast()), clause)
            })
            .collect();
        ranked.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
        ranked.into_iter().map(|(.., clause)| clause).collect()
    }
}

/// Conditions in the order in which PostgreSQL would test them, as `in_order`.
pub unsafe fn conditions_in_order(
    root: *mut pg_sys::PlannerInfo,
    conditions: *mut pg_sys::List,
) -> Vec<*mut pg_sys::Node> {
    unsafe {
        let mut ranked: Vec<_> =
            elements::<pg_sys::Node>(conditions).map(|node| (row_cost(root, node), node)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.into_iter().map(|(_, node)| node).collect()
    }
}

/// What testing a condition costs PostgreSQL for a row.
unsafe fn row_cost(root: *mut pg_sys::PlannerInfo, node: *mut pg_sys::Node) -> f64 {
    unsafe {
        let mut cost = pg_sys::QualCost::default();
        pg_sys::cost_qual_eval_node(&raw mut cost, node, root);
        cost.per_tuple
    }
}
