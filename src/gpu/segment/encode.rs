//! Decoded columns become segments.
//!
//! ```text
//! cells ─► base, width and lines of each block, counts of NULLs ─► the segments' bytes, known to the host ─► blocks, words, bits, text
//! ```

use std::{ops::Range, sync::Arc};

use pystachio_plan::Result;

use super::{
    abi::{
        EncodeSegments, SEGMENT_BLOCK_ROWS, SEGMENT_BLOCK_WORDS, SegmentBlock, SegmentForm, SegmentMeasure,
        SegmentSource,
    },
    dictionary::{NO_CODE, TableDictionary},
    form::{Segment, SegmentLayout},
};
use crate::{
    device::{AnyColumn, Buffer, CODE_BYTES, CellType, CodedColumn, Column, Kernel, Lifetime},
    operation::{ByteRange, MeasuredText, Queue},
};

/// Bytes of a line of words.
const LINE_BYTES: u64 = SEGMENT_BLOCK_WORDS * size_of::<u32>() as u64;
const WARP_THREADS: u64 = 32;

/// The text of a column, and for each part where it begins and how many bytes it has.
type EncodedText<'a> = (&'a Column, MeasuredText, Vec<(u64, u64)>);

/// What the kernels read of a column.
struct Encoded<'a> {
    /// What a segment's cells are.
    cell_type: CellType,
    /// Cells, codes or offsets.
    values: &'a Buffer,
    value_bytes: u64,
    validity: Option<&'a Buffer>,
    remap: Option<Buffer>,
    text: Option<EncodedText<'a>>,
    /// Whether values are measured.
    is_packed: bool,
}

/// The result of measuring the parts of a column.
struct Measured {
    /// Of all parts, without offsets.
    blocks: Buffer,
    lines: Buffer,
    /// The sum of the lines before each block.
    offsets: Buffer,
    /// The sum of the lines of each part.
    part_lines: Vec<u64>,
    measures: Vec<SegmentMeasure>,
}

