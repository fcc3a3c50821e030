//! The parts of a query that do not depend on its operators: drivers, their memory, and held rows.
//!
//! - `driver.rs`: the shared state of a query's drivers (`QueryContext`), and the state of each one
//! - `memory.rs`: the memory of a query, and the limits of its operators
//! - `threads.rs`: threads of drivers and readers, which later queries reuse
//! - `meter.rs`: the progress of a query, for monitoring
//! - `held.rs`: rows that an operator holds, and their way off the device
//!
//! Each module of operators imports this one, and so do `compile` and `engine`; it imports none of
//! them.
//!
//! Deliberately absent: operators, and what they share beside the context (`QueryResources` in
//! `compile`); the device's memory itself (`device/memory`).

mod driver;
mod held;
mod memory;
mod meter;
mod threads;

pub(super) use self::{
    driver::{Driver, NO_OPERATOR, QueryContext, WAIT_INTERVAL, failure_of_panic},
    held::{Held, Spilling, for_each_block, groups_within},
    memory::{
        LARGE_QUERIES, MemoryShare, PARTITION_LEVELS_MAX, PARTITIONS, QueryMemory, ROWS_MAX, SHARES_OF_CAP,
        WantedMinimum,
    },
    meter::QueryMeter,
    threads::{StartedWork, Threads},
};
