//! Expressions become instructions.
//!
//! - `logic.rs`: AND, OR, CASE, COALESCE and their laziness
//! - `comparison.rs`: comparisons, IN, GREATEST, NULLIF
//! - `arithmetic.rs`: integers and floats; `decimal.rs`: decimals; `cast.rs`: changes of type
//! - `datetime.rs`, `zone.rs`, `text.rs`: dates and times, time zones, text
//!
//! [`Compilation::of`] is the one table of functions and the code that compiles them.
//!
//! Invariants: every function returns a slot whose kind is [`Kind::of`] the expression's type.
//! Functions without exact device arithmetic are `NotSupported`; the message names function and
//! types.

mod arithmetic;
mod cast;
mod comparison;
mod datetime;
mod decimal;
mod logic;
mod text;
mod zone;

use std::collections::HashMap;

use arrow::datatypes::i256;
use pystachio_plan::{
    ColumnId, DataType, Error, ErrorKind, Expression, FloatFunction, Function, Literal, Result, Value,
};

use self::logic::Logic;
use super::{
    abi::{PROGRAM_COLUMNS_MAX, PROGRAM_OUTPUTS_MAX},
    builder::{Builder, Slot},
    constants::Cell,
    opcode::Opcode,
};
use crate::device::CellType;

/// How deep expressions may nest: twice as deep as in a plan that decodes, since compiling adds levels. Compiling recurses; this fits
/// the 2 MiB stack of a thread that asks for no more.
pub(super) const DEPTH_MAX: u32 = 500;

/// The kinds of register contents; see kernels/abi/program.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 64 bits.
    Integer,
    /// 128 bits.
    Wide,
    /// 256 bits.
    Int256,
    /// A double, or a real as the double of its value.
    Float,
    /// Text or bytea.
    Text,
    /// 16 bytes.
    Uuid,
    /// Months, days, microseconds.
    Interval,
}

impl Kind {
    /// How values of a type are held.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types without a kernel.
    pub(super) fn of(data_type: &DataType) -> Result<Self> {
        Ok(match CellType::of(data_type)? {
            CellType::Bool | CellType::Int16 | CellType::Int32 | CellType::Int64 => Self::Integer,
            CellType::Int128 => Self::Wide,
            CellType::Int256 => Self::Int256,
            CellType::Float32 | CellType::Float64 => Self::Float,
            CellType::String => Self::Text,
            CellType::Bytes16 => Self::Uuid,
            CellType::Interval => Self::Interval,
        })
    }

    /// The wider of two kinds of exact numbers.
    fn widest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int256, _) | (_, Self::Int256) => Self::Int256,
            (Self::Wide, _) | (_, Self::Wide) => Self::Wide,
            _ => Self::Integer,
        }
    }

    /// Whether an exact number fits.
    fn fits(self, number: i256) -> bool {
        match self {
            Self::Int256 => true,
            Self::Wide => number.to_i128().is_some(),
            _ => number.to_i128().is_some_and(|number| i64::try_from(number).is_ok()),
        }
    }
}

/// A value with its type.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub(super) slot: Slot,
    pub(super) kind: Kind,
    pub(super) data_type: DataType,
}

/// Compiles expressions over one input.
pub(super) struct Compiler<'a> {
    pub(super) builder: Builder,
    input: HashMap<ColumnId, (usize, &'a DataType)>,
    parameters: &'a [Literal],
    /// The loaded columns: their place in the input, by their number in the program.
    pub(super) loaded: Vec<usize>,
    depth: u32,
}

impl<'a> Compiler<'a> {
    /// A compiler without instructions.
    pub(super) fn new(input: &'a [(ColumnId, DataType)], parameters: &'a [Literal], shares: bool) -> Self {
        let input =
            input.iter().enumerate().map(|(place, (id, data_type))| (*id, (place, data_type))).collect();
        Self { builder: Builder::new(shares), input, parameters, loaded: Vec::new(), depth: 0 }
    }

    /// The place of a column in the input.
    ///
    /// # Errors
    ///
    /// `Internal` if the input has no such column.
    pub(super) fn place(&self, id: ColumnId) -> Result<usize> {
        self.column(id).map(|(place, _)| place)
    }

