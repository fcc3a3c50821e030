//! Percentiles and modes against plain loops, and the arrays that are no such thing.

use std::{cmp::Ordering, collections::BTreeMap};

use pystachio_plan::{AggregatePhase, CaseBranch, ErrorKind, Function, NamedExpression, SortKey, Value};

use super::*;

const MANY: &[u64] = &[3];

/// A value as the queries below order it: text, a whole number, or a float.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(String),
    Number(i64),
    Float(f64),
}

impl Item {
    /// In PostgreSQL's order, NaN last.
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => {
                a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
            _ => panic!("values of two types"),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Float(value) => format!("{value:?}"),
        }
    }

    fn float(&self) -> f64 {
        match self {
            Self::Float(value) => *value,
            other => panic!("{other:?} is no float"),
        }
    }
}

/// An aggregate of the values in an order, with the argument as an expression and as plain code.
struct Pick {
    function: Function,
    fraction: Option<f64>,
    argument: Expression,
    of_row: fn(&Row) -> Option<Item>,
    descending: bool,
    /// Only of rows whose number is even.
    filtered: bool,
}

impl Pick {
    /// What plain loops give for the rows of a group.
    fn expected(&self, rows: &[&Row]) -> String {
        let rows = rows.iter().filter(|row| !self.filtered || row.number % 2 == 0);
        let mut values: Vec<Item> = rows.filter_map(|row| (self.of_row)(row)).collect();
        values.sort_by(|a, b| if self.descending { b.order(a) } else { a.order(b) });
        if values.is_empty() {
            return "NULL".to_owned();
        }
        let fraction = self.fraction.unwrap_or(0.0);
        match self.function {
            Function::PercentileDisc => {
                let place = (fraction * values.len() as f64).ceil() as usize;
                values[place.max(1) - 1].show()
            }
            Function::PercentileCont => {
                let position = fraction * (values.len() - 1) as f64;
                let at = |place: f64| values[place as usize].float();
                let (low, high) = (at(position.floor()), at(position.ceil()));
                let is_whole = position.floor() == position.ceil();
                let value = if is_whole { low } else { low + (position - position.floor()) * (high - low) };
                Item::Float(value).show()
            }
            _ => {
                let runs = values.chunk_by(|a, b| a.order(b).is_eq());
                let best = runs.rev().max_by_key(|run| run.len()).unwrap();
                best[0].show()
            }
        }
    }
}

fn literal(value: f64) -> Expression {
    Expression::literal(Value::Float(value), DataType::Float64)
}

fn less(a: Expression, b: i64) -> Expression {
    let b = Expression::literal(Value::Int(b), DataType::Int64);
    Expression::predicate(Function::Less, vec![a, b])
}

/// Of the value, and far from it: below -450 the least float or minus infinity, from 400 on the greatest one, infinity and NaN.
fn float() -> Expression {
    let value = Expression::call(Function::Cast, vec![int64(2)], DataType::Float64);
    let tenth = Expression::call(Function::Divide, vec![value, literal(10.0)], DataType::Float64);
    let branch = |(bound, result): (i64, Expression)| CaseBranch { condition: less(int64(2), bound), result };
    let branches = [
        (-480, literal(f64::NEG_INFINITY)),
        (-450, literal(f64::MIN)),
        (400, tenth),
        (450, literal(f64::MAX)),
        (480, literal(f64::INFINITY)),
    ];
    let is_null = Expression::predicate(Function::IsNull, vec![int64(2)]);
    let null = Expression::literal(Value::Null, DataType::Float64);
    let branches =
        [CaseBranch { condition: is_null, result: null }].into_iter().chain(branches.map(branch)).collect();
    // A literal NaN is no expression like another.
    let infinities = vec![literal(f64::INFINITY); 2];
    let not_a_number = Expression::call(Function::Subtract, infinities, DataType::Float64);
    Expression::Case { branches, otherwise: Some(Box::new(not_a_number)), data_type: DataType::Float64 }
}

