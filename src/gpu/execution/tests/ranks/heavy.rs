//! Keys that most rows of a join's probe side have: the rows are those of one rank, and no rank has
//! much more than others.

use pystachio_plan::{CommonValue, ExchangeChoice, ExchangeSettings, ExchangeTraffic, Function, Value};

use super::*;

/// The key that repeated rows have.
const HEAVY: i64 = 7;
const MANY_ROWS: f64 = 1e8;
/// Statistics of the first table's keys.
static COMMON_KEYS: [(Value, f64); 2] = [(Value::Int(HEAVY), 0.6), (Value::Null, 0.12)];

/// Values with their shares.
type Common<'a> = &'a [(Value, f64)];

/// Says of a scan's column which values are common.
pub(super) fn tell_common(relation: &mut Arc<Relation>, column: u32, values: &[(Value, f64)]) {
    if let Operator::Scan { columns, .. } = &mut Arc::make_mut(relation).operator {
        let told = columns.iter_mut().find(|known| known.id == ColumnId(column)).expect("the column");
        let values = values.iter().cloned();
        told.common = values.map(|(value, share)| CommonValue { value, share }).collect();
    }
}

fn expecting(relation: Arc<Relation>, rows: f64) -> Arc<Relation> {
    Relation::new(relation.operator.clone(), rows)
}

/// Two tables, of the first of which six rows in ten have one key and some have none.
fn tables() -> [Table; 2] {
    let skewed = Shape { seed: 91, row_count: 8000, key_count: 400, repeated_percent: 60, null_percent: 12 };
    let even = Shape { seed: 92, row_count: 1200, key_count: 400, repeated_percent: 0, null_percent: 5 };
    [Table::made(skewed), Table::made(even)]
}

/// A join of the first table's column with the second one's whose common values the plan knows,
/// grouped by another column.
fn join_of(
    kind: JoinKind,
    [left, right]: [&Table; 2],
    (keys, common): ((Expression, Expression), (u32, Common<'_>)),
) -> Plan {
    let mut probe = expecting(left.scan(0), MANY_ROWS);
    tell_common(&mut probe, common.0, common.1);
    let sides = [probe, expecting(right.scan(10), 2.0 * MANY_ROWS)];
    let both = joined(kind, sides, &[keys], JoinSide::Right);
    let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
    let mut calls = vec![count, aggregate_call(31, Aggregate::Max, Some(int64(3)), DataType::Int64)];
    if kind.keeps_right_columns() {
        calls.push(aggregate_call(32, Aggregate::Count, Some(int64(13)), DataType::Int64));
    }
    plan(aggregated(both, &[(20, int64(2))], calls, 3.0))
}

/// Shuffles both sides, whatever the build side turns out to be.
fn run(shape: RankShape, plan: Plan, heavy_keys: bool) -> Answer {
    let exchange = ExchangeSettings { heavy_keys, broadcast_choice: false, ..ExchangeSettings::default() };
    let device = DeviceSettings { exchange, ..DeviceSettings::default() };
    let options = RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() };
    RankedFixture::new(RankShape { options, ..shape })
        .run_request(QueryRequest { device, ..request(plan) })
        .unwrap()
}

/// The shuffles of the join, which are the first two: the rows that each rank moved, for the side
/// with more rows first.
fn shuffles(answer: &Answer) -> [Vec<ExchangeTraffic>; 2] {
    let of = |name: &str| -> Vec<ExchangeTraffic> {
        answer.metrics.exchanges.iter().filter(|traffic| traffic.exchange == name).cloned().collect()
    };
    let rows =
        |ranks: &[ExchangeTraffic]| ranks.iter().map(|rank| rank.kept_rows + rank.sent_rows).sum::<u64>();
    let [one, other] = ["Shuffle 0", "Shuffle 1"].map(of);
    assert!(!one.is_empty() && !other.is_empty(), "both sides are shuffled: {:?}", answer.metrics.exchanges);
    if rows(&one) >= rows(&other) { [one, other] } else { [other, one] }
}

/// The most rows of a rank after a shuffle, as a multiple of the mean.
fn skew(ranks: &[ExchangeTraffic]) -> f64 {
    let rows = |rank: &ExchangeTraffic| rank.kept_rows + rank.received_rows;
    let most = ranks.iter().map(rows).max().unwrap_or(0);
    most as f64 * ranks.len() as f64 / ranks.iter().map(rows).sum::<u64>().max(1) as f64
}

fn heavy_rows(ranks: &[ExchangeTraffic]) -> u64 {
    ranks.iter().map(|rank| rank.heavy_rows).sum()
}

fn count_of(table: &Table, key: i64) -> u64 {
    table.rows.iter().filter(|row| row.key == Some(key)).count() as u64
}

/// How many ranks, the memory of each, and in which order their devices work.
const RANKS: [(usize, u64, Option<u64>); 4] =
    [(2, PLENTY_BYTES / 4, Some(7)), (2, 6 << 20, None), (4, PLENTY_BYTES / 4, None), (4, 6 << 20, Some(3))];

#[test]
fn rows_are_the_same_and_no_rank_has_most_of_them() {
    let [left, right] = tables();
    let (heavy_left, heavy_right) = (count_of(&left, HEAVY), count_of(&right, HEAVY));
    assert!(heavy_left > 4500 && heavy_right > 0, "{heavy_left} and {heavy_right} rows");
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
        let keys = || ((int64(0), int64(10)), (0, &COMMON_KEYS[..]));
        let make = || join_of(kind, [&left, &right], keys());
        let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
        for (rank_count, memory_bytes, seed) in RANKS {
            let context = format!("{kind:?}, ranks {rank_count}, memory {memory_bytes}, seed {seed:?}");
            let shape = RankShape { memory_bytes, seed, ..RankShape::new(rank_count) };
            let answer = run(shape, make(), true);
            let [probe, build] = shuffles(&answer);
            let all = probe.iter().chain(&build);
            assert!(all.clone().all(|rank| rank.choice == Some(ExchangeChoice::Shuffle)), "{context}");
            // Filters may drop rows without a key before they get here.
            assert!((heavy_left..7000).contains(&heavy_rows(&probe)), "{context}: {probe:?}");
            assert_eq!(heavy_rows(&build), heavy_right, "{context}: {build:?}");
            assert!(skew(&probe) < 1.2, "{context}: {probe:?}");
            assert_eq!(sorted(answer.rows), expected, "{context}");
        }
    }
}

