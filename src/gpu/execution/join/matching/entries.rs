//! Probe rows whose only key comes as codes: the entries of the dictionary look for their matches, and a row has those
//! of its entry.
//!
//! ```text
//! entries ─► table of the build side ─► (entry, build row) … ─► table by entry ◄─ codes of the rows
//! ```
//!
//! Invariants: an entry that is NULL matches nothing, as rows that are NULL do. There are no more pairs of entries than
//! rows to probe, so that this costs less than hashing every row's text.

use pystachio_plan::{JoinKind, Result};

use super::{Lookup, Matching};
use crate::{
    device::{AnyColumn, CodedColumn, Column},
    operation::{JoinTable, Pairs, ProbeMode, Queue},
};

/// What the entries of a dictionary match.
pub(super) struct EntryMatches {
    /// Places in `pairs` by entry.
    table: JoinTable,
    /// Entries and build rows.
    pairs: Pairs,
}

impl Matching {
    /// What a dictionary matches from which the only key comes; `None` where the rows' own keys are to be looked up.
    pub(super) fn entry_matches(
        &self,
        queue: &Queue,
        lookup: &Lookup,
        keys: &[AnyColumn],
        row_count: usize,
    ) -> Result<Option<EntryMatches>> {
        // Which rows are NULL is asked of their keys.
        if self.kind == JoinKind::NullAwareAnti {
            return Ok(None);
        }
        let (Lookup::Table(table), [AnyColumn::Codes(coded)]) = (lookup, keys) else { return Ok(None) };
        let CodedColumn { entries, entry_count, .. } = coded;
        let entries = std::slice::from_ref(entries);
        let pairs = queue.probe(table, entries, *entry_count, ProbeMode::Matches, row_count as u64)?;
        let Some(pairs) = pairs else { return Ok(None) };
        let numbers = Column::of_numbers(pairs.probe.rows.clone());
        let table = queue.build(vec![numbers], pairs.probe.count)?;
        Ok(Some(EntryMatches { table, pairs }))
    }
}

impl EntryMatches {
    /// As of [`crate::operation::Queue::probe`], of rows with these codes.
    pub(super) fn probe(
        &self,
        queue: &Queue,
        codes: &[Column],
        row_count: usize,
        mode: ProbeMode,
        pairs_max: u64,
    ) -> Result<Option<Pairs>> {
        let Some(found) = queue.probe(&self.table, codes, row_count, mode, pairs_max)? else {
            return Ok(None);
        };
        let Pairs { build, .. } = queue.select_pairs(&self.pairs, &found.build)?;
        Ok(Some(Pairs { probe: found.probe, build }))
    }
}
