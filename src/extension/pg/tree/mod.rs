//! PostgreSQL's planner structures by typed handles: what the planner reads, makes and calls of them, and nothing else.
//!
//! - `reference.rs`: [`Ref`], a structure that lives as long as a call of the planner; [`Memory`], where new ones are made
//! - `list.rs`: [`List`] and [`Relids`]
//! - `fields.rs`: how fields are declared
//! - `expression.rs`, `query.rs`, `relation.rs`, `path.rs`, `plan.rs`: the structures, each with its fields and with what
//!   PostgreSQL's functions say of it
//! - `walk.rs`: looking through expressions and queries, and copies of them with other parts
//! - `table.rs`: tables, their columns and servers; `catalog.rs`: other facts of catalogs
//! - `attachment.rs`: values that the planner keeps with a relation
//! - `entry.rs`: where PostgreSQL calls us; `custom.rs`: paths and plans of our own kinds
//! - `executor.rs`: statements as the executor runs them
//!
//! Goal: code of the planner outside this folder has no pointer, and no unsafe block. It can't name a structure after the call
//! in which it got it, take a node for another, or jump over Rust's frames.
//!
//! What it is not: a binding of PostgreSQL's planner. A field or function is here once a rule needs it.
//!
//! Invariants:
//! - `'p` is one call of ours by PostgreSQL: of a hook, or of a function of the foreign-data wrapper. A [`Ref`] with it comes from
//!   that call's arguments, or from what those lead to. PostgreSQL keeps all of these at least until the call returns, and so it
//!   does with what is made in the current memory context.
//! - No Rust reference to a structure is ever made: fields are copied out and written one at a time, so PostgreSQL may change a
//!   structure between two reads.
//! - Functions of PostgreSQL are called through pgrx's guards or our own: an ERROR unwinds as a panic.
#![expect(unsafe_code, reason = "PostgreSQL's planner structures are C structures")]

mod attachment;
mod catalog;
mod custom;
mod entry;
mod executor;
mod expression;
mod fields;
mod list;
mod path;
mod plan;
mod query;
mod reference;
mod relation;
mod statistics;
mod table;
mod walk;

pub use attachment::Attachment;
pub use catalog::*;
pub use custom::*;
pub use entry::*;
pub use executor::*;
pub use expression::*;
pub use list::{IntegerList, List, OidList, Relids};
pub use path::*;
pub use plan::*;
pub use query::*;
pub use reference::{HasTag, Memory, Node, Ref, Tagged};
pub use relation::*;
pub use statistics::ColumnStatistics;
pub use table::*;
pub use walk::check_stack_depth;
