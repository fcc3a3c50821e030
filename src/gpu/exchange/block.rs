//! How the rows of a chunk lie in a block: one piece of memory without addresses.
//!
//! ```text
//! head │ column 0: values │ validity │ text │ column 1: … │
//!      each part begins at a multiple of 64; a part that there is none of takes nothing
//! head: magic u32 │ version u16 │ columns u16 │ rows u64 │ for each column:
//!       cell type u32 │ nullable u16 │ bytes of a value u16 │ bytes of text u64 │ base i64
//! ```
//!
//! Values are cells, or for text the length of each row as an `i32`: text itself lies one after another, and where each begins follows
//! from the lengths. Codes of dictionaries are cells by then. Values of fewer bytes than those have are distances from the base, unsigned; of no
//! byte, all are the base.
//!
//! Invariants: where parts lie follows from the head. What a head says is checked against the block and the types that are expected.
//! However narrow its values are, a block has no more rows than one with room for them as they are.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::BLOCK_ALIGNMENT;
use crate::{device::CellType, operation::Frame};

const MAGIC: u32 = u32::from_le_bytes(*b"PXB\n");
const VERSION: u16 = 2;
const FIXED_HEAD_BYTES: u64 = 16;
const COLUMN_HEAD_BYTES: u64 = 24;

/// What decides where the parts of a column lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockColumn {
    /// How its cells are held.
    pub cell_type: CellType,
    /// Whether there is a byte a row that says which are NULL.
    pub is_nullable: bool,
    /// All of its text together; 0 for other columns.
    pub text_bytes: u64,
    /// What its values are narrowed to; `None` if they are as they are.
    pub frame: Option<Frame>,
}

/// Where the rows of a block lie in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Rows.
    pub row_count: usize,
    /// Columns, and their parts.
    pub columns: Vec<(BlockColumn, BlockParts)>,
    /// All of it, a multiple of [`BLOCK_ALIGNMENT`].
    pub bytes: u64,
    /// As many as it would have if nothing were narrowed.
    pub wide_bytes: u64,
}

/// Where the parts of a column lie, from the beginning of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockParts {
    /// Cells, lengths of text, or distances of either from a base.
    pub values_offset_bytes: u64,
    /// Their bytes.
    pub values_bytes: u64,
    /// A byte a row, if the column is nullable.
    pub validity_offset_bytes: u64,
    /// Text.
    pub text_offset_bytes: u64,
}

impl BlockColumn {
    /// What a value is when it is not narrowed: a cell, or the length of a text.
    pub fn value_type(&self) -> CellType {
        match self.cell_type {
            CellType::String => CellType::Int32,
            cell_type => cell_type,
        }
    }

    /// Bytes of a value.
    pub fn value_bytes(&self) -> u64 {
        self.frame.map_or(u64::from(self.value_type().bytes()), Frame::width_bytes)
    }

    /// The same, not narrowed.
    pub fn widened(&self) -> Self {
        Self { frame: None, ..*self }
    }
}

impl BlockLayout {
    /// Where rows of some columns lie. `None` for more bytes than can be counted, narrowed or not.
    pub fn new(row_count: usize, columns: &[BlockColumn]) -> Option<Self> {
        let (placed, bytes) = place(row_count, columns.iter().copied())?;
        let wide_bytes = match columns.iter().any(|column| column.frame.is_some()) {
            true => place(row_count, columns.iter().map(BlockColumn::widened))?.1,
            false => bytes,
        };
        Some(Self { row_count, columns: placed, bytes, wide_bytes })
    }

    /// Bytes of the head.
    pub fn head_bytes(&self) -> u64 {
        head_bytes(self.columns.len())
    }

