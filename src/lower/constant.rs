//! Constants of PostgreSQL as literals of the plan.

use pystachio_plan::{DataType, Expression, Value};

use crate::{Lowered, LoweredResult, Notes, Refusal, Scale, SourceType};

/// Elements of a constant array that are worth a place in a plan.
pub const ARRAY_ITEMS_MAX: usize = 10_000;

/// A constant of PostgreSQL, as far as a plan can have it.
#[derive(Clone, Debug)]
pub enum Constant {
    /// NULL.
    Null,
    /// A value that is laid out as in plans, but that `character` has its blanks.
    Value(Value),
    /// A `numeric` as PostgreSQL prints it, which shows its display scale.
    Numeric(String),
    /// The elements of an array.
    Array(Vec<Constant>),
    /// An array with more elements than [`ARRAY_ITEMS_MAX`].
    LongArray(usize),
    /// A value that no plan holds, though its type is one of a plan.
    Refused(Refusal),
    /// A value of a type that no plan has.
    Unknown,
}

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            // Zeroes of two signs are two constants, and NaN is one.
            (Self::Value(Value::Float(own)), Self::Value(Value::Float(other))) => {
                own.to_bits() == other.to_bits()
            }
            (Self::Value(own), Self::Value(other)) => own == other,
            (Self::Numeric(own), Self::Numeric(other)) => own == other,
            (Self::Array(own), Self::Array(other)) => own == other,
            _ => false,
        }
    }
}

/// A constant as a literal.
///
/// # Errors
///
/// If no plan can have it.
pub fn lower_constant(constant: &Constant, of: &SourceType, notes: &Notes) -> LoweredResult {
    let refused = || Refusal::Constant(of.name().to_owned());
    let data_type = of.data_type().ok_or_else(refused)?;
    match constant {
        Constant::Null => {
            let data_type = match data_type {
                DataType::Numeric => DataType::Decimal { precision: 1, scale: 0 },
                data_type => data_type,
            };
            let scale = if data_type.is_decimal() { Scale::Fixed(0) } else { Scale::None };
            Ok(Lowered::number(Expression::literal(Value::Null, data_type), scale, 0.0))
        }
        Constant::Numeric(text) => lower_numeric(text),
        Constant::Value(value) => lower_value(value, of, data_type, notes),
        Constant::Refused(refusal) => Err(refusal.clone()),
        Constant::Array(_) | Constant::LongArray(_) | Constant::Unknown => Err(refused()),
    }
}

fn lower_value(value: &Value, of: &SourceType, data_type: DataType, notes: &Notes) -> LoweredResult {
    let mut value = value.clone();
    let mut magnitude = f64::INFINITY;
    match (&mut value, &data_type) {
        (Value::Int(number), integer) if integer.is_integer() => magnitude = number.unsigned_abs() as f64,
        (Value::Int(days), DataType::Date) if [i32::MIN, i32::MAX].map(i64::from).contains(days) => {
            notes.meet_infinity();
        }
        (Value::Int(i64::MIN | i64::MAX), DataType::Timestamp | DataType::TimestampTz) => {
            notes.meet_infinity();
        }
        // Engines count nanoseconds.
        (Value::Interval(interval), _) if interval.microseconds.checked_mul(1_000).is_none() => {
            return Err(Refusal::LongInterval);
        }
        (Value::Text(text), _) if *of == SourceType::Character => {
            text.truncate(text.trim_end_matches(' ').len());
        }
        _ => {}
    }
    Ok(Lowered::number(Expression::literal(value, data_type), Scale::None, magnitude))
}

/// The elements of a constant array; none if it is NULL, because NULL compared is NULL, which callers
/// would have to say: refused.
pub(crate) fn array_constants<'a>(
    constant: &'a Constant,
    of: &'a SourceType,
) -> Result<(&'a [Constant], &'a SourceType), Refusal> {
    match (constant, of) {
        (Constant::Array(items), SourceType::Array(array)) => Ok((items, &array.item)),
        (Constant::LongArray(count), _) => Err(Refusal::LongArray(*count)),
        _ => Err(Refusal::NullArray),
    }
}

/// A numeric from the text that PostgreSQL prints, which shows its display scale.
fn lower_numeric(text: &str) -> LoweredResult {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = whole.trim_start_matches('-').chars().chain(fraction.chars()).collect();
    let significant = digits.trim_start_matches('0');
    let unscaled =
        significant.parse::<i128>().or_else(|error| if significant.is_empty() { Ok(0) } else { Err(error) });
    let (Ok(unscaled), true, true) =
        (unscaled, significant.len() <= 38, fraction.len() <= 38 && !digits.is_empty())
    else {
        return Err(Refusal::NumericConstant(text.to_owned()));
    };
    let scale = fraction.len();
    let precision = significant.len().max(scale).max(1);
    let value = if text.starts_with('-') { -unscaled } else { unscaled };
    let data_type = DataType::Decimal { precision: precision as u8, scale: scale as u8 };
    let magnitude = unscaled as f64 / 10f64.powi(scale as i32);
    let expression = Expression::literal(Value::Decimal(value), data_type);
    Ok(Lowered::number(expression, Scale::Fixed(scale as i32), magnitude))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Option<(Value, DataType)> {
        match lower_numeric(text).ok()?.expression {
            Expression::Literal(literal) => Some((literal.value, literal.data_type)),
            _ => None,
        }
    }

    #[test]
    fn numerics_keep_their_digits() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        assert_eq!(literal("0.05"), Some((Value::Decimal(5), decimal(2, 2))));
        assert_eq!(literal("-1.50"), Some((Value::Decimal(-150), decimal(3, 2))));
        assert_eq!(literal("0"), Some((Value::Decimal(0), decimal(1, 0))));
        assert_eq!(literal("100"), Some((Value::Decimal(100), decimal(3, 0))));
    }

    #[test]
    fn what_has_no_digits_is_refused() {
        assert_eq!(literal("NaN"), None);
        assert_eq!(literal("Infinity"), None);
        assert_eq!(literal(&"9".repeat(39)), None);
    }

    #[test]
    fn zeroes_of_two_signs_are_two_constants() {
        let float = |value| Constant::Value(Value::Float(value));
        assert_ne!(float(0.0), float(-0.0));
        assert_eq!(float(f64::NAN), float(f64::NAN));
    }
}