    /// Compiles an expression and writes it to an output.
    pub(super) fn output(&mut self, expression: &Expression, output: usize) -> Result<()> {
        let data_type = expression.data_type();
        let value = self.compile_as(expression, data_type)?;
        let opcode = match CellType::of(data_type)? {
            CellType::Bool => Opcode::StoreInt8,
            CellType::Int16 => Opcode::StoreInt16,
            CellType::Int32 => Opcode::StoreInt32,
            CellType::Int64 | CellType::Float64 => Opcode::StoreInt64,
            CellType::Float32 => Opcode::StoreFloat32,
            CellType::Int128 | CellType::String | CellType::Bytes16 | CellType::Interval => Opcode::StoreCell,
            CellType::Int256 => Opcode::StoreInt256,
        };
        self.builder.store(opcode, value, output_number(output)?)
    }

    /// Compiles a condition; the output is where it is true.
    pub(super) fn filter(&mut self, condition: &Expression, output: usize) -> Result<()> {
        let value = self.condition(condition)?;
        self.builder.store(Opcode::StoreFlag, value, output_number(output)?)
    }

    /// Compiles an expression.
    fn compile(&mut self, expression: &Expression) -> Result<Typed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let compiled = match expression {
            Expression::Column { id, .. } => self.load(*id),
            Expression::Literal(literal) => self.literal(literal),
            Expression::Parameter { index, .. } => match self.parameters.get(*index as usize) {
                Some(literal) => self.literal(literal),
                None => Err(Error::internal(format!(
                    "parameter {index} has no value: the query has {} parameters",
                    self.parameters.len()
                ))),
            },
            Expression::Call { function, arguments, data_type } => {
                let slot = self.call(*function, arguments, data_type)?;
                typed(slot, data_type)
            }
            Expression::Case { branches, otherwise, data_type } => {
                let slot = self.case(expression, branches, otherwise.as_deref(), data_type)?;
                typed(slot, data_type)
            }
        };
        self.depth -= 1;
        compiled
    }

    /// The expression's value held as `data_type`, which is its own type but for precision and scale.
    fn compile_as(&mut self, expression: &Expression, data_type: &DataType) -> Result<Slot> {
        let value = self.compile(expression)?;
        self.align(value, data_type)
    }

    /// The literal that an expression is, or the value of the parameter that it is.
    fn constant<'e>(&self, expression: &'e Expression) -> Option<&'e Literal>
    where
        'a: 'e,
    {
        match expression {
            Expression::Literal(literal) => Some(literal),
            Expression::Parameter { index, .. } => self.parameters.get(*index as usize),
            _ => None,
        }
    }

    fn call(&mut self, function: Function, arguments: &[Expression], data_type: &DataType) -> Result<Slot> {
        match Compilation::of(function) {
            Compilation::And => self.logic(Logic::And, arguments),
            Compilation::Or => self.logic(Logic::Or, arguments),
            Compilation::Test => self.test(function, argument(function, arguments, 0)?),
            Compilation::Coalesce => self.coalesce(arguments, data_type),
            Compilation::In => self.is_in(arguments),
            Compilation::Comparison => {
                let a = self.compile(argument(function, arguments, 0)?)?;
                let b = self.compile(argument(function, arguments, 1)?)?;
                self.compare(function, &a, &b)
            }
            Compilation::NullIf => self.null_if(arguments, data_type),
            Compilation::Extreme => self.extreme(function, arguments, data_type),
            Compilation::Arithmetic => self.with_values(function, arguments, data_type, Self::arithmetic),
            Compilation::DivideDecimal => {
                self.with_values(function, arguments, data_type, Self::divide_decimal)
            }
            Compilation::QuotientScale => {
                self.with_values(function, arguments, data_type, Self::quotient_scale)
            }
            Compilation::Cast => self.with_values(function, arguments, data_type, Self::cast),
            Compilation::Datetime => self.with_values(function, arguments, data_type, Self::datetime),
            Compilation::Zone => self.in_zone(function, arguments),
            Compilation::Text => self.with_values(function, arguments, data_type, Self::text),
            Compilation::Pick => match arguments {
                [first, ..] if !matches!(first.data_type(), DataType::List(_)) => {
                    self.with_values(function, arguments, data_type, Self::between)
                }
                _ => Err(not_on_device(function, "no kernel handles arrays")),
            },
            Compilation::NotOnDevice(reason) => Err(not_on_device(function, reason)),
        }
    }

    /// A function whose arguments are all evaluated.
    fn with_values(
        &mut self,
        function: Function,
        arguments: &[Expression],
        data_type: &DataType,
        apply: impl FnOnce(&mut Self, &Call<'_>) -> Result<Slot>,
    ) -> Result<Slot> {
        let values = self.values(arguments)?;
        apply(self, &Call { function, values: &values, data_type })
    }

    // Not inlined, like the next ones, so that the frames of a level of nesting stay small.
    #[inline(never)]
    fn values(&mut self, arguments: &[Expression]) -> Result<Vec<Typed>> {
        arguments.iter().map(|argument| self.compile(argument)).collect()
    }

    fn arithmetic(&mut self, call: &Call<'_>) -> Result<Slot> {
        match call.data_type {
            DataType::Decimal { .. } => self.decimal_arithmetic(call),
            data_type if data_type.is_integer() => self.integer_arithmetic(call),
            _ => self.float_arithmetic(call),
        }
    }

    fn column(&self, id: ColumnId) -> Result<(usize, &'a DataType)> {
        self.input
            .get(&id)
            .copied()
            .ok_or_else(|| Error::internal(format!("the input has no column {}", id.0)))
    }

    #[inline(never)]
    fn load(&mut self, id: ColumnId) -> Result<Typed> {
        let (place, data_type) = self.column(id)?;
        let number = match self.loaded.iter().position(|loaded| *loaded == place) {
            Some(number) => number,
            None if self.loaded.len() == PROGRAM_COLUMNS_MAX => {
                return Err(Error::new(
                    ErrorKind::NotSupported,
                    format!("expressions read more than {PROGRAM_COLUMNS_MAX} columns at once on the GPU"),
                ));
            }
            None => {
                self.loaded.push(place);
                self.loaded.len() - 1
            }
        };
        let opcode = match CellType::of(data_type)? {
            CellType::Bool => Opcode::LoadBool,
            CellType::Int16 => Opcode::LoadInt16,
            CellType::Int32 => Opcode::LoadInt32,
            CellType::Int64 | CellType::Float64 => Opcode::LoadInt64,
            CellType::Float32 => Opcode::LoadFloat32,
            CellType::Int128 | CellType::String | CellType::Bytes16 | CellType::Interval => Opcode::LoadCell,
            CellType::Int256 => Opcode::LoadInt256,
        };
        // At most PROGRAM_COLUMNS_MAX.
        let slot = self.builder.load(opcode, number as u16)?;
        typed(slot, data_type)
    }

    #[inline(never)]
    fn literal(&mut self, literal: &Literal) -> Result<Typed> {
        if literal.value == Value::Null {
            // NULL has every type; `Numeric` is that of a parameter without a value.
            let kind = Kind::of(&literal.data_type).unwrap_or(Kind::Integer);
            return Ok(Typed { slot: Slot::Null, kind, data_type: literal.data_type.clone() });
        }
        let cell = literal_cell(literal)?;
        let slot = self.builder.constant(cell)?;
        typed(slot, &literal.data_type)
    }
}

