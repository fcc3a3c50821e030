//! What kernels are given, laid out as in kernels/abi. Sizes are asserted on both sides.

use bytemuck::{Pod, Zeroable};

/// A column as a kernel reads or writes it: `ColumnView` of kernels/abi/column.h.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ColumnView {
    /// Address of the first cell.
    pub values: u64,
    /// Address of the first validity byte, or 0 if no row is NULL.
    pub validity: u64,
    /// [`super::column::CellType`] as a number.
    pub cell_type: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}
const _: () = assert!(size_of::<ColumnView>() == 24);

/// Text or bytes that lie elsewhere: `StringCell` of kernels/abi/column.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StringCell {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<StringCell>() == 16);

/// What went wrong in a kernel: `Status` of kernels/abi/status.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Status {
    /// `ErrorCode`; 0 if nothing.
    pub code: u32,
    /// What the code says it is.
    pub detail: u32,
}

/// Arguments of `fill_cells`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct FillCells {
    /// First cell written.
    pub target: u64,
    /// Rows written.
    pub row_count: u64,
    /// The cell, little end first.
    pub cell: [u64; 2],
    /// Its bytes.
    pub cell_bytes: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FillCells>() == 40);