fn float_of(row: &Row) -> Option<Item> {
    row.value.map(|value| {
        Item::Float(match value {
            ..-480 => f64::NEG_INFINITY,
            -480..-450 => f64::MIN,
            -450..400 => value as f64 / 10.0,
            400..450 => f64::MAX,
            450..480 => f64::INFINITY,
            480.. => f64::NAN,
        })
    })
}

fn pick(function: Function, fraction: Option<f64>, argument: u32) -> Pick {
    let (argument, of_row): (Expression, fn(&Row) -> Option<Item>) = match argument {
        1 => (text(1), |row| row.text.clone().map(Item::Text)),
        2 => (int64(2), |row| row.value.map(Item::Number)),
        _ => (float(), float_of),
    };
    Pick { function, fraction, argument, of_row, descending: false, filtered: false }
}

fn picks() -> Vec<Pick> {
    let at = |fraction, argument| pick(Function::PercentileDisc, Some(fraction), argument);
    let between = |fraction| pick(Function::PercentileCont, Some(fraction), 0);
    vec![
        between(0.5),
        between(0.013),
        Pick { descending: true, ..between(0.99) },
        Pick { filtered: true, ..between(1.0) },
        between(0.0),
        at(0.0, 1),
        at(0.3, 2),
        Pick { descending: true, ..at(0.75, 1) },
        Pick { filtered: true, ..at(1.0, 2) },
        pick(Function::Mode, None, 1),
        Pick { descending: true, ..pick(Function::Mode, None, 2) },
        Pick { filtered: true, ..pick(Function::Mode, None, 2) },
    ]
}

/// The array of a pick's values.
fn array(id: u32, pick: &Pick) -> AggregateCall {
    let data_type = DataType::List(Box::new(pick.argument.data_type().clone()));
    let two = Expression::literal(Value::Int(2), DataType::Int64);
    let rest = Expression::call(Function::Modulo, vec![int64(3), two], DataType::Int64);
    AggregateCall {
        filter: pick.filtered.then(|| less(rest, 1)),
        order: vec![SortKey {
            expression: pick.argument.clone(),
            descending: pick.descending,
            nulls_first: pick.descending,
        }],
        ..aggregate_call(id, Aggregate::Array, Some(pick.argument.clone()), data_type)
    }
}

/// The picks by group, and with `others` a count and a sum beside them.
fn picked(input: Arc<Relation>, groups: &[Expression], picks: &[Pick], others: bool) -> Plan {
    let named = |(id, expression): (u32, &Expression)| NamedExpression {
        id: ColumnId(id),
        expression: expression.clone(),
    };
    let arrays: Vec<AggregateCall> = (200..).zip(picks).map(|(id, pick)| array(id, pick)).collect();
    let sum = DataType::Decimal { precision: 38, scale: 0 };
    let beside = match others {
        true => vec![
            aggregate_call(300, Aggregate::Count, None, DataType::Int64),
            aggregate_call(301, Aggregate::Sum, Some(int64(2)), sum),
        ],
        false => Vec::new(),
    };
    let column = |(id, data_type): (ColumnId, DataType)| NamedExpression {
        id: ColumnId(id.0 + 500),
        expression: Expression::column(id, data_type),
    };
    let mut results: Vec<NamedExpression> =
        (100..).zip(groups).map(|(id, group)| column((ColumnId(id), group.data_type().clone()))).collect();
    for (call, pick) in arrays.iter().zip(picks) {
        let array = Expression::column(call.id, call.data_type.clone());
        let arguments = [array].into_iter().chain(pick.fraction.map(literal)).collect();
        let data_type = pick.argument.data_type().clone();
        let expression = Expression::call(pick.function, arguments, data_type);
        results.push(NamedExpression { id: ColumnId(call.id.0 + 500), expression });
    }
    results.extend(beside.iter().map(|call| column((call.id, call.data_type.clone()))));
    let operator = Operator::Aggregate {
        input,
        groups: (100..).zip(groups).map(named).collect(),
        aggregates: arrays.into_iter().chain(beside).collect(),
        phase: AggregatePhase::Whole,
    };
    let input = Relation::new(operator, 100.0);
    plan(Relation::new(Operator::Project { input, expressions: results }, 100.0))
}

