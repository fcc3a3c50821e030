//! How the rows of a chunk lie in a block: one piece of memory without addresses.
//!
//! ```text
//! head │ column 0: values │ validity │ text │ column 1: … │
//!      each part begins at a multiple of 64; a part that there is none of takes nothing
//! head: magic u32 │ version u16 │ columns u16 │ rows u64 │ for each column:
//!       cell type u32 │ nullable u16 │ 0 u16 │ bytes of text u64 │ packing of values │ packing of validity
//! packing: form u8 │ bits of a number u8 │ 0 u16 │ runs u32 │ base i64
//! ```
//!
//! Values are cells, or for text the length of each row as an `i32`: text itself lies one after another, and where each begins follows
//! from the lengths. Codes of dictionaries are cells by then. Values and validity may be packed, each in its own way
//! ([`Packing`]); what is not has form 0.
//!
//! Invariants: where parts lie follows from the head. What a head says is checked against the block and the types that are expected.
//! However few bytes it is packed to, a block has no more rows than one with room for them as they are.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::BLOCK_ALIGNMENT;
use crate::{
    device::CellType,
    operation::{PackedForm, Packing},
};

const MAGIC: u32 = u32::from_le_bytes(*b"PXB\n");
const VERSION: u16 = 3;
const FIXED_HEAD_BYTES: u64 = 16;
const COLUMN_HEAD_BYTES: u64 = 48;
/// What a head says of how values lie: as they are, or packed in a form.
const FORM_PLAIN: u64 = 0;
const FORM_DISTANCES: u64 = 1;
const FORM_DELTAS: u64 = 2;
const FORM_RUNS: u64 = 3;

/// What decides where the parts of a column lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockColumn {
    /// How its cells are held.
    pub cell_type: CellType,
    /// Whether there is a byte a row that says which are NULL.
    pub is_nullable: bool,
    /// All of its text together; 0 for other columns.
    pub text_bytes: u64,
    /// How its values are packed; `None` if they are as they are.
    pub values: Option<Packing>,
    /// How its validity is, as values of bool.
    pub validity: Option<Packing>,
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
    /// As many as it would have if nothing were packed.
    pub wide_bytes: u64,
}

/// Where the parts of a column lie, from the beginning of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockParts {
    /// Cells or lengths of text, packed or not.
    pub values_offset_bytes: u64,
    /// Their bytes.
    pub values_bytes: u64,
    /// A byte a row, packed or not, if the column is nullable.
    pub validity_offset_bytes: u64,
    /// Its bytes; 0 if it is not.
    pub validity_bytes: u64,
    /// Text.
    pub text_offset_bytes: u64,
}

impl BlockColumn {
    /// What a value is: a cell, or the length of a text.
    pub fn value_type(&self) -> CellType {
        match self.cell_type {
            CellType::String => CellType::Int32,
            cell_type => cell_type,
        }
    }

    /// The same, not packed.
    pub fn plain(&self) -> Self {
        Self { values: None, validity: None, ..*self }
    }

    /// Bytes of the values of so many rows. `None` for more than can be counted.
    fn values_bytes(&self, row_count: u64) -> Option<u64> {
        match self.values {
            Some(packing) => Some(packing.bytes(row_count)),
            None => row_count.checked_mul(u64::from(self.value_type().bytes())),
        }
    }

    /// Bytes of their validity.
    fn validity_bytes(&self, row_count: u64) -> u64 {
        match (self.is_nullable, self.validity) {
            (false, _) => 0,
            (true, Some(packing)) => packing.bytes(row_count),
            (true, None) => row_count,
        }
    }
}

impl BlockLayout {
    /// Where rows of some columns lie. `None` for more bytes than can be counted, packed or not, and for more rows than a chunk has.
    pub fn new(row_count: usize, columns: &[BlockColumn]) -> Option<Self> {
        if row_count as u64 >= u64::from(u32::MAX) {
            return None;
        }
        let (placed, bytes) = place(row_count, columns.iter().copied())?;
        let wide_bytes = place(row_count, columns.iter().map(BlockColumn::plain))?.1;
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
            head.extend(0u16.to_le_bytes());
            head.extend(column.text_bytes.to_le_bytes());
            for packing in [column.values, column.validity] {
                head.extend(encode_packing(packing).into_iter().flat_map(u64::to_le_bytes));
            }
        }
        head.resize(self.head_bytes() as usize, 0);
        head
    }

    /// The layout of a block of so many bytes with columns of some types, by its head.
    ///
    /// # Errors
    ///
    /// `Protocol` for a head of another version, of other columns, of values that are packed in a way that there is none of, or of
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
            let mut words = [0; (COLUMN_HEAD_BYTES / 8) as usize];
            for (place, read) in (0..).zip(&mut words) {
                *read = word(start + 8 * place)?;
            }
            columns.push(decode_column(number, (row_count, data_type), words)?);
        }
        let layout = Self::new(row_count as usize, &columns);
        layout.filter(|layout| layout.bytes == block_bytes).ok_or_else(|| wrong("its rows do not fill it"))
    }

    /// Looks whether its rows, unpacked, have no more bytes than a block may have: those of values without bits are as many as a head
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