#[cold]
#[inline(never)]
fn too_deep() -> Error {
    let message = format!("expression nests too deep: more than {DEPTH_MAX} levels");
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Split the expression, for example over subqueries.")
}

#[cold]
fn not_on_device(function: Function, reason: &str) -> Error {
    let message = format!("{} is not computed on the GPU here: {reason}", function.entry().name);
    Error::new(ErrorKind::NotSupported, message)
}

/// The code that compiles a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compilation {
    /// [`Compiler::logic`].
    And,
    /// The same.
    Or,
    /// `logic.rs`: NOT and tests of one value.
    Test,
    /// `logic.rs`.
    Coalesce,
    /// `comparison.rs`.
    In,
    /// `comparison.rs`: operators.
    Comparison,
    /// `comparison.rs`.
    NullIf,
    /// `comparison.rs`: GREATEST and LEAST.
    Extreme,
    /// `arithmetic.rs` and `decimal.rs`, by the type of the result.
    Arithmetic,
    /// `decimal.rs`.
    DivideDecimal,
    /// `decimal.rs`.
    QuotientScale,
    /// `cast.rs`.
    Cast,
    /// `datetime.rs`.
    Datetime,
    /// `zone.rs`.
    Zone,
    /// `text.rs`.
    Text,
    /// `arithmetic.rs`: a value between two others. An aggregate picks these, and the values of the others.
    Pick,
    /// Not compiled, and why.
    NotOnDevice(&'static str),
}

