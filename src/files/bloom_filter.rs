//! Row groups ruled out by Bloom filters: values that a condition demands of a column, and that a chunk does not have.
//!
//! Invariants: a row group is ruled out only if no row in it can make the conditions true. A filter that can't be read, or of a
//! column whose stored values are not the declared ones bit by bit, rules out nothing.
//!
//! Deliberately absent: filters that are kept. They are read when a row group that statistics leave is about to be read, and
//! take a small part of what reading the row group would.
//!
//! Source: Parquet's BloomFilter.md.

use parquet::{basic::Type as PhysicalType, bloom_filter::Sbbf};
use pystachio_plan::{ColumnId, DataType, Expression, Function, Literal, Value};

use crate::{
    TableFile,
    column_place::reads,
    compact_protocol::{CompactWalk, Kind},
    file_type::{FileType, Storage},
    page_index::IndexedRowGroup,
    pruning::{Bounds, refutes_within, same_values},
};

/// Longer filters cost more than they may save.
const FILTER_BYTES_MAX: usize = 4 << 20;
/// What a filter's header takes at most, with room to spare.
const HEADER_BYTES: usize = 64;

/// The values that a column chunk may have.
#[derive(Clone, Debug)]
pub(super) struct BloomFilter {
    bits: Sbbf,
    physical: PhysicalType,
    /// Bytes of a value of `FIXED_LEN_BYTE_ARRAY`.
    length: usize,
    file_type: FileType,
}

/// Whether Bloom filters leave no row of a row group that can make the conditions true. Reads those of the columns that
/// conditions compare with values. Blocks.
pub(super) fn refuted(
    place: &IndexedRowGroup<'_>,
    conditions: &[Expression],
    parameters: &[Literal],
) -> bool {
    let row_count = place.file.footer.metadata().row_group(place.row_group).num_rows();
    let row_count = u64::try_from(row_count).unwrap_or(0);
    let demands_values = |condition: &&Expression| {
        let mut found = false;
        condition.walk(&mut |part| {
            found =
                found || matches!(part, Expression::Call { function: Function::Equal | Function::In, .. });
        });
        found
    };
    // One after another: most conditions need no filter, and the first that holds nowhere is enough.
    conditions.iter().filter(demands_values).any(|condition| {
        let columns =
            place.columns.iter().zip(place.places).filter(|(column, _)| reads(condition, column.id));
        let known: Vec<(ColumnId, Bounds)> = columns
            .filter_map(|(column, at)| {
                let leaf = place.file.footer.value_leaf(at.stored()?)?;
                let file_type = place.file.footer.type_of_leaf(leaf)?;
                let data_type = file_type.data_type.clone()?;
                if column.trim_blanks || !same_values(&data_type, &column.data_type) {
                    return None;
                }
                let filter = BloomFilter::read(place.file, (place.row_group, leaf), file_type)?;
                Some((column.id, Bounds::of_values(data_type, row_count, filter)))
            })
            .collect();
        let bounds_of = |id| known.iter().find(|(column, _)| *column == id).map(|(_, bounds)| bounds);
        !known.is_empty() && refutes_within(std::slice::from_ref(condition), &bounds_of, parameters)
    })
}

impl BloomFilter {
    fn read(file: &TableFile, (row_group, leaf): (usize, usize), file_type: &FileType) -> Option<Self> {
        let chunk = file.footer.metadata().row_group(row_group).column(leaf);
        let offset = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
        // Those of encrypted files are encrypted too, and are not read.
        if file.is_decrypted() || chunk.column_descr().max_rep_level() > 0 {
            return None;
        }
        let stated = chunk.bloom_filter_length().map(usize::try_from).transpose().ok()?;
        let bits = read_bits(file, offset, stated)?;
        let length = usize::try_from(chunk.column_descr().type_length()).unwrap_or(0);
        let (physical, file_type) = (chunk.column_type(), file_type.clone());
        (bits.num_blocks() > 0).then_some(Self { bits, physical, length, file_type })
    }

