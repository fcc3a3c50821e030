//! A device at the level of relational operators.

use std::ops::Deref;

use pystachio_plan::Result;

use super::{
    DecodeOperations, FaultReport, GroupOperations, JoinOperations, KeyFilterOperations, Lane,
    PartitionOperations, ProgramOperations, RowOperations, SlotOperations, SortOperations, TextOperations,
};

/// What operators need of a device: operations on columns in its memory, enqueued on one [`Lane`].
///
/// Everything above is one code for every device: it names no kernel, no grid and no block. A device of another kind
/// implements this and [`crate::device::Platform`], its memory. [`crate::kernel::KernelDevice`] does so for all
/// that run kernels.
///
/// # Shapes
///
/// Columns and flags that an operation is given have at least as many rows as it is told; what it gives has as many as
/// its documentation says. A flag is a byte, 0 or 1.
///
/// # Units
///
/// Rows are numbered from 0 with 32 bits, so a chunk has fewer than 2^32 - 1 of them.
///
/// # Ordering
///
/// Operations of one lane happen in the order of their calls. A call returns when its work is enqueued, unless its
/// documentation says that it waits. A device whose operations have happened when they return waits for nothing.
///
/// # Errors
///
/// Every operation: `OutOfMemory` where memory for results or work is refused, and `Device` for a fault of the device,
/// which is then lost to this process. What else there is, operations say themselves.
pub trait Device:
    DecodeOperations
    + ProgramOperations
    + RowOperations
    + TextOperations
    + JoinOperations
    + KeyFilterOperations
    + GroupOperations
    + SlotOperations
    + SortOperations
    + PartitionOperations
    + Send
    + Sync
    + 'static
{
    /// Where the operations are enqueued.
    fn lane(&self) -> &Lane;

    /// Looks at what operations have found wrong with values so far and have not said yet, without waiting. Only on a
    /// lane that defers faults there is any.
    fn report_faults(&self) -> Result<FaultReport>;
}

/// What is not an operation but memory is the lane's.
impl Deref for dyn Device {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane()
    }
}
