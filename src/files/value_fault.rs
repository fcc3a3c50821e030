//! What may be wrong with a value that a file has for a declared column, in the same words on both engines.
//!
//! The words don't contain the value: row security or a view may hide its row from the user. Both engines read in
//! parallel, so they could also name different values.

use std::path::Path;

use pystachio_plan::{DataType, Error, ErrorKind};

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub struct ValuePlace<'a> {
    /// The foreign table.
    pub table: &'a str,
    /// Its column.
    pub column: &'a str,
    /// The file.
    pub file: &'a Path,
}

/// What is wrong with some value.
#[derive(Clone, Copy, Debug)]
pub enum ValueFault<'a> {
    /// NULL, in a column that is NOT NULL.
    Null,
    /// A text of more characters than `character(n)`, which is read without its blanks, or `character varying(n)` has.
    TooLong {
        /// The characters that the type has.
        length_max: u32,
        /// Whether blanks at the end are none of the value.
        trim_blanks: bool,
    },
    /// Bytes that are no text.
    NotUtf8,
    /// A number or a moment that the declared type does not have, or that the file's own annotation of the column does not.
    OutOfRange(&'a DataType),
}

impl ValueFault<'_> {
    /// The error, which names the column and the file.
    pub fn at(self, place: ValuePlace<'_>) -> Error {
        let (kind, before, after) = match self {
            Self::Null => (
                ErrorKind::NullNotAllowed,
                "null value in".to_owned(),
                "violates its NOT NULL declaration".to_owned(),
            ),
            Self::TooLong { length_max, trim_blanks } => {
                let name = if trim_blanks { "character" } else { "character varying" };
                let before = format!("value too long for type {name}({length_max}):");
                (ErrorKind::StringTooLong, before, "has a longer value".to_owned())
            }
            Self::NotUtf8 => (
                ErrorKind::FileCorrupt,
                "invalid byte sequence for UTF-8: a value of".to_owned(),
                "is not UTF-8".to_owned(),
            ),
            Self::OutOfRange(data_type) if is_integer(data_type) => (
                ErrorKind::NumericOutOfRange,
                format!("{data_type} out of range: a value of"),
                "is out of the range that its file states".to_owned(),
            ),
            Self::OutOfRange(data_type) if is_decimal(data_type) => (
                ErrorKind::NumericOutOfRange,
                "numeric field overflow: a value of".to_owned(),
                format!("has more digits than {data_type} or its file allows"),
            ),
            Self::OutOfRange(data_type) => (
                ErrorKind::DatetimeOutOfRange,
                format!("{data_type} out of range: a value of"),
                "is out of range".to_owned(),
            ),
        };
        let ValuePlace { table, column, file } = place;
        let file = file.display();
        Error::new(
            kind,
            format!("{before} column \"{column}\" of foreign table \"{table}\" {after}, in file \"{file}\""),
        )
    }
}

/// Whether values of a type, or the items of its arrays, are integers.
fn is_integer(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => is_integer(item),
        other => other.is_integer(),
    }
}

/// Whether values of a type, or the items of its arrays, are decimals.
fn is_decimal(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => is_decimal(item),
        other => other.is_decimal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_is_wrong_and_where() {
        let place = ValuePlace { table: "t", column: "c", file: Path::new("f.parquet") };
        let said = |fault: ValueFault<'_>| {
            let error = fault.at(place);
            (error.kind, error.message)
        };
        let decimal = DataType::Decimal { precision: 5, scale: 2 };
        for (fault, kind, message) in [
            (
                ValueFault::Null,
                ErrorKind::NullNotAllowed,
                "null value in column \"c\" of foreign table \"t\" violates its NOT NULL declaration, in file \"f.parquet\"",
            ),
            (
                ValueFault::TooLong { length_max: 3, trim_blanks: true },
                ErrorKind::StringTooLong,
                "value too long for type character(3): column \"c\" of foreign table \"t\" has a longer value, in file \
                 \"f.parquet\"",
            ),
            (
                ValueFault::OutOfRange(&DataType::List(Box::new(decimal))),
                ErrorKind::NumericOutOfRange,
                "numeric field overflow: a value of column \"c\" of foreign table \"t\" has more digits than numeric(5,2)[] or \
                 its file allows, in file \"f.parquet\"",
            ),
            (
                ValueFault::OutOfRange(&DataType::Int16),
                ErrorKind::NumericOutOfRange,
                "smallint out of range: a value of column \"c\" of foreign table \"t\" is out of the range that its file states, \
                 in file \"f.parquet\"",
            ),
            (
                ValueFault::OutOfRange(&DataType::Timestamp),
                ErrorKind::DatetimeOutOfRange,
                "timestamp without time zone out of range: a value of column \"c\" of foreign table \"t\" is out of range, in \
                 file \"f.parquet\"",
            ),
        ] {
            assert_eq!(said(fault), (kind, message.to_owned()));
        }
    }
}
