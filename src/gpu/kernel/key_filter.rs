//! Sets of keys that rows are tested against.

use pystachio_plan::Result;

use super::{
    Kernel, KernelDevice,
    abi::{InsertFilterKeys, KeyFilterView, MeasureKeys, TestFilterKeys},
    join::key_columns,
};
use crate::{
    device::{Buffer, CellType, Column},
    operation::{KeyFilter, KeyFilterOperations, KeyFilterShape, KeyRange, KeyTest},
};

impl KeyFilterView {
    fn of(filter: &KeyFilter) -> Self {
        let (slot_count, least) = match filter.shape {
            KeyFilterShape::Bitmap { least, bit_count } => (bit_count, least),
            KeyFilterShape::Bloom { block_count } => (block_count, 0),
        };
        Self { words: filter.words.address(), slot_count, least }
    }
}

impl KeyFilterOperations for KernelDevice {
    fn key_range(&self, key: &Column, row_count: usize) -> Result<Option<KeyRange>> {
        if !matches!(key.cell_type, CellType::Int16 | CellType::Int32 | CellType::Int64) || row_count == 0 {
            return Ok(None);
        }
        let range = self.upload(&[KeyRange { least: i64::MAX, greatest: i64::MIN }])?;
        let arguments = MeasureKeys { keys: key.view(), row_count: row_count as u64, range: range.address() };
        self.launch_strided(Kernel::MeasureKeys, row_count as u64, &arguments)?;
        let found = self.download::<KeyRange>(&range, 1)?.first().copied();
        Ok(found.filter(|range| range.least <= range.greatest))
    }

    fn open_key_filter(&self, shape: KeyFilterShape) -> Result<KeyFilter> {
        let words = self.allocate_filled::<u32>(shape.words(), 0)?;
        Ok(KeyFilter { shape, words, repeated: self.allocate_filled::<u32>(1, 0)? })
    }

    fn insert_keys(&self, filter: &KeyFilter, keys: &[Column], row_count: usize) -> Result<()> {
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

    fn has_repeated_key(&self, filter: &KeyFilter) -> Result<bool> {
        debug_assert!(matches!(filter.shape, KeyFilterShape::Bitmap { .. }));
        Ok(self.download::<u32>(&filter.repeated, 1)?.first() != Some(&0))
    }

    fn test_keys(
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
