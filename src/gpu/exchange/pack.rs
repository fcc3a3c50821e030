//! Rows into blocks and back.
//!
//! ```text
//! chunk ─ hash of keys ─► rows in the order of destinations ─► for each destination blocks: cells, validity, lengths, text
//! chunk ◄─ cells of text by lengths ◄─ copy ◄─ block
//! ```
//!
//! Rows are collected before they get here: a chunk becomes a block or more for every destination, and small ones cost as
//! many launches as large ones.
//!
//! Invariants: a row goes to the same rank whatever chunk it is in, and equal keys go together if their columns have equal cell types on
//! both sides (cells of 64 and 128 bits hash differently).
//!
//! Deliberately absent: narrowing of values; dictionaries, whose codes are cells by now.

use std::ops::Range;

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    Destination, OutboxProducer, Rank, ReceivedBlock,
    block::{BlockColumn, BlockLayout, BlockParts, head_bytes},
};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::{
        ByteRange, EXCHANGE_LEVEL, HashPartitioning, MeasuredText, PARTITIONS_MAX, PackedText, Queue,
    },
};

/// How rows are spread over ranks.
#[derive(Clone, Debug)]
pub enum Routing<'a> {
    /// By the hash of keys, columns of as many rows as the chunk.
    Hash {
        /// The keys.
        keys: &'a [Column],
        /// As of [`HashPartitioning::nulls_match`].
        nulls_match: bool,
    },
    /// All of them to every rank.
    Broadcast,
    /// All of them to one.
    Gather(Rank),
}

/// Rows of a chunk, and who gets them.
type Share = (Destination, Range<usize>);

/// Some rows of a chunk that make a block.
#[derive(Clone, Debug)]
struct Piece {
    destination: Destination,
    rows: Range<usize>,
    /// Where the text of each text column begins and ends, in the chunk's.
    text: Vec<Range<u64>>,
}

/// A chunk whose text lies one after another.
struct PackedChunk {
    chunk: Chunk,
    /// Of each text column.
    texts: Vec<PackedChunkText>,
}

struct PackedChunkText {
    lengths: Buffer,
    packed: PackedText,
}

impl OutboxProducer {
    /// Sends the rows of a chunk. Waits for the device where rows are spread or have text, and for room as [`OutboxProducer::reserve`].
    /// All chunks of one producer go through one queue.
    ///
    /// # Errors
    ///
    /// As of [`OutboxProducer::reserve`] and [`Queue`]; `NotSupported` for a row that is larger than a block, and for more ranks than
    /// rows are spread over.
    pub fn send(&self, queue: &Queue, chunk: &Chunk, routing: &Routing) -> Result<()> {
        if chunk.row_count == 0 || !self.is_wanted() {
            return Ok(());
        }
        let whole = |destination| vec![(destination, 0..chunk.row_count)];
        let (chunk, ranges) = match routing {
            Routing::Broadcast => (chunk.clone(), whole(Destination::All)),
            Routing::Gather(rank) => (chunk.clone(), whole(Destination::Rank(*rank))),
            Routing::Hash { keys, nulls_match } => self.spread(queue, chunk, (*keys, *nulls_match))?,
        };
        let packed = PackedChunk::new(queue, chunk)?;
        for piece in packed.pieces(queue, ranges, self.block_bytes_max())? {
            packed.send(queue, self, &piece)?;
        }
        Ok(())
    }

