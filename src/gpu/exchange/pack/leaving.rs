//! The columns of a chunk as they leave a rank, and how they get into blocks.
//!
//! ```text
//! cells ────────────────────┬───────────────────────────► values of a block
//! texts ─► lengths ─────────┴─► least, greatest ─► distances ─┘
//!      └─► bytes ───────────────────────────────────────► text of a block
//! ```
//!
//! Invariants: all blocks of a chunk have the same frames, which all of its rows have part in but NULLs. A NULL text has length 0, and has its
//! part with that. Rows that stay are never narrowed.

use std::ops::Range;

use pystachio_plan::{DataType, Error, Result};

use super::{FilledBlock, Piece, Share, cell_bytes};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    exchange::{
        BLOCK_ALIGNMENT,
        block::{BlockColumn, BlockLayout, BlockParts},
    },
    operation::{ByteRange, DealTarget, DealTargetPart, Frame, MeasuredText, Queue, RowOwners},
};

/// Rows of a chunk that stay here.
pub(super) struct OwnedRows {
    chunk: Chunk,
    /// Where their cells go, but for text.
    target: DealTarget,
}

impl OwnedRows {
    /// The rows, when their cells have been dealt.
    pub(super) fn finish(self, queue: &Queue) -> Chunk {
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
pub(super) struct LeavingChunk {
    chunk: Chunk,
    /// Whose rows are whose, where they are spread; otherwise they leave in their own order.
    owners: Option<RowOwners>,
    columns: Vec<LeavingColumn>,
}

/// A column as it leaves.
struct LeavingColumn {
    /// What blocks get of each row: cells with their validity, or lengths of text in the order in which rows leave.
    values: Column,
    /// What the values are narrowed to.
    frame: Option<Frame>,
    /// The same as distances, if there is a frame and they have bytes.
    distances: Option<Column>,
    text: Option<LeavingText>,
}

/// A text column in the order in which its rows leave.
struct LeavingText {
    column: Column,
    measured: MeasuredText,
}

impl LeavingColumn {
    fn new(values: Column, text: Option<LeavingText>) -> Self {
        Self { values, frame: None, distances: None, text }
    }

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
        Ok(Self::new(lengths, Some(LeavingText { column, measured })))
    }

    /// Which rows are NULL.
    fn validity(&self) -> Option<&Buffer> {
        self.text.as_ref().map_or(&self.values, |text| &text.column).validity.as_ref()
    }

    /// What its values lie in a block as; none if they have no bytes there.
    fn written(&self) -> Option<&Column> {
        match self.frame {
            Some(_) => self.distances.as_ref(),
            None => Some(&self.values),
        }
    }

    /// What is dealt of it: its values with their validity, or where they have no bytes its validity alone.
    fn dealt(&self) -> Option<Column> {
        match (self.written(), self.validity()) {
            (Some(written), _) => Some(written.clone()),
            (None, Some(validity)) => Some(flags(validity)),
            (None, None) => None,
        }
    }

    /// Where that goes.
    fn dealt_part(&self, parts: &BlockParts) -> DealTargetPart {
        let BlockParts { values_offset_bytes, validity_offset_bytes, .. } = *parts;
        match self.written() {
            Some(_) => DealTargetPart { values_offset_bytes, validity_offset_bytes },
            None => {
                DealTargetPart { values_offset_bytes: validity_offset_bytes, ..DealTargetPart::default() }
            }
        }
    }
}

/// Validity as a column.
fn flags(validity: &Buffer) -> Column {
    Column {
        data_type: DataType::Bool,
        cell_type: CellType::Bool,
        values: validity.clone(),
        validity: None,
        strings: Vec::new(),
    }
}

fn is_text(column: &Column) -> bool {
    column.cell_type == CellType::String
}

impl LeavingChunk {
    /// The rows of a chunk, spread or not. Waits if there is text, and if integers are narrowed.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub(super) fn new(
        queue: &Queue,
        chunk: &Chunk,
        owners: Option<RowOwners>,
        is_narrowed: bool,
    ) -> Result<Self> {
        let texts: Vec<&Column> = chunk.columns.iter().filter(|column| is_text(column)).collect();
        let ordered = match &owners {
            Some(owners) => order_cells(queue, owners, &texts, chunk.row_count)?,
            None => texts.into_iter().cloned().collect(),
        };
        let mut ordered = ordered.into_iter();
        let leaving = |column: &Column| match is_text(column) {
            true => {
                let text = ordered.next().ok_or_else(|| Error::internal("a text column without an order"))?;
                LeavingColumn::of_text(queue, text, chunk.row_count)
            }
            false => Ok(LeavingColumn::new(column.clone(), None)),
        };
        let columns = chunk.columns.iter().map(leaving).collect::<Result<_>>()?;
        let mut leaving = Self { chunk: chunk.clone(), owners, columns };
        if is_narrowed {
            leaving.narrow(queue)?;
        }
        Ok(leaving)
    }

