//! Joins that only test whether a key exists, and use no build row: a bitmap instead of a table.
//!
//! These are semi and anti joins that output the probe side, and inner joins whose build side
//! outputs only its unique key: that key is the probe row's own.

use pystachio_plan::{JoinKind, JoinSide, Result};

use super::{Matching, Probing};
use crate::{
    device::{AnyColumn, Chunk, Column, Rows},
    operation::{JoinTable, KeyFilter, KeyFilterShape, KeyTest, Queue},
};

impl Matching {
    /// The keys of a build side as a bitmap, if a bitmap suffices; waits then.
    pub(super) fn members(&self, queue: &Queue, chunk: &Chunk, keys: &[Column]) -> Result<Option<KeyFilter>> {
        let [key] = keys else { return Ok(None) };
        let is_key_alone = || match chunk.columns.as_slice() {
            [column] => column.values.address() == key.values.address(),
            _ => false,
        };
        let is_enough = match self.kind {
            JoinKind::Inner => is_key_alone(),
            JoinKind::Semi | JoinKind::Anti => self.build_side == JoinSide::Right,
            JoinKind::NullAwareAnti => true,
            JoinKind::Left | JoinKind::Full => false,
        };
        if !is_enough || self.residual.is_some() {
            return Ok(None);
        }
        let Some(range) = queue.key_range(key, chunk.row_count)? else { return Ok(None) };
        // It replaces a table, for which there is a claim.
        let table_bytes = self.table_bytes(chunk.row_count, JoinTable::bytes_for);
        let shape = KeyFilterShape::bitmap(Some(range), chunk.row_count, 0);
        let Some(shape) = shape.filter(|shape| shape.bytes() <= table_bytes) else { return Ok(None) };
        let members = queue.open_key_filter(shape)?;
        queue.insert_keys(&members, keys, chunk.row_count)?;
        match self.kind == JoinKind::Inner && queue.has_repeated_key(&members)? {
            true => Ok(None),
            false => Ok(Some(members)),
        }
    }

    /// Marks the probe rows whose keys exist, or outputs them if the join outputs pairs.
    pub(super) fn next_members(
        &self,
        queue: &Queue,
        members: &KeyFilter,
        probing: &mut Probing,
    ) -> Result<Rows> {
        let row_count = probing.rows.row_count;
        probing.next = row_count as u64;
        let flags = queue.test_keys(members, &probing.keys, row_count, KeyTest::default())?;
        if let Some(marks) = &probing.marks {
            match probing.is_marked {
                // Earlier pieces of the build side marked other rows.
                true => queue.mark(&queue.select(&flags, row_count)?, None, marks, 0)?,
                false => probing.marks = Some(flags),
            }
            return queue.empty(&self.types()).map(Rows::from);
        }
        let rows = queue.select(&flags, row_count)?;
        let mut columns = queue.gather_rows(&probing.rows, &rows)?.columns;
        for key in &probing.keys {
            let key = AnyColumn::Cells(queue.gather(key, &rows)?);
            match self.build_side {
                JoinSide::Left => columns.insert(0, key),
                JoinSide::Right => columns.push(key),
            }
        }
        Ok(Rows { row_count: rows.count, columns })
    }
}
