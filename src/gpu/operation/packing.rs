//! Integers as distances from a base, or from one another, in as many bits as the greatest distance
//! has: packed frames of reference.
//!
//! ```text
//! cells ──► least and greatest values, deltas ──► form, base, width ──► distances: 0 to 64 bits a row, one after another ──► cells
//!             one wait for all ranges
//! form: distances from the least value │ the first value of each 128 rows, deltas as distances from the least one
//!       │ the first row of each run, distances of their values from the least one
//! ```
//!
//! A range is some consecutive rows of a column: each is packed as its own values allow, in the
//! form that takes the fewest bytes.
//!
//! Invariants: unpacking returns the packed values, except for the cells of NULLs, which get some
//! value. NULLs do not count in measurements.
//!
//! Deliberately absent: when packing pays; where packed ranges lie.

use bytemuck::Zeroable;
use pystachio_plan::Result;

use super::{
    Queue,
    abi::{
        CellRange as CellRangeView, CollectRuns, MINIBLOCK_ROWS, MeasureRanges, PACK_TILE_ROWS,
        PACKED_RANGES_MAX, PackCells, PackedForm as PackedFormCode, PackedRange, RangeBounds, RunRange,
        UnpackCells, UnpackedRange,
    },
};
use crate::device::{CellType, Kernel};

impl RangeBounds {
    /// Of no value.
    const NONE: Self = Self {
        least: i64::MAX,
        greatest: i64::MIN,
        least_delta: i64::MAX,
        greatest_delta: i64::MIN,
        beyond: 0,
        run_count: 0,
    };
}

/// Bits of the words that packed ranges are made of.
const WORD_BITS: u64 = 32;
/// Bytes of the value with which a miniblock begins.
const FIRST_BYTES: u64 = 8;
/// A form is used if it has at most this part of a simpler one's bytes, or of the cells': a smaller
/// saving is not worth its passes.
const WORTH: (u64, u64) = (7, 8);

/// The packed form of a range's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    form: PackedForm,
    base: i64,
    width: u8,
}

/// The form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedForm {
    /// Distances from a base.
    Distances,
    /// Distances of deltas from a base, behind the first values of miniblocks.
    Deltas,
    /// Distances of the values of so many runs from a base, behind the numbers of the rows that they start with.
    Runs(u32),
}

/// Consecutive rows of a column.
#[derive(Clone, Copy, Debug)]
pub struct CellRange {
    /// Where the first one's cell is.
    pub cells: u64,
    /// Where the first one's validity is, if a row may be NULL.
    pub validity: Option<u64>,
    /// Rows.
    pub row_count: u64,
    /// The representation of the cells.
    pub cell_type: CellType,
}

/// A range, its packed form, and its target.
#[derive(Clone, Copy, Debug)]
pub struct PackRange {
    /// The cells.
    pub source: CellRange,
    /// The result of measuring them.
    pub packing: Packing,
    /// A multiple of 8.
    pub target: u64,
}

/// Rows to unpack from a packed range.
#[derive(Clone, Copy, Debug)]
pub struct UnpackRange {
    /// The start of the range, a multiple of 8; a range without bytes is not read.
    pub source: u64,
    /// Its packed form.
    pub packing: Packing,
    /// Where the cells begin, at a multiple of theirs, or of 16 for wider ones.
    pub target: u64,
    /// Rows.
    pub row_count: u64,
    /// The representation of the cells.
    pub cell_type: CellType,
}

impl Packing {
    /// A packing of distances of so many bits from a base. `None` if it is impossible for values of
    /// a type: a base outside of the type, or more bits than it has. Deltas may be any integers.
    pub fn new(form: PackedForm, base: i64, width_bits: u64, cell_type: CellType) -> Option<Self> {
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
        let is_packing = match form {
            PackedForm::Distances => width_bits <= bits_max && (least..=greatest).contains(&base),
            PackedForm::Runs(count) => {
                count > 0 && width_bits <= bits_max && (least..=greatest).contains(&base)
            }
            PackedForm::Deltas => width_bits <= u64::from(u64::BITS),
        };
        is_packing.then_some(Self { form, base, width: width_bits as u8 })
    }