    /// Rows in the order of destinations, and which go where.
    fn spread(
        &self,
        queue: &Queue,
        chunk: &Chunk,
        (keys, nulls_match): (&[Column], bool),
    ) -> Result<(Chunk, Vec<Share>)> {
        let partition_count = self.rank_count();
        if partition_count > PARTITIONS_MAX {
            let message = format!(
                "rows are not spread over as many ranks: ranks={partition_count}, limit={PARTITIONS_MAX}"
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let by = HashPartitioning { partition_count, level: EXCHANGE_LEVEL, nulls_match };
        let partitioned = queue.partition(keys, chunk.row_count, by)?;
        let chunk = queue.gather_chunk(chunk, &partitioned.rows)?;
        let ranges = (0..).zip(partitioned.bounds.windows(2)).filter_map(|(rank, bounds)| match bounds {
            [first, end] if first < end => Some((Destination::Rank(Rank(rank)), *first..*end)),
            _ => None,
        });
        Ok((chunk, ranges.collect()))
    }
}

impl PackedChunk {
    fn new(queue: &Queue, chunk: Chunk) -> Result<Self> {
        let is_text = |column: &&Column| column.cell_type == CellType::String;
        let pack = |column: &Column| {
            let measured = queue.measure_text(column, chunk.row_count)?;
            let MeasuredText { lengths, .. } = &measured;
            let lengths = lengths.clone();
            let packed = queue.copy_text(column, chunk.row_count, measured, None)?;
            Ok(PackedChunkText { lengths, packed })
        };
        let texts = chunk.columns.iter().filter(is_text).map(pack).collect::<Result<_>>()?;
        Ok(Self { chunk, texts })
    }

    /// Ranges of rows cut into pieces that blocks have room for, in their order. Waits if there is text.
    fn pieces(&self, queue: &Queue, ranges: Vec<Share>, block_bytes_max: u64) -> Result<Vec<Piece>> {
        let mut ranges = ranges;
        // Each time a piece that is too large has half of its rows at most, until it has one.
        loop {
            let pieces = self.measure(queue, &ranges)?;
            let mut cut = Vec::with_capacity(pieces.len());
            for Piece { destination, rows, text } in &pieces {
                let layout = self.layout(rows.len(), text);
                let parts = layout.map_or(u64::MAX, |layout| layout.bytes.div_ceil(block_bytes_max));
                if parts > 1 && rows.len() == 1 {
                    let message = format!(
                        "a row is larger than a block of an exchange: block_bytes_max={block_bytes_max}"
                    );
                    return Err(Error::new(ErrorKind::NotSupported, message));
                }
                cut.extend(cut_rows(rows, parts).map(|rows| (*destination, rows)));
            }
            if cut.len() == pieces.len() {
                return Ok(pieces);
            }
            ranges = cut;
        }
    }

    /// Finds out how much text ranges have.
    fn measure(&self, queue: &Queue, ranges: &[Share]) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = ranges
            .iter()
            .map(|(destination, rows)| Piece {
                destination: *destination,
                rows: rows.clone(),
                text: Vec::with_capacity(self.texts.len()),
            })
            .collect();
        let rows: Vec<usize> = ranges.iter().flat_map(|(_, rows)| [rows.start, rows.end]).collect();
        for PackedChunkText { packed, .. } in &self.texts {
            let bounds = packed.bounds(queue, &rows, self.chunk.row_count)?;
            for (piece, bounds) in pieces.iter_mut().zip(bounds.chunks_exact(2)) {
                piece.text.push(bounds[0]..bounds[1]);
            }
        }
        Ok(pieces)
    }

    fn layout(&self, row_count: usize, text: &[Range<u64>]) -> Option<BlockLayout> {
        let mut text = text.iter();
        let column = |column: &Column| BlockColumn {
            cell_type: column.cell_type,
            is_nullable: column.validity.is_some(),
            text_bytes: match column.cell_type {
                CellType::String => text.next().map_or(0, |range| range.end - range.start),
                _ => 0,
            },
        };
        let columns: Vec<BlockColumn> = self.chunk.columns.iter().map(column).collect();
        BlockLayout::new(row_count, &columns)
    }

    /// Writes a piece into a block and sends it.
    fn send(&self, queue: &Queue, producer: &OutboxProducer, piece: &Piece) -> Result<()> {
        let Piece { destination, rows, text } = piece;
        let layout =
            self.layout(rows.len(), text).ok_or_else(|| Error::internal("a block without a layout"))?;
        let block = producer.reserve(layout.bytes, queue.stream())?;
        queue.memory().upload_to(&layout.encode_head(), block.address(), queue.stream())?;
        let (first, row_count) = (rows.start as u64, rows.len() as u64);
        let mut ranges = Vec::new();
        let mut add = |source: u64, offset_bytes: u64, bytes: u64| {
            ranges.push(ByteRange { source, target: block.address() + offset_bytes, bytes });
        };
        let mut texts = self.texts.iter().zip(text);
        for (column, (_, parts)) in self.chunk.columns.iter().zip(&layout.columns) {
            let values = match column.cell_type {
                CellType::String => {
                    let Some((text, range)) = texts.next() else { break };
                    let source = text.packed.bytes.address() + range.start;
                    add(source, parts.text_offset_bytes, range.end - range.start);
                    &text.lengths
                }
                _ => &column.values,
            };
            let value_bytes = parts.values_bytes / row_count.max(1);
            add(values.address() + first * value_bytes, parts.values_offset_bytes, parts.values_bytes);
            if let Some(validity) = &column.validity {
                add(validity.address() + first, parts.validity_offset_bytes, row_count);
            }
        }
        queue.copy_ranges(&ranges)?;
        block.push(*destination)
    }
}

/// Rows cut into so many parts of about as many, each with one at least.
fn cut_rows(rows: &Range<usize>, parts: u64) -> impl Iterator<Item = Range<usize>> {
    let part = (rows.len() as u64).div_ceil(parts.max(1)).max(1) as usize;
    let end = rows.end;
    rows.clone().step_by(part).map(move |first| first..(first + part).min(end))
}

impl ReceivedBlock {
    /// Its rows, in memory of the queue's query. Waits for the device. The block's room is given again when the queue has copied it.
    ///
    /// # Errors
    ///
    /// As of [`BlockLayout::decode_head`] and [`Queue`].
    ///
    /// # Panics
    ///
    /// If it was taken for another stream than the queue's.
    pub fn unpack(self, queue: &Queue, types: &[DataType]) -> Result<Chunk> {
        assert_eq!(self.stream(), queue.stream(), "the stream that uses a block");
        let head_bytes = head_bytes(types.len()).min(self.bytes());
        let head: Vec<u8> =
            queue.memory().download_from(self.address(), head_bytes as usize, queue.stream())?;
        let layout = BlockLayout::decode_head(&head, self.bytes(), types)?;
        let bytes = layout.bytes - head_bytes;
        let parts = queue.allocate::<u8>(bytes)?;
        queue.copy(self.address() + head_bytes, parts.address(), bytes)?;
        drop(self);
        let part = |offset_bytes: u64, bytes: u64| parts.slice(offset_bytes - head_bytes, bytes);
        let row_count = layout.row_count;
        let column = |(data_type, (column, places)): (&DataType, &(BlockColumn, _))| {
            let BlockParts { values_offset_bytes, values_bytes, validity_offset_bytes, text_offset_bytes } =
                *places;
            let values = part(values_offset_bytes, values_bytes);
            let validity = column.is_nullable.then(|| part(validity_offset_bytes, row_count as u64));
            let (values, strings) = match column.cell_type {
                CellType::String => {
                    let text = part(text_offset_bytes, column.text_bytes);
                    (queue.place_text(&values, &text, row_count)?, vec![text])
                }
                _ => (values, Vec::new()),
            };
            let cell_type = column.cell_type;
            let column = Column { data_type: data_type.clone(), cell_type, values, validity, strings };
            if cell_type == CellType::String {
                queue.spoil_nulls(&column, row_count);
            }
            Ok(column)
        };
        let columns = types.iter().zip(&layout.columns).map(column).collect::<Result<_>>()?;
        Ok(Chunk { row_count, columns })
    }
}
