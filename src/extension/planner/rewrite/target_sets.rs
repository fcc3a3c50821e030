//! `unnest` of a column in a target list becomes a function in FROM, of which the planner knows what an engine makes
//! (`planner/unnest.rs`).
//!
//! ```text
//! SELECT id, unnest(tags) FROM t                     ─►  SELECT id, u FROM t, unnest(t.tags) u
//! SELECT unnest(tags), unnest(codes) FROM t          ─►  SELECT u, v FROM t, unnest(t.tags, t.codes) u (u, v)
//! SELECT unnest(tags), count(*) FROM t GROUP BY 1    ─►  SELECT u, count(*) FROM t, unnest(t.tags) u GROUP BY 1
//! ```
//!
//! In both places calls go on side by side, with NULL for what shorter arrays lack.
//!
//! Deliberately absent: queries that PostgreSQL puts in order before it calls the function, so that elements of one row stay in theirs;
//! elements of composite types, which FROM gives as columns of their fields.

use pgrx::pg_sys;

use super::derived::{append_functions, is_key};
use crate::pg::{
    mirror::{is_builtin, source_type},
    tree::{FunctionCall, Node, Query, Var},
};

/// Whether a query has sets in its target list.
pub fn is_candidate(query: Query<'_>) -> bool {
    query.has_sets_in_target()
}

/// Rewrites a query whose sets are all `unnest` of columns; says whether it is one.
pub fn rewrite<'p>(query: Query<'p>) -> bool {
    if !is_candidate(query) || !is_known(query) {
        return false;
    }
    let index = query.next_index();
    let mut calls: Vec<FunctionCall<'p>> = Vec::new();
    let targets = query.targets().substitute(&mut |node: Node<'p>| {
        let call = node.downcast::<pg_sys::FuncExpr>().filter(|call| is_unnest(*call))?;
        calls.push(call);
        let column = node.as_target(i16::try_from(calls.len()).ok()?, None, false);
        Some(Var::of_target(index, column).node())
    });
    if targets.returns_set() || calls.is_empty() {
        return false;
    }
    let calls = calls.iter().map(|call| call.deep_copy()).collect();
    append_functions(query, calls, c"unnest");
    query.set_targets(targets);
    query.set_has_sets_in_target(false);
    true
}

/// Whether the rows that a query's sets go beside are those of FROM and WHERE.
fn is_known(query: Query<'_>) -> bool {
    let is_ordered = !query.order().is_nil() && query.distinct().is_nil();
    let is_read = query.command() == pg_sys::CmdType::CMD_SELECT
        && query.set_operations().is_none()
        && query.grouping_sets().is_nil()
        && query.row_marks().is_nil()
        && !query.has_windows()
        && !query.has_distinct_on()
        && !query.sources().is_empty();
    let is_grouped = query.has_aggregates() || !query.groups().is_nil() || query.having().is_some();
    let of_keys = || {
        let mut sets = query.targets().iter().filter(|entry| entry.expression().returns_set());
        sets.all(|entry| is_key(query, entry))
    };
    is_read && if is_grouped { of_keys() } else { !is_ordered }
}

fn is_unnest(call: FunctionCall<'_>) -> bool {
    let mut arguments = call.arguments().iter();
    let (Some(array), None) = (arguments.next(), arguments.next()) else { return false };
    let is_column = array.downcast::<pg_sys::Var>().is_some_and(|var| var.levels_up() == 0);
    let item = source_type(array.type_oid()).item().and_then(|item| item.data_type());
    is_column && item.is_some() && is_builtin(call.function(), "unnest")
}
