//! Expressions of operators over rows whose text may come as codes.
//!
//! - `row_program.rs`: expressions and conditions over rows, a compiled variant for each set of columns that come as codes
//! - `coded.rs`: parts of an expression that are evaluated once for every entry of a dictionary
//!
//! Invariants: which columns come as codes changes no value, and no error.
//!
//! Deliberately absent: compilation to byte-code and its evaluation (`program`).

mod coded;
mod row_program;

pub(super) use self::{
    coded::{columns_of, is_text},
    row_program::{RowCondition, RowProgram, places_of},
};