#[test]
fn without_the_split_one_rank_has_most_rows() {
    let [left, right] = tables();
    let keys = || ((int64(0), int64(10)), (0, &COMMON_KEYS[..]));
    let make = || join_of(JoinKind::Left, [&left, &right], keys());
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    let answer = run(RankShape::new(4), make(), false);
    let [probe, build] = shuffles(&answer);
    assert!(probe.iter().chain(&build).all(|rank| rank.choice.is_none() && rank.heavy_rows == 0));
    assert!(skew(&probe) > 2.4, "{probe:?}");
    assert_eq!(sorted(answer.rows), expected);
}

/// The build side's rows with the heavy key count once if no key is heavy, and on each rank
/// otherwise.
#[test]
fn rows_that_go_to_all_ranks_are_there_as_often_as_ranks() {
    let [left, right] = tables();
    let received = |heavy_keys| {
        let keys = ((int64(0), int64(10)), (0, &COMMON_KEYS[..]));
        let answer = run(RankShape::new(4), join_of(JoinKind::Left, [&left, &right], keys), heavy_keys);
        let [_, build] = shuffles(&answer);
        build.iter().map(|rank| rank.kept_rows + rank.received_rows).sum::<u64>()
    };
    let all = right.rows.len() as u64;
    assert_eq!((received(false), received(true)), (all, all + 3 * count_of(&right, HEAVY)));
}

#[test]
fn statistics_that_are_wrong_change_no_row() {
    let [left, right] = tables();
    let absent: &[(Value, f64)] = &[(Value::Int(123_456_789), 0.9)];
    let rare: &[(Value, f64)] = &[(Value::Int(8), 0.5), (Value::Int(-1), 0.2), (Value::Int(9), 0.3)];
    for (common, is_there) in [(absent, false), (rare, true)] {
        let keys = || ((int64(0), int64(10)), (0, common));
        let make = || join_of(JoinKind::Left, [&left, &right], keys());
        let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
        let answer = run(RankShape { seed: Some(5), ..RankShape::new(3) }, make(), true);
        assert_eq!(counter(&answer, "rows_heavy") > 0, is_there);
        assert_eq!(sorted(answer.rows), expected);
    }
}

