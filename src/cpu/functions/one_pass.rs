//! The parts of groups of a match, where there is only one way to match.
//!
//! An expression is one-pass if every character of a text leaves at most one way through its automaton. Then a match from one place to
//! another has one part for each group, whatever the expression prefers, and one search finds the match and all parts.
//!
//! Invariants: which match begins at a place, the longest or the shortest, is what [`RegularExpression`] prefers. An expression that is not
//! one-pass has no [`OnePass`].

use std::ops::Range;

use pystachio_engine::CharacterCase;
use pystachio_plan::{Error, RegularExpression, Result};
use regex_automata::{
    Anchored, Input, MatchKind,
    dfa::onepass::{Cache, DFA},
    nfa::thompson,
    util::primitives::NonMaxUsize,
};

/// Bytes of an automaton. Classes of letters of a locale make large ones, for which one search for each group is good enough.
const ONE_PASS_BYTES_MAX: usize = 1 << 20;

/// The automaton of a one-pass expression.
pub(super) struct OnePass {
    automaton: DFA,
    prefers_shorter: bool,
}

/// What a search needs besides, and what it found.
pub(super) struct OnePassCache {
    cache: Cache,
    /// Where the match, then each group, begins and ends.
    slots: Vec<Option<NonMaxUsize>>,
}

impl OnePass {
    /// `None` if the expression is not one-pass, or its automaton is large.
    pub(super) fn new(
        expression: &RegularExpression,
        case: &CharacterCase,
        ignores_case: bool,
    ) -> Option<Self> {
        let written = expression.write_with_groups(case, ignores_case);
        let form = DFA::config().match_kind(MatchKind::All).size_limit(Some(ONE_PASS_BYTES_MAX));
        let limit = thompson::Config::new().nfa_size_limit(Some(ONE_PASS_BYTES_MAX));
        let automaton = DFA::builder().configure(form).thompson(limit).build(&written).ok()?;
        Some(Self { automaton, prefers_shorter: expression.prefers_shorter() })
    }

    pub(super) fn cache(&self) -> OnePassCache {
        let slot_count = self.automaton.get_nfa().group_info().slot_len();
        OnePassCache { cache: self.automaton.create_cache(), slots: vec![None; slot_count] }
    }

    /// The match that begins with a range and ends in it; [`OnePassCache::groups`] has its groups.
    ///
    /// # Errors
    ///
    /// `Internal` if the automaton fails, which it does not.
    pub(super) fn find(
        &self,
        cache: &mut OnePassCache,
        text: &str,
        range: Range<usize>,
    ) -> Result<Option<Range<usize>>> {
        let input = Input::new(text).range(range).anchored(Anchored::Yes).earliest(self.prefers_shorter);
        let found = self.automaton.try_search_slots(&mut cache.cache, &input, &mut cache.slots);
        let found = found.map_err(|error| Error::internal(error.to_string()))?;
        Ok(found.and_then(|_| cache.part(0)))
    }
}

impl OnePassCache {
    /// The parts of groups in the match that was found last.
    pub(super) fn groups(&self) -> Vec<Range<usize>> {
        (1..self.slots.len() / 2).filter_map(|group| self.part(group)).collect()
    }

    fn part(&self, number: usize) -> Option<Range<usize>> {
        let [start, end] = [2 * number, 2 * number + 1].map(|slot| self.slots.get(slot).copied().flatten());
        Some(start?.get()..end?.get())
    }
}
