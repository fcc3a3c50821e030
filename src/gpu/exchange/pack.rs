//! Rows into blocks.
//!
//! ```text
//! chunk ─ keys ─► whose each row is ─┬─► for each other rank blocks, all columns in one pass: cells, validity, lengths, text
//!                                    └─► in the same pass this rank's own: a chunk
//! ```
//!
//! A cell of a fixed width is read once and written once, in its block; a text's bytes too. Only the cells of texts are put in
//! the order of destinations before, since how much text a block has is known by that order. A rank's own rows are in no block, and their
//! texts stay where they are.
//!
//! Rows are collected before they get here: a chunk becomes a block or more for every destination, and small ones cost as
//! many launches as large ones.
//!
//! Invariants: a row goes to the same rank whatever chunk it is in, and equal keys go together if their columns have equal cell types on
//! both sides (cells of 64 and 128 bits hash differently). A producer that has blocks which it has not pushed does not wait for more.
//!
//! Deliberately absent: narrowing of values; dictionaries, whose codes are cells by now.

use std::ops::Range;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    BLOCK_ALIGNMENT, Destination, OutboxProducer, OutgoingBlock, Rank,
    block::{BlockColumn, BlockLayout, BlockParts},
};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
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

/// Rows of a chunk that stay here.
struct OwnedRows {
    chunk: Chunk,
    /// Where their cells go, but for text.
    target: DealTarget,
}

impl OwnedRows {
    /// The rows, when their cells have been dealt.
    fn finish(self, queue: &Queue) -> Chunk {
        self.chunk.columns.iter().for_each(|column| queue.spoil_nulls(column, self.chunk.row_count));
        self.chunk
    }
}

/// Parts of one piece of memory, one after another.
#[derive(Default)]
struct Places {
    end: u64,
}

impl Places {
    fn next(&mut self, bytes: u64) -> u64 {
        let start = self.end;
        self.end = (start + bytes).next_multiple_of(BLOCK_ALIGNMENT);
        start
    }

    /// For the cells of so many rows of a column, and their validity.
    fn part(&mut self, column: &Column, row_count: u64) -> DealTargetPart {
        DealTargetPart {
            values_offset_bytes: self.next(row_count * u64::from(column.cell_type.bytes())),
            validity_offset_bytes: if column.validity.is_some() { self.next(row_count) } else { 0 },
        }
    }
}

