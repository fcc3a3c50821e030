//! Narrow wrappers over `pg_sys`, shared by planner, executor and workers.
//!
//! - `encoding.rs`: the database's encoding
//! - `hooks.rs`: calls of other libraries' hooks
//! - `list.rs`: lists, names, options and descriptors
//! - `locale.rs`: what libc says of locales
//! - `nodes.rs`: walking trees of nodes
//! - `stored_statistics.rs`: what ANALYZE has stored, corrected
//! - `tree/`: the planner's structures by typed handles
//! - `mirror/`: expressions as values, for `src/lower`
//! - `wait.rs`: waiting without holding up a cancel
//! - `zone.rs`: the session's time zone
//! - `compat.rs`: everything that differs between PostgreSQL's versions

pub mod compat;
pub mod encoding;
pub mod hooks;
pub mod list;
pub mod locale;
pub mod mirror;
pub mod nodes;
pub mod stored_statistics;
pub mod tree;
pub mod wait;
pub mod zone;
