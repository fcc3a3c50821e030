//! The instructions of a program before its values have registers.
//!
//! Invariants: one instruction writes a value, except that several may write a variable under
//! different activities. Equal instructions on equal operands are computed once as far as the
//! second is in rows in which the first was: values computed since a PUSH are forgotten at its POP.

use std::collections::HashMap;

use arrow::datatypes::i256;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    abi::{OPERAND_CONSTANT, PROGRAM_DEPTH_MAX},
    constants::{Cell, Constants},
    opcode::{Condition, Opcode},
};

/// The most instructions of a program.
const INSTRUCTIONS_MAX: usize = 1 << 16;

/// A value: a register to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ValueId(pub(super) u32);

/// The kinds of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// NULL in every row.
    Null,
    /// A constant that is not NULL, by number.
    Constant(u16),
    /// A value of the row.
    Value(ValueId),
}

/// An operand of an instruction: a value, a constant, or a number with a meaning of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    Value(ValueId),
    /// With [`OPERAND_CONSTANT`] set for a constant.
    Number(u16),
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) opcode: Opcode,
    pub(super) operands: [Operand; 3],
    pub(super) mode: u16,
    pub(super) detail: u32,
}

/// An instruction and its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedStep {
    pub(super) step: Step,
    pub(super) target: Option<ValueId>,
    /// Of STORE: the number of the output.
    pub(super) output: u16,
}

/// Collects instructions.
pub(super) struct Builder {
    pub(super) steps: Vec<PlacedStep>,
    pub(super) constants: Constants,
    value_count: u32,
    /// Equal steps are computed once.
    shares: bool,
    known: HashMap<Step, ValueId>,
    known_choices: HashMap<String, Slot>,
    scopes: Vec<Scope>,
}

/// Values to be forgotten at a POP, and the instructions that may skip to it.
#[derive(Default)]
struct Scope {
    steps: Vec<Step>,
    choices: Vec<String>,
    skips: Vec<usize>,
}

impl Builder {
    /// No instructions. `shares`: whether equal steps are computed once, which takes more registers.
    pub(super) fn new(shares: bool) -> Self {
        Self {
            steps: Vec::new(),
            constants: Constants::default(),
            value_count: 0,
            shares,
            known: HashMap::new(),
            known_choices: HashMap::new(),
            scopes: Vec::new(),
        }
    }

    /// A constant.
    pub(super) fn constant(&mut self, cell: Cell) -> Result<Slot> {
        Ok(Slot::Constant(self.constants.number(cell)?))
    }

    /// A constant integer.
    pub(super) fn integer(&mut self, value: impl Into<i256>) -> Result<Slot> {
        self.constant(Cell::integer(value))
    }

    /// The integer that a slot always is.
    pub(super) fn known_integer(&self, slot: Slot) -> Option<i256> {
        match slot {
            Slot::Constant(number) => self.constants.cell(number).and_then(Cell::to_integer),
            _ => None,
        }
    }

    /// The text that a slot always is.
    pub(super) fn known_text(&self, slot: Slot) -> Option<&str> {
        match slot {
            Slot::Constant(number) => self.constants.cell(number).and_then(Cell::to_text),
            _ => None,
        }
    }

    /// A strict function of up to three operands.
    pub(super) fn strict(
        &mut self,
        opcode: Opcode,
        operands: &[Slot],
        mode: u16,
        detail: u32,
    ) -> Result<Slot> {
        if operands.contains(&Slot::Null) {
            return Ok(Slot::Null);
        }
        let unused = Operand::Number(self.unused()?);
        self.compute(opcode, operands, unused, mode, detail)
    }

    /// A function that handles NULL itself.
    pub(super) fn lenient(&mut self, opcode: Opcode, operands: &[Slot], mode: u16) -> Result<Slot> {
        let operands = operands.iter().map(|slot| self.materialize(*slot)).collect::<Result<Vec<Slot>>>()?;
        let unused = Operand::Number(self.unused()?);
        self.compute(opcode, &operands, unused, mode, 0)
    }

    /// A column of the input, by its number in the program.
    pub(super) fn load(&mut self, opcode: Opcode, column: u16) -> Result<Slot> {
        self.compute(opcode, &[], Operand::Number(column), 0, 0)
    }

    /// Writes an output.
    pub(super) fn store(&mut self, opcode: Opcode, value: Slot, output: u16) -> Result<()> {
        let value = self.materialize(value)?;
        let unused = Operand::Number(0);
        let step = Step { opcode, operands: [operand(value), unused, unused], mode: 0, detail: 0 };
        self.push(PlacedStep { step, target: None, output })
    }

    /// A value that [`Builder::assign`] and [`Builder::combine`] write.
    pub(super) fn new_variable(&mut self) -> ValueId {
        self.value_count += 1;
        ValueId(self.value_count - 1)
    }

    /// Copies a slot to a variable where the row is active.
    pub(super) fn assign(&mut self, variable: ValueId, slot: Slot) -> Result<()> {
        let unused = Operand::Number(self.unused()?);
        let (opcode, a) = match slot {
            Slot::Null => (Opcode::SetNull, unused),
            other => (Opcode::Move, operand(other)),
        };
        let step = Step { opcode, operands: [a, unused, unused], mode: 0, detail: 0 };
        self.push(PlacedStep { step, target: Some(variable), output: 0 })
    }

