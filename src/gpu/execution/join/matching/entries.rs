//! Probe rows whose only key comes as codes. The dictionary's entries look up their matches, and a
//! row has those of its entry.
//!
//! ```text
//! entries ─► table of the build side ─► (entry, build row) … ─► table by entry ◄─ codes of the rows
//! ```
//!
//! Invariants: a NULL entry matches nothing, like a NULL row. There are at most as many pairs of
//! entries as probe rows, so this costs less than hashing every row's text.

use pystachio_plan::{JoinKind, Result};

use super::{Lookup, Matching};
use crate::{
    device::{AnyColumn, CodedColumn, Column},
    operation::{JoinTable, Pairs, ProbeMode, Queue},
};

/// The matches of a dictionary's entries.
pub(super) struct EntryMatches {
    /// Places in `pairs` by entry.
    table: JoinTable,
    /// Entries and build rows.
    pairs: Pairs,
}

impl Matching {
    /// The matches of the dictionary of the only key; `None` if the rows' own keys are to be looked
    /// up.
    pub(super) fn entry_matches(
        &self,
        queue: &Queue,
        lookup: &Lookup,
        keys: &[AnyColumn],
        row_count: usize,
    ) -> Result<Option<EntryMatches>> {
        // The keys' own validity says which rows are NULL.
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
    /// Like [`crate::operation::Queue::probe`], for rows with these codes.
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
