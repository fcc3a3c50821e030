//! Columns of chunks whose descriptors stay on the device: nothing is uploaded, and only one kernel
//! for each encoding of values is launched.

use bytemuck::cast_slice;
use pystachio_plan::{Error, Result};

use super::{
    abi::{ColumnFlag as column_flags, DecodeCells, DecodePages, LAUNCH_RANGES},
    chunk_plan::ChunkPlan,
    column_memory::text_buffers,
    decoded_dictionary::{CodeEntries, DictionaryMember},
    page_batch::CellLists,
    page_descriptors::{PageDescriptors, RangeList, RangeTarget},
    row_groups::{ColumnRequest, PageCounts, PendingColumns},
};
use crate::{
    device::{AnyColumn, Buffer, CODE_BYTES, CodedColumn, Column},
    operation::{Queue, Status},
};

/// Columns all of whose chunks have their descriptors.
pub(super) struct ResidentColumns<'a>(Vec<ResidentColumn<'a>>);

/// A column.
struct ResidentColumn<'a> {
    /// One a chunk.
    plans: &'a [ChunkPlan<'a>],
    descriptors: Vec<&'a PageDescriptors>,
    /// The chunks' dictionaries, if rows become codes.
    members: Option<Vec<DictionaryMember<'a>>>,
}

impl<'a> ResidentColumns<'a> {
    /// The columns of some chunks decoded without a fault and without NULLs, if their descriptors
    /// exist or can be made.
    ///
    /// # Errors
    ///
    /// Faults of the device, and `Cancelled`.
    pub(super) fn of(
        queue: &Queue,
        requests: &[ColumnRequest<'_>],
        plans: &'a [Vec<ChunkPlan<'_>>],
    ) -> Result<Option<Self>> {
        let mut columns = Vec::with_capacity(plans.len());
        let mut is_whole = true;
        for (request, plans) in requests.iter().zip(plans) {
            let mut column = ResidentColumn { plans, descriptors: Vec::new(), members: None };
            for plan in plans {
                // The others' descriptors are made even so, for the next time.
                match PageDescriptors::of(queue, plan)? {
                    Some(descriptors) => column.descriptors.push(descriptors),
                    None => is_whole = false,
                }
            }
            if request.as_codes {
                column.members = plans.iter().map(member_of).collect();
                is_whole &= column.members.is_some();
            }
            columns.push(column);
        }
        Ok(is_whole.then_some(Self(columns)))
    }

    /// Enqueues the decoding of the wanted rows, into columns of so many rows.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn decode(self, queue: &Queue, row_count: usize) -> Result<PendingColumns> {
        let mut lists = CellLists::<RangeList>::default();
        let mut columns = Vec::with_capacity(self.0.len());
        let mut pages = PageCounts::default();
        for column in &self.0 {
            columns.push(column.add(queue, row_count, &mut lists)?);
            pages = column.plans.iter().map(ChunkPlan::page_counts).fold(pages, PageCounts::plus);
        }
        // Nothing is reported of pages that were decoded before without a fault.
        let status = queue.memory().allocate(size_of::<Status>() as u64, queue.stream())?;
        for (kernel, list) in lists.each().filter(|(_, list)| list.block_count > 0) {
            let mut arguments = DecodeCells {
                pages: DecodePages { status: status.address(), ..DecodePages::default() },
                range_count: list.ranges.len() as u32,
                ..DecodeCells::default()
            };
            let more = match list.ranges.len() > LAUNCH_RANGES {
                true => Some(queue.upload::<u8>(cast_slice(&list.ranges))?),
                false => None,
            };
            match &more {
                Some(more) => arguments.more_ranges = more.address(),
                None => arguments.ranges[..list.ranges.len()].copy_from_slice(&list.ranges),
            }
            queue.launch_moving(kernel, list.block_count, &arguments, || list.bytes)?;
        }
        Ok(PendingColumns::of_known_good(columns, pages))
    }
}

fn member_of<'a>(plan: &'a ChunkPlan<'_>) -> Option<DictionaryMember<'a>> {
    let decoded = plan.chunk.kept.dictionary.get().filter(|decoded| decoded.is_as(&plan.variant()))?;
    Some(DictionaryMember { chunk: plan.chunk, decoded, entry_count: plan.entry_count() })
}

impl ResidentColumn<'_> {
    /// Allocates the column's memory, and adds its rows to the kernels' work.
    fn add(&self, queue: &Queue, row_count: usize, lists: &mut CellLists<RangeList>) -> Result<AnyColumn> {
        let first = self.plans.first();
        let first = first.ok_or_else(|| Error::internal("a column without chunks is decoded"))?;
        let as_codes = self.members.is_some();
        let value_bytes = if as_codes { u64::from(CODE_BYTES) } else { first.cell_bytes() };
        let bytes = row_count as u64 * value_bytes;
        let values = queue.memory().allocate(bytes.max(1), queue.stream())?;
        let entries = match &self.members {
            Some(members) => Some(CodeEntries::of(queue, members, first.cell_bytes())?),
            None => None,
        };
        let null_code = entries.as_ref().map_or(0, |entries| entries.count as u32 - 1);
        let mut first_code = 0;
        for (plan, descriptors) in self.plans.iter().zip(&self.descriptors) {
            let target = RangeTarget {
                values: values.address(),
                value_bytes,
                codes: (first_code, null_code),
                flags: if as_codes { column_flags::CODES } else { 0 },
            };
            if descriptors.add_ranges(plan.rows, target, lists) != plan.rows.decoded_count() {
                return Err(Error::internal(
                    "descriptors of a column chunk lack rows that are to be decoded",
                ));
            }
            first_code += plan.entry_count() as u32;
        }
        let column = |values: Buffer, validity| Column {
            data_type: first.source.column.data_type.clone(),
            cell_type: first.conversion.cell_type,
            values,
            validity,
            strings: text_buffers(self.plans),
        };
        Ok(match entries {
            Some(CodeEntries { entries, flags, count }) => AnyColumn::Codes(CodedColumn {
                entries: column(entries, flags),
                entry_count: count,
                codes: values,
            }),
            None => AnyColumn::Cells(column(values, None)),
        })
    }
}
