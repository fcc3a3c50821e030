//! What a function is evaluated on: arguments, a count of rows, and the type of the result.

use std::sync::Arc;

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, StringViewBuilder},
    datatypes::DataType as ArrowType,
};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::lanes::{ByteLanes, Lanes, TextLanes, internal};

/// One evaluation: arguments and how many rows they have.
pub(super) struct Invocation<'a> {
    arguments: &'a [ColumnarValue],
    /// Rows of the result, at least one.
    pub(super) rows: usize,
    /// The type of the result.
    pub(super) result: &'a DataType,
}

impl<'a> Invocation<'a> {
    /// An evaluation over so many rows.
    pub(super) fn new(arguments: &'a [ColumnarValue], rows: usize, result: &'a DataType) -> Self {
        Self { arguments, rows, result }
    }

    /// An argument.
    pub(super) fn argument(&self, index: usize) -> Result<&'a ColumnarValue> {
        self.arguments
            .get(index)
            .ok_or_else(|| Error::internal(format!("argument {index} of a function is missing")))
    }

    /// All arguments.
    pub(super) fn arguments(&self) -> &'a [ColumnarValue] {
        self.arguments
    }

    /// An argument that Arrow stores as `P`.
    pub(super) fn lanes<P: ArrowPrimitiveType>(&self, index: usize) -> Result<Lanes<'a, P::Native>> {
        Lanes::primitive::<P>(self.argument(index)?)
    }

    /// A text argument.
    pub(super) fn text(&self, index: usize) -> Result<TextLanes> {
        TextLanes::new(self.argument(index)?)
    }

    /// An argument of bytes, or of text as bytes.
    pub(super) fn bytes(&self, index: usize) -> Result<ByteLanes> {
        ByteLanes::new(self.argument(index)?)
    }

    /// An argument as an array of `rows`.
    pub(super) fn array(&self, index: usize) -> Result<ArrayRef> {
        self.argument(index)?.to_array(self.rows).map_err(|error| internal(&error))
    }

    /// A text for each row that has a value: `write` appends it to an empty text, and returns false for NULL.
    pub(super) fn write_texts(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<bool>,
    ) -> Result<ArrayRef> {
        let mut text = String::new();
        let mut builder = StringViewBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            text.clear();
            let is_valid = write(row, &mut text)?;
            builder.append_option(is_valid.then_some(text.as_str()));
        }
        Ok(Arc::new(builder.finish()))
    }

    /// The Arrow type of an argument.
    pub(super) fn arrow_type(&self, index: usize) -> Result<ArrowType> {
        Ok(self.argument(index)?.data_type())
    }

    /// The error of a function that these argument types do not have.
    pub(super) fn not_supported(&self, function: &str) -> Error {
        let types: Vec<String> =
            self.arguments.iter().map(|argument| argument.data_type().to_string()).collect();
        Error::new(ErrorKind::NotSupported, format!("{function} is not supported for {}", types.join(", ")))
    }
}
