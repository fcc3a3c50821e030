//! Packing of rows into blocks.
//!
//! ```text
//! chunk ─ keys ─► whose each row is ─┬─► for each other rank blocks, all columns in one pass: cells, validity, lengths, text
//!                                    └─► this rank's own: a chunk
//! ```
//!
//! Cells of a fixed width are read once and written once, into their block; so are a text's bytes.
//! Only the cells of texts are put into the order of destinations before, since that order
//! determines the text bytes of a block. A rank's own rows go into no block, and their texts stay
//! in place. If integers are packed ([`Narrowing`]), the cells of all columns are put into that
//! order, and each block's are packed by themselves: they are read and written once more. Over
//! still slower links texts are compressed, too.
//!
//! - `outgoing.rs`: the outgoing columns of a chunk, and how they get into blocks; `texts.rs`: texts
//!
//! Callers collect rows before: a chunk becomes at least a block for every destination, and small
//! ones cost as many launches as large ones.
//!
//! Invariants: a row goes to the same rank whatever chunk it is in, and equal keys go together if
//! their columns have equal cell types on both sides (cells of 64 and 128 bits hash differently). A
//! producer with unpushed blocks does not wait for more.
//!
//! Deliberately absent: dictionaries, whose codes were turned into cells before.

mod outgoing;
mod texts;

use std::ops::Range;

use pystachio_plan::{Error, ErrorKind, Result};

use self::outgoing::OutgoingChunk;
use super::{Destination, Narrowing, OutboxProducer, OutgoingBlock, Rank, ReachedRanks, block::BlockLayout};
use crate::{
    device::{Buffer, Chunk, Column},
    operation::{
        CompressedText, EXCHANGE_LEVEL, HashPartitioning, PARTITIONS_MAX, Packing, Queue, RowOwners,
        SCATTER_TARGETS_MAX, StayingRows,
    },
};

/// Smaller chunks are packed only if the option says always: packing takes a wait and two launches
/// more, some 40 µs, in which a link of 25 GB/s moves this many bytes.
const NARROWED_BYTES_MIN: u64 = 1 << 20;

/// The partitioning of rows over ranks.
#[derive(Clone, Debug)]
pub enum Routing<'a> {
    /// By the hash of keys, over the reachable ranks; key columns with as many rows as the chunk.
    Hash {
        /// The keys.
        keys: &'a [Column],
        /// See [`HashPartitioning::nulls_match`].
        nulls_match: bool,
        /// A byte a row, not 0 for rows that stay on this rank whatever their keys; absent if keys
        /// decide for all rows.
        staying: Option<&'a Buffer>,
    },
    /// All of them to every reachable rank.
    Broadcast,
    /// All of them to one.
    Gather(Rank),
}

/// Rows of a chunk, and their receiver.
type Share = (Destination, Range<usize>);

/// Some rows of a chunk that make a block.
#[derive(Clone, Debug)]
struct Piece {
    destination: Destination,
    rows: Range<usize>,
    /// The bounds of each text column's text, within the chunk's.
    text: Vec<Range<u64>>,
    /// The packing of each column; empty if none is packed.
    packings: Vec<PiecePackings>,
    /// The text of each text column, compressed if that pays; empty if none is.
    compressed: Vec<Option<CompressedText>>,
}

/// How outgoing rows of a chunk are reduced, as far as that pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// Not at all.
    Nothing,
    /// Integers are packed.
    Integers,
    /// And texts are compressed.
    IntegersAndTexts,
}

/// The packing of a block's part of a column; `None` if it is not packed.
#[derive(Clone, Copy, Debug, Default)]
struct PiecePackings {
    values: Option<Packing>,
    validity: Option<Packing>,
}

/// A block that is filled with a piece.
struct FilledBlock<'a> {
    piece: &'a Piece,
    layout: BlockLayout,
    block: OutgoingBlock,
}

