//! Scans.
//!
//! - `row_groups.rs`: less than whole row groups
//! - `storage.rs`: every way from files to the device
//! - `tiers.rs`: column chunks on the device, on the host, and in files that change
//! - `prefixes.rs`: pages that are far larger decoded than in the file
//! - `mutants.rs`: damaged files

mod mutants;
mod prefixes;
mod row_groups;
mod storage;
mod tiers;

use super::*;
