//! Composite values, returned as they are.
#![expect(unsafe_code, reason = "builds PostgreSQL's composite values")]

use std::ops::Range;

use arrow_array::StructArray;
use pgrx::pg_sys::{self, Datum};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    array::BlockContext,
    block::Cells,
    column::{ColumnReader, ColumnSource},
    numeric::Scales,
};
use crate::{pg::list, pg::mirror::type_name, scan_private::DisplayScale};

/// Converts values of one composite type.
pub struct RecordReader {
    type_oid: pg_sys::Oid,
    descriptor: pg_sys::TupleDesc,
    /// One for each attribute; none for those that were dropped.
    fields: Vec<Option<ColumnReader>>,
    context: BlockContext,
}

impl RecordReader {
    /// A reader of values of the type.
    ///
    /// # Errors
    ///
    /// `Internal` for fields that nothing is read as.
    pub fn new(type_oid: pg_sys::Oid) -> Result<Self> {
        // SAFETY: a composite type; the copy lives as long as the current memory context, which outlives the reader.
        let (descriptor, attributes) = unsafe {
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
            (descriptor, list::attributes(descriptor))
        };
        let reader = |attribute: &pg_sys::FormData_pg_attribute| {
            ColumnReader::new(ColumnSource {
                output_index: Some(0),
                display_scale: DisplayScale::OfType,
                type_oid: attribute.atttypid,
                type_modifier: attribute.atttypmod,
            })
        };
        let fields = attributes.into_iter();
        let fields = fields
            .map(|attribute| (!attribute.attisdropped).then(|| reader(attribute)).transpose())
            .collect::<Result<_>>()?;
        Ok(Self { type_oid, descriptor, fields, context: BlockContext::new() })
    }

    /// Sets the cells of these rows.
    ///
    /// # Errors
    ///
    /// As of [`ColumnReader::fill`] for a field; the type has other fields than when the query was planned.
    pub fn fill(&mut self, record: &StructArray, rows: Range<usize>, cells: &mut Cells<'_>) -> Result<()> {
        self.context.reset();
        let width = self.fields.len();
        let mut values = vec![Datum::null(); width * rows.len()];
        let mut nulls = vec![true; width * rows.len()];
        let mut columns = record.columns().iter();
        for (place, field) in self.fields.iter_mut().enumerate() {
            let Some(field) = field else { continue };
            let column = columns.next().ok_or_else(|| changed(self.type_oid))?;
            let mut cells = Cells::of_column(&mut values, &mut nulls, place, width);
            field.fill_array(column.as_ref(), &Scales::OfType, rows.clone(), &mut cells)?;
        }
        if columns.next().is_some() {
            return Err(changed(self.type_oid));
        }
        let first = rows.start;
        self.context.enter(|| {
            cells.fill(record, rows, |row| {
                let place = (row - first) * width;
                // SAFETY: a value and a flag for each attribute. Fields are copied.
                unsafe {
                    let tuple = pg_sys::heap_form_tuple(
                        self.descriptor,
                        values[place..].as_mut_ptr(),
                        nulls[place..].as_mut_ptr(),
                    );
                    pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
                }
            });
        });
        Ok(())
    }
}

fn changed(type_oid: pg_sys::Oid) -> Error {
    let message = format!("type {} was changed while a query read values of it", type_name(type_oid));
    Error::new(ErrorKind::SchemaMismatch, message).with_hint("Run the query again.")
}
