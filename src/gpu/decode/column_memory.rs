//! The memory that a column is decoded into: one piece for the rows of all its chunks, and one for
//! the entries of their dictionaries.

use pystachio_plan::{Error, Result};

use super::{
    chunk_decoder::{ChunkCodes, ChunkTarget},
    chunk_plan::ChunkPlan,
};
use crate::device::{AnyColumn, Buffer, CODE_BYTES, CellType, CodedColumn, Column, DeviceMemory, Stream};

/// A column's memory. The entries of its chunks' dictionaries lie one after another. Behind the entries of codes
/// there is one more for NULL, all zeroes.
pub(super) struct ColumnMemory {
    /// Cells, or codes.
    values: Buffer,
    /// Of cells.
    validity: Option<Buffer>,
    /// Cells of dictionaries, if there are some.
    entries: Option<Buffer>,
    /// Of the entries that codes are of.
    entry_flags: Option<Buffer>,
    /// Entries that codes are of, the one for NULL included; 0 if rows become cells.
    entry_count: usize,
}

/// The pages that the text of chunks' cells points into, if they have any.
fn text_buffers(plans: &[ChunkPlan<'_>]) -> Vec<Buffer> {
    let of_text = plans.iter().filter(|plan| plan.conversion.cell_type == CellType::String);
    of_text.flat_map(|plan| plan.chunk.page_buffers()).cloned().collect()
}

impl ColumnMemory {
    /// Allocates memory for so many rows of a column's chunks. Returns where each is decoded into.
    pub(super) fn allocate(
        (memory, stream): (&DeviceMemory, Stream),
        plans: &[ChunkPlan<'_>],
        as_codes: bool,
        row_count: usize,
    ) -> Result<(Self, Vec<ChunkTarget>)> {
        let allocate = |bytes: u64| memory.allocate(bytes.max(1), stream);
        let cell_type = plans.first().map(|plan| plan.conversion.cell_type);
        let cell_type = cell_type.ok_or_else(|| Error::internal("a column without chunks is decoded"))?;
        let cell_bytes = u64::from(cell_type.bytes());
        let is_optional = plans.iter().any(|plan| plan.is_optional);
        let rows = row_count as u64;
        let entries: u64 = plans.iter().map(ChunkPlan::entry_count).sum();
        let null_code =
            u32::try_from(entries).map_err(|_| Error::internal("dictionaries with too many entries"))?;
        let value_bytes = if as_codes { u64::from(CODE_BYTES) } else { cell_bytes };
        let mut own = Self {
            values: allocate(rows * value_bytes)?,
            validity: (is_optional && !as_codes).then(|| allocate(rows)).transpose()?,
            entries: None,
            entry_flags: None,
            entry_count: if as_codes { entries as usize + 1 } else { 0 },
        };
        if as_codes {
            let buffer = allocate((entries + 1) * cell_bytes)?;
            let end = entries * cell_bytes;
            memory.fill_range(&buffer, end..end + cell_bytes, 0, stream)?;
            own.entries = Some(buffer);
            if is_optional {
                let flags = allocate(entries + 1)?;
                memory.fill_range(&flags, entries..entries + 1, 0, stream)?;
                own.entry_flags = Some(flags);
            }
        } else if entries > 0 {
            own.entries = Some(allocate(entries * cell_bytes)?);
        }
        let address = |buffer: &Option<Buffer>, offset: u64| {
            buffer.as_ref().map_or(0, |buffer| buffer.address() + offset)
        };
        // Entries of the chunks before.
        let mut first = 0;
        let mut targets = Vec::with_capacity(plans.len());
        for plan in plans {
            if as_codes && plan.dictionary().is_none() {
                return Err(Error::internal("a column without a dictionary is decoded as codes"));
            }
            targets.push(ChunkTarget {
                values: own.values.address(),
                validity: address(&own.validity, 0),
                entries: address(&own.entries, first * cell_bytes),
                entry_flags: address(&own.entry_flags, first),
                codes: as_codes.then_some(ChunkCodes { first: first as u32, null: null_code }),
                ..ChunkTarget::default()
            });
            first += plan.entry_count();
        }
        Ok((own, targets))
    }

    /// The column, with the pages that its text points into. `scratch` keeps memory that only
    /// kernels read.
    pub(super) fn into_column(self, plans: &[ChunkPlan<'_>], scratch: &mut Vec<Buffer>) -> Result<AnyColumn> {
        let first = plans.first().ok_or_else(|| Error::internal("a column without chunks is decoded"))?;
        let column = |values, validity| Column {
            data_type: first.source.column.data_type.clone(),
            cell_type: first.conversion.cell_type,
            values,
            validity,
            strings: text_buffers(plans),
        };
        Ok(match (self.entry_count, self.entries) {
            (0, entries) => {
                scratch.extend(entries);
                AnyColumn::Cells(column(self.values, self.validity))
            }
            (entry_count, Some(entries)) => AnyColumn::Codes(CodedColumn {
                entries: column(entries, self.entry_flags),
                entry_count,
                codes: self.values,
            }),
            (_, None) => return Err(Error::internal("codes without a dictionary")),
        })
    }
}
