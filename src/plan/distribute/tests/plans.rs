//! Hand-made plans, as EXPLAIN shows them.

use std::sync::Arc;

use super::{
    super::{
        ColumnRanges, DistributeRequest, Distributed, ExchangeCosts, KeyRange, OneRankReason, RankPolicy,
        RunTimeChoices, ScanFigures, distribute,
    },
    ascending, call, column, int, join_on, named, scan, scan_typed, typed,
};
use crate::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, ExchangeKind, Expression, Function,
    JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan, PlanFacts, RELATION_DEPTH_MAX, Relation,
    ScanExtent, TwoLevelExchange, plan_lines,
};

const LARGE: ScanFigures =
    ScanFigures { row_count: 600_000_000, encoded_bytes: 20 << 30, ranges: Vec::new() };
const ALL_CHOICES: RunTimeChoices = RunTimeChoices { broadcast: true, heavy_keys: true };
const SMALL: ScanFigures = ScanFigures { row_count: 25, encoded_bytes: 2_000, ranges: Vec::new() };

/// A distributed plan as EXPLAIN shows it.
pub(super) fn text(distributed: &Distributed) -> String {
    let facts = PlanFacts { exchanges: &distributed.exchanges, ..PlanFacts::default() };
    plan_lines(&distributed.plan, facts).join("\n")
}

fn plan(root: &Arc<Relation>) -> Plan {
    let outputs = root.columns().into_iter().map(|(id, _)| id).collect();
    Plan { root: root.clone(), outputs }
}

fn on(root: &Arc<Relation>, scans: &[ScanFigures], costs: &ExchangeCosts, policy: RankPolicy) -> Distributed {
    with_levels(root, scans, (costs, policy), TwoLevelExchange::Auto)
}

fn with_levels(
    root: &Arc<Relation>,
    scans: &[ScanFigures],
    (costs, policy): (&ExchangeCosts, RankPolicy),
    two_level: TwoLevelExchange,
) -> Distributed {
    let request = DistributeRequest { costs, scans, policy, choices: ALL_CHOICES, two_level };
    distribute(&plan(root), request).unwrap()
}

fn four() -> ExchangeCosts {
    ExchangeCosts { ranks: 4, ..ExchangeCosts::default() }
}

/// On four ranks.
fn on_four(root: &Arc<Relation>, scans: &[ScanFigures]) -> Distributed {
    on(root, scans, &four(), RankPolicy::All)
}

#[track_caller]
fn assert_plan(root: &Arc<Relation>, scans: &[ScanFigures], lines: &[&str]) {
    let shown = text(&on_four(root, scans));
    assert_eq!(shown.lines().collect::<Vec<_>>(), lines, "\n{shown}");
}

fn aggregate(
    input: &Arc<Relation>,
    groups: Vec<NamedExpression>,
    aggregates: Vec<AggregateCall>,
    rows: f64,
) -> Arc<Relation> {
    let phase = AggregatePhase::Whole;
    Relation::new(Operator::Aggregate { input: input.clone(), groups, aggregates, phase }, rows)
}

fn count(id: u32) -> AggregateCall {
    call(id, Aggregate::Count, None, DataType::Int64)
}

fn sum(id: u32, of: u32) -> AggregateCall {
    call(id, Aggregate::Sum, Some(column(of)), DataType::Decimal { precision: 38, scale: 0 })
}

fn distinct_count(id: u32, of: u32) -> AggregateCall {
    AggregateCall { distinct: true, ..call(id, Aggregate::Count, Some(column(of)), DataType::Int64) }
}

fn sort(input: &Arc<Relation>, key: u32) -> Arc<Relation> {
    let keys = vec![ascending(column(key))];
    Relation::new(Operator::Sort { input: input.clone(), keys }, input.estimate.rows)
}

fn limit(input: &Arc<Relation>, offset: Option<Expression>, count: Option<Expression>) -> Arc<Relation> {
    Relation::new(Operator::Limit { input: input.clone(), offset, count }, 10.0)
}

