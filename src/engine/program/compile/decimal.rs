//! Decimals: exact, in 64 bits where operands and result have at most 18 digits and in 128 bits elsewhere.
//!
//! Invariants: a value that does not fit the bits of its type is an error of the row, never a wrong value.
//! No intermediate result of 128 bits overflows where the final result fits: remainders, quotients and
//! comparisons never form the scaled operands, and for sums, products and roundings a result that fits
//! implies scaled operands that do, by the bounds that the types are.

use pystachio_plan::{DataType, Function, Result};

use super::{Call, Compiler, Kind, Slot, Typed};
use crate::{
    device::{DECIMAL64_DIGITS_MAX, DECIMAL128_DIGITS_MAX},
    program::{
        opcode::{Opcode, ordering::GREATER},
        status::code,
    },
};

/// How `ROUND_DECIMAL` and `ROUND_FLOAT` round: `Rounding` of kernels/abi/program.h.
pub(super) fn rounding(function: Function) -> u16 {
    match function {
        Function::Round => 0,
        Function::Truncate => 1,
        Function::Ceiling => 2,
        _ => 3,
    }
}

/// 10^exponent, if 128 bits hold it.
pub(super) fn power_of_ten(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

/// Digits after the point of an exact number; `None` for other types.
pub(super) fn number_scale(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Decimal { scale, .. } => Some(u32::from(*scale)),
        data_type if data_type.is_integer() => Some(0),
        _ => None,
    }
}

/// All digits of an exact number; `None` for other types.
pub(super) fn precision_of(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Decimal { precision, .. } => Some(u32::from(*precision)),
        DataType::Int16 => Some(5),
        DataType::Int32 => Some(10),
        DataType::Int64 => Some(19),
        _ => None,
    }
}

/// The fault of a decimal that exceeds the bits that its kind has.
fn range_fault(kind: Kind) -> u32 {
    let digits = if kind == Kind::Integer { DECIMAL64_DIGITS_MAX } else { DECIMAL128_DIGITS_MAX };
    code::DECIMAL_RANGE | u32::from(digits) << 8
}

