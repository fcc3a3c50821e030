//! The share of a rank's exchange memory that one exchange gets.
//!
//! ```text
//! region ┌ query ┬ query ┬ query ┬ query ┐    a query's share of the region is its share of the rank's memory
//!        └───────┴───┬───┴───────┴───────┘
//!   exchanges of it: │ out │ in │ out │ in │ … │     boxes, of some blocks each, or of less than a usual block where there are many
//! ```
//!
//! Invariants: concurrent queries have room for all their exchanges, however many these are. No
//! block is larger than a buffer on any rank: the largest block follows from values common to all
//! ranks, a buffer's size from this rank's own memory.

use crate::{
    exchange::{BLOCK_ALIGNMENT, ExchangeId, ExchangeSpec},
    execution::query::{LARGE_QUERIES, MemoryShare, SHARES_OF_CAP},
};

/// Exchanges of a query that each have room for blocks of the usual size, with one share of the
/// memory for each of them.
const EXCHANGES_OF_QUERY: u64 = SHARES_OF_CAP;
/// Buffers of an exchange: one for outgoing and one for incoming blocks.
const BUFFERS: u64 = 2;
/// Upper bound of the blocks that a buffer has room for: more would only wait longer for their
/// turn.
const BUFFER_BLOCKS_MAX: u64 = 4;

/// The largest block for which a region has room in the buffers of all queries that may run at
/// once, however many these are: a query has a share of the memory for each of its exchanges, up to
/// the cap.
pub(in crate::execution) fn block_bytes_of(region_bytes: u64) -> u64 {
    aligned(region_bytes / (LARGE_QUERIES * EXCHANGES_OF_QUERY * BUFFERS))
}

/// The buffers of each exchange of a query with so many, and with this share of the memory, on a
/// network whose blocks have at most `block_bytes`.
pub(super) fn spec_of(
    id: ExchangeId,
    (count, share): (u64, MemoryShare),
    (region_bytes, block_bytes): (u64, u64),
) -> ExchangeSpec {
    let count = count.max(1);
    let block_bytes_max = match count <= EXCHANGES_OF_QUERY {
        true => block_bytes,
        false => aligned(block_bytes * EXCHANGES_OF_QUERY / count),
    };
    let of_query = region_bytes / (LARGE_QUERIES * SHARES_OF_CAP) * u64::from(share.number());
    let buffer_bytes =
        aligned(of_query / (BUFFERS * count)).clamp(block_bytes_max, BUFFER_BLOCKS_MAX * block_bytes);
    ExchangeSpec { block_bytes_max: Some(block_bytes_max), ..ExchangeSpec::new(id, buffer_bytes) }
}

fn aligned(bytes: u64) -> u64 {
    (bytes / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT).max(BLOCK_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pystachio_engine::StopFlag;

    use super::*;
    use crate::{
        device::EmulatedPlatform,
        exchange::{
            ControlledCommunicator, ExchangeNetwork, ExchangeRegion, NetworkOptions, QueryId, Rank,
            SocketTransfers,
        },
    };

    const REGION_BYTES: u64 = 4 << 20;

    #[test]
    fn queries_at_once_have_room_for_all_their_exchanges() {
        let block_bytes_max = block_bytes_of(REGION_BYTES);
        // As many queries as have shares of the memory: one for each exchange.
        let mixed = [vec![40, 16], vec![5; 5], vec![1; 7]].concat();
        let many = [vec![1; 64], vec![8; 8], vec![3; 21], mixed];
        let few = [[4, 4, 4, 40], [1, 1, 1, 1], [16; 4], [15, 16, 2, 31], [61, 1, 1, 1], [1, 17, 23, 23]];
        for counts in few.into_iter().map(Vec::from).chain(many) {
            let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), REGION_BYTES).unwrap();
            let transfers = |data| SocketTransfers::new(Rank(0), data, &region);
            let communicator = ControlledCommunicator::connect(Rank(0), vec![None], transfers).unwrap();
            let options = NetworkOptions { block_bytes_max, ..NetworkOptions::default() };
            let network = ExchangeNetwork::start(Box::new(communicator), region, options).unwrap();
            let open = |(query, count): (u64, u64)| {
                // Of four queries any share.
                let share = if counts.len() > 4 { MemoryShare::new(count as u16) } else { MemoryShare::CAP };
                let spec = |id| spec_of(ExchangeId(id), (count, share), (REGION_BYTES, block_bytes_max));
                let specs: Vec<ExchangeSpec> = (0..count as u32).map(spec).collect();
                network
                    .open_query(QueryId(query), &specs, StopFlag::default())
                    .unwrap_or_else(|error| panic!("{counts:?}, query {query}: {error}"))
            };
            let mut queries: Vec<_> = (1..).zip(counts.iter().copied()).map(open).collect();
            queries.iter_mut().for_each(|query| query.finish().unwrap());
        }
    }

    #[test]
    fn ranks_with_other_memory_have_the_same_blocks_and_room_for_them() {
        let block_bytes = block_bytes_of(REGION_BYTES);
        for count in [1, 2, 16, 17, 40, 64] {
            let share = MemoryShare::new(count as u16);
            let [small, large] = [REGION_BYTES, 3 * REGION_BYTES]
                .map(|region_bytes| spec_of(ExchangeId(0), (count, share), (region_bytes, block_bytes)));
            assert_eq!(small.block_bytes_max, large.block_bytes_max, "{count} exchanges");
            assert!(small.block_bytes_max <= Some(small.inbox_bytes), "{count} exchanges: {small:?}");
        }
    }
}
