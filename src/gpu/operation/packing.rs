//! Integers as distances from a base, in as many bits as the greatest distance has: frames of reference, packed.
//!
//! ```text
//! cells ──► least and greatest ──► base, width ──► distances: 0 to 64 bits a row, one after another ──► cells
//!             one wait for all ranges
//! ```
//!
//! A range is some rows of a column that follow one another: each is packed as its own values allow.
//!
//! Invariants: what is packed and unpacked again is the same, but for the cells of NULLs, which have some value. NULLs have no part in
//! what is measured.
//!
//! Deliberately absent: when that pays; where packed ranges lie.

use bytemuck::Zeroable;
use pystachio_plan::Result;

use super::{
    Queue,
    abi::{
        CellRangeView, MeasureRanges, PACK_TILE_ROWS, PACKED_RANGES_MAX, PackCells, PackedRange, RangeBounds,
        UnpackCells, UnpackedRange,
    },
};
use crate::device::{CellType, Kernel};

/// Bits of the words that packed ranges are made of.
const WORD_BITS: u64 = 32;
/// A range is packed so that it takes at most so much of what it takes otherwise: a seventh less is not worth a pass over it.
const WORTH: (u64, u64) = (7, 8);

/// How the values of a range lie when they are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    base: i64,
    width: u8,
}

/// Rows of a column that follow one another.
#[derive(Clone, Copy, Debug)]
pub struct CellRange {
    /// Where the first one's cell is.
    pub cells: u64,
    /// Where the first one's validity is, if a row may be NULL.
    pub validity: Option<u64>,
    /// Rows.
    pub row_count: u64,
    /// What the cells are.
    pub cell_type: CellType,
}

/// A range, how it is packed, and where.
#[derive(Clone, Copy, Debug)]
pub struct PackRange {
    /// The cells.
    pub source: CellRange,
    /// As it was measured of them.
    pub packing: Packing,
    /// A multiple of 8.
    pub target: u64,
}

/// Rows whose cells are made of a packed range.
#[derive(Clone, Copy, Debug)]
pub struct UnpackRange {
    /// Where the range begins, a multiple of 8; nothing is read of one without bytes.
    pub source: u64,
    /// How it is packed.
    pub packing: Packing,
    /// Where the cells begin, at a multiple of theirs, or of 16 for wider ones.
    pub target: u64,
    /// Rows.
    pub row_count: u64,
    /// What the cells are.
    pub cell_type: CellType,
}

impl Packing {
    /// Values as distances of so many bits from a base. `None` if there is no such packing of values of a type: of a base that is none of
    /// them, or of more bits than they have.
    pub fn new(base: i64, width_bits: u64, cell_type: CellType) -> Option<Self> {
        let (least, greatest, bits_max) = match cell_type {
            CellType::Bool => (0, 1, 1),
            CellType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX), 16),
            CellType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX), 32),
            CellType::Int64 | CellType::Int128 | CellType::Int256 => (i64::MIN, i64::MAX, 64),
            CellType::Float32
            | CellType::Float64
            | CellType::String
            | CellType::Bytes16
            | CellType::Interval => return None,
        };
        let is_packing = width_bits <= bits_max && (least..=greatest).contains(&base);
        is_packing.then_some(Self { base, width: width_bits as u8 })
    }

    /// The best one of so many values that lie within bounds; `None` if it is not worth it.
    fn of(bounds: &RangeBounds, range: &CellRange) -> Option<Self> {
        let RangeBounds { least, greatest, beyond } = *bounds;
        if beyond != 0 {
            return None;
        }
        let packing = match least > greatest {
            true => Self::new(0, 0, range.cell_type)?,
            // What an `i64` has no room for a `u64` has.
            false => Self::new(least, bits_of(greatest.wrapping_sub(least) as u64), range.cell_type)?,
        };
        let bytes = range.row_count * u64::from(range.cell_type.bytes());
        is_worth(packing.bytes(range.row_count), bytes).then_some(packing)
    }

    /// Whether values of a type can be packed.
    pub fn has_type(cell_type: CellType) -> bool {
        Self::new(0, 0, cell_type).is_some()
    }

    /// What distances are from.
    pub fn base(self) -> i64 {
        self.base
    }

    /// Bits of a distance.
    pub fn width_bits(self) -> u64 {
        u64::from(self.width)
    }

    /// Bytes of a range of fewer than 2^32 rows.
    pub fn bytes(self, row_count: u64) -> u64 {
        word_bytes(row_count, self.width)
    }
}