#[test]
fn few_groups_are_merged_on_every_rank() {
    let grouped = aggregate(&scan("t", 1, 6e8), vec![named(1, column(1))], vec![count(10), sum(11, 2)], 4.0);
    assert_plan(
        &sort(&grouped, 1),
        &[LARGE],
        &[
            "Sort by c0",
            "  Own 1 of rank 0: rows that every rank has count once",
            "    Final aggregate count(*), sum(c1) by c0",
            "      Broadcast 0: few partial results",
            "        Partial aggregate count(*), sum(c1) by c0",
            "          Partitioned scan t [c0, c1]",
        ],
    );
}

#[test]
fn an_aggregate_without_groups_is_merged_on_every_rank() {
    assert_plan(
        &aggregate(&scan("t", 1, 6e8), Vec::new(), vec![sum(11, 2)], 1.0),
        &[LARGE],
        &[
            "Final aggregate sum(c1)",
            "  Broadcast 0: few partial results",
            "    Partial aggregate sum(c1)",
            "      Partitioned scan t [c1]",
        ],
    );
}

#[test]
fn partial_results_of_many_rows_a_group_are_shuffled() {
    assert_plan(
        &aggregate(&scan("t", 1, 6e8), vec![named(1, column(1))], vec![count(10)], 1e7),
        &[LARGE],
        &[
            "Gather 1: the result",
            "  Final aggregate count(*) by c0",
            "    Shuffle 0 by c0: partial results of a group meet",
            "      Partial aggregate count(*) by c0",
            "        Partitioned scan t [c0]",
        ],
    );
}

#[test]
fn rows_of_as_many_groups_are_shuffled_themselves() {
    assert_plan(
        &aggregate(&scan("t", 1, 6e8), vec![named(1, column(1))], vec![count(10)], 5e8),
        &[LARGE],
        &[
            "Gather 1: the result",
            "  Aggregate count(*) by c0",
            "    Shuffle 0 by c0: about as many groups as rows",
            "      Partitioned scan t [c0]",
        ],
    );
}

#[test]
fn joins_and_groups_use_the_partitioning_that_is_there() {
    let (one, other) = (scan("t", 1, 5e8), scan("u", 11, 6e8));
    let joined = join_on(JoinKind::Inner, [&one, &other], &[(1, 11)], 6e8);
    let third = join_on(JoinKind::Left, [&joined, &scan("v", 21, 5e8)], &[(11, 21)], 6e8);
    assert_plan(
        &aggregate(&third, vec![named(1, column(1)), named(2, column(2))], vec![sum(30, 12)], 1e8),
        &[LARGE, LARGE, LARGE],
        &[
            "Gather 3: the result",
            "  Aggregate sum(c1) by c0, c1",
            "    Left join on c0 = c0, build right",
            "      Inner join on c0 = c0, build right",
            "        Shuffle 0 by c0: equal join keys meet",
            "          Partitioned scan t [c0, c1]",
            "        Shuffle 1 by c0: equal join keys meet",
            "          Partitioned scan u [c0, c1]",
            "      Shuffle 2 by c0: the other side is partitioned by it already",
            "        Partitioned scan v [c0]",
        ],
    );
}

#[test]
fn a_shuffle_may_be_worth_it_for_what_is_above() {
    let sides = [&scan("t", 1, 1e8), &scan("u", 11, 6e8)];
    let joined = join_on(JoinKind::Inner, sides, &[(1, 11)], 6e8);
    // Alone the smaller side moves less if it is broadcast.
    let counted = text(&on_four(&aggregate(&joined, Vec::new(), vec![count(30)], 1.0), &[LARGE, LARGE]));
    assert!(counted.contains("Broadcast 0: the smaller side"), "{counted}");
    // Groups of its key meet where the join has them, and of what equals it as well.
    for key in [1, 11] {
        let groups = vec![named(key, column(key))];
        assert_plan(
            &aggregate(&joined, groups, vec![sum(30, 12)], 1e8),
            &[LARGE, LARGE],
            &[
                "Gather 2: the result",
                "  Aggregate sum(c1) by c0",
                "    Inner join on c0 = c0, build right",
                "      Shuffle 0 by c0: equal join keys meet",
                "        Partitioned scan t [c0]",
                "      Shuffle 1 by c0: equal join keys meet",
                "        Partitioned scan u [c0, c1]",
            ],
        );
    }
}

