//! Functions of time zones. A zone is a table among the constants.

use pystachio_plan::{DataType, Error, ErrorKind, Expression, Function, Result, Value, ZoneSteps, ZoneTable};

use super::{Compiler, Slot, argument, datetime::field_number};
use crate::program::{constants::Cell, opcode::Opcode};

/// `ZoneRepeat` of kernels/abi/program.h.
const REPEATS_BEFORE: u64 = 1;
const REPEATS_AFTER: u64 = 2;
/// Numbers of a stretch in a cell.
const STRETCHES_A_CELL: usize = 4;

impl Compiler<'_> {
    /// A function of a moment or a local time, and a time zone.
    pub(super) fn in_zone(&mut self, function: Function, arguments: &[Expression]) -> Result<Slot> {
        let moment = self.compile(argument(function, arguments, 0)?)?;
        let zone = self.zone(function, argument(function, arguments, 1)?)?;
        if !matches!(moment.data_type, DataType::Timestamp | DataType::TimestampTz)
            && moment.slot != Slot::Null
        {
            let message = format!("{function:?} of {} is not supported on the GPU", moment.data_type);
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let (opcode, mode) = match function {
            Function::LocalTime => (Opcode::LocalTime, 0),
            Function::Instant => (Opcode::Instant, 0),
            Function::DateTruncInZone(field) if field.is_unit() => {
                (Opcode::TruncateInZone, field_number(field))
            }
            Function::DateTruncInZone(field) => return Err(field.not_supported(&DataType::TimestampTz)),
            other => return Err(Error::internal(format!("{other:?} is no function of a time zone"))),
        };
        self.builder.strict(opcode, &[moment.slot, zone], mode, 0)
    }

    fn zone(&mut self, function: Function, zone: &Expression) -> Result<Slot> {
        let Some(literal) = self.constant(zone) else {
            let message = format!(
                "{} is not computed on the GPU with a time zone of each row's own",
                function.entry().name
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        };
        match &literal.value {
            Value::Null => Ok(Slot::Null),
            Value::Bytes(bytes) => {
                let ZoneTable { by_utc, by_local } = ZoneTable::decode(bytes)?;
                let cells = [&by_utc, &by_local].into_iter().flat_map(step_cells).collect();
                Ok(Slot::Constant(self.builder.constants.table(cells)?))
            }
            other => Err(Error::internal(format!("{other:?} is no time zone"))),
        }
    }
}

/// `ZoneSteps` of kernels/abi/program.h and what follows it.
fn step_cells(steps: &ZoneSteps) -> Vec<Cell> {
    let ZoneSteps { starts, offsets, stretches, .. } = steps;
    let cell = |low: u64, high: u64| Cell::Bits([low, high, 0, 0]);
    let starts_and_end = starts.iter().copied().chain([i64::MAX]);
    let repeats = if steps.repeats_before { REPEATS_BEFORE } else { 0 }
        | if steps.repeats_after { REPEATS_AFTER } else { 0 };
    let cell_count = 1 + offsets.len() + stretches.len().div_ceil(STRETCHES_A_CELL);
    let counts = starts.len() as u64 | (stretches.len() as u64) << 32;
    let rest = u64::from(ZoneSteps::STRETCH_SHIFT) | repeats << 16 | (cell_count as u64) << 32;
    let mut cells = vec![cell(counts, rest)];
    cells.extend(starts_and_end.zip(offsets).map(|(start, offset)| cell(start as u64, *offset as u64)));
    cells.extend(stretches.chunks(STRETCHES_A_CELL).map(|numbers| {
        let pair = |place: usize| {
            let number = |place: usize| numbers.get(place).copied().map_or(0, u64::from);
            number(place) | number(place + 1) << 32
        };
        cell(pair(0), pair(2))
    }));
    assert_eq!(cells.len(), cell_count, "cells of a time zone");
    cells
}