impl Queue {
    /// Segments of parts of a column, which follow one another; waits. Codes become those of `dictionary`. `None` if it can't take
    /// all of their values.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn encode_segments(
        &self,
        column: &AnyColumn,
        parts: &[Range<usize>],
        dictionary: &Arc<TableDictionary>,
    ) -> Result<Option<Vec<Segment>>> {
        let row_count = parts.last().map_or(0, |part| part.end);
        let encoded = match column {
            AnyColumn::Codes(coded) => match self.encoded_codes(coded, dictionary)? {
                Some(encoded) => encoded,
                None => return Ok(None),
            },
            AnyColumn::Cells(cells) if cells.cell_type == CellType::String => {
                let measured = self.measure_text(cells, row_count)?;
                let rows: Vec<usize> = parts.iter().flat_map(|part| [part.start, part.end]).collect();
                let bounds = measured.bounds(self, &rows, row_count)?;
                let texts = bounds.chunks_exact(2).map(|bound| (bound[0], bound[1] - bound[0])).collect();
                return self.encode_text(cells, measured, texts, parts).map(Some);
            }
            AnyColumn::Cells(cells) => Encoded {
                cell_type: cells.cell_type,
                values: &cells.values,
                value_bytes: u64::from(cells.cell_type.bytes()),
                validity: cells.validity.as_ref(),
                remap: None,
                text: None,
                is_packed: is_integer(cells.cell_type),
            },
        };
        let dictionary = column.codes().map(|_| dictionary.clone());
        self.encode_parts(&encoded, parts, dictionary).map(Some)
    }

    fn encoded_codes<'a>(
        &self,
        coded: &'a CodedColumn,
        dictionary: &TableDictionary,
    ) -> Result<Option<Encoded<'a>>> {
        let entry_count = coded.entry_count.saturating_sub(1);
        let Some(mut codes) = dictionary.codes_of(self, &coded.entries, entry_count)? else {
            return Ok(None);
        };
        codes.push(NO_CODE);
        Ok(Some(Encoded {
            cell_type: CellType::String,
            values: &coded.codes,
            value_bytes: u64::from(CODE_BYTES),
            validity: None,
            remap: Some(self.upload(&codes)?),
            text: None,
            is_packed: true,
        }))
    }

    fn encode_text(
        &self,
        cells: &Column,
        measured: MeasuredText,
        texts: Vec<(u64, u64)>,
        parts: &[Range<usize>],
    ) -> Result<Vec<Segment>> {
        let offsets = measured.offsets.clone();
        let encoded = Encoded {
            cell_type: CellType::String,
            values: &offsets,
            value_bytes: size_of::<u64>() as u64,
            validity: cells.validity.as_ref(),
            remap: None,
            text: Some((cells, measured, texts)),
            is_packed: true,
        };
        self.encode_parts(&encoded, parts, None)
    }

    fn encode_parts(
        &self,
        encoded: &Encoded<'_>,
        parts: &[Range<usize>],
        dictionary: Option<Arc<TableDictionary>>,
    ) -> Result<Vec<Segment>> {
        let mut first_block = 0;
        let mut sources = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            let first = part.start as u64;
            let (origin, text_bytes) = encoded.text.as_ref().map_or((0, 0), |(.., texts)| texts[place]);
            sources.push(SegmentSource {
                cells: encoded.values.address() + first * encoded.value_bytes,
                validity: encoded.validity.map_or(0, |validity| validity.address() + first),
                row_count: part.len() as u64,
                first_block,
                origin: origin.cast_signed(),
                text_bytes,
                ..SegmentSource::default()
            });
            first_block += (part.len() as u64).div_ceil(SEGMENT_BLOCK_ROWS);
        }
        let block_count = first_block;
        let mut arguments = EncodeSegments {
            block_count,
            remap: encoded.remap.as_ref().map_or(0, Buffer::address),
            source_count: parts.len() as u32,
            cell_bytes: if encoded.is_packed { encoded.value_bytes as u32 } else { 0 },
            is_text: encoded.text.is_some().into(),
            ..EncodeSegments::default()
        };
        let measured = self.measure_segments(&sources, &mut arguments)?;
        let mut segments = Vec::with_capacity(parts.len());
        for (place, (part, source)) in parts.iter().zip(&mut sources).enumerate() {
            let measure = &measured.measures[place];
            let form = match encoded.is_packed && measure.beyond == 0 {
                true if encoded.text.is_some() => SegmentForm::Text,
                true => SegmentForm::Distances,
                false => SegmentForm::Cells,
            };
            let row_count = part.len() as u64;
            let value_bytes = match form {
                SegmentForm::Cells => row_count * encoded.value_bytes,
                SegmentForm::Distances | SegmentForm::Text => measured.part_lines[place] * LINE_BYTES,
            };
            let layout = SegmentLayout {
                form,
                cell_type: encoded.cell_type,
                row_count,
                has_nulls: measure.null_count > 0,
                value_bytes,
                text_bytes: source.text_bytes,
                bounds: (measure.least, measure.greatest),
            };
            let parts = layout.parts();
            let content = self.memory().allocate_for(Lifetime::Long, parts.end, self.stream())?;
            source.blocks = content.address();
            source.words = if form == SegmentForm::Cells { 0 } else { content.address() + parts.values };
            source.bits = if layout.has_nulls { content.address() + parts.validity } else { 0 };
            segments.push(Segment { layout, content, dictionary: dictionary.clone() });
        }
        let uploaded = self.upload(&sources)?;
        arguments.sources = uploaded.address();
        arguments.blocks = measured.blocks.address();
        arguments.lines = measured.lines.address();
        arguments.offsets = measured.offsets.address();
        arguments.measures = 0;
        let value_bytes: u64 = segments.iter().map(|segment| segment.layout.value_bytes).sum();
        let row_count: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.launch_moving(
            Kernel::PackSegments,
            warps_grid(Kernel::PackSegments, block_count),
            &arguments,
            || row_count * encoded.value_bytes + value_bytes,
        )?;
        self.copy_plain_parts(encoded, parts, &segments)?;
        self.memory().publish(segments.iter().map(Segment::buffer), self.stream())?;
        Ok(segments)
    }

    /// Copies cells and text, which are not packed.
    fn copy_plain_parts(
        &self,
        encoded: &Encoded<'_>,
        parts: &[Range<usize>],
        segments: &[Segment],
    ) -> Result<()> {
        let is_plain = |(_, segment): &(&Range<usize>, &Segment)| segment.layout.form == SegmentForm::Cells;
        let copied = parts.iter().zip(segments).filter(is_plain).map(|(part, segment)| ByteRange {
            source: encoded.values.address() + part.start as u64 * encoded.value_bytes,
            target: segment.content.address() + segment.layout.parts().values,
            bytes: segment.layout.value_bytes,
        });
        self.copy_ranges(&copied.collect::<Vec<_>>())?;
        if let Some((cells, measured, texts)) = &encoded.text {
            for ((part, segment), (first_byte, _)) in parts.iter().zip(segments).zip(texts) {
                let target = segment.content.address() + segment.layout.parts().text;
                self.copy_text_of(cells, measured, part.clone(), *first_byte, target)?;
            }
        }
        Ok(())
    }

    /// Measures sources; waits.
    fn measure_segments(
        &self,
        sources: &[SegmentSource],
        arguments: &mut EncodeSegments,
    ) -> Result<Measured> {
        let block_count = arguments.block_count;
        let uploaded = self.upload(sources)?;
        let blocks = self.allocate::<SegmentBlock>(block_count)?;
        let lines = self.allocate::<u32>(block_count)?;
        let nothing = SegmentMeasure { least: i64::MAX, greatest: i64::MIN, null_count: 0, beyond: 0 };
        let measures = self.upload(&vec![nothing; sources.len()])?;
        arguments.sources = uploaded.address();
        arguments.blocks = blocks.address();
        arguments.lines = lines.address();
        arguments.measures = measures.address();
        let row_count: u64 = sources.iter().map(|source| source.row_count).sum();
        let bytes = row_count * u64::from(arguments.cell_bytes);
        let grid = warps_grid(Kernel::MeasureSegments, block_count);
        self.launch_moving(Kernel::MeasureSegments, grid, arguments, || bytes)?;
        let (offsets, total) = self.offsets(&lines, 4, block_count as usize)?;
        // There are fewer than 2^32 rows.
        let firsts: Vec<u32> = sources.iter().skip(1).map(|source| source.first_block as u32).collect();
        let mut bounds = vec![0];
        bounds.extend(self.pick(&offsets, &firsts)?);
        bounds.push(total);
        let part_lines = bounds.windows(2).map(|bound| bound[1] - bound[0]).collect();
        let measures = self.download(&measures, sources.len())?;
        Ok(Measured { blocks, lines, offsets, part_lines, measures })
    }
}

/// Blocks of a kernel whose warps have a block of rows each.
pub(super) fn warps_grid(kernel: Kernel, block_count: u64) -> u32 {
    let warps = u64::from(kernel.block_threads()) / WARP_THREADS;
    u32::try_from(block_count.div_ceil(warps)).unwrap_or(u32::MAX)
}

fn is_integer(cell_type: CellType) -> bool {
    match cell_type {
        CellType::Bool
        | CellType::Int16
        | CellType::Int32
        | CellType::Int64
        | CellType::Int128
        | CellType::Int256 => true,
        CellType::Float32 | CellType::Float64 | CellType::String | CellType::Bytes16 | CellType::Interval => {
            false
        }
    }
}
