//! Conditions that are conjunctions of integer comparisons and booleans: most scans' filters. A
//! kernel tests them without an interpreter.
//!
//! ```text
//! a >= 3 AND a < 9 AND b <> c        LOAD a, COMPARE >= 3, COMPARE < 9, AND, …, STORE_FLAG
//!   ──► a in 3..=8, b <> c
//! ```
//!
//! They are found in byte-code, where dates, decimals and integers are the same, and constants have
//! the units of their columns.
//!
//! Invariants: a condition is true in the rows in which all of its terms are, and nothing in it can fail.

use std::{collections::HashMap, ops::RangeInclusive};

use super::{
    abi::{Instruction, OPERAND_CONSTANT, RANGE_TERMS_MAX},
    constants::ConstantImage,
    opcode::{
        Opcode,
        ordering::{EQUAL, GREATER, LESS},
    },
};

/// A comparison. Columns are numbers among those that the program loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// A column with constants: an inclusive range.
    Within { column: u16, range: RangeInclusive<i64> },
    /// Two columns, and the orderings that they may have: of [`super::opcode::ordering`].
    Ordered { column: u16, other: u16, orderings: u16 },
}

/// Cells of booleans that are true.
const TRUE: RangeInclusive<i64> = 1..=u8::MAX as i64;

/// The content of a register.
#[derive(Clone)]
enum Symbol {
    Column(u16),
    /// Whether all of these hold.
    All(Vec<Term>),
}

/// An operand of a comparison.
enum Compared {
    Column(u16),
    Constant(i64),
}

/// The terms of a condition of one flag; `None` if it is anything else.
pub(super) fn terms_of(instructions: &[Instruction], constants: &ConstantImage) -> Option<Vec<Term>> {
    let mut registers: HashMap<u16, Symbol> = HashMap::new();
    let (last, rest) = instructions.split_last()?;
    for instruction in rest {
        let symbol = symbol_of(instruction, &registers, constants)?;
        registers.insert(instruction.target, symbol);
    }
    match registers.remove(&last.a)? {
        Symbol::All(terms) if last.opcode == Opcode::StoreFlag as u16 => {
            let terms = merged(terms);
            (terms.len() <= RANGE_TERMS_MAX).then_some(terms)
        }
        _ => None,
    }
}

/// The content of an instruction's target.
fn symbol_of(
    instruction: &Instruction,
    registers: &HashMap<u16, Symbol>,
    constants: &ConstantImage,
) -> Option<Symbol> {
    let Instruction { opcode, a, b, mode, .. } = *instruction;
    let is = |wanted: Opcode| opcode == wanted as u16;
    if is(Opcode::LoadInt16) || is(Opcode::LoadInt32) || is(Opcode::LoadInt64) {
        return Some(Symbol::Column(a));
    }
    if is(Opcode::LoadBool) {
        return Some(Symbol::All(vec![Term::Within { column: a, range: TRUE }]));
    }
    if is(Opcode::Move) {
        return registers.get(&a).cloned();
    }
    if is(Opcode::And) {
        let (Symbol::All(mut terms), Symbol::All(more)) = (registers.get(&a)?.clone(), registers.get(&b)?)
        else {
            return None;
        };
        terms.extend_from_slice(more);
        return Some(Symbol::All(terms));
    }
    if !is(Opcode::CompareInteger) {
        return None;
    }
    let operand = |number: u16| match number & OPERAND_CONSTANT {
        0 => match registers.get(&number)? {
            Symbol::Column(column) => Some(Compared::Column(*column)),
            Symbol::All(_) => None,
        },
        _ => {
            let cell = constants.cells.get(usize::from(number & !OPERAND_CONSTANT))?;
            Some(Compared::Constant(cell[0].cast_signed()))
        }
    };
    let term = match (operand(a)?, operand(b)?) {
        (Compared::Column(column), Compared::Column(other)) => {
            Term::Ordered { column, other, orderings: mode }
        }
        (Compared::Column(column), Compared::Constant(value)) => {
            Term::Within { column, range: range_of(mode, value)? }
        }
        (Compared::Constant(value), Compared::Column(column)) => {
            let turned = (mode & EQUAL)
                | if mode & LESS != 0 { GREATER } else { 0 }
                | if mode & GREATER != 0 { LESS } else { 0 };
            Term::Within { column, range: range_of(turned, value)? }
        }
        (Compared::Constant(_), Compared::Constant(_)) => return None,
    };
    Some(Symbol::All(vec![term]))
}

/// The range of values that have one of some orderings to a constant, if it is a single one.
fn range_of(orderings: u16, value: i64) -> Option<RangeInclusive<i64>> {
    let has = |ordering: u16| orderings & ordering != 0;
    let none = RangeInclusive::new(1, 0);
    Some(match (has(LESS), has(EQUAL), has(GREATER)) {
        (true, false, true) => return None,
        (false, false, false) => none,
        (true, true, true) => i64::MIN..=i64::MAX,
        (true, true, false) => i64::MIN..=value,
        (false, true, true) => value..=i64::MAX,
        (false, true, false) => value..=value,
        (true, false, false) => value.checked_sub(1).map_or(none, |greatest| i64::MIN..=greatest),
        (false, false, true) => value.checked_add(1).map_or(none, |least| least..=i64::MAX),
    })
}

/// The same terms, with one range for a column at most.
fn merged(terms: Vec<Term>) -> Vec<Term> {
    let mut kept: Vec<Term> = Vec::with_capacity(terms.len());
    for term in terms {
        if let Term::Within { column, range } = &term {
            let known = kept.iter_mut().find_map(|known| match known {
                Term::Within { column: other, range } if other == column => Some(range),
                _ => None,
            });
            if let Some(known) = known {
                *known = *known.start().max(range.start())..=*known.end().min(range.end());
                continue;
            }
        }
        kept.push(term);
    }
    kept
}