/// How values lie, as a head says it.
fn encode_packing(packing: Option<Packing>) -> [u64; 2] {
    match packing {
        Some(packing) => {
            let form = match packing.form() {
                PackedForm::Distances => FORM_DISTANCES,
                PackedForm::Deltas => FORM_DELTAS,
                PackedForm::Runs(count) => FORM_RUNS | u64::from(count) << 32,
            };
            [form | packing.width_bits() << 8, packing.base() as u64]
        }
        None => [FORM_PLAIN, 0],
    }
}

/// How the values of so many rows of a type lie by what a head says; `None` if they cannot.
fn decode_packing(words: [u64; 2], (row_count, cell_type): (u64, CellType)) -> Option<Option<Packing>> {
    let [kind, base] = words;
    if (kind, base) == (FORM_PLAIN, 0) {
        return Some(None);
    }
    let (form, width_bits, rest) = (kind & 0xff, kind >> 8 & 0xff, kind >> 16);
    let form = match (form, rest) {
        (FORM_DISTANCES, 0) => PackedForm::Distances,
        (FORM_DELTAS, 0) => PackedForm::Deltas,
        (FORM_RUNS, rest) if rest & 0xffff == 0 && rest >> 16 <= row_count => {
            PackedForm::Runs((rest >> 16) as u32)
        }
        _ => return None,
    };
    Packing::new(form, base as i64, width_bits, cell_type).map(Some)
}

