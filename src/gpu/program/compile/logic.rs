//! AND, OR, CASE and COALESCE: parts that are evaluated only for the rows that reach them.
//!
//! PostgreSQL promises no order for AND and OR, yet it tests from left to right, and queries rely
//! on `b <> 0 AND a / b > 1`. So a part that may fail, or takes long, is evaluated only for rows
//! that the conditions before it leave undecided. Every other part is evaluated for every row,
//! which is cheaper than skipping rows.

use std::{borrow::Borrow, fmt::Debug};

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Result};

use super::{Compiler, Slot};
use crate::program::{
    laziness::is_lazy,
    opcode::{Condition, Opcode},
};

/// How conditions are joined.
#[derive(Clone, Copy, Debug)]
pub(super) enum Logic {
    /// Three-valued AND.
    And,
    /// Three-valued OR.
    Or,
    /// The conditions of a filter, which drops a row at the first that is not true.
    Conditions,
}

impl Compiler<'_> {
    /// A condition of a filter: only true matters. PostgreSQL tests the conditions of a plan node
    /// one after the other and drops a row at the first that is not true. So NULL guards the
    /// following conditions as false does, unlike within an AND.
    pub(super) fn condition(&mut self, condition: &Expression) -> Result<Slot> {
        self.logic(Logic::Conditions, &conjuncts(condition))
    }

    /// Conditions joined by AND or OR, in order. A part that may fail or takes long gets the rows
    /// that those before it leave undecided.
    pub(super) fn logic<E: Borrow<Expression> + Debug>(
        &mut self,
        logic: Logic,
        conditions: &[E],
    ) -> Result<Slot> {
        let (opcode, undecided) = match logic {
            Logic::And => (Opcode::And, Condition::NotFalse),
            Logic::Or => (Opcode::Or, Condition::NotTrue),
            Logic::Conditions => (Opcode::And, Condition::True),
        };
        let Some((first, rest)) = conditions.split_first() else {
            return self.builder.integer(i128::from(opcode == Opcode::And));
        };
        let eager = rest.iter().take_while(|condition| !is_lazy((*condition).borrow())).count();
        let (eager, lazy) = rest.split_at(eager);
        let name = choice_name(&format!("{logic:?}"), conditions, lazy.is_empty());
        if let Some(slot) = name.as_deref().and_then(|name| self.builder.known_choice(name)) {
            return Ok(slot);
        }
        let mut decided = self.compile_as(first.borrow(), &DataType::Bool)?;
        for condition in eager {
            let next = self.compile_as(condition.borrow(), &DataType::Bool)?;
            decided = self.builder.lenient(opcode, &[decided, next], 0)?;
        }
        let Some(name) = name else { return Ok(decided) };
        let variable = self.builder.new_variable();
        self.builder.assign(variable, decided)?;
        for (index, condition) in lazy.iter().enumerate() {
            if index == 0 {
                self.builder.enter(undecided, Slot::Value(variable))?;
            } else {
                self.builder.narrow(undecided, Slot::Value(variable))?;
            }
            let next = self.compile_as(condition.borrow(), &DataType::Bool)?;
            self.builder.combine(opcode, variable, next)?;
        }
        self.builder.leave()?;
        self.builder.remember_choice(name, Slot::Value(variable));
        Ok(Slot::Value(variable))
    }

    /// NOT, IS NULL and their kin.
    pub(super) fn test(&mut self, function: Function, value: &Expression) -> Result<Slot> {
        let value = self.compile(value)?;
        let condition = match function {
            Function::Not => return self.builder.strict(Opcode::Not, &[value.slot], 0, 0),
            Function::IsNull => Condition::Null,
            Function::IsNotNull => Condition::NotNull,
            Function::IsTrue => Condition::True,
            Function::IsNotTrue => Condition::NotTrue,
            Function::IsFalse => Condition::False,
            _ => Condition::NotFalse,
        };
        self.builder.lenient(Opcode::Test, &[value.slot], condition as u16)
    }

    /// CASE.
    pub(super) fn case(
        &mut self,
        case: &Expression,
        branches: &[CaseBranch],
        otherwise: Option<&Expression>,
        data_type: &DataType,
    ) -> Result<Slot> {
        let first = branches.first().map(|branch| &branch.condition);
        let is_eager = case
            .children()
            .into_iter()
            .all(|part| !is_lazy(part) || first.is_some_and(|first| first == part));
        if is_eager {
            return self.select(branches, otherwise, data_type);
        }
        let name = format!("{case:?}");
        if let Some(slot) = self.builder.known_choice(&name) {
            return Ok(slot);
        }
        let variable = self.builder.new_variable();
        for (index, branch) in branches.iter().enumerate() {
            let condition = self.compile_as(&branch.condition, &DataType::Bool)?;
            if index == 0 {
                // Conditions after the first are for rows that are not decided; the first is for all.
                self.builder.enter(Condition::Always, condition)?;
            }
            self.builder.enter(Condition::True, condition)?;
            let result = self.compile_as(&branch.result, data_type)?;
            self.builder.assign(variable, result)?;
            self.builder.leave()?;
            self.builder.narrow(Condition::NotTrue, condition)?;
        }
        let result = match otherwise {
            Some(otherwise) => self.compile_as(otherwise, data_type)?,
            None => Slot::Null,
        };
        self.builder.assign(variable, result)?;
        if !branches.is_empty() {
            self.builder.leave()?;
        }
        self.builder.remember_choice(name, Slot::Value(variable));
        Ok(Slot::Value(variable))
    }

    /// COALESCE.
    pub(super) fn coalesce(&mut self, arguments: &[Expression], data_type: &DataType) -> Result<Slot> {
        let Some((first, rest)) = arguments.split_first() else { return Ok(Slot::Null) };
        let eager = rest.iter().take_while(|argument| !is_lazy(argument)).count();
        let (eager, lazy) = rest.split_at(eager);
        let name = choice_name("Coalesce", arguments, lazy.is_empty());
        if let Some(slot) = name.as_deref().and_then(|name| self.builder.known_choice(name)) {
            return Ok(slot);
        }
        let mut chosen = self.compile_as(first, data_type)?;
        for argument in eager {
            let next = self.compile_as(argument, data_type)?;
            chosen = self.builder.lenient(Opcode::Coalesce, &[chosen, next], 0)?;
        }
        let Some(name) = name else { return Ok(chosen) };
        let variable = self.builder.new_variable();
        self.builder.assign(variable, chosen)?;
        for (index, argument) in lazy.iter().enumerate() {
            if index == 0 {
                self.builder.enter(Condition::Null, Slot::Value(variable))?;
            } else {
                self.builder.narrow(Condition::Null, Slot::Value(variable))?;
            }
            let next = self.compile_as(argument, data_type)?;
            self.builder.assign(variable, next)?;
        }
        self.builder.leave()?;
        self.builder.remember_choice(name, Slot::Value(variable));
        Ok(Slot::Value(variable))
    }

    /// CASE whose parts are all evaluated for every row.
    fn select(
        &mut self,
        branches: &[CaseBranch],
        otherwise: Option<&Expression>,
        data_type: &DataType,
    ) -> Result<Slot> {
        let mut chosen = match otherwise {
            Some(otherwise) => self.compile_as(otherwise, data_type)?,
            None => Slot::Null,
        };
        // From the last one on, so that no branch waits for the others.
        for branch in branches.iter().rev() {
            let condition = self.compile_as(&branch.condition, &DataType::Bool)?;
            let result = self.compile_as(&branch.result, data_type)?;
            chosen = self.builder.lenient(Opcode::Select, &[condition, result, chosen], 0)?;
        }
        Ok(chosen)
    }
}

/// A text that differs for different choices; `None` for other expressions.
fn choice_name(function: &str, arguments: &[impl Debug], is_eager: bool) -> Option<String> {
    (!is_eager).then(|| format!("{function} {arguments:?}"))
}

/// The conditions that must all be true for a condition to be, in order.
fn conjuncts(condition: &Expression) -> Vec<&Expression> {
    let (mut found, mut left) = (Vec::new(), vec![condition]);
    while let Some(condition) = left.pop() {
        match condition {
            Expression::Call { function: Function::And, arguments, .. } => {
                left.extend(arguments.iter().rev())
            }
            _ => found.push(condition),
        }
    }
    found
}
