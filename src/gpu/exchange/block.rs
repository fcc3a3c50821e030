//! How the rows of a chunk lie in a block: one piece of memory without addresses.
//!
//! ```text
//! head │ column 0: values │ validity │ text │ column 1: … │
//!      each part begins at a multiple of 64; a part that there is none of takes nothing
//! head: magic u32 │ version u16 │ columns u16 │ rows u64 │ for each column: cell type u32 │ nullable u32 │ bytes of text u64
//! ```
//!
//! Values are cells, or for text the length of each row as a `u32`: text itself lies one after another, and where each begins follows
//! from the lengths. Codes of dictionaries are cells by then.
//!
//! Invariants: where parts lie follows from the head. What a head says is checked against the block and the types that are expected.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::BLOCK_ALIGNMENT;
use crate::device::CellType;

const MAGIC: u32 = u32::from_le_bytes(*b"PXB\n");
const VERSION: u16 = 1;
const FIXED_HEAD_BYTES: u64 = 16;
const COLUMN_HEAD_BYTES: u64 = 16;
/// Bytes of the length of a text.
const LENGTH_BYTES: u64 = 4;

/// What decides where the parts of a column lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockColumn {
    /// How its cells are held.
    pub cell_type: CellType,
    /// Whether there is a byte a row that says which are NULL.
    pub is_nullable: bool,
    /// All of its text together; 0 for other columns.
    pub text_bytes: u64,
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
}

/// Where the parts of a column lie, from the beginning of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockParts {
    /// Cells, or lengths of text.
    pub values_offset_bytes: u64,
    /// Their bytes.
    pub values_bytes: u64,
    /// A byte a row, if the column is nullable.
    pub validity_offset_bytes: u64,
    /// Text.
    pub text_offset_bytes: u64,
}

impl BlockColumn {
    /// Bytes of a row, but for its text.
    pub fn row_bytes(&self) -> u64 {
        let value_bytes = match self.cell_type {
            CellType::String => LENGTH_BYTES,
            cell_type => u64::from(cell_type.bytes()),
        };
        value_bytes + u64::from(self.is_nullable)
    }
}

impl BlockLayout {
    /// Where rows of some columns lie. `None` for more bytes than can be counted.
    pub fn new(row_count: usize, columns: &[BlockColumn]) -> Option<Self> {
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
            let values_bytes = (column.row_bytes() - u64::from(column.is_nullable)).checked_mul(rows)?;
            let parts = BlockParts {
                values_offset_bytes: add(values_bytes)?,
                values_bytes,
                validity_offset_bytes: add(validity_bytes)?,
                text_offset_bytes: add(column.text_bytes)?,
            };
            placed.push((*column, parts));
        }
        Some(Self { row_count, columns: placed, bytes: end })
    }

    /// Bytes of the head.
    pub fn head_bytes(&self) -> u64 {
        head_bytes(self.columns.len())
    }

    /// Its columns but for text.
    pub fn parts_of_cells(&self) -> impl Iterator<Item = &(BlockColumn, BlockParts)> {
        self.columns.iter().filter(|(column, _)| column.cell_type != CellType::String)
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
            head.extend(u32::from(column.is_nullable).to_le_bytes());
            head.extend(column.text_bytes.to_le_bytes());
        }
        head.resize(self.head_bytes() as usize, 0);
        head
    }

    /// The layout of a block of so many bytes with columns of some types, by its head.
    ///
    /// # Errors
    ///
    /// `Protocol` for a head of another version, of other columns, or of more than the block has; `NotSupported` for types that no
    /// device has.
    pub fn decode_head(head: &[u8], block_bytes: u64, types: &[DataType]) -> Result<Self> {
        let wrong =
            |what: &str| Error::new(ErrorKind::Protocol, format!("a block of an exchange is wrong: {what}"));
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
            let cell_type = CellType::of(data_type)?;
            let (kind, text_bytes) = (word(start)?, word(start + 8)?);
            let is_nullable = kind >> 32;
            if kind as u32 != cell_type as u32 || is_nullable > 1 {
                return Err(wrong(&format!("column {number} is not of type {data_type}")));
            }
            if cell_type != CellType::String && text_bytes != 0 {
                return Err(wrong(&format!("column {number} has text")));
            }
            columns.push(BlockColumn { cell_type, is_nullable: is_nullable == 1, text_bytes });
        }
        let layout = Self::new(row_count as usize, &columns);
        layout.filter(|layout| layout.bytes == block_bytes).ok_or_else(|| wrong("its rows do not fill it"))
    }
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
        assert_eq!((layout.head_bytes(), parts[0].values_offset_bytes), (64, 64));
        assert_eq!((parts[0].validity_offset_bytes, parts[0].text_offset_bytes), (896, 1024));
        assert_eq!((parts[1].values_offset_bytes, parts[1].values_bytes), (1024, 400));
        assert_eq!((parts[1].text_offset_bytes, parts[2].values_offset_bytes), (1472, 2496));
        assert_eq!(layout.bytes, 2496 + 1600 + 128);
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
}
