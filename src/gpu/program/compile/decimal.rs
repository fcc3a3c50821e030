//! Decimals: exact, in 64 bits where operands and result have at most 18 digits, in 256 where one has more than
//! 38, and in 128 bits elsewhere.
//!
//! Invariants: a value that does not fit the bits of its type is an error of the row, never a wrong
//! value. No intermediate result overflows if the final result fits. Remainders, quotients and
//! comparisons never form the scaled operands. For sums, products and roundings the bounds of the
//! types make the scaled operands fit if the result does.

use arrow::datatypes::i256;
use pystachio_plan::{DataType, Function, Result};

use super::{Call, Compiler, Kind, Slot, Typed};
use crate::{
    device::{DECIMAL64_DIGITS_MAX, DECIMAL128_DIGITS_MAX, DECIMAL256_DIGITS_MAX},
    operation::error_code,
    program::opcode::{Opcode, Rounding, ordering::GREATER},
};

/// How `ROUND_DECIMAL` and `ROUND_FLOAT` round.
pub(super) fn rounding(function: Function) -> u16 {
    let rounding = match function {
        Function::Round => Rounding::Round,
        Function::Truncate => Rounding::Truncate,
        Function::Ceiling => Rounding::Ceiling,
        _ => Rounding::Floor,
    };
    rounding as u16
}

