//! Sets of keys that filter rows before a lookup in a table.
//!
//! Integers that lie close together get a bit each, and then a row passes if and only if its key is in the set.
//! Other keys, and several at once, go into a blocked Bloom filter, which lets some rows pass that it should not.
//!
//! Invariants: a row whose keys are in the set passes; a row with a NULL key does not.

use pystachio_plan::Result;

use super::{
    BLOOM_BLOCK_WORDS, KeyRange, Queue,
    abi::{InsertFilterKeys, KeyFilterView, MeasureKeys, TestFilterKeys},
    join::key_columns,
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// Bits of a bitmap, for each row: it is then smaller than a table of the rows.
const BITMAP_BITS_PER_ROW_MAX: u64 = 32;
/// Bits of a bitmap, for each row that is tested: half a byte to clear, where a Bloom filter computes eight products and
/// reads 32 bytes. Keys of clustered rows then read few words again and again.
const BITMAP_BITS_PER_TESTED_ROW_MAX: u64 = 4;
/// Bits that a bitmap may have for few rows: 1 MiB stays in any GPU's cache.
const BITMAP_BITS_FREE: u64 = 8 << 20;
/// Bits of a Bloom filter, for each row: less than one row in a hundred passes by mistake.
const BLOOM_BITS_PER_ROW: u64 = 16;
const WORD_BITS: u64 = 32;
const WORD_BYTES: u64 = 4;

/// The representation of a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFilterShape {
    /// A bit for every integer from `least` on.
    Bitmap {
        /// The key of the first bit.
        least: i64,
        /// Bits.
        bit_count: u64,
    },
    /// Blocks, found by hash.
    Bloom {
        /// Blocks.
        block_count: u64,
    },
}

/// A set of keys on the device. For a Bloom filter, keys choose bits by hash.
#[derive(Debug)]
pub struct KeyFilter {
    pub(crate) shape: KeyFilterShape,
    /// `u32`.
    pub(crate) words: Buffer,
    /// Whether two rows have one key of a bitmap: a `u32`.
    pub(crate) repeated: Buffer,
}

/// Further arguments and counts of a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyTest<'a> {
    /// One byte a row: whether it is tested. All rows if absent.
    pub asked: Option<&'a Buffer>,
    /// A [`super::FilterCounts`] to add to.
    pub counts: Option<&'a Buffer>,
}

impl KeyFilterShape {
    /// A bitmap, if the values of the only key are integers and lie close enough together for so many rows of the set, and
    /// so many that are about to be tested. `range` is of that key.
    pub fn bitmap(range: Option<KeyRange>, row_count: usize, tested_rows: u64) -> Option<Self> {
        let KeyRange { least, greatest } = range?;
        let bit_count = greatest.abs_diff(least).saturating_add(1);
        let of_rows = (row_count as u64).saturating_mul(BITMAP_BITS_PER_ROW_MAX);
        let of_tested = tested_rows.saturating_mul(BITMAP_BITS_PER_TESTED_ROW_MAX);
        let bits_max = of_rows.max(of_tested).max(BITMAP_BITS_FREE);
        (bit_count <= bits_max).then_some(Self::Bitmap { least, bit_count })
    }

    /// A Bloom filter for keys of any kind.
    pub fn bloom(row_count: usize) -> Self {
        let rows = row_count as u64;
        let block_count = (rows * BLOOM_BITS_PER_ROW).div_ceil(BLOOM_BLOCK_WORDS * WORD_BITS);
        Self::Bloom { block_count: block_count.clamp(1, u64::from(u32::MAX)) }
    }

    /// Words of 32 bits.
    pub(crate) fn words(self) -> u64 {
        match self {
            Self::Bitmap { bit_count, .. } => bit_count.div_ceil(WORD_BITS),
            Self::Bloom { block_count } => block_count * BLOOM_BLOCK_WORDS,
        }
    }

    /// Device memory that it takes.
    pub fn bytes(self) -> u64 {
        self.words() * WORD_BYTES
    }
}

impl KeyFilter {
    /// Its memory.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        [&self.words, &self.repeated].into_iter()
    }

    /// Its representation.
    pub fn shape(&self) -> KeyFilterShape {
        self.shape
    }
}

