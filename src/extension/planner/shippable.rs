//! The one place that says what an engine may compute: PostgreSQL's functions and operators by the name of
//! the function in `pg_catalog`. Its types are in [`crate::types`].
//!
//! Three classes. *Same*: listed here, always PostgreSQL's value. *Caveat*: listed here, and the lowering
//! takes it only under a condition that it checks (a collation, a constant argument, a time zone).
//! *Refuse*: everything else.

use pystachio_plan::{Function, TrimSide};

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
    ToWhole(Whole),
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
    Trim(TextSide),
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
    /// `date_trunc`.
    DateTrunc,
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

/// `ceil` or `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// `ceil`
    Ceiling,
    /// `floor`
    Floor,
}

/// Which end `trim` works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSide {
    /// `btrim`
    Both,
    /// `ltrim`
    Leading,
    /// `rtrim`
    Trailing,
}

impl TextSide {
    /// The plan's word.
    pub fn to_plan(self) -> TrimSide {
        match self {
            Self::Both => TrimSide::Both,
            Self::Leading => TrimSide::Leading,
            Self::Trailing => TrimSide::Trailing,
        }
    }
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
    if let Some(comparison) = comparison_of(name) {
        return Some(Shipping::Compare(comparison));
    }
    if let Some(arithmetic) = arithmetic_of(name) {
        return Some(Shipping::Arithmetic(arithmetic));
    }
    Some(match name {
        "int2um" | "int4um" | "int8um" | "float4um" | "float8um" | "numeric_uminus" => Shipping::Negate,
        "int2up" | "int4up" | "int8up" | "float4up" | "float8up" | "numeric_uplus" => Shipping::Plus,
        "abs" | "int2abs" | "int4abs" | "int8abs" | "float4abs" | "float8abs" | "numeric_abs" => {
            Shipping::Absolute
        }
        "sign" => Shipping::Sign,
        "ceil" | "ceiling" => Shipping::ToWhole(Whole::Ceiling),
        "floor" => Shipping::ToWhole(Whole::Floor),
        "round" => Shipping::Round { truncates: false },
        "trunc" => Shipping::Round { truncates: true },
        "sqrt" | "dsqrt" => Shipping::SquareRoot,
        "mod" => Shipping::Arithmetic(Arithmetic::Modulo),
        "int2" | "int4" | "int8" | "float4" | "float8" | "numeric" | "bool" | "date" | "timestamp"
        | "time" | "text" => Shipping::Cast,
        "varchar" | "bpchar" => Shipping::CastToLength,
        "textlike" | "bpcharlike" => Shipping::Like { ignores_case: false, negated: false },
        "textnlike" | "bpcharnlike" => Shipping::Like { ignores_case: false, negated: true },
        "texticlike" | "bpchariclike" => Shipping::Like { ignores_case: true, negated: false },
        "texticnlike" | "bpcharicnlike" => Shipping::Like { ignores_case: true, negated: true },
        "substring" | "substr" => Shipping::Substring,
        "length" | "char_length" | "character_length" => Shipping::Length,
        "octet_length" => Shipping::OctetLength,
        "upper" => Shipping::ChangeCase { to_upper: true },
        "lower" => Shipping::ChangeCase { to_upper: false },
        "textcat" => Shipping::Concat,
        "concat" => Shipping::ConcatSkippingNulls,
        "btrim" => Shipping::Trim(TextSide::Both),
        "ltrim" => Shipping::Trim(TextSide::Leading),
        "rtrim" => Shipping::Trim(TextSide::Trailing),
        "position" | "strpos" => Shipping::Position,
        "replace" => Shipping::Replace,
        "left" => Shipping::End { is_left: true },
        "right" => Shipping::End { is_left: false },
        "starts_with" => Shipping::StartsWith,
        "extract" | "date_part" => Shipping::Extract,
        "date_trunc" => Shipping::DateTrunc,
        "date_pli" => Shipping::AddDays { negated: false },
        "date_mii" => Shipping::AddDays { negated: true },
        "integer_pl_date" => Shipping::AddDaysReversed,
        "date_mi" => Shipping::DaysBetween,
        "date_pl_interval" | "timestamp_pl_interval" => Shipping::AddInterval { negated: false },
        "date_mi_interval" | "timestamp_mi_interval" => Shipping::AddInterval { negated: true },
        "timestamp_mi" => Shipping::TimestampDifference,
        _ => return None,
    })
}

