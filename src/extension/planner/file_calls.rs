//! Calls of `pystachio.read_parquet` in FROM become foreign tables.
//!
//! ```text
//! FROM pystachio.read_parquet('/data/t') AS t(a integer)  ──►  FROM pg_temp.read_parquet_1 AS t
//! ```
//!
//! The table is temporary, has the columns that the call declares, and is made with the first such call of the session
//! (`file_tables.rs`). From there on the call is planned as a table.
//!
//! Deliberately absent: calls whose path is not known when the query is planned, WITH ORDINALITY and ROWS FROM. The function
//! reads for them.

use pgrx::pg_sys;

use super::rewrite::sub_links;
use crate::{
    error::OrRaise,
    file_tables::{self, DeclaredColumn},
    pg::tree::{
        CalledFunction, FunctionCall, PlannerCall, Query, RangeEntry, check_stack_depth, is_own_function,
    },
};

/// Puts tables in the place of calls, in the query itself and in those within it.
pub fn replace_calls(query: Query<'_>, planner: PlannerCall<'_>) {
    check_stack_depth();
    for entry in query.range_table().iter() {
        if let Some(subquery) = entry.subquery() {
            replace_calls(subquery, planner);
        }
        if let Some(table_oid) = entry.function_call().and_then(|call| table_of(entry, call, planner)) {
            query.make_table(entry, table_oid);
        }
    }
    for subquery in query.with().iter().filter_map(|cte| cte.query()) {
        replace_calls(subquery, planner);
    }
    for link in sub_links(query) {
        replace_calls(link.query(), planner);
    }
}

/// The table of a call, if it is one of these.
fn table_of<'p>(
    entry: RangeEntry<'p>,
    call: FunctionCall<'p>,
    planner: PlannerCall<'_>,
) -> Option<pg_sys::Oid> {
    let is_typed = is_own_function(call.function(), c"read_parquet_as_wrapper");
    if !is_typed && !is_own_function(call.function(), c"read_parquet_wrapper") {
        return None;
    }
    let arguments = CalledFunction::find(call)?.all_arguments();
    let text = |place: usize| planner.text_of(arguments.get(place + usize::from(is_typed))?);
    let (path, server) = (text(0)?, text(1)?);
    let columns: Vec<DeclaredColumn> = match is_typed {
        true => file_tables::columns_of_type(call.result_type()).or_raise(),
        false => entry
            .declared_columns()
            .into_iter()
            .map(|(name, type_oid, type_modifier, collation)| DeclaredColumn {
                name,
                type_oid,
                type_modifier,
                collation,
            })
            .collect(),
    };
    Some(file_tables::table_of(&path, &server, &columns).or_raise())
}
