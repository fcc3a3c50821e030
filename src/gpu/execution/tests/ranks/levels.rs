//! Exchanges of two levels, between hosts and within each: the same rows and errors as of one
//! level, with few connections.

use std::collections::BTreeMap;

use pystachio_plan::{EXCHANGE_SENDERS_MAX, ErrorKind, ExchangeSettings, Function, TwoLevelExchange, Value};

use super::*;

/// Ranks, and the hosts that they are on.
const LAYOUTS: [(usize, usize); 3] = [(4, 2), (6, 3), (6, 2)];

fn settings(two_level: TwoLevelExchange) -> ExchangeSettings {
    ExchangeSettings { two_level, broadcast_choice: false, filters: false, ..ExchangeSettings::default() }
}

/// Ranks for which the sides of a join by keys are shuffled.
fn on_hosts((rank_count, host_count): (usize, usize)) -> RankShape {
    let options = RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() };
    RankShape { host_count, options, ..RankShape::new(rank_count) }
}

fn run(shape: RankShape, plan: Plan, exchange: ExchangeSettings) -> Result<Answer> {
    let device = DeviceSettings { exchange, ..DeviceSettings::default() };
    RankedFixture::new(shape).run_request(QueryRequest { device, ..request(plan) })
}

fn table(seed: u64, row_count: usize) -> Table {
    Table::made(Shape { seed, row_count, key_count: 400, repeated_percent: 3, null_percent: 5 })
}

fn expecting(relation: Arc<Relation>, rows: f64) -> Arc<Relation> {
    Relation::new(relation.operator.clone(), rows)
}

/// How many rows of each text a join has.
fn counted(kind: JoinKind, sides: [Arc<Relation>; 2]) -> Plan {
    let both = joined(kind, sides, &[(int64(0), int64(10))], JoinSide::Right);
    let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
    plan(aggregated(both, &[(20, text(1))], vec![count], 3.0))
}

/// A join of both tables with a large estimate.
fn join(kind: JoinKind, [left, right]: &[Table; 2]) -> Plan {
    counted(kind, [expecting(left.scan(0), 20_000.0), expecting(right.scan(10), 40_000.0)])
}

/// A join with a small estimate for the second table.
fn join_with_few([left, right]: &[Table; 2]) -> Plan {
    counted(JoinKind::Inner, [expecting(left.scan(0), 40_000.0), expecting(right.scan(10), 100.0)])
}