    /// The best one of so many values within bounds; `None` if it does not pay.
    fn of(bounds: &RangeBounds, range: &CellRange) -> Option<Self> {
        let RangeBounds { least, greatest, least_delta, greatest_delta, beyond, run_count } = *bounds;
        if beyond != 0 {
            return None;
        }
        let CellRange { row_count, cell_type, .. } = *range;
        let frame = |form, (least, greatest): (i64, i64)| match least > greatest {
            true => Self::new(form, 0, 0, cell_type),
            // A `u64` holds differences that exceed an `i64`.
            false => Self::new(form, least, bits_of(greatest.wrapping_sub(least) as u64), cell_type),
        };
        let forms = [
            frame(PackedForm::Distances, (least, greatest)),
            frame(PackedForm::Deltas, (least_delta, greatest_delta)),
            frame(PackedForm::Runs(run_count as u32), (least, greatest)),
        ];
        let mut best = (None, row_count * u64::from(cell_type.bytes()));
        for packing in forms.into_iter().flatten() {
            let bytes = packing.bytes(row_count);
            if is_worth(bytes, best.1) {
                best = (Some(packing), bytes);
            }
        }
        best.0
    }

    /// Whether values of a type can be packed.
    pub fn has_type(cell_type: CellType) -> bool {
        Self::new(PackedForm::Distances, 0, 0, cell_type).is_some()
    }

    /// The form of the values.
    pub fn form(self) -> PackedForm {
        self.form
    }

    /// The base of distances.
    pub fn base(self) -> i64 {
        self.base
    }

    /// Bits of a distance.
    pub fn width_bits(self) -> u64 {
        u64::from(self.width)
    }

    /// Bytes of a range of fewer than 2^32 rows.
    pub fn bytes(self, row_count: u64) -> u64 {
        let count = match self.form {
            PackedForm::Distances | PackedForm::Deltas => row_count,
            PackedForm::Runs(count) => count.into(),
        };
        self.bits_offset(row_count) + word_bytes(count, self.width)
    }

    /// The offset of distances in a range.
    fn bits_offset(self, row_count: u64) -> u64 {
        match self.form {
            PackedForm::Distances => 0,
            PackedForm::Deltas => row_count.div_ceil(MINIBLOCK_ROWS) * FIRST_BYTES,
            PackedForm::Runs(count) => word_bytes(count.into(), start_width(row_count)),
        }
    }

    /// The form in kernels' numbers.
    fn form_code(self) -> u32 {
        let code = match self.form {
            PackedForm::Distances => PackedFormCode::Distances,
            PackedForm::Deltas => PackedFormCode::Deltas,
            PackedForm::Runs(_) => PackedFormCode::Runs,
        };
        code as u32
    }

    /// Its runs, if any.
    fn run_count(self) -> u32 {
        match self.form {
            PackedForm::Distances | PackedForm::Deltas => 0,
            PackedForm::Runs(count) => count,
        }
    }
}

/// Bits of the number of a row, of which there are fewer than 2^32.
fn start_width(row_count: u64) -> u8 {
    bits_of(row_count.saturating_sub(1)) as u8
}

/// Bytes of the words for so many numbers of so many bits.
fn word_bytes(count: u64, width: u8) -> u64 {
    (count * u64::from(width)).div_ceil(WORD_BITS) * (WORD_BITS / 8)
}

/// Bits of the numbers up to this one.
fn bits_of(greatest: u64) -> u64 {
    u64::from(u64::BITS - greatest.leading_zeros())
}

/// Whether so many bytes instead of others are worth a pass over them.
pub fn is_worth(packed_bytes: u64, bytes: u64) -> bool {
    packed_bytes * WORTH.1 <= bytes * WORTH.0
}

impl PackRange {
    /// The packing of a range's collected runs: their values, and the numbers of the rows that they
    /// start with.
    fn runs_as_rows(&self, (values, starts): (u64, u64)) -> [Self; 2] {
        let Self { source, packing, target } = *self;
        let row_count = packing.run_count().into();
        let of_runs = |cells| CellRange { cells, validity: None, row_count, cell_type: CellType::Int64 };
        let form = PackedForm::Distances;
        let start = Packing { form, base: 0, width: start_width(source.row_count) };
        let bits = target + packing.bits_offset(source.row_count);
        [
            Self { source: of_runs(starts), packing: start, target },
            Self { source: of_runs(values), packing: Packing { form, ..packing }, target: bits },
        ]
    }
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
    /// The best packing of each range; waits. `None` if it does not pay, for ranges of other types
    /// than bool and integers, and for those without rows.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
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