impl Compilation {
    /// Every function of the plan language, and the code that compiles it.
    pub(super) fn of(function: Function) -> Self {
        match function {
            Function::And => Self::And,
            Function::Or => Self::Or,
            Function::Not
            | Function::IsNull
            | Function::IsNotNull
            | Function::IsTrue
            | Function::IsNotTrue
            | Function::IsFalse
            | Function::IsNotFalse => Self::Test,
            Function::Coalesce => Self::Coalesce,
            Function::In => Self::In,
            Function::Equal
            | Function::NotEqual
            | Function::Less
            | Function::LessEqual
            | Function::Greater
            | Function::GreaterEqual
            | Function::IsDistinctFrom
            | Function::IsNotDistinctFrom => Self::Comparison,
            Function::NullIf => Self::NullIf,
            Function::Greatest | Function::Least => Self::Extreme,
            Function::Add
            | Function::Subtract
            | Function::Multiply
            | Function::Divide
            | Function::Modulo
            | Function::Negate
            | Function::Absolute
            | Function::Sign
            | Function::Round
            | Function::Truncate
            | Function::Ceiling
            | Function::Floor
            | Function::SquareRoot
            | Function::BitAnd
            | Function::BitOr
            | Function::BitXor
            | Function::BitNot
            | Function::ShiftLeft
            | Function::ShiftRight => Self::Arithmetic,
            Function::DivideDecimal => Self::DivideDecimal,
            Function::QuotientScale => Self::QuotientScale,
            Function::Cast => Self::Cast,
            Function::Extract(_)
            | Function::DatePart(_)
            | Function::DateTrunc(_)
            | Function::AddDays
            | Function::SubtractDays
            | Function::DaysBetween
            | Function::AddInterval
            | Function::TimestampDifference
            | Function::DateBin
            | Function::ToTimestamp => Self::Datetime,
            Function::LocalTime | Function::Instant | Function::DateTruncInZone(_) => Self::Zone,
            Function::Like
            | Function::ILike(_)
            | Function::Substring
            | Function::Length
            | Function::OctetLength
            | Function::Upper(_)
            | Function::Lower(_)
            | Function::Concat
            | Function::ConcatSkippingNulls
            | Function::Trim(_)
            | Function::Position
            | Function::Replace
            | Function::Left
            | Function::Right
            | Function::StartsWith
            | Function::Matches(_)
            | Function::MatchesIgnoringCase(_)
            | Function::PadBlanks
            | Function::PadLeft
            | Function::PadRight
            | Function::SplitPart
            | Function::Translate
            | Function::Reverse
            | Function::Repeat
            | Function::FormatMoment
            | Function::TrimBlanks => Self::Text,
            Function::EqualsAny
            | Function::Cardinality
            | Function::Element
            | Function::Row
            | Function::JoinTexts => Self::NotOnDevice("no kernel handles arrays"),
            Function::PercentileCont | Function::PercentileDisc | Function::Mode => Self::Pick,
            Function::Float(FloatFunction::Degrees | FloatFunction::Radians) => Self::Arithmetic,
            Function::Float(_) => Self::NotOnDevice("the host's C library decides the last digit"),
            Function::SortKey(_) | Function::TextOfSortKey => {
                Self::NotOnDevice("the host's libraries order texts by their language")
            }
            Function::GreatestCommonDivisor
            | Function::LeastCommonMultiple
            | Function::DivideWhole
            | Function::InitCap(_)
            | Function::Ascii
            | Function::Character
            | Function::ConcatSeparated
            | Function::Overlay
            | Function::QuoteLiteral
            | Function::QuoteIdentifier
            | Function::ToHexadecimal
            | Function::JsonText
            | Function::Parse
            | Function::JsonPart
            | Function::JsonbPart
            | Function::JsonPartText
            | Function::JsonbPartText
            | Function::JsonType
            | Function::JsonbType
            | Function::JsonLength
            | Function::JsonbLength
            | Function::JsonCast
            | Function::JsonbCast
            | Function::JsonbText
            | Function::JsonbExists
            | Function::JsonbContains
            | Function::NumberText
            | Function::Digest(_)
            | Function::Encode
            | Function::Decode
            | Function::MakeDate
            | Function::MakeTime
            | Function::MakeTimestamp
            | Function::MakeInterval
            | Function::Span
            | Function::MeanSpan
            | Function::DecimalRoot
            | Function::RootScale
            | Function::IsFinite
            | Function::Age
            | Function::AddTime
            | Function::TurnTime
            | Function::FormatNumber
            | Function::ReadDate
            | Function::ReadTimestamp
            | Function::ReadNumber
            | Function::ReadNumberScale
            | Function::Justify(_)
            | Function::MomentText
            | Function::InstantText
            | Function::ReplaceMatches(_)
            | Function::CountMatches(_)
            | Function::MatchedPart(_)
            | Function::MatchedParts(_) => Self::NotOnDevice("there is no kernel"),
            // If every row evaluates it, `host_calls.rs` has taken it out before.
            Function::Variance { .. } | Function::VarianceScale { .. } => {
                Self::NotOnDevice("the host computes variances, and for every row")
            }
        }
    }
}