impl OutboxProducer {
    /// Sends the rows of a chunk, this rank's own included. Waits for the device if rows are
    /// partitioned, are packed or have text, and for room like [`OutboxProducer::reserve`]. All
    /// chunks of one producer go through one queue.
    ///
    /// # Errors
    ///
    /// Errors of [`OutboxProducer::reserve`] and [`Queue`]; `NotSupported` for a row that is larger
    /// than a block, and for more ranks than rows can be partitioned over.
    pub fn send(&self, queue: &Queue, chunk: &Chunk, routing: &Routing) -> Result<()> {
        self.send_shares(queue, chunk, routing, None).map(drop)
    }

    /// Sends a chunk's rows for other ranks, like [`OutboxProducer::send`]. Returns this rank's
    /// own, in memory of the queue's query, after the work enqueued so far; `None` if there are
    /// none.
    ///
    /// # Errors
    ///
    /// Errors of [`OutboxProducer::send`].
    pub fn send_to_others(&self, queue: &Queue, chunk: &Chunk, routing: &Routing) -> Result<Option<Chunk>> {
        self.send_shares(queue, chunk, routing, Some(self.rank()))
    }

    /// Sends the rows of a chunk, except those of a rank that keeps its own.
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
        // If rows are not partitioned, the whole chunk is kept.
        let (owners, shares, kept) = match routing {
            Routing::Broadcast if keeping.is_none() => (None, whole(Destination::All), None),
            Routing::Broadcast if self.reached().count() == 1 => (None, Vec::new(), Some(chunk)),
            Routing::Broadcast => (None, whole(Destination::Others), Some(chunk)),
            Routing::Gather(rank) if keeping == Some(*rank) => (None, Vec::new(), Some(chunk)),
            Routing::Gather(rank) => (None, whole(Destination::Rank(*rank)), None),
            Routing::Hash { keys, nulls_match, staying } => {
                let staying = staying.map(|flags| StayingRows { flags, owner: self.rank().place() });
                let owners = self.assign_owners(queue, chunk.row_count, (*keys, *nulls_match, staying))?;
                let shares = shares_of(&owners, self.reached())?;
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
        let compression = self.compression(chunk, &shares);
        let outgoing = match OutgoingChunk::new(queue, chunk, owners.clone(), compression) {
            // Ordering cells takes memory for all of them.
            Err(error) if error.kind == ErrorKind::OutOfMemory && compression != Compression::Nothing => {
                OutgoingChunk::new(queue, chunk, owners, Compression::Nothing)?
            }
            outgoing => outgoing?,
        };
        let owned = outgoing.send(queue, self, (shares, owned))?;
        Ok(owned.or_else(|| kept.cloned()))
    }

    /// How to reduce outgoing rows of a chunk. Rows that this rank sends to itself, for lack of
    /// memory, use no link.
    fn compression(&self, chunk: &Chunk, shares: &[Share]) -> Compression {
        let own = Destination::Rank(self.rank());
        let leaves = || shares.iter().any(|(destination, _)| *destination != own);
        let bytes = || chunk.row_count as u64 * chunk.columns.iter().map(cell_bytes).sum::<u64>();
        match self.narrowing() {
            Narrowing::Always => Compression::IntegersAndTexts,
            Narrowing::OverSlowLinks if self.link_is_slow() && leaves() && bytes() >= NARROWED_BYTES_MIN => {
                match self.link_is_very_slow() {
                    true => Compression::IntegersAndTexts,
                    false => Compression::Integers,
                }
            }
            Narrowing::OverSlowLinks | Narrowing::Never => Compression::Nothing,
        }
    }

    fn assign_owners(
        &self,
        queue: &Queue,
        row_count: usize,
        (keys, nulls_match, staying): (&[Column], bool, Option<StayingRows<'_>>),
    ) -> Result<RowOwners> {
        let partition_count = self.reached().partition_count();
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
            staying,
        )
    }
}

/// The rank of each range of rows in the order of owners.
fn shares_of(owners: &RowOwners, reached: ReachedRanks) -> Result<Vec<Share>> {
    let share = |(partition, bounds): (usize, &[usize])| match bounds {
        [first, end] if first < end => {
            let owner = reached.owner(partition).map(Destination::Rank);
            Some(owner.map(|owner| (owner, *first..*end)))
        }
        _ => None,
    };
    owners.bounds.windows(2).enumerate().filter_map(share).collect()
}

/// Bytes of a cell.
fn cell_bytes(column: &Column) -> u64 {
    column.cell_type.bytes().into()
}

impl OutgoingChunk {
    /// Cuts ranges of rows into pieces that fit into blocks unpacked, in their order, which bounds
    /// the memory of unpacking. Waits if there is text, and if they are packed.
    fn pieces(&self, queue: &Queue, ranges: Vec<Share>, block_bytes_max: u64) -> Result<Vec<Piece>> {
        let mut ranges = ranges;
        // Each time a piece is too large, it keeps at most half of its rows, down to one.
        loop {
            let mut pieces = self.measure(queue, &ranges)?;
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in &pieces {
                let (layout, Piece { destination, rows, .. }) = (self.layout(piece), piece);
                let parts = layout.map_or(u64::MAX, |layout| layout.wide_bytes.div_ceil(block_bytes_max));
                if parts > 1 && rows.len() == 1 {
                    let message = format!(
                        "a row is larger than a block of an exchange: block_bytes_max={block_bytes_max}"
                    );
                    return Err(Error::new(ErrorKind::NotSupported, message));
                }
                cut.extend(cut_rows(rows, parts).map(|rows| (*destination, rows)));
            }
            if cut.len() == pieces.len() {
                self.measure_packings(queue, &mut pieces)?;
                self.compress_texts(queue, &mut pieces)?;
                return Ok(pieces);
            }
            ranges = cut;
        }
    }