    /// Whether the chunk does not have a value.
    pub(super) fn lacks(&self, value: &Literal) -> bool {
        let Some(file_type) = &self.file_type.data_type else { return false };
        if !same_values(file_type, &value.data_type) {
            return false;
        }
        match (self.file_type.storage, &value.value) {
            (Some(Storage::Signed), Value::Int(number)) => {
                !is_infinite(file_type, *number) && self.lacks_integer(i128::from(*number))
            }
            (Some(Storage::Decimal), Value::Decimal(number)) => {
                let (DataType::Decimal { scale, .. }, DataType::Decimal { scale: of_value, .. }) =
                    (file_type, &value.data_type)
                else {
                    return false;
                };
                match with_scale(*number, *of_value, *scale) {
                    Some(number) => self.lacks_integer(number),
                    None => false,
                }
            }
            (Some(Storage::Text), Value::Text(text)) => self.lacks_bytes(text.as_bytes()),
            (Some(Storage::Bytes), Value::Bytes(bytes)) => self.lacks_bytes(bytes),
            _ => false,
        }
    }

    fn lacks_integer(&self, number: i128) -> bool {
        match self.physical {
            // One that does not fit is nowhere.
            PhysicalType::INT32 => i32::try_from(number).map_or(true, |number| !self.bits.check(&number)),
            PhysicalType::INT64 => i64::try_from(number).map_or(true, |number| !self.bits.check(&number)),
            PhysicalType::FIXED_LEN_BYTE_ARRAY if (1..=size_of::<i128>()).contains(&self.length) => {
                let spare_bits = 8 * (size_of::<i128>() - self.length);
                let fits = (number << spare_bits) >> spare_bits == number;
                !fits || !self.bits.check(&number.to_be_bytes()[size_of::<i128>() - self.length..])
            }
            // Longer or shorter forms of a number are other bytes.
            _ => false,
        }
    }

    fn lacks_bytes(&self, bytes: &[u8]) -> bool {
        match self.physical {
            PhysicalType::BYTE_ARRAY => !self.bits.check(bytes),
            PhysicalType::FIXED_LEN_BYTE_ARRAY => bytes.len() != self.length || !self.bits.check(bytes),
            _ => false,
        }
    }
}

/// Whether a value stands for several stored ones.
fn is_infinite(data_type: &DataType, number: i64) -> bool {
    match data_type {
        DataType::Date => i32::try_from(number).map_or(true, |days| [i32::MIN, i32::MAX].contains(&days)),
        DataType::Timestamp | DataType::TimestampTz => [i64::MIN, i64::MAX].contains(&number),
        _ => false,
    }
}

/// A decimal's digits with another scale; `None` where it has more, or too many.
fn with_scale(number: i128, from: u8, to: u8) -> Option<i128> {
    let power = |scale: u8| 10i128.checked_pow(u32::from(scale));
    match to.checked_sub(from) {
        Some(more) => number.checked_mul(power(more)?),
        None => {
            let divisor = power(from - to)?;
            (number % divisor == 0).then(|| number / divisor)
        }
    }
}

/// The bits of the filter at a place in a file, if it is as long as it says.
fn read_bits(file: &TableFile, offset: u64, stated_bytes: Option<usize>) -> Option<Sbbf> {
    let handle = file.handle().ok()?;
    let rest = usize::try_from(file.footer.identity.file_bytes.checked_sub(offset)?).ok()?;
    let known = stated_bytes.unwrap_or(HEADER_BYTES).min(rest).min(FILTER_BYTES_MAX);
    let bytes = file.read_range(&handle, offset, known).ok()?;
    let all = filter_bytes(&bytes)?;
    if all > FILTER_BYTES_MAX || stated_bytes.is_some_and(|stated| stated != all) {
        return None;
    }
    let bytes = if all > bytes.len() { file.read_range(&handle, offset, all).ok()? } else { bytes };
    Sbbf::from_bytes(bytes.get(..all)?).ok()
}

/// How long a filter is with its header, which is at the start of `bytes`.
fn filter_bytes(bytes: &[u8]) -> Option<usize> {
    let mut walk = CompactWalk { rest: bytes };
    let mut bit_bytes = None;
    let read = walk.fields(0, &mut |walk, field, kind| {
        match (field, kind) {
            (1, Kind::Integer) => bit_bytes = usize::try_from(walk.signed()?).ok(),
            _ => walk.skip(kind, 1)?,
        }
        Ok(())
    });
    read.ok()?;
    (bytes.len() - walk.rest.len()).checked_add(bit_bytes?)
}

#[cfg(test)]
mod tests;