#[test]
fn files_of_one_rank_are_read_by_that_rank_however_few_they_are() {
    for (table, extent) in [("t", ScanExtent::Whole), ("t{rank}", ScanExtent::Partitioned)] {
        let total = aggregate(&scan(table, 1, 25.0), Vec::new(), vec![sum(30, 3)], 1.0);
        let distributed = on(&total, &[SMALL], &four(), RankPolicy::All);
        let scans = distributed.plan.root.scans();
        assert!(matches!(scans[0], Operator::Scan { extent: own, .. } if *own == extent), "{table}");
    }
}

#[test]
fn a_small_side_is_broadcast_and_a_small_table_read_whole() {
    let (fact, dimension) = (scan("t", 1, 6e8), scan("u", 11, 1e5));
    let joined = join_on(JoinKind::Inner, [&fact, &dimension], &[(1, 11)], 6e7);
    let joined = join_on(JoinKind::Inner, [&joined, &scan("v", 21, 25.0)], &[(12, 21)], 6e7);
    assert_plan(
        &aggregate(&joined, Vec::new(), vec![sum(30, 3)], 1.0),
        &[LARGE, LARGE, SMALL],
        &[
            "Final aggregate sum(c2)",
            "  Broadcast 1: few partial results",
            "    Partial aggregate sum(c2)",
            "      Inner join on c1 = c0, build right",
            "        Inner join on c0 = c0, build right",
            "          Partitioned scan t [c0, c2]",
            "          Broadcast 0: the smaller side; 7201200000 bytes if both were shuffled by their keys",
            "            Partitioned scan u [c0, c1]",
            "        Scan v [c0]",
        ],
    );
}

#[test]
fn not_in_broadcasts_its_list() {
    let (left, right) = (scan("t", 1, 1e6), scan("u", 11, 1e8));
    assert_plan(
        &join_on(JoinKind::NullAwareAnti, [&left, &right], &[(1, 11)], 1e5),
        &[LARGE, LARGE],
        &[
            "Gather 1: the result",
            "  Null-aware anti join on c0 = c0, build right",
            "    Partitioned scan t [c0, c1, c2]",
            "    Broadcast 0: NOT IN sees all of its list",
            "      Partitioned scan u [c0]",
        ],
    );
}

#[test]
fn a_preserved_side_that_every_rank_has_is_partitioned_without_moving() {
    let (left, right) = (scan("t", 1, 25.0), scan("u", 11, 6e8));
    let joined = join_on(JoinKind::Left, [&left, &right], &[(1, 11)], 6e8);
    assert_plan(
        &aggregate(&joined, vec![named(1, column(1))], vec![count(30)], 25.0),
        &[SMALL, LARGE],
        &[
            "Gather 2: the result",
            "  Aggregate count(*) by c0",
            "    Left join on c0 = c0, build right",
            "      Own 0 by c0: rows that every rank has count once",
            "        Scan t [c0]",
            "      Shuffle 1 by c0: equal join keys meet",
            "        Partitioned scan u [c0]",
        ],
    );
}

#[test]
fn the_first_rows_of_all_are_among_the_first_of_each() {
    assert_plan(
        &limit(&sort(&scan("t", 1, 6e8), 2), Some(int(5)), Some(int(10))),
        &[LARGE],
        &[
            "Limit 10 offset 5",
            "  Merge 0 by c1: the first rows of all ranks",
            "    Limit 15",
            "      Sort by c1",
            "        Partitioned scan t [c0, c1, c2]",
        ],
    );
    // A number that only the query's run tells may be passed on, but nothing can be added to it.
    let parameter = Some(Expression::Parameter { index: 0, data_type: DataType::Int64 });
    let lines = |offset| text(&on_four(&limit(&scan("t", 1, 6e8), offset, parameter.clone()), &[LARGE]));
    assert!(lines(None).contains("Gather 0: the first rows of all ranks\n    Limit $1"), "{}", lines(None));
    assert!(!lines(Some(int(1))).contains("    Limit"), "{}", lines(Some(int(1))));
    // What is an error stays one of the limit of all rows.
    let negative = text(&on_four(&limit(&scan("t", 1, 6e8), None, Some(int(-1))), &[LARGE]));
    assert_eq!(negative.matches("Limit").count(), 1, "{negative}");
}

