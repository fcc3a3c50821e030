//! Conversion of a file's column to its declared type, in the form for kernels.
//!
//! Invariants: a planned conversion gives the CPU engine's value, or an error. Pairs of types
//! without a conversion are left to the CPU engine.

use std::ops::RangeInclusive;

use arrow::datatypes::i256;
use parquet::{basic::Type as PhysicalType, schema::types::ColumnDescriptor};
use pystachio_files::{self as files, annotated_range};
use pystachio_plan::{DataType, Error, ErrorKind, Result, ScanColumn};

use super::{
    abi::{ColumnFlag as column_flags, Conversion as ConversionCode, PageColumn},
    stored_type::{StoredTimeUnit, StoredType},
};
use crate::device::{CellType, DECIMAL128_DIGITS_MAX};

const DATE_DAYS: RangeInclusive<i128> = *files::DATE_DAYS.start() as i128..=*files::DATE_DAYS.end() as i128;
const TIMESTAMP_US_MIN: i128 = files::TIMESTAMP_US_MIN as i128;
const DAY_US: i128 = files::DAY_US as i128;
const UUID_BYTES: u32 = 16;
const INT96_BYTES: u32 = 12;

const INT64: RangeInclusive<i128> = i64::MIN as i128..=i64::MAX as i128;
const INT128: RangeInclusive<i128> = i128::MIN..=i128::MAX;
const _: () = assert!(TIMESTAMP_US_MIN % 1000 == 0 && DAY_US % 1000 == 0);

/// How one column's values become cells.
#[derive(Clone, Debug)]
pub(super) struct ColumnConversion {
    pub(super) cell_type: CellType,
    code: ConversionCode,
    /// Range of the file's value, before it is multiplied by `factor`.
    range: RangeInclusive<i256>,
    factor: i256,
    /// Bytes of a value; 0 for byte arrays and booleans.
    pub(super) source_bytes: u32,
    flags: u32,
    length_max: u32,
    integer_bits: u32,
}

/// A number's code, range and factor.
struct ConversionStep {
    code: ConversionCode,
    range: RangeInclusive<i256>,
    factor: i256,
}

impl ConversionStep {
    fn new(code: ConversionCode) -> Self {
        Self::checked(code, INT64)
    }

    fn checked(code: ConversionCode, range: RangeInclusive<i128>) -> Self {
        Self { code, range: widen(&range), factor: i256::ONE }
    }

    /// Also limited to the range of the file's annotation.
    fn allowing(self, allowed: Option<&RangeInclusive<i128>>) -> Self {
        let Some(allowed) = allowed.map(widen) else { return self };
        let least = *self.range.start().max(allowed.start());
        let greatest = *self.range.end().min(allowed.end());
        Self { range: least..=greatest, ..self }
    }

    fn integer(range: RangeInclusive<i128>, factor: i64) -> Self {
        Self { factor: factor.into(), ..Self::checked(ConversionCode::Integer, range) }
    }
}

fn widen(range: &RangeInclusive<i128>) -> RangeInclusive<i256> {
    i256::from(*range.start())..=i256::from(*range.end())
}

