//! Arithmetic on integers and floats.

use pystachio_plan::{DataType, FloatFunction, Function, RADIANS_PER_DEGREE, Result};

use super::{Call, Compiler, Kind, Slot, Typed, decimal::rounding};
use crate::{
    operation::error_code,
    program::{
        constants::Cell,
        opcode::{
            FloatForm, Opcode, Rounding,
            ordering::{EQUAL, GREATER},
        },
    },
};

/// Bits of an integer type, and the fault of an overflow.
pub(super) fn integer_range(data_type: &DataType) -> (u16, u32) {
    match data_type {
        DataType::Int16 => (16, error_code::INT16_RANGE),
        DataType::Int32 => (32, error_code::INT32_RANGE),
        _ => (64, error_code::INT64_RANGE),
    }
}

/// The opcode of a shift, whose second argument is an `Int32` whatever the first is.
fn shift(function: Function) -> Option<Opcode> {
    match function {
        Function::ShiftLeft => Some(Opcode::ShiftLeft),
        Function::ShiftRight => Some(Opcode::ShiftRight),
        _ => None,
    }
}

impl Compiler<'_> {
    /// Arithmetic whose arguments have the integer type of its result.
    pub(super) fn integer_arithmetic(&mut self, call: &Call<'_>) -> Result<Slot> {
        let (bits, fault) = integer_range(call.data_type);
        if let Some(opcode) = shift(call.function) {
            let (a, count) = (call.slot(0, Kind::Integer)?, call.slot(1, Kind::Integer)?);
            return self.builder.strict(opcode, &[a, count], bits, 0);
        }
        if call.values.iter().any(|value| value.data_type != *call.data_type) {
            return Err(call.not_supported());
        }
        let a = call.slot(0, Kind::Integer)?;
        let opcode = match call.function {
            Function::Add => Opcode::AddInteger,
            Function::Subtract => Opcode::SubtractInteger,
            Function::Multiply => Opcode::MultiplyInteger,
            Function::Divide => Opcode::DivideInteger,
            Function::Modulo => Opcode::ModuloInteger,
            Function::BitAnd => Opcode::BitAnd,
            Function::BitOr => Opcode::BitOr,
            Function::BitXor => Opcode::BitXor,
            Function::BitNot => return self.builder.strict(Opcode::BitNot, &[a], bits, 0),
            Function::Negate | Function::Absolute => {
                let zero = self.builder.integer(0)?;
                let negated = self.builder.strict(Opcode::SubtractInteger, &[zero, a], bits, fault)?;
                if call.function == Function::Negate || a == Slot::Null {
                    return Ok(negated);
                }
                let greater = self.builder.strict(Opcode::CompareInteger, &[negated, a], GREATER, 0)?;
                return self.builder.lenient(Opcode::Choose, &[a, negated, greater], 0);
            }
            _ => return Err(call.not_supported()),
        };
        let b = call.slot(1, Kind::Integer)?;
        self.builder.strict(opcode, &[a, b], bits, fault)
    }

    /// Arithmetic whose arguments have the float type of its result.
    pub(super) fn float_arithmetic(&mut self, call: &Call<'_>) -> Result<Slot> {
        let same = call.values.iter().all(|value| value.data_type == *call.data_type);
        if !call.data_type.is_float() || !same {
            return Err(call.not_supported());
        }
        let form = match call.data_type {
            DataType::Float32 => FloatForm::Real,
            _ => FloatForm::Double,
        };
        let a = call.slot(0, Kind::Float)?;
        if let Function::Float(angle) = call.function {
            let opcode = match angle {
                FloatFunction::Degrees => Opcode::DivideFloat,
                FloatFunction::Radians => Opcode::MultiplyFloat,
                _ => return Err(call.not_supported()),
            };
            let radians = self.builder.constant(Cell::float(RADIANS_PER_DEGREE))?;
            return self.builder.strict(opcode, &[a, radians], 0, 0);
        }
        let (opcode, mode) = match call.function {
            Function::Add => (Opcode::AddFloat, form as u16),
            Function::Subtract => (Opcode::SubtractFloat, form as u16),
            Function::Multiply => (Opcode::MultiplyFloat, form as u16),
            Function::Divide => (Opcode::DivideFloat, form as u16),
            Function::Negate => (Opcode::NegateFloat, 0),
            Function::Absolute => (Opcode::AbsoluteFloat, 0),
            Function::Sign => (Opcode::SignFloat, 0),
            Function::SquareRoot if form == FloatForm::Double => (Opcode::SquareRoot, 0),
            Function::Round | Function::Truncate | Function::Ceiling | Function::Floor => {
                (Opcode::RoundFloat, rounding(call.function))
            }
            _ => return Err(call.not_supported()),
        };
        match call.values.len() {
            1 => self.builder.strict(opcode, &[a], mode, 0),
            2 => {
                let b = call.slot(1, Kind::Float)?;
                self.builder.strict(opcode, &[a, b], mode, 0)
            }
            _ => Err(call.not_supported()),
        }
    }

    /// `percentile_cont` of what an aggregate picked: (low, high, position) of doubles → `low` where the position is whole, otherwise as
    /// far on the way to `high` as the position is behind the whole number before it. Nothing is reported: PostgreSQL takes these steps in C.
    pub(super) fn between(&mut self, call: &Call<'_>) -> Result<Slot> {
        let is_double = |value: &Typed| value.data_type == DataType::Float64;
        if call.function != Function::PercentileCont || !call.values.iter().all(is_double) {
            return Err(call.not_supported());
        }
        let [low, high, position] = [0, 1, 2].map(|index| call.slot(index, Kind::Float));
        let (low, high, position) = (low?, high?, position?);
        let unchecked = FloatForm::Unchecked as u16;
        let builder = &mut self.builder;
        let floor = builder.strict(Opcode::RoundFloat, &[position], Rounding::Floor as u16, 0)?;
        let ceiling = builder.strict(Opcode::RoundFloat, &[position], Rounding::Ceiling as u16, 0)?;
        let is_whole = builder.strict(Opcode::CompareFloat, &[floor, ceiling], EQUAL, 0)?;
        let part = builder.strict(Opcode::SubtractFloat, &[position, floor], unchecked, 0)?;
        let difference = builder.strict(Opcode::SubtractFloat, &[high, low], unchecked, 0)?;
        let way = builder.strict(Opcode::MultiplyFloat, &[part, difference], unchecked, 0)?;
        let between = builder.strict(Opcode::AddFloat, &[low, way], unchecked, 0)?;
        builder.lenient(Opcode::Select, &[is_whole, low, between], 0)
    }
}
