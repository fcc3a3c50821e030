//! Views of all ranks.

use std::{collections::BTreeSet, time::Instant};

use pystachio_plan::{Activity, ActivityKind};

use super::*;

fn table() -> Table {
    Table::made(Shape { seed: 94, row_count: 3000, key_count: 400, repeated_percent: 3, null_percent: 5 })
}

#[test]
fn what_devices_did_and_caches_hold_is_shown_of_all_ranks() {
    let (table, all) = (table(), BTreeSet::from([0, 1, 2]));
    let fixture = RankedFixture::new(RankShape { cache_bytes: 8 << 20, ..RankShape::new(3) });
    let begun = Instant::now();
    fixture.run(plan(table.scan(0))).unwrap();
    let elapsed_us = begun.elapsed().as_micros() as u64;
    let timelines = fixture.runtime.block_on(fixture.engine.timelines());
    let [timeline] = &timelines[..] else { panic!("{} timelines", timelines.len()) };
    let activities = &timeline.activities;
    for kind in [ActivityKind::Read, ActivityKind::Kernel] {
        let of_kind = activities.iter().filter(|activity| activity.kind == kind);
        assert_eq!(of_kind.map(|activity| activity.rank).collect::<BTreeSet<_>>(), all, "{kind}");
    }
    assert!(activities.is_sorted_by_key(|activity| activity.started_us));
    assert!(activities.iter().all(|activity| activity.started_us + activity.elapsed_us <= elapsed_us + 1));
    let entries = fixture.runtime.block_on(fixture.engine.cache_entries());
    assert_eq!(entries.iter().map(|entry| entry.rank).collect::<BTreeSet<_>>(), all);
    assert!(entries.iter().all(|entry| entry.memory_bytes > 0 && entry.row_group_count > 0), "{entries:?}");
}

#[test]
fn what_moves_between_ranks_is_noted_on_both() {
    let table = table();
    let fixture = RankedFixture::new(RankShape::new(3));
    let metrics = fixture.run(plan(table.scan(0))).unwrap().metrics;
    let timelines = fixture.runtime.block_on(fixture.engine.timelines());
    let of_kind = |kind| {
        let activities = timelines.iter().flat_map(|timeline| &timeline.activities);
        activities.filter(|activity| activity.kind == kind).collect::<Vec<&Activity>>()
    };
    let (sent, received) = (of_kind(ActivityKind::Send), of_kind(ActivityKind::Receive));
    let ranks =
        |activities: &[&Activity]| activities.iter().map(|activity| activity.rank).collect::<BTreeSet<_>>();
    // All rows go to rank 0, and its own stay there.
    assert_eq!((ranks(&sent), ranks(&received)), (BTreeSet::from([1, 2]), BTreeSet::from([0])));
    let bytes = |activities: &[&Activity]| activities.iter().map(|activity| activity.bytes).sum::<u64>();
    let others = metrics.exchanges.iter().filter(|traffic| traffic.rank > 0);
    let sent_by_others: u64 = others.map(|traffic| traffic.sent_bytes).sum();
    assert!(sent_by_others > 0);
    assert_eq!((bytes(&sent), bytes(&received)), (sent_by_others, sent_by_others));
}

#[test]
fn of_what_rank_0_runs_alone_nothing_is_asked_of_others() {
    let table = table();
    let options = RankedOptions::of(RankPolicy::Fastest);
    let fixture = RankedFixture::new(RankShape { options, ..RankShape::new(2) });
    assert!(!is_distributed(&fixture.run(plan(table.scan(0))).unwrap()));
    let timelines = fixture.runtime.block_on(fixture.engine.timelines());
    let ranks = timelines.iter().flat_map(|timeline| &timeline.activities).map(|activity| activity.rank);
    assert_eq!(ranks.collect::<BTreeSet<_>>(), BTreeSet::from([0]));
}