impl ColumnConversion {
    /// The conversion of a column, decided by types alone.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types that kernels do not convert, naming the column.
    pub(super) fn plan(descriptor: &ColumnDescriptor, column: &ScanColumn) -> Result<Self> {
        let refused = || {
            let message = format!("no kernel reads column \"{}\" as {}", column.name, column.data_type);
            Error::new(ErrorKind::NotSupported, message)
        };
        if descriptor.max_rep_level() > 0 || descriptor.max_def_level() > 1 {
            let message = format!("no kernel reads column \"{}\", which is nested", column.name);
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let file = StoredType::of(descriptor).ok_or_else(refused)?;
        let cell_type = CellType::of(&column.data_type)?;
        let physical = descriptor.physical_type();
        let source_bytes = source_bytes(descriptor);
        let allowed = annotated_range(descriptor.self_type());
        let step = plan_step(file, &column.data_type, physical).ok_or_else(refused)?;
        let step = step.allowing(allowed.as_ref());
        if cell_type == CellType::Bytes16 && source_bytes != UUID_BYTES {
            return Err(refused());
        }
        let (integer_bits, is_signed) = match file {
            // Values beyond the annotation's bits are out of range, and not truncated.
            StoredType::Integer { bits, is_signed } if bits >= 32 => (bits, is_signed),
            _ if physical == PhysicalType::INT32 => (32, true),
            _ => (64, true),
        };
        let mut code = step.code;
        let is_copy = code == ConversionCode::Integer
            && step.factor == i256::ONE
            && is_signed
            && integer_bits == source_bytes * 8
            && source_bytes == cell_type.bytes()
            && (step.range == widen(&INT64) || (source_bytes == 4 && step.range == widen(&INT32_ALL)));
        if is_copy {
            code = ConversionCode::Bits;
        }
        let is_text = column.data_type == DataType::Text;
        let mut flags = 0;
        let flag_of = |condition: bool, flag: u32| if condition { flag } else { 0 };
        flags |= flag_of(column.not_null && descriptor.max_def_level() > 0, column_flags::NOT_NULL);
        flags |= flag_of(is_text, column_flags::UTF8);
        flags |= flag_of(is_text && column.trim_blanks, column_flags::TRIM_BLANKS);
        flags |= flag_of(!is_signed, column_flags::UNSIGNED);
        let is_moment =
            matches!(column.data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz);
        flags |= flag_of(is_moment && code == ConversionCode::Integer, column_flags::INFINITIES);
        Ok(Self {
            cell_type,
            code,
            range: step.range,
            factor: step.factor,
            source_bytes,
            flags,
            length_max: column.length_max.filter(|_| is_text).unwrap_or(u32::MAX),
            integer_bits,
        })
    }

    /// The fields of a kernel's column that depend on the conversion.
    pub(super) fn page_column(&self) -> PageColumn {
        PageColumn {
            least: words(*self.range.start()),
            greatest: words(*self.range.end()),
            factor: words(self.factor),
            conversion: self.code as u32,
            cell_bytes: self.cell_type.bytes(),
            source_bytes: self.source_bytes,
            length_max: self.length_max,
            flags: self.flags,
            shift: 64 - self.integer_bits,
            ..PageColumn::default()
        }
    }
}

const INT32_ALL: RangeInclusive<i128> = i32::MIN as i128..=i32::MAX as i128;

fn words(value: i256) -> [u64; 4] {
    let (low, high) = value.to_parts();
    [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64]
}

fn source_bytes(descriptor: &ColumnDescriptor) -> u32 {
    match descriptor.physical_type() {
        PhysicalType::INT32 | PhysicalType::FLOAT => 4,
        PhysicalType::INT64 | PhysicalType::DOUBLE => 8,
        PhysicalType::INT96 => INT96_BYTES,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => u32::try_from(descriptor.type_length()).unwrap_or(0),
        PhysicalType::BOOLEAN | PhysicalType::BYTE_ARRAY => 0,
    }
}

fn plan_step(file: StoredType, declared: &DataType, physical: PhysicalType) -> Option<ConversionStep> {
    use ConversionCode as Code;
    use StoredTimeUnit::{Microseconds, Milliseconds, Nanoseconds};
    let step = match (declared, file) {
        (DataType::Bool, StoredType::Bool) => ConversionStep::new(Code::Flag),
        (DataType::Int16 | DataType::Int32 | DataType::Int64, StoredType::Integer { bits, is_signed }) => {
            // An unsigned integer takes a signed one of more bits.
            let bits_needed = if is_signed { bits } else { bits + 1 };
            (bits_needed <= integer_bits(declared)).then(|| ConversionStep::integer(INT64, 1))?
        }
        (DataType::Decimal { precision, scale }, file) => plan_decimal(file, *precision, *scale, physical)?,
        (DataType::Float32, StoredType::Float) | (DataType::Float64, StoredType::Double) => {
            ConversionStep::new(Code::Bits)
        }
        (DataType::Float64, StoredType::Float) => ConversionStep::new(Code::FloatToDouble),
        (DataType::Float32, StoredType::Half) => ConversionStep::new(Code::HalfToFloat),
        (DataType::Float64, StoredType::Half) => ConversionStep::new(Code::HalfToDouble),
        (DataType::Date, StoredType::Date) => ConversionStep::integer(DATE_DAYS, 1),
        (DataType::Time, StoredType::Time(Milliseconds)) => ConversionStep::integer(0..=DAY_US / 1000, 1000),
        (DataType::Time, StoredType::Time(Microseconds)) => ConversionStep::integer(0..=DAY_US, 1),
        (DataType::Time, StoredType::Time(Nanoseconds)) => {
            ConversionStep::checked(Code::Nanoseconds, 0..=DAY_US * 1000 + 999)
        }
        (DataType::Timestamp, StoredType::Timestamp { unit, is_utc: false })
        | (DataType::TimestampTz, StoredType::Timestamp { unit, is_utc: true }) => match unit {
            Milliseconds => {
                ConversionStep::integer(TIMESTAMP_US_MIN / 1000..=i128::from(i64::MAX / 1000), 1000)
            }
            Microseconds => ConversionStep::integer(TIMESTAMP_US_MIN..=i128::from(i64::MAX), 1),
            Nanoseconds => ConversionStep::new(Code::Nanoseconds),
        },
        // INT96 says no zone: as `timestamptz` it is a time of UTC.
        (DataType::Timestamp | DataType::TimestampTz, StoredType::Int96) => {
            ConversionStep::checked(Code::Int96, TIMESTAMP_US_MIN..=i128::from(i64::MAX))
        }
        (DataType::Text, StoredType::Text | StoredType::Bytes)
        | (DataType::Bytea, StoredType::Bytes | StoredType::FixedBytes) => ConversionStep::new(Code::String),
        (DataType::Uuid, StoredType::FixedBytes) => ConversionStep::new(Code::Bits),
        _ => return None,
    };
    Some(step)
}

fn integer_bits(declared: &DataType) -> u32 {
    match declared {
        DataType::Int16 => 16,
        DataType::Int32 => 32,
        _ => 64,
    }
}

/// A decimal to at least as many digits after the point, checked where it might have too many before it.
fn plan_decimal(
    file: StoredType,
    precision: u8,
    scale: u8,
    physical: PhysicalType,
) -> Option<ConversionStep> {
    let (file_precision, file_scale, is_decimal, is_wide) = match file {
        StoredType::Decimal { precision, scale, is_wide } => (precision, scale, true, is_wide),
        StoredType::Integer { bits: 8, .. } => (3, 0, false, false),
        StoredType::Integer { bits: 16, .. } => (5, 0, false, false),
        StoredType::Integer { bits: 32, .. } => (10, 0, false, false),
        StoredType::Integer { bits: _, is_signed: true } => (19, 0, false, false),
        StoredType::Integer { bits: _, is_signed: false } => (20, 0, false, false),
        _ => return None,
    };
    let digits = scale.checked_sub(file_scale)?;
    let may_overflow = file_precision.saturating_sub(file_scale) > precision.saturating_sub(scale);
    let is_same = is_decimal && file_precision == precision && digits == 0;
    // The annotation of fewer digits is checked by itself.
    let is_long = file_precision > DECIMAL128_DIGITS_MAX;
    let is_checked = is_long || (!is_same && (digits > 0 || may_overflow || is_wide));
    let power = |exponent: u8| i256::from(10).checked_pow(exponent.into());
    let factor = power(digits)?;
    let cell = CellType::of(&DataType::Decimal { precision, scale }).ok()?;
    let range = if is_checked {
        let greatest = power(precision)?.checked_sub(i256::ONE)?.checked_div(factor)?;
        greatest.checked_neg()?..=greatest
    } else {
        match cell {
            CellType::Int64 => widen(&INT64),
            CellType::Int128 => widen(&INT128),
            _ => i256::MIN..=i256::MAX,
        }
    };
    let is_unsigned64 = matches!(file, StoredType::Integer { bits: 64, is_signed: false });
    let code = match physical {
        PhysicalType::INT32 | PhysicalType::INT64 if cell == CellType::Int64 && !is_unsigned64 => {
            ConversionCode::Integer
        }
        PhysicalType::INT32 | PhysicalType::INT64 => ConversionCode::WideInteger,
        _ => ConversionCode::Decimal,
    };
    Some(ConversionStep { code, range, factor })
}
