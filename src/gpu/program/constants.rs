//! The constants of a program: cells of 16 bytes or pairs of them, the texts that cells point to, and tables of
//! cells: sorted ones for `SEARCH`, and time zones.

use std::collections::HashMap;

use arrow::datatypes::i256;
use pystachio_plan::{Error, ErrorKind, Result};

use crate::abi::OPERAND_CONSTANT;

/// The bytes of texts begin at multiples of this.
const TEXT_ALIGNMENT: usize = 8;

/// A cell whose bits are known, or a text that gets its address when the program is uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    /// Words, least first: two of a cell, and two that only a pair of cells has.
    Bits([u64; 4]),
    /// Bytes of a text or a bytea.
    Text(Vec<u8>),
}

impl Cell {
    /// An integer; readable as one of 64, 128 or 256 bits if it fits them.
    pub(super) fn integer(value: impl Into<i256>) -> Self {
        let (low, high) = value.into().to_parts();
        Self::Bits([low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64])
    }

    /// A float.
    pub(super) fn float(value: f64) -> Self {
        Self::Bits([value.to_bits(), 0, 0, 0])
    }

    /// The integer that the bits are.
    pub(super) fn to_integer(&self) -> Option<i256> {
        match self {
            Self::Bits(words) => {
                let half = |low: u64, high: u64| (u128::from(high) << 64) | u128::from(low);
                let [lowest, second, third, highest] = *words;
                Some(i256::from_parts(half(lowest, second), half(third, highest) as i128))
            }
            Self::Text(_) => None,
        }
    }

    /// The text that it is.
    pub(super) fn to_text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Bits(_) => None,
        }
    }

    /// The second of two cells.
    fn upper_half(&self) -> [u64; 2] {
        match self {
            Self::Bits([.., third, highest]) => [*third, *highest],
            Self::Text(_) => [0; 2],
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

/// The constants in the form for the device.
#[derive(Debug, Default)]
pub(crate) struct ConstantImage {
    /// Cells, one or two a constant, and then those of tables; those of texts hold an offset into `bytes` as their
    /// address.
    pub(crate) cells: Vec<[u64; 2]>,
    /// Which cells are texts.
    pub(crate) texts: Vec<usize>,
    /// The texts' bytes.
    pub(crate) bytes: Vec<u8>,
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

    /// A constant that locates a table of cells, the same for equal tables.
    ///
    /// # Errors
    ///
    /// Errors of [`Constants::number`].
    pub(super) fn table(&mut self, cells: Vec<Cell>) -> Result<u16> {
        if let Some((number, _)) =
            self.ranges.iter().find(|(_, table)| self.tables.get(*table) == Some(&cells))
        {
            return Ok(*number);
        }
        let number = self.push(Cell::Bits([0, cells.len() as u64, 0, 0]))?;
        self.ranges.push((number, self.tables.len()));
        self.tables.push(cells);
        Ok(number)
    }

    /// The cell of a number.
    pub(super) fn cell(&self, number: u16) -> Option<&Cell> {
        self.cells.get(usize::from(number))
    }

    /// Everything laid out, with `cells_each` cells a constant.
    pub(super) fn image(&self, cells_each: usize) -> ConstantImage {
        let mut image = ConstantImage::default();
        for cell in &self.cells {
            image.push(cell);
            if cells_each == 2 {
                image.cells.push(cell.upper_half());
            }
        }
        for (number, table) in &self.ranges {
            let first = image.cells.len() as u64;
            if let Some(cell) = image.cells.get_mut(usize::from(*number) * cells_each) {
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
            Cell::Bits([low, high, ..]) => self.cells.push([*low, *high]),
            Cell::Text(text) => {
                // Kernels read the words of tables.
                self.bytes.resize(self.bytes.len().next_multiple_of(TEXT_ALIGNMENT), 0);
                self.texts.push(self.cells.len());
                self.cells.push([self.bytes.len() as u64, text.len() as u64]);
                self.bytes.extend_from_slice(text);
            }
        }
    }
}
