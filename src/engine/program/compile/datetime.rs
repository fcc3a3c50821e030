//! Dates, times and timestamps. A timestamp with time zone is one in UTC.

use pystachio_plan::{DataType, DateField, Error, ErrorKind, Function, Result};

use super::{Call, Compiler, Kind, Slot, decimal::Scaled};
use crate::program::{opcode::Opcode, status::code};

impl Compiler<'_> {
    /// A function of dates and times.
    pub(super) fn datetime(&mut self, call: &Call<'_>) -> Result<Slot> {
        match call.function {
            Function::Extract(field) => self.extract(field, call),
            Function::DateTrunc(field) => self.date_trunc(field, call),
            Function::AddDays | Function::SubtractDays => {
                check_types(call, &[DataType::Date, DataType::Int32])?;
                let opcode = match call.function {
                    Function::AddDays => Opcode::AddDays,
                    _ => Opcode::SubtractDays,
                };
                self.binary(call, opcode, Kind::Integer, (0, 0))
            }
            Function::DaysBetween => {
                check_types(call, &[DataType::Date, DataType::Date])?;
                self.binary(call, Opcode::SubtractInteger, Kind::Integer, (32, code::DATE_RANGE))
            }
            Function::AddInterval => {
                check_types(call, &[call.data_type.clone(), DataType::Interval])?;
                self.binary(call, Opcode::AddInterval, Kind::Interval, (0, 0))
            }
            _ => {
                let first = call.value(0)?.data_type.clone();
                check_types(call, &[first.clone(), first])?;
                self.binary(call, Opcode::TimestampDifference, Kind::Integer, (0, 0))
            }
        }
    }

    fn binary(
        &mut self,
        call: &Call<'_>,
        opcode: Opcode,
        second: Kind,
        (mode, detail): (u16, u32),
    ) -> Result<Slot> {
        let (a, b) = (call.slot(0, Kind::Integer)?, call.slot(1, second)?);
        self.builder.strict(opcode, &[a, b], mode, detail)
    }

    fn extract(&mut self, field: DateField, call: &Call<'_>) -> Result<Slot> {
        let value = call.value(0)?;
        let (opcode, has_field) = match value.data_type {
            DataType::Date => (Opcode::ExtractDate, field == DateField::Epoch || !is_time_field(field)),
            DataType::Time => (Opcode::ExtractTime, is_time_field(field)),
            DataType::Timestamp | DataType::TimestampTz => (Opcode::ExtractTimestamp, true),
            _ => return Err(call.not_supported()),
        };
        if !has_field {
            return Err(unit_not_supported(field, &value.data_type));
        }
        let DataType::Decimal { scale, .. } = *call.data_type else { return Err(call.not_supported()) };
        let kind = Kind::of(call.data_type).map_err(|_| call.not_supported())?;
        let slot = self.builder.strict(opcode, &[value.slot], field_number(field), 0)?;
        // The epoch of a date counts whole seconds, unlike that of a timestamp.
        let own_scale = match (field, &value.data_type) {
            (_, DataType::Date) => 0,
            (DateField::Second | DateField::Epoch, _) => 6,
            (DateField::Milliseconds, _) => 3,
            _ => 0,
        };
        let fault = code::DECIMAL_RANGE | if kind == Kind::Integer { 18 } else { 38 } << 8;
        let field = Scaled { slot, kind: Kind::Integer, scale: own_scale };
        self.rescale(field, kind, u32::from(scale), fault)
    }

    fn date_trunc(&mut self, field: DateField, call: &Call<'_>) -> Result<Slot> {
        let value = call.value(0)?;
        if !matches!(value.data_type, DataType::Timestamp | DataType::TimestampTz) {
            return Err(call.not_supported());
        }
        let no_unit = matches!(
            field,
            DateField::DayOfWeek
                | DateField::IsoDayOfWeek
                | DateField::DayOfYear
                | DateField::IsoYear
                | DateField::Epoch
        );
        if no_unit {
            return Err(unit_not_supported(field, call.data_type));
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

fn is_time_field(field: DateField) -> bool {
    matches!(
        field,
        DateField::Microseconds
            | DateField::Milliseconds
            | DateField::Second
            | DateField::Minute
            | DateField::Hour
            | DateField::Epoch
    )
}

/// `ProgramField` of kernels/abi/program.h.
fn field_number(field: DateField) -> u16 {
    match field {
        DateField::Microseconds => 0,
        DateField::Milliseconds => 1,
        DateField::Second => 2,
        DateField::Minute => 3,
        DateField::Hour => 4,
        DateField::Day => 5,
        DateField::Week => 6,
        DateField::Month => 7,
        DateField::Quarter => 8,
        DateField::Year => 9,
        DateField::Decade => 10,
        DateField::Century => 11,
        DateField::Millennium => 12,
        DateField::DayOfWeek => 13,
        DateField::IsoDayOfWeek => 14,
        DateField::DayOfYear => 15,
        DateField::IsoYear => 16,
        DateField::Epoch => 17,
    }
}

fn unit_not_supported(field: DateField, data_type: &DataType) -> Error {
    let unit = format!("{field:?}").to_lowercase();
    Error::new(ErrorKind::NotSupported, format!("unit \"{unit}\" not supported for type {data_type}"))
}
