//! A chunk as stored bytes.

use std::ops::Range;

use pystachio_plan::{DataType, Result};

use super::store::{Segment, SpillStore, Stored};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::Queue,
};

/// Upper bound of the extra ranges that a partition's rows in a chunk are cut into, so that they
/// can be read in parts if there is less memory than when they were spilled.
const RANGES_A_CHUNK: usize = 8;

/// A stored chunk, whose rows are read back range by range.
pub struct SpilledChunk {
    store: SpillStore,
    stored: Stored,
    columns: Vec<SpilledColumn>,
    /// The ranges: each is the rows from one of these to the next.
    bounds: Vec<usize>,
    /// The first range of each partition, and how many ranges there are.
    partitions: Vec<usize>,
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
    /// The address of the packed text that cells were made to point to.
    address: u64,
    /// Where each range's text starts, and where the last one ends.
    bounds: Vec<u64>,
}

impl SpilledChunk {
    /// Stores a chunk. Its partitions go from one of `bounds` to the next; the first
    /// is 0 and the last the count of rows.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory of spill files, `OutOfMemory` where text can't be packed, and faults
    /// of the device.
    pub fn write(queue: &Queue, store: &SpillStore, chunk: &Chunk, bounds: Vec<usize>) -> Result<Self> {
        assert!(bounds.first() == Some(&0) && bounds.last() == Some(&chunk.row_count), "ranges of a chunk");
        let (bounds, partitions) = ranges_of(&bounds, chunk.row_count.div_ceil(RANGES_A_CHUNK));
        let rows = chunk.row_count as u64;
        let mut segments = Vec::new();
        let mut offset = 0;
        let mut add = |buffer: &Buffer, bytes: u64| {
            segments.push(Segment { buffer: buffer.clone(), bytes });
            offset += bytes;
            offset - bytes
        };
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
        Ok(Self { store: store.clone(), stored, columns, bounds, partitions })
    }

    /// How many partitions there are.
    pub fn partition_count(&self) -> usize {
        self.partitions.len() - 1
    }

    /// The ranges of some partitions side by side.
    pub fn ranges(&self, partitions: Range<usize>) -> Range<usize> {
        self.partitions[partitions.start]..self.partitions[partitions.end]
    }

    /// The rows of ranges side by side.
    pub fn rows(&self, ranges: &Range<usize>) -> Range<usize> {
        self.bounds[ranges.start]..self.bounds[ranges.end]
    }

    /// Bytes that ranges side by side take on the device.
    pub fn bytes(&self, ranges: &Range<usize>) -> u64 {
        let rows = self.rows(ranges).len() as u64;
        let bytes_of = |column: &SpilledColumn| {
            rows * (u64::from(column.cell_type.bytes()) + u64::from(column.validity_offset.is_some()))
                + column.text_bytes(ranges)
        };
        self.columns.iter().map(bytes_of).sum()
    }

    /// Rows of several chunks with the same columns on the device, one after another: of each chunk
    /// some adjacent ranges. Stored bytes must stay until the queue has been waited for.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `FileAccess`, and faults of the device.
    ///
    /// # Panics
    ///
    /// If there is no chunk.
    pub fn read(queue: &Queue, parts: &[(&Self, Range<usize>)]) -> Result<Chunk> {
        let row_count = parts.iter().map(|(chunk, ranges)| chunk.rows(ranges).len()).sum();
        let columns = (0..parts[0].0.columns.len())
            .map(|number| read_column(queue, parts, number, row_count))
            .collect::<Result<_>>()?;
        Ok(Chunk { row_count, columns })
    }

    fn read_bytes(&self, queue: &Queue, offset: u64, address: u64, bytes: u64) -> Result<()> {
        self.store.read(queue, &self.stored, offset, (address, bytes))
    }
}

impl SpilledColumn {
    /// Bytes of text in ranges side by side.
    fn text_bytes(&self, ranges: &Range<usize>) -> u64 {
        self.text.as_ref().map_or(0, |text| text.bounds[ranges.end] - text.bounds[ranges.start])
    }
}

/// Partitions cut into ranges of at most so many rows: the bounds of these, and the first range of
/// each partition.
fn ranges_of(partition_bounds: &[usize], rows_max: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut bounds, mut partitions) = (vec![0], vec![0]);
    for partition in partition_bounds.windows(2) {
        bounds.extend((partition[0]..partition[1]).step_by(rows_max.max(1)).skip(1));
        bounds.push(partition[1]);
        partitions.push(bounds.len() - 1);
    }
    (bounds, partitions)
}

/// One column of [`SpilledChunk::read`].
fn read_column(
    queue: &Queue,
    parts: &[(&SpilledChunk, Range<usize>)],
    number: usize,
    row_count: usize,
) -> Result<Column> {
    let SpilledColumn { data_type, cell_type, text, .. } = &parts[0].0.columns[number];
    let cell_bytes = u64::from(cell_type.bytes());
    let memory = queue.memory();
    let values = memory.allocate(row_count as u64 * cell_bytes, queue.stream())?;
    let is_nullable = parts.iter().any(|(chunk, _)| chunk.columns[number].validity_offset.is_some());
    let validity = match is_nullable {
        true => Some(queue.allocate_filled::<u8>(row_count as u64, 1)?),
        false => None,
    };
    let text_bytes = parts.iter().map(|(chunk, ranges)| chunk.columns[number].text_bytes(ranges)).sum();
    let strings = match text {
        Some(_) => vec![memory.allocate(text_bytes, queue.stream())?],
        None => Vec::new(),
    };
    let mut first_row = 0;
    let mut text_address = strings.first().map_or(0, Buffer::address);
    for (chunk, ranges) in parts {
        let (column, rows) = (&chunk.columns[number], chunk.rows(ranges));
        let (start, count) = (rows.start as u64, rows.len() as u64);
        let target = values.address() + first_row as u64 * cell_bytes;
        chunk.read_bytes(queue, column.values_offset + start * cell_bytes, target, count * cell_bytes)?;
        if let (Some(offset), Some(validity)) = (column.validity_offset, &validity) {
            chunk.read_bytes(queue, offset + start, validity.address() + first_row as u64, count)?;
        }
        if let Some(text) = &column.text {
            let (text_start, bytes) = (text.bounds[ranges.start], column.text_bytes(ranges));
            chunk.read_bytes(queue, text.offset + text_start, text_address, bytes)?;
            let moved = first_row..first_row + rows.len();
            queue.move_strings(&values, moved, text.address + text_start, text_address)?;
            text_address += bytes;
        }
        first_row += rows.len();
    }
    Ok(Column { data_type: data_type.clone(), cell_type: *cell_type, values, validity, strings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_partitions_are_several_ranges() {
        assert_eq!(ranges_of(&[0, 5, 5, 8], 4), (vec![0, 4, 5, 5, 8], vec![0, 2, 3, 4]));
        assert_eq!(ranges_of(&[0, 0], 0), (vec![0, 0], vec![0, 1]));
    }
}