/// 10^exponent, if 256 bits hold it.
pub(super) fn power_of_ten(exponent: u32) -> Option<i256> {
    i256::from(10).checked_pow(exponent)
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
    let digits = match kind {
        Kind::Integer => DECIMAL64_DIGITS_MAX,
        Kind::Int256 => DECIMAL256_DIGITS_MAX,
        _ => DECIMAL128_DIGITS_MAX,
    };
    error_code::DECIMAL_RANGE | u32::from(digits) << 8
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

    /// The same integer in the bits of a kind that has as many or more.
    pub(super) fn widen(&mut self, slot: Slot, from: Kind, to: Kind) -> Result<Slot> {
        // Constants are held in the bits of any kind.
        if from == to || matches!(slot, Slot::Constant(_)) {
            return Ok(slot);
        }
        let wide = match from {
            Kind::Integer => self.builder.strict(Opcode::Widen, &[slot], 0, 0)?,
            _ => slot,
        };
        match to {
            Kind::Int256 => self.builder.strict(Opcode::WidenInt256, &[wide], 0, 0),
            _ => Ok(wide),
        }
    }

    /// The same integer in the bits of another kind; a fault if it does not fit.
    pub(super) fn hold(&mut self, slot: Slot, from: Kind, to: Kind, fault: u32) -> Result<Slot> {
        if from.widest(to) == to {
            return self.widen(slot, from, to);
        }
        if self.builder.known_integer(slot).is_some_and(|value| to.fits(value)) {
            return Ok(slot);
        }
        let wide = match from {
            Kind::Int256 => self.builder.strict(Opcode::NarrowInt256, &[slot], 0, fault)?,
            _ => slot,
        };
        match to {
            Kind::Integer => self.builder.strict(Opcode::NarrowWide, &[wide], 0, fault),
            _ => Ok(wide),
        }
    }

    /// The value at another scale, rounded half away from zero, in the bits of a kind.
    pub(super) fn rescale(&mut self, value: Scaled, kind: Kind, scale: u32, fault: u32) -> Result<Slot> {
        let Scaled { slot, kind: from, scale: from_scale } = value;
        if slot == Slot::Null || from_scale == scale {
            return self.hold(slot, from, kind, fault);
        }
        let Some(power) = power_of_ten(scale.abs_diff(from_scale)) else {
            // Decimals of at most 76 digits have scales of at most 76.
            return Err(pystachio_plan::Error::internal(format!("a decimal of scale {scale}")));
        };
        if let Some(number) = self.builder.known_integer(slot)
            && let Some(rescaled) = rescale_number(number, power, scale > from_scale)
            && kind.fits(rescaled)
        {
            return self.builder.integer(rescaled);
        }
        let is_short = from == Kind::Integer && Kind::Integer.fits(power);
        let power = self.builder.integer(power)?;
        if scale > from_scale {
            if is_short && kind == Kind::Integer {
                return self.builder.strict(Opcode::MultiplyInteger, &[slot, power], 64, fault);
            }
            let (raised, work) = if is_short {
                (self.builder.strict(Opcode::MultiplyIntoWide, &[slot, power], 0, 0)?, Kind::Wide)
            } else {
                let work = from.widest(kind).widest(Kind::Wide);
                let held = self.widen(slot, from, work)?;
                let opcode = by_width(work, Opcode::MultiplyWide, Opcode::MultiplyInt256);
                (self.builder.strict(opcode, &[held, power], 0, fault)?, work)
            };
            return self.hold(raised, work, kind, fault);
        }
        if is_short {
            let rounded = self.builder.strict(Opcode::RoundInteger, &[slot, power], 0, 0)?;
            return self.hold(rounded, Kind::Integer, kind, fault);
        }
        let work = from.widest(Kind::Wide);
        let held = self.widen(slot, from, work)?;
        let opcode = by_width(work, Opcode::RoundWide, Opcode::RoundInt256);
        let rounded = self.builder.strict(opcode, &[held, power], 0, 0)?;
        self.hold(rounded, work, kind, fault)
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
                let greater = self.compare_kind(GREATER, kind, negated, value)?;
                self.builder.lenient(Opcode::Choose, &[value, negated, greater], 0)
            }
            Function::Sign => {
                let (held, work) = self.widen_at_least(a, Kind::Wide)?;
                let opcode = by_width(work, Opcode::SignWide, Opcode::SignInt256);
                let slot = self.builder.strict(opcode, &[held], 0, 0)?;
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
        let work = a.kind.widest(b.kind).widest(kind).widest(Kind::Wide);
        let (held_a, held_b) = (self.widen(a.slot, a.kind, work)?, self.widen(b.slot, b.kind, work)?);
        let scales = a.scale | b.scale << 8 | scale << 16;
        let opcode = by_width(work, Opcode::DivideDecimal, Opcode::DivideInt256);
        let quotient = self.builder.strict(opcode, &[held_a, held_b, digits], 0, scales)?;
        self.hold(quotient, work, kind, range_fault(kind))
    }

    /// PostgreSQL's choice of digits for a quotient.
    pub(super) fn quotient_scale(&mut self, call: &Call<'_>) -> Result<Slot> {
        let mut groups = [Slot::Null; 2];
        for (index, group) in groups.iter_mut().enumerate() {
            let number = scaled(call, 2 * index)?;
            let display = call.slot(2 * index + 1, Kind::Integer)?;
            let (held, work) = self.widen_at_least(number, Kind::Wide)?;
            let opcode = by_width(work, Opcode::LeadingGroup, Opcode::LeadingGroupInt256);
            *group = self.builder.strict(opcode, &[held, display], 0, number.scale)?;
        }
        self.builder.strict(Opcode::QuotientScale, &groups, 0, 0)
    }

    fn add_decimals(&mut self, call: &Call<'_>, a: Scaled, b: Scaled) -> Result<Slot> {
        let (kind, scale) = result_of(call)?;
        if scale < a.scale.max(b.scale) {
            return Err(call.not_supported());
        }
        let is_sum = call.function == Function::Add;
        let work = a.kind.widest(b.kind).widest(kind);
        let fault = range_fault(work);
        let a = self.rescale(a, work, scale, fault)?;
        let b = self.rescale(b, work, scale, fault)?;
        let (opcode, bits) = match (work, is_sum) {
            (Kind::Integer, true) => (Opcode::AddInteger, 64),
            (Kind::Integer, false) => (Opcode::SubtractInteger, 64),
            (work, true) => (by_width(work, Opcode::AddWide, Opcode::AddInt256), 0),
            (work, false) => (by_width(work, Opcode::SubtractWide, Opcode::SubtractInt256), 0),
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
                let work = a.kind.widest(b.kind).widest(kind).widest(Kind::Wide);
                let (held_a, held_b) = (self.widen(a.slot, a.kind, work)?, self.widen(b.slot, b.kind, work)?);
                let opcode = by_width(work, Opcode::MultiplyWide, Opcode::MultiplyInt256);
                (work, self.builder.strict(opcode, &[held_a, held_b], 0, range_fault(work))?)
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
            // No more digits than the operand has whose scale this is.
            let work = a.kind.widest(b.kind).widest(Kind::Wide);
            let (held_a, held_b) = (self.widen(a.slot, a.kind, work)?, self.widen(b.slot, b.kind, work)?);
            let raises = (own_scale - a.scale) | (own_scale - b.scale) << 8;
            let opcode = by_width(work, Opcode::ModuloWide, Opcode::ModuloInt256);
            let slot = self.builder.strict(opcode, &[held_a, held_b], 0, raises)?;
            Scaled { slot, kind: work, scale: own_scale }
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
            kind => (by_width(kind, Opcode::SubtractWide, Opcode::SubtractInt256), 0),
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
        let (held, work) = self.widen_at_least(a, kind.widest(Kind::Wide))?;
        let scales = a.scale | scale << 8;
        let mode = rounding(call.function);
        let opcode = by_width(work, Opcode::RoundDecimal, Opcode::RoundDecimalInt256);
        let rounded = self.builder.strict(opcode, &[held, digits], mode, scales)?;
        self.hold(rounded, work, kind, range_fault(kind))
    }

    /// The number in the bits of a kind, or in its own if they are more, and that kind.
    fn widen_at_least(&mut self, number: Scaled, kind: Kind) -> Result<(Slot, Kind)> {
        let work = number.kind.widest(kind);
        Ok((self.widen(number.slot, number.kind, work)?, work))
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

/// The instruction for operands of a kind: of 128 or of 256 bits.
fn by_width(kind: Kind, wide: Opcode, int256: Opcode) -> Opcode {
    if kind == Kind::Int256 { int256 } else { wide }
}

/// Kind and scale of a decimal result.
fn result_of(call: &Call<'_>) -> Result<(Kind, u32)> {
    match number_scale(call.data_type) {
        Some(scale) => Kind::of(call.data_type).map(|kind| (kind, scale)).map_err(|_| call.not_supported()),
        None => Err(call.not_supported()),
    }
}

/// number * power or number / power, rounded half away from zero.
fn rescale_number(number: i256, power: i256, raises: bool) -> Option<i256> {
    if raises {
        return number.checked_mul(power);
    }
    let (quotient, remainder) = (number.checked_div(power)?, number.checked_rem(power)?.checked_abs()?);
    let away = remainder >= power.checked_sub(remainder)?;
    quotient.checked_add(if away { number.signum() } else { i256::ZERO })
}
