//! PostgreSQL's expressions as expressions of the plan language with exactly PostgreSQL's value, or why there is none.
//!
//! ```text
//! Source ──lower, over a Scope──► Lowered or Refusal
//!                │
//!                └ Notes: parameters, columns, infinities;  Server: what differs between versions
//! ```
//!
//! - `source.rs`, `types.rs`, `collation.rs`: expressions of PostgreSQL as values; `constant.rs`: constants
//! - `meaning.rs`: which functions engines have
//! - `scope.rs`: how an expression finds the columns of a relation
//! - `lowering.rs`: one expression; `runtime.rs`: values that are known when the query starts; `choice.rs`: CASE, COALESCE,
//!   GREATEST, NULLIF; `comparison.rs`: comparisons, of rows too, `record.rs` those of composite values; `array.rs`: ANY and ALL
//! - `call.rs`: functions and operators, `bucket.rs`: `width_bucket`, `moment.rs` those of dates and times; `zone.rs`: time zones; `span.rs`:
//!   differences of timestamps
//! - `json.rs`: fields of JSON that are fields of structs in the files; `json_document.rs`: parts of other JSON; `json_value.rs`: JSON that is made of values
//! - `number_text.rs`: numbers as texts, `number_format.rs` those by formats; `text_format.rs`: `format`, `quote_ident` and the arguments of `concat`
//! - `encoding.rs`: what differs in databases that are not UTF-8
//! - `numeric.rs`: scales, bounds and the arithmetic of numbers; `wide_quotient.rs`: the order of quotients that are too long
//! - `aggregate.rs`: aggregates, `outcomes.rs` those of a choice among values of several scales, `ordered_aggregate.rs` those for
//!   which the order of rows matters, `pair_aggregate.rs` those of two floats
//! - `window.rs`: window functions and their frames
//! - `refusal.rs`: why something stays with PostgreSQL
//!
//! `numeric` has a *display scale* beside its value: 2.50 and 2.5 are equal and print differently. Plans
//! have decimals of a fixed scale, so a lowered expression carries its display scale beside it: a
//! constant, or another plan expression where it varies by row. The value's own scale is never smaller,
//! and its further digits are zero.
//!
//! Invariants: an expression is lowered to the same plan wherever its source came from. Lowering neither panics nor nests
//! deeper than [`DEPTH_MAX`].
//!
//! Deliberately absent: PostgreSQL, pointers, oids, catalogs.

#![forbid(unsafe_code)]

mod aggregate;
mod array;
mod bucket;
mod call;
mod choice;
mod collation;
mod comparison;
mod constant;
mod encoding;
mod json;
mod json_document;
mod json_value;
mod lowered;
mod lowering;
mod matching;
mod meaning;
mod moment;
mod notes;
mod number_format;
mod number_text;
mod numeric;
mod ordered_aggregate;
mod outcomes;
mod pair_aggregate;
mod record;
mod refusal;
mod runtime;
mod scope;
mod shifted;
mod source;
mod span;
#[cfg(test)]
mod tests;
mod text_format;
mod types;
mod wide_quotient;
mod window;
mod zone;

use pystachio_plan::{DataType, EXPRESSION_DEPTH_MAX, Expression, RELATION_DEPTH_MAX};

pub use aggregate::LoweredAggregate;
pub use array::ARRAY_SUBSCRIPT;
pub use collation::{Collation, OrderKey, TextOrder, UnknownLetters, check_equality, order_key};
pub use constant::{ARRAY_ITEMS_MAX, Constant, lower_constant};
pub use encoding::TextForm;
pub use json::JSON_SUBSCRIPT;
pub use lowered::{Lowered, Scale};
pub use lowering::Lowering;
pub use meaning::{Comparison, Meaning};
pub use notes::{Notes, RuntimeValue, Server};
pub use numeric::{common_scale, retype, type_magnitude, unify_branches};
pub use record::{RecordComparison, RecordFieldSource, RecordSource, RecordTest};
pub use refusal::{AggregateRefusal, FunctionRefusal, Refusal, WindowRefusal};
pub use scope::{Scope, VarKey};
pub use source::{
    AggregateSource, ArrayComparison, Call, CatalogFunction, ColumnReference, OrderSource, Origin, Part,
    Placeholder, RowColumn, Source, UnknownPart,
};
pub use types::{ArrayType, OtherType, SourceType, character_length, numeric_modifier};
pub use window::{BoundSource, FrameSource, LoweredWindow, UnitSource, WindowSource};

/// How deep an expression may nest, before and after it is lowered. Lowering needs most stack, some 4 kB a
/// level; with this it fits PostgreSQL's default.
pub const DEPTH_MAX: usize = 200;
/// How large a lowered expression may be. One that is used twice is there twice, so that a short one of
/// PostgreSQL's could become one that fills the memory.
const PARTS_MAX: usize = 100_000;
/// How deep a plan may nest that is not finished yet: some operators are added then.
const RELATION_LEVELS_MAX: usize = RELATION_DEPTH_MAX - 10;

// What puts lowered expressions together (AND, aggregates, display scales) adds a few levels.
const _: () = assert!(DEPTH_MAX + 50 <= EXPRESSION_DEPTH_MAX);

type LoweredResult = Result<Lowered, Refusal>;

/// Refuses a plan that an engine would not decode.
///
/// # Errors
///
/// If it is nested too deep.
pub fn check_depth(depth: usize) -> Result<(), Refusal> {
    if depth > RELATION_LEVELS_MAX { Err(Refusal::PlanTooDeep) } else { Ok(()) }
}

/// Whether a value that only run time tells, of such a type, is in an expression.
pub fn has_parameter(expression: &Expression, is_meant: impl Fn(&DataType) -> bool) -> bool {
    let mut found = false;
    expression.walk(&mut |part| {
        found |= matches!(part, Expression::Parameter { data_type, .. } if is_meant(data_type));
    });
    found
}