/// The comparison that a function such as `int48lt` or `date_le_timestamp` is.
fn comparison_of(name: &str) -> Option<Comparison> {
    const PREFIXES: [&str; 25] = [
        "int2",
        "int4",
        "int8",
        "int24",
        "int28",
        "int42",
        "int48",
        "int82",
        "int84",
        "float4",
        "float8",
        "float48",
        "float84",
        "numeric_",
        "bool",
        "text",
        "text_",
        "bpchar",
        "date_",
        "time_",
        "timestamp_",
        "timestamptz_",
        "uuid_",
        "bytea",
        "interval_",
    ];
    // `texteqname` and `namelttext`: the operator is in the middle.
    if let Some(operator) = name
        .strip_prefix("text")
        .and_then(|rest| rest.strip_suffix("name"))
        .or_else(|| name.strip_prefix("name")?.strip_suffix("text"))
    {
        return comparison_of_suffix(operator);
    }
    // `date_lt_timestamp` and its like: here too.
    let name = match name {
        _ if name.starts_with("date_") => name.strip_suffix("_timestamp").unwrap_or(name),
        _ if name.starts_with("timestamp_") => name.strip_suffix("_date").unwrap_or(name),
        _ => name,
    };
    PREFIXES.iter().find_map(|prefix| comparison_of_suffix(name.strip_prefix(prefix)?))
}

fn comparison_of_suffix(operator: &str) -> Option<Comparison> {
    match operator {
        "eq" => Some(Comparison::Equal),
        "ne" => Some(Comparison::NotEqual),
        "lt" => Some(Comparison::Less),
        "le" => Some(Comparison::LessEqual),
        "gt" => Some(Comparison::Greater),
        "ge" => Some(Comparison::GreaterEqual),
        _ => None,
    }
}

fn arithmetic_of(name: &str) -> Option<Arithmetic> {
    const PREFIXES: [&str; 13] = [
        "int2", "int4", "int8", "int24", "int28", "int42", "int48", "int82", "int84", "float4", "float8",
        "float48", "float84",
    ];
    let by_suffix = |suffix: &str| match suffix {
        "pl" => Some(Arithmetic::Add),
        "mi" => Some(Arithmetic::Subtract),
        "mul" => Some(Arithmetic::Multiply),
        "div" => Some(Arithmetic::Divide),
        "mod" => Some(Arithmetic::Modulo),
        _ => None,
    };
    match name {
        "numeric_add" => Some(Arithmetic::Add),
        "numeric_sub" => Some(Arithmetic::Subtract),
        "numeric_mul" => Some(Arithmetic::Multiply),
        "numeric_div" => Some(Arithmetic::Divide),
        "numeric_mod" => Some(Arithmetic::Modulo),
        _ => PREFIXES.iter().find_map(|prefix| by_suffix(name.strip_prefix(prefix)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_function() {
        assert_eq!(shipping_of("int48lt"), Some(Shipping::Compare(Comparison::Less)));
        assert_eq!(shipping_of("date_le_timestamp"), Some(Shipping::Compare(Comparison::LessEqual)));
        assert_eq!(shipping_of("texteq"), Some(Shipping::Compare(Comparison::Equal)));
        assert_eq!(shipping_of("text_ge"), Some(Shipping::Compare(Comparison::GreaterEqual)));
        assert_eq!(shipping_of("texteqname"), Some(Shipping::Compare(Comparison::Equal)));
        assert_eq!(shipping_of("namegttext"), Some(Shipping::Compare(Comparison::Greater)));
        assert_eq!(shipping_of("numeric_mul"), Some(Shipping::Arithmetic(Arithmetic::Multiply)));
        assert_eq!(shipping_of("float84div"), Some(Shipping::Arithmetic(Arithmetic::Divide)));
    }

    #[test]
    fn operators_that_depend_on_the_time_zone_are_refused() {
        assert_eq!(shipping_of("date_lt_timestamptz"), None);
        assert_eq!(shipping_of("timestamptz_pl_interval"), None);
        assert_eq!(shipping_of("timestamp_eq_timestamptz"), None);
    }
}
