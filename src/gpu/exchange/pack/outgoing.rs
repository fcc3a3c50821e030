//! The outgoing columns of a chunk, and how they get into blocks.
//!
//! ```text
//! cells ────────────┬─────────────────────────────────────────────► values of a block
//! texts ─► lengths ─┴─► in the order in which they leave ─► packed ─┘
//!      └─► bytes ──────────────────┬──────────────────────────────► text of a block
//!                                  └─► compressed in pieces ──────┘
//! ```
//!
//! Cells that are not packed are copied directly into their blocks. Cells to be packed are put into
//! the order of destinations first: each block's are packed by themselves, as their values allow.
//!
//! Invariants: a NULL text has length 0. Rows that stay are never packed.

use std::ops::Range;

use pystachio_plan::{DataType, Error, Result};

use super::{Compression, FilledBlock, Piece, PiecePackings, Share, cell_bytes};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    exchange::{
        BLOCK_ALIGNMENT,
        block::{BlockColumn, BlockLayout, BlockParts},
    },
    operation::{
        ByteRange, CellRange, MeasuredText, PackRange, Packing, Queue, RowOwners, ScatterTarget,
        ScatterTargetPart,
    },
};

/// Rows of a chunk that stay here.
pub(super) struct OwnedRows {
    chunk: Chunk,
    /// The targets of their cells; text stays in place.
    target: ScatterTarget,
}

impl OwnedRows {
    /// The rows, after their cells were copied.
    pub(super) fn finish(self, queue: &Queue) -> Chunk {
        self.chunk.columns.iter().for_each(|column| queue.poison_nulls(column, self.chunk.row_count));
        self.chunk
    }
}

/// Parts of one piece of memory, one after another.
#[derive(Default)]
pub(super) struct Places {
    pub(super) end: u64,
}

impl Places {
    pub(super) fn next(&mut self, bytes: u64) -> u64 {
        let start = self.end;
        self.end = (start + bytes).next_multiple_of(BLOCK_ALIGNMENT);
        start
    }

    /// For the cells of so many rows of a column, and their validity.
    fn part(&mut self, column: &Column, row_count: u64) -> ScatterTargetPart {
        ScatterTargetPart {
            values_offset_bytes: self.next(row_count * u64::from(column.cell_type.bytes())),
            validity_offset_bytes: if column.validity.is_some() { self.next(row_count) } else { 0 },
        }
    }
}

/// A column like another one, of the rows that lie in a part of memory.
fn part_of_memory(memory: &Buffer, like: &Column, (part, row_count): (ScatterTargetPart, usize)) -> Column {
    let rows = row_count as u64;
    Column {
        values: memory.slice(part.values_offset_bytes, rows * u64::from(like.cell_type.bytes())),
        validity: like.validity.as_ref().map(|_| memory.slice(part.validity_offset_bytes, rows)),
        ..like.clone()
    }
}

/// A chunk with an order of destinations for its rows.
pub(super) struct OutgoingChunk {
    chunk: Chunk,
    /// The owners of its rows, if they are copied directly into blocks; otherwise columns are in
    /// the order of destinations.
    owners: Option<RowOwners>,
    columns: Vec<OutgoingColumn>,
    pub(super) compression: Compression,
}

/// An outgoing column.
struct OutgoingColumn {
    /// A block's content of each row: cells with their validity, or lengths of text in the order of
    /// destinations.
    values: Column,
    text: Option<OutgoingText>,
}

/// A text column in the order of destinations.
pub(super) struct OutgoingText {
    pub(super) column: Column,
    pub(super) measured: MeasuredText,
}

impl OutgoingColumn {
    fn of_text(queue: &Queue, column: Column, row_count: usize) -> Result<Self> {
        let measured = queue.measure_text(&column, row_count)?;
        // A NULL's length is 0, and counts.
        let lengths = Column {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values: measured.lengths.clone(),
            validity: None,
            strings: Vec::new(),
        };
        Ok(Self { values: lengths, text: Some(OutgoingText { column, measured }) })
    }

    /// The column itself, of cells.
    fn cells(&self) -> &Column {
        self.text.as_ref().map_or(&self.values, |text| &text.column)
    }

    /// Columns that may be packed, of rows in the order of destinations: values, and validity as
    /// values of bool.
    fn ranges(&self, rows: &Range<usize>) -> (CellRange, Option<CellRange>) {
        let (first, row_count) = (rows.start as u64, rows.len() as u64);
        let start_of = |flags: &Buffer| flags.address() + first;
        let values = CellRange {
            cells: self.values.values.address() + first * cell_bytes(&self.values),
            validity: self.values.validity.as_ref().map(start_of),
            row_count,
            cell_type: self.values.cell_type,
        };
        let flags = self.cells().validity.as_ref().map(|flags| CellRange {
            cells: start_of(flags),
            validity: None,
            row_count,
            cell_type: CellType::Bool,
        });
        (values, flags)
    }
}

fn is_text(column: &Column) -> bool {
    column.cell_type == CellType::String
}