fn expected(rows: &[Row], key: fn(&Row) -> Vec<String>, picks: &[Pick], others: bool) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    let beside = |rows: &[&Row]| {
        let sum = rows.iter().filter_map(|row| row.value).reduce(|a, b| a + b);
        vec![rows.len().to_string(), shown(&sum)]
    };
    let result = |(key, rows): (Vec<String>, Vec<&Row>)| {
        let values = picks.iter().map(|pick| pick.expected(&rows));
        let own = if others { beside(&rows) } else { Vec::new() };
        key.into_iter().chain(values).chain(own).collect()
    };
    groups.into_iter().map(result).collect()
}

/// The rows of an answer with floats as this module shows them.
fn as_shown(rows: Vec<Vec<String>>, picks: &[Pick], key_count: usize) -> Vec<Vec<String>> {
    let is_float = |place: usize| {
        let pick = place.checked_sub(key_count).and_then(|place| picks.get(place));
        pick.is_some_and(|pick| *pick.argument.data_type() == DataType::Float64)
    };
    let value = |(place, value): (usize, String)| match value.parse::<f64>() {
        Ok(float) if is_float(place) => format!("{float:?}"),
        _ => value,
    };
    rows.into_iter().map(|row| row.into_iter().enumerate().map(value).collect()).collect()
}

fn table(row_count: usize, key_count: u64) -> Table {
    Table::made(Shape { seed: 91, row_count, key_count, repeated_percent: 4, null_percent: 3 })
}

#[test]
fn picks_are_those_of_plain_loops() {
    type KeyOf = fn(&Row) -> Vec<String>;
    let by_key: KeyOf = |row| vec![shown(&row.key)];
    let by_both: KeyOf = |row| vec![shown(&row.text), shown(&row.key)];
    let of_all: KeyOf = |_| Vec::new();
    let cases: [(u64, &[Expression], KeyOf); 4] = [
        (5, &[int64(0)], by_key),
        (3000, &[int64(0)], by_key),
        (4, &[text(1), int64(0)], by_both),
        (300, &[], of_all),
    ];
    for (key_count, groups, key) in cases {
        let table = table(6_000, key_count);
        for others in [false, true] {
            let picks = picks();
            let plan = picked(table.scan(0), groups, &picks, others);
            let context = format!("{} groups of {key_count} keys, others: {others}", groups.len());
            let answer = Fixture::new(PLENTY_BYTES).run(plan).unwrap();
            let found = sorted(as_shown(answer.rows, &picks, groups.len()));
            let expected = sorted(expected(&table.rows, key, &picks, others));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{context}");
            }
            assert_eq!(found.len(), expected.len(), "{context}");
        }
    }
}

#[test]
fn picks_spill() {
    let shape = Shape { seed: 92, row_count: 20_000, key_count: 1500, repeated_percent: 0, null_percent: 0 };
    let table = Table::made(shape);
    let picks = [pick(Function::PercentileDisc, Some(0.5), 1), pick(Function::Mode, None, 2)];
    let expected = expected(&table.rows, |row| vec![shown(&row.key)], &picks, true);
    let run = Run { parts: MANY, in_order: false, context: "picks" };
    check(|| picked(table.scan(0), &[int64(0)], &picks, true), table.bytes(), expected, run);
}

#[test]
fn picks_of_no_rows_are_null() {
    let table = Table::new(Vec::new());
    let picks = picks();
    for others in [false, true] {
        let all = Fixture::new(PLENTY_BYTES).run(picked(table.scan(0), &[], &picks, others)).unwrap();
        let mut row = vec!["NULL".to_owned(); picks.len()];
        if others {
            row.extend(["0".to_owned(), "NULL".to_owned()]);
        }
        assert_eq!(all.rows, [row]);
        let plan = picked(table.scan(0), &[int64(0)], &picks, others);
        let by_key = Fixture::new(PLENTY_BYTES).run(plan).unwrap();
        assert_eq!(by_key.rows, Vec::<Vec<String>>::new());
    }
}