/// What a head says of a column of so many rows of some type.
fn decode_column(
    number: u64,
    (row_count, data_type): (u64, &DataType),
    words: [u64; (COLUMN_HEAD_BYTES / 8) as usize],
) -> Result<BlockColumn> {
    let [kind, text_bytes, values @ .., validity, validity_base] = words;
    let cell_type = CellType::of(data_type)?;
    let is_nullable = kind >> 32;
    if kind as u32 != cell_type as u32 || is_nullable > 1 {
        return Err(wrong(&format!("column {number} is not of type {data_type}")));
    }
    if cell_type != CellType::String && text_bytes != 0 {
        return Err(wrong(&format!("column {number} has text")));
    }
    let plain =
        BlockColumn { cell_type, is_nullable: is_nullable == 1, text_bytes, values: None, validity: None };
    let unknown = |what: &str, [kind, base]: [u64; 2]| {
        let base = base as i64;
        wrong(&format!(
            "column {number}, of type {data_type}, does not have {what} packed so: packing={kind:#x}, base={base}"
        ))
    };
    let validity = [validity, validity_base];
    let packed_values = decode_packing(values, (row_count, plain.value_type()));
    let packed_validity = decode_packing(validity, (row_count, CellType::Bool));
    let packed_validity = packed_validity.filter(|packing| packing.is_none() || plain.is_nullable);
    Ok(BlockColumn {
        values: packed_values.ok_or_else(|| unknown("values", values))?,
        validity: packed_validity.ok_or_else(|| unknown("validity", validity))?,
        ..plain
    })
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
        let (values_bytes, validity_bytes) = (column.values_bytes(rows)?, column.validity_bytes(rows));
        let parts = BlockParts {
            values_offset_bytes: add(values_bytes)?,
            values_bytes,
            validity_offset_bytes: add(validity_bytes)?,
            validity_bytes,
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
            values: None,
            validity: None,
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
        assert_eq!((layout.head_bytes(), parts[0].values_offset_bytes), (192, 192));
        assert_eq!((parts[0].validity_offset_bytes, parts[0].text_offset_bytes), (1024, 1152));
        assert_eq!((parts[1].values_offset_bytes, parts[1].values_bytes), (1152, 400));
        assert_eq!((parts[1].text_offset_bytes, parts[2].values_offset_bytes), (1600, 2624));
        assert_eq!(layout.bytes, 2624 + 1600 + 128);
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

    fn distances(base: i64, width_bits: u64, cell_type: CellType) -> Option<Packing> {
        Packing::new(PackedForm::Distances, base, width_bits, cell_type)
    }

    /// The same with packed values.
    fn packed(row_count: usize, packings: [Option<(i64, u64)>; 3]) -> BlockLayout {
        let mut columns: Vec<BlockColumn> =
            layout(row_count).columns.iter().map(|(column, _)| *column).collect();
        for (column, packing) in columns.iter_mut().zip(packings) {
            column.values = packing.map(|(base, width)| distances(base, width, column.value_type()).unwrap());
        }
        columns[2].validity = distances(1, 0, CellType::Bool);
        BlockLayout::new(row_count, &columns).unwrap()
    }

    #[test]
    fn values_have_the_bytes_that_they_are_packed_to() {
        let wide = layout(100);
        assert_eq!(wide.bytes, wide.wide_bytes);
        let packed = packed(100, [Some((i64::MIN, 5)), Some((3, 0)), Some((i64::MAX, 64))]);
        assert_eq!(packed.wide_bytes, wide.bytes);
        let bytes: Vec<u64> = packed.columns.iter().map(|(_, parts)| parts.values_bytes).collect();
        // 500 bits in words of 32.
        assert_eq!(bytes, [64, 0, 800]);
        // A head, values, 100 flags, 1000 of text, and values without flags.
        assert_eq!(packed.bytes, 192 + 64 + 128 + 1024 + 832);
        let head = packed.encode_head();
        assert_eq!(BlockLayout::decode_head(&head, packed.bytes, &types()), Ok(packed));
    }

    #[test]
    fn a_block_of_distances_without_bits_has_no_more_rows_than_another_one() {
        let one = |row_count| {
            let column = layout(0).columns[0].0;
            let values = distances(7, 0, CellType::Int64);
            BlockLayout::new(row_count, &[BlockColumn { is_nullable: false, values, ..column }]).unwrap()
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
    fn a_head_whose_values_are_packed_otherwise_is_not_believed() {
        let packed = packed(100, [Some((5, 2)), Some((0, 1)), Some((-5, 4))]);
        let head = packed.encode_head();
        // The words of a column's packing of values, or of validity, replaced.
        let changed = |column: u64, word: u64, packing: [u64; 2]| {
            let mut head = head.clone();
            let start = (FIXED_HEAD_BYTES + column * COLUMN_HEAD_BYTES + 8 * word) as usize;
            head[start..start + 8].copy_from_slice(&packing[0].to_le_bytes());
            head[start + 8..start + 16].copy_from_slice(&packing[1].to_le_bytes());
            // Whatever the block's bytes are, so that nothing else is wrong.
            let of_bytes = |bytes: u64| BlockLayout::decode_head(&head, bytes, &types());
            (0..10_000).step_by(64).map(of_bytes).find_map(Result::ok)
        };
        let distances = |width: u64, base: i64| [FORM_DISTANCES | width << 8, base as u64];
        for width in 0..256 {
            assert_eq!(changed(0, 2, distances(width, 5)).is_some(), width <= 64, "bigint of {width}");
            assert_eq!(changed(1, 2, distances(width, 0)).is_some(), width <= 32, "length of {width}");
            assert_eq!(changed(2, 2, distances(width, -5)).is_some(), width <= 64, "decimal of {width}");
            assert_eq!(changed(0, 4, distances(width, 1)).is_some(), width <= 1, "validity of {width}");
        }
        // As they are they have no base and no bits, and there are no other forms.
        assert!(changed(0, 2, [FORM_PLAIN, 0]).is_some() && changed(0, 2, [FORM_PLAIN, 1]).is_none());
        assert!(changed(0, 2, [FORM_PLAIN | 1 << 8, 0]).is_none());
        assert!((4..=255).all(|form| changed(0, 2, [form, 0]).is_none()));
        // Runs are some, and no more than rows.
        for count in [0, 1, 99, 100, 101, u64::from(u32::MAX)] {
            let runs = |width: u64| [FORM_RUNS | width << 8 | count << 32, 5];
            let is_count = (1..=100).contains(&count);
            assert_eq!(changed(0, 2, runs(3)).is_some(), is_count, "{count} runs");
            assert_eq!(changed(1, 2, runs(32)).is_some(), is_count, "{count} runs");
            assert!(changed(1, 2, runs(33)).is_none(), "{count} runs");
        }
        // Deltas are of any integers, in any bits.
        for width in 0..256 {
            let deltas = [FORM_DELTAS | width << 8, i64::MIN as u64];
            assert_eq!(changed(1, 2, deltas).is_some(), width <= 64, "deltas of {width}");
        }
        for form in [FORM_DISTANCES, FORM_DELTAS] {
            assert!((16..64).all(|bit| changed(0, 2, [form | 1 << bit, 5]).is_none()));
        }
        assert!((16..32).all(|bit| changed(0, 2, [FORM_RUNS | 1 << 32 | 1 << bit, 5]).is_none()));
        // A length is an integer, validity a bool, and what is not nullable has none.
        assert!(changed(1, 2, distances(1, i64::from(i32::MAX))).is_some());
        assert!(changed(1, 2, distances(1, i64::from(i32::MAX) + 1)).is_none());
        assert!(changed(0, 4, distances(0, 2)).is_none());
        assert!(changed(1, 4, distances(0, 1)).is_none());
    }
}
