//! PostgreSQL's types, as far as lowering tells them apart.

use std::rc::Rc;

use pystachio_plan::DataType;

/// Bytes of the length word that type modifiers of character types and `numeric` include.
const MODIFIER_OFFSET: i32 = 4;
/// The most digits a `numeric(p,s)` may have to be held exactly.
const NUMERIC_DIGITS_MAX: i32 = 38;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the types'")]
pub enum SourceType {
    Bool,
    SmallInt,
    Integer,
    BigInt,
    Real,
    Double,
    Numeric,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    Text,
    Varchar,
    /// `character`, of which a plan has values without the blanks at their end.
    Character,
    Json,
    /// `name`, which no plan has.
    Name,
    Bytea,
    Uuid,
    Array(Rc<ArrayType>),
    /// `jsonb` or an enum. A plan has values as text, which PostgreSQL reads by the type's input function.
    FromText(Rc<OtherType>),
    Other(Rc<OtherType>),
}

/// An array.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrayType {
    /// PostgreSQL's name of it.
    pub name: String,
    /// The type of its elements.
    pub item: SourceType,
}

/// A type that no plan has, at least not as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherType {
    /// PostgreSQL's name of it.
    pub name: String,
}

impl SourceType {
    /// An array of a type that is no array.
    pub fn array_of(item: Self) -> Self {
        Self::Array(Rc::new(ArrayType { name: format!("{}[]", item.name()), item }))
    }

    /// A type that PostgreSQL reads from text.
    pub fn from_text(name: impl Into<String>) -> Self {
        Self::FromText(Rc::new(OtherType { name: name.into() }))
    }

    /// A type that no plan has.
    pub fn other(name: impl Into<String>) -> Self {
        Self::Other(Rc::new(OtherType { name: name.into() }))
    }

    /// PostgreSQL's name of the type.
    pub fn name(&self) -> &str {
        match self {
            Self::Bool => "boolean",
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Real => "real",
            Self::Double => "double precision",
            Self::Numeric => "numeric",
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::TimestampTz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Text => "text",
            Self::Varchar => "character varying",
            Self::Character => "character",
            Self::Json => "json",
            Self::Name => "name",
            Self::Bytea => "bytea",
            Self::Uuid => "uuid",
            Self::Array(array) => &array.name,
            Self::FromText(other) | Self::Other(other) => &other.name,
        }
    }

    /// The plan's type of values with a type modifier, or `None` if there is none: `numeric` with more than 38 digits or a
    /// negative scale has none. `numeric` without a scale is [`DataType::Numeric`].
    pub fn data_type_with(&self, modifier: i32) -> Option<DataType> {
        Some(match self {
            Self::Bool => DataType::Bool,
            Self::SmallInt => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric => numeric_type(modifier)?,
            Self::Date => DataType::Date,
            Self::Time => DataType::Time,
            Self::Timestamp => DataType::Timestamp,
            Self::TimestampTz => DataType::TimestampTz,
            Self::Interval => DataType::Interval,
            Self::Text | Self::Varchar | Self::Character | Self::Json | Self::FromText(_) => DataType::Text,
            Self::Bytea => DataType::Bytea,
            Self::Uuid => DataType::Uuid,
            Self::Array(array) => DataType::List(Box::new(array.item.data_type_with(modifier)?)),
            Self::Name | Self::Other(_) => return None,
        })
    }

    /// The plan's type of values of any modifier.
    pub fn data_type(&self) -> Option<DataType> {
        self.data_type_with(-1)
    }

    /// The same for what is no array.
    pub fn scalar_data_type(&self) -> Option<DataType> {
        match self {
            Self::Array(_) => None,
            scalar => scalar.data_type(),
        }
    }

    /// The type of the elements of an array.
    pub fn item(&self) -> Option<&Self> {
        match self {
            Self::Array(array) => Some(&array.item),
            _ => None,
        }
    }

    /// Whether values have a collation.
    pub fn is_collated_text(&self) -> bool {
        matches!(self, Self::Text | Self::Varchar | Self::Character)
    }

    /// Whether values of one type are those of the other: `text` and `varchar`.
    pub(crate) fn is_unpadded_text(&self) -> bool {
        matches!(self, Self::Text | Self::Varchar)
    }
}

/// The plan's type of a `numeric` with a type modifier.
fn numeric_type(modifier: i32) -> Option<DataType> {
    let Some((precision, scale)) = numeric_modifier(modifier) else { return Some(DataType::Numeric) };
    // PostgreSQL allows a scale beyond the precision: numeric(2,4) holds up to 0.0099.
    let precision = precision.max(scale);
    (precision <= NUMERIC_DIGITS_MAX && scale >= 0)
        .then_some(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

/// Precision and scale from a numeric's type modifier; `None` if it has neither.
pub fn numeric_modifier(modifier: i32) -> Option<(i32, i32)> {
    let packed = modifier.checked_sub(MODIFIER_OFFSET).filter(|packed| *packed >= 0)?;
    // Eleven bits with a sign: PostgreSQL allows scales from -1000 to 1000.
    Some(((packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 0x400) - 0x400))
}

/// The length from the type modifier of a character type; `None` if it has none.
pub fn character_length(modifier: i32) -> Option<i32> {
    modifier.checked_sub(MODIFIER_OFFSET).filter(|length| *length >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_modifiers_are_read() {
        assert_eq!(numeric_modifier(((15 << 16) | 2) + 4), Some((15, 2)));
        assert_eq!(numeric_modifier(((5 << 16) | (0x7ff & -2i32)) + 4), Some((5, -2)));
        assert_eq!(numeric_modifier(-1), None);
        assert_eq!(numeric_modifier(i32::MIN), None);
    }

    #[test]
    fn a_numeric_of_too_many_digits_has_no_type() {
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (0x7ff & scale)) + 4;
        let with = |modifier| SourceType::Numeric.data_type_with(modifier);
        assert_eq!(with(modifier(38, 10)), Some(DataType::Decimal { precision: 38, scale: 10 }));
        assert_eq!(with(modifier(39, 10)), None);
        assert_eq!(with(modifier(5, -2)), None);
        assert_eq!(with(-1), Some(DataType::Numeric));
    }

    #[test]
    fn lengths_do_not_count_the_length_word() {
        assert_eq!(character_length(9), Some(5));
        assert_eq!(character_length(4), None);
        assert_eq!(character_length(-1), None);
    }
}