    /// Narrows what can be narrowed.
    fn narrow(&mut self, queue: &Queue) -> Result<()> {
        let row_count = self.chunk.row_count;
        let values: Vec<&Column> = self.columns.iter().map(|column| &column.values).collect();
        let frames = queue.measure_frames(&values, row_count)?;
        let framed: Vec<(&Column, Frame)> =
            values.into_iter().zip(&frames).filter_map(|(values, frame)| Some((values, (*frame)?))).collect();
        let mut distances = queue.narrow(&framed, row_count)?.into_iter();
        for (column, frame) in self.columns.iter_mut().zip(frames) {
            column.frame = frame;
            column.distances = frame.and_then(|_| distances.next().flatten());
        }
        Ok(())
    }

    /// Its columns of text.
    fn texts(&self) -> impl Iterator<Item = &LeavingText> {
        self.columns.iter().filter_map(|column| column.text.as_ref())
    }

    /// Finds out how much text ranges have.
    pub(super) fn measure(&self, queue: &Queue, ranges: &[Share]) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = ranges
            .iter()
            .map(|(destination, rows)| Piece {
                destination: *destination,
                rows: rows.clone(),
                text: Vec::new(),
            })
            .collect();
        let rows: Vec<usize> = ranges.iter().flat_map(|(_, rows)| [rows.start, rows.end]).collect();
        for LeavingText { measured, .. } in self.texts() {
            let bounds = measured.bounds(queue, &rows, self.chunk.row_count)?;
            for (piece, bounds) in pieces.iter_mut().zip(bounds.chunks_exact(2)) {
                piece.text.push(bounds[0]..bounds[1]);
            }
        }
        Ok(pieces)
    }

    /// Where the rows of a piece lie in its block; `None` for more bytes than can be counted.
    pub(super) fn layout(&self, row_count: usize, text: &[Range<u64>]) -> Option<BlockLayout> {
        let mut text = text.iter();
        let column = |(column, leaving): (&Column, &LeavingColumn)| BlockColumn {
            cell_type: column.cell_type,
            is_nullable: column.validity.is_some(),
            text_bytes: match leaving.text {
                Some(_) => text.next().map_or(0, |range| range.end - range.start),
                None => 0,
            },
            frame: leaving.frame,
        };
        let columns: Vec<BlockColumn> = self.chunk.columns.iter().zip(&self.columns).map(column).collect();
        BlockLayout::new(row_count, &columns)
    }

    /// Memory for rows that stay. What they have of text is in it afterwards.
    pub(super) fn owned_rows(&self, queue: &Queue, rows: Range<usize>) -> Result<OwnedRows> {
        let row_count = rows.len() as u64;
        let mut places = Places::default();
        let parts: Vec<DealTargetPart> =
            self.chunk.columns.iter().map(|column| places.part(column, row_count)).collect();
        let memory = queue.allocate::<u8>(places.end)?;
        let (mut columns, mut fixed, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for ((column, leaving), part) in self.chunk.columns.iter().zip(&self.columns).zip(&parts) {
            let owned = part_of_memory(&memory, column, (*part, rows.len()));
            match &leaving.text {
                Some(LeavingText { column: ordered, .. }) => {
                    add_owned_cells(&mut ranges, ordered, &owned, rows.start);
                }
                None => fixed.push(*part),
            }
            columns.push(owned);
        }
        queue.copy_ranges(&ranges)?;
        let target = DealTarget { rows: rows.clone(), address: memory.address(), parts: fixed };
        Ok(OwnedRows { chunk: Chunk { row_count: rows.len(), columns }, target })
    }

    /// Writes pieces into their blocks, and rows that stay into their memory.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub(super) fn fill(
        &self,
        queue: &Queue,
        filled: &[FilledBlock<'_>],
        owned: Option<&OwnedRows>,
    ) -> Result<()> {
        let mut ranges = Vec::new();
        for block in filled {
            let FilledBlock { layout, block: memory, .. } = block;
            queue.memory().upload_to(&layout.encode_head(), memory.address(), queue.stream())?;
            for (column, (_, parts)) in self.columns.iter().zip(&layout.columns) {
                if column.text.is_some() || self.owners.is_none() {
                    block.add_copies(column, parts, &mut ranges);
                }
            }
            self.copy_texts(queue, block)?;
        }
        if let Some(owners) = &self.owners {
            self.deal(queue, owners, (filled, owned))?;
        }
        queue.copy_ranges(&ranges)
    }

    /// Deals what has no text: in one pass over all columns, or in two if what stays is not what leaves.
    fn deal(
        &self,
        queue: &Queue,
        owners: &RowOwners,
        (filled, owned): (&[FilledBlock<'_>], Option<&OwnedRows>),
    ) -> Result<()> {
        let fixed = || self.columns.iter().filter(|column| column.text.is_none());
        let dealt: Vec<Column> = fixed().filter_map(LeavingColumn::dealt).collect();
        let mut targets: Vec<DealTarget> = filled.iter().map(|block| self.target(block)).collect();
        if let Some(OwnedRows { target, .. }) = owned {
            if fixed().all(|column| column.frame.is_none()) {
                let place = targets.partition_point(|other| other.rows.start < target.rows.start);
                targets.insert(place, target.clone());
            } else {
                let cells: Vec<&Column> = fixed().map(|column| &column.values).collect();
                queue.deal(owners, &cells, std::slice::from_ref(target))?;
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        queue.deal(owners, &dealt.iter().collect::<Vec<_>>(), &targets)
    }

    /// Where what is dealt of its columns goes in a block.
    fn target(&self, FilledBlock { piece, layout, block }: &FilledBlock<'_>) -> DealTarget {
        let dealt = |(column, (_, parts)): (&LeavingColumn, &(BlockColumn, BlockParts))| {
            let is_dealt =
                column.text.is_none() && (column.written().is_some() || column.validity().is_some());
            is_dealt.then(|| column.dealt_part(parts))
        };
        DealTarget {
            rows: piece.rows.clone(),
            address: block.address(),
            parts: self.columns.iter().zip(&layout.columns).filter_map(dealt).collect(),
        }
    }

    /// Copies the texts of a piece, but for their lengths and validity.
    fn copy_texts(
        &self,
        queue: &Queue,
        FilledBlock { piece, layout, block }: &FilledBlock<'_>,
    ) -> Result<()> {
        let columns = layout.columns.iter().filter(|(column, _)| column.cell_type == CellType::String);
        for ((LeavingText { column, measured }, text), (_, parts)) in
            self.texts().zip(&piece.text).zip(columns)
        {
            let target = block.address() + parts.text_offset_bytes;
            queue.copy_text_of(column, measured, piece.rows.clone(), text.start, target)?;
        }
        Ok(())
    }
}

impl FilledBlock<'_> {
    /// Adds what copies the values of a column, and their validity where there is one.
    fn add_copies(&self, column: &LeavingColumn, parts: &BlockParts, ranges: &mut Vec<ByteRange>) {
        let Self { piece, block, .. } = self;
        let (first, row_count) = (piece.rows.start as u64, piece.rows.len() as u64);
        let mut add = |source: u64, offset_bytes: u64, bytes: u64| {
            ranges.push(ByteRange { source, target: block.address() + offset_bytes, bytes });
        };
        if let Some(written) = column.written() {
            let source = written.values.address() + first * cell_bytes(written);
            add(source, parts.values_offset_bytes, parts.values_bytes);
        }
        if let Some(validity) = column.validity() {
            add(validity.address() + first, parts.validity_offset_bytes, row_count);
        }
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