#[test]
fn an_order_passes_projections_that_keep_it() {
    let sorted = sort(&scan("t", 1, 6e8), 2);
    let project = |expressions| Relation::new(Operator::Project { input: sorted.clone(), expressions }, 6e8);
    assert_plan(
        &project(vec![named(9, column(2))]),
        &[LARGE],
        &[
            "Merge 0 by c1: the order of all ranks' rows",
            "  Project",
            "    Sort by c1",
            "      Partitioned scan t [c1]",
        ],
    );
    assert_plan(
        &project(vec![named(9, column(1))]),
        &[LARGE],
        &[
            "Project",
            "  Merge 0 by c1: the order of all ranks' rows",
            "    Sort by c1",
            "      Partitioned scan t [c0, c1]",
        ],
    );
}

#[test]
fn different_values_meet_by_group_or_by_value() {
    let t = scan("t", 1, 6e8);
    assert_plan(
        &aggregate(&t, vec![named(1, column(1))], vec![distinct_count(10, 2), sum(11, 3)], 1e6),
        &[LARGE],
        &[
            "Gather 1: the result",
            "  Aggregate count(DISTINCT c1), sum(c2) by c0",
            "    Shuffle 0 by c0: different values of a group meet",
            "      Partitioned scan t [c0, c1, c2]",
        ],
    );
    assert_plan(
        &aggregate(&t, Vec::new(), vec![distinct_count(10, 2)], 1.0),
        &[LARGE],
        &[
            "Final aggregate count(c1)",
            "  Broadcast 1: few partial results",
            "    Partial aggregate count(c1)",
            "      Distinct c1",
            "        Shuffle 0 by c1: about as many groups as rows",
            "          Partitioned scan t [c1]",
        ],
    );
    assert_plan(
        &aggregate(&t, Vec::new(), vec![distinct_count(10, 2), count(11)], 1.0),
        &[LARGE],
        &[
            "Aggregate count(DISTINCT c1), count(*)",
            "  Broadcast 0: different values of a group meet",
            "    Partitioned scan t [c1]",
        ],
    );
}

#[test]
fn rows_that_every_rank_has_are_in_a_union_once() {
    let counted = aggregate(&scan("u", 11, 6e8), Vec::new(), vec![count(14)], 1.0);
    let inputs = vec![(scan("t", 1, 6e8), vec![ColumnId(1)]), (counted, vec![ColumnId(14)])];
    let columns = vec![(ColumnId(20), DataType::Int64)];
    assert_plan(
        &Relation::new(Operator::UnionAll { inputs, columns }, 6e8),
        &[LARGE, LARGE],
        &[
            "Gather 2: the result",
            "  Union all of 2",
            "    Partitioned scan t [c0]",
            "    Own 1 of rank 0: rows that every rank has count once",
            "      Final aggregate count(*)",
            "        Broadcast 0: few partial results",
            "          Partial aggregate count(*)",
            "            Partitioned scan u",
        ],
    );
}

#[test]
fn pairs_of_all_rows_have_one_side_on_every_rank() {
    let (left, right) = (scan("t", 1, 6e8), scan("u", 11, 100.0));
    for kind in [JoinKind::Inner, JoinKind::Left] {
        let lines = text(&on_four(&join_on(kind, [&left, &right], &[], 6e9), &[LARGE, LARGE]));
        assert!(lines.contains("    Broadcast 0: pairs of all rows\n      Partitioned scan u"), "{lines}");
    }
    let lines = text(&on_four(&join_on(JoinKind::Full, [&left, &right], &[], 6e9), &[LARGE, LARGE]));
    assert_eq!(lines.matches("Gather").count(), 2, "{lines}");
}

