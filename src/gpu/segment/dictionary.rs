//! The values of a text column of a table, numbered in the order in which its chunks came.
//!
//! Segments of the column have codes of one dictionary, so that rows of several row groups have equal codes where their values are equal, and a
//! condition is evaluated once for each value.
//!
//! Invariants: a code never changes its value. Entries on the device only grow: a query has those that it began with.

use std::{collections::HashMap, sync::Mutex};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{DataType, Result};

use crate::{
    device::{Buffer, CellType, Column, DeviceMemory, Lifetime, Stream, StringCell},
    operation::Queue,
};

/// Entries and bytes of a dictionary at most. A column with more values is text.
const ENTRIES_MAX: usize = 1 << 18;
const BYTES_MAX: u64 = 32 << 20;
/// The code of NULL in a list of new codes.
pub(super) const NO_CODE: u32 = u32::MAX;

/// The dictionary of a column.
#[derive(Debug)]
pub struct TableDictionary {
    data_type: DataType,
    state: Mutex<DictionaryState>,
}

#[derive(Debug, Default)]
struct DictionaryState {
    codes: HashMap<Box<[u8]>, u32>,
    /// Where the text of each entry is on the device.
    cells: Vec<[u64; 2]>,
    text_bytes: u64,
    texts: Vec<Buffer>,
    /// Absent before the first entry.
    entries: Option<DictionaryEntries>,
}

/// Entries, and behind them one more for NULL.
#[derive(Clone, Debug)]
pub(super) struct DictionaryEntries {
    pub(super) column: Column,
    /// The entry for NULL included.
    pub(super) count: usize,
}

impl TableDictionary {
    /// A dictionary without entries.
    pub fn new(data_type: DataType) -> Self {
        Self { data_type, state: Mutex::default() }
    }

    /// Its device memory.
    pub fn bytes(&self) -> u64 {
        let state = lock_whole(&self.state);
        let entries = state
            .entries
            .iter()
            .flat_map(|entries| [&entries.column.values].into_iter().chain(&entries.column.validity));
        state.texts.iter().chain(entries).map(Buffer::bytes).sum()
    }

    /// The entries so far; `None` if there are none.
    pub(super) fn entries(&self) -> Option<DictionaryEntries> {
        lock_whole(&self.state).entries.clone()
    }

    /// The code of each value of a column of so many rows, and [`NO_CODE`] of NULLs; waits. Values that have none get one. `None` if
    /// they would be too many, or if the device lacks room for memory without an account.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(super) fn codes_of(
        &self,
        queue: &Queue,
        values: &Column,
        row_count: usize,
    ) -> Result<Option<Vec<u32>>> {
        let packed = queue.pack_column(values, row_count)?.text;
        let mut ends: Vec<u64> = queue.download(&packed.offsets, row_count)?;
        ends.push(packed.total_bytes);
        let bytes: Vec<u8> = queue.download(&packed.bytes, packed.total_bytes as usize)?;
        let valid: Option<Vec<u8>> =
            values.validity.as_ref().map(|flags| queue.download(flags, row_count)).transpose()?;
        let mut state = lock_whole(&self.state);
        let mut added: Vec<&[u8]> = Vec::new();
        let mut codes = Vec::with_capacity(row_count);
        let mut new_codes: HashMap<&[u8], u32> = HashMap::new();
        let mut added_bytes = 0;
        for row in 0..row_count {
            if valid.as_ref().is_some_and(|valid| valid[row] == 0) {
                codes.push(NO_CODE);
                continue;
            }
            let value = &bytes[ends[row] as usize..ends[row + 1] as usize];
            let known = state.codes.get(value).or_else(|| new_codes.get(value)).copied();
            codes.push(known.unwrap_or_else(|| {
                let code = (state.codes.len() + added.len()) as u32;
                new_codes.insert(value, code);
                added.push(value);
                added_bytes += value.len() as u64;
                code
            }));
        }
        if state.codes.len() + added.len() > ENTRIES_MAX || state.text_bytes + added_bytes > BYTES_MAX {
            return Ok(None);
        }
        if !added.is_empty() || state.entries.is_none() {
            let grown = state.grown(queue, &added, &self.data_type)?;
            let Some((text, cells, entries)) = grown else { return Ok(None) };
            state.text_bytes += added_bytes;
            state.texts.push(text);
            state.cells = cells;
            state.entries = Some(entries);
            for value in added {
                let code = state.codes.len() as u32;
                state.codes.insert(value.into(), code);
            }
        }
        Ok(Some(codes))
    }
}

type Grown = (Buffer, Vec<[u64; 2]>, DictionaryEntries);

impl DictionaryState {
    /// The entries with some more. `None` if the device lacks room for memory without an account.
    fn grown(&self, queue: &Queue, added: &[&[u8]], data_type: &DataType) -> Result<Option<Grown>> {
        let (memory, stream) = (queue.memory(), queue.stream());
        let text = uploaded(memory, &added.concat(), stream)?;
        let mut cells = self.cells.clone();
        let mut address = text.address();
        for value in added {
            cells.push([address, value.len() as u64]);
            address += value.len() as u64;
        }
        let count = cells.len() + 1;
        let mut with_null = cells.clone();
        with_null.push([0, 0]);
        let values = uploaded(memory, bytemuck::cast_slice(&with_null), stream)?;
        let mut valid = vec![1u8; count];
        valid[count - 1] = 0;
        let validity = uploaded(memory, &valid, stream)?;
        let buffers = [&text, &values, &validity];
        memory.publish(buffers.into_iter(), stream)?;
        if !buffers.into_iter().all(Buffer::try_detach) {
            return Ok(None);
        }
        let strings = self.texts.iter().chain([&text]).cloned().collect();
        let column = Column {
            data_type: data_type.clone(),
            cell_type: CellType::String,
            values,
            validity: Some(validity),
            strings,
        };
        Ok(Some((text, cells, DictionaryEntries { column, count })))
    }
}

const _: () = assert!(size_of::<StringCell>() == size_of::<[u64; 2]>());

fn uploaded(memory: &DeviceMemory, bytes: &[u8], stream: Stream) -> Result<Buffer> {
    let buffer = memory.allocate_for(Lifetime::Long, (bytes.len() as u64).max(1), stream)?;
    if !bytes.is_empty() {
        memory.upload_to(bytes, buffer.address(), stream)?;
    }
    Ok(buffer)
}
