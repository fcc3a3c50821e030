//! Lowering without a server: sources that are made here, over the columns of one relation.
//!
//! - `numbers.rs`, `choices.rs`, `text.rs`, `moments.rs`, `comparisons.rs`, `records.rs`, `arrays.rs`, `aggregates.rs`: what lowers to what
//! - `runtime.rs`: what PostgreSQL evaluates when the query starts, and in which branches
//! - `refusals.rs`: limits, columns, and the words of refusals
//! - `random.rs`: invariants, of random sources

mod aggregates;
mod arrays;
mod choices;
mod comparisons;
mod documents;
mod json;
mod moments;
mod numbers;
mod random;
mod records;
mod refusals;
mod runtime;
mod text;

use std::{collections::HashMap, rc::Rc};

use pystachio_plan::{ColumnId, Ctype, DataType, Expression, Value, expression_text};

use crate::{
    Call, CatalogFunction, Collation, ColumnReference, Constant, Lowered, LoweredResult, Lowering, Notes,
    Origin, Part, Refusal, Scale, Scope, Server, Source, SourceType, TextForm, TextOrder, UnknownLetters,
    type_magnitude,
};

/// A server of a version without errors.
#[derive(Default)]
struct TestServer {
    has_no_stack: bool,
    text_form: TextForm,
    has_infinite_intervals: bool,
    right_wraps: bool,
    bins_wrongly: bool,
    keeps_float_sums: bool,
}

impl Server for TestServer {
    fn has_stack(&self) -> bool {
        !self.has_no_stack
    }

    fn check_zone(&self, zone: &Value) -> Result<(), String> {
        match zone {
            Value::Text(name) if name == "Nowhere" => Err("time zone \"Nowhere\" not recognized".into()),
            _ => Ok(()),
        }
    }

    fn text_form(&self) -> TextForm {
        self.text_form
    }

    fn encoding_name(&self) -> String {
        "LATIN9".into()
    }

    fn has_infinite_intervals(&self) -> bool {
        self.has_infinite_intervals
    }

    fn has_iso_dates(&self) -> bool {
        true
    }

    fn reads_bases(&self) -> bool {
        false
    }

    fn right_wraps(&self) -> bool {
        self.right_wraps
    }

    fn bins_wrongly(&self) -> bool {
        self.bins_wrongly
    }

    fn sums_floats(&self) -> bool {
        !self.keeps_float_sums
    }
}

/// The columns of relation 1: attribute, type, type modifier, and the plan's type.
fn columns() -> Vec<(i16, SourceType, i32, DataType)> {
    let numeric = |precision: i32, scale: i32| ((precision << 16) | scale) + 4;
    let decimal = |precision, scale| DataType::Decimal { precision, scale };
    vec![
        (1, SourceType::Integer, -1, DataType::Int32),
        (2, SourceType::Numeric, numeric(15, 2), decimal(15, 2)),
        (3, SourceType::Numeric, numeric(10, 4), decimal(10, 4)),
        (4, SourceType::Text, -1, DataType::Text),
        (5, SourceType::Date, -1, DataType::Date),
        (6, SourceType::Timestamp, -1, DataType::Timestamp),
        (7, SourceType::TimestampTz, -1, DataType::TimestampTz),
        (8, SourceType::Bool, -1, DataType::Bool),
        (9, SourceType::Double, -1, DataType::Float64),
        (10, SourceType::BigInt, -1, DataType::Int64),
        (11, SourceType::Character, 9, DataType::Text),
        (12, SourceType::Json, -1, DataType::Text),
        (13, SourceType::Interval, -1, DataType::Interval),
        (14, SourceType::from_text("jsonb"), -1, DataType::Text),
        (15, SourceType::array_of(SourceType::Integer), -1, DataType::List(Box::new(DataType::Int32))),
        (16, SourceType::array_of(SourceType::Text), -1, DataType::List(Box::new(DataType::Text))),
    ]
}

const NUMBER: i16 = 1;
const PRICE: i16 = 2;
const RATE: i16 = 3;
const NAME: i16 = 4;
const DAY: i16 = 5;
const LOCAL: i16 = 6;
const MOMENT: i16 = 7;
const FLAG: i16 = 8;
const FLOAT: i16 = 9;
const BIG: i16 = 10;
const CODE: i16 = 11;
const JSON: i16 = 12;
const SPAN: i16 = 13;
const JSONB: i16 = 14;
const NUMBERS: i16 = 15;
const NAMES: i16 = 16;

