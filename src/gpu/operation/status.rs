//! PostgreSQL's errors for the reports of kernels.

use pystachio_plan::{Error, ErrorKind};

use super::{Status, error_code};

/// The error that a status is; `None` if there was none.
///
/// Kinds and messages are PostgreSQL's. That of a decimal that exceeds its bits names their digits.
pub fn status_error(status: Status) -> Option<Error> {
    let Status { code, detail, value } = status;
    let (kind, message) = match code {
        0 => return None,
        error_code::INT16_RANGE => (ErrorKind::NumericOutOfRange, "smallint out of range"),
        error_code::INT32_RANGE => (ErrorKind::NumericOutOfRange, "integer out of range"),
        error_code::INT64_RANGE => (ErrorKind::NumericOutOfRange, "bigint out of range"),
        error_code::DECIMAL_RANGE => return Some(decimal_overflow(detail)),
        error_code::NUMERIC_OVERFLOW => return Some(field_overflow(detail)),
        error_code::DIVISION_BY_ZERO => (ErrorKind::DivisionByZero, "division by zero"),
        error_code::FLOAT_OVERFLOW => (ErrorKind::NumericOutOfRange, "value out of range: overflow"),
        error_code::FLOAT_UNDERFLOW => (ErrorKind::NumericOutOfRange, "value out of range: underflow"),
        error_code::NEGATIVE_LENGTH => (ErrorKind::SubstringLength, "negative substring length not allowed"),
        error_code::DATE_RANGE => (ErrorKind::DatetimeOutOfRange, "date out of range"),
        error_code::TIMESTAMP_RANGE => (ErrorKind::DatetimeOutOfRange, "timestamp out of range"),
        error_code::SQUARE_ROOT => {
            (ErrorKind::InvalidPowerArgument, "cannot take square root of a negative number")
        }
        error_code::PATTERN => (ErrorKind::EscapeSequence, "LIKE pattern must not end with escape character"),
        error_code::INTERVAL_RANGE => (ErrorKind::DatetimeOutOfRange, "interval out of range"),
        error_code::REQUESTED_LENGTH => (ErrorKind::LimitExceeded, "requested length too large"),
        error_code::FIELD_POSITION => (ErrorKind::InvalidArgument, "field position must not be zero"),
        error_code::DATE_TO_TIMESTAMP => (ErrorKind::DatetimeOutOfRange, "date out of range for timestamp"),
        error_code::INFINITE_DATES => (ErrorKind::DatetimeOutOfRange, "cannot subtract infinite dates"),
        error_code::INFINITE_TIMESTAMPS => {
            (ErrorKind::DatetimeOutOfRange, "cannot subtract infinite timestamps")
        }
        error_code::INFINITE_FIELD => {
            (ErrorKind::NotSupported, "fields of infinite dates and timestamps are not supported here")
        }
        error_code::ORIGIN_RANGE => (ErrorKind::DatetimeOutOfRange, "origin out of range"),
        error_code::STRIDE => (ErrorKind::DatetimeOutOfRange, "stride must be greater than zero"),
        error_code::NO_MOMENT => return Some(Error::no_moment(f64::from_bits(value))),
        error_code::TEXT_BYTES => (ErrorKind::NotSupported, "a text of more than 1 GB is not supported here"),
        _ => return Some(Error::internal(format!("a kernel failed: code={code}, detail={detail}"))),
    };
    Some(Error::new(kind, message))
}

fn decimal_overflow(digits: u32) -> Error {
    let message = format!("numeric value out of range: a result needs more than {digits} digits");
    Error::new(ErrorKind::NumericOutOfRange, message)
        .with_hint("Cast an operand to a numeric with fewer digits, or to double precision.")
}

/// `detail` is precision and, from bit 8 on, scale.
fn field_overflow(detail: u32) -> Error {
    let (precision, scale) = (detail & 0xff, detail >> 8 & 0xff);
    let bound = if precision <= scale { "1".to_owned() } else { format!("10^{}", precision - scale) };
    Error::new(ErrorKind::NumericOutOfRange, "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
    ))
}