    /// Combines a variable with a slot by AND or OR where the row is active.
    pub(super) fn combine(&mut self, opcode: Opcode, variable: ValueId, slot: Slot) -> Result<()> {
        let slot = self.materialize(slot)?;
        let unused = Operand::Number(self.unused()?);
        let operands = [Operand::Value(variable), operand(slot), unused];
        let step = Step { opcode, operands, mode: 0, detail: 0 };
        self.push(PlacedStep { step, target: Some(variable), output: 0 })
    }

    /// From here on only rows for which the condition holds are active, up to [`Builder::leave`].
    pub(super) fn enter(&mut self, condition: Condition, slot: Slot) -> Result<()> {
        if self.scopes.len() == PROGRAM_DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("choices nest too deep for the GPU: more than {PROGRAM_DEPTH_MAX} levels"),
            ));
        }
        self.scopes.push(Scope::default());
        self.restrict(Opcode::Push, condition, slot)
    }

    /// From here on fewer rows are active, up to the [`Builder::leave`] of the last [`Builder::enter`].
    pub(super) fn narrow(&mut self, condition: Condition, slot: Slot) -> Result<()> {
        self.restrict(Opcode::Narrow, condition, slot)
    }

    /// The rows of the last [`Builder::enter`] are active again.
    pub(super) fn leave(&mut self) -> Result<()> {
        let scope = self.scopes.pop().ok_or_else(|| Error::internal("a choice that was not entered"))?;
        for step in &scope.steps {
            self.known.remove(step);
        }
        for choice in &scope.choices {
            self.known_choices.remove(choice);
        }
        let place = self.steps.len() as u32;
        for skip in scope.skips {
            if let Some(placed) = self.steps.get_mut(skip) {
                placed.step.detail = place;
            }
        }
        let unused = Operand::Number(self.unused()?);
        let step = Step { opcode: Opcode::Pop, operands: [unused; 3], mode: 0, detail: 0 };
        self.push(PlacedStep { step, target: None, output: 0 })
    }

    /// The slot that holds a choice already, by a text that is different for different choices.
    pub(super) fn known_choice(&self, choice: &str) -> Option<Slot> {
        self.known_choices.get(choice).copied()
    }

    /// Remembers the slot of a choice.
    pub(super) fn remember_choice(&mut self, choice: String, slot: Slot) {
        if !self.shares {
            return;
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.choices.push(choice.clone());
        }
        self.known_choices.insert(choice, slot);
    }

    /// Asserts that every choice was left.
    pub(super) fn finish(self) -> (Vec<PlacedStep>, Constants) {
        assert!(self.scopes.is_empty(), "a choice was entered and not left");
        (self.steps, self.constants)
    }

    fn restrict(&mut self, opcode: Opcode, condition: Condition, slot: Slot) -> Result<()> {
        let slot = self.materialize(slot)?;
        let place = self.steps.len();
        if let Some(scope) = self.scopes.last_mut() {
            scope.skips.push(place);
        }
        let unused = Operand::Number(self.unused()?);
        let operands = [operand(slot), unused, unused];
        let step = Step { opcode, operands, mode: condition as u16, detail: 0 };
        self.push(PlacedStep { step, target: None, output: 0 })
    }

    fn compute(
        &mut self,
        opcode: Opcode,
        operands: &[Slot],
        unused: Operand,
        mode: u16,
        detail: u32,
    ) -> Result<Slot> {
        let mut all = [unused; 3];
        for (place, slot) in all.iter_mut().zip(operands) {
            *place = operand(*slot);
        }
        let step = Step { opcode, operands: all, mode, detail };
        if let Some(value) = self.known.get(&step) {
            return Ok(Slot::Value(*value));
        }
        let target = self.new_variable();
        self.push(PlacedStep { step, target: Some(target), output: 0 })?;
        if self.shares {
            self.known.insert(step, target);
            if let Some(scope) = self.scopes.last_mut() {
                scope.steps.push(step);
            }
        }
        Ok(Slot::Value(target))
    }

    /// NULL as a value.
    fn materialize(&mut self, slot: Slot) -> Result<Slot> {
        if slot != Slot::Null {
            return Ok(slot);
        }
        let unused = Operand::Number(self.unused()?);
        self.compute(Opcode::SetNull, &[], unused, 0, 0)
    }

    /// A constant for unused operands: never NULL.
    fn unused(&mut self) -> Result<u16> {
        Ok(self.constants.number(Cell::integer(0))? | OPERAND_CONSTANT)
    }

    fn push(&mut self, step: PlacedStep) -> Result<()> {
        if self.steps.len() == INSTRUCTIONS_MAX {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("an expression has more than {INSTRUCTIONS_MAX} steps on the GPU"),
            ));
        }
        self.steps.push(step);
        Ok(())
    }
}

fn operand(slot: Slot) -> Operand {
    match slot {
        Slot::Value(value) => Operand::Value(value),
        Slot::Constant(number) => Operand::Number(number | OPERAND_CONSTANT),
        // Callers materialize NULL.
        Slot::Null => unreachable!("NULL is no operand"),
    }
}
