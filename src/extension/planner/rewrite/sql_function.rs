//! Calls of SQL functions that read tables of ours become subqueries.
//!
//! `SELECT name_of(x) FROM t`, where `name_of` is `SELECT name FROM names WHERE id = $1`, runs an engine query for each row of t. As
//! `(SELECT name FROM names WHERE id = t.x LIMIT 1)` it is a subquery like any other: joined, looked up, or run once.
//!
//! Core does the same with functions that return sets, and with those whose body is an expression. The conditions are its own: the
//! function is LANGUAGE SQL, not volatile, not strict, changes neither user nor settings, and has one query; its arguments have no
//! effects. The statement depends on the function, so that a plan that is kept is made anew when the function changes.
//!
//! Deliberately absent: functions of other languages; HAVING and grouping sets; and calls by which a query groups if it names them a
//! second time, as two copies of a subquery are not known as the same.

use pgrx::pg_sys;

use super::{derived::is_key, sub_links};
use crate::{
    pg::{
        compat,
        tree::{CalledFunction, FunctionCall, List, Node, Query, SubLink, check_stack_depth, is_row_type},
    },
    planner::{known_servers, relation_info::names_our_table},
};

/// LANGUAGE SQL in `pg_language`.
const SQL_LANGUAGE: pg_sys::Oid = pg_sys::Oid::from_u32(14);

/// A query without such calls, and the functions whose calls it had.
pub struct Inlined<'p> {
    /// A copy of the query.
    pub query: Query<'p>,
    /// What its plan depends on.
    pub functions: Vec<pg_sys::Oid>,
}

/// The query with such calls as subqueries; `None` if it has none.
pub fn inline(query: Query<'_>) -> Option<Inlined<'_>> {
    if !has_candidates(query) || !known_servers::may_be_any() {
        return None;
    }
    let copy = query.deep_copy();
    let mut inlining = Inlining { functions: Vec::new(), around: Vec::new() };
    inlining.query(copy);
    (!inlining.functions.is_empty()).then_some(Inlined { query: copy, functions: inlining.functions })
}

/// Whether a query, or one within it, calls a function that is no part of PostgreSQL itself.
fn has_candidates(query: Query<'_>) -> bool {
    check_stack_depth();
    let is_call = |part: Node<'_>| candidate(part).is_some();
    let calls = || {
        query.join_tree().is_some_and(|tree| tree.contains(&is_call))
            || query.targets().contains(&is_call)
            || query.group_expressions().contains(&is_call)
    };
    (is_read(query) && calls())
        || query.range_table().iter().any(|entry| entry.subquery().is_some_and(has_candidates))
        || query.with().iter().any(|cte| cte.query().is_some_and(has_candidates))
        || sub_links(query).into_iter().any(|link| has_candidates(link.query()))
}

/// Whether a query reads rows, for each of which a function would be called.
fn is_read(query: Query<'_>) -> bool {
    query.command() == pg_sys::CmdType::CMD_SELECT && !query.sources().is_empty()
}

fn groups(query: Query<'_>) -> bool {
    !query.groups().is_nil() || !query.grouping_sets().is_nil()
}

/// Whether a call by which a query groups is in another place of it too, or the query has grouping sets.
fn names_key_again(query: Query<'_>) -> bool {
    if !query.grouping_sets().is_nil() {
        return true;
    }
    let is_named_beside = |key, call: Node<'_>| {
        let is_call = |node: Node<'_>| node.equals(call);
        query.having().is_some_and(|having| having.contains(&is_call))
            || query.targets().iter().any(|other| other != key && other.expression().contains(&is_call))
    };
    query
        .targets()
        .iter()
        .filter(|key| is_key(query, *key))
        .any(|key| key.expression().contains(&|call| candidate(call).is_some() && is_named_beside(key, call)))
}