    /// The head.
    pub fn encode_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.head_bytes() as usize);
        head.extend(MAGIC.to_le_bytes());
        head.extend(VERSION.to_le_bytes());
        head.extend((self.columns.len() as u16).to_le_bytes());
        head.extend((self.row_count as u64).to_le_bytes());
        for (column, _) in &self.columns {
            head.extend((column.cell_type as u32).to_le_bytes());
            head.extend(u16::from(column.is_nullable).to_le_bytes());
            head.extend((column.value_bytes() as u16).to_le_bytes());
            head.extend(column.text_bytes.to_le_bytes());
            head.extend(column.frame.map_or(0, Frame::base).to_le_bytes());
        }
        head.resize(self.head_bytes() as usize, 0);
        head
    }

    /// The layout of a block of so many bytes with columns of some types, by its head.
    ///
    /// # Errors
    ///
    /// `Protocol` for a head of another version, of other columns, of values that are narrowed in a way that there is none of, or of
    /// more than the block has; `NotSupported` for types that no device has.
    pub fn decode_head(head: &[u8], block_bytes: u64, types: &[DataType]) -> Result<Self> {
        let word = |place: u64| {
            let bytes = head.get(place as usize..place as usize + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(|| wrong("it ends within its head"))
        };
        let first = u64::from(MAGIC) | u64::from(VERSION) << 32 | (types.len() as u64) << 48;
        if word(0)? != first {
            return Err(wrong("it is no block, of another version, or has other columns"));
        }
        let row_count = word(8)?;
        if row_count >= u64::from(u32::MAX) {
            return Err(wrong("it has more rows than a chunk"));
        }
        let mut columns = Vec::with_capacity(types.len());
        for (number, data_type) in (0..).zip(types) {
            let start = FIXED_HEAD_BYTES + number * COLUMN_HEAD_BYTES;
            let words = [word(start)?, word(start + 8)?, word(start + 16)?];
            columns.push(decode_column(number, data_type, words)?);
        }
        let layout = Self::new(row_count as usize, &columns);
        layout.filter(|layout| layout.bytes == block_bytes).ok_or_else(|| wrong("its rows do not fill it"))
    }

    /// Looks whether its rows, widened, have no more bytes than a block may have: those of distances without bytes are as many as a head
    /// says.
    ///
    /// # Errors
    ///
    /// `Protocol` if they have more.
    pub fn check_wide(&self, block_bytes_max: u64) -> Result<()> {
        let Self { row_count, wide_bytes, .. } = self;
        match *wide_bytes <= block_bytes_max {
            true => Ok(()),
            false => Err(wrong(&format!(
                "it has too many rows: rows={row_count}, wide_bytes={wide_bytes}, block_bytes_max={block_bytes_max}"
            ))),
        }
    }
}

/// What a head says of a column of some type.
fn decode_column(number: u64, data_type: &DataType, words: [u64; 3]) -> Result<BlockColumn> {
    let [kind, text_bytes, base] = words;
    let cell_type = CellType::of(data_type)?;
    let (is_nullable, value_bytes, base) = (kind >> 32 & 0xffff, kind >> 48, base as i64);
    if kind as u32 != cell_type as u32 || is_nullable > 1 {
        return Err(wrong(&format!("column {number} is not of type {data_type}")));
    }
    if cell_type != CellType::String && text_bytes != 0 {
        return Err(wrong(&format!("column {number} has text")));
    }
    let wide = BlockColumn { cell_type, is_nullable: is_nullable == 1, text_bytes, frame: None };
    if (value_bytes, base) == (wide.value_bytes(), 0) {
        return Ok(wide);
    }
    let frame = Frame::new(base, value_bytes, wide.value_type());
    let unknown = || {
        wrong(&format!(
            "column {number}, of type {data_type}, is not narrowed so: value_bytes={value_bytes}, base={base}"
        ))
    };
    Ok(BlockColumn { frame: Some(frame.ok_or_else(unknown)?), ..wide })
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("a block of an exchange is wrong: {what}"))
}