#[test]
fn texts_and_numbers_of_a_wider_type_are_heavy_too() {
    let [left, right] = tables();
    let word = right.rows.iter().find_map(|row| row.text.clone()).expect("a text");
    let texts = (0..).zip(left.rows.clone()).map(|(number, row)| match number % 2 {
        0 => Row { text: Some(word.clone()), ..row },
        _ => row,
    });
    let left = Table::new(texts.collect());
    let decimal = |id| {
        let data_type = DataType::Decimal { precision: 19, scale: 0 };
        Expression::call(Function::Cast, vec![int64(id)], data_type)
    };
    let of_text: &[(Value, f64)] = &[(Value::Text(word), 0.5), (Value::Null, 0.05)];
    for (keys, common) in
        [((text(1), text(11)), (1, of_text)), ((decimal(0), decimal(10)), (0, &COMMON_KEYS[..]))]
    {
        let make = || join_of(JoinKind::Left, [&left, &right], (keys.clone(), common));
        let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
        for (rank_count, memory_bytes, seed) in [(2, PLENTY_BYTES / 4, Some(2)), (4, 6 << 20, None)] {
            let shape = RankShape { memory_bytes, seed, ..RankShape::new(rank_count) };
            let answer = run(shape, make(), true);
            let [probe, build] = shuffles(&answer);
            assert!(heavy_rows(&probe) >= 4000 && heavy_rows(&build) > 0, "{keys:?}: {probe:?} {build:?}");
            assert!(skew(&probe) < 1.2, "{keys:?}: {probe:?}");
            assert_eq!(sorted(answer.rows), expected, "{keys:?}, ranks {rank_count}");
        }
    }
}

#[test]
fn the_frequent_keys_of_a_right_side_are_split_where_the_left_one_is_hashed() {
    let [skewed, even] = tables();
    let make = || {
        let mut probe = expecting(skewed.scan(10), MANY_ROWS);
        tell_common(&mut probe, 10, &COMMON_KEYS);
        let sides = [expecting(even.scan(0), 4.0 * MANY_ROWS), probe];
        let both = joined(JoinKind::Inner, sides, &[(int64(0), int64(10))], JoinSide::Left);
        let count = aggregate_call(30, Aggregate::Count, Some(int64(13)), DataType::Int64);
        plan(aggregated(both, &[(20, int64(2))], vec![count], 3.0))
    };
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    let answer = run(RankShape::new(3), make(), true);
    let [probe, _] = shuffles(&answer);
    assert!(heavy_rows(&probe) >= count_of(&skewed, HEAVY) && skew(&probe) < 1.2, "{probe:?}");
    assert_eq!(sorted(answer.rows), expected);
}

#[test]
fn keys_of_which_statistics_say_nothing_are_counted_in_the_files() {
    let [left, right] = tables();
    let make = || join_of(JoinKind::Left, [&left, &right], ((int64(0), int64(10)), (0, &[])));
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    for (rank_count, memory_bytes, seed) in RANKS {
        let answer = run(RankShape { memory_bytes, seed, ..RankShape::new(rank_count) }, make(), true);
        let [probe, build] = shuffles(&answer);
        let heavy = heavy_rows(&probe);
        assert!((count_of(&left, HEAVY)..7000).contains(&heavy), "ranks {rank_count}: {probe:?}");
        assert!(heavy_rows(&build) >= count_of(&right, HEAVY), "ranks {rank_count}: {build:?}");
        assert!(skew(&probe) < 1.2, "ranks {rank_count}: {probe:?}");
        assert_eq!(sorted(answer.rows), expected, "ranks {rank_count}");
    }
    // Of the texts NULL alone is frequent.
    let plan = join_of(JoinKind::Left, [&left, &right], ((text(1), text(11)), (1, &[])));
    let [probe, build] = shuffles(&run(RankShape::new(4), plan, true));
    let null_count = left.rows.iter().filter(|row| row.text.is_none()).count() as u64;
    assert_eq!((heavy_rows(&probe), heavy_rows(&build)), (null_count, 0));
    let answer = run(RankShape::new(4), make(), false);
    assert_eq!(counter(&answer, "rows_heavy"), 0);
}
