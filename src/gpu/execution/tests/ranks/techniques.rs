//! Every optional technique of exchanges: the same rows and errors without it, and a check that it
//! really was off.

use pystachio_plan::{
    EXCHANGE_GROUPS_MAX, EXCHANGE_SENDERS_MAX, ErrorKind, ExchangeCompression, ExchangeSettings,
    ExchangeTraffic, Function, Value,
};

use super::*;

fn technique(change: fn(&mut ExchangeSettings)) -> ExchangeSettings {
    let mut settings = ExchangeSettings::default();
    change(&mut settings);
    settings
}

fn techniques() -> [(&'static str, ExchangeSettings); 12] {
    [
        ("no choice of a broadcast", technique(|settings| settings.broadcast_choice = false)),
        ("compression", technique(|settings| settings.compression = ExchangeCompression::On)),
        ("no compression", technique(|settings| settings.compression = ExchangeCompression::Off)),
        ("no filters", technique(|settings| settings.filters = false)),
        ("no gathering", technique(|settings| settings.gathering = false)),
        ("one group", technique(|settings| settings.groups_max = 1)),
        ("many groups", technique(|settings| settings.groups_max = EXCHANGE_GROUPS_MAX)),
        ("no heavy keys", technique(|settings| settings.heavy_keys = false)),
        ("no overlap", technique(|settings| settings.overlap = false)),
        ("one sender", technique(|settings| settings.senders_max = 1)),
        ("many senders", technique(|settings| settings.senders_max = EXCHANGE_SENDERS_MAX)),
        ("as many chunks and senders as there can be", many_senders()),
    ]
}

/// Senders of chunks that are not merged.
fn many_senders() -> ExchangeSettings {
    ExchangeSettings { gathering: false, senders_max: EXCHANGE_SENDERS_MAX, ..ExchangeSettings::default() }
}

fn table(seed: u64, row_count: usize) -> Table {
    Table::made(Shape { seed, row_count, key_count: 400, repeated_percent: 3, null_percent: 5 })
}

fn number(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

/// Runs a plan with settings of exchanges.
fn run(shape: RankShape, plan: Plan, exchange: ExchangeSettings) -> Result<Answer> {
    let device = DeviceSettings { exchange, ..DeviceSettings::default() };
    RankedFixture::new(shape).run_request(QueryRequest { device, ..request(plan) })
}

/// Groups of a join of which either side is shuffled, unless the ranks choose a broadcast at run
/// time.
fn grouped_join(left: &Table, right: &Table) -> Plan {
    let few = right.filtered(10, &[Expression::predicate(Function::Less, vec![int64(13), number(150)])]);
    // The plan expects as many rows as there are: too many for every rank to have them.
    let few = Relation::new(few.operator.clone(), 1500.0);
    let both = joined(JoinKind::Left, [left.scan(0), few], &[(int64(0), int64(10))], JoinSide::Right);
    let count = aggregate_call(30, Aggregate::Count, Some(int64(12)), DataType::Int64);
    let least = aggregate_call(31, Aggregate::Min, Some(int64(3)), DataType::Int64);
    plan(aggregated(both, &[(20, text(1)), (21, int64(0))], vec![count, least], 3000.0))
}

#[test]
fn without_any_technique_the_rows_are_the_same() {
    let (left, right) = (table(81, 3000), table(82, 1500));
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(grouped_join(&left, &right)).unwrap().rows);
    assert!(expected.len() > 1000);
    let keys = [(text(1), true), (int64(3), false)];
    let in_order = || plan(sorted_by(left.scan(0), &keys));
    let expected_in_order = Fixture::new(PLENTY_BYTES).run(in_order()).unwrap().rows;
    for (name, settings) in techniques() {
        for (rank_count, memory_bytes, seed) in
            [(2, PLENTY_BYTES / 4, Some(7)), (3, 6 << 20, Some(8)), (4, PLENTY_BYTES / 4, None)]
        {
            let context = format!("{name}, ranks {rank_count}, memory {memory_bytes}, seed {seed:?}");
            let shape = RankShape { memory_bytes, seed, ..RankShape::new(rank_count) };
            let answer = run(shape, grouped_join(&left, &right), settings).unwrap();
            assert!(is_distributed(&answer), "{context}");
            assert_eq!(sorted(answer.rows), expected, "{context}");
            assert_eq!(run(shape, in_order(), settings).unwrap().rows, expected_in_order, "{context}");
        }
    }
}

/// Ranks for which a shuffle of both sides of [`counted_join`] is the cheapest plan.
fn shuffling(rank_count: usize) -> RankShape {
    let options = RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() };
    RankShape { options, ..RankShape::new(rank_count) }
}

/// The number of rows of each text in a join with large estimates for both sides.
fn counted_join(kind: JoinKind, [left, right]: [Arc<Relation>; 2], keys: (Expression, Expression)) -> Plan {
    let expecting = |relation: Arc<Relation>, rows| Relation::new(relation.operator.clone(), rows);
    let sides = [expecting(left, 20_000.0), expecting(right, 40_000.0)];
    let both = joined(kind, sides, &[keys], JoinSide::Right);
    let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
    plan(aggregated(both, &[(20, text(1))], vec![count], 3.0))
}

