//! What a function takes and gives, by classes of types.

use std::fmt;

use crate::DataType;

/// Types that a function does not tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeClass {
    /// Every type but arrays and composite types.
    Any,
    /// `boolean`.
    Bool,
    /// `smallint`, `integer`, `bigint`.
    Integers,
    /// `integer`.
    Int32,
    /// `bigint`.
    Int64,
    /// `real`, `double precision`.
    Floats,
    /// `double precision`.
    Float64,
    /// `numeric` of any precision and scale.
    Decimals,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timestamp`, and `timestamptz` in UTC.
    Timestamps,
    /// `interval`.
    Interval,
    /// `text`.
    Text,
    /// `bytea`.
    Bytea,
    /// `uuid`.
    Uuid,
    /// Arrays.
    Lists,
    /// Composite values.
    Records,
}

/// The type of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The arguments' own; of decimals some decimal.
    Same,
    /// What the call says, of this class.
    Of(TypeClass),
}

/// An expression of SQL by which a function is tried over the edge values of its arguments' types.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// SQL, with `{a}` and `{b}` for columns of the first two arguments' types, and `{n}` and `{m}` for constants.
    pub sql: &'static str,
    /// What `{n}` is, in turn; nothing where there is none.
    pub constants: &'static [&'static str],
    /// What `{m}` is for each `{n}`; nothing where there is none.
    pub more_constants: &'static [&'static str],
}

/// What a function takes and gives.
///
/// Arguments of one class are of one type, but for decimals, which may differ in precision and scale.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The arguments' classes.
    pub arguments: &'static [TypeClass],
    /// Whether any number of further arguments of the last class may follow.
    pub is_variadic: bool,
    /// The type of the result.
    pub result: ResultType,
    /// How SQL calls it; nothing where the planner alone does.
    pub examples: &'static [Example],
}

impl TypeClass {
    /// Whether a type is of the class.
    pub fn contains(self, data_type: &DataType) -> bool {
        match self {
            Self::Any => !data_type.is_nested(),
            Self::Decimals => data_type.is_decimal(),
            Self::Lists => matches!(data_type, DataType::List(_)),
            Self::Records => matches!(data_type, DataType::Record(_)),
            _ => self.members().contains(data_type),
        }
    }

    /// The types of a class that has few: not of [`TypeClass::Any`], [`TypeClass::Decimals`], [`TypeClass::Lists`] and
    /// [`TypeClass::Records`].
    pub fn members(self) -> &'static [DataType] {
        match self {
            Self::Any | Self::Decimals | Self::Lists | Self::Records => &[],
            Self::Bool => &[DataType::Bool],
            Self::Integers => &[DataType::Int16, DataType::Int32, DataType::Int64],
            Self::Int32 => &[DataType::Int32],
            Self::Int64 => &[DataType::Int64],
            Self::Floats => &[DataType::Float32, DataType::Float64],
            Self::Float64 => &[DataType::Float64],
            Self::Date => &[DataType::Date],
            Self::Time => &[DataType::Time],
            Self::Timestamps => &[DataType::Timestamp, DataType::TimestampTz],
            Self::Interval => &[DataType::Interval],
            Self::Text => &[DataType::Text],
            Self::Bytea => &[DataType::Bytea],
            Self::Uuid => &[DataType::Uuid],
        }
    }

    /// The word for the class.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Bool => "boolean",
            Self::Integers => "integers",
            Self::Int32 => "integer",
            Self::Int64 => "bigint",
            Self::Floats => "floats",
            Self::Float64 => "double precision",
            Self::Decimals => "numeric",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamps => "timestamps",
            Self::Interval => "interval",
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::Uuid => "uuid",
            Self::Lists => "array",
            Self::Records => "composite",
        }
    }
}

impl Example {
    /// An expression without constants.
    pub(super) const fn of(sql: &'static str) -> Self {
        Self { sql, constants: &[], more_constants: &[] }
    }

    /// An expression with one constant.
    pub(super) const fn with(sql: &'static str, constants: &'static [&'static str]) -> Self {
        Self { sql, constants, more_constants: &[] }
    }

    /// The expression with every constant in its place.
    pub fn expressions(&self) -> Vec<String> {
        const NONE: &[&str] = &[""];
        let or_none =
            |constants: &'static [&'static str]| if constants.is_empty() { NONE } else { constants };
        let pairs = or_none(self.constants)
            .iter()
            .flat_map(|n| or_none(self.more_constants).iter().map(move |m| (n, m)));
        pairs.map(|(n, m)| self.sql.replace("{n}", n).replace("{m}", m)).collect()
    }
}

impl Signature {
    /// A signature of so many arguments.
    pub(super) const fn new(
        arguments: &'static [TypeClass],
        result: ResultType,
        examples: &'static [Example],
    ) -> Self {
        Self { arguments, is_variadic: false, result, examples }
    }

    /// The same with any number of further arguments of the last class.
    pub(super) const fn variadic(mut self) -> Self {
        self.is_variadic = true;
        self
    }

    /// Whether a call has these types.
    pub fn accepts(&self, arguments: &[DataType], result: &DataType) -> bool {
        let Some(last) = self.arguments.last() else { return false };
        if arguments.len() < self.arguments.len()
            || (arguments.len() > self.arguments.len() && !self.is_variadic)
        {
            return false;
        }
        let classes = self.arguments.iter().chain(std::iter::repeat(last));
        let typed: Vec<(&TypeClass, &DataType)> = classes.zip(arguments).collect();
        let is_same = |a: &DataType, b: &DataType| a == b || (a.is_decimal() && b.is_decimal());
        let agree = typed.iter().all(|(class, data_type)| {
            class.contains(data_type)
                && typed.iter().all(|(other, other_type)| class != other || is_same(data_type, other_type))
        });
        agree
            && match self.result {
                ResultType::Same => arguments.first().is_some_and(|first| is_same(first, result)),
                ResultType::Of(class) => class.contains(result),
            }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, class) in self.arguments.iter().enumerate() {
            write!(formatter, "{}{}", if index > 0 { ", " } else { "" }, class.name())?;
        }
        let result = match self.result {
            ResultType::Same => self.arguments.first().map_or("", |class| class.name()),
            ResultType::Of(class) => class.name(),
        };
        write!(formatter, "{} -> {result}", if self.is_variadic { ", ..." } else { "" })
    }
}
