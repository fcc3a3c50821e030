//! Which bounds a footer says are values of their columns, and not merely bounds.
//!
//! The decoder of footers takes all bounds of numbers for exact, stated or not, so this is read apart from it.
//!
//! Source: parquet.thrift, `FileMetaData` (row groups are field 4), `RowGroup` (chunks are 1), `ColumnChunk` (metadata
//! is 3), `ColumnMetaData` (statistics are 12), `Statistics` (`is_max_value_exact` is 7, `is_min_value_exact` 8).

use crate::compact_protocol::{CompactWalk, Kind};

const CHUNKS_FIELD: i64 = 1;
const METADATA_FIELD: i64 = 3;
const STATISTICS_FIELD: i64 = 12;
const MAXIMUM_IS_EXACT_FIELD: i64 = 7;
const MINIMUM_IS_EXACT_FIELD: i64 = 8;

/// By row group and leaf, whether both bounds are stated to be exact.
#[derive(Debug, Default)]
pub(super) struct ExactBounds(Vec<Vec<bool>>);

impl ExactBounds {
    /// Whether both bounds of a column chunk are stated to be exact.
    pub(super) fn has(&self, row_group: usize, leaf: usize) -> bool {
        self.0.get(row_group).and_then(|leaves| leaves.get(leaf)).copied().unwrap_or(false)
    }

    /// Reads a footer's list of row groups.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub(super) fn read(walk: &mut CompactWalk<'_>) -> Result<Self, &'static str> {
        walk.list(Kind::Struct, row_group).map(Self)
    }
}

fn row_group(walk: &mut CompactWalk<'_>) -> Result<Vec<bool>, &'static str> {
    let mut leaves = Vec::new();
    walk.fields(1, &mut |walk, field, kind| {
        if field != CHUNKS_FIELD || kind != Kind::List {
            return walk.skip(kind, 1);
        }
        leaves = walk.list(Kind::Struct, column_chunk)?;
        Ok(())
    })?;
    Ok(leaves)
}

fn column_chunk(walk: &mut CompactWalk<'_>) -> Result<bool, &'static str> {
    let (mut minimum_is_exact, mut maximum_is_exact) = (false, false);
    within(walk, 2, METADATA_FIELD, &mut |walk| {
        within(walk, 3, STATISTICS_FIELD, &mut |walk| {
            walk.fields(4, &mut |walk, field, kind| {
                match (field, kind) {
                    (MAXIMUM_IS_EXACT_FIELD, Kind::Bool(value)) => maximum_is_exact = value,
                    (MINIMUM_IS_EXACT_FIELD, Kind::Bool(value)) => minimum_is_exact = value,
                    _ => walk.skip(kind, 4)?,
                }
                Ok(())
            })
        })
    })?;
    Ok(minimum_is_exact && maximum_is_exact)
}

/// Reads one field of a structure, which is a structure itself, and moves past the others.
fn within<'a>(
    walk: &mut CompactWalk<'a>,
    depth: usize,
    wanted: i64,
    read: &mut dyn FnMut(&mut CompactWalk<'a>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    walk.fields(depth, &mut |walk, field, kind| match (field, kind) {
        (field, Kind::Struct) if field == wanted => read(walk),
        _ => walk.skip(kind, depth),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_stated_of_both_bounds_is_exact() {
        // Two chunks; the first one's statistics have both flags, the second one's only one.
        let row_groups = [
            0x1c, // One structure.
            0x19, 0x2c, // Field 1, a list of two structures.
            0x3c, 0xcc, 0x71, 0x11, 0, 0, 0, // 3: { 12: { 7: true, 8: true } }
            0x3c, 0xcc, 0x71, 0x12, 0, 0, 0, // 3: { 12: { 7: true, 8: false } }
            0,
        ];
        let exact = ExactBounds::read(&mut CompactWalk { rest: &row_groups }).unwrap();
        assert_eq!(
            [(0, 0), (0, 1), (0, 2), (1, 0)].map(|(group, leaf)| exact.has(group, leaf)),
            [true, false, false, false]
        );
        for end in 0..row_groups.len() {
            assert!(ExactBounds::read(&mut CompactWalk { rest: &row_groups[..end] }).is_err(), "{end}");
        }
    }
}