    /// Packs measured ranges: each has [`Packing::bytes`] of its rows, none of them from a NULL's
    /// cell.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn pack(&self, ranges: &[PackRange]) -> Result<()> {
        let (runs, others): (Vec<PackRange>, Vec<PackRange>) =
            ranges.iter().partition(|range| range.packing.run_count() > 0);
        self.pack_rows(&others)?;
        for runs in runs.chunks(PACKED_RANGES_MAX) {
            self.pack_runs(runs)?;
        }
        Ok(())
    }

    /// Packs ranges in which each row has bits.
    fn pack_rows(&self, ranges: &[PackRange]) -> Result<()> {
        let has_bytes = |range: &&PackRange| range.packing.bytes(range.source.row_count) > 0;
        let ranges: Vec<&PackRange> = ranges.iter().filter(has_bytes).collect();
        for ranges in ranges.chunks(PACKED_RANGES_MAX) {
            let mut arguments = PackCells { range_count: ranges.len() as u32, ..PackCells::zeroed() };
            let mut tiles = 0;
            for (packed, PackRange { source, packing, target }) in arguments.ranges.iter_mut().zip(ranges) {
                *packed = PackedRange {
                    source: source.view(tiles),
                    bits: target + packing.bits_offset(source.row_count),
                    firsts: *target,
                    base: packing.base,
                    width: packing.width.into(),
                    form: packing.form_code(),
                };
                tiles += source.tiles();
            }
            self.launch(Kernel::PackCells, tiles, &arguments)?;
        }
        Ok(())
    }

    /// Packs ranges as runs: collects the runs, and then packs them as rows of a value and of a
    /// number each.
    fn pack_runs(&self, ranges: &[PackRange]) -> Result<()> {
        let run_count: u64 = ranges.iter().map(|range| u64::from(range.packing.run_count())).sum();
        let tiles: u64 = ranges.iter().map(|range| range.source.tiles()).sum();
        let collected = self.allocate::<u64>(2 * run_count)?;
        let counts = self.allocate::<u32>(tiles)?;
        let (mut first_run, mut first_tile, mut packed) = (0, 0, Vec::with_capacity(2 * ranges.len()));
        let mut arguments = CollectRuns {
            counts: counts.address(),
            range_count: ranges.len() as u32,
            ..CollectRuns::zeroed()
        };
        for (runs, range) in arguments.ranges.iter_mut().zip(ranges) {
            let PackRange { source, packing, .. } = range;
            let [values, starts] =
                [first_run, run_count + first_run].map(|place| collected.address() + 8 * place);
            *runs = RunRange { source: source.view(first_tile), values, starts, base: packing.base };
            packed.extend(range.runs_as_rows((values, starts)));
            first_run += u64::from(packing.run_count());
            first_tile += source.tiles();
        }
        self.launch(Kernel::CountRuns, tiles, &arguments)?;
        let offsets = self.offsets_alone(&counts, 4, tiles as usize)?;
        arguments.offsets = offsets.address();
        self.launch(Kernel::CollectRuns, tiles, &arguments)?;
        self.pack_rows(&packed)
    }

    /// Unpacks ranges into cells. A value that a cell cannot hold wraps.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn unpack(&self, ranges: &[UnpackRange]) -> Result<()> {
        let ranges: Vec<&UnpackRange> = ranges.iter().filter(|range| range.row_count > 0).collect();
        for ranges in ranges.chunks(PACKED_RANGES_MAX) {
            let mut arguments = UnpackCells { range_count: ranges.len() as u32, ..UnpackCells::zeroed() };
            let mut tiles = 0;
            for (unpacked, range) in arguments.ranges.iter_mut().zip(ranges) {
                let UnpackRange { source, packing, target, row_count, cell_type } = **range;
                *unpacked = UnpackedRange {
                    bits: source + packing.bits_offset(row_count),
                    marks: source,
                    cells: target,
                    row_count,
                    first_tile: tiles,
                    base: packing.base,
                    width: packing.width.into(),
                    cell_bytes: cell_type.bytes(),
                    form: packing.form_code() as u16,
                    start_width: start_width(row_count).into(),
                    run_count: packing.run_count(),
                };
                tiles += row_count.div_ceil(PACK_TILE_ROWS);
            }
            self.launch(Kernel::UnpackCells, tiles, &arguments)?;
        }
        Ok(())
    }
}
