//! Unpacking of blocks into rows.
//!
//! ```text
//! blocks ─► their heads, downloaded at once ─► one layout for the rows of many ─► every part to its place in that, in one pass
//!                                                                              ├─► what was packed unpacked, in another; texts decompressed
//!                                                                              └─► cells of text by lengths
//! ```
//!
//! For any number of blocks there is one wait for heads, and one for each text column of a chunk.
//!
//! Invariants: a block is read only where its head, checked against its bytes and types, allows.
//! The rows of a chunk have no more memory than the inbox: without packing, all blocks taken at
//! once are one chunk.

use std::collections::VecDeque;

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    ReceivedBlock,
    block::{BlockColumn, BlockLayout, BlockParts, head_bytes},
};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::{ByteRange, DecompressRange, Packing, Queue, UnpackRange},
};

impl ReceivedBlock {
    /// The rows of blocks, block after block, in memory of the queue's query. Waits for the device.
    /// The blocks' room is free again when the queue has copied them. An error is the last item.
    ///
    /// # Errors
    ///
    /// `Protocol` for blocks of other columns, or with more rows than fit into one; otherwise
    /// errors of [`Queue`].
    ///
    /// # Panics
    ///
    /// If one was taken for another stream than the queue's.
    pub fn unpack<'a>(blocks: Vec<Self>, queue: &Queue, types: &'a [DataType]) -> Result<UnpackedChunks<'a>> {
        let layouts = decode_heads(&blocks, queue, types)?;
        let blocks = blocks.into_iter().zip(layouts).collect();
        Ok(UnpackedChunks { blocks, queue: queue.clone(), types })
    }
}

/// Blocks with decoded heads, as chunks.
pub struct UnpackedChunks<'a> {
    blocks: VecDeque<(ReceivedBlock, BlockLayout)>,
    queue: Queue,
    types: &'a [DataType],
}

impl Iterator for UnpackedChunks<'_> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        let blocks = self.next_blocks();
        let chunk = (!blocks.is_empty()).then(|| unpack(blocks, &self.queue, self.types));
        if let Some(Err(_)) = chunk {
            self.blocks.clear();
        }
        chunk
    }
}

impl UnpackedChunks<'_> {
    /// The next blocks whose rows together fit into their inbox's memory and into a chunk; at least
    /// one, if there is one.
    fn next_blocks(&mut self) -> Vec<(ReceivedBlock, BlockLayout)> {
        let (mut bytes, mut row_count) = (0, 0);
        let fits = |(block, layout): &&(ReceivedBlock, BlockLayout)| {
            bytes += layout.wide_bytes;
            row_count += layout.row_count;
            bytes <= block.inbox_bytes() && row_count < u32::MAX as usize
        };
        let count = self.blocks.iter().take_while(fits).count().max(1).min(self.blocks.len());
        self.blocks.drain(..count).collect()
    }
}

/// The rows of blocks as one chunk.
fn unpack(blocks: Vec<(ReceivedBlock, BlockLayout)>, queue: &Queue, types: &[DataType]) -> Result<Chunk> {
    let whole = layout_of_all(&blocks, types)?;
    let head_bytes = whole.head_bytes();
    let memory = queue.allocate::<u8>(whole.bytes - head_bytes)?;
    let part = |offset_bytes: u64, bytes: u64| memory.slice(offset_bytes - head_bytes, bytes);
    let rows = whole.row_count as u64;
    for (number, (column, parts)) in whole.columns.iter().enumerate() {
        let has_validity = |(_, layout): &(_, BlockLayout)| layout.columns[number].0.is_nullable;
        if column.is_nullable && !blocks.iter().all(has_validity) {
            let start = parts.validity_offset_bytes - head_bytes;
            queue.memory().fill_range(&memory, start..start + rows, 1, queue.stream())?;
        }
    }
    let parts = UnpackWork::of(&blocks, (&whole, memory.address()));
    queue.copy_ranges(&parts.copied)?;
    queue.unpack(&parts.packed)?;
    queue.decompress_texts(&parts.compressed)?;
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
        queue.poison_nulls(&column, whole.row_count);
        Ok(column)
    };
    let columns = types.iter().zip(&whole.columns).map(column).collect::<Result<_>>()?;
    Ok(Chunk { row_count: whole.row_count, columns })
}