/// Where the parts of columns lie, one after another, and where the last one ends.
fn place(
    row_count: usize,
    columns: impl ExactSizeIterator<Item = BlockColumn>,
) -> Option<(Vec<(BlockColumn, BlockParts)>, u64)> {
    let rows = row_count as u64;
    let mut end = head_bytes(columns.len());
    let mut add = |bytes: u64| {
        let start = end;
        end = end.checked_add(bytes)?.checked_next_multiple_of(BLOCK_ALIGNMENT)?;
        Some(start)
    };
    let mut placed = Vec::with_capacity(columns.len());
    for column in columns {
        let validity_bytes = if column.is_nullable { rows } else { 0 };
        let values_bytes = column.value_bytes().checked_mul(rows)?;
        let parts = BlockParts {
            values_offset_bytes: add(values_bytes)?,
            values_bytes,
            validity_offset_bytes: add(validity_bytes)?,
            text_offset_bytes: add(column.text_bytes)?,
        };
        placed.push((column, parts));
    }
    Some((placed, end))
}

/// Bytes of the head of a block with so many columns.
pub(super) fn head_bytes(column_count: usize) -> u64 {
    (FIXED_HEAD_BYTES + COLUMN_HEAD_BYTES * column_count as u64).next_multiple_of(BLOCK_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::tests::Numbers;

    fn types() -> Vec<DataType> {
        vec![DataType::Int64, DataType::Text, DataType::Decimal { precision: 30, scale: 2 }]
    }

    fn layout(row_count: usize) -> BlockLayout {
        let column = |data_type: &DataType, is_nullable, text_bytes| BlockColumn {
            cell_type: CellType::of(data_type).unwrap(),
            is_nullable,
            text_bytes,
            frame: None,
        };
        let types = types();
        let columns =
            [column(&types[0], true, 0), column(&types[1], false, 1000), column(&types[2], true, 0)];
        BlockLayout::new(row_count, &columns).unwrap()
    }

    #[test]
    fn parts_follow_one_another_at_multiples_of_64() {
        let layout = layout(100);
        let parts: Vec<BlockParts> = layout.columns.iter().map(|(_, parts)| *parts).collect();
        assert_eq!((layout.head_bytes(), parts[0].values_offset_bytes), (128, 128));
        assert_eq!((parts[0].validity_offset_bytes, parts[0].text_offset_bytes), (960, 1088));
        assert_eq!((parts[1].values_offset_bytes, parts[1].values_bytes), (1088, 400));
        assert_eq!((parts[1].text_offset_bytes, parts[2].values_offset_bytes), (1536, 2560));
        assert_eq!(layout.bytes, 2560 + 1600 + 128);
        assert_eq!(BlockLayout::new(usize::MAX, &[layout.columns[2].0]), None);
    }

    #[test]
    fn a_head_says_where_everything_is_and_nothing_else_is_believed() {
        let seed = 0xb10c;
        let mut numbers = Numbers::new(seed);
        let layout = layout(100);
        let head = layout.encode_head();
        assert_eq!(BlockLayout::decode_head(&head, layout.bytes, &types()).as_ref(), Ok(&layout));
        assert!(BlockLayout::decode_head(&head, layout.bytes + 64, &types()).is_err());
        assert!(BlockLayout::decode_head(&head, layout.bytes, &types()[..2]).is_err());
        assert!(BlockLayout::decode_head(&head[..20], layout.bytes, &types()).is_err());
        for attempt in 0..10_000 {
            let mut head = head.clone();
            for _ in 0..1 + numbers.below(3) {
                let place = numbers.below(head.len() as u64) as usize;
                head[place] = numbers.below(256) as u8;
            }
            match BlockLayout::decode_head(&head, layout.bytes, &types()) {
                Err(error) => assert_eq!(error.kind, ErrorKind::Protocol, "seed {seed}, attempt {attempt}"),
                // Fewer rows and more text may take as much.
                Ok(read) => assert_eq!(read.bytes, layout.bytes, "seed {seed}, attempt {attempt}"),
            }
        }
    }

    /// The same with values as narrow as some frames.
    fn narrowed(row_count: usize, frames: [Option<(i64, u64)>; 3]) -> BlockLayout {
        let mut columns: Vec<BlockColumn> =
            layout(row_count).columns.iter().map(|(column, _)| *column).collect();
        for (column, frame) in columns.iter_mut().zip(frames) {
            column.frame = frame.map(|(base, width)| Frame::new(base, width, column.value_type()).unwrap());
        }
        BlockLayout::new(row_count, &columns).unwrap()
    }

    #[test]
    fn values_have_the_bytes_of_their_frames() {
        let wide = layout(100);
        assert_eq!(wide.bytes, wide.wide_bytes);
        let narrow = narrowed(100, [Some((i64::MIN, 1)), Some((3, 0)), Some((i64::MAX, 8))]);
        assert_eq!(narrow.wide_bytes, wide.bytes);
        let bytes: Vec<u64> = narrow.columns.iter().map(|(_, parts)| parts.values_bytes).collect();
        assert_eq!(bytes, [100, 0, 800]);
        // A head, 2 times 100 flags, 1000 of text, and the values.
        assert_eq!(narrow.bytes, 128 + 128 + 128 + 1024 + 832 + 128);
        let head = narrow.encode_head();
        assert_eq!(BlockLayout::decode_head(&head, narrow.bytes, &types()), Ok(narrow));
    }

    #[test]
    fn a_block_of_distances_without_bytes_has_no_more_rows_than_another_one() {
        let one = |row_count| {
            let column = layout(0).columns[0].0;
            let frame = Frame::new(7, 0, CellType::Int64);
            BlockLayout::new(row_count, &[BlockColumn { is_nullable: false, frame, ..column }]).unwrap()
        };
        let most = one(504);
        assert_eq!((most.bytes, most.wide_bytes), (64, 4096));
        assert_eq!(most.check_wide(4096), Ok(()));
        let many = one(u32::MAX as usize - 1);
        assert_eq!(many.bytes, 64);
        let error = many.check_wide(4096).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(
            error.message.contains("rows=4294967294, wide_bytes=34359738432, block_bytes_max=4096"),
            "{error}"
        );
    }

    #[test]
    fn a_head_whose_values_are_narrowed_otherwise_is_not_believed() {
        let narrow = narrowed(100, [Some((5, 2)), Some((0, 1)), Some((-5, 4))]);
        let head = narrow.encode_head();
        let changed = |column: u64, width: u16, base: i64| {
            let mut head = head.clone();
            let start = (FIXED_HEAD_BYTES + column * COLUMN_HEAD_BYTES) as usize;
            head[start + 6..start + 8].copy_from_slice(&width.to_le_bytes());
            head[start + 16..start + 24].copy_from_slice(&base.to_le_bytes());
            // Whatever the block's bytes are, so that nothing else is wrong.
            let of_width = |bytes: u64| BlockLayout::decode_head(&head, bytes, &types());
            (0..10_000).step_by(64).map(of_width).find_map(Result::ok)
        };
        for width in 0..100 {
            assert_eq!(changed(0, width, 5).is_some(), [0, 1, 2, 4].contains(&width), "bigint of {width}");
            assert_eq!(changed(1, width, 0).is_some(), [0, 1, 2, 4].contains(&width), "length of {width}");
            assert_eq!(
                changed(2, width, -5).is_some(),
                [0, 1, 2, 4, 8].contains(&width),
                "decimal of {width}"
            );
        }
        // Cells as they are have no base, and a length is an integer.
        assert!(changed(0, 8, 0).is_some() && changed(0, 8, 1).is_none());
        assert!(changed(1, 1, i64::from(i32::MAX)).is_some());
        assert!(changed(1, 1, i64::from(i32::MAX) + 1).is_none());
    }
}
