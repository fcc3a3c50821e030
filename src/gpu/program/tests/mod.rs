//! Programs on the emulated device.
//!
//! - `automata.rs`: regular expressions with large tables, or without one
//! - `cases.rs`: every function against values that PostgreSQL printed
//! - `claims.rs`: laziness, NULL, registers, errors
//! - `large.rs`: decimals of more than 38 digits
//! - `letters.rs`: upper and lower case under libc's locales
//! - `oracle.rs`: decimals against integers of any size
//! - `queries.rs`: expressions of TPC-H
//! - `variances.rs`: calls that the host computes, within other expressions

mod automata;
mod cases;
mod claims;
mod large;
mod letters;
mod oracle;
mod queries;
mod variances;
mod zones;

use std::sync::Arc;

use arrow::datatypes::i256;
use pystachio_plan::{ColumnId, DataType, Expression, Interval, Literal, Result, Value};

use super::{Filter, Program};
use crate::{
    device::{Buffer, CellType, Chunk, Column, DeviceMemory, EmulatedPlatform, StringCell},
    operation::Queue,
};

/// A decimal as a value: one that 128 bits do not hold as the text of its digits, because plans have none.
fn decimal_value(digits: i256) -> Value {
    pystachio_cases::decimal_value(&digits.to_string())
}

/// The digits of such a value.
fn digits_of(value: &Value) -> i256 {
    match value {
        Value::Decimal(value) => i256::from(*value),
        Value::Text(digits) => i256::from_string(digits).expect("at most 76 digits"),
        other => panic!("{other:?} is no decimal"),
    }
}

/// A device of the tests' own.
struct Device {
    queue: Queue,
}

impl Device {
    fn new() -> Self {
        let platform = Arc::new(EmulatedPlatform::new());
        Self { queue: Queue::new(&DeviceMemory::new(platform, 1 << 32)).expect("a queue") }
    }

    fn chunk(&self, columns: &[(DataType, Vec<Value>)], row_count: usize) -> Chunk {
        let columns = columns
            .iter()
            .map(|(data_type, values)| {
                assert_eq!(values.len(), row_count);
                self.column(data_type, values)
            })
            .collect();
        Chunk { row_count, columns }
    }

    /// A column; it has validity only if a value is NULL.
    fn column(&self, data_type: &DataType, values: &[Value]) -> Column {
        let cell_type = CellType::of(data_type).expect("a type that kernels have");
        let texts: Vec<u8> = values.iter().flat_map(text_bytes).copied().collect();
        let strings = self.upload(&texts);
        let mut cells = Vec::new();
        let mut text_address = strings.address();
        for value in values {
            let length = text_bytes(value).len();
            let cell = StringCell { address: text_address, length: length as u32, reserved: 0 };
            text_address += length as u64;
            match (cell_type, value) {
                // NULL slots have no meaning; the device fills them with poison.
                (_, Value::Null) => cells.extend(vec![0xee; cell_type.bytes() as usize]),
                (CellType::Bool, Value::Bool(value)) => cells.push(u8::from(*value)),
                (CellType::Int16, Value::Int(value)) => cells.extend((*value as i16).to_le_bytes()),
                (CellType::Int32, Value::Int(value)) => cells.extend((*value as i32).to_le_bytes()),
                (CellType::Int64, Value::Int(value)) => cells.extend(value.to_le_bytes()),
                (CellType::Int64, Value::Decimal(value)) => {
                    cells.extend(i64::try_from(*value).expect("18 digits").to_le_bytes());
                }
                (CellType::Int128, Value::Decimal(value)) => cells.extend(value.to_le_bytes()),
                (CellType::Int256, value) => cells.extend(digits_of(value).to_le_bytes()),
                (CellType::Float32, Value::Float(value)) => cells.extend((*value as f32).to_le_bytes()),
                (CellType::Float64, Value::Float(value)) => cells.extend(value.to_le_bytes()),
                (CellType::String, Value::Text(_) | Value::Bytes(_)) => {
                    cells.extend(bytemuck::bytes_of(&cell));
                }
                (CellType::Bytes16, Value::Bytes(value)) => cells.extend(value),
                (CellType::Interval, Value::Interval(value)) => {
                    cells.extend(value.microseconds.to_le_bytes());
                    cells.extend(value.days.to_le_bytes());
                    cells.extend(value.months.to_le_bytes());
                }
                other => panic!("{other:?} of {data_type}"),
            }
        }
        let validity: Vec<u8> = values.iter().map(|value| u8::from(*value != Value::Null)).collect();
        let validity = validity.contains(&0).then(|| self.upload(&validity));
        let cells = self.upload(&cells);
        let column = Column {
            data_type: data_type.clone(),
            cell_type,
            values: cells,
            validity,
            strings: vec![strings],
        };
        self.queue.poison_nulls(&column, values.len());
        column
    }