impl KeyFilterView {
    fn of(filter: &KeyFilter) -> Self {
        let (slot_count, least) = match filter.shape {
            KeyFilterShape::Bitmap { least, bit_count } => (bit_count, least),
            KeyFilterShape::Bloom { block_count } => (block_count, 0),
        };
        Self { words: filter.words.address(), slot_count, least }
    }
}

/// Building sets of keys and testing rows against them.
impl Queue {
    /// The least and the greatest value of an integer key; waits. `None` for other types, and if
    /// every row is NULL.
    pub fn key_range(&self, key: &Column, row_count: usize) -> Result<Option<KeyRange>> {
        if !matches!(key.cell_type, CellType::Int16 | CellType::Int32 | CellType::Int64) || row_count == 0 {
            return Ok(None);
        }
        let range = self.upload(&[KeyRange { least: i64::MAX, greatest: i64::MIN }])?;
        let arguments = MeasureKeys { keys: key.view(), row_count: row_count as u64, range: range.address() };
        self.launch_strided(Kernel::MeasureKeys, row_count as u64, &arguments)?;
        let found = self.download::<KeyRange>(&range, 1)?.first().copied();
        Ok(found.filter(|range| range.least <= range.greatest))
    }

    /// A set without keys.
    pub fn open_key_filter(&self, shape: KeyFilterShape) -> Result<KeyFilter> {
        let words = self.allocate_filled::<u32>(shape.words(), 0)?;
        Ok(KeyFilter { shape, words, repeated: self.allocate_filled::<u32>(1, 0)? })
    }

    /// Adds the rows' keys to a set. A bitmap has bits for all of them.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`super::KEYS_MAX`] keys.
    pub fn insert_keys(&self, filter: &KeyFilter, keys: &[Column], row_count: usize) -> Result<()> {
        let row_count = row_count as u64;
        let arguments = InsertFilterKeys {
            keys: key_columns(keys)?,
            filter: KeyFilterView::of(filter),
            row_count,
            repeated: filter.repeated.address(),
        };
        let kernel = match filter.shape {
            KeyFilterShape::Bitmap { .. } => Kernel::InsertBitmapKeys,
            KeyFilterShape::Bloom { .. } => Kernel::InsertBloomKeys,
        };
        self.launch_strided(kernel, row_count, &arguments)
    }

    /// The entries of a dictionary whose flags are set, as a set of codes; waits for their count.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn flagged_codes(&self, flags: &Buffer, entry_count: usize) -> Result<KeyFilter> {
        let flagged = self.select(flags, entry_count)?;
        let bit_count = entry_count as u64;
        let codes = self.open_key_filter(KeyFilterShape::Bitmap { least: 0, bit_count })?;
        self.insert_keys(&codes, &[Column::of_numbers(flagged.rows)], flagged.count)?;
        Ok(codes)
    }

    /// Whether two rows with equal keys were added to a bitmap; waits. A Bloom filter can't tell.
    pub fn has_repeated_key(&self, filter: &KeyFilter) -> Result<bool> {
        debug_assert!(matches!(filter.shape, KeyFilterShape::Bitmap { .. }));
        Ok(self.download::<u32>(&filter.repeated, 1)?.first() != Some(&0))
    }

    /// One flag a row: whether it is tested and its keys may be in the set. `keys` have the types
    /// of those that were inserted.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::insert_keys`].
    pub fn test_keys(
        &self,
        filter: &KeyFilter,
        keys: &[Column],
        row_count: usize,
        test: KeyTest<'_>,
    ) -> Result<Buffer> {
        let flags = self.allocate::<u8>(row_count as u64)?;
        let arguments = TestFilterKeys {
            keys: key_columns(keys)?,
            filter: KeyFilterView::of(filter),
            row_count: row_count as u64,
            asked: test.asked.map_or(0, Buffer::address),
            flags: flags.address(),
            counts: test.counts.map_or(0, Buffer::address),
        };
        let kernel = match filter.shape {
            KeyFilterShape::Bitmap { .. } => Kernel::TestBitmapKeys,
            KeyFilterShape::Bloom { .. } => Kernel::TestBloomKeys,
        };
        self.launch_strided(kernel, row_count as u64, &arguments)?;
        Ok(flags)
    }
}