#[test]
fn without_overlap_all_rows_wait_with_much_memory_and_with_little() {
    let (left, right) = (table(83, 30_000), table(84, 2000));
    let make = || counted_join(JoinKind::Full, [left.scan(0), right.scan(10)], (int64(3), int64(13)));
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    let settings = technique(|settings| settings.overlap = false);
    for memory_bytes in [PLENTY_BYTES / 4, 3 << 20] {
        let shape = RankShape { memory_bytes, ..shuffling(2) };
        let answer = run(shape, make(), settings).unwrap();
        let [held, sent, kept] =
            ["rows_held_back", "rows_sent", "rows_kept"].map(|name| counter(&answer, name));
        assert!(held == sent + kept && held > 10_000, "{held} held back, {sent} sent, {kept} kept");
        assert_eq!(sorted(answer.rows), expected, "memory {memory_bytes}");
    }
    let overlapped = run(shuffling(2), make(), ExchangeSettings::default()).unwrap();
    assert_eq!(counter(&overlapped, "rows_held_back"), 0);
}

#[test]
fn without_filters_ranks_send_what_no_join_matches() {
    let (left, right) = (table(81, 3000), table(82, 1500));
    let make = || {
        let few = right.filtered(10, &[Expression::predicate(Function::Less, vec![int64(13), number(150)])]);
        counted_join(JoinKind::Inner, [left.scan(0), few], (int64(0), int64(10)))
    };
    // Without the choice of a broadcast, which would send nothing.
    let sent = |filters| {
        let settings = ExchangeSettings { filters, broadcast_choice: false, ..ExchangeSettings::default() };
        counter(&run(shuffling(2), make(), settings).unwrap(), "rows_sent")
    };
    let (with, without) = (sent(true), sent(false));
    assert!(with * 3 < without * 2, "{with} rows sent with filters, {without} without");
}

#[test]
fn without_the_choice_of_a_broadcast_nothing_is_chosen() {
    let (left, right) = (table(81, 3000), table(82, 300));
    let make = || counted_join(JoinKind::Inner, [left.scan(0), right.scan(10)], (int64(0), int64(10)));
    let choices = |settings| {
        let answer = run(shuffling(2), make(), settings).unwrap();
        answer.metrics.exchanges.iter().filter_map(|traffic| traffic.choice).count()
    };
    assert_eq!(choices(ExchangeSettings::default()), 4);
    assert_eq!(choices(technique(|settings| settings.broadcast_choice = false)), 0);
}

#[test]
fn compressed_rows_are_fewer_bytes_and_metrics_say_of_how_many() {
    let (left, right) = (table(81, 3000), table(82, 1500));
    let make = || counted_join(JoinKind::Inner, [left.scan(0), right.scan(10)], (int64(0), int64(10)));
    let sent = |compression| {
        let settings =
            ExchangeSettings { compression, broadcast_choice: false, ..ExchangeSettings::default() };
        let metrics = run(shuffling(2), make(), settings).unwrap().metrics;
        let sum = |of: fn(&ExchangeTraffic) -> u64| metrics.exchanges.iter().map(of).sum::<u64>();
        (sum(|traffic| traffic.sent_bytes), sum(|traffic| traffic.sent_wide_bytes))
    };
    let (bytes, wide_bytes) = sent(ExchangeCompression::Off);
    assert_eq!(bytes, wide_bytes);
    let (narrow_bytes, wide_bytes) = sent(ExchangeCompression::On);
    // Blocks are small, so headers and padding are a large part of them.
    assert!(narrow_bytes * 5 < wide_bytes * 4, "{narrow_bytes} of {wide_bytes}");
    assert!(narrow_bytes * 5 < bytes * 4, "{narrow_bytes}, without compression {bytes}");
}

#[test]
fn rows_of_one_fragment_are_sent_by_several_drivers() {
    let (left, right) = (table(85, 6000), table(86, 3000));
    let make = || counted_join(JoinKind::Inner, [left.scan(0), right.scan(10)], (int64(3), int64(13)));
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    let several = ExchangeSettings { broadcast_choice: false, ..many_senders() };
    for seed in [None, Some(3), Some(4)] {
        let shape = RankShape { seed, ..shuffling(2) };
        let answer = run(shape, make(), several).unwrap();
        assert!(counter(&answer, "rows_handed_over") > 0, "{:?}", answer.metrics.operators);
        assert_eq!(sorted(answer.rows), expected, "seed {seed:?}");
        let answer = run(shape, make(), ExchangeSettings { senders_max: 1, ..several }).unwrap();
        assert_eq!(counter(&answer, "rows_handed_over"), 0);
    }
    // Rank 0 alone gets them, and they are sorted there.
    let keys = [(text(1), true), (int64(3), false)];
    let answer = run(RankShape::new(2), plan(sorted_by(left.scan(0), &keys)), many_senders()).unwrap();
    assert_eq!(counter(&answer, "rows_handed_over"), 0);
}

/// The key of one row can't be computed; another driver than the fragment's computes it.
#[test]
fn what_another_driver_finds_wrong_is_the_querys_error() {
    let (left, right) = (table(85, 6000), table(86, 3000));
    let make = |at: i64| {
        let difference = Expression::call(Function::Subtract, vec![int64(3), number(at)], DataType::Int64);
        let quotient = Expression::call(Function::Divide, vec![number(1000), difference], DataType::Int64);
        counted_join(JoinKind::Left, [left.scan(0), right.scan(10)], (quotient, int64(13)))
    };
    let mut sample = pystachio_cases::Sample::of("what_another_driver_finds_wrong");
    // Their parts are in any chunk of either rank.
    for at in [0, 1700, 2900, 3100, 4600, 5999] {
        for (name, settings) in sample.take(techniques()) {
            let error = run(shuffling(2), make(at), settings).unwrap_err();
            assert_eq!(error.kind, ErrorKind::DivisionByZero, "{name}, row {at}: {error}");
        }
    }
}