    fn upload(&self, bytes: &[u8]) -> Buffer {
        self.queue.upload(bytes).expect("memory")
    }

    fn values(&self, column: &Column, row_count: usize) -> Vec<Value> {
        let width = column.cell_type.bytes() as usize;
        let cells: Vec<u8> = self.queue.download(&column.values, row_count * width).expect("cells");
        let validity: Option<Vec<u8>> = column
            .validity
            .as_ref()
            .map(|validity| self.queue.download(validity, row_count).expect("validity"));
        let row_value = |row: usize| {
            if validity.as_ref().is_some_and(|validity| validity[row] == 0) {
                return Value::Null;
            }
            self.value(column, &cells[row * width..(row + 1) * width])
        };
        (0..row_count).map(row_value).collect()
    }

    fn value(&self, column: &Column, cell: &[u8]) -> Value {
        let is_decimal = column.data_type.is_decimal();
        match column.cell_type {
            CellType::Bool => {
                assert!(cell[0] <= 1, "a boolean of {}", cell[0]);
                Value::Bool(cell[0] == 1)
            }
            CellType::Int16 => Value::Int(i16::from_le_bytes(cell.try_into().unwrap()).into()),
            CellType::Int32 => Value::Int(i32::from_le_bytes(cell.try_into().unwrap()).into()),
            CellType::Int64 if is_decimal => {
                Value::Decimal(i64::from_le_bytes(cell.try_into().unwrap()).into())
            }
            CellType::Int64 => Value::Int(i64::from_le_bytes(cell.try_into().unwrap())),
            CellType::Int128 => Value::Decimal(i128::from_le_bytes(cell.try_into().unwrap())),
            CellType::Int256 => decimal_value(i256::from_le_bytes(cell.try_into().unwrap())),
            CellType::Float32 => Value::Float(f32::from_le_bytes(cell.try_into().unwrap()).into()),
            CellType::Float64 => Value::Float(f64::from_le_bytes(cell.try_into().unwrap())),
            CellType::Bytes16 => Value::Bytes(cell.to_vec()),
            CellType::Interval => Value::Interval(Interval {
                microseconds: i64::from_le_bytes(cell[..8].try_into().unwrap()),
                days: i32::from_le_bytes(cell[8..12].try_into().unwrap()),
                months: i32::from_le_bytes(cell[12..].try_into().unwrap()),
            }),
            CellType::String => {
                let cell: StringCell = bytemuck::pod_read_unaligned(cell);
                let bytes: Vec<u8> = self
                    .queue
                    .memory()
                    .download_from(cell.address, cell.length as usize, self.queue.stream())
                    .expect("a text");
                match column.data_type {
                    DataType::Text => Value::Text(String::from_utf8(bytes).expect("UTF-8")),
                    _ => Value::Bytes(bytes),
                }
            }
        }
    }

    /// Evaluates one expression over columns whose ids are their places.
    fn evaluate(
        &self,
        expression: &Expression,
        columns: &[(DataType, Vec<Value>)],
        row_count: usize,
    ) -> Result<Vec<Value>> {
        self.evaluate_with(expression, columns, row_count, &[])
    }

    fn evaluate_with(
        &self,
        expression: &Expression,
        columns: &[(DataType, Vec<Value>)],
        row_count: usize,
        parameters: &[Literal],
    ) -> Result<Vec<Value>> {
        let input = input_of(columns);
        let program = Program::compile(std::slice::from_ref(expression), &input, parameters)?;
        let chunk = self.chunk(columns, row_count);
        let results = program.evaluate(&self.queue, &chunk)?;
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].data_type, *expression.data_type());
        Ok(self.values(&results[0], row_count))
    }

    /// Where a condition is true.
    fn filter(
        &self,
        condition: &Expression,
        columns: &[(DataType, Vec<Value>)],
        row_count: usize,
    ) -> Result<Vec<bool>> {
        let filter = Filter::compile(condition, &input_of(columns), &[])?;
        let flags = filter.evaluate(&self.queue, &self.chunk(columns, row_count))?;
        assert!(flags.validity.is_none());
        let flags: Vec<u8> = self.queue.download(&flags.values, row_count)?;
        Ok(flags.into_iter().map(|flag| flag == 1).collect())
    }
}

fn input_of(columns: &[(DataType, Vec<Value>)]) -> Vec<(ColumnId, DataType)> {
    columns
        .iter()
        .enumerate()
        .map(|(index, (data_type, _))| (ColumnId(index as u32), data_type.clone()))
        .collect()
}

fn text_bytes(value: &Value) -> &[u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

fn column(id: u32, data_type: DataType) -> Expression {
    Expression::column(ColumnId(id), data_type)
}

fn text(value: &str) -> Expression {
    Expression::literal(Value::Text(value.to_owned()), DataType::Text)
}

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}