impl Compiler<'_> {
    /// A value held as a type that is its own but for precision and scale.
    pub(super) fn align(&mut self, value: Typed, data_type: &DataType) -> Result<Slot> {
        if value.slot == Slot::Null || value.data_type == *data_type {
            return Ok(value.slot);
        }
        let kind = Kind::of(data_type)?;
        match (number_scale(&value.data_type), data_type) {
            (Some(from), DataType::Decimal { scale, .. }) => {
                let scaled = Scaled { slot: value.slot, kind: value.kind, scale: from };
                self.rescale(scaled, kind, u32::from(*scale), range_fault(kind))
            }
            _ => {
                let types = [value];
                Err(Call { function: Function::Cast, values: &types, data_type }.not_supported())
            }
        }
    }

    /// The same integer in 128 bits.
    pub(super) fn widen(&mut self, slot: Slot, kind: Kind) -> Result<Slot> {
        match (kind, slot) {
            // Constants are held in 128 bits.
            (Kind::Wide, _) | (_, Slot::Constant(_)) => Ok(slot),
            _ => self.builder.strict(Opcode::Widen, &[slot], 0, 0),
        }
    }

    /// The same integer in the bits of another kind; a fault if it does not fit.
    pub(super) fn hold(&mut self, slot: Slot, from: Kind, to: Kind, fault: u32) -> Result<Slot> {
        match (from, to) {
            (Kind::Wide, Kind::Integer) => {
                if self.builder.known_integer(slot).is_some_and(|value| i64::try_from(value).is_ok()) {
                    return Ok(slot);
                }
                self.builder.strict(Opcode::NarrowWide, &[slot], 0, fault)
            }
            (Kind::Integer, Kind::Wide) => self.widen(slot, from),
            _ => Ok(slot),
        }
    }

    /// The value at another scale, rounded half away from zero, in the bits of a kind.
    pub(super) fn rescale(&mut self, value: Scaled, kind: Kind, scale: u32, fault: u32) -> Result<Slot> {
        let Scaled { slot, kind: from, scale: from_scale } = value;
        if slot == Slot::Null || from_scale == scale {
            return self.hold(slot, from, kind, fault);
        }
        let exponent = scale.abs_diff(from_scale);
        let Some(power) = power_of_ten(exponent) else {
            // Decimals of at most 38 digits have scales of at most 38.
            return Err(pystachio_plan::Error::internal(format!("a decimal of scale {scale}")));
        };
        if let Some(number) = self.builder.known_integer(slot)
            && let Some(rescaled) = rescale_number(number, power, scale > from_scale)
            && (kind == Kind::Wide || i64::try_from(rescaled).is_ok())
        {
            return self.builder.integer(rescaled);
        }
        let is_short = i64::try_from(power).is_ok();
        let power = self.builder.integer(power)?;
        if scale > from_scale {
            if from == Kind::Integer && kind == Kind::Integer && is_short {
                return self.builder.strict(Opcode::MultiplyInteger, &[slot, power], 64, fault);
            }
            let raised = if from == Kind::Integer && is_short {
                self.builder.strict(Opcode::MultiplyIntoWide, &[slot, power], 0, 0)?
            } else {
                let wide = self.widen(slot, from)?;
                self.builder.strict(Opcode::MultiplyWide, &[wide, power], 0, fault)?
            };
            return self.hold(raised, Kind::Wide, kind, fault);
        }
        if from == Kind::Integer && is_short {
            let rounded = self.builder.strict(Opcode::RoundInteger, &[slot, power], 0, 0)?;
            return self.hold(rounded, Kind::Integer, kind, fault);
        }
        let wide = self.widen(slot, from)?;
        let rounded = self.builder.strict(Opcode::RoundWide, &[wide, power], 0, 0)?;
        self.hold(rounded, Kind::Wide, kind, fault)
    }

    /// `+`, `-`, `*`, `%`, negation, `abs`, `sign` and rounding of decimals.
    pub(super) fn decimal_arithmetic(&mut self, call: &Call<'_>) -> Result<Slot> {
        let a = scaled(call, 0)?;
        match call.function {
            Function::Add | Function::Subtract => self.add_decimals(call, a, scaled(call, 1)?),
            Function::Multiply => self.multiply_decimals(call, a, scaled(call, 1)?),
            Function::Modulo => self.modulo_decimals(call, a, scaled(call, 1)?),
            Function::Negate => self.negate_decimal(call, a),
            Function::Absolute => {
                let negated = self.negate_decimal(call, a)?;
                let (kind, _) = result_of(call)?;
                let value = self.hold(a.slot, a.kind, kind, range_fault(kind))?;
                let compare =
                    if kind == Kind::Integer { Opcode::CompareInteger } else { Opcode::CompareWide };
                let greater = self.builder.strict(compare, &[negated, value], GREATER, 0)?;
                self.builder.lenient(Opcode::Choose, &[value, negated, greater], 0)
            }
            Function::Sign => {
                let wide = self.widen(a.slot, a.kind)?;
                let slot = self.builder.strict(Opcode::SignWide, &[wide], 0, 0)?;
                let (kind, scale) = result_of(call)?;
                self.rescale(Scaled { slot, kind: Kind::Integer, scale: 0 }, kind, scale, range_fault(kind))
            }
            Function::Round | Function::Truncate | Function::Ceiling | Function::Floor => {
                self.round_decimal(call, a)
            }
            _ => Err(call.not_supported()),
        }
    }

    /// `numeric / numeric`.
    pub(super) fn divide_decimal(&mut self, call: &Call<'_>) -> Result<Slot> {
        let (a, b) = (scaled(call, 0)?, scaled(call, 1)?);
        let digits = call.slot(2, Kind::Integer)?;
        let (kind, scale) = result_of(call)?;
        let (wide_a, wide_b) = (self.widen(a.slot, a.kind)?, self.widen(b.slot, b.kind)?);
        let scales = a.scale | b.scale << 8 | scale << 16;
        let quotient = self.builder.strict(Opcode::DivideDecimal, &[wide_a, wide_b, digits], 0, scales)?;
        self.hold(quotient, Kind::Wide, kind, range_fault(kind))
    }

    /// PostgreSQL's choice of digits for a quotient.
    pub(super) fn quotient_scale(&mut self, call: &Call<'_>) -> Result<Slot> {
        let mut groups = [Slot::Null; 2];
        for (index, group) in groups.iter_mut().enumerate() {
            let number = scaled(call, 2 * index)?;
            let display = call.slot(2 * index + 1, Kind::Integer)?;
            let wide = self.widen(number.slot, number.kind)?;
            *group = self.builder.strict(Opcode::LeadingGroup, &[wide, display], 0, number.scale)?;
        }
        self.builder.strict(Opcode::QuotientScale, &groups, 0, 0)
    }

    fn add_decimals(&mut self, call: &Call<'_>, a: Scaled, b: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        if scale < a.scale.max(b.scale) {
            return Err(call.not_supported());
        }
        let is_sum = call.function == Function::Add;
        let short = [a.kind, b.kind, kind].iter().all(|kind| *kind == Kind::Integer);
        let work = if short { Kind::Integer } else { Kind::Wide };
        let fault = range_fault(work);
        let a = self.rescale(a, work, scale, fault)?;
        let b = self.rescale(b, work, scale, fault)?;
        let (opcode, bits) = match (work, is_sum) {
            (Kind::Integer, true) => (Opcode::AddInteger, 64),
            (Kind::Integer, false) => (Opcode::SubtractInteger, 64),
            (_, true) => (Opcode::AddWide, 0),
            (_, false) => (Opcode::SubtractWide, 0),
        };
        let sum = self.builder.strict(opcode, &[a, b], bits, fault)?;
        self.hold(sum, work, kind, range_fault(kind))
    }

    fn multiply_decimals(&mut self, call: &Call<'_>, a: Scaled, b: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        if scale < a.scale + b.scale {
            return Err(call.not_supported());
        }
        let short = a.kind == Kind::Integer && b.kind == Kind::Integer;
        let (work, product) = match (short, kind) {
            (true, Kind::Integer) => {
                let fault = range_fault(kind);
                (kind, self.builder.strict(Opcode::MultiplyInteger, &[a.slot, b.slot], 64, fault)?)
            }
            (true, _) => {
                (Kind::Wide, self.builder.strict(Opcode::MultiplyIntoWide, &[a.slot, b.slot], 0, 0)?)
            }
            (false, _) => {
                let (wide_a, wide_b) = (self.widen(a.slot, a.kind)?, self.widen(b.slot, b.kind)?);
                let fault = range_fault(Kind::Wide);
                (Kind::Wide, self.builder.strict(Opcode::MultiplyWide, &[wide_a, wide_b], 0, fault)?)
            }
        };
        let product = Scaled { slot: product, kind: work, scale: a.scale + b.scale };
        self.rescale(product, kind, scale, range_fault(kind))
    }

    fn modulo_decimals(&mut self, call: &Call<'_>, a: Scaled, b: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        let own_scale = a.scale.max(b.scale);
        if scale < own_scale {
            return Err(call.not_supported());
        }
        let remainder = if a.scale == b.scale && a.kind == Kind::Integer && b.kind == Kind::Integer {
            let slot = self.builder.strict(Opcode::ModuloInteger, &[a.slot, b.slot], 64, 0)?;
            Scaled { slot, kind: Kind::Integer, scale: own_scale }
        } else {
            let (wide_a, wide_b) = (self.widen(a.slot, a.kind)?, self.widen(b.slot, b.kind)?);
            let raises = (own_scale - a.scale) | (own_scale - b.scale) << 8;
            let slot = self.builder.strict(Opcode::ModuloWide, &[wide_a, wide_b], 0, raises)?;
            Scaled { slot, kind: Kind::Wide, scale: own_scale }
        };
        self.rescale(remainder, kind, scale, range_fault(kind))
    }

    fn negate_decimal(&mut self, call: &Call<'_>, a: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        if scale != a.scale {
            return Err(call.not_supported());
        }
        let zero = self.builder.integer(0)?;
        let (opcode, bits) = match a.kind {
            Kind::Integer => (Opcode::SubtractInteger, 64),
            _ => (Opcode::SubtractWide, 0),
        };
        let negated = self.builder.strict(opcode, &[zero, a.slot], bits, range_fault(a.kind))?;
        self.hold(negated, a.kind, kind, range_fault(kind))
    }

    fn round_decimal(&mut self, call: &Call<'_>, a: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        let digits = match call.values.get(1) {
            Some(_) => call.slot(1, Kind::Integer)?,
            None => self.builder.integer(0)?,
        };
        let wide = self.widen(a.slot, a.kind)?;
        let scales = a.scale | scale << 8;
        let mode = rounding(call.function);
        let rounded = self.builder.strict(Opcode::RoundDecimal, &[wide, digits], mode, scales)?;
        self.hold(rounded, Kind::Wide, kind, range_fault(kind))
    }
}