    /// Sends shares: fills as many blocks at once as there is room for without a wait. Rows that
    /// stay are copied with the first of them.
    fn send(
        &self,
        queue: &Queue,
        producer: &OutboxProducer,
        (shares, owned): (Vec<Share>, Option<Range<usize>>),
    ) -> Result<Option<Chunk>> {
        let pieces = self.pieces(queue, shares, producer.block_bytes_max())?;
        let owned = owned.map(|rows| self.owned_rows(queue, rows)).transpose()?;
        let mut pieces = pieces.as_slice();
        let mut unwritten = owned.as_ref();
        while !pieces.is_empty() || unwritten.is_some() {
            let mut filled: Vec<FilledBlock<'_>> = Vec::new();
            for piece in pieces.iter().take(SCATTER_TARGETS_MAX - usize::from(unwritten.is_some())) {
                let layout = self.layout(piece);
                let layout = layout.ok_or_else(|| Error::internal("a block without a layout"))?;
                let block = match filled.is_empty() {
                    true => Some(producer.reserve(layout.bytes, queue.stream())?),
                    false => producer.try_reserve(layout.bytes, queue.stream())?,
                };
                let Some(block) = block else { break };
                filled.push(FilledBlock { piece, layout, block });
            }
            self.fill(queue, &filled, unwritten.take())?;
            pieces = pieces.get(filled.len()..).unwrap_or_default();
            for FilledBlock { piece, layout, block } in filled {
                block.of_wide_bytes(layout.wide_bytes).push(piece.destination)?;
            }
        }
        Ok(owned.map(|owned| owned.finish(queue)))
    }
}

/// Rows cut into so many parts of about as many, each with one at least.
fn cut_rows(rows: &Range<usize>, parts: u64) -> impl Iterator<Item = Range<usize>> {
    let part = (rows.len() as u64).div_ceil(parts.max(1)).max(1) as usize;
    let end = rows.end;
    rows.clone().step_by(part).map(move |first| first..(first + part).min(end))
}
