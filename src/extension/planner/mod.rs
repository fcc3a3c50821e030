//! The planner: which parts of a query leave PostgreSQL, and as which plan.
//!
//! ```text
//! planner_hook ─ rewrite ─► standard_planner ─┬─ base ───┐
//!                                             ├─ label ──┤ a RelationInfo for every RelOptInfo that
//!                                             ├─ join ───┤ an engine can compute whole
//!                                             └─ upper ──┘
//!                                                finish ──► ForeignScan with a ScanPrivate
//! ```
//!
//! - `hooks.rs`: planner_hook, set_rel_pathlist_hook, set_join_pathlist_hook, join_search_hook; `replan.rs`: ExecutorStart_hook
//! - `file_calls.rs`: functions that read files, as tables
//! - `rewrite/`: queries that PostgreSQL can't flatten, made flat
//! - `base.rs`, `label.rs`, `join.rs`, `upper.rs`: one relation each, from the bottom up
//! - `grouping_sets.rs`: groups of several sets, over one plan of what they are of
//! - `unnest.rs`: elements of arrays beside their rows
//! - `empty.rs`: subqueries without a row
//! - `sorted.rs`: scans in the order that a merge join, a window or DISTINCT ON asks for
//! - `keyed_join.rs`: joins with relations that stay in PostgreSQL, by their keys
//! - `sent_rows.rs`: relations that stay in PostgreSQL as inputs of plans
//! - `clauses.rs`: the order in which conditions are tested
//! - `relation_info.rs`: facts about a relation
//! - `known_servers.rs`: which servers are ours
//! - `security.rs`: which conditions of a table must wait for others
//! - `lowering.rs`: PostgreSQL's expressions as plan expressions, by `src/lower`, which says which, and how columns are found
//! - `descriptions.rs`: what footers say about tables, asked for once
//! - `statistics.rs`: what footers tell about columns that were never analyzed
//! - `common_values.rs`: what ANALYZE has found to be frequent
//! - `cost.rs`: the cost of a tree in a parallel hash-join engine
//! - `finish.rs`: the ForeignScan; `outputs.rs`: what it returns of a target; `leftover.rs`: what stands above it in the finished plan, and why
//!
//! Invariants: a relation has a [`relation_info::RelationInfo`] only if one server's engine can
//! compute all below it. Two kinds of parts may stay in PostgreSQL: conditions, which PostgreSQL
//! checks above the relation, and inputs whose rows it sends. Columns are named by ids, never by
//! range-table index.
//!
//! Code here holds PostgreSQL's structures as handles ([`crate::pg::tree`]). A handle has neither
//! pointers nor unsafe code, and ends with the callback in which it was made.
//!
//! Deliberately absent: execution. What the executor needs is in [`crate::scan_private`].

mod base;
mod clauses;
mod common_values;
mod cost;
mod descriptions;
mod empty;
mod file_calls;
mod finish;
mod grouping_sets;
mod hooks;
mod join;
mod keyed_join;
mod known_servers;
mod label;
mod leftover;
mod lowering;
mod outputs;
mod planning;
mod relation_info;
mod replan;
mod rewrite;
mod security;
mod sent_rows;
mod sorted;
mod statistics;
mod unnest;
mod upper;
mod window;

pub use crate::pg::tree::fill_routine;
pub use hooks::install_hooks;
pub use relation_info::is_our_table;
pub use replan::start_written;
pub use statistics::distinct_bound;
