//! Which rows of a table pass tests.

use bytemuck::Zeroable;
use pystachio_plan::{Error, Result};

use super::{
    abi::{
        SEGMENT_BLOCK_WORDS, SEGMENT_TESTS_MAX, SegmentSelection, SegmentTest, SegmentTestKind, TestSegments,
    },
    encode::warps_grid,
    search::TextSearch,
    table::SegmentTable,
};
use crate::{
    device::{Buffer, Kernel},
    operation::{KeyFilter, KeyFilterShape, Queue},
};

/// A test of every row. A row whose value is NULL does not pass one of columns.
#[derive(Clone, Copy, Debug)]
pub enum TableTest<'a> {
    /// An integer within bounds.
    Within {
        /// The column's number in the table.
        column: usize,
        /// The least integer that passes.
        least: i64,
        /// The greatest one.
        greatest: i64,
    },
    /// Two integers in one of some orders: of [`crate::program`]'s bits.
    Ordered {
        /// The first one's column.
        column: usize,
        /// The second one's.
        other: usize,
        /// Bits.
        orderings: u32,
    },
    /// An integer, or a code, in a set of keys.
    Key {
        /// The column's number in the table.
        column: usize,
        /// The set.
        keys: &'a KeyFilter,
        /// A [`crate::operation::FilterCounts`] to add to.
        counts: Option<&'a Buffer>,
    },
    /// A text in which a search finds its parts.
    Search {
        /// The column's number in the table.
        column: usize,
        /// A [`SegmentSearch`].
        search: &'a Buffer,
    },
    /// A flag for each row of the table.
    Flags(&'a Buffer),
    /// A flag for each row that is tested, in their order.
    FlagsOfTested(&'a Buffer),
}

/// Rows of a table, in their order.
#[derive(Clone, Debug)]
pub struct SelectedRows {
    pub(super) bits: Buffer,
    pub(super) offsets: Buffer,
    count: usize,
}

impl SelectedRows {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(super) fn view(&self) -> SegmentSelection {
        SegmentSelection { bits: self.bits.address(), offsets: self.offsets.address() }
    }
}

impl TableTest<'_> {
    fn view(&self) -> SegmentTest {
        let kind = |kind: SegmentTestKind, column: usize| SegmentTest {
            kind: kind as u32,
            column: column as u32,
            ..SegmentTest::default()
        };
        match *self {
            Self::Within { column, least, greatest } => {
                SegmentTest { least, greatest, ..kind(SegmentTestKind::Range, column) }
            }
            Self::Ordered { column, other, orderings } => {
                SegmentTest { other: other as u32, orderings, ..kind(SegmentTestKind::Order, column) }
            }
            Self::Key { column, keys, counts } => set_test(column, keys, counts),
            Self::Search { column, search } => {
                SegmentTest { words: search.address(), ..kind(SegmentTestKind::Search, column) }
            }
            Self::Flags(flags) => SegmentTest { words: flags.address(), ..kind(SegmentTestKind::Flags, 0) },
            Self::FlagsOfTested(flags) => {
                SegmentTest { words: flags.address(), ..kind(SegmentTestKind::RankedFlags, 0) }
            }
        }
    }
}

fn set_test(column: usize, keys: &KeyFilter, counts: Option<&Buffer>) -> SegmentTest {
    let (kind, slot_count, least) = match keys.shape() {
        KeyFilterShape::Bitmap { least, bit_count } => (SegmentTestKind::Bitmap, bit_count, least),
        KeyFilterShape::Bloom { block_count } => (SegmentTestKind::Bloom, block_count, 0),
    };
    SegmentTest {
        kind: kind as u32,
        column: column as u32,
        least,
        words: keys.words.address(),
        slot_count,
        counts: counts.map_or(0, Buffer::address),
        ..SegmentTest::default()
    }
}

impl Queue {
    /// A search, for tests on this queue.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn upload_search(&self, search: &TextSearch) -> Result<Buffer> {
        self.upload(&[search.view()])
    }

    /// The rows of a table, of those before, that pass all tests; waits for their count. Sets of keys must be in use on this stream.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn test_segments(
        &self,
        table: &SegmentTable,
        before: Option<&SelectedRows>,
        tests: &[TableTest<'_>],
    ) -> Result<SelectedRows> {
        let mut found: Option<SelectedRows> = None;
        let mut rest = tests;
        loop {
            let (now, later) = rest.split_at(rest.len().min(SEGMENT_TESTS_MAX));
            let of_tested = later.iter().any(|test| matches!(test, TableTest::FlagsOfTested(_)));
            if of_tested {
                return Err(Error::internal("flags of tested rows after many tests"));
            }
            let selected = self.test_once(table, found.as_ref().or(before), now)?;
            rest = later;
            if rest.is_empty() || selected.count == 0 {
                return Ok(selected);
            }
            found = Some(selected);
        }
    }

    fn test_once(
        &self,
        table: &SegmentTable,
        before: Option<&SelectedRows>,
        tests: &[TableTest<'_>],
    ) -> Result<SelectedRows> {
        let block_count = table.rows.block_count;
        let bits = self.allocate::<u32>(block_count * SEGMENT_BLOCK_WORDS)?;
        let counts = self.allocate::<u32>(block_count)?;
        let mut arguments = TestSegments {
            rows: table.rows,
            before: before.map_or_else(SegmentSelection::default, SelectedRows::view),
            bits: bits.address(),
            counts: counts.address(),
            test_count: tests.len() as u32,
            ..TestSegments::zeroed()
        };
        let mut bytes = 0;
        for (test, view) in tests.iter().zip(&mut arguments.tests) {
            *view = test.view();
            bytes += match *test {
                TableTest::Within { column, .. }
                | TableTest::Key { column, .. }
                | TableTest::Search { column, .. } => table.column_bytes(column),
                TableTest::Ordered { column, other, .. } => {
                    table.column_bytes(column) + table.column_bytes(other)
                }
                TableTest::Flags(_) | TableTest::FlagsOfTested(_) => table.row_count as u64,
            };
        }
        let grid = warps_grid(Kernel::TestSegments, block_count);
        self.launch_moving(Kernel::TestSegments, grid, &arguments, || bytes)?;
        let (offsets, count) = self.offsets(&counts, 4, block_count as usize)?;
        Ok(SelectedRows { bits, offsets, count: count as usize })
    }
}
