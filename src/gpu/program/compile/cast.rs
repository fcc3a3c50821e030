//! Changes of type.

use pystachio_plan::{DataType, Result};

use super::{
    Call, Compiler, Kind, Slot, Typed,
    arithmetic::integer_range,
    decimal::{Scaled, number_scale, power_of_ten, precision_of},
};
use crate::{
    operation::error_code,
    program::opcode::{Opcode, WrittenText},
};

/// Every number of at most this many digits before the point is less than the greatest `real`, 3.4e38.
const REAL_WHOLE_DIGITS_MAX: u8 = 38;
/// The least number of at most this many digits after the point is nearer to the least `real`, 1.4e-45, than to 0.
const REAL_SCALE_MAX: u8 = 44;

impl Compiler<'_> {
    /// The plan language's cast.
    pub(super) fn cast(&mut self, call: &Call<'_>) -> Result<Slot> {
        let value = call.value(0)?;
        let (from, to) = (&value.data_type, call.data_type);
        if value.slot == Slot::Null || from == to {
            return Ok(value.slot);
        }
        match to {
            DataType::Int16 | DataType::Int32 | DataType::Int64 => self.cast_to_integer(call, value),
            DataType::Float32 | DataType::Float64 => self.cast_to_float(call, value),
            DataType::Decimal { precision, scale } => {
                self.cast_to_decimal(call, value, u32::from(*precision), u32::from(*scale))
            }
            DataType::Bool if *from == DataType::Int32 => {
                self.builder.strict(Opcode::NotZero, &[value.slot], 0, 0)
            }
            DataType::Text => self.cast_to_text(call, value),
            DataType::Date | DataType::Time | DataType::Timestamp | DataType::TimestampTz => {
                self.cast_to_datetime(call, value)
            }
            _ => Err(call.not_supported()),
        }
    }

    fn cast_to_integer(&mut self, call: &Call<'_>, value: &Typed) -> Result<Slot> {
        let (bits, fault) = integer_range(call.data_type);
        match &value.data_type {
            DataType::Bool if *call.data_type == DataType::Int32 => Ok(value.slot),
            DataType::Float32 | DataType::Float64 => {
                self.builder.strict(Opcode::FloatToInteger, &[value.slot], bits, fault)
            }
            from => {
                let (Some(scale), Some(precision)) = (number_scale(from), precision_of(from)) else {
                    return Err(call.not_supported());
                };
                let scaled = Scaled { slot: value.slot, kind: value.kind, scale };
                let whole = self.rescale(scaled, Kind::Integer, 0, fault)?;
                // Integers that are not wider fit.
                if bits == 64 || (from.is_integer() && precision <= precision_of(call.data_type).unwrap_or(0))
                {
                    return Ok(whole);
                }
                self.builder.strict(Opcode::CheckInteger, &[whole], bits, fault)
            }
        }
    }

    fn cast_to_float(&mut self, call: &Call<'_>, value: &Typed) -> Result<Slot> {
        let is_single = u16::from(*call.data_type == DataType::Float32);
        match &value.data_type {
            DataType::Float64 if is_single == 1 => {
                self.builder.strict(Opcode::DoubleToReal, &[value.slot], 0, 0)
            }
            DataType::Float32 => Ok(value.slot),
            from if from.is_integer() => {
                self.builder.strict(Opcode::IntegerToFloat, &[value.slot], is_single, 0)
            }
            DataType::Decimal { scale, .. } => {
                let work = value.kind.widest(Kind::Wide);
                let held = self.widen(value.slot, value.kind, work)?;
                let opcode = match work {
                    Kind::Int256 if is_single == 1 && !fits_real(&value.data_type) => {
                        return Err(call.not_supported());
                    }
                    Kind::Int256 => Opcode::Int256ToFloat,
                    _ => Opcode::WideToFloat,
                };
                self.builder.strict(opcode, &[held], is_single, u32::from(*scale))
            }
            _ => Err(call.not_supported()),
        }
    }

    fn cast_to_decimal(
        &mut self,
        call: &Call<'_>,
        value: &Typed,
        precision: u32,
        scale: u32,
    ) -> Result<Slot> {
        let from = &value.data_type;
        let (Some(from_scale), Some(from_precision)) = (number_scale(from), precision_of(from)) else {
            return Err(call.not_supported());
        };
        let kind = Kind::of(call.data_type).map_err(|_| call.not_supported())?;
        let fault = error_code::NUMERIC_OVERFLOW | (precision | scale << 8) << 8;
        let scaled = Scaled { slot: value.slot, kind: value.kind, scale: from_scale };
        let work = value.kind.widest(kind);
        let rescaled = self.rescale(scaled, work, scale, fault)?;
        // Rounding may carry into one more digit.
        let whole = from_precision.saturating_sub(from_scale) + u32::from(scale < from_scale);
        if whole <= precision.saturating_sub(scale) {
            return self.hold(rescaled, work, kind, fault);
        }
        let Some(limit) = power_of_ten(precision) else { return Err(call.not_supported()) };
        let limit = self.builder.integer(limit)?;
        let opcode = match work {
            Kind::Integer => Opcode::LimitInteger,
            Kind::Wide => Opcode::LimitWide,
            _ => Opcode::LimitInt256,
        };
        let limited = self.builder.strict(opcode, &[rescaled, limit], 0, fault)?;
        self.hold(limited, work, kind, fault)
    }

    fn cast_to_datetime(&mut self, call: &Call<'_>, value: &Typed) -> Result<Slot> {
        let is_timestamp =
            |data_type: &DataType| matches!(data_type, DataType::Timestamp | DataType::TimestampTz);
        match (&value.data_type, call.data_type) {
            (DataType::Date, to) if is_timestamp(to) => {
                self.builder.strict(Opcode::DateToTimestamp, &[value.slot], 0, 0)
            }
            (from, to) if is_timestamp(from) && is_timestamp(to) => Ok(value.slot),
            (from, DataType::Date) if is_timestamp(from) => {
                self.builder.strict(Opcode::TimestampToDate, &[value.slot], 0, 0)
            }
            (from, DataType::Time) if is_timestamp(from) => {
                self.builder.strict(Opcode::TimestampToTime, &[value.slot], 0, 0)
            }
            _ => Err(call.not_supported()),
        }
    }

    fn cast_to_text(&mut self, call: &Call<'_>, value: &Typed) -> Result<Slot> {
        let written = match &value.data_type {
            DataType::Int16 | DataType::Int32 | DataType::Int64 => WrittenText::Integer,
            DataType::Bool => WrittenText::Bool,
            DataType::Date => WrittenText::Date,
            DataType::Time => WrittenText::Time,
            DataType::Timestamp => WrittenText::Timestamp,
            DataType::TimestampTz => WrittenText::TimestampUtc,
            DataType::Uuid => WrittenText::Uuid,
            _ => return Err(call.not_supported()),
        };
        self.builder.strict(Opcode::WriteText, &[value.slot], written as u16, 0)
    }
}

/// Whether every value of a decimal type but 0 is a `real` that is finite and not 0: PostgreSQL's error for
/// others shows the value.
fn fits_real(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal { precision, scale } => {
            precision - scale <= REAL_WHOLE_DIGITS_MAX && *scale <= REAL_SCALE_MAX
        }
        _ => false,
    }
}