#[test]
fn what_nobody_reads_above_does_not_cross() {
    // The key of the first join is read by it alone.
    let joined = join_on(JoinKind::Inner, [&scan("t", 1, 6e8), &scan("u", 11, 8e8)], &[(1, 11)], 6e8);
    let joined = join_on(JoinKind::Inner, [&joined, &scan("v", 21, 5e8)], &[(2, 21)], 6e8);
    let lines = text(&on_four(&aggregate(&joined, Vec::new(), vec![sum(30, 22)], 1.0), &[LARGE; 3]));
    assert!(
        lines.contains(
            "Shuffle 2 by c1, or stay if 3 is broadcast: equal join keys meet\n          Project\n            Inner join on c0"
        ),
        "{lines}"
    );
}

#[test]
fn a_shuffle_of_both_sides_may_turn_out_to_be_a_broadcast() {
    let lines = |kind, build, left_rows, above: &dyn Fn(&Arc<Relation>) -> Arc<Relation>| {
        let mut joined = join_on(kind, [&scan("t", 1, left_rows), &scan("u", 11, 5e8)], &[(1, 11)], 6e8);
        if let Operator::Join { build: side, .. } = &mut Arc::make_mut(&mut joined).operator {
            *side = build;
        }
        text(&on_four(&above(&joined), &[LARGE; 2]))
    };
    let counted = |joined: &Arc<Relation>| aggregate(joined, Vec::new(), vec![count(30)], 1.0);
    let broadcast = format!("by c0, or broadcast up to {} bytes: equal join keys meet", 256 << 20);
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
        let lines = lines(kind, JoinSide::Right, 6e8, &counted);
        assert!(lines.contains(&format!("Shuffle 1 {broadcast}")), "{lines}");
        assert!(
            lines.contains("Shuffle 0 by c0, or stay if 1 is broadcast: equal join keys meet"),
            "{lines}"
        );
    }
    let of_left = lines(JoinKind::Inner, JoinSide::Left, 6e8, &counted);
    assert!(of_left.contains(&format!("Shuffle 0 {broadcast}")), "{of_left}");
    // What is preserved, and what is grouped by the keys, stays shuffled; so does what a small other side would not pay.
    let by_key = |joined: &Arc<Relation>| aggregate(joined, vec![named(30, column(1))], vec![count(31)], 1e8);
    for lines in [
        lines(JoinKind::Full, JoinSide::Right, 6e8, &counted),
        lines(JoinKind::Semi, JoinSide::Left, 6e8, &counted),
        lines(JoinKind::Inner, JoinSide::Right, 6e8, &by_key),
    ] {
        assert!(lines.contains("Shuffle 1 by c0: equal join keys meet"), "{lines}");
    }
}

#[test]
fn the_largest_broadcast_grows_with_the_other_side() {
    let bytes_max = |probe_rows, build_rows| {
        let joined = join_on(
            JoinKind::Inner,
            [&scan("t", 1, probe_rows), &scan("u", 11, build_rows)],
            &[(1, 11)],
            6e8,
        );
        let costs = ExchangeCosts { exchange_s: 0.0, ..four() };
        let counted = aggregate(&joined, Vec::new(), vec![count(30)], 1.0);
        let plan = on(&counted, &[LARGE; 2], &costs, RankPolicy::All).plan;
        let mut found = None;
        let mut below = vec![plan.root.clone()];
        while let Some(relation) = below.pop() {
            if let Operator::Exchange { kind: ExchangeKind::HashOrBroadcast { bytes_max, .. }, .. } =
                relation.operator
            {
                found = Some(bytes_max);
            }
            below.extend(relation.inputs().into_iter().cloned());
        }
        found.expect("a choice")
    };
    let (few, more) = (bytes_max(4e7, 4e7), bytes_max(5e7, 4e7));
    assert!(few > 1 << 20 && few < more && more < 256 << 20, "{few} {more}");
    assert_eq!(bytes_max(6e9, 5e9), 256 << 20);
}

