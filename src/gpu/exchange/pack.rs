//! Rows into blocks and back.
//!
//! ```text
//! chunk ─ keys ─► whose each row is ─► for each destination blocks, all columns in one pass: cells, validity, lengths, text
//! chunk ◄─ cells of text by lengths ◄─ copy ◄─ block
//! ```
//!
//! A cell of a fixed width is read once and written once, in its block; a text's bytes too. Only the cells of texts are put in
//! the order of destinations before, since how much text a block has is known by that order.
//!
//! Rows are collected before they get here: a chunk becomes a block or more for every destination, and small ones cost as
//! many launches as large ones.
//!
//! Invariants: a row goes to the same rank whatever chunk it is in, and equal keys go together if their columns have equal cell types on
//! both sides (cells of 64 and 128 bits hash differently). A producer that has blocks which it has not pushed does not wait for more.
//!
//! Deliberately absent: narrowing of values; dictionaries, whose codes are cells by now.

use std::ops::Range;

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    BLOCK_ALIGNMENT, Destination, OutboxProducer, OutgoingBlock, Rank, ReceivedBlock,
    block::{BlockColumn, BlockLayout, BlockParts, head_bytes},
};
use crate::{
    device::{CellType, Chunk, Column},
    operation::{
        ByteRange, DEAL_BLOCKS_MAX, DealTarget, DealTargetPart, EXCHANGE_LEVEL, HashPartitioning,
        MeasuredText, PARTITIONS_MAX, Queue, RowOwners,
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

/// A block that is filled with a piece.
struct FilledBlock<'a> {
    piece: &'a Piece,
    layout: BlockLayout,
    block: OutgoingBlock,
}

/// A chunk whose rows have been given an order in which they leave.
struct LeavingChunk {
    chunk: Chunk,
    /// Whose rows are whose, where they are spread; otherwise they leave in their own order.
    owners: Option<RowOwners>,
    /// Of each text column.
    texts: Vec<LeavingText>,
}

/// A text column in the order in which its rows leave.
struct LeavingText {
    column: Column,
    measured: MeasuredText,
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
        let (owners, ranges) = match routing {
            Routing::Broadcast => (None, whole(Destination::All)),
            Routing::Gather(rank) => (None, whole(Destination::Rank(*rank))),
            Routing::Hash { keys, nulls_match } => {
                let owners = self.assign_owners(queue, chunk.row_count, (*keys, *nulls_match))?;
                let ranges = shares_of(&owners);
                (Some(owners), ranges)
            }
        };
        let leaving = LeavingChunk::new(queue, chunk, owners)?;
        leaving.send(queue, self, &leaving.pieces(queue, ranges, self.block_bytes_max())?)
    }

    fn assign_owners(
        &self,
        queue: &Queue,
        row_count: usize,
        (keys, nulls_match): (&[Column], bool),
    ) -> Result<RowOwners> {
        let partition_count = self.rank_count();
        if partition_count > PARTITIONS_MAX {
            let message = format!(
                "rows are not spread over as many ranks: ranks={partition_count}, limit={PARTITIONS_MAX}"
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        queue.assign_owners(
            keys,
            row_count,
            HashPartitioning { partition_count, level: EXCHANGE_LEVEL, nulls_match },
        )
    }
}

/// Which rows in the order of owners are whose.
fn shares_of(owners: &RowOwners) -> Vec<Share> {
    let share = |(rank, bounds): (u16, &[usize])| match bounds {
        [first, end] if first < end => Some((Destination::Rank(Rank(rank)), *first..*end)),
        _ => None,
    };
    (0..).zip(owners.bounds.windows(2)).filter_map(share).collect()
}

fn is_text(column: &Column) -> bool {
    column.cell_type == CellType::String
}

impl LeavingChunk {
    fn new(queue: &Queue, chunk: &Chunk, owners: Option<RowOwners>) -> Result<Self> {
        let texts: Vec<&Column> = chunk.columns.iter().filter(|column| is_text(column)).collect();
        let ordered = match &owners {
            Some(owners) => order_cells(queue, owners, &texts, chunk.row_count)?,
            None => texts.into_iter().cloned().collect(),
        };
        let measure = |column: Column| {
            let measured = queue.measure_text(&column, chunk.row_count)?;
            Ok(LeavingText { column, measured })
        };
        let texts = ordered.into_iter().map(measure).collect::<Result<_>>()?;
        Ok(Self { chunk: chunk.clone(), owners, texts })
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
        for LeavingText { measured, .. } in &self.texts {
            let bounds = measured.bounds(queue, &rows, self.chunk.row_count)?;
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

    /// Sends pieces: fills as many blocks at once as there is room for without a wait.
    fn send(&self, queue: &Queue, producer: &OutboxProducer, pieces: &[Piece]) -> Result<()> {
        let mut pieces = pieces;
        while !pieces.is_empty() {
            let mut filled: Vec<FilledBlock<'_>> = Vec::new();
            for piece in pieces.iter().take(DEAL_BLOCKS_MAX) {
                let layout = self.layout(piece.rows.len(), &piece.text);
                let layout = layout.ok_or_else(|| Error::internal("a block without a layout"))?;
                let block = match filled.is_empty() {
                    true => Some(producer.reserve(layout.bytes, queue.stream())?),
                    false => producer.try_reserve(layout.bytes, queue.stream())?,
                };
                let Some(block) = block else { break };
                filled.push(FilledBlock { piece, layout, block });
            }
            self.fill(queue, &filled)?;
            pieces = pieces.get(filled.len()..).unwrap_or_default();
            for FilledBlock { piece, block, .. } in filled {
                block.push(piece.destination)?;
            }
        }
        Ok(())
    }

    /// Writes pieces into their blocks.
    fn fill(&self, queue: &Queue, filled: &[FilledBlock<'_>]) -> Result<()> {
        let mut ranges = Vec::new();
        for FilledBlock { piece, layout, block } in filled {
            queue.memory().upload_to(&layout.encode_head(), block.address(), queue.stream())?;
            self.copy_texts(queue, (piece, layout), block.address(), &mut ranges)?;
        }
        let fixed: Vec<&Column> = self.chunk.columns.iter().filter(|column| !is_text(column)).collect();
        match &self.owners {
            Some(owners) => {
                let targets: Vec<DealTarget> = filled.iter().map(FilledBlock::target).collect();
                queue.deal(owners, &fixed, &targets)?;
            }
            None => {
                for FilledBlock { piece, layout, block } in filled {
                    for (column, (_, parts)) in fixed.iter().zip(layout.parts_of_cells()) {
                        let source = (column.values.address(), u64::from(column.cell_type.bytes()));
                        add_cells(&mut ranges, (piece, parts), source, column, block.address());
                    }
                }
            }
        }
        queue.copy_ranges(&ranges)
    }

    /// Copies the texts of a piece; of their lengths and validity it says what is to be copied.
    fn copy_texts(
        &self,
        queue: &Queue,
        (piece, layout): (&Piece, &BlockLayout),
        address: u64,
        ranges: &mut Vec<ByteRange>,
    ) -> Result<()> {
        let columns = layout.columns.iter().filter(|(column, _)| column.cell_type == CellType::String);
        for ((LeavingText { column, measured }, text), (_, parts)) in
            self.texts.iter().zip(&piece.text).zip(columns)
        {
            let lengths = (measured.lengths.address(), size_of::<u32>() as u64);
            add_cells(ranges, (piece, parts), lengths, column, address);
            let target = address + parts.text_offset_bytes;
            queue.copy_text_of(column, measured, piece.rows.clone(), text.start, target)?;
        }
        Ok(())
    }
}

impl FilledBlock<'_> {
    /// Where the cells of its columns go, but for text.
    fn target(&self) -> DealTarget {
        let part = |(_, parts): &(BlockColumn, BlockParts)| DealTargetPart {
            values_offset_bytes: parts.values_offset_bytes,
            validity_offset_bytes: parts.validity_offset_bytes,
        };
        DealTarget {
            rows: self.piece.rows.clone(),
            address: self.block.address(),
            parts: self.layout.parts_of_cells().map(part).collect(),
        }
    }
}

/// Adds what copies the values of a piece, and their validity where there is one, into a block.
fn add_cells(
    ranges: &mut Vec<ByteRange>,
    (piece, parts): (&Piece, &BlockParts),
    (values, value_bytes): (u64, u64),
    column: &Column,
    address: u64,
) {
    let (first, row_count) = (piece.rows.start as u64, piece.rows.len() as u64);
    let mut add = |source: u64, offset_bytes: u64, bytes: u64| {
        ranges.push(ByteRange { source, target: address + offset_bytes, bytes });
    };
    add(values + first * value_bytes, parts.values_offset_bytes, parts.values_bytes);
    if let Some(validity) = &column.validity {
        add(validity.address() + first, parts.validity_offset_bytes, row_count);
    }
}

/// The cells of columns, and their validity, in the order of owners. What cells point to they keep.
fn order_cells(
    queue: &Queue,
    owners: &RowOwners,
    columns: &[&Column],
    row_count: usize,
) -> Result<Vec<Column>> {
    let mut end = 0;
    let mut place = |bytes: u64| {
        let start = end;
        end = (start + bytes).next_multiple_of(BLOCK_ALIGNMENT);
        start
    };
    let rows = row_count as u64;
    let part = |column: &&Column| DealTargetPart {
        values_offset_bytes: place(rows * u64::from(column.cell_type.bytes())),
        validity_offset_bytes: if column.validity.is_some() { place(rows) } else { 0 },
    };
    let parts: Vec<DealTargetPart> = columns.iter().map(part).collect();
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let cells = queue.allocate::<u8>(end)?;
    let target = DealTarget { rows: 0..row_count, address: cells.address(), parts };
    queue.deal(owners, columns, std::slice::from_ref(&target))?;
    let ordered = |(column, part): (&&Column, &DealTargetPart)| {
        let column = Column {
            values: cells.slice(part.values_offset_bytes, rows * u64::from(column.cell_type.bytes())),
            validity: column.validity.as_ref().map(|_| cells.slice(part.validity_offset_bytes, rows)),
            ..(*column).clone()
        };
        queue.spoil_nulls(&column, row_count);
        column
    };
    Ok(columns.iter().zip(&target.parts).map(ordered).collect())
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
            queue.spoil_nulls(&column, row_count);
            Ok(column)
        };
        let columns = types.iter().zip(&layout.columns).map(column).collect::<Result<_>>()?;
        Ok(Chunk { row_count, columns })
    }
}
