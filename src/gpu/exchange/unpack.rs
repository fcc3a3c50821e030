//! Blocks into rows.
//!
//! ```text
//! blocks ─► their heads, downloaded at once ─► one layout for all of their rows ─► every part to its place in that, in one pass
//!                                                                              └─► cells of text by lengths
//! ```
//!
//! However many blocks there are, that is one wait for heads and one for each text column.
//!
//! Invariants: nothing is read of a block that its head, checked against its bytes and types, does not say is there.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    ReceivedBlock,
    block::{BlockColumn, BlockLayout, BlockParts, head_bytes},
};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::{ByteRange, Queue},
};

impl ReceivedBlock {
    /// The rows of blocks, one block's after another's, in memory of the queue's query. Waits for the device. The blocks' room is given
    /// again when the queue has copied them.
    ///
    /// # Errors
    ///
    /// `Protocol` for blocks that are none of these columns, or that have more rows together than a chunk; otherwise as of [`Queue`].
    ///
    /// # Panics
    ///
    /// If one was taken for another stream than the queue's.
    pub fn unpack(blocks: Vec<Self>, queue: &Queue, types: &[DataType]) -> Result<Chunk> {
        let layouts = decode_heads(&blocks, queue, types)?;
        let whole = layout_of_all(&layouts, types)?;
        let head_bytes = whole.head_bytes();
        let memory = queue.allocate::<u8>(whole.bytes - head_bytes)?;
        let part = |offset_bytes: u64, bytes: u64| memory.slice(offset_bytes - head_bytes, bytes);
        let rows = whole.row_count as u64;
        for (number, (column, parts)) in whole.columns.iter().enumerate() {
            let has_validity = |layout: &BlockLayout| layout.columns[number].0.is_nullable;
            if column.is_nullable && !layouts.iter().all(has_validity) {
                let start = parts.validity_offset_bytes - head_bytes;
                queue.memory().fill_range(&memory, start..start + rows, 1, queue.stream())?;
            }
        }
        queue.copy_ranges(&copies(&blocks, &layouts, (&whole, memory.address())))?;
        drop(blocks);
        let column = |(data_type, (column, places)): (&DataType, &(BlockColumn, BlockParts))| {
            let values = part(places.values_offset_bytes, places.values_bytes);
            let validity = column.is_nullable.then(|| part(places.validity_offset_bytes, rows));
            let text = || part(places.text_offset_bytes, column.text_bytes);
            let (values, strings): (Buffer, Vec<Buffer>) = match column.cell_type {
                CellType::String => (queue.place_text(&values, &text(), whole.row_count)?, vec![text()]),
                _ => (values, Vec::new()),
            };
            let cell_type = column.cell_type;
            let column = Column { data_type: data_type.clone(), cell_type, values, validity, strings };
            queue.spoil_nulls(&column, whole.row_count);
            Ok(column)
        };
        let columns = types.iter().zip(&whole.columns).map(column).collect::<Result<_>>()?;
        Ok(Chunk { row_count: whole.row_count, columns })
    }
}

/// What the heads of blocks say.
fn decode_heads(blocks: &[ReceivedBlock], queue: &Queue, types: &[DataType]) -> Result<Vec<BlockLayout>> {
    assert!(blocks.iter().all(|block| block.stream() == queue.stream()), "the stream that uses a block");
    let head_bytes = head_bytes(types.len());
    let heads = queue.allocate::<u8>(head_bytes * blocks.len() as u64)?;
    let head = |(number, block): (u64, &ReceivedBlock)| ByteRange {
        source: block.address(),
        target: heads.address() + number * head_bytes,
        bytes: head_bytes.min(block.bytes()),
    };
    let ranges: Vec<ByteRange> = (0..).zip(blocks).map(head).collect();
    queue.copy_ranges(&ranges)?;
    let heads: Vec<u8> = queue.download(&heads, head_bytes as usize * blocks.len())?;
    let layout = |(head, (range, block)): (&[u8], (&ByteRange, &ReceivedBlock))| {
        BlockLayout::decode_head(&head[..range.bytes as usize], block.bytes(), types)
    };
    heads.chunks(head_bytes as usize).zip(ranges.iter().zip(blocks)).map(layout).collect()
}

/// Where the rows of all blocks would lie in one.
fn layout_of_all(layouts: &[BlockLayout], types: &[DataType]) -> Result<BlockLayout> {
    let too_many = || Error::new(ErrorKind::Protocol, "blocks of an exchange have more rows than a chunk");
    let row_count = layouts.iter().map(|layout| layout.row_count).sum::<usize>();
    let columns = types.iter().enumerate().map(|(number, data_type)| {
        let of_blocks = || layouts.iter().map(|layout| layout.columns[number].0);
        Ok(BlockColumn {
            cell_type: CellType::of(data_type)?,
            is_nullable: of_blocks().any(|column| column.is_nullable),
            text_bytes: of_blocks().map(|column| column.text_bytes).sum(),
        })
    });
    let columns: Vec<BlockColumn> = columns.collect::<Result<_>>()?;
    let layout = BlockLayout::new(row_count, &columns).filter(|_| row_count < u32::MAX as usize);
    layout.ok_or_else(too_many)
}

/// What copies every part of blocks to its place among the rows of all, which lie as in a block that begins before the memory at an address.
fn copies(
    blocks: &[ReceivedBlock],
    layouts: &[BlockLayout],
    (whole, address): (&BlockLayout, u64),
) -> Vec<ByteRange> {
    let mut ranges = Vec::new();
    let mut first_row = 0;
    let mut first_text_bytes = vec![0; whole.columns.len()];
    for (block, layout) in blocks.iter().zip(layouts) {
        let rows = layout.row_count as u64;
        let mut add = |offset_bytes: u64, target: u64, bytes: u64| {
            let source = block.address() + offset_bytes;
            ranges.push(ByteRange { source, target: address + target - whole.head_bytes(), bytes });
        };
        let columns = layout.columns.iter().zip(&whole.columns).zip(&mut first_text_bytes);
        for (((column, parts), (_, targets)), first_text_bytes) in columns {
            let value_bytes = column.row_bytes() - u64::from(column.is_nullable);
            let target = targets.values_offset_bytes + first_row * value_bytes;
            add(parts.values_offset_bytes, target, parts.values_bytes);
            if column.is_nullable {
                add(parts.validity_offset_bytes, targets.validity_offset_bytes + first_row, rows);
            }
            let target = targets.text_offset_bytes + *first_text_bytes;
            add(parts.text_offset_bytes, target, column.text_bytes);
            *first_text_bytes += column.text_bytes;
        }
        first_row += rows;
    }
    ranges
}