/// A column like another one, of the rows that lie in a part of memory.
fn part_of_memory(memory: &Buffer, like: &Column, (part, row_count): (DealTargetPart, usize)) -> Column {
    let rows = row_count as u64;
    Column {
        values: memory.slice(part.values_offset_bytes, rows * u64::from(like.cell_type.bytes())),
        validity: like.validity.as_ref().map(|_| memory.slice(part.validity_offset_bytes, rows)),
        ..like.clone()
    }
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
    /// Sends the rows of a chunk, this rank's own included. Waits for the device where rows are spread or have text, and for room as
    /// [`OutboxProducer::reserve`]. All chunks of one producer go through one queue.
    ///
    /// # Errors
    ///
    /// As of [`OutboxProducer::reserve`] and [`Queue`]; `NotSupported` for a row that is larger than a block, and for more ranks than
    /// rows are spread over.
    pub fn send(&self, queue: &Queue, chunk: &Chunk, routing: &Routing) -> Result<()> {
        self.send_shares(queue, chunk, routing, None).map(drop)
    }

    /// Sends the rows of a chunk that other ranks get, as [`OutboxProducer::send`] does. This rank's own are returned, in memory of the queue's query
    /// after what the queue was given; `None` if there are none.
    ///
    /// # Errors
    ///
    /// As of [`OutboxProducer::send`].
    pub fn send_to_others(&self, queue: &Queue, chunk: &Chunk, routing: &Routing) -> Result<Option<Chunk>> {
        self.send_shares(queue, chunk, routing, Some(self.rank()))
    }

    /// Sends the rows of a chunk, but for those of a rank that keeps its own.
    fn send_shares(
        &self,
        queue: &Queue,
        chunk: &Chunk,
        routing: &Routing,
        keeping: Option<Rank>,
    ) -> Result<Option<Chunk>> {
        if chunk.row_count == 0 || !self.is_wanted() {
            return Ok(None);
        }
        let whole = |destination| vec![(destination, 0..chunk.row_count)];
        // Of rows that are not spread, the whole chunk is kept.
        let (owners, shares, kept) = match routing {
            Routing::Broadcast if keeping.is_none() => (None, whole(Destination::All), None),
            Routing::Broadcast if self.rank_count() == 1 => (None, Vec::new(), Some(chunk)),
            Routing::Broadcast => (None, whole(Destination::Others), Some(chunk)),
            Routing::Gather(rank) if keeping == Some(*rank) => (None, Vec::new(), Some(chunk)),
            Routing::Gather(rank) => (None, whole(Destination::Rank(*rank)), None),
            Routing::Hash { keys, nulls_match } => {
                let owners = self.assign_owners(queue, chunk.row_count, (*keys, *nulls_match))?;
                let shares = shares_of(&owners);
                (Some(owners), shares, None)
            }
        };
        if shares.is_empty() {
            return Ok(kept.cloned());
        }
        let own = keeping.map(Destination::Rank);
        let (owned, shares): (Vec<Share>, _) =
            shares.into_iter().partition(|(destination, _)| Some(*destination) == own);
        let owned = owned.into_iter().next().map(|(_, rows)| rows);
        let owned = LeavingChunk::new(queue, chunk, owners)?.send(queue, self, (shares, owned))?;
        Ok(owned.or_else(|| kept.cloned()))
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

    /// Sends shares: fills as many blocks at once as there is room for without a wait. What stays is dealt with the first of them.
    fn send(
        &self,
        queue: &Queue,
        producer: &OutboxProducer,
        (shares, owned): (Vec<Share>, Option<Range<usize>>),
    ) -> Result<Option<Chunk>> {
        let pieces = self.pieces(queue, shares, producer.block_bytes_max())?;
        let owned = owned.map(|rows| self.owned_rows(queue, rows)).transpose()?;
        let mut pieces = pieces.as_slice();
        let mut undealt = owned.as_ref();
        while !pieces.is_empty() || undealt.is_some() {
            let mut filled: Vec<FilledBlock<'_>> = Vec::new();
            for piece in pieces.iter().take(DEAL_BLOCKS_MAX - usize::from(undealt.is_some())) {
                let layout = self.layout(piece.rows.len(), &piece.text);
                let layout = layout.ok_or_else(|| Error::internal("a block without a layout"))?;
                let block = match filled.is_empty() {
                    true => Some(producer.reserve(layout.bytes, queue.stream())?),
                    false => producer.try_reserve(layout.bytes, queue.stream())?,
                };
                let Some(block) = block else { break };
                filled.push(FilledBlock { piece, layout, block });
            }
            self.fill(queue, &filled, undealt.take())?;
            pieces = pieces.get(filled.len()..).unwrap_or_default();
            for FilledBlock { piece, block, .. } in filled {
                block.push(piece.destination)?;
            }
        }
        Ok(owned.map(|owned| owned.finish(queue)))
    }

    /// Memory for rows that stay. What they have of text is in it afterwards.
    fn owned_rows(&self, queue: &Queue, rows: Range<usize>) -> Result<OwnedRows> {
        let row_count = rows.len() as u64;
        let mut places = Places::default();
        let parts: Vec<DealTargetPart> =
            self.chunk.columns.iter().map(|column| places.part(column, row_count)).collect();
        let memory = queue.allocate::<u8>(places.end)?;
        let mut texts = self.texts.iter();
        let (mut columns, mut fixed, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for (column, part) in self.chunk.columns.iter().zip(&parts) {
            let owned = part_of_memory(&memory, column, (*part, rows.len()));
            match is_text(column) {
                true => {
                    let LeavingText { column: ordered, .. } =
                        texts.next().ok_or_else(|| Error::internal("a text column without an order"))?;
                    add_owned_cells(&mut ranges, ordered, &owned, rows.start);
                }
                false => fixed.push(*part),
            }
            columns.push(owned);
        }
        queue.copy_ranges(&ranges)?;
        let target = DealTarget { rows: rows.clone(), address: memory.address(), parts: fixed };
        Ok(OwnedRows { chunk: Chunk { row_count: rows.len(), columns }, target })
    }

    /// Writes pieces into their blocks, and rows that stay into their memory.
    fn fill(&self, queue: &Queue, filled: &[FilledBlock<'_>], owned: Option<&OwnedRows>) -> Result<()> {
        let mut ranges = Vec::new();
        for FilledBlock { piece, layout, block } in filled {
            queue.memory().upload_to(&layout.encode_head(), block.address(), queue.stream())?;
            self.copy_texts(queue, (piece, layout), block.address(), &mut ranges)?;
        }
        let fixed: Vec<&Column> = self.chunk.columns.iter().filter(|column| !is_text(column)).collect();
        match &self.owners {
            Some(owners) => {
                let mut targets: Vec<DealTarget> = filled.iter().map(FilledBlock::target).collect();
                if let Some(OwnedRows { target, .. }) = owned {
                    let place = targets.partition_point(|other| other.rows.start < target.rows.start);
                    targets.insert(place, target.clone());
                }
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

/// Adds what copies the cells of rows that stay, which begin at a place in the order of owners, and their validity.
fn add_owned_cells(ranges: &mut Vec<ByteRange>, ordered: &Column, owned: &Column, first_row: usize) {
    let mut add = |source: &Buffer, target: &Buffer, cell_bytes: u64| {
        let source = source.address() + first_row as u64 * cell_bytes;
        ranges.push(ByteRange { source, target: target.address(), bytes: target.bytes() });
    };
    add(&ordered.values, &owned.values, u64::from(owned.cell_type.bytes()));
    if let (Some(source), Some(target)) = (&ordered.validity, &owned.validity) {
        add(source, target, 1);
    }
}

/// The cells of columns, and their validity, in the order of owners. What cells point to they keep.
fn order_cells(
    queue: &Queue,
    owners: &RowOwners,
    columns: &[&Column],
    row_count: usize,
) -> Result<Vec<Column>> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = Places::default();
    let parts: Vec<DealTargetPart> =
        columns.iter().map(|column| places.part(column, row_count as u64)).collect();
    let cells = queue.allocate::<u8>(places.end)?;
    let target = DealTarget { rows: 0..row_count, address: cells.address(), parts };
    queue.deal(owners, columns, std::slice::from_ref(&target))?;
    let ordered = |(column, part): (&&Column, &DealTargetPart)| {
        let column = part_of_memory(&cells, column, (*part, row_count));
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
