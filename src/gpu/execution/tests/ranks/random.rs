//! Random plans, with random costs so that rows change ranks in different places, and random
//! settings of exchanges.

use pystachio_plan::{
    EXCHANGE_GROUPS_MAX, EXCHANGE_SENDERS_MAX, ExchangeCompression, ExchangeSettings, FrameBound,
    FrameExclusion, FrameUnit, Function, TwoLevelExchange, Value, WindowCall, WindowFrame, WindowFunction,
};

use super::*;

/// From here on there are plans of every kind that must occur.
const FIRST_SEED: u64 = 221;
/// Plans of one run; `PYSTACHIO_ROUNDS` asks for more.
const PLANS: u64 = 40;

type Typed = (ColumnId, DataType);

struct Generator<'a> {
    random: Random,
    tables: &'a [Table],
    next_id: u32,
}

impl Generator<'_> {
    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize].clone()
    }

    fn rows(&mut self) -> f64 {
        10f64.powi(self.random.below(7) as i32)
    }

    fn above(&mut self, operator: Operator) -> Arc<Relation> {
        let rows = self.rows();
        Relation::new(operator, rows)
    }

    fn column(&mut self, columns: &[Typed], data_type: &DataType) -> Option<Expression> {
        let known: Vec<Typed> = columns.iter().filter(|(_, known)| known == data_type).cloned().collect();
        if known.is_empty() {
            return None;
        }
        let (id, data_type) = self.pick(&known);
        Some(Expression::column(id, data_type))
    }

    fn scan(&mut self) -> Arc<Relation> {
        let first = self.next_id + 1;
        self.next_id += 4;
        let place = self.random.below(self.tables.len() as u64) as usize;
        let mut conditions = Vec::new();
        if self.chance(40) {
            conditions.push(self.condition(&[(ColumnId(first + 2), DataType::Int64)]));
        }
        let mut relation = self.tables[place].filtered(first, &conditions);
        let rows = self.rows();
        Arc::make_mut(&mut relation).estimate.rows = rows;
        if self.chance(30) {
            self.tell_common_keys(&mut relation, first);
        }
        relation
    }

    /// Possible statistics of a scan of many rows: keys that exist, or not.
    fn tell_common_keys(&mut self, relation: &mut Arc<Relation>, first: u32) {
        let key = self.random.below(400) as i64;
        let values = [(Value::Int(7), 0.3), (Value::Int(key), 0.3), (Value::Null, 0.3)];
        heavy::tell_common(relation, first, &values);
        Arc::make_mut(relation).estimate.rows = 1e8;
    }

    fn condition(&mut self, columns: &[Typed]) -> Expression {
        let bound = Expression::literal(Value::Int(self.random.below(1000) as i64 - 500), DataType::Int64);
        match self.column(columns, &DataType::Int64) {
            None => Expression::literal(Value::Bool(true), DataType::Bool),
            Some(column) if self.chance(50) => Expression::predicate(Function::Less, vec![column, bound]),
            Some(column) => Expression::predicate(Function::Less, vec![bound, column]),
        }
    }

    fn relation(&mut self, depth: u64) -> Arc<Relation> {
        if depth == 0 {
            return self.scan();
        }
        match self.random.below(13) {
            0..=4 => self.join(depth - 1),
            5..=7 => self.aggregate(depth - 1),
            8 => {
                let input = self.relation(depth - 1);
                let predicate = self.condition(&input.columns());
                self.above(Operator::Filter { input, predicate })
            }
            9 => self.union(depth - 1),
            10 => {
                let input = self.relation(depth - 1);
                self.first_rows(input)
            }
            11 => {
                let input = self.relation(depth - 1);
                self.windowed(input)
            }
            _ => self.scan(),
        }
    }

    fn join(&mut self, depth: u64) -> Arc<Relation> {
        let right_depth = self.random.below(depth + 1);
        let (left, right) = (self.relation(depth), self.relation(right_depth));
        let kind = if self.chance(40) { JoinKind::Inner } else { self.pick(&JOIN_KINDS) };
        let key_count = if kind == JoinKind::NullAwareAnti { 1 } else { 1 + self.random.below(2) };
        let mut keys = Vec::new();
        for _ in 0..key_count {
            let data_type = if self.chance(70) { DataType::Int64 } else { DataType::Text };
            let sides = (self.column(&left.columns(), &data_type), self.column(&right.columns(), &data_type));
            if let (Some(left), Some(right)) = sides {
                keys.push(JoinKey { left, right });
            }
        }
        if keys.is_empty() {
            return left;
        }
        let build = if self.chance(50) { JoinSide::Left } else { JoinSide::Right };
        let residual = None;
        let joined = self.above(Operator::Join { kind, left, right, keys, residual, build });
        // Joins of joins of joins would have far too many rows.
        if depth > 0 { self.aggregate_of(joined) } else { joined }
    }

    fn aggregate(&mut self, depth: u64) -> Arc<Relation> {
        let input = self.relation(depth);
        self.aggregate_of(input)
    }

    fn aggregate_of(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let columns = input.columns();
        let mut groups = Vec::new();
        for _ in 0..self.random.below(3) {
            let (id, data_type) = self.pick(&columns);
            groups.push((self.id(), Expression::column(id, data_type)));
        }
        let distinct = self.chance(20);
        let same = self.column(&columns, &DataType::Int64);
        let mut calls = vec![aggregate_call(self.id(), Aggregate::Count, None, DataType::Int64)];
        if distinct && same.is_some() {
            calls.clear();
        }
        for _ in 0..1 + self.random.below(3) {
            let argument = if distinct { same.clone() } else { self.column(&columns, &DataType::Int64) };
            let Some(argument) = argument else { continue };
            let choice = if distinct { self.random.below(2) } else { self.random.below(4) };
            let (function, data_type) = match choice {
                0 => (Aggregate::Count, DataType::Int64),
                1 => (Aggregate::Sum, DataType::Decimal { precision: 38, scale: 0 }),
                2 => (Aggregate::Min, DataType::Int64),
                _ => (Aggregate::Max, DataType::Int64),
            };
            let filter = (!distinct && self.chance(20)).then(|| self.condition(&columns));
            let call = aggregate_call(self.id(), function, Some(argument), data_type);
            calls.push(AggregateCall { distinct, filter, ..call });
        }
        let rows = self.rows();
        aggregated(input, &groups, calls, rows)
    }

    /// Functions that are the same for peers: rows of one peer group come in any order.
    fn windowed(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let columns = input.columns();
        let mut partition = Vec::new();
        for _ in 0..self.random.below(3) {
            let (id, data_type) = self.pick(&columns);
            partition.push(Expression::column(id, data_type));
        }
        let key = self.column(&columns, &DataType::Int64).map(|expression| SortKey {
            expression,
            descending: self.chance(50),
            nulls_first: self.chance(50),
        });
        let descending = key.as_ref().is_some_and(|key| key.descending);
        let so_far = WindowFrame {
            unit: FrameUnit::Range { key: None, descending },
            start: FrameBound::Unbounded,
            end: FrameBound::Current,
            exclude: FrameExclusion::Nothing,
        };
        let (number, whole) = (DataType::Int64, WindowFrame::whole());
        let mut calls = vec![(WindowFunction::Rank, None, whole.clone(), number.clone())];
        if let Some(argument) = self.column(&columns, &number) {
            let sum = DataType::Decimal { precision: 38, scale: 0 };
            let aggregate = WindowFunction::Aggregate;
            calls.push((aggregate(Aggregate::Sum), Some(argument.clone()), so_far.clone(), sum));
            calls.push((aggregate(Aggregate::Min), Some(argument), whole, number));
        }
        let calls = calls.into_iter().map(|(function, argument, frame, data_type)| {
            let id = ColumnId(self.id());
            WindowCall { id, function, argument, frame, data_type }
        });
        let calls = calls.collect();
        self.above(Operator::Window { input, partition, order: key.into_iter().collect(), calls })
    }

    fn union(&mut self, depth: u64) -> Arc<Relation> {
        let mut inputs = Vec::new();
        for _ in 0..2 + self.random.below(2) {
            let input = self.relation(depth.min(1));
            let ids = input.columns().into_iter();
            let numbers: Vec<ColumnId> =
                ids.filter(|(_, data_type)| *data_type == DataType::Int64).map(|(id, _)| id).collect();
            if !numbers.is_empty() {
                let ids = vec![self.pick(&numbers), self.pick(&numbers)];
                inputs.push((input, ids));
            }
        }
        if inputs.is_empty() {
            return self.scan();
        }
        let columns = vec![(ColumnId(self.id()), DataType::Int64), (ColumnId(self.id()), DataType::Int64)];
        self.above(Operator::UnionAll { inputs, columns })
    }

    /// In an order that leaves no choice.
    fn sorted(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let mut keys = Vec::new();
        for (id, data_type) in input.columns() {
            keys.push((Expression::column(id, data_type), self.chance(50)));
        }
        let turn = self.random.below(keys.len() as u64) as usize;
        keys.rotate_left(turn);
        sorted_by(input, &keys)
    }

    fn first_rows(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let sorted = self.sorted(input);
        let (offset, count) = (self.random.below(20) as i64, self.random.below(200) as i64);
        limited(sorted, offset, count)
    }

    fn costs(&mut self) -> ExchangeCosts {
        let mut costs = ExchangeCosts::default();
        if self.chance(70) {
            costs.whole_scan_bytes_max = 0;
        }
        if self.chance(80) {
            let size = |random: &mut Random, least: f64| least * 10f64.powi(random.below(8) as i32);
            costs.exchange_s = size(&mut self.random, 1e-9);
            costs.link_bytes_per_s = size(&mut self.random, 1e3);
            costs.build_row_s = size(&mut self.random, 1e-12);
            costs.group_row_s = size(&mut self.random, 1e-12);
        }
        costs
    }

    fn exchange(&mut self) -> ExchangeSettings {
        ExchangeSettings {
            broadcast_choice: self.chance(70),
            compression: match self.chance(50) {
                true => ExchangeCompression::On,
                false => ExchangeCompression::Off,
            },
            filters: self.chance(70),
            gathering: self.chance(50),
            heavy_keys: self.chance(80),
            groups_max: 1 + self.random.below(u64::from(EXCHANGE_GROUPS_MAX)) as u8,
            overlap: self.chance(70),
            senders_max: 1 + self.random.below(u64::from(EXCHANGE_SENDERS_MAX)) as u8,
            two_level: self.pick(&[TwoLevelExchange::On, TwoLevelExchange::Auto, TwoLevelExchange::Off]),
        }
    }
}

