//! Plans at random over small tables, with estimates, figures and costs at random too: whatever the choice, it must be right.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{ColumnRanges, ExchangeCosts, KeyRange, ScanFigures, range_columns},
    call, int,
    interpreter::{Cell, Random, Row, Tables},
    named, scan_typed,
};
use crate::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, CommonValue, DataType, Expression, FrameBound,
    FrameExclusion, FrameUnit, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan,
    Relation, SortKey, TwoLevelExchange, Value, WindowCall, WindowFrame, WindowFunction, exchange_key_type,
};

/// The tables' columns. One type for all would hide keys that are not cast.
const TYPES: [(&str, DataType); 3] =
    [("c0", DataType::Int64), ("c1", DataType::Int32), ("c2", DataType::Decimal { precision: 12, scale: 0 })];
/// The most rows of each table.
const TABLES: [(&str, usize); 4] = [("a", 40), ("b", 25), ("c", 8), ("d", 2)];
/// Values are below this, so that many are equal.
const VALUES: usize = 6;

/// What the rows of a plan must be on any number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    /// The same, in any order.
    Rows,
    /// The same, in the same order.
    Order,
    /// As many, and all among the rows of the plan without its limit.
    Some,
}

/// A plan with all that it needs.
pub(super) struct Case {
    pub(super) plan: Plan,
    pub(super) expected: Expected,
    pub(super) tables: Tables,
    pub(super) scans: Vec<ScanFigures>,
    pub(super) parameters: Vec<Cell>,
}

pub(super) struct Generator {
    pub(super) random: Random,
    next_id: u32,
}

