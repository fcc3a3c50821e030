//! The layout of a chunk's rows in a block: one piece of memory without addresses.
//!
//! ```text
//! head │ column 0: values │ validity │ text │ column 1: … │
//!      each part begins at a multiple of 64; a part that there is none of takes nothing
//! head: magic u32 │ version u16 │ columns u16 │ rows u64 │ for each column:
//!       cell type u32 │ nullable u16 │ 0 u16 │ bytes of text u64 │ bytes of it when it is compressed, otherwise 0, u64
//!       │ packing of values │ packing of validity
//! packing: form u8 │ bits of a number u8 │ 0 u16 │ runs u32 │ base i64
//! ```
//!
//! Values are cells, or for text the length of each row as an `i32`. Texts lie one after another,
//! and their offsets follow from the lengths. They may be compressed
//! ([`crate::operation::CompressedText`]). Codes of dictionaries were turned into cells before.
//! Values and validity may be packed, each in its own way ([`Packing`]); others have form 0.
//!
//! Invariants: the head determines the offsets of all parts. Receivers check the head against the
//! block and the expected types. However few bytes its rows are packed to, a block has no more rows
//! than one with room for them unpacked.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::BLOCK_ALIGNMENT;
use crate::{
    device::CellType,
    operation::{PackedForm, Packing, compressed_bytes_min},
};

const MAGIC: u32 = u32::from_le_bytes(*b"PXB\n");
const VERSION: u16 = 3;
const FIXED_HEAD_BYTES: u64 = 16;
const COLUMN_HEAD_BYTES: u64 = 56;
/// A head's form of values: unpacked, or a packed form.
const FORM_PLAIN: u64 = 0;
const FORM_DISTANCES: u64 = 1;
const FORM_DELTAS: u64 = 2;
const FORM_RUNS: u64 = 3;

/// The properties of a column that determine the offsets of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockColumn {
    /// The representation of its cells.
    pub cell_type: CellType,
    /// Whether there is a byte a row that says which are NULL.
    pub is_nullable: bool,
    /// All of its text together; 0 for other columns.
    pub text_bytes: u64,
    /// The bytes of its compressed text; `None` if it is not compressed.
    pub compressed_bytes: Option<u64>,
    /// The packing of its values; `None` if they are not packed.
    pub values: Option<Packing>,
    /// The packing of its validity, as values of bool.
    pub validity: Option<Packing>,
}

/// The layout of a block's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Rows.
    pub row_count: usize,
    /// Columns, and their parts.
    pub columns: Vec<(BlockColumn, BlockParts)>,
    /// All of it, a multiple of [`BLOCK_ALIGNMENT`].
    pub bytes: u64,
    /// Its bytes if nothing were packed.
    pub wide_bytes: u64,
}

/// The offsets of a column's parts, from the beginning of the block.
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
    /// The type of a value: a cell, or the length of a text.
    pub fn value_type(&self) -> CellType {
        match self.cell_type {
            CellType::String => CellType::Int32,
            cell_type => cell_type,
        }
    }

    /// The same, not packed.
    pub fn plain(&self) -> Self {
        Self { compressed_bytes: None, values: None, validity: None, ..*self }
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
    /// The layout of rows of some columns. `None` for more bytes than can be counted, packed or
    /// not, and for more rows than a chunk has.
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
            head.extend(column.compressed_bytes.unwrap_or(0).to_le_bytes());
            for packing in [column.values, column.validity] {
                head.extend(encode_packing(packing).into_iter().flat_map(u64::to_le_bytes));
            }
        }
        head.resize(self.head_bytes() as usize, 0);
        head
    }

    /// The layout of a block of so many bytes with columns of some types, from its head.
    ///
    /// # Errors
    ///
    /// `Protocol` for a head of another version, of other columns, with an unknown packing, or of
    /// more bytes than the block has; `NotSupported` for types without a kernel.
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

    /// Checks that its rows, unpacked, have no more bytes than a block may have: values of zero
    /// bits may be any number.
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

/// A packing, from the words of a head.
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

/// The packing of so many rows of a type, from a head; `None` if it is impossible.
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

/// The words of a head for a column of so many rows of some type.
fn decode_column(
    number: u64,
    (row_count, data_type): (u64, &DataType),
    words: [u64; (COLUMN_HEAD_BYTES / 8) as usize],
) -> Result<BlockColumn> {
    let [kind, text_bytes, compressed_bytes, values @ .., validity, validity_base] = words;
    let cell_type = CellType::of(data_type)?;
    let is_nullable = kind >> 32;
    if kind as u32 != cell_type as u32 || is_nullable > 1 {
        return Err(wrong(&format!("column {number} is not of type {data_type}")));
    }
    if cell_type != CellType::String && text_bytes != 0 {
        return Err(wrong(&format!("column {number} has text")));
    }
    if compressed_bytes != 0
        && (compressed_bytes >= text_bytes || compressed_bytes < compressed_bytes_min(text_bytes))
    {
        return Err(wrong(&format!(
            "column {number} has text that is not compressed so: text_bytes={text_bytes}, compressed_bytes={compressed_bytes}"
        )));
    }
    let plain = BlockColumn {
        cell_type,
        is_nullable: is_nullable == 1,
        text_bytes,
        compressed_bytes: (compressed_bytes != 0).then_some(compressed_bytes),
        values: None,
        validity: None,
    };
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

/// Lays out the parts of columns one after another. Returns the end of the last one.
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
            text_offset_bytes: add(column.compressed_bytes.unwrap_or(column.text_bytes))?,
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
mod tests;
