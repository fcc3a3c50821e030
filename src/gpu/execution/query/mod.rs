//! What a query is made of, whatever its operators are: drivers, their memory, and rows that are held.
//!
//! - `driver.rs`: what the drivers of a query share (`Query`), and what each of them has
//! - `memory.rs`: what a query may use, and what its operators may hold
//! - `threads.rs`: threads of drivers and readers, which stay for the next query
//! - `meter.rs`: how far a query is, for who watches it
//! - `held.rs`: rows that an operator holds, and their way off the device
//!
//! Every room of operators imports this one, and so do `compile` and `engine`. `Query` in turn has one value of each room whose state the drivers share: the scans'
//! readers and cache, the joins' fragments, the exchanges, and which operators filters reduce. Nothing else here knows another room.
//!
//! Deliberately absent: operators, and the device's memory itself (`device/memory`).

mod driver;
mod held;
mod memory;
mod meter;
mod threads;

pub(super) use self::{
    driver::{Driver, NO_OPERATOR, Query, failure_of_panic},
    held::{Held, Spilling, for_each_block, groups_within},
    memory::{PARTITION_LEVELS_MAX, PARTITIONS, QUERIES_MAX, QueryMemory, ROWS_MAX},
    meter::QueryMeter,
    threads::{StartedWork, Threads},
};
