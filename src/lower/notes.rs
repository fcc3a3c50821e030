//! What lowering asks of the server, and what it notes for the plan around an expression.

use std::cell::{Cell, RefCell};

use pystachio_plan::{ColumnId, DataType, Value};

use crate::{Origin, TextForm};

/// What differs between servers, and between the moments at which they are asked.
pub trait Server {
    /// Whether the stack has room for one more level of an expression.
    fn has_stack(&self) -> bool;

    /// Whether a text or an interval names a time zone that an engine can have.
    ///
    /// # Errors
    ///
    /// Why it does not, in PostgreSQL's words.
    fn check_zone(&self, zone: &Value) -> Result<(), String>;

    /// How text of the database differs from the same text in UTF-8.
    fn text_form(&self) -> TextForm;

    /// PostgreSQL's name of the database's encoding.
    fn encoding_name(&self) -> String;

    /// Whether intervals may be infinite.
    fn has_infinite_intervals(&self) -> bool;

    /// Whether integers in text may be of other bases, and have underscores between digits.
    fn reads_bases(&self) -> bool;

    /// Whether the session's DateStyle is ISO.
    fn has_iso_dates(&self) -> bool;

    /// Whether `right` takes the least integer for its own negation and returns the whole text, as some minor versions do.
    fn right_wraps(&self) -> bool;

    /// Whether `date_bin` takes a moment before the origin that is the start of a stride for one of the stride before, as some
    /// minor versions do.
    fn bins_wrongly(&self) -> bool;

    /// Whether sums of floats may be rounded once, where PostgreSQL rounds at each row.
    fn sums_floats(&self) -> bool;
}

/// A value that is known when the query starts.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeValue {
    /// PostgreSQL evaluates the node of this number.
    Origin(Origin),
    /// The session's time zone.
    SessionZone,
    /// The session's DateStyle.
    DateStyle,
    /// The session's `extra_float_digits`.
    FloatDigits,
    /// The session's `quote_all_identifiers`.
    QuotesIdentifiers,
    /// The words of SQL that are no names without quotes, with blanks between them.
    ReservedWords,
    /// The time zone that a text or an interval names.
    Zone(Value),
}

/// What lowering notes while one query is planned.
#[derive(Debug, Default)]
pub struct Notes {
    last_column: Cell<u32>,
    /// With the type that the engine wants.
    runtime_values: RefCell<Vec<(RuntimeValue, DataType)>>,
    met_infinity: Cell<bool>,
    lost_parameter: Cell<bool>,
}

impl Notes {
    /// An id that no other column of this query has.
    pub fn new_column(&self) -> ColumnId {
        self.last_column.set(self.last_column.get() + 1);
        ColumnId(self.last_column.get())
    }

    /// The index of a parameter.
    pub fn parameter(&self, value: RuntimeValue, data_type: DataType) -> u32 {
        let mut known = self.runtime_values.borrow_mut();
        let wanted = (value, data_type);
        let index = known.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            known.push(wanted);
            known.len() - 1
        });
        index as u32
    }

    /// The value and type of a parameter.
    pub fn parameter_at(&self, index: u32) -> Option<(RuntimeValue, DataType)> {
        self.runtime_values.borrow().get(index as usize).cloned()
    }

    /// Whether an infinite date or timestamp was lowered, so that values of the engine may be infinite.
    pub fn met_infinity(&self) -> bool {
        self.met_infinity.get()
    }

    /// Notes an infinite date or timestamp.
    pub fn meet_infinity(&self) {
        self.met_infinity.set(true);
    }

    /// Whether something with a parameter of the statement was not lowered: with a constant in its place it might be.
    pub fn lost_parameter(&self) -> bool {
        self.lost_parameter.get()
    }

    pub(crate) fn lose_parameter(&self) {
        self.lost_parameter.set(true);
    }
}
