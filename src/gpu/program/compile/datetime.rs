//! Dates, times and timestamps. A timestamp with time zone is one in UTC; `zone.rs` has the functions of others.

use pystachio_plan::{DataType, DateField, Function, Result};

use super::{Call, Compiler, Kind, Slot, decimal::Scaled};
use crate::{
    operation::error_code,
    program::{
        constants::Cell,
        opcode::{Field, Opcode},
    },
};

impl Compiler<'_> {
    /// A function of dates and times.
    pub(super) fn datetime(&mut self, call: &Call<'_>) -> Result<Slot> {
        match call.function {
            Function::Extract(field) => self.extract(field, call),
            Function::DatePart(field) => self.date_part(field, call),
            Function::DateTrunc(field) => self.date_trunc(field, call),
            Function::AddDays | Function::SubtractDays => {
                check_types(call, &[DataType::Date, DataType::Int32])?;
                let opcode = match call.function {
                    Function::AddDays => Opcode::AddDays,
                    _ => Opcode::SubtractDays,
                };
                self.binary(call, opcode, Kind::Integer)
            }
            Function::DaysBetween => {
                check_types(call, &[DataType::Date, DataType::Date])?;
                self.binary(call, Opcode::DaysBetween, Kind::Integer)
            }
            Function::AddInterval => {
                check_types(call, &[call.data_type.clone(), DataType::Interval])?;
                self.binary(call, Opcode::AddInterval, Kind::Interval)
            }
            Function::DateBin => {
                check_types(call, &[call.data_type.clone(), DataType::Int64, call.data_type.clone()])?;
                let slots = [0, 1, 2].map(|place| call.slot(place, Kind::Integer));
                let slots = slots.into_iter().collect::<Result<Vec<Slot>>>()?;
                self.builder.strict(Opcode::DateBin, &slots, 0, 0)
            }
            Function::ToTimestamp => {
                check_types(call, &[DataType::Float64])?;
                self.builder.strict(Opcode::ToTimestamp, &[call.slot(0, Kind::Float)?], 0, 0)
            }
            _ => {
                let first = call.value(0)?.data_type.clone();
                check_types(call, &[first.clone(), first])?;
                self.binary(call, Opcode::TimestampDifference, Kind::Integer)
            }
        }
    }

    fn binary(&mut self, call: &Call<'_>, opcode: Opcode, second: Kind) -> Result<Slot> {
        let (a, b) = (call.slot(0, Kind::Integer)?, call.slot(1, second)?);
        self.builder.strict(opcode, &[a, b], 0, 0)
    }

    fn extract(&mut self, field: DateField, call: &Call<'_>) -> Result<Slot> {
        let DataType::Decimal { scale, .. } = *call.data_type else { return Err(call.not_supported()) };
        let kind = Kind::of(call.data_type).map_err(|_| call.not_supported())?;
        let fault = error_code::DECIMAL_RANGE | if kind == Kind::Integer { 18 } else { 38 } << 8;
        let value = self.field(field, call)?;
        self.rescale(value, kind, u32::from(scale), fault)
    }

    /// Every step is an instruction of its own, so that each is rounded as PostgreSQL rounds it.
    fn date_part(&mut self, field: DateField, call: &Call<'_>) -> Result<Slot> {
        if *call.data_type != DataType::Float64 {
            return Err(call.not_supported());
        }
        let Scaled { slot, scale, .. } = self.field(field, call)?;
        match field {
            DateField::Second | DateField::Milliseconds => self.seconds_part(slot, scale),
            _ => {
                let value = self.builder.strict(Opcode::IntegerToFloat, &[slot], 0, 0)?;
                self.divide_float(value, 10f64.powi(scale as i32))
            }
        }
    }

    /// Microseconds of a minute in units of 10⁶⁻ˢᶜᵃˡᵉ of a second: the whole seconds and their fraction apart.
    fn seconds_part(&mut self, microseconds: Slot, scale: u32) -> Result<Slot> {
        let second = self.builder.integer(1_000_000)?;
        let mut part = |opcode| {
            let part = self.builder.strict(opcode, &[microseconds, second], 64, error_code::INT64_RANGE)?;
            self.builder.strict(Opcode::IntegerToFloat, &[part], 0, 0)
        };
        let (seconds, fraction) = (part(Opcode::DivideInteger)?, part(Opcode::ModuloInteger)?);
        let fraction = self.divide_float(fraction, 10f64.powi(scale as i32))?;
        let units = self.builder.constant(Cell::float(10f64.powi(6 - scale as i32)))?;
        let seconds = self.builder.strict(Opcode::MultiplyFloat, &[seconds, units], 0, 0)?;
        self.builder.strict(Opcode::AddFloat, &[seconds, fraction], 0, 0)
    }

    fn divide_float(&mut self, value: Slot, divisor: f64) -> Result<Slot> {
        if divisor == 1.0 {
            return Ok(value);
        }
        let divisor = self.builder.constant(Cell::float(divisor))?;
        self.builder.strict(Opcode::DivideFloat, &[value, divisor], 0, 0)
    }

    /// A field as an integer, with a scale of its own.
    fn field(&mut self, field: DateField, call: &Call<'_>) -> Result<Scaled> {
        let value = call.value(0)?;
        let (opcode, has_field) = match value.data_type {
            DataType::Date => (Opcode::ExtractDate, field.is_of_date()),
            DataType::Time => (Opcode::ExtractTime, field.is_of_time()),
            DataType::Timestamp | DataType::TimestampTz => (Opcode::ExtractTimestamp, true),
            _ => return Err(call.not_supported()),
        };
        if !has_field {
            return Err(field.not_supported(&value.data_type));
        }
        let slot = self.builder.strict(opcode, &[value.slot], field_number(field), 0)?;
        Ok(Scaled { slot, kind: Kind::Integer, scale: field.scale(&value.data_type).into() })
    }

    fn date_trunc(&mut self, field: DateField, call: &Call<'_>) -> Result<Slot> {
        let value = call.value(0)?;
        if !matches!(value.data_type, DataType::Timestamp | DataType::TimestampTz) {
            return Err(call.not_supported());
        }
        if !field.is_unit() {
            return Err(field.not_supported(call.data_type));
        }
        self.builder.strict(Opcode::TruncateTimestamp, &[value.slot], field_number(field), 0)
    }
}

