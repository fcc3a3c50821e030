//! Exchanges of two levels: where they are taken, and what is shown of them.

use std::sync::Arc;

use super::{
    super::{DistributeRequest, ExchangeCosts, RankPolicy, RunTimeChoices, ScanFigures, distribute},
    ascending, call, column, join_on, named, scan,
};
use crate::{
    Aggregate, AggregatePhase, DataType, JoinKind, Operator, Plan, PlanFacts, Relation, TwoLevelExchange,
    plan_lines,
};

const LARGE: ScanFigures =
    ScanFigures { row_count: 600_000_000, encoded_bytes: 20 << 30, ranges: Vec::new() };

fn on_hosts(hosts: u32, ranks: u32) -> ExchangeCosts {
    ExchangeCosts { hosts, ranks, ..ExchangeCosts::default() }
}

/// The exchanges of a plan, from its root on, and what it is expected to take.
fn exchanges(root: &Arc<Relation>, costs: &ExchangeCosts, two_level: TwoLevelExchange) -> (Vec<String>, f64) {
    let outputs = root.columns().into_iter().map(|(id, _)| id).collect();
    let plan = Plan { root: root.clone(), outputs };
    let scans = vec![LARGE; root.scans().len()];
    let choices = RunTimeChoices { broadcast: true, heavy_keys: true };
    let request = DistributeRequest { costs, scans: &scans, policy: RankPolicy::All, choices, two_level };
    let distributed = distribute(&plan, request).unwrap();
    let facts = PlanFacts { exchanges: &distributed.exchanges, ..PlanFacts::default() };
    let lines = plan_lines(&distributed.plan, facts).into_iter().map(|line| line.trim().to_owned());
    let words = ["Shuffle", "Broadcast", "Gather", "Merge", "Own"];
    let lines = lines.filter(|line| words.iter().any(|word| line.starts_with(word)));
    (lines.collect(), distributed.all_ranks_s)
}

/// As many groups as there are, of which partial results are shuffled.
fn grouped(groups: f64) -> Arc<Relation> {
    let operator = Operator::Aggregate {
        input: scan("t", 1, 6e8),
        groups: vec![named(1, column(1))],
        aggregates: vec![call(10, Aggregate::Count, None, DataType::Int64)],
        phase: AggregatePhase::Whole,
    };
    Relation::new(operator, groups)
}

fn sorted(rows: f64) -> Arc<Relation> {
    let input = scan("t", 1, rows);
    Relation::new(Operator::Sort { input, keys: vec![ascending(column(2))] }, rows)
}

#[test]
fn two_levels_are_shown_with_the_reason() {
    let (lines, _) = exchanges(&grouped(1e7), &on_hosts(2, 4), TwoLevelExchange::On);
    let expected = [
        "Gather 3 within hosts: the result",
        "Gather 2 between hosts: the result",
        "Shuffle 1 within hosts by c0: partial results of a group meet",
        "Shuffle 0 between hosts by c0: partial results of a group meet",
    ];
    assert_eq!(lines, expected);
    let (lines, _) = exchanges(&sorted(1e6), &on_hosts(2, 4), TwoLevelExchange::On);
    assert_eq!(
        lines,
        [
            "Merge 1 within hosts by c1: the order of all ranks' rows",
            "Merge 0 between hosts by c1: the order of all ranks' rows"
        ]
    );
    let sides = [&scan("t", 1, 6e8), &scan("u", 11, 1e5)];
    let not_in = join_on(JoinKind::NullAwareAnti, sides, &[(1, 11)], 6e8);
    let (lines, _) = exchanges(&not_in, &on_hosts(2, 4), TwoLevelExchange::On);
    assert_eq!(
        lines[2..],
        [
            "Broadcast 1 within hosts: NOT IN sees all of its list",
            "Broadcast 0 between hosts: NOT IN sees all of its list"
        ]
    );
}

#[test]
fn ranks_of_one_host_and_hosts_of_one_rank_have_one_level() {
    for (hosts, ranks) in [(1, 8), (8, 8), (3, 8), (0, 8)] {
        let (lines, _) = exchanges(&grouped(1e7), &on_hosts(hosts, ranks), TwoLevelExchange::On);
        assert!(lines.iter().all(|line| !line.contains("hosts")), "{hosts} hosts: {lines:?}");
    }
}

#[test]
fn two_levels_are_taken_where_they_take_less_time() {
    let taken = |root: &Arc<Relation>, costs: &ExchangeCosts| {
        let (off, direct_s) = exchanges(root, costs, TwoLevelExchange::Off);
        assert!(off.iter().all(|line| !line.contains("hosts")), "{off:?}");
        let (_, forced_s) = exchanges(root, costs, TwoLevelExchange::On);
        let (auto, auto_s) = exchanges(root, costs, TwoLevelExchange::Auto);
        assert!(auto_s <= direct_s.min(forced_s), "{auto_s} of {direct_s} and {forced_s}");
        auto.into_iter().filter(|line| line.contains("hosts")).collect::<Vec<_>>()
    };
    // 1,016 far partners, each with a message of some kilobytes.
    let levels = taken(&grouped(1e7), &on_hosts(128, 1024));
    assert!(levels.iter().any(|line| line.starts_with("Shuffle 1 within hosts")), "{levels:?}");
    // A message less to a host is not worth an exchange more.
    let levels = taken(&grouped(1e7), &on_hosts(2, 4));
    assert!(levels.iter().all(|line| !line.starts_with("Shuffle")), "{levels:?}");
    // A broadcast crosses the network once a host.
    let sides = || [scan("t", 1, 1e11), scan("u", 11, 5e7)];
    let join = |[left, right]: [Arc<Relation>; 2]| {
        join_on(JoinKind::NullAwareAnti, [&left, &right], &[(1, 11)], 1e11)
    };
    let levels = taken(&join(sides()), &on_hosts(4, 32));
    assert!(levels.iter().any(|line| line.starts_with("Broadcast 1 within hosts")), "{levels:?}");
    let slow = ExchangeCosts { link_bytes_per_s: 1e9, ..on_hosts(4, 32) };
    assert!(taken(&join(sides()), &slow).iter().all(|line| !line.starts_with("Broadcast")));
    assert!(taken(&join(sides()), &on_hosts(1, 32)).is_empty());
}