#[test]
fn picks_of_one_order_sort_once() {
    let table = table(6_000, 100);
    let sorts = |picks: &[Pick]| {
        let platform = Watched::new(|_| Ok(()));
        let fixture = Fixture::over(platform.clone(), PLENTY_BYTES);
        fixture.run(picked(table.scan(0), &[int64(0)], picks, false)).unwrap();
        platform.calls.count("encode_sort_words")
    };
    let at = |fraction| pick(Function::PercentileDisc, Some(fraction), 2);
    let of_one = sorts(&[at(0.5)]);
    assert!(of_one > 0);
    assert_eq!(sorts(&[at(0.1), at(0.5), at(0.9), pick(Function::Mode, None, 2)]), of_one);
    assert_eq!(sorts(&[at(0.5), Pick { descending: true, ..at(0.5) }]), 2 * of_one);
}

/// What the engine says of a plan, and the description of the operator that it refuses.
fn refusal(plan: Plan) -> (String, bool) {
    let fixture = Fixture::new(PLENTY_BYTES);
    let operator = fixture.engine.refused_operator(&request(plan.clone()), &StopFlag::default()).unwrap();
    let Operator::Project { input, .. } = &plan.root.operator else { panic!("it ends in a projection") };
    let error = fixture.run(plan.clone()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotSupported);
    (error.message, operator == Some(Arc::as_ptr(input) as usize))
}

#[test]
fn an_array_that_is_read_otherwise_is_refused() {
    let table = table(100, 3);
    let median =
        || picked(table.scan(0), &[int64(0)], &[pick(Function::PercentileDisc, Some(0.5), 2)], false);
    let refused = ("array is not computed on the GPU here: no kernel computes it".to_owned(), true);
    // The array itself is returned too.
    let with = |change: &dyn Fn(&mut Vec<NamedExpression>, &mut Vec<AggregateCall>)| {
        let Plan { root, .. } = median();
        let Operator::Project { input, expressions } = &root.operator else { panic!("no projection") };
        let (mut input, mut expressions) = (input.clone(), expressions.clone());
        let Operator::Aggregate { aggregates, .. } = &mut Arc::make_mut(&mut input).operator else {
            panic!("no aggregate")
        };
        change(&mut expressions, aggregates);
        plan(Relation::new(Operator::Project { input, expressions }, 1.0))
    };
    let of_array =
        |aggregates: &[AggregateCall]| Expression::column(aggregates[0].id, aggregates[0].data_type.clone());
    let also_returned = with(&|expressions, aggregates| {
        let expression = of_array(aggregates);
        expressions.push(NamedExpression { id: ColumnId(900), expression });
    });
    assert_eq!(refusal(also_returned), refused);
    let several_fractions = with(&|expressions, aggregates| {
        let arguments = vec![of_array(aggregates), literal(0.1), literal(0.9)];
        let list = aggregates[0].data_type.clone();
        let expression = Expression::call(Function::PercentileDisc, arguments, list);
        expressions.push(NamedExpression { id: ColumnId(900), expression });
    });
    assert_eq!(refusal(several_fractions), refused);
    let in_another_order = with(&|_, aggregates| aggregates[0].order[0].expression = int64(3));
    assert_eq!(refusal(in_another_order), refused);
    // The place of an operator is that in the plan, also where other arrays are left out.
    let one_of_two = with(&|expressions, aggregates| {
        let other = AggregateCall { id: ColumnId(299), ..aggregates[0].clone() };
        aggregates.push(other);
        let expression = Expression::column(ColumnId(299), aggregates[1].data_type.clone());
        expressions.push(NamedExpression { id: ColumnId(900), expression });
    });
    assert_eq!(refusal(one_of_two), refused);
}
