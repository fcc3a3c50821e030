//! What of a declared column its values depend on, besides the file.

use pystachio_plan::{ColumnContent, DataType, ScanColumn};

use crate::NestedForm;

/// What the declared column adds to the file's: of one column chunk, scans that agree in it have the same values and errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnVariant {
    data_type: DataType,
    not_null: bool,
    length_max: Option<u32>,
    trim_blanks: bool,
    content: ColumnContent,
    /// The fields on the way from the file's column.
    within: Vec<String>,
    /// Of a nested column, what the file has for it.
    form: Option<NestedForm>,
}

impl ColumnVariant {
    /// That of a column.
    pub fn of(column: &ScanColumn) -> Self {
        Self {
            data_type: column.data_type.clone(),
            not_null: column.not_null,
            length_max: column.length_max,
            trim_blanks: column.trim_blanks,
            content: column.content,
            within: column.within.clone(),
            form: None,
        }
    }

    /// The same for a file that has the column in this form.
    #[must_use]
    pub fn with_form(self, form: Option<NestedForm>) -> Self {
        Self { form, ..self }
    }
}
