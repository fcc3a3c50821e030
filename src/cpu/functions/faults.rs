//! PostgreSQL's errors of numbers.

use pystachio_plan::{DataType, Error, ErrorKind};

/// The error of a number that its type does not hold.
pub(super) fn out_of_range(data_type: &DataType) -> Error {
    Error::new(ErrorKind::NumericOutOfRange, format!("{data_type} out of range"))
}

/// PostgreSQL's error of every division by zero.
pub(super) fn division_by_zero() -> Error {
    Error::new(ErrorKind::DivisionByZero, "division by zero")
}

/// The error of a float that became infinite.
pub(super) fn float_overflow() -> Error {
    Error::new(ErrorKind::NumericOutOfRange, "value out of range: overflow")
}

/// The error of a float that became zero.
pub(super) fn float_underflow() -> Error {
    Error::new(ErrorKind::NumericOutOfRange, "value out of range: underflow")
}

/// A number with more digits before the point than its type has.
pub(super) fn field_overflow(precision: u8, scale: u32) -> Error {
    let whole = i64::from(precision) - i64::from(scale);
    let bound = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
    Error::new(ErrorKind::NumericOutOfRange, "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
    ))
}