impl OutgoingChunk {
    /// The rows of a chunk, partitioned or not, packed or not. Waits if there is text.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub(super) fn new(
        queue: &Queue,
        chunk: &Chunk,
        owners: Option<RowOwners>,
        compression: Compression,
    ) -> Result<Self> {
        let is_packed = compression != Compression::Nothing;
        let is_ordered = |column: &Column| is_packed || is_text(column);
        let columns: Vec<&Column> = chunk.columns.iter().filter(|column| is_ordered(column)).collect();
        let ordered = match &owners {
            Some(owners) => order_cells(queue, owners, &columns, chunk.row_count)?,
            None => columns.into_iter().cloned().collect(),
        };
        let mut ordered = ordered.into_iter();
        let outgoing = |column: &Column| {
            let values = match is_ordered(column) {
                true => ordered.next().ok_or_else(|| Error::internal("a column without an order"))?,
                false => column.clone(),
            };
            match is_text(column) {
                true => OutgoingColumn::of_text(queue, values, chunk.row_count),
                false => Ok(OutgoingColumn { values, text: None }),
            }
        };
        let columns = chunk.columns.iter().map(outgoing).collect::<Result<_>>()?;
        let owners = owners.filter(|_| !is_packed);
        Ok(Self { chunk: chunk.clone(), owners, columns, compression })
    }

    /// Finds the best packing of each piece, if there is to be one; waits then.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub(super) fn measure_packings(&self, queue: &Queue, pieces: &mut [Piece]) -> Result<()> {
        if self.compression == Compression::Nothing {
            return Ok(());
        }
        let ranges = |piece: &Piece| self.columns.iter().map(|column| column.ranges(&piece.rows)).collect();
        let ranges: Vec<Vec<(CellRange, Option<CellRange>)>> = pieces.iter().map(ranges).collect();
        let all: Vec<CellRange> = ranges
            .iter()
            .flatten()
            .flat_map(|(values, flags)| std::iter::once(*values).chain(*flags))
            .collect();
        let mut packings = queue.measure_packings(&all)?.into_iter();
        let mut next = || packings.next().flatten();
        for (piece, ranges) in pieces.iter_mut().zip(&ranges) {
            let packing = |(_, flags): &(CellRange, Option<CellRange>)| PiecePackings {
                values: next(),
                validity: flags.and_then(|_| next()),
            };
            piece.packings = ranges.iter().map(packing).collect();
        }
        Ok(())
    }

    /// Its columns of text.
    pub(super) fn texts(&self) -> impl Iterator<Item = &OutgoingText> {
        self.columns.iter().filter_map(|column| column.text.as_ref())
    }

    /// Measures the text of ranges.
    pub(super) fn measure(&self, queue: &Queue, ranges: &[Share]) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = ranges
            .iter()
            .map(|(destination, rows)| Piece {
                destination: *destination,
                rows: rows.clone(),
                text: Vec::new(),
                packings: Vec::new(),
                compressed: Vec::new(),
            })
            .collect();
        let rows: Vec<usize> = ranges.iter().flat_map(|(_, rows)| [rows.start, rows.end]).collect();
        for OutgoingText { measured, .. } in self.texts() {
            let bounds = measured.bounds(queue, &rows, self.chunk.row_count)?;
            for (piece, bounds) in pieces.iter_mut().zip(bounds.chunks_exact(2)) {
                piece.text.push(bounds[0]..bounds[1]);
            }
        }
        Ok(pieces)
    }

    /// The layout of a piece in its block; `None` for more bytes than can be counted.
    pub(super) fn layout(&self, piece: &Piece) -> Option<BlockLayout> {
        let (mut text, mut packings) = (piece.text.iter(), piece.packings.iter());
        let mut compressed = piece.compressed.iter();
        let column = |(column, outgoing): (&Column, &OutgoingColumn)| {
            let PiecePackings { values, validity } = packings.next().copied().unwrap_or_default();
            BlockColumn {
                cell_type: column.cell_type,
                is_nullable: column.validity.is_some(),
                text_bytes: match outgoing.text {
                    Some(_) => text.next().map_or(0, |range| range.end - range.start),
                    None => 0,
                },
                compressed_bytes: match outgoing.text {
                    Some(_) => compressed.next().and_then(|text| Some(text.as_ref()?.bytes())),
                    None => None,
                },
                values,
                validity,
            }
        };
        let columns: Vec<BlockColumn> = self.chunk.columns.iter().zip(&self.columns).map(column).collect();
        BlockLayout::new(piece.rows.len(), &columns)
    }

    /// Memory for rows that stay. It keeps their text alive afterwards.
    pub(super) fn owned_rows(&self, queue: &Queue, rows: Range<usize>) -> Result<OwnedRows> {
        let row_count = rows.len() as u64;
        let mut places = Places::default();
        let parts: Vec<ScatterTargetPart> =
            self.chunk.columns.iter().map(|column| places.part(column, row_count)).collect();
        let memory = queue.allocate::<u8>(places.end)?;
        let (mut columns, mut fixed, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for ((column, outgoing), part) in self.chunk.columns.iter().zip(&self.columns).zip(&parts) {
            let owned = part_of_memory(&memory, column, (*part, rows.len()));
            match self.is_scattered(outgoing) {
                true => fixed.push(*part),
                false => add_owned_cells(&mut ranges, outgoing.cells(), &owned, rows.start),
            }
            columns.push(owned);
        }
        queue.copy_ranges(&ranges)?;
        let target = ScatterTarget { rows: rows.clone(), address: memory.address(), parts: fixed };
        Ok(OwnedRows { chunk: Chunk { row_count: rows.len(), columns }, target })
    }

    /// Whether a block's content of a column is copied directly into it.
    fn is_scattered(&self, column: &OutgoingColumn) -> bool {
        self.owners.is_some() && column.text.is_none()
    }

    /// Writes pieces into their blocks, and rows that stay into their memory.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub(super) fn fill(
        &self,
        queue: &Queue,
        filled: &[FilledBlock<'_>],
        owned: Option<&OwnedRows>,
    ) -> Result<()> {
        let mut written = WrittenParts::default();
        for block in filled {
            let FilledBlock { layout, block: memory, .. } = block;
            queue.memory().upload_to(&layout.encode_head(), memory.address(), queue.stream())?;
            for (column, (packed, parts)) in self.columns.iter().zip(&layout.columns) {
                if !self.is_scattered(column) {
                    written.add(block, column, (packed, parts));
                }
            }
            self.copy_texts(queue, block, &mut written.copied)?;
        }
        if let Some(owners) = &self.owners {
            self.scatter(queue, owners, (filled, owned))?;
        }
        queue.pack(&written.packed)?;
        queue.copy_ranges(&written.copied)
    }

    /// Copies columns without text in one pass over all columns.
    fn scatter(
        &self,
        queue: &Queue,
        owners: &RowOwners,
        (filled, owned): (&[FilledBlock<'_>], Option<&OwnedRows>),
    ) -> Result<()> {
        let scattered: Vec<&Column> = self
            .columns
            .iter()
            .filter(|column| self.is_scattered(column))
            .map(|column| &column.values)
            .collect();
        let mut targets: Vec<ScatterTarget> = filled.iter().map(|block| self.target(block)).collect();
        if let Some(OwnedRows { target, .. }) = owned {
            let place = targets.partition_point(|other| other.rows.start < target.rows.start);
            targets.insert(place, target.clone());
        }
        queue.scatter_rows(owners, &scattered, &targets)
    }

    /// The offsets of the directly copied columns in a block.
    fn target(&self, FilledBlock { piece, layout, block }: &FilledBlock<'_>) -> ScatterTarget {
        let part = |(column, (_, parts)): (&OutgoingColumn, &(BlockColumn, BlockParts))| {
            let BlockParts { values_offset_bytes, validity_offset_bytes, .. } = *parts;
            self.is_scattered(column)
                .then_some(ScatterTargetPart { values_offset_bytes, validity_offset_bytes })
        };
        ScatterTarget {
            rows: piece.rows.clone(),
            address: block.address(),
            parts: self.columns.iter().zip(&layout.columns).filter_map(part).collect(),
        }
    }
}

/// Writes the parts of blocks for rows in the order of destinations.
#[derive(Default)]
struct WrittenParts {
    packed: Vec<PackRange>,
    copied: Vec<ByteRange>,
}

impl WrittenParts {
    /// Adds the values of a column, and their validity where there is one.
    fn add(
        &mut self,
        FilledBlock { piece, block, .. }: &FilledBlock<'_>,
        column: &OutgoingColumn,
        (packed, parts): (&BlockColumn, &BlockParts),
    ) {
        let (values, flags) = column.ranges(&piece.rows);
        self.add_part(values, packed.values, block.address() + parts.values_offset_bytes);
        if let Some(flags) = flags {
            self.add_part(flags, packed.validity, block.address() + parts.validity_offset_bytes);
        }
    }

    fn add_part(&mut self, source: CellRange, packing: Option<Packing>, target: u64) {
        let CellRange { cells, row_count, cell_type, .. } = source;
        match packing {
            Some(packing) => self.packed.push(PackRange { source, packing, target }),
            None => {
                let bytes = row_count * u64::from(cell_type.bytes());
                self.copied.push(ByteRange { source: cells, target, bytes });
            }
        }
    }
}

/// Adds the copies of the cells of rows that stay, which begin at a place in the order of owners,
/// and of their validity.
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

/// The cells of columns, and their validity, in the order of owners. They keep their text alive.
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
    let parts: Vec<ScatterTargetPart> =
        columns.iter().map(|column| places.part(column, row_count as u64)).collect();
    let cells = queue.allocate::<u8>(places.end)?;
    let target = ScatterTarget { rows: 0..row_count, address: cells.address(), parts };
    queue.scatter_rows(owners, columns, std::slice::from_ref(&target))?;
    let ordered = |(column, part): (&&Column, &ScatterTargetPart)| {
        let column = part_of_memory(&cells, column, (*part, row_count));
        queue.poison_nulls(&column, row_count);
        column
    };
    Ok(columns.iter().zip(&target.parts).map(ordered).collect())
}