type Typed = (ColumnId, DataType);

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random(seed), next_id: 1 }
    }

    pub(super) fn case(&mut self) -> Case {
        let tables = self.tables();
        let depth = 1 + self.random.below(5);
        let mut root = self.relation(depth);
        let mut expected = Expected::Rows;
        match self.random.below(4) {
            0 => {
                root = self.first_rows(&root);
                expected = Expected::Order;
            }
            1 => {
                root = self.sort(&root, true);
                expected = Expected::Order;
            }
            2 if self.random.chance(40) => {
                root = self.limit(root);
                expected = Expected::Some;
            }
            _ => {}
        }
        if self.random.chance(30) {
            root = self.project(&root);
        }
        let mut outputs: Vec<_> = root.columns().into_iter().map(|(id, _)| id).collect();
        self.random.shuffle(&mut outputs);
        outputs.truncate(self.random.below(outputs.len() + 1).max(1));
        let ranged = range_columns(&root);
        let scans = root.scans().into_iter().map(|scan| self.figures(scan, &ranged)).collect();
        let parameters = vec![Some(self.random.below(5) as i128), None];
        Case { plan: Plan { root, outputs }, expected, tables, scans, parameters }
    }

    fn tables(&mut self) -> Tables {
        let mut tables = Tables::new();
        for (name, rows_max) in TABLES {
            // Empty tables and such without NULLs are cases of their own.
            let row_count =
                if self.random.chance(8) { 0 } else { rows_max - self.random.below(rows_max / 2 + 1) };
            let null_percent = if self.random.chance(50) { 0 } else { 15 };
            let rows = (0..row_count).map(|_| (self.random.below(1000), self.row(null_percent))).collect();
            tables.insert(name.to_owned(), rows);
        }
        tables
    }

    fn row(&mut self, null_percent: usize) -> Row {
        let cell = |random: &mut Random| {
            if random.chance(null_percent) { None } else { Some(random.below(VALUES) as i128) }
        };
        TYPES.iter().map(|_| cell(&mut self.random)).collect()
    }

    /// Costs in which now this and now that is cheap.
    pub(super) fn costs(&mut self, (ranks, hosts): (u32, u32)) -> ExchangeCosts {
        let mut costs = ExchangeCosts { ranks, hosts, ..ExchangeCosts::default() };
        if self.random.chance(80) {
            costs.exchange_s = self.size(1e-9);
            costs.link_bytes_per_s = self.size(1e3);
            costs.host_link_bytes_per_s = self.size(1e3);
            costs.host_message_s = self.size(1e-9);
            costs.build_row_s = self.size(1e-12);
            costs.group_row_s = self.size(1e-12);
            costs.output_row_s = self.size(1e-12);
        }
        costs
    }

    pub(super) fn two_level(&mut self) -> TwoLevelExchange {
        *self.random.pick(&[TwoLevelExchange::Auto, TwoLevelExchange::On, TwoLevelExchange::Off])
    }

    /// A positive number of any magnitude above the least.
    fn size(&mut self, least: f64) -> f64 {
        least * 10f64.powi(self.random.below(8) as i32)
    }

    fn figures(&mut self, scan: &Operator, ranged: &BTreeSet<ColumnId>) -> ScanFigures {
        let encoded_bytes = if self.random.chance(25) { 100 } else { 10 << 30 };
        let Operator::Scan { columns, .. } = scan else { panic!("a scan is something else") };
        let mut ranges = Vec::new();
        for column in columns.iter().filter(|column| ranged.contains(&column.id)) {
            if self.random.chance(70) {
                ranges.push(self.ranges(column.id));
            }
        }
        ScanFigures { row_count: self.random.next() % 1_000_000, encoded_bytes, ranges }
    }

    /// Row groups that lie beside one another, whatever the table has.
    fn ranges(&mut self, column: ColumnId) -> ColumnRanges {
        let mut least = -1;
        let row_group = |_| {
            let greatest = least + self.random.below(2) as i64;
            let range = KeyRange { least, greatest, bytes: 1 + self.random.below(3) as u64 };
            least = greatest + i64::from(self.random.chance(70));
            range
        };
        ColumnRanges { column, row_groups: (0..8).map(row_group).collect() }
    }

    fn estimate(&mut self) -> f64 {
        match self.random.below(60) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => 0.0,
            3 => -1.0,
            _ => self.size(1.0),
        }
    }

    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn above(&mut self, operator: Operator) -> Arc<Relation> {
        let rows = self.estimate();
        Relation::new(operator, rows)
    }

    fn relation(&mut self, depth: usize) -> Arc<Relation> {
        if depth == 0 {
            return self.scan();
        }
        match self.random.below(21) {
            0 => self.filter(depth - 1),
            1 | 2 => {
                let input = self.relation(depth - 1);
                self.project(&input)
            }
            3..=10 => self.join(depth - 1),
            11..=14 => self.aggregate(depth - 1),
            15 => {
                let input = self.relation(depth - 1);
                self.sort(&input, false)
            }
            16 => {
                let input = self.relation(depth - 1);
                self.first_rows(&input)
            }
            17 => {
                let input = self.relation(depth - 1);
                self.count_of_some(input)
            }
            18 => self.union(depth - 1),
            19 => {
                let input = self.relation(depth - 1);
                self.windowed(input)
            }
            _ => self.scan(),
        }
    }

    fn scan(&mut self) -> Arc<Relation> {
        let (table, _) = *self.random.pick(&TABLES[..]);
        let mut columns = Vec::new();
        for (name, data_type) in TYPES {
            columns.push((self.id(), name, data_type));
        }
        let rows = self.estimate();
        let mut relation = scan_typed(table, &columns, rows);
        if let Operator::Scan { columns, .. } = &mut Arc::make_mut(&mut relation).operator {
            for column in columns {
                if self.random.chance(40) {
                    column.common = self.common_values(&column.data_type);
                }
            }
        }
        // Only of many rows it matters which values they have.
        if self.random.chance(40) {
            Arc::make_mut(&mut relation).estimate.rows = 1e9 * (1 + self.random.below(2)) as f64;
        }
        if self.random.chance(20) {
            let filter = self.condition(&relation.columns());
            if let Operator::Scan { filters, .. } = &mut Arc::make_mut(&mut relation).operator {
                filters.push(filter);
            }
        }
        relation
    }

    /// What statistics might say, which need not be so.
    fn common_values(&mut self, data_type: &DataType) -> Vec<CommonValue> {
        let value = |random: &mut Random| match (random.below(VALUES + 2), data_type) {
            (VALUES.., _) => Value::Null,
            (number, DataType::Decimal { .. }) => Value::Decimal(number as i128),
            (number, _) => Value::Int(number as i64),
        };
        let count = 1 + self.random.below(3);
        let common = |_| CommonValue {
            value: value(&mut self.random),
            share: *self.random.pick(&[0.01, 0.2, 0.5, 0.9]),
        };
        (0..count).map(common).collect()
    }

    fn filter(&mut self, depth: usize) -> Arc<Relation> {
        let input = self.relation(depth);
        let predicate = self.condition(&input.columns());
        self.above(Operator::Filter { input, predicate })
    }

    /// A column, or what can be made of one.
    fn value(&mut self, columns: &[Typed]) -> Expression {
        if columns.is_empty() {
            return int(3);
        }
        let (id, data_type) = self.random.pick(columns).clone();
        let column = Expression::column(id, data_type.clone());
        match (self.random.below(12), &data_type) {
            (0, DataType::Int64) => Expression::call(Function::Add, vec![column, int(1)], DataType::Int64),
            (1, DataType::Int32) => Expression::call(Function::Cast, vec![column], DataType::Int64),
            _ => column,
        }
    }

    fn condition(&mut self, columns: &[Typed]) -> Expression {
        let value = self.value(columns);
        let bound =
            Expression::literal(Value::Int(self.random.below(VALUES) as i64), value.data_type().clone());
        match self.random.below(10) {
            0 => Expression::predicate(Function::Equal, vec![value, bound]),
            1 => Expression::predicate(Function::IsNull, vec![value]),
            2 | 3 => Expression::predicate(Function::IsNotNull, vec![value]),
            4 | 5 => Expression::predicate(Function::Less, vec![bound, value]),
            _ => Expression::predicate(Function::Less, vec![value, bound]),
        }
    }

    fn project(&mut self, input: &Arc<Relation>) -> Arc<Relation> {
        let columns = input.columns();
        let mut expressions: Vec<NamedExpression> = Vec::new();
        for (id, data_type) in &columns {
            match self.random.below(8) {
                0 => {}
                1 | 2 => expressions.push(named(self.id(), Expression::column(*id, data_type.clone()))),
                _ => expressions.push(named(id.0, Expression::column(*id, data_type.clone()))),
            }
        }
        if expressions.is_empty() || self.random.chance(30) {
            let value = self.value(&columns);
            expressions.push(named(self.id(), value));
        }
        self.random.shuffle(&mut expressions);
        let rows = input.estimate.rows;
        Relation::new(Operator::Project { input: input.clone(), expressions }, rows)
    }

    fn join(&mut self, depth: usize) -> Arc<Relation> {
        let right_depth = depth.min(1 + self.random.below(2));
        let (left, right) = (self.relation(depth), self.relation(right_depth));
        let kinds = [
            JoinKind::Inner,
            JoinKind::Left,
            JoinKind::Full,
            JoinKind::Semi,
            JoinKind::Anti,
            JoinKind::NullAwareAnti,
        ];
        let kind = if self.random.chance(35) { JoinKind::Inner } else { *self.random.pick(&kinds) };
        let (left_columns, right_columns) = (left.columns(), right.columns());
        let key_count = match kind {
            JoinKind::NullAwareAnti => 1,
            _ if self.random.chance(10) => 0,
            _ => 1 + self.random.below(2),
        };
        let mut keys = Vec::new();
        for _ in 0..key_count {
            let (left, right) = (self.value(&left_columns), self.value(&right_columns));
            if exchange_key_type(left.data_type(), right.data_type()).is_some()
                || kind == JoinKind::NullAwareAnti
            {
                keys.push(JoinKey { left, right });
            }
        }
        let has_residual = kind != JoinKind::NullAwareAnti && self.random.chance(20);
        let residual = has_residual.then(|| {
            let (one, other) = (self.value(&left_columns), self.value(&right_columns));
            Expression::predicate(Function::Less, vec![one, other])
        });
        let build = if self.random.chance(50) { JoinSide::Left } else { JoinSide::Right };
        let joined = self.above(Operator::Join { kind, left, right, keys: keys.clone(), residual, build });
        if kind == JoinKind::Full && !keys.is_empty() && self.random.chance(70) {
            return self.merged(&joined, &keys);
        }
        joined
    }

    /// The merged columns of a full join, as SQL's USING has them.
    fn merged(&mut self, joined: &Arc<Relation>, keys: &[JoinKey]) -> Arc<Relation> {
        let mut expressions = Vec::new();
        for key in keys {
            let Some(common) = exchange_key_type(key.left.data_type(), key.right.data_type()) else {
                continue;
            };
            let cast = |side: &Expression| match *side.data_type() == common {
                true => side.clone(),
                false => Expression::call(Function::Cast, vec![side.clone()], common.clone()),
            };
            let merged = vec![cast(&key.left), cast(&key.right)];
            expressions.push(named(self.id(), Expression::call(Function::Coalesce, merged, common.clone())));
        }
        let rest = joined.columns().into_iter();
        expressions.extend(rest.map(|(id, data_type)| named(id.0, Expression::column(id, data_type))));
        Relation::new(Operator::Project { input: joined.clone(), expressions }, joined.estimate.rows)
    }

    fn aggregate(&mut self, depth: usize) -> Arc<Relation> {
        let input = self.relation(depth);
        let columns = input.columns();
        let mut groups: Vec<NamedExpression> = Vec::new();
        for _ in 0..*self.random.pick(&[0, 1, 1, 1, 2, 2]) {
            let expression = self.value(&columns);
            let id = match &expression {
                Expression::Column { id, .. }
                    if self.random.chance(60) && groups.iter().all(|known| known.id != *id) =>
                {
                    id.0
                }
                _ => self.id(),
            };
            groups.push(named(id, expression));
        }
        let mut aggregates = Vec::new();
        let same = self.value(&columns);
        let all_distinct = self.random.chance(20);
        let same_filter = self.random.chance(30).then(|| self.condition(&columns));
        for _ in 0..self.random.below(4) {
            let argument = if all_distinct { same.clone() } else { self.value(&columns) };
            let mut call = self.call(argument, &groups, &columns, all_distinct);
            if all_distinct {
                call.filter.clone_from(&same_filter);
            }
            aggregates.push(call);
        }
        if groups.is_empty() && aggregates.is_empty() {
            aggregates.push(call(self.id(), Aggregate::Count, None, DataType::Int64));
        }
        self.above(Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole })
    }

    fn call(
        &mut self,
        argument: Expression,
        groups: &[NamedExpression],
        columns: &[Typed],
        is_distinct: bool,
    ) -> AggregateCall {
        let data_type = argument.data_type().clone();
        let sum_type = match &data_type {
            DataType::Int64 => DataType::Decimal { precision: 38, scale: 0 },
            DataType::Int16 | DataType::Int32 => DataType::Int64,
            DataType::Decimal { .. } => DataType::Decimal { precision: 38, scale: 0 },
            _ => DataType::Int64,
        };
        let choice = if is_distinct { 1 + self.random.below(2) } else { self.random.below(6) };
        let (function, argument, data_type) = match choice {
            0 => (Aggregate::Count, None, DataType::Int64),
            1 => (Aggregate::Count, Some(argument), DataType::Int64),
            2 => (Aggregate::Sum, Some(argument), sum_type),
            3 => (Aggregate::Min, Some(argument), data_type),
            4 => (Aggregate::Max, Some(argument), data_type),
            _ => match groups.first() {
                Some(group) => {
                    let argument = group.expression.clone();
                    let data_type = argument.data_type().clone();
                    (Aggregate::AnyValue, Some(argument), data_type)
                }
                None => (Aggregate::Count, Some(argument), DataType::Int64),
            },
        };
        let distinct = argument.is_some() && (is_distinct || self.random.chance(12));
        let filter = (!is_distinct && self.random.chance(15)).then(|| self.condition(columns));
        AggregateCall { distinct, filter, ..call(self.id(), function, argument, data_type) }
    }

    /// Functions that are the same for peers: rows of one peer group come in any order.
    fn windowed(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let columns = input.columns();
        let partition = (0..self.random.below(3)).map(|_| self.value(&columns)).collect();
        let order = (0..self.random.below(3)).map(|_| SortKey {
            expression: self.value(&columns),
            descending: self.random.chance(50),
            nulls_first: self.random.chance(50),
        });
        let order = order.collect();
        let so_far = WindowFrame {
            unit: FrameUnit::Range { key: None, descending: false },
            start: FrameBound::Unbounded,
            end: FrameBound::Current,
            exclude: FrameExclusion::Nothing,
        };
        let mut calls = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let argument = self.value(&columns);
            let AggregateCall { id, function, argument, data_type, .. } =
                self.call(argument, &[], &columns, false);
            let frame = if self.random.chance(50) { so_far.clone() } else { WindowFrame::whole() };
            calls.push(match self.random.chance(30) {
                true => {
                    let (function, frame) = (WindowFunction::Rank, WindowFrame::whole());
                    WindowCall { id, function, argument: None, frame, data_type: DataType::Int64 }
                }
                false => {
                    let function = WindowFunction::Aggregate(function);
                    WindowCall { id, function, argument, frame, data_type }
                }
            });
        }
        self.above(Operator::Window { input, partition, order, calls })
    }

    /// A sort by a few columns, or by all of them, so that rows with one place are the same.
    fn sort(&mut self, input: &Arc<Relation>, is_total: bool) -> Arc<Relation> {
        let mut columns = input.columns();
        self.random.shuffle(&mut columns);
        if !is_total {
            columns.truncate(self.random.below(3));
        }
        let keys = columns.into_iter().map(|(id, data_type)| SortKey {
            expression: Expression::column(id, data_type),
            descending: self.random.chance(50),
            nulls_first: self.random.chance(50),
        });
        let operator = Operator::Sort { input: input.clone(), keys: keys.collect() };
        Relation::new(operator, input.estimate.rows)
    }

    /// The first rows in an order that leaves no choice.
    fn first_rows(&mut self, input: &Arc<Relation>) -> Arc<Relation> {
        let sorted = self.sort(input, true);
        let between = match self.random.below(4) {
            0 => {
                let predicate = self.condition(&sorted.columns());
                self.above(Operator::Filter { input: sorted, predicate })
            }
            1 => {
                // Keys that are lost here, or have other names.
                self.project(&sorted)
            }
            _ => sorted,
        };
        self.limit(between)
    }

    fn limit(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let number = |random: &mut Random, bound| match random.below(10) {
            0 => None,
            1 => Some(Expression::literal(Value::Null, DataType::Int64)),
            2 => Some(Expression::Parameter { index: random.below(2) as u32, data_type: DataType::Int64 }),
            _ => Some(int(random.below(bound) as i64)),
        };
        let offset = if self.random.chance(50) { None } else { number(&mut self.random, 4) };
        let count = number(&mut self.random, 12);
        self.above(Operator::Limit { input, offset, count })
    }

    /// How many rows a limit keeps, whichever they are.
    fn count_of_some(&mut self, input: Arc<Relation>) -> Arc<Relation> {
        let input = self.limit(input);
        let count = call(self.id(), Aggregate::Count, None, DataType::Int64);
        let phase = AggregatePhase::Whole;
        self.above(Operator::Aggregate { input, groups: Vec::new(), aggregates: vec![count], phase })
    }

    fn union(&mut self, depth: usize) -> Arc<Relation> {
        let count = 2 + self.random.below(2);
        let inputs: Vec<_> = (0..count).map(|_| self.relation(depth.min(2))).collect();
        let width = 1 + self.random.below(2);
        let mut taken: Vec<(Arc<Relation>, Vec<Typed>)> = Vec::new();
        for input in inputs {
            let columns = input.columns();
            let ids = (0..width).map(|_| self.random.pick(&columns).clone()).collect();
            taken.push((input, ids));
        }
        let mut columns = Vec::new();
        for place in 0..width {
            let types = taken.iter().map(|(_, ids)| ids[place].1.clone());
            let common = types.reduce(|one, other| exchange_key_type(&one, &other).unwrap_or(one));
            columns.push((ColumnId(self.id()), common.unwrap_or(DataType::Int64)));
        }
        let inputs = taken
            .into_iter()
            .map(|(input, ids)| (input, ids.into_iter().map(|(id, _)| id).collect()))
            .collect();
        self.above(Operator::UnionAll { inputs, columns })
    }
}
