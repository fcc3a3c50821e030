//! What a query reserves.

use super::*;

const GIGABYTE: u64 = 1 << 30;
/// The arena of a large device.
const ARENA_BYTES: u64 = 128 * GIGABYTE;

fn need(held_bytes: u64, part_bytes: u64) -> QueryNeed {
    QueryNeed { holder_count: 3, held_bytes, part_bytes }
}

#[test]
fn a_query_reserves_what_its_plan_needs_between_a_floor_and_a_cap() {
    let parts = |held_bytes, part_bytes| MinimumParts::of(need(held_bytes, part_bytes), ARENA_BYTES);
    let expected = |held_bytes, working_bytes| MinimumParts { held_bytes, working_bytes };
    // A query of some kilobytes: so many of them fit at once.
    assert_eq!(parts(0, 0), expected(GIGABYTE, GIGABYTE));
    assert_eq!(ARENA_BYTES / parts(0, 0).bytes(), QUERIES_MAX);
    assert_eq!(parts(3 * GIGABYTE, GIGABYTE), expected(3 * GIGABYTE, 4 * GIGABYTE));
    // However much it needs, four have room.
    for large in [16 * GIGABYTE, ARENA_BYTES, u64::MAX] {
        assert_eq!(parts(large, large), MinimumParts::cap(ARENA_BYTES));
    }
    assert_eq!(MinimumParts::cap(ARENA_BYTES).bytes(), ARENA_BYTES / LARGE_QUERIES);
}

#[test]
fn in_a_small_arena_every_query_reserves_the_cap() {
    for arena_bytes in [0, 1000, 1 << 20, LARGE_QUERIES * CAP_PARTS * WORKING_BYTES_MIN] {
        let parts = MinimumParts::of(QueryNeed { holder_count: 4, ..QueryNeed::default() }, arena_bytes);
        assert_eq!(parts, MinimumParts::cap(arena_bytes), "{arena_bytes} bytes");
        assert_eq!(parts.reservation(4, arena_bytes).pool_bytes, parts.held_bytes % 4, "guarantees are all");
    }
}

#[test]
fn a_minimum_grows_with_rows_and_parts_and_has_room_for_guarantees_and_pool() {
    let mut last = 0;
    for power in 0..64 {
        let bytes = 1u64 << power;
        for part_bytes in [bytes / 2, bytes] {
            for holder_count in [0, 1, 7, 1000] {
                let need = QueryNeed { holder_count, ..need(bytes, part_bytes) };
                let parts = MinimumParts::of(need, ARENA_BYTES);
                let reservation = parts.reservation(holder_count, ARENA_BYTES);
                let guaranteed = parts.guaranteed_bytes(holder_count) * holder_count.max(1);
                assert_eq!(guaranteed + reservation.pool_bytes, parts.held_bytes);
                assert!(reservation.minimum_bytes <= reservation.growth_bytes);
            }
            let parts = MinimumParts::of(need(bytes, part_bytes), ARENA_BYTES);
            assert!(parts.bytes() >= last, "{bytes} bytes need less than fewer");
            last = parts.bytes();
        }
    }
}

#[test]
fn a_share_of_every_rank_has_room_for_the_need_and_for_the_exchanges() {
    for arena_bytes in [1 << 10, 1 << 30, ARENA_BYTES] {
        for number in 1..=SHARES_OF_CAP as u16 {
            let share = MemoryShare::new(number);
            assert_eq!(MinimumParts::of_share(share, arena_bytes).share(arena_bytes), share);
        }
        for power in 0..50 {
            let parts = MinimumParts::of(need(1 << power, 1 << (power / 2)), arena_bytes);
            let rounded = MinimumParts::of_share(parts.share(arena_bytes), arena_bytes);
            assert!(rounded.held_bytes >= parts.held_bytes && rounded.working_bytes >= parts.working_bytes);
        }
        // Shares of other ranks add up to no more than their memory if rank 0's do.
        let of_one = MinimumParts::of_share(MemoryShare::new(0), arena_bytes).bytes();
        assert!(of_one * QUERIES_MAX <= arena_bytes);
        assert_eq!(MinimumParts::of_share(MemoryShare::new(99), arena_bytes), MinimumParts::cap(arena_bytes));
    }
}

#[test]
fn operators_need_what_the_planner_expects_of_their_rows() {
    let platform = Arc::new(crate::device::EmulatedPlatform::new());
    let spill = pystachio_engine::spill::Spilling::to(std::path::Path::new("/nowhere/at/all"))
        .of_query(&pystachio_plan::SpillRequest::default());
    let store = SpillStore::new(crate::device::HostMemory::new(platform.clone(), 0), spill);
    let memory = QueryMemory::new(DeviceMemory::new(platform, ARENA_BYTES).open_account(), store);
    let needed = |rows: &[f64], columns: &[(ColumnId, DataType)]| {
        let mut memory = memory.clone();
        rows.iter().for_each(|rows| memory.add_holder(*rows, columns));
        assert_eq!(memory.need.holder_count, rows.len() as u64);
        memory.need.held_bytes
    };
    let columns = [(ColumnId(1), DataType::Int64), (ColumnId(2), DataType::Int32)];
    // Cells of 8 and 4 bytes with their validity, three times, and 40 bytes a row.
    assert_eq!(needed(&[1000.0], &columns), 1000 * (3 * 14 + 40));
    assert_eq!(needed(&[1000.0, 10.0], &columns), 1010 * (3 * 14 + 40));
    assert!(needed(&[1000.0], &columns[..1]) < needed(&[1000.0], &columns));
    assert_eq!(needed(&[0.0, -1.0, f64::NAN], &columns), 0, "no estimate");
    assert_eq!(needed(&[f64::INFINITY, 1e300], &columns), u64::MAX);
}