#[test]
fn plans_at_random_give_what_one_rank_gives() {
    let first: u64 =
        std::env::var("PYSTACHIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(FIRST_SEED);
    let count = std::env::var("PYSTACHIO_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(PLANS);
    let shape = |seed, row_count, key_count| Shape {
        seed,
        row_count,
        key_count,
        repeated_percent: 2,
        null_percent: 4,
    };
    // In the order of a key that is never NULL.
    let in_order = |shape: Shape| {
        let mut rows = Shape { null_percent: 0, ..shape }.rows();
        rows.sort_by_key(|row| row.key);
        Table::new(rows)
    };
    let tables = [
        in_order(shape(1, 700, 300)),
        in_order(shape(2, 240, 100)),
        Table::made(shape(3, 0, 1)),
        in_order(shape(4, 900, 300)),
    ];
    let alone = Fixture::new(PLENTY_BYTES);
    let (mut distributed_count, mut ranged_count, mut heavy_count) = (0, 0, 0);
    for seed in first..first + count {
        let mut generator = Generator { random: Random::new(seed), tables: &tables, next_id: 0 };
        let depth = 1 + generator.random.below(3);
        let mut root = generator.relation(depth);
        let in_order = generator.chance(30);
        if in_order {
            root = generator.sorted(root);
            if generator.chance(60) {
                root = limited(root, generator.random.below(5) as i64, generator.random.below(100) as i64);
            }
        }
        let costs = generator.costs();
        let rank_count = 2 + generator.random.below(3) as usize;
        let host_counts: Vec<usize> =
            (1..=rank_count).filter(|hosts| rank_count.is_multiple_of(*hosts)).collect();
        let host_count = generator.pick(&host_counts);
        let shape = RankShape {
            seed: generator.chance(60).then_some(seed),
            memory_bytes: if generator.chance(30) { 8 << 20 } else { PLENTY_BYTES / 4 },
            host_count,
            options: RankedOptions { costs, ..on_all() },
            ..RankShape::new(rank_count)
        };
        let in_any = |rows| if in_order { rows } else { sorted(rows) };
        let expected = alone.run(plan(root.clone()));
        let device = DeviceSettings { exchange: generator.exchange(), ..DeviceSettings::default() };
        let asked = QueryRequest { device, ..request(plan(root.clone())) };
        let found = RankedFixture::new(shape).run_request(asked);
        let context = format!("seed {seed}, ranks {rank_count}, hosts {host_count}");
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                distributed_count += u64::from(is_distributed(&found));
                ranged_count += u64::from(has_ranges(&found));
                heavy_count += u64::from(counter(&found, "rows_heavy") > 0);
                assert_eq!(in_any(found.rows), in_any(expected.rows), "{context}");
            }
            (expected, found) => panic!("{context}: {:?}, {:?}", expected.err(), found.err()),
        }
    }
    println!("{heavy_count} of {count} plans had rows with heavy keys");
    assert!(distributed_count * 2 > count, "{distributed_count} of {count} plans ran on several ranks");
    assert!(ranged_count * 20 >= count, "{ranged_count} of {count} plans had tables partitioned by ranges");
}
