//! What operators compute of rows whose text may come as codes.
//!
//! - `row_program.rs`: expressions and conditions over rows, a compiled variant for each set of columns that come as codes
//! - `coded.rs`: what of an expression is evaluated once for every entry of a dictionary
//!
//! Invariants: which columns come as codes changes no value, and no error.
//!
//! Deliberately absent: how an expression becomes a byte-code, and what runs it (`program`).

mod coded;
mod row_program;

pub(super) use self::{
    coded::{columns_of, is_text},
    row_program::{RowCondition, RowProgram, places_of},
};