fn check_types(call: &Call<'_>, types: &[DataType]) -> Result<()> {
    let same = |(value, data_type): (&super::Typed, &DataType)| {
        value.slot == Slot::Null || value.data_type == *data_type
    };
    if call.values.len() == types.len() && call.values.iter().zip(types).all(same) {
        Ok(())
    } else {
        Err(call.not_supported())
    }
}

/// The field as kernels number it.
pub(super) fn field_number(field: DateField) -> u16 {
    let field = match field {
        DateField::Microseconds => Field::Microseconds,
        DateField::Milliseconds => Field::Milliseconds,
        DateField::Second => Field::Second,
        DateField::Minute => Field::Minute,
        DateField::Hour => Field::Hour,
        DateField::Day => Field::Day,
        DateField::Week => Field::Week,
        DateField::Month => Field::Month,
        DateField::Quarter => Field::Quarter,
        DateField::Year => Field::Year,
        DateField::Decade => Field::Decade,
        DateField::Century => Field::Century,
        DateField::Millennium => Field::Millennium,
        DateField::DayOfWeek => Field::DayOfWeek,
        DateField::IsoDayOfWeek => Field::IsoDayOfWeek,
        DateField::DayOfYear => Field::DayOfYear,
        DateField::IsoYear => Field::IsoYear,
        DateField::Epoch => Field::Epoch,
    };
    field as u16
}