/// The call of a function that may be one of those, if the node is one.
fn candidate(node: Node<'_>) -> Option<FunctionCall<'_>> {
    node.downcast::<pg_sys::FuncExpr>().filter(|call| {
        call.function().to_u32() >= pg_sys::FirstNormalObjectId && !call.returns_set() && !call.is_variadic()
    })
}

struct Inlining {
    functions: Vec<pg_sys::Oid>,
    /// The functions within whose bodies a call is.
    around: Vec<pg_sys::Oid>,
}

impl Inlining {
    fn query(&mut self, query: Query<'_>) {
        check_stack_depth();
        for entry in query.range_table().iter() {
            if let Some(subquery) = entry.subquery() {
                self.query(subquery);
            }
        }
        for cte in query.with().iter() {
            if let Some(subquery) = cte.query() {
                self.query(subquery);
            }
        }
        for link in sub_links(query) {
            self.query(link.query());
        }
        if !is_read(query) {
            return;
        }
        let known = self.functions.len();
        if let Some(tree) = query.join_tree() {
            query.set_join_tree(tree.node().substitute(&mut |part| self.inlined(part)).downcast());
        }
        if query.grouping_sets().is_nil() {
            query.replace_with(query.without_group_entry());
        }
        if !names_key_again(query) {
            query.set_targets(query.targets().substitute(&mut |part| self.inlined(part)));
        }
        query.set_has_sub_links(query.has_sub_links() || self.functions.len() > known);
    }

    /// What stands in the place of a call, innermost first: a subquery, or the call with other arguments.
    fn inlined<'p>(&mut self, part: Node<'p>) -> Option<Node<'p>> {
        let call = candidate(part)?.deep_copy();
        call.set_arguments(call.arguments().substitute_nodes(&mut |part| self.inlined(part)));
        Some(self.subquery(call).unwrap_or(call.node()))
    }

    /// The call as a subquery, if that gives what the call gives.
    fn subquery<'p>(&mut self, call: FunctionCall<'p>) -> Option<Node<'p>> {
        let function_oid = call.function();
        if self.around.contains(&function_oid) {
            return None;
        }
        let function = CalledFunction::find(call)?;
        if !is_plain(&function)
            || !compat::may_execute(function_oid)
            || compat::calls_are_watched(function_oid)
        {
            return None;
        }
        call.set_arguments(function.all_arguments());
        if !are_plain(call.arguments()) {
            return None;
        }
        let query = function.query()?;
        if !gives_one_row(query) || !names_our_table(query) {
            return None;
        }
        let arguments: Vec<_> = call.arguments().iter().collect();
        let query = query.with_parameters(&mut |number, level| {
            let argument = arguments.get(usize::try_from(number - 1).ok()?)?.deep_copy();
            argument.move_levels(level, 0);
            Some(argument)
        })?;
        self.functions.push(function_oid);
        self.around.push(function_oid);
        self.query(query);
        self.around.pop();
        Some(link(call, query))
    }
}

fn link<'p>(call: FunctionCall<'p>, query: Query<'p>) -> Node<'p> {
    let link = SubLink::new(pg_sys::SubLinkType::EXPR_SUBLINK, query).node();
    let wanted = call.collation();
    if wanted == pg_sys::InvalidOid || link.collation() == wanted {
        return link;
    }
    let collated = link.memory().make::<pg_sys::CollateExpr>();
    collated.set_argument(link);
    collated.set_collation(wanted);
    collated.set_location(-1);
    collated.node()
}

/// Whether a function is what its query is, but for its arguments.
fn is_plain(function: &CalledFunction<'_>) -> bool {
    let columns = function.columns();
    columns.prolang == SQL_LANGUAGE
        && columns.prokind as u8 == pg_sys::PROKIND_FUNCTION
        && columns.provolatile as u8 != pg_sys::PROVOLATILE_VOLATILE
        && !columns.proretset
        && !columns.prosecdef
        && !columns.proisstrict
        && !function.has_settings()
        && columns.prorettype != pg_sys::VOIDOID
        && columns.prorettype != pg_sys::RECORDOID
        && !is_row_type(columns.prorettype)
}

/// Whether arguments can be computed any number of times, and stand in another query.
fn are_plain(arguments: List<'_, pg_sys::Node>) -> bool {
    let is_of_groups = |node: Node<'_>| {
        node.is::<pg_sys::Aggref>() || node.is::<pg_sys::WindowFunc>() || node.is::<pg_sys::GroupingFunc>()
    };
    !arguments.iter().any(|argument| argument.is_volatile() || argument.has_subqueries())
        && !arguments.contains(&is_of_groups)
}

/// Makes a query give at most the one row that a function gives, its first. False if it has a limit of its own that is another, or
/// effects.
fn gives_one_row(query: Query<'_>) -> bool {
    if query.has_modifying_with() || !query.row_marks().is_nil() || query.node().is_volatile() {
        return false;
    }
    let is_one_group = query.has_aggregates() && !groups(query) && !query.has_sets_in_target();
    let Some(limit) = query.limit_count() else {
        if !is_one_group {
            query.set_limit_count(Some(query.memory().bigint(1).node()));
            query.set_limit_option(pg_sys::LimitOption::LIMIT_OPTION_COUNT);
        }
        return true;
    };
    let is_one =
        limit.downcast::<pg_sys::Const>().is_some_and(|limit| !limit.is_null() && limit.value().value() == 1);
    is_one_group || is_one
}
