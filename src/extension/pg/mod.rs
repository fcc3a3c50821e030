//! Narrow wrappers over `pg_sys`, shared by planner, executor and workers.

pub mod list;
pub mod planner_compat;