#[test]
fn a_broadcast_pays_while_it_moves_less_than_two_shuffles() {
    // Without fixed times, and building for nothing: build × (ranks − 1) < (build + probe) × (ranks − 1) / ranks.
    let costs = ExchangeCosts {
        exchange_s: 0.0,
        pack_bytes_per_s: f64::INFINITY,
        build_row_s: 0.0,
        probe_row_s: 0.0,
        output_row_s: 0.0,
        ..four()
    };
    let is_broadcast = |build_rows| {
        let sides = [&scan("t", 1, 4e8), &scan("u", 11, build_rows)];
        let joined = join_on(JoinKind::Inner, sides, &[(1, 11)], 1.0);
        let distributed = on(&joined, &[LARGE, LARGE], &costs, RankPolicy::All);
        text(&distributed).contains("Broadcast")
    };
    assert!(is_broadcast(1.3e8));
    assert!(!is_broadcast(1.4e8));
    // What every rank has to build makes it worth less.
    let costs = ExchangeCosts { build_row_s: 1e-10, ..costs };
    let sides = [&scan("t", 1, 4e8), &scan("u", 11, 1.3e8)];
    let joined = join_on(JoinKind::Inner, sides, &[(1, 11)], 1.0);
    assert!(!text(&on(&joined, &[LARGE, LARGE], &costs, RankPolicy::All)).contains("Broadcast"));
}

#[test]
fn bytes_are_those_that_leave_a_rank() {
    let (fact, dimension) = (scan("t", 1, 6e8), scan("u", 11, 1e5));
    let joined = join_on(JoinKind::Inner, [&fact, &dimension], &[(1, 11)], 6e7);
    let distributed = on_four(&aggregate(&joined, Vec::new(), vec![sum(30, 12)], 1.0), &[LARGE, LARGE]);
    // Two columns to three ranks each; four partial sums to three ranks each.
    assert_eq!(distributed.exchanges[0].bytes, 1e5 * 16.0 * 3.0);
    assert_eq!(distributed.exchanges[1].bytes, 4.0 * 16.0 * 3.0);
    assert_eq!(distributed.exchanged_bytes(), 4_800_192.0);
    let facts = PlanFacts { estimates: true, exchanges: &distributed.exchanges, ..PlanFacts::default() };
    let lines = plan_lines(&distributed.plan, facts);
    assert_eq!(lines[1], "  Broadcast 1: few partial results  (rows=4 bytes=192)");
}

#[test]
fn one_rank_runs_what_it_runs_faster() {
    let grouped = |rows| aggregate(&scan("t", 1, rows), vec![named(1, column(1))], vec![count(10)], 4.0);
    let by = |figures, costs: &ExchangeCosts| on(&grouped(1e6), &[figures], costs, RankPolicy::Fastest);
    let middling = ScanFigures { row_count: 1_000_000, encoded_bytes: 8 << 20, ranges: Vec::new() };
    let few = by(middling, &four());
    assert_eq!(few.one_rank, Some(OneRankReason::Faster));
    assert_eq!((&few.plan, few.exchanges.len()), (&plan(&grouped(1e6)), 0));
    assert!(few.one_rank_s <= few.all_ranks_s);
    let many = by(LARGE, &four());
    assert_eq!(many.one_rank, None);
    assert!(many.all_ranks_s < many.one_rank_s, "{many:?}");
    assert_eq!(by(SMALL, &four()).one_rank, Some(OneRankReason::SmallTables));
    assert_eq!(by(LARGE, &ExchangeCosts::default()).one_rank, Some(OneRankReason::Alone));
    // A slow link makes of a join what one rank does faster.
    let join = join_on(JoinKind::Inner, [&scan("t", 1, 3e8), &scan("u", 11, 3e8)], &[(1, 11)], 3e8);
    let counted = aggregate(&join, Vec::new(), vec![count(30)], 1.0);
    let on_link = |link_bytes_per_s| {
        let costs = ExchangeCosts { link_bytes_per_s, ..four() };
        on(&counted, &[LARGE, LARGE], &costs, RankPolicy::Fastest).one_rank
    };
    assert_eq!(on_link(250e9), None);
    assert_eq!(on_link(1e9), Some(OneRankReason::Faster));
}

