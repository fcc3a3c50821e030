//! Rows of one column as Parquet has them: values, and levels that say what is NULL and what is repeated.
//!
//! Whatever a column means, its rows come out of pages and go into pages unchanged, so that nested columns
//! and annotations need no cases of their own.

use parquet::{
    column::{reader::ColumnReaderImpl, writer::ColumnWriterImpl},
    data_type::DataType,
    errors::{ParquetError, Result as ParquetResult},
    schema::types::ColumnDescriptor,
};

use super::source::guarded;

/// Rows of a column of a physical type.
pub(crate) struct ColumnRows<T: DataType> {
    has_definition_levels: bool,
    has_repetition_levels: bool,
    values: Vec<T::T>,
    definition_levels: Vec<i16>,
    repetition_levels: Vec<i16>,
}

impl<T: DataType> ColumnRows<T> {
    /// No rows.
    pub(crate) fn new(descriptor: &ColumnDescriptor) -> Self {
        Self {
            has_definition_levels: descriptor.max_def_level() > 0,
            has_repetition_levels: descriptor.max_rep_level() > 0,
            values: Vec::new(),
            definition_levels: Vec::new(),
            repetition_levels: Vec::new(),
        }
    }

    /// Those of the rows that are not NULL.
    pub(crate) fn values(&self) -> &[T::T] {
        &self.values
    }

    /// Bytes that a row takes here, beside what its text takes.
    pub(crate) fn row_bytes() -> usize {
        size_of::<T::T>() + 2 * size_of::<i16>()
    }

    /// Replaces the rows by the next `row_count_max` of a column chunk, or as many as there are; returns their
    /// number.
    pub(crate) fn read(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        row_count_max: usize,
    ) -> ParquetResult<usize> {
        self.values.clear();
        self.definition_levels.clear();
        self.repetition_levels.clear();
        let (row_count, ..) = guarded(|| {
            reader.read_records(
                row_count_max,
                Some(&mut self.definition_levels),
                Some(&mut self.repetition_levels),
                &mut self.values,
            )
        })?;
        Ok(row_count)
    }

    /// Appends the rows to a column chunk.
    pub(crate) fn write(&self, writer: &mut ColumnWriterImpl<'_, T>) -> ParquetResult<()> {
        let definition_levels = self.has_definition_levels.then_some(self.definition_levels.as_slice());
        let repetition_levels = self.has_repetition_levels.then_some(self.repetition_levels.as_slice());
        // Levels of a damaged file are beyond the column's, at which the writer panics.
        let written = guarded(|| writer.write_batch(&self.values, definition_levels, repetition_levels))?;
        if written != self.values.len() {
            return Err(ParquetError::General(format!(
                "a column has {} values, and levels for {written}",
                self.values.len()
            )));
        }
        Ok(())
    }
}

/// Evaluates an expression with `$type` as the type of a column's values.
macro_rules! for_physical_type {
    ($physical:expr, $type:ident => $body:expr) => {{
        use parquet::{basic::Type, data_type};
        match $physical {
            Type::BOOLEAN => {
                type $type = data_type::BoolType;
                $body
            }
            Type::INT32 => {
                type $type = data_type::Int32Type;
                $body
            }
            Type::INT64 => {
                type $type = data_type::Int64Type;
                $body
            }
            Type::INT96 => {
                type $type = data_type::Int96Type;
                $body
            }
            Type::FLOAT => {
                type $type = data_type::FloatType;
                $body
            }
            Type::DOUBLE => {
                type $type = data_type::DoubleType;
                $body
            }
            Type::BYTE_ARRAY => {
                type $type = data_type::ByteArrayType;
                $body
            }
            Type::FIXED_LEN_BYTE_ARRAY => {
                type $type = data_type::FixedLenByteArrayType;
                $body
            }
        }
    }};
}
pub(crate) use for_physical_type;