/// The scope of relation 1, whose columns have their attributes' numbers as ids.
fn scope() -> Scope {
    let column = |(attribute, _, modifier, data_type): (i16, SourceType, i32, DataType)| {
        let expression = Expression::column(ColumnId(u32::from(attribute.unsigned_abs())), data_type);
        let modifier = if attribute == CODE { modifier } else { -1 };
        (attribute, Lowered { modifier, ..Lowered::of_type(expression) })
    };
    Scope::Base {
        relation_index: 1,
        columns: columns().into_iter().map(column).collect::<HashMap<_, _>>(),
        fields: HashMap::new(),
        item_fields: HashMap::new(),
    }
}

fn column(attribute: i16) -> Source {
    let (_, of, modifier, _) = columns().into_iter().find(|known| known.0 == attribute).unwrap();
    let part = Part::Column(ColumnReference { relation: 1, attribute, levels_up: 0 });
    Source { modifier, ..Source::new(part, of) }
}

fn constant(value: Value, of: SourceType) -> Source {
    Source::new(Part::Constant(Constant::Value(value)), of)
}

fn integer(value: i64) -> Source {
    constant(Value::Int(value), SourceType::Integer)
}

fn text(value: &str) -> Source {
    constant(Value::Text(value.into()), SourceType::Text)
}

fn numeric(value: &str) -> Source {
    Source::new(Part::Constant(Constant::Numeric(value.into())), SourceType::Numeric)
}

fn null(of: SourceType) -> Source {
    Source::new(Part::Constant(Constant::Null), of)
}

/// A parameter of the statement.
fn given(number: u32, of: SourceType) -> Source {
    let part = Part::Parameter { is_given: true };
    Source { origin: Some(Origin(number)), has_given: true, ..Source::new(part, of) }
}

/// The default collation of a database whose text is compared byte by byte.
fn bytes_collation() -> Option<Rc<Collation>> {
    let ctype = Ok(Ctype::Ascii);
    Some(Rc::new(Collation { name: "C".into(), is_deterministic: true, order: TextOrder::Bytes, ctype }))
}

/// A collation of a language.
fn language_collation(is_deterministic: bool) -> Option<Rc<Collation>> {
    let (name, ctype) = ("de".into(), Err(UnknownLetters::NotLibc));
    Some(Rc::new(Collation { name, is_deterministic, order: TextOrder::Unknown, ctype }))
}

fn call_of(name: &str, arguments: Vec<Source>) -> Call {
    let function = Rc::new(CatalogFunction::builtin(name));
    Call { function, collation: bytes_collation(), arguments }
}

fn call(name: &str, of: SourceType, arguments: Vec<Source>) -> Source {
    let has_given = arguments.iter().any(|argument| argument.has_given);
    Source { has_given, ..Source::new(Part::Call(call_of(name, arguments)), of) }
}

/// A comparison.
fn test(name: &str, a: Source, b: Source) -> Source {
    call(name, SourceType::Bool, vec![a, b])
}

/// The source as one that PostgreSQL can evaluate when the query starts.
fn evaluated(number: u32, source: Source) -> Source {
    Source { origin: Some(Origin(number)), ..source }
}

fn lower(source: &Source) -> LoweredResult {
    lower_with(source, &Notes::default())
}

fn lower_with(source: &Source, notes: &Notes) -> LoweredResult {
    Lowering::new(&scope(), notes, &TestServer::default()).lower(source)
}

/// What a source is lowered to, in words; `column 1` is that of attribute 1, and `$1` the first parameter.
#[track_caller]
fn lowered(source: &Source) -> String {
    match lower(source) {
        Ok(lowered) => expression_text(&lowered.expression),
        Err(refusal) => panic!("refused: {refusal}"),
    }
}

#[track_caller]
fn refused(source: &Source) -> Refusal {
    match lower(source) {
        Ok(lowered) => panic!("lowered to {}", expression_text(&lowered.expression)),
        Err(refusal) => refusal,
    }
}

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}