/// Rows of which different values are counted, as in TPC-H's Q16: a join of a large table with a part of a smaller one, and groups of few
/// columns.
#[test]
fn values_that_are_many_are_counted_on_all_ranks() {
    let small = ScanFigures { row_count: 60_000_000, encoded_bytes: 200 << 20, ranges: Vec::new() };
    let large = ScanFigures { row_count: 240_000_000, encoded_bytes: 600 << 20, ranges: Vec::new() };
    let by = |share: f64, costs: &ExchangeCosts, is_distinct: bool| {
        let sides = [&scan("t", 1, 240e6 * share), &scan("u", 11, 9e6 * share)];
        let joined = join_on(JoinKind::Inner, sides, &[(1, 11)], 36e6 * share);
        let counted = AggregateCall { distinct: is_distinct, ..distinct_count(30, 2) };
        let groups = vec![named(12, column(12)), named(13, column(13))];
        let few = aggregate(&joined, groups, vec![counted], 28e3);
        on(&few, &[large.clone(), small.clone()], costs, RankPolicy::Fastest)
    };
    let whole = by(1.0, &four(), true);
    assert_eq!(whole.one_rank, None, "{whole:?}");
    assert!(whole.one_rank_s > 1.5 * whole.all_ranks_s, "{whole:?}");
    // Without the merge of values, one rank would seem faster with fewer of them.
    let unaware = ExchangeCosts { merge_row_s: 0.0, partition_row_s: 0.0, ..four() };
    assert_eq!(by(0.4, &unaware, true).one_rank, Some(OneRankReason::Faster));
    assert_eq!(by(0.4, &four(), true).one_rank, None);
    // Most of that time is spent on the values, more than in proportion where they are partitioned.
    let others_s = by(1.0, &four(), false).one_rank_s;
    let values_s = |share| by(share, &four(), true).one_rank_s - by(share, &four(), false).one_rank_s;
    assert!(values_s(1.0) > 2.0 * others_s, "{others_s}");
    let times = values_s(1.0) / values_s(1.0 / 3.0);
    assert!((6.0..10.0).contains(&times), "{times}");
    // Groups of one integer are no such values.
    let by_key = |data_type: DataType| {
        let t = scan_typed("t", &[(1, "c0", data_type.clone())], 4e7);
        let grouped = aggregate(&t, vec![named(1, typed(1, data_type))], vec![count(10)], 3e7);
        on(&grouped, &[LARGE], &four(), RankPolicy::All).one_rank_s
    };
    assert!(by_key(DataType::Text) > by_key(DataType::Int64) + 0.02);
}

#[test]
fn plans_too_deep_stay_on_one_rank() {
    let predicate = Expression::predicate(Function::IsNotNull, vec![column(1)]);
    let filters = |count| {
        (0..count).fold(scan("t", 1, 6e8), |input, _| {
            Relation::new(Operator::Filter { input, predicate: predicate.clone() }, 6e8)
        })
    };
    let deep = on_four(&filters(RELATION_DEPTH_MAX - 1), &[LARGE]);
    assert_eq!(deep.one_rank, Some(OneRankReason::TooDeep));
    assert_eq!(on_four(&filters(RELATION_DEPTH_MAX + 1), &[LARGE]).one_rank, Some(OneRankReason::TooDeep));
    assert_eq!(on_four(&filters(RELATION_DEPTH_MAX - 2), &[LARGE]).one_rank, None);
}

#[test]
fn a_plan_is_distributed_once() {
    let distributed = on_four(&scan("t", 1, 6e8), &[LARGE]);
    assert!(matches!(
        distributed.plan.root.scans()[0],
        Operator::Scan { extent: ScanExtent::Partitioned, .. }
    ));
    let costs = four();
    let request = DistributeRequest {
        costs: &costs,
        scans: &[LARGE],
        policy: RankPolicy::All,
        choices: ALL_CHOICES,
        two_level: TwoLevelExchange::Auto,
    };
    assert!(distribute(&distributed.plan, request).is_err());
}

#[test]
fn ids_run_out_as_an_error() {
    let grouped = aggregate(&scan("t", u32::MAX - 3, 6e8), Vec::new(), vec![sum(1, u32::MAX - 1)], 1.0);
    let costs = four();
    let request = DistributeRequest {
        costs: &costs,
        scans: &[LARGE],
        policy: RankPolicy::All,
        choices: ALL_CHOICES,
        two_level: TwoLevelExchange::Auto,
    };
    assert!(distribute(&plan(&grouped), request).is_err());
}

