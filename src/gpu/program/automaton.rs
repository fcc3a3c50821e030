//! Regular expressions as tables that a kernel walks through: one state a byte of text.
//!
//! ```text
//! pattern ──parse──► the syntax of the crate `regex` ──► lazy automaton ──every state──► table
//! ```
//!
//! Whether a part of a text matches is all that it tells. State 0 is that no match can come any more, state 1 that one was found; from the
//! state [`first_accepting`](Table) on, a text that ends there matches.
//!
//! Invariants: an expression is one that [`RegularExpression`] reads, and means what it means on the CPU engine, which gives the same
//! syntax to the same crate. A table has at most [`TABLE_BYTES_MAX`]; the CPU engine matches what needs more.

use std::collections::HashMap;

use pystachio_engine::CharacterCase;
use pystachio_plan::{Ctype, Error, ErrorKind, RegularExpression, Result};
use regex_automata::{
    Input,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson,
};

/// Bytes of a table: what stays in a GPU's caches beside the text.
const TABLE_BYTES_MAX: usize = 256 << 10;
/// Bytes of the automaton that the table is made of. One with such a table takes far less.
const AUTOMATON_BYTES_MAX: usize = 16 << 20;
/// States of the table that are none of the automaton's: nothing can match, and something has.
const DEAD: u16 = 0;
const MATCHED: u16 = 1;
const OWN_STATES: usize = 2;

/// The states of an automaton that were found.
struct Search {
    automaton: DFA,
    cache: Cache,
    numbers: HashMap<LazyStateID, usize>,
    states: Vec<LazyStateID>,
}

/// A state: those that follow, one for each class of bytes, and whether a text that ends here matches.
struct State {
    next: Vec<Next>,
    accepts: bool,
}

#[derive(Clone, Copy)]
enum Next {
    Dead,
    Matched,
    State(usize),
}

/// The table of a pattern, as `matches_table` of kernels/expression/text.cuh reads it: the class of each byte; the number of classes,
/// the first state, the first state that accepts, 0; and for each state those that follow. All but classes are of 2 bytes.
///
/// # Errors
///
/// `NotSupported` for a pattern that the planner refuses, and for one whose table would be too large.
pub(super) fn table(pattern: &str, ctype: Ctype, ignores_case: bool) -> Result<Vec<u8>> {
    let case = CharacterCase::of(ctype)?;
    let written = RegularExpression::parse(pattern)?.write(case.as_ref(), ignores_case);
    let mut search = Search::new(&written).ok_or_else(too_large)?;
    let classes = *search.automaton.byte_classes();
    let class_count = classes.alphabet_len() - 1;
    let mut bytes_of_classes: Vec<Option<u8>> = vec![None; class_count];
    for byte in 0..=u8::MAX {
        if let Some(place) = bytes_of_classes.get_mut(usize::from(classes.get(byte))) {
            place.get_or_insert(byte);
        }
    }
    let state_count_max = TABLE_BYTES_MAX / (2 * class_count.max(1));
    let representatives: Vec<u8> = bytes_of_classes.into_iter().flatten().collect();
    let mut states = Vec::new();
    while let Some(id) = search.states.get(states.len()).copied() {
        if states.len() + OWN_STATES > state_count_max.min(usize::from(u16::MAX)) {
            return Err(too_large());
        }
        states.push(search.state(id, &representatives).ok_or_else(too_large)?);
    }
    Ok(laid_out(&states, class_count, |byte| classes.get(byte)))
}

/// The table: states that accept come last.
fn laid_out(states: &[State], class_count: usize, class_of: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut order: Vec<usize> = (0..states.len()).collect();
    order.sort_by_key(|place| states[*place].accepts);
    let mut numbers = vec![0; states.len()];
    for (number, place) in order.iter().enumerate() {
        // There are fewer than 2^16.
        numbers[*place] = (number + OWN_STATES) as u16;
    }
    let accepting = states.iter().filter(|state| state.accepts).count();
    let first_accepting = (states.len() - accepting + OWN_STATES) as u16;
    let mut table: Vec<u8> = (0..=u8::MAX).map(class_of).collect();
    let mut push = |number: u16| table.extend(number.to_le_bytes());
    let start = numbers.first().copied().unwrap_or(DEAD);
    [class_count as u16, start, first_accepting, 0].into_iter().for_each(&mut push);
    for own in [DEAD, MATCHED] {
        (0..class_count).for_each(|_| push(own));
    }
    for place in order {
        for next in &states[place].next {
            push(match next {
                Next::Dead => DEAD,
                Next::Matched => MATCHED,
                Next::State(place) => numbers[*place],
            });
        }
    }
    table
}

impl Search {
    /// With the state before a text. `None` for an automaton that is too large.
    fn new(written: &str) -> Option<Self> {
        let limited = thompson::Config::new().nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
        let nfa = thompson::Compiler::new().configure(limited).build(written).ok()?;
        let config = DFA::config().cache_capacity(AUTOMATON_BYTES_MAX).minimum_cache_clear_count(Some(0));
        let automaton = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
        let mut cache = automaton.create_cache();
        let start = automaton.start_state_forward(&mut cache, &Input::new("")).ok()?;
        let mut search = Self { automaton, cache, numbers: HashMap::new(), states: Vec::new() };
        // A match is told one byte late, so that no first state has one.
        search.next_of(start)?;
        Some(search)
    }

    fn state(&mut self, id: LazyStateID, representatives: &[u8]) -> Option<State> {
        let end = self.automaton.next_eoi_state(&mut self.cache, id).ok()?;
        let next = |byte: &u8| {
            let next = self.automaton.next_state(&mut self.cache, id, *byte).ok()?;
            self.next_of(next)
        };
        Some(State {
            next: representatives.iter().map(next).collect::<Option<_>>()?,
            accepts: end.is_match(),
        })
    }

    /// `None` for a state that gives up.
    fn next_of(&mut self, id: LazyStateID) -> Option<Next> {
        if id.is_quit() {
            return None;
        }
        if id.is_dead() || id.is_match() {
            return Some(if id.is_dead() { Next::Dead } else { Next::Matched });
        }
        let place = *self.numbers.entry(id).or_insert_with(|| {
            self.states.push(id);
            self.states.len() - 1
        });
        Some(Next::State(place))
    }
}

fn too_large() -> Error {
    let message = format!("a regular expression has no table of at most {TABLE_BYTES_MAX} bytes for the GPU");
    Error::new(ErrorKind::NotSupported, message)
}
