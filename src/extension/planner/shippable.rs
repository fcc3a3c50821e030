//! How PostgreSQL's functions and operators are lowered that mean a function of the plan language: by the name of the
//! function in `pg_catalog`, which the registry of functions has ([`pystachio_plan::function_of_catalog`]). Types are in
//! [`crate::types`].
//!
//! Three classes. *Same*: in the registry, always PostgreSQL's value. *Caveat*: in the registry, and the lowering takes it
//! only under a condition that it checks (a collation, a constant argument, a time zone). *Refuse*: everything else.

use pystachio_plan::{CatalogUse, Function, TrimSide, function_of_catalog};

/// How a function is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipping {
    /// A comparison.
    Compare(Comparison),
    /// `+`, `-`, `*`, `/`, `%` on numbers.
    Arithmetic(Arithmetic),
    /// `-a`.
    Negate,
    /// `+a`.
    Plus,
    /// `abs`.
    Absolute,
    /// `sign`.
    Sign,
    /// `ceil` and `floor`.
    ToWhole(Function),
    /// `round` and `trunc` with an optional count of digits.
    Round {
        /// Towards zero.
        truncates: bool,
    },
    /// `sqrt(double precision)`.
    SquareRoot,
    /// A change to the function's result type.
    Cast,
    /// A cast to `varchar(n)` or `char(n)`: the first n characters.
    CastToLength,
    /// LIKE and its kin.
    Like {
        /// ILIKE.
        ignores_case: bool,
        /// NOT LIKE.
        negated: bool,
    },
    /// `substring`, `substr`.
    Substring,
    /// `length` and its other names.
    Length,
    /// `octet_length`.
    OctetLength,
    /// `upper` and `lower`.
    ChangeCase {
        /// To upper case.
        to_upper: bool,
    },
    /// `||` on texts.
    Concat,
    /// `concat`.
    ConcatSkippingNulls,
    /// `btrim`, `ltrim`, `rtrim`.
    Trim(TrimSide),
    /// `position`, `strpos`.
    Position,
    /// `replace`.
    Replace,
    /// `left` and `right`.
    End {
        /// `left`.
        is_left: bool,
    },
    /// `starts_with`.
    StartsWith,
    /// `extract` (numeric) and `date_part` (double precision).
    Extract,
    /// `date_trunc`, with a time zone or without.
    DateTrunc,
    /// `date_bin`.
    DateBin,
    /// `to_timestamp` of seconds.
    ToTimestamp,
    /// `timezone`: AT TIME ZONE, and AT LOCAL.
    AtTimeZone,
    /// date + integer, date - integer.
    AddDays {
        /// Subtract.
        negated: bool,
    },
    /// integer + date.
    AddDaysReversed,
    /// date - date.
    DaysBetween,
    /// date or timestamp ± interval.
    AddInterval {
        /// Subtract.
        negated: bool,
    },
    /// timestamp - timestamp.
    TimestampDifference,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Comparison {
    /// The plan's word.
    pub fn to_plan(self) -> Function {
        match self {
            Self::Equal => Function::Equal,
            Self::NotEqual => Function::NotEqual,
            Self::Less => Function::Less,
            Self::LessEqual => Function::LessEqual,
            Self::Greater => Function::Greater,
            Self::GreaterEqual => Function::GreaterEqual,
        }
    }

    /// The same comparison with its operands exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }

    /// Whether the operands' order matters, so that text needs a collation of byte order.
    pub fn is_ordering(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

impl Arithmetic {
    /// The plan's word; numeric division has words of its own.
    pub fn to_plan(self) -> Function {
        match self {
            Self::Add => Function::Add,
            Self::Subtract => Function::Subtract,
            Self::Multiply => Function::Multiply,
            Self::Divide => Function::Divide,
            Self::Modulo => Function::Modulo,
        }
    }
}

/// How a function of `pg_catalog` is shipped; `None` if it is not.
pub fn shipping_of(name: &str) -> Option<Shipping> {
    match name {
        // The argument itself.
        "int2up" | "int4up" | "int8up" | "float4up" | "float8up" | "numeric_uplus" => Some(Shipping::Plus),
        "varchar" | "bpchar" => Some(Shipping::CastToLength),
        _ => {
            let (entry, is) = function_of_catalog(name)?;
            shipping_of_function(entry.form.any(), is, name)
        }
    }
}

/// How a function of `pg_catalog` that means one of the plan's is shipped; the parameter of the plan's has no meaning.
fn shipping_of_function(function: Function, is: CatalogUse, name: &str) -> Option<Shipping> {
    let negated = matches!(is, CatalogUse::Not | CatalogUse::MinusSecond);
    Some(match function {
        Function::Equal => Shipping::Compare(Comparison::Equal),
        Function::NotEqual => Shipping::Compare(Comparison::NotEqual),
        Function::Less => Shipping::Compare(Comparison::Less),
        Function::LessEqual => Shipping::Compare(Comparison::LessEqual),
        Function::Greater => Shipping::Compare(Comparison::Greater),
        Function::GreaterEqual => Shipping::Compare(Comparison::GreaterEqual),
        Function::Add => Shipping::Arithmetic(Arithmetic::Add),
        Function::Subtract => Shipping::Arithmetic(Arithmetic::Subtract),
        Function::Multiply => Shipping::Arithmetic(Arithmetic::Multiply),
        Function::Divide | Function::DivideDecimal => Shipping::Arithmetic(Arithmetic::Divide),
        Function::Modulo => Shipping::Arithmetic(Arithmetic::Modulo),
        Function::Negate => Shipping::Negate,
        Function::Absolute => Shipping::Absolute,
        Function::Sign => Shipping::Sign,
        Function::Ceiling | Function::Floor => Shipping::ToWhole(function),
        Function::Round => Shipping::Round { truncates: false },
        Function::Truncate => Shipping::Round { truncates: true },
        Function::SquareRoot => Shipping::SquareRoot,
        Function::Cast => Shipping::Cast,
        Function::Like => Shipping::Like { ignores_case: false, negated },
        Function::ILike(_) => Shipping::Like { ignores_case: true, negated },
        Function::Substring => Shipping::Substring,
        Function::Length => Shipping::Length,
        Function::OctetLength => Shipping::OctetLength,
        Function::Upper(_) => Shipping::ChangeCase { to_upper: true },
        Function::Lower(_) => Shipping::ChangeCase { to_upper: false },
        Function::Concat => Shipping::Concat,
        Function::ConcatSkippingNulls => Shipping::ConcatSkippingNulls,
        Function::Trim(_) => Shipping::Trim(match name {
            "ltrim" => TrimSide::Leading,
            "rtrim" => TrimSide::Trailing,
            _ => TrimSide::Both,
        }),
        Function::Position => Shipping::Position,
        Function::Replace => Shipping::Replace,
        Function::Left => Shipping::End { is_left: true },
        Function::Right => Shipping::End { is_left: false },
        Function::StartsWith => Shipping::StartsWith,
        Function::Extract(_) | Function::DatePart(_) => Shipping::Extract,
        Function::DateTrunc(_) => Shipping::DateTrunc,
        Function::DateBin => Shipping::DateBin,
        Function::ToTimestamp => Shipping::ToTimestamp,
        Function::LocalTime => Shipping::AtTimeZone,
        Function::AddDays if is == CatalogUse::Exchanged => Shipping::AddDaysReversed,
        Function::AddDays => Shipping::AddDays { negated: false },
        Function::SubtractDays => Shipping::AddDays { negated: true },
        Function::DaysBetween => Shipping::DaysBetween,
        Function::AddInterval => Shipping::AddInterval { negated },
        Function::TimestampDifference => Shipping::TimestampDifference,
        // No function of PostgreSQL's: expressions of their own, or the planner's alone.
        Function::IsDistinctFrom
        | Function::IsNotDistinctFrom
        | Function::In
        | Function::And
        | Function::Or
        | Function::Not
        | Function::IsNull
        | Function::IsNotNull
        | Function::IsTrue
        | Function::IsNotTrue
        | Function::IsFalse
        | Function::IsNotFalse
        | Function::Coalesce
        | Function::NullIf
        | Function::Greatest
        | Function::Least
        | Function::QuotientScale
        | Function::Instant
        | Function::DateTruncInZone(_)
        | Function::PadBlanks
        | Function::TrimBlanks
        | Function::Variance { .. }
        | Function::VarianceScale { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_function() {
        assert_eq!(shipping_of("int48lt"), Some(Shipping::Compare(Comparison::Less)));
        assert_eq!(shipping_of("date_le_timestamp"), Some(Shipping::Compare(Comparison::LessEqual)));
        assert_eq!(shipping_of("date_lt_timestamptz"), Some(Shipping::Compare(Comparison::Less)));
        assert_eq!(shipping_of("timestamp_eq_timestamptz"), Some(Shipping::Compare(Comparison::Equal)));
        assert_eq!(shipping_of("texteq"), Some(Shipping::Compare(Comparison::Equal)));
        assert_eq!(shipping_of("text_ge"), Some(Shipping::Compare(Comparison::GreaterEqual)));
        assert_eq!(shipping_of("texteqname"), Some(Shipping::Compare(Comparison::Equal)));
        assert_eq!(shipping_of("namegttext"), Some(Shipping::Compare(Comparison::Greater)));
        assert_eq!(shipping_of("numeric_mul"), Some(Shipping::Arithmetic(Arithmetic::Multiply)));
        assert_eq!(shipping_of("float84div"), Some(Shipping::Arithmetic(Arithmetic::Divide)));
        assert_eq!(shipping_of("bpcharicnlike"), Some(Shipping::Like { ignores_case: true, negated: true }));
        assert_eq!(shipping_of("date_mi_interval"), Some(Shipping::AddInterval { negated: true }));
        assert_eq!(shipping_of("integer_pl_date"), Some(Shipping::AddDaysReversed));
        assert_eq!(shipping_of("ltrim"), Some(Shipping::Trim(TrimSide::Leading)));
    }

    #[test]
    fn every_name_of_the_registry_is_shipped() {
        for entry in pystachio_plan::FUNCTIONS {
            for name in entry.catalog.iter().flat_map(|names| names.names) {
                assert!(shipping_of(name).is_some(), "{name}");
            }
        }
    }
}