/// A function of evaluated arguments.
pub(super) struct Call<'a> {
    pub(super) function: Function,
    pub(super) values: &'a [Typed],
    pub(super) data_type: &'a DataType,
}

impl Call<'_> {
    fn value(&self, index: usize) -> Result<&Typed> {
        self.values
            .get(index)
            .ok_or_else(|| Error::internal(format!("{:?} has too few arguments", self.function)))
    }

    /// An argument of a kind.
    fn slot(&self, index: usize, kind: Kind) -> Result<Slot> {
        let value = self.value(index)?;
        if value.kind == kind || value.slot == Slot::Null {
            Ok(value.slot)
        } else {
            Err(self.not_supported())
        }
    }

    /// The error of a function without a kernel for these types.
    fn not_supported(&self) -> Error {
        let types: Vec<String> = self.values.iter().map(|value| value.data_type.to_string()).collect();
        let message = format!(
            "{:?} of {} with a result of type {} is not supported on the GPU",
            self.function,
            types.join(", "),
            self.data_type
        );
        Error::new(ErrorKind::NotSupported, message)
    }
}

/// A literal that is not NULL as a cell.
pub(super) fn literal_cell(literal: &Literal) -> Result<Cell> {
    let kind = Kind::of(&literal.data_type)?;
    Ok(match (&literal.value, kind) {
        (Value::Bool(value), Kind::Integer) => Cell::integer(i32::from(*value)),
        (Value::Int(value), Kind::Integer | Kind::Wide | Kind::Int256) => Cell::integer(*value),
        (Value::Decimal(value), Kind::Integer) if i64::try_from(*value).is_ok() => Cell::integer(*value),
        (Value::Decimal(value), Kind::Wide | Kind::Int256) => Cell::integer(*value),
        (Value::Float(value), Kind::Float) if literal.data_type == DataType::Float32 => {
            Cell::float(f64::from(*value as f32))
        }
        (Value::Float(value), Kind::Float) => Cell::float(*value),
        (Value::Text(value), Kind::Text) => Cell::Text(value.as_bytes().to_vec()),
        (Value::Bytes(value), Kind::Text) => Cell::Text(value.clone()),
        (Value::Bytes(value), Kind::Uuid) if value.len() == 16 => {
            let half = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            let (low, high) = value.split_at(8);
            Cell::Bits([half(low), half(high), 0, 0])
        }
        (Value::Interval(value), Kind::Interval) => {
            let days_and_months = u64::from(value.months as u32) << 32 | u64::from(value.days as u32);
            Cell::Bits([value.microseconds as u64, days_and_months, 0, 0])
        }
        _ => {
            return Err(Error::internal(format!(
                "{:?} is not a value of type {}",
                literal.value, literal.data_type
            )));
        }
    })
}

fn typed(slot: Slot, data_type: &DataType) -> Result<Typed> {
    Ok(Typed { slot, kind: Kind::of(data_type)?, data_type: data_type.clone() })
}

fn argument(function: Function, arguments: &[Expression], index: usize) -> Result<&Expression> {
    arguments.get(index).ok_or_else(|| Error::internal(format!("{function:?} has too few arguments")))
}

fn output_number(output: usize) -> Result<u16> {
    if output < PROGRAM_OUTPUTS_MAX {
        // Below PROGRAM_OUTPUTS_MAX.
        return Ok(output as u16);
    }
    Err(Error::new(
        ErrorKind::NotSupported,
        format!("more than {PROGRAM_OUTPUTS_MAX} expressions are computed at once on the GPU"),
    ))
}