/// The heads of blocks.
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
        let layout = BlockLayout::decode_head(&head[..range.bytes as usize], block.bytes(), types)?;
        layout.check_wide(block.block_bytes_max())?;
        Ok(layout)
    };
    heads.chunks(head_bytes as usize).zip(ranges.iter().zip(blocks)).map(layout).collect()
}

/// The layout of all blocks' rows in one, not packed.
fn layout_of_all(blocks: &[(ReceivedBlock, BlockLayout)], types: &[DataType]) -> Result<BlockLayout> {
    let too_many = || Error::new(ErrorKind::Protocol, "blocks of an exchange have more rows than a chunk");
    let row_count = blocks.iter().map(|(_, layout)| layout.row_count).sum::<usize>();
    let columns = types.iter().enumerate().map(|(number, data_type)| {
        let of_blocks = || blocks.iter().map(|(_, layout)| layout.columns[number].0);
        Ok(BlockColumn {
            cell_type: CellType::of(data_type)?,
            is_nullable: of_blocks().any(|column| column.is_nullable),
            text_bytes: of_blocks().map(|column| column.text_bytes).sum(),
            compressed_bytes: None,
            values: None,
            validity: None,
        })
    });
    let columns: Vec<BlockColumn> = columns.collect::<Result<_>>()?;
    BlockLayout::new(row_count, &columns).ok_or_else(too_many)
}

/// The work that moves the parts of blocks to their places among all rows.
#[derive(Default)]
struct UnpackWork {
    packed: Vec<UnpackRange>,
    compressed: Vec<DecompressRange>,
    copied: Vec<ByteRange>,
}

impl UnpackWork {
    /// The parts of some blocks. The rows are laid out as in a block that begins before the memory,
    /// at an address.
    fn of(blocks: &[(ReceivedBlock, BlockLayout)], (whole, address): (&BlockLayout, u64)) -> Self {
        let mut read = Self::default();
        let mut first_row = 0;
        let mut first_text_bytes = vec![0; whole.columns.len()];
        let address_of = |offset_bytes: u64| address + offset_bytes - whole.head_bytes();
        for (block, layout) in blocks {
            let row_count = layout.row_count as u64;
            let columns = layout.columns.iter().zip(&whole.columns).zip(&mut first_text_bytes);
            for (((column, parts), (_, targets)), first_text_bytes) in columns {
                let source_of = |offset_bytes: u64| block.address() + offset_bytes;
                let mut add =
                    |packing: Option<Packing>, (source, target): (u64, u64), cell_type: CellType| {
                        let target = address_of(target) + first_row * u64::from(cell_type.bytes());
                        read.add((source_of(source), target), packing, (row_count, cell_type));
                    };
                let values = (parts.values_offset_bytes, targets.values_offset_bytes);
                add(column.values, values, column.value_type());
                if column.is_nullable {
                    let validity = (parts.validity_offset_bytes, targets.validity_offset_bytes);
                    add(column.validity, validity, CellType::Bool);
                }
                let source = source_of(parts.text_offset_bytes);
                let target = address_of(targets.text_offset_bytes + *first_text_bytes);
                let bytes = column.text_bytes;
                match column.compressed_bytes {
                    Some(source_bytes) => {
                        read.compressed.push(DecompressRange { source, source_bytes, target, bytes });
                    }
                    None => read.copied.push(ByteRange { source, target, bytes }),
                }
                *first_text_bytes += column.text_bytes;
            }
            first_row += row_count;
        }
        read
    }

    fn add(
        &mut self,
        (source, target): (u64, u64),
        packing: Option<Packing>,
        (row_count, cell_type): (u64, CellType),
    ) {
        match packing {
            Some(packing) => self.packed.push(UnpackRange { source, packing, target, row_count, cell_type }),
            None => {
                let bytes = row_count * u64::from(cell_type.bytes());
                self.copied.push(ByteRange { source, target, bytes });
            }
        }
    }
}