/// Plans with exchanges of each kind, and the kind.
fn plans(tables: &[Table; 2]) -> [(&'static str, Plan); 4] {
    [
        ("Shuffle", join(JoinKind::Full, tables)),
        ("Broadcast", join_with_few(tables)),
        ("Gather", plan(tables[0].scan(0))),
        ("Merge", plan(sorted_by(tables[0].scan(0), &[(text(1), true), (int64(3), false)]))),
    ]
}

/// How many other ranks each rank has sent blocks to, by exchange.
fn partners(answer: &Answer, rank_count: usize) -> BTreeMap<&str, Vec<u32>> {
    let mut partners: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for traffic in &answer.metrics.exchanges {
        let of_ranks = partners.entry(&traffic.exchange).or_insert_with(|| vec![0; rank_count]);
        of_ranks[traffic.rank as usize] = traffic.partners;
    }
    partners
}

/// The number of ranks that each exchanges blocks with, if all have rows for all.
fn expected_partners(exchange: &str, (rank_count, host_count): (usize, usize)) -> Vec<u32> {
    let of_host = rank_count / host_count;
    let (is_between, is_within) = (exchange.contains("between hosts"), exchange.contains("within hosts"));
    let to_one = exchange.starts_with("Gather") || exchange.starts_with("Merge");
    let of_rank = |rank: usize| match (is_between, is_within, to_one) {
        (true, false, false) => host_count - 1,
        (false, true, false) => of_host - 1,
        (false, false, false) => rank_count - 1,
        // Rows of other hosts go to rank 0's, and from there to rank 0.
        (true, false, true) => usize::from(rank >= of_host),
        (false, true, true) => usize::from(rank > 0 && rank < of_host),
        _ => usize::from(rank > 0),
    };
    (0..rank_count).map(|rank| of_rank(rank) as u32).collect()
}

#[test]
fn every_kind_gives_the_same_rows_by_way_of_few_ranks() {
    let tables = [table(81, 9000), table(82, 4500)];
    let alone = Fixture::new(PLENTY_BYTES);
    let mut sample = pystachio_cases::Sample::of("every_kind_by_way_of_few_ranks");
    for layout in LAYOUTS {
        for (place, (kind, plan)) in sample.take(plans(&tables).into_iter().enumerate()) {
            let expected = alone.run(plan).unwrap().rows;
            for (two_level, seed) in
                [(TwoLevelExchange::On, None), (TwoLevelExchange::On, Some(5)), (TwoLevelExchange::Off, None)]
            {
                let context = format!("{kind}, {layout:?} ranks and hosts, {two_level:?}, seed {seed:?}");
                let plan = plans(&tables)[place].1.clone();
                let shape = RankShape { seed, ..on_hosts(layout) };
                let answer = run(shape, plan, settings(two_level)).unwrap();
                let partners = partners(&answer, layout.0);
                let words = match two_level {
                    TwoLevelExchange::Off => vec![""],
                    _ => vec![" between hosts", " within hosts"],
                };
                for word in words {
                    let is_one = |name: &&&str| name.starts_with(kind) && name.ends_with(word);
                    assert!(partners.keys().any(|name| is_one(&name)), "{context}: {partners:?}");
                }
                for (exchange, found) in &partners {
                    assert_eq!(
                        exchange.contains("hosts"),
                        two_level == TwoLevelExchange::On,
                        "{context}: {exchange}"
                    );
                    assert_eq!(found, &expected_partners(exchange, layout), "{context}: {exchange}");
                }
                match kind {
                    "Merge" => assert_eq!(answer.rows, expected, "{context}"),
                    _ => assert_eq!(sorted(answer.rows), sorted(expected.clone()), "{context}"),
                }
            }
        }
    }
}

#[test]
fn rows_of_a_broadcast_go_to_each_host_once() {
    let tables = [table(81, 3000), table(82, 3000)];
    let sent = |two_level| {
        let answer = run(on_hosts((6, 2)), join_with_few(&tables), settings(two_level)).unwrap();
        let mut sent: BTreeMap<String, u64> = BTreeMap::new();
        for traffic in &answer.metrics.exchanges {
            *sent.entry(traffic.exchange.clone()).or_default() += traffic.sent_bytes;
        }
        sent
    };
    let (direct, levels) = (sent(TwoLevelExchange::Off), sent(TwoLevelExchange::On));
    let of = |sent: &BTreeMap<String, u64>, name: &str| {
        sent.iter()
            .find(|(exchange, _)| exchange.starts_with("Broadcast") && exchange.ends_with(name))
            .map(|(_, bytes)| *bytes)
            .unwrap()
    };
    // Each rank sends its sixth to 5 others, 3 of them on the other host; or to 1 there, and a
    // third of all to 2 here.
    let (all, out, about) = (of(&direct, ""), of(&levels, "between hosts"), of(&levels, "within hosts"));
    assert!(out * 4 < all && out * 6 > all, "{out} of {all}");
    assert!(about * 5 > all * 3 && about < all, "{about} of {all}");
}

#[test]
fn two_levels_have_the_same_rows_without_other_techniques_and_with_little_memory() {
    let tables = [table(83, 4000), table(84, 2000)];
    let alone = Fixture::new(PLENTY_BYTES);
    let levels = settings(TwoLevelExchange::On);
    let all = [
        ExchangeSettings { overlap: false, ..levels },
        ExchangeSettings { gathering: false, senders_max: EXCHANGE_SENDERS_MAX, ..levels },
        ExchangeSettings { filters: true, broadcast_choice: true, groups_max: 1, ..levels },
    ];
    for kind in JOIN_KINDS {
        let expected = sorted(alone.run(join(kind, &tables)).unwrap().rows);
        for (settings, memory_bytes) in all.iter().zip([PLENTY_BYTES / 4, 6 << 20, 6 << 20]) {
            let shape = RankShape { memory_bytes, seed: Some(9), ..on_hosts((4, 2)) };
            let answer = run(shape, join(kind, &tables), *settings).unwrap();
            let wanted = if kind == JoinKind::NullAwareAnti { "" } else { "Shuffle" };
            let mut names = answer.metrics.exchanges.iter().map(|traffic| &traffic.exchange);
            assert!(names.any(|name| name.starts_with(wanted) && name.ends_with("within hosts")), "{kind:?}");
            assert_eq!(sorted(answer.rows), expected, "{kind:?}, {settings:?}, memory {memory_bytes}");
        }
    }
}

#[test]
fn what_fails_between_levels_is_the_querys_error_and_first_rows_stop_both() {
    let tables = [table(85, 3000), table(86, 3000)];
    let number = |value| Expression::literal(Value::Int(value), DataType::Int64);
    let ranks = RankedFixture::new(on_hosts((4, 2)));
    let device = DeviceSettings { exchange: settings(TwoLevelExchange::On), ..DeviceSettings::default() };
    let run = |plan| ranks.run_request(QueryRequest { device, ..request(plan) });
    for at in [0, 1700, 2999] {
        let difference = Expression::call(Function::Subtract, vec![int64(3), number(at)], DataType::Int64);
        let quotient = Expression::call(Function::Divide, vec![number(1000), difference], DataType::Int64);
        let sides = [expecting(tables[0].scan(0), 20_000.0), expecting(tables[1].scan(10), 40_000.0)];
        let failing = joined(JoinKind::Full, sides, &[(quotient, int64(13))], JoinSide::Right);
        assert_eq!(run(plan(failing)).unwrap_err().kind, ErrorKind::DivisionByZero, "row {at}");
        let first = limited(sorted_by(tables[0].scan(0), &[(int64(3), false)]), 2, 3);
        assert_eq!(run(plan(first)).unwrap().rows.len(), 3);
    }
}
