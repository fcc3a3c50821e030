//! What of a declared column its values depend on, besides the file.

use pystachio_plan::{DataType, ScanColumn};

/// What the declared column adds to the file's: of one column chunk, scans that agree in it have the same values and errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnVariant {
    data_type: DataType,
    not_null: bool,
    length_max: Option<u32>,
    trim_blanks: bool,
}

impl ColumnVariant {
    /// That of a column.
    pub fn of(column: &ScanColumn) -> Self {
        Self {
            data_type: column.data_type.clone(),
            not_null: column.not_null,
            length_max: column.length_max,
            trim_blanks: column.trim_blanks,
        }
    }
}
