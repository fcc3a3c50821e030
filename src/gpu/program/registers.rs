//! Registers for values: a value keeps its register from the first instruction that writes it to the last
//! that names it.
//!
//! Source: linear scan, Poletto, Sarkar, "Linear Scan Register Allocation", TOPLAS 1999. We differ:
//! nothing is spilled; a program that needs more registers than there are is not supported.

use std::collections::HashMap;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    abi::Instruction,
    builder::{Operand, PlacedStep, ValueId},
    opcode::Opcode,
};

/// Instructions with registers.
#[derive(Debug)]
pub(super) struct RegisterAllocation {
    pub(super) instructions: Vec<Instruction>,
    pub(super) register_count: usize,
}

/// Gives every value one of `registers_max` registers.
///
/// # Errors
///
/// `NotSupported` if more values are needed at once.
pub(super) fn allocate_registers(steps: &[PlacedStep], registers_max: usize) -> Result<RegisterAllocation> {
    let mut last_use: HashMap<ValueId, usize> = HashMap::new();
    for (place, placed) in steps.iter().enumerate() {
        for value in named_values(placed) {
            last_use.insert(value, place);
        }
    }
    let mut registers: HashMap<ValueId, u16> = HashMap::new();
    let mut free: Vec<u16> = Vec::new();
    let mut register_count = 0;
    let mut instructions = Vec::with_capacity(steps.len());
    for (place, placed) in steps.iter().enumerate() {
        let ends = |value: &ValueId| last_use.get(value) == Some(&place);
        let operands = placed.step.operands.map(|operand| match operand {
            Operand::Number(number) => number,
            Operand::Value(value) => registers.get(&value).copied().unwrap_or(u16::MAX),
        });
        assert!(!operands.contains(&u16::MAX), "a value is read before it is written");
        // An instruction reads its operands before it writes, so the target may take the place of one.
        let mut ended: Vec<ValueId> = named_values(placed).filter(ends).collect();
        ended.sort_unstable();
        ended.dedup();
        let target = match placed.target {
            Some(value) => {
                for operand in ended.iter().filter(|operand| **operand != value) {
                    free.extend(registers.remove(operand));
                }
                ended.retain(|operand| *operand == value);
                *registers.entry(value).or_insert_with(|| {
                    free.pop().unwrap_or_else(|| {
                        register_count += 1;
                        register_count - 1
                    })
                })
            }
            None => placed.output,
        };
        for operand in ended {
            free.extend(registers.remove(&operand));
        }
        if usize::from(register_count) > registers_max {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("an expression needs more than {registers_max} registers on the GPU"),
            ));
        }
        let [a, b, c] = operands;
        let opcode = placed.step.opcode as u16;
        let (mode, detail) = (placed.step.mode, placed.step.detail);
        instructions.push(Instruction { opcode, target, a, b, c, mode, detail });
    }
    Ok(RegisterAllocation { instructions, register_count: usize::from(register_count) })
}

fn named_values(placed: &PlacedStep) -> impl Iterator<Item = ValueId> {
    let operands = placed.step.operands.into_iter().filter_map(|operand| match operand {
        Operand::Value(value) => Some(value),
        Operand::Number(_) => None,
    });
    debug_assert!(placed.target.is_none() || placed.step.opcode > Opcode::Pop);
    operands.chain(placed.target)
}
