//! The constants of a program: cells of 16 bytes, the texts that cells point to, and tables for `SEARCH`.

use std::collections::HashMap;

use pystachio_plan::{Error, ErrorKind, Result};

use super::abi::OPERAND_CONSTANT;

/// A cell whose bits are known, or a text that gets its address when the program is uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    /// Low and high half.
    Bits([u64; 2]),
    /// Bytes of a text or a bytea.
    Text(Vec<u8>),
}

impl Cell {
    /// An integer; readable as one of 64 bits, if it fits, and as one of 128.
    pub(super) fn integer(value: i128) -> Self {
        Self::Bits([value as u64, (value >> 64) as u64])
    }

    /// A float.
    pub(super) fn float(value: f64) -> Self {
        Self::Bits([value.to_bits(), 0])
    }

    /// The integer that the bits are.
    pub(super) fn to_integer(&self) -> Option<i128> {
        match self {
            Self::Bits([low, high]) => Some((i128::from(*high as i64) << 64) | i128::from(*low)),
            Self::Text(_) => None,
        }
    }
}

/// Constants by number, and tables behind them.
#[derive(Debug, Default)]
pub(super) struct Constants {
    cells: Vec<Cell>,
    numbers: HashMap<Cell, u16>,
    tables: Vec<Vec<Cell>>,
    /// Which constants say where a table is: constant and table.
    ranges: Vec<(u16, usize)>,
}

/// What the device needs of the constants.
#[derive(Debug, Default)]
pub(super) struct ConstantImage {
    /// Cells; those of texts hold an offset into `bytes` as their address.
    pub(super) cells: Vec<[u64; 2]>,
    /// Which cells are texts.
    pub(super) texts: Vec<usize>,
    /// The texts' bytes.
    pub(super) bytes: Vec<u8>,
}

impl Constants {
    /// The number of a constant, the same for equal cells.
    ///
    /// # Errors
    ///
    /// `NotSupported` if there are more than operands can name.
    pub(super) fn number(&mut self, cell: Cell) -> Result<u16> {
        if let Some(number) = self.numbers.get(&cell) {
            return Ok(*number);
        }
        let number = self.push(cell.clone())?;
        self.numbers.insert(cell, number);
        Ok(number)
    }

    /// A constant that says where a table of sorted cells is.
    ///
    /// # Errors
    ///
    /// As of [`Constants::number`].
    pub(super) fn table(&mut self, cells: Vec<Cell>) -> Result<u16> {
        let number = self.push(Cell::Bits([0, cells.len() as u64]))?;
        self.ranges.push((number, self.tables.len()));
        self.tables.push(cells);
        Ok(number)
    }

    /// The cell of a number.
    pub(super) fn cell(&self, number: u16) -> Option<&Cell> {
        self.cells.get(usize::from(number))
    }

    /// Everything laid out.
    pub(super) fn image(&self) -> ConstantImage {
        let mut image = ConstantImage::default();
        self.cells.iter().for_each(|cell| image.push(cell));
        for (number, table) in &self.ranges {
            let first = image.cells.len() as u64;
            if let Some(cell) = image.cells.get_mut(usize::from(*number)) {
                cell[0] = first;
            }
            self.tables.get(*table).into_iter().flatten().for_each(|cell| image.push(cell));
        }
        image
    }

    fn push(&mut self, cell: Cell) -> Result<u16> {
        match u16::try_from(self.cells.len()) {
            // All bits set are no operand.
            Ok(number) if number < OPERAND_CONSTANT - 1 => {
                self.cells.push(cell);
                Ok(number)
            }
            _ => Err(Error::new(ErrorKind::NotSupported, "an expression has too many constants for the GPU")),
        }
    }
}

impl ConstantImage {
    fn push(&mut self, cell: &Cell) {
        match cell {
            Cell::Bits(bits) => self.cells.push(*bits),
            Cell::Text(text) => {
                self.texts.push(self.cells.len());
                self.cells.push([self.bytes.len() as u64, text.len() as u64]);
                self.bytes.extend_from_slice(text);
            }
        }
    }
}
