//! Poison for the cells of NULL rows on the emulated device, which no code may read: numbers that
//! overflow, and text at invalid addresses. Code that converts or checks a cell before its validity
//! fails, or has another result.

use super::{CellType, Column};

/// Cells of one column, and their validity.
#[derive(Clone, Copy, Debug)]
pub struct NullCells {
    /// The address of one cell a row.
    pub values: u64,
    /// The address of a byte a row, 0 for NULL.
    pub validity: u64,
    /// The representation of a cell.
    pub cell_type: CellType,
    /// Rows.
    pub row_count: usize,
}

impl NullCells {
    /// Those of a column; `None` if it has no NULL.
    pub fn of(column: &Column, row_count: usize) -> Option<Self> {
        let validity = column.validity.as_ref()?.address();
        Some(Self { values: column.values.address(), validity, cell_type: column.cell_type, row_count })
    }
}

/// The most bytes that a cell has.
const CELL_BYTES_MAX: usize = 32;

/// The cell of a NULL row, in as many bytes as [`CellType::bytes`] says.
pub(super) fn poison_cell(cell_type: CellType, row: usize) -> [u8; CELL_BYTES_MAX] {
    // The least and the greatest number by turns; as a float, NaN of both signs; as an interval,
    // both of its ends.
    let (fill, end) = if row.is_multiple_of(2) { (0x00, 0x80) } else { (0xff, 0x7f) };
    let mut cell = [fill; CELL_BYTES_MAX];
    match cell_type {
        CellType::Bool => cell[0] = 0xff - (row % 2) as u8 * 0xfe,
        CellType::Float32 | CellType::Float64 | CellType::Bytes16 => cell.fill(0xff),
        // No address, and a length beyond every page.
        CellType::String => {
            cell[..8].copy_from_slice(&(row as u64 + 1).to_le_bytes());
            cell[8..16].fill(0xff);
        }
        CellType::Interval => [7, 11, 15].into_iter().for_each(|last| cell[last] = end),
        CellType::Int16 | CellType::Int32 | CellType::Int64 | CellType::Int128 | CellType::Int256 => {
            cell[cell_type.bytes() as usize - 1] = end;
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_ends_of_their_types() {
        let number = |row| i32::from_le_bytes(poison_cell(CellType::Int32, row)[..4].try_into().unwrap());
        assert_eq!([number(0), number(1)], [i32::MIN, i32::MAX]);
        let number = |row| i128::from_le_bytes(poison_cell(CellType::Int128, row)[..16].try_into().unwrap());
        assert_eq!([number(0), number(1)], [i128::MIN, i128::MAX]);
        let microseconds =
            |row| i64::from_le_bytes(poison_cell(CellType::Interval, row)[..8].try_into().unwrap());
        assert_eq!([microseconds(0), microseconds(1)], [i64::MIN, i64::MAX]);
    }
}