/// Bytes of the words that so many numbers of so many bits take.
fn word_bytes(count: u64, width: u8) -> u64 {
    (count * u64::from(width)).div_ceil(WORD_BITS) * (WORD_BITS / 8)
}

/// Bits of the numbers up to this one.
fn bits_of(greatest: u64) -> u64 {
    u64::from(u64::BITS - greatest.leading_zeros())
}

fn is_worth(packed_bytes: u64, bytes: u64) -> bool {
    packed_bytes * WORTH.1 <= bytes * WORTH.0
}

impl CellRange {
    fn tiles(&self) -> u64 {
        self.row_count.div_ceil(PACK_TILE_ROWS)
    }

    fn view(&self, first_tile: u64) -> CellRangeView {
        CellRangeView {
            cells: self.cells,
            validity: self.validity.unwrap_or(0),
            row_count: self.row_count,
            first_tile,
            cell_bytes: self.cell_type.bytes(),
            reserved: 0,
        }
    }
}

impl Queue {
    /// How each range is packed best; waits. `None` where that is not worth it, for ranges of other types than bool and integers, and for
    /// those without rows.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn measure_packings(&self, ranges: &[CellRange]) -> Result<Vec<Option<Packing>>> {
        let is_measured = |range: &CellRange| Packing::has_type(range.cell_type) && range.row_count > 0;
        let measured: Vec<&CellRange> = ranges.iter().filter(|range| is_measured(range)).collect();
        if measured.is_empty() {
            return Ok(vec![None; ranges.len()]);
        }
        let bounds = self.upload(&vec![RangeBounds::NONE; measured.len()])?;
        for (turn, ranges) in (0..).zip(measured.chunks(PACKED_RANGES_MAX)) {
            let first = turn * (PACKED_RANGES_MAX * size_of::<RangeBounds>()) as u64;
            let mut arguments = MeasureRanges {
                bounds: bounds.address() + first,
                range_count: ranges.len() as u32,
                ..MeasureRanges::zeroed()
            };
            let mut tiles = 0;
            for (view, range) in arguments.ranges.iter_mut().zip(ranges) {
                *view = range.view(tiles);
                tiles += range.tiles();
            }
            self.launch(Kernel::MeasureRanges, tiles, &arguments)?;
        }
        let bounds: Vec<RangeBounds> = self.download(&bounds, measured.len())?;
        let mut bounds = bounds.iter();
        let packing = |range: &CellRange| match is_measured(range) {
            true => bounds.next().and_then(|bounds| Packing::of(bounds, range)),
            false => None,
        };
        Ok(ranges.iter().map(packing).collect())
    }

    /// Packs ranges as they were measured: each has [`Packing::bytes`] of its rows, none of them of a NULL's cell.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn pack(&self, ranges: &[PackRange]) -> Result<()> {
        let has_bits = |range: &&PackRange| range.packing.width > 0 && range.source.row_count > 0;
        let ranges: Vec<&PackRange> = ranges.iter().filter(has_bits).collect();
        for ranges in ranges.chunks(PACKED_RANGES_MAX) {
            let mut arguments = PackCells { range_count: ranges.len() as u32, ..PackCells::zeroed() };
            let mut tiles = 0;
            for (packed, PackRange { source, packing, target }) in arguments.ranges.iter_mut().zip(ranges) {
                *packed = PackedRange {
                    source: source.view(tiles),
                    bits: *target,
                    base: packing.base,
                    width: packing.width.into(),
                    reserved: 0,
                };
                tiles += source.tiles();
            }
            self.launch(Kernel::PackCells, tiles, &arguments)?;
        }
        Ok(())
    }

    /// Makes cells of packed ranges. A value that a cell cannot hold wraps.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn unpack(&self, ranges: &[UnpackRange]) -> Result<()> {
        let ranges: Vec<&UnpackRange> = ranges.iter().filter(|range| range.row_count > 0).collect();
        for ranges in ranges.chunks(PACKED_RANGES_MAX) {
            let mut arguments = UnpackCells { range_count: ranges.len() as u32, ..UnpackCells::zeroed() };
            let mut tiles = 0;
            for (unpacked, range) in arguments.ranges.iter_mut().zip(ranges) {
                let UnpackRange { source, packing, target, row_count, cell_type } = **range;
                *unpacked = UnpackedRange {
                    bits: source,
                    cells: target,
                    row_count,
                    first_tile: tiles,
                    base: packing.base,
                    width: packing.width.into(),
                    cell_bytes: cell_type.bytes(),
                };
                tiles += row_count.div_ceil(PACK_TILE_ROWS);
            }
            self.launch(Kernel::UnpackCells, tiles, &arguments)?;
        }
        Ok(())
    }
}
