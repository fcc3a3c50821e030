//! Text laid one after another.

use std::ops::Range;

use pystachio_plan::Result;

use super::{
    Kernel, KernelDevice,
    abi::{CopyStrings, MoveStrings},
};
use crate::{
    device::{Buffer, Column, StringCell},
    operation::{MeasuredText, PackedText, TextOperations},
};

impl TextOperations for KernelDevice {
    fn measure_text(&self, column: &Column, row_count: usize) -> Result<MeasuredText> {
        let lengths = self.allocate::<u32>(row_count as u64)?;
        let arguments = CopyStrings {
            source: column.view(),
            lengths: lengths.address(),
            row_count: row_count as u64,
            ..CopyStrings::default()
        };
        self.launch_strided(Kernel::MeasureStrings, row_count as u64, &arguments)?;
        let (offsets, total_bytes) = self.offsets(&lengths, 4, row_count)?;
        Ok(MeasuredText { lengths, offsets, total_bytes })
    }

    fn copy_text(
        &self,
        column: &Column,
        row_count: usize,
        measured: MeasuredText,
        cells: Option<&Buffer>,
    ) -> Result<PackedText> {
        let MeasuredText { lengths, offsets, total_bytes } = measured;
        let bytes = self.allocate::<u8>(total_bytes)?;
        let arguments = CopyStrings {
            source: column.view(),
            lengths: lengths.address(),
            offsets: offsets.address(),
            bytes: bytes.address(),
            cells: cells.map_or(0, Buffer::address),
            row_count: row_count as u64,
        };
        // A warp a string.
        self.launch_strided(Kernel::CopyStrings, row_count as u64 * 32, &arguments)?;
        Ok(PackedText { bytes, offsets, total_bytes })
    }

    fn move_strings(&self, cells: &Buffer, rows: Range<usize>, from: u64, to: u64) -> Result<()> {
        let row_count = rows.len() as u64;
        let first = cells.address() + (rows.start * size_of::<StringCell>()) as u64;
        let arguments = MoveStrings { cells: first, row_count, distance: to.wrapping_sub(from) };
        self.launch_strided(Kernel::MoveStrings, row_count, &arguments)
    }
}
