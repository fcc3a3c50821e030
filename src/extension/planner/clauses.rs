//! The order in which conditions are tested.
//!
//! PostgreSQL tests the conditions of a plan node one after the other, cheap ones first, and not those after one
//! that is not true: `y <> 0` guards `1 / y > 2` wherever the two stand. Engines test in the order of the plan, so
//! the plan has PostgreSQL's.

use pgrx::pg_sys;

use crate::pg::tree::{Clause, List, Node, Root};

/// Clauses in the order in which PostgreSQL would test them: those without columns, then by security level, then by cost.
pub fn in_order<'p>(root: Root<'p>, clauses: List<'p, pg_sys::RestrictInfo>) -> Vec<Clause<'p>> {
    let mut ranked: Vec<_> = clauses
        .iter()
        .map(|clause| {
            let cost = root.cost_of_node(clause.expression()).per_tuple;
            (!clause.is_pseudo_constant(), clause.security_level(), cost, clause)
        })
        .collect();
    ranked.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    ranked.into_iter().map(|(.., clause)| clause).collect()
}

/// Conditions in the order in which PostgreSQL would test them, as `in_order`.
pub fn conditions_in_order<'p>(root: Root<'p>, conditions: List<'p, pg_sys::Node>) -> Vec<Node<'p>> {
    let cost = |node| root.cost_of_node(node).per_tuple;
    let mut ranked: Vec<_> = conditions.iter().map(|node| (cost(node), node)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.into_iter().map(|(_, node)| node).collect()
}