/// Figures of a large table whose columns have the values of `row_groups`, which lie beside one another and are of one size.
fn ranged(columns: &[u32], row_groups: &[(i64, i64)]) -> ScanFigures {
    let bytes = LARGE.encoded_bytes / row_groups.len().max(1) as u64;
    let range = |(least, greatest): &(i64, i64)| KeyRange { least: *least, greatest: *greatest, bytes };
    let row_groups: Vec<_> = row_groups.iter().map(range).collect();
    let of = |column: &u32| ColumnRanges { column: ColumnId(*column), row_groups: row_groups.clone() };
    ScanFigures { ranges: columns.iter().map(of).collect(), ..LARGE }
}

/// Row groups of so many values each, up to 8000.
fn in_order(values: i64) -> Vec<(i64, i64)> {
    (0..8000 / values).map(|place| (place * values, place * values + values - 1)).collect()
}

#[test]
fn tables_in_the_order_of_a_join_key_need_no_shuffle() {
    let (items, orders) = (scan("items", 1, 6e8), scan("orders", 11, 1.5e8));
    let joined = join_on(JoinKind::Inner, [&items, &orders], &[(1, 11)], 6e8);
    let grouped = aggregate(&joined, vec![named(11, column(11))], vec![sum(30, 2)], 1.5e8);
    let top = limit(&sort(&grouped, 30), None, Some(int(10)));
    let figures = [ranged(&[1], &in_order(100)), ranged(&[11], &in_order(400))];
    assert_plan(
        &top,
        &figures,
        &[
            "Limit 10",
            "  Merge 0 by sum(c1): the first rows of all ranks",
            "    Limit 10",
            "      Sort by sum(c1)",
            "        Aggregate sum(c1) by c0",
            "          Inner join on c0 = c0, build right",
            "            Scan items partitioned by ranges of c0 [c0, c1]",
            "            Scan orders partitioned by ranges of c0 [c0]",
        ],
    );
    // The largest says where.
    let distributed = on_four(&top, &figures);
    for scan in distributed.plan.root.scans() {
        let Operator::Scan { extent: ScanExtent::Range { cuts, .. }, .. } = scan else { panic!("{scan:?}") };
        assert_eq!(cuts, &[2000, 4000, 6000]);
    }
}

#[test]
fn a_table_is_not_partitioned_by_ranges_that_leave_it_on_few_ranks() {
    let grouped = |figures: ScanFigures| {
        let grouped = aggregate(&scan("t", 1, 6e8), vec![named(1, column(1))], vec![sum(30, 2)], 1.5e8);
        let distributed = on_four(&grouped, &[figures]);
        text(&distributed).contains("partitioned by ranges")
    };
    assert!(grouped(ranged(&[1], &in_order(100))));
    // Of three values one is on no rank; all row groups have all values; there is one.
    for row_groups in [in_order(4000), vec![(0, 8000); 80], in_order(8000), Vec::new()] {
        assert!(!grouped(ranged(&[1], &row_groups)), "{row_groups:?}");
    }
}

#[test]
fn numbers_of_two_types_are_cut_at_the_same_values() {
    let (left, right) = (
        scan_typed("t", &[(1, "c0", DataType::Int32)], 6e8),
        scan_typed("u", &[(11, "c0", DataType::Int64), (12, "c1", DataType::Int64)], 6e8),
    );
    let keys = vec![JoinKey { left: typed(1, DataType::Int32), right: column(11) }];
    let (kind, residual, build) = (JoinKind::Full, None, JoinSide::Right);
    let joined = Operator::Join { kind, left, right, keys, residual, build };
    let shown = text(&on_four(
        &Relation::new(joined, 6e8),
        &[ranged(&[1], &in_order(100)), ranged(&[11], &in_order(100))],
    ));
    assert_eq!(shown.matches("partitioned by ranges").count(), 2, "{shown}");
    assert!(!shown.contains("Shuffle"), "{shown}");
}
