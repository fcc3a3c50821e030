//! Column chunks that stay between queries: on the device, on the host, and never of a file that has changed.

use pystachio_plan::MemorySpace;

use super::*;

fn table(seed: u64) -> Table {
    Table::made(Shape { seed, row_count: 3000, key_count: 400, repeated_percent: 0, null_percent: 5 })
}

fn all_rows(table: &Table) -> Vec<Vec<String>> {
    sorted(table.rows.iter().map(shown_row).collect())
}

/// Bytes read, and bytes that came from the device's cache and from the host's.
fn sources(answer: &Answer) -> [u64; 3] {
    ["bytes_read", "bytes_cached", "bytes_pinned"].map(|name| counter(answer, name))
}

/// An engine whose device keeps little of a table, and whose host keeps the rest.
fn fixture() -> Fixture {
    Fixture::caching(Arc::new(EmulatedPlatform::new()), PLENTY_BYTES, (20_000, 8 << 20))
}

#[test]
fn a_table_larger_than_the_device_is_read_once() {
    let (table, fixture) = (table(91), fixture());
    let scan = || plan(table.scan(0));
    let first = fixture.run(scan()).unwrap();
    let [read, ..] = sources(&first);
    assert!(read > 40_000, "the table is too small: {read}");
    // Pages, of which the second query makes segments; these from then on.
    for _ in 0..3 {
        let again = fixture.run(scan()).unwrap();
        let [read, cached, pinned] = sources(&again);
        assert!(read == 0 && cached > 0 && pinned > 10_000, "{read} {cached} {pinned}");
        assert_eq!(sorted(again.rows), all_rows(&table));
        assert_eq!((again.metrics.bytes_read, again.metrics.cache_misses), (0, 0));
    }
    let entries = fixture.engine.cache_entries();
    for space in [MemorySpace::Device, MemorySpace::Pinned] {
        let of_space: Vec<_> = entries.iter().filter(|entry| entry.space == space).collect();
        assert!(!of_space.is_empty() && of_space.iter().all(|entry| entry.hits > 0), "{space}: {of_space:?}");
    }
}

#[test]
fn a_file_that_has_changed_is_read_again() {
    let (mut table, fixture) = (table(92), fixture());
    fixture.run(plan(table.scan(0))).unwrap();
    let changed = self::table(93);
    std::fs::rename(&changed.path, &table.path).unwrap();
    table.rows.clone_from(&changed.rows);
    let answer = fixture.run(plan(table.scan(0))).unwrap();
    assert_eq!(sorted(answer.rows.clone()), all_rows(&changed));
    let [read, cached, pinned] = sources(&answer);
    assert!(read > 0 && cached == 0 && pinned == 0, "{read} {cached} {pinned}");
}