/// An exact number at a scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled {
    pub(super) slot: Slot,
    pub(super) kind: Kind,
    pub(super) scale: u32,
}

/// An argument that is an exact number.
fn scaled(call: &Call<'_>, index: usize) -> Result<Scaled> {
    let value = call.value(index)?;
    match number_scale(&value.data_type) {
        Some(scale) => Ok(Scaled { slot: value.slot, kind: value.kind, scale }),
        None if value.slot == Slot::Null => Ok(Scaled { slot: Slot::Null, kind: Kind::Integer, scale: 0 }),
        None => Err(call.not_supported()),
    }
}

/// Kind and scale of a decimal result.
fn result_of(call: &Call<'_>) -> Result<(Kind, u32)> {
    match number_scale(call.data_type) {
        Some(scale) => Kind::of(call.data_type).map(|kind| (kind, scale)).map_err(|_| call.not_supported()),
        None => Err(call.not_supported()),
    }
}

/// number * power or number / power, rounded half away from zero.
fn rescale_number(number: i128, power: i128, raises: bool) -> Option<i128> {
    if raises {
        return number.checked_mul(power);
    }
    let (quotient, remainder) = (number / power, number % power);
    let away = remainder.abs() >= power - remainder.abs();
    quotient.checked_add(if away { number.signum() } else { 0 })
}
