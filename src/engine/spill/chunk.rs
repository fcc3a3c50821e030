//! A chunk as bytes off the device.

use std::ops::Range;

use pystachio_plan::{DataType, Result};

use super::store::{Segment, SpillStore, Stored};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::Queue,
};

/// A chunk off the device, whose rows come back range by range.
pub struct SpilledChunk {
    store: SpillStore,
    stored: Stored,
    columns: Vec<SpilledColumn>,
    /// The ranges: each is the rows from one of these to the next.
    bounds: Vec<usize>,
}

/// Where a column's parts are within the stored bytes.
struct SpilledColumn {
    data_type: DataType,
    cell_type: CellType,
    values_offset: u64,
    validity_offset: Option<u64>,
    text: Option<SpilledText>,
}

struct SpilledText {
    offset: u64,
    /// Where the packed text was when cells were made to point to it.
    address: u64,
    /// Where each range's text starts, and where the last one ends.
    bounds: Vec<u64>,
}

impl SpilledChunk {
    /// Copies a chunk off the device. Its rows come back in ranges from one of `bounds` to the next; the first
    /// is 0 and the last the count of rows.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory of spill files, `OutOfMemory` where text can't be packed, and faults
    /// of the device.
    pub fn write(queue: &Queue, store: &SpillStore, chunk: &Chunk, bounds: Vec<usize>) -> Result<Self> {
        assert!(bounds.first() == Some(&0) && bounds.last() == Some(&chunk.row_count), "ranges of a chunk");
        let rows = chunk.row_count as u64;
        let mut segments = Vec::new();
        let mut offset = 0;
        let mut add = |buffer: &Buffer, bytes: u64| {
            segments.push(Segment { address: buffer.address(), bytes });
            offset += bytes;
            offset - bytes
        };
        // What the segments point into, until they are copied.
        let mut kept = Vec::new();
        let mut columns = Vec::with_capacity(chunk.columns.len());
        for column in &chunk.columns {
            let cell_bytes = rows * u64::from(column.cell_type.bytes());
            let (values_offset, text) = if column.cell_type == CellType::String {
                let packed = queue.pack_column(column, chunk.row_count)?;
                let text_bounds = packed.bounds(queue, &bounds)?;
                let values_offset = add(&packed.column.values, cell_bytes);
                let text = SpilledText {
                    offset: add(&packed.text.bytes, packed.text.total_bytes),
                    address: packed.text.bytes.address(),
                    bounds: text_bounds,
                };
                kept.push(packed);
                (values_offset, Some(text))
            } else {
                (add(&column.values, cell_bytes), None)
            };
            let validity_offset = column.validity.as_ref().map(|validity| add(validity, rows));
            columns.push(SpilledColumn {
                data_type: column.data_type.clone(),
                cell_type: column.cell_type,
                values_offset,
                validity_offset,
                text,
            });
        }
        let stored = store.write(queue, &segments)?;
        Ok(Self { store: store.clone(), stored, columns, bounds })
    }

    /// How many ranges there are.
    pub fn range_count(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The rows of a range.
    pub fn rows(&self, range: usize) -> Range<usize> {
        self.bounds[range]..self.bounds[range + 1]
    }

    /// Bytes that a range takes on the device.
    pub fn range_bytes(&self, range: usize) -> u64 {
        let rows = self.rows(range).len() as u64;
        let bytes_of = |column: &SpilledColumn| {
            let text = column.text.as_ref().map_or(0, |text| text.bounds[range + 1] - text.bounds[range]);
            rows * (u64::from(column.cell_type.bytes()) + u64::from(column.validity_offset.is_some())) + text
        };
        self.columns.iter().map(bytes_of).sum()
    }

    /// The rows of a range on the device. What is stored must stay until the queue has been waited for.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `FileAccess`, and faults of the device.
    pub fn read(&self, queue: &Queue, range: usize) -> Result<Chunk> {
        let rows = self.rows(range);
        let columns = self
            .columns
            .iter()
            .map(|column| self.read_column(queue, column, range))
            .collect::<Result<_>>()?;
        Ok(Chunk { row_count: rows.len(), columns })
    }

    fn read_column(&self, queue: &Queue, column: &SpilledColumn, range: usize) -> Result<Column> {
        let rows = self.rows(range);
        let (first, count) = (rows.start as u64, rows.len() as u64);
        let cell_bytes = u64::from(column.cell_type.bytes());
        let values =
            self.read_buffer(queue, column.values_offset + first * cell_bytes, count * cell_bytes)?;
        let validity = match column.validity_offset {
            Some(offset) => Some(self.read_buffer(queue, offset + first, count)?),
            None => None,
        };
        let mut strings = Vec::new();
        if let Some(text) = &column.text {
            let (start, end) = (text.bounds[range], text.bounds[range + 1]);
            let bytes = self.read_buffer(queue, text.offset + start, end - start)?;
            queue.move_strings(&values, rows.len(), text.address + start, bytes.address())?;
            strings.push(bytes);
        }
        Ok(Column {
            data_type: column.data_type.clone(),
            cell_type: column.cell_type,
            values,
            validity,
            strings,
        })
    }

    fn read_buffer(&self, queue: &Queue, offset: u64, bytes: u64) -> Result<Buffer> {
        let buffer = queue.memory().allocate(bytes, queue.stream())?;
        self.store.read(queue, &self.stored, offset, Segment { address: buffer.address(), bytes })?;
        Ok(buffer)
    }
}
