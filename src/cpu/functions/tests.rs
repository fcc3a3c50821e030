//! Every function against values that PostgreSQL 15 printed.
//!
//! Every line of `pystachio_cases` is evaluated with arguments in columns, with constants, and with the first argument
//! in a column and the others constant. The engine has every function.

mod claims;
mod sums;

use std::sync::Arc;

use crate::datafusion::{
    common::DFSchema, execution::context::ExecutionProps,
    logical_expr::physical_planning_context::PhysicalPlanningContext, physical_expr::create_physical_expr,
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array},
    compute::{cast, concat, take},
    datatypes::{
        DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type,
        Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Schema, SchemaRef, Time64MicrosecondType,
        TimestampMicrosecondType,
    },
};
use pystachio_cases::{CaseFile, Line, Outcome, Section, case_files, decimal_value, is_same};
use pystachio_plan::{ColumnId, DataType, ErrorKind, Expression, Interval, Literal, Result, Value};

use super::{LoweringInput, lower_expression, scalars::scalar};
use crate::error::from_datafusion;

#[test]
fn functions_are_those_of_postgresql() {
    // A thread for each file: there are some ten thousand lines, each of several expressions.
    std::thread::scope(|threads| {
        for file in case_files() {
            threads.spawn(move || check_file(&file));
        }
    });
}

/// Runs every section of a file.
fn check_file(file: &CaseFile) {
    let mut failures = Vec::new();
    let mut count = 0;
    for section in &file.sections {
        for line in &section.lines {
            count += 1;
            for failure in check_line(section, line) {
                failures.push(format!("{} with {:?}: {failure}", section.title, line.arguments));
            }
        }
    }
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} cases of {} failed:\n{shown}", failures.len(), file.name);
}

fn check_line(section: &Section, line: &Line) -> Vec<String> {
    let types = &section.arguments;
    let literals: Vec<Literal> = line
        .arguments
        .iter()
        .zip(types)
        .map(|(value, data_type)| Literal::new(value.clone(), data_type.clone()))
        .collect();
    let every = types.len();
    let mut failures = Vec::new();
    // How many of the arguments are in columns.
    for column_count in [every, 0, 1.min(every)] {
        for text_type in [ArrowType::Utf8View, ArrowType::Utf8] {
            if text_type == ArrowType::Utf8 && !types.contains(&DataType::Text) {
                continue;
            }
            let actual = evaluate_line(section, &literals, column_count, &text_type);
            if let Err(difference) = compare(section, &line.expected, actual) {
                failures.push(format!("{column_count} columns, {text_type}: {difference}"));
            }
        }
    }
    failures
}

/// The result for the line, which is the second of three rows; the first is all NULL, the third is again
/// the line.
fn evaluate_line(
    section: &Section,
    literals: &[Literal],
    column_count: usize,
    text_type: &ArrowType,
) -> Result<ArrayRef> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    let mut arguments = Vec::new();
    for (index, literal) in literals.iter().enumerate() {
        if index >= column_count {
            arguments.push(Expression::Literal(literal.clone()));
            continue;
        }
        let value = scalar(literal)?.to_array().map_err(|error| from_datafusion(&error))?;
        let value = match literal.data_type {
            DataType::Text => cast(&value, text_type).expect("a text type"),
            _ => value,
        };
        let null = new_null_array(value.data_type(), 1);
        let column = concat(&[&null, &value, &value]).expect("equal types");
        let id = ColumnId(index as u32);
        fields.push(Field::new(crate::column_name(id), column.data_type().clone(), true));
        columns.push(column);
        arguments.push(Expression::column(id, literal.data_type.clone()));
    }
    let expression = Expression::call(section.function, arguments, section.result.clone());
    let result = evaluate(&expression, &Arc::new(Schema::new(fields)), columns, 3)?;
    assert_eq!(result.len(), 3);
    Ok(take(&result, &UInt32Array::from(vec![1, 2]), None).expect("rows 1 and 2"))
}

/// Lowers an expression, makes it physical and evaluates it.
fn evaluate(
    expression: &Expression,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<ArrayRef> {
    evaluate_with(expression, schema, columns, rows, &[])
}

fn evaluate_with(
    expression: &Expression,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
    parameters: &[Literal],
) -> Result<ArrayRef> {
    let lowered = lower_expression(expression, &LoweringInput { schema, parameters })?;
    let logical = DFSchema::try_from(schema.as_ref().clone()).expect("unique names");
    let physical =
        create_physical_expr(&lowered, &logical, &ExecutionProps::new(), &PhysicalPlanningContext::default())
            .map_err(|error| from_datafusion(&error))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).expect("a batch");
    let value = physical.evaluate(&batch).map_err(|error| from_datafusion(&error))?;
    let array = value.into_array(rows).map_err(|error| from_datafusion(&error))?;
    let declared = physical.data_type(schema).expect("a type");
    assert_eq!(*array.data_type(), declared, "{expression:?}");
    Ok(array)
}

fn compare(
    section: &Section,
    expected: &Outcome,
    actual: Result<ArrayRef>,
) -> std::result::Result<(), String> {
    let (array, expected) = match (actual, expected) {
        (Ok(array), Outcome::Value(expected)) => (array, expected),
        (Err(error), Outcome::Error(message))
            if error.message == *message
                && !matches!(error.kind, ErrorKind::Internal | ErrorKind::NotSupported) =>
        {
            return Ok(());
        }
        (actual, expected) => return Err(format!("expected {expected:?}, got {actual:?}")),
    };
    if *array.data_type() != section.result.to_arrow() {
        return Err(format!("expected {}, got {}", section.result.to_arrow(), array.data_type()));
    }
    for row in 0..array.len() {
        let actual = value_at(&array, row);
        if !is_same(&actual, expected) {
            return Err(format!("expected {expected:?}, got {actual:?}"));
        }
    }
    Ok(())
}

/// A value as the case files have it.
fn value_at(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        ArrowType::Boolean => Value::Bool(array.as_boolean().value(row)),
        ArrowType::Int16 => Value::Int(array.as_primitive::<Int16Type>().value(row).into()),
        ArrowType::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row).into()),
        ArrowType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        ArrowType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        ArrowType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        ArrowType::Decimal128(..) => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row)),
        ArrowType::Decimal256(..) => {
            decimal_value(&array.as_primitive::<Decimal256Type>().value(row).to_string())
        }
        ArrowType::Date32 => Value::Int(array.as_primitive::<Date32Type>().value(row).into()),
        ArrowType::Time64(_) => Value::Int(array.as_primitive::<Time64MicrosecondType>().value(row)),
        ArrowType::Timestamp(..) => Value::Int(array.as_primitive::<TimestampMicrosecondType>().value(row)),
        ArrowType::Interval(_) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            assert_eq!(value.nanoseconds % 1_000, 0);
            Value::Interval(Interval {
                months: value.months,
                days: value.days,
                microseconds: value.nanoseconds / 1_000,
            })
        }
        ArrowType::BinaryView => Value::Bytes(array.as_binary_view().value(row).to_vec()),
        ArrowType::FixedSizeBinary(_) => Value::Bytes(array.as_fixed_size_binary().value(row).to_vec()),
        ArrowType::Utf8View => Value::Text(array.as_string_view().value(row).to_owned()),
        other => panic!("no value of {other}"),
    }
}
