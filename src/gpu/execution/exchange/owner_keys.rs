//! The owners of a shuffle's rows: the hash of the keys decides, unless the keys are heavy.
//!
//! ```text
//! chunk ─┬─ keys ─────────────────────────────────► the rank that owns them
//!        └─ heavy? ─┬─ of the probe side ─────────► this rank
//!                   └─ of the build side ─────────► this rank, and copies of them all others
//! ```
//!
//! Invariants: rows that a join matches are heavy on both sides or on neither: both sides compare
//! with the same values.
//!
//! Deliberately absent: which keys are heavy (`pystachio_plan`'s `distribute`).

use pystachio_plan::{ColumnId, DataType, Error, Expression, Literal, Result, Value, is_heavy};

use crate::{
    device::{Buffer, Chunk, Column, Rows},
    execution::expressions::{RowCondition, RowProgram},
    operation::{Queue, RowNumbers},
};

/// The rule for rows with heavy keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execution) enum HeavyRows {
    /// They stay where they are.
    Stay,
    /// They stay, and every other rank gets them too.
    GoToAll,
}

/// Computes the owners of rows.
pub(in crate::execution) struct OwnerKeys {
    keys: RowProgram,
    heavy: Option<(RowCondition, HeavyRows)>,
}

/// The owners of a chunk's rows.
pub(super) struct ChunkOwners {
    pub(super) keys: Vec<Column>,
    /// Rows with heavy keys, if there are any.
    pub(super) heavy: Option<HeavyChunkRows>,
}

/// Rows of a chunk that stay.
pub(super) struct HeavyChunkRows {
    /// A byte a row, not 0 for these.
    pub(super) flags: Buffer,
    /// The same as numbers.
    pub(super) rows: RowNumbers,
    pub(super) what: HeavyRows,
}

impl OwnerKeys {
    /// Keys of rows with these columns, and the heavy values. Heavy values need a single key.
    ///
    /// # Errors
    ///
    /// Errors of [`RowProgram::compile`]; `Internal` for heavy values of several keys.
    pub(in crate::execution) fn compile(
        keys: &[Expression],
        (heavy, what): (&[Value], HeavyRows),
        (columns, parameters): (&[(ColumnId, DataType)], &[Literal]),
    ) -> Result<Self> {
        let condition = match keys {
            [key] => is_heavy(key, heavy),
            _ if heavy.is_empty() => None,
            _ => return Err(Error::internal("heavy values of several keys")),
        };
        let compiled = |condition: Expression| RowCondition::compile(&condition, columns, parameters);
        let heavy = condition.map(compiled).transpose()?.map(|condition| (condition, what));
        Ok(Self { keys: RowProgram::compile(keys, columns, parameters)?, heavy })
    }

    /// The owners of a chunk's rows. If some may have heavy keys, waits for their count.
    ///
    /// # Errors
    ///
    /// Errors of the keys; `OutOfMemory`, `Device`.
    pub(super) fn evaluate(&self, queue: &Queue, chunk: &Chunk) -> Result<ChunkOwners> {
        let rows = Rows::from(chunk.clone());
        let keys = self.keys.evaluate_cells(queue, &rows)?;
        let Some((condition, what)) = &self.heavy else { return Ok(ChunkOwners { keys, heavy: None }) };
        let lacks = || Error::internal("rows lack the column of a heavy key");
        let flags =
            condition.flags(queue, rows.row_count, |place| rows.columns.get(place).ok_or_else(lacks))?;
        let numbers = queue.select(&flags, rows.row_count)?;
        let heavy = (numbers.count > 0).then_some(HeavyChunkRows { flags, rows: numbers, what: *what });
        Ok(ChunkOwners { keys, heavy })
    }
}
