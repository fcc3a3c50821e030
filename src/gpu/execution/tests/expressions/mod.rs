//! Expressions over text that comes as codes.
//!
//! - `dictionaries.rs`: conditions that are evaluated for the entries of a dictionary
//! - `codes.rs`: text that goes on as codes

mod codes;
mod dictionaries;

use super::*;
