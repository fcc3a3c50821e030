//! Text that passes between operators as codes: the same rows as without.

use std::collections::BTreeMap;

use pystachio_cases::Sample;
use pystachio_plan::{
    AggregatePhase, CaseBranch, Ctype, Function, JoinKey, JoinKind, JoinSide, NamedExpression, SortKey,
};

use super::{
    dictionaries::{forms, literal, number, of_text, properties, shape, test, without, written},
    *,
};
use crate::operation::GROUPS_OF_FEW;

fn named(id: u32, expression: Expression) -> NamedExpression {
    NamedExpression { id: ColumnId(id), expression }
}

fn length(argument: Expression) -> Expression {
    Expression::call(Function::Length, vec![argument], DataType::Int32)
}

/// 2 for text with an x, 1 for other text that comes early, else the row's number modulo that
/// value.
fn case() -> Expression {
    let branch = |condition, result| CaseBranch { condition, result };
    Expression::Case {
        branches: vec![
            branch(test(Function::Like, vec![text(1), literal("%x%")]), number(2)),
            branch(test(Function::Less, vec![text(1), literal("2")]), number(1)),
        ],
        otherwise: Some(Box::new(int64(3))),
        data_type: DataType::Int64,
    }
}

fn aggregate(
    input: Arc<Relation>,
    groups: Vec<NamedExpression>,
    aggregates: Vec<AggregateCall>,
) -> Arc<Relation> {
    Relation::new(Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole }, 1.0)
}

/// Every kind of aggregate, of text where it can be.
fn calls() -> Vec<AggregateCall> {
    let sum = DataType::Decimal { precision: 38, scale: 0 };
    vec![
        aggregate_call(200, Aggregate::Count, None, DataType::Int64),
        aggregate_call(201, Aggregate::Count, Some(text(1)), DataType::Int64),
        aggregate_call(202, Aggregate::Min, Some(text(1)), DataType::Text),
        aggregate_call(
            203,
            Aggregate::Max,
            Some(of_text(Function::Upper(Ctype::Ascii), vec![])),
            DataType::Text,
        ),
        aggregate_call(204, Aggregate::Sum, Some(case()), sum),
        AggregateCall {
            distinct: true,
            filter: Some(test(Function::NotEqual, vec![text(1), literal("7")])),
            ..aggregate_call(205, Aggregate::Count, Some(text(1)), DataType::Int64)
        },
    ]
}

/// A join of columns 0 to 3 with columns from 4 on.
fn joined(
    kind: JoinKind,
    build: JoinSide,
    [left, right]: [Arc<Relation>; 2],
    keys: &[(Expression, Expression)],
    residual: Option<Expression>,
) -> Arc<Relation> {
    let key = |(left, right): &(Expression, Expression)| JoinKey { left: left.clone(), right: right.clone() };
    let keys = keys.iter().map(key).collect();
    Relation::new(Operator::Join { kind, left, right, keys, residual, build }, 1.0)
}

/// Plans over text in every operator.
fn plans(table: &Table, other: &Table) -> Vec<(String, Plan)> {
    let scan = || table.scan(0);
    let upper = of_text(Function::Upper(Ctype::Ascii), vec![]);
    let start = of_text(Function::Substring, vec![Expression::int32(1), Expression::int32(2)]);
    let few = test(Function::Less, vec![int64(3), number(40)]);
    let mut plans = vec![
        ("groups of text", aggregate(scan(), vec![named(100, text(1))], calls())),
        (
            "groups of text and a number",
            aggregate(scan(), vec![named(100, int64(0)), named(101, text(1))], calls()),
        ),
        (
            "groups of expressions of text",
            aggregate(scan(), vec![named(100, upper.clone()), named(101, start)], calls()),
        ),
        ("different texts", aggregate(scan(), vec![named(100, text(1))], Vec::new())),
        ("one group", aggregate(scan(), Vec::new(), calls())),
        (
            "expressions",
            Relation::new(
                Operator::Project {
                    input: scan(),
                    expressions: vec![
                        named(100, length(text(1))),
                        named(101, upper.clone()),
                        named(102, case()),
                        named(103, text(1)),
                        named(104, of_text(Function::Concat, vec![upper.clone()])),
                        named(105, test(Function::Less, vec![text(1), upper.clone()])),
                        named(106, int64(3)),
                    ],
                },
                1.0,
            ),
        ),
        (
            "a filter of an expression",
            Relation::new(
                Operator::Filter {
                    input: Relation::new(
                        Operator::Project {
                            input: scan(),
                            expressions: vec![named(100, upper), named(101, text(1)), named(102, int64(3))],
                        },
                        1.0,
                    ),
                    predicate: test(
                        Function::Or,
                        vec![
                            test(Function::Like, vec![text(100), literal("%X1%")]),
                            test(Function::Less, vec![int64(102), number(100)]),
                        ],
                    ),
                },
                1.0,
            ),
        ),
        (
            "a limit",
            Relation::new(
                Operator::Limit { input: scan(), offset: Some(number(3)), count: Some(number(900)) },
                1.0,
            ),
        ),
        (
            "the first of a sort",
            Relation::new(
                Operator::Limit {
                    input: Relation::new(
                        Operator::Sort {
                            input: scan(),
                            keys: [text(1), int64(3)]
                                .map(|expression| SortKey { expression, descending: true, nulls_first: true })
                                .to_vec(),
                        },
                        1.0,
                    ),
                    offset: None,
                    count: Some(number(300)),
                },
                1.0,
            ),
        ),
        (
            "a union",
            aggregate(
                Relation::new(
                    Operator::UnionAll {
                        inputs: vec![
                            (scan(), vec![ColumnId(1), ColumnId(3)]),
                            (other.scan(4), vec![ColumnId(5), ColumnId(7)]),
                        ],
                        columns: vec![(ColumnId(300), DataType::Text), (ColumnId(301), DataType::Int64)],
                    },
                    1.0,
                ),
                vec![named(100, text(300))],
                vec![aggregate_call(200, Aggregate::Count, Some(int64(301)), DataType::Int64)],
            ),
        ),
        ("few rows of many", plan_of_few(table, &few)),
    ];
    let some = |limit| other.filtered(4, &[test(Function::Less, vec![int64(7), number(limit)])]);
    let by_number = [(int64(0), int64(4))];
    for kind in JOIN_KINDS {
        plans.push(("a join", joined(kind, JoinSide::Right, [scan(), some(30)], &by_number, None)));
    }
    let residual = test(Function::Less, vec![text(1), text(5)]);
    let pairs = joined(JoinKind::Left, JoinSide::Right, [scan(), some(60)], &by_number, Some(residual));
    let both = vec![named(100, text(1)), named(101, text(5)), named(102, length(text(5)))];
    let counted = vec![aggregate_call(200, Aggregate::Count, None, DataType::Int64)];
    // The few rows of each chunk are merged, and so have cells.
    plans.push(("both sides of a join in groups", aggregate(pairs, both, counted)));
    let named = plans.into_iter().enumerate();
    named.map(|(number, (name, root))| (format!("{name} ({number})"), plan(root))).collect()
}

/// Joins on text, and on expressions of text.
fn text_joins(table: &Table, other: &Table) -> Vec<(String, Plan)> {
    let upper = |id| Expression::call(Function::Upper(Ctype::Ascii), vec![text(id)], DataType::Text);
    let some = || other.filtered(4, &[test(Function::Less, vec![int64(7), number(40)])]);
    let none = || other.filtered(4, &[test(Function::Less, vec![int64(7), number(-1)])]);
    let keys = [
        ("text", vec![(text(1), text(5))]),
        ("expressions of text", vec![(upper(1), upper(5))]),
        ("text and a number", vec![(text(1), text(5)), (int64(0), int64(4))]),
    ];
    let mut plans = Vec::new();
    for kind in JOIN_KINDS {
        for (key, keys) in &keys {
            if kind == JoinKind::NullAwareAnti && keys.len() > 1 {
                continue;
            }
            for build in [JoinSide::Left, JoinSide::Right] {
                for (rows, right) in [("some", some()), ("no", none()), ("all", other.scan(4))] {
                    // A pair of one row with all is too many to check for each kind.
                    let residual = (rows == "all").then(|| test(Function::Less, vec![int64(3), int64(7)]));
                    if kind == JoinKind::NullAwareAnti && residual.is_some() {
                        continue;
                    }
                    let join = joined(kind, build, [table.scan(0), right], keys, residual);
                    let name = format!("{kind:?} join by {key}, build {build:?}, {rows} rows");
                    plans.push((name, plan(join)));
                }
            }
        }
    }
    plans
}

fn plan_of_few(table: &Table, few: &Expression) -> Arc<Relation> {
    aggregate(table.filtered(0, std::slice::from_ref(few)), vec![named(100, text(1))], calls())
}

fn other() -> Table {
    Table::made(Shape { seed: 92, row_count: 500, key_count: 20, repeated_percent: 5, null_percent: 5 })
}

/// The answer with codes, whose rows are those without.
fn answer_with_codes(fixture: &Fixture, plan: &Plan, context: &str) -> Answer {
    let [without, with] = [without(), DeviceSettings::default()].map(|settings| {
        let answer = fixture.run_with(plan.clone(), settings);
        let answer = answer.unwrap_or_else(|error| panic!("{context}: {error}"));
        Answer { rows: sorted(answer.rows), ..answer }
    });
    assert_eq!(with.rows, without.rows, "{context}");
    let counts = ["dictionary_rows_grouped", "dictionary_rows_probed"].map(|name| counter(&without, name));
    assert_eq!(counts, [0, 0], "{context}");
    with
}

#[test]
fn plans_over_codes_give_the_rows_of_plans_over_cells() {
    let (other, mut sample) = (other(), Sample::of("plans_over_codes"));
    for (form, properties, has_dictionary) in forms() {
        let table = written(properties);
        for (name, plan) in sample.take(plans(&table, &other)) {
            for memory_bytes in [PLENTY_BYTES, table.bytes() / 2] {
                let context = format!("{name}, {form}, memory {memory_bytes}");
                let answer = answer_with_codes(&Fixture::new(memory_bytes), &plan, &context);
                assert!(!answer.rows.is_empty() || name.contains("join"), "{context}");
                if name.starts_with("groups") && memory_bytes == PLENTY_BYTES {
                    let grouped = counter(&answer, "dictionary_rows_grouped");
                    // A row group with few rows for its entries comes as cells.
                    assert_eq!(grouped > 1000, has_dictionary, "{context}: {grouped}");
                }
            }
        }
    }
}

#[test]
fn joins_on_codes_give_the_rows_of_joins_on_cells() {
    let (other, mut sample) = (other(), Sample::of("joins_on_codes"));
    for (form, properties, has_dictionary) in forms() {
        let table = written(properties);
        for (name, plan) in sample.take(text_joins(&table, &other)) {
            let context = format!("{name}, {form}");
            let answer = answer_with_codes(&Fixture::new(PLENTY_BYTES), &plan, &context);
            if name.starts_with("Left join by text, build Right") {
                let probed = counter(&answer, "dictionary_rows_probed");
                assert_eq!(probed > 1000, has_dictionary, "{context}: {probed}");
            }
        }
    }
}

#[test]
fn joins_on_codes_spill_as_joins_on_cells_do() {
    let (other, shape) = (other(), Shape { row_count: 6000, ..shape() });
    let table = Table::written(std::env::temp_dir(), shape.rows(), properties().build());
    let joins = text_joins(&table, &other).into_iter().filter(|(name, _)| !name.ends_with("no rows"));
    for (name, plan) in Sample::of("joins_on_codes_spill").take(joins) {
        answer_with_codes(&Fixture::new(table.bytes() / 4), &plan, &name);
    }
}

/// Texts of a dictionary that are equal without the blanks at their end are one group, and NULL is one.
#[test]
fn groups_of_codes_are_those_of_their_texts() {
    let word = |number: i64| match number % 11 {
        10 => None,
        rest => Some(["a", "a ", "b", "a  ", "", " ", "b   ", "c", "c", " a"][rest as usize].to_owned()),
    };
    let rows: Vec<Row> = (0..2000)
        .map(|number| Row { key: Some(number % 3), text: word(number), value: None, number })
        .collect();
    let mut expected: BTreeMap<Option<&str>, (i64, i64)> = BTreeMap::new();
    for row in &rows {
        let group = expected.entry(row.text.as_deref().map(|text| text.trim_end_matches(' '))).or_default();
        *group = (group.0 + 1, group.1 + row.number);
    }
    let expected =
        expected.iter().map(|(text, (count, sum))| vec![shown(text), count.to_string(), sum.to_string()]);
    let expected = sorted(expected.collect());
    let table = Table::written(std::env::temp_dir(), rows.clone(), properties().build());
    let sum = DataType::Decimal { precision: 38, scale: 0 };
    let calls = vec![
        aggregate_call(200, Aggregate::Count, None, DataType::Int64),
        aggregate_call(201, Aggregate::Sum, Some(int64(3)), sum),
    ];
    // The second is for no slot.
    let least = aggregate_call(202, Aggregate::Min, Some(text(1)), DataType::Text);
    for (is_compared, calls) in [(false, calls.clone()), (true, [calls, vec![least]].concat())] {
        let grouped = plan(aggregate(table.scanned(0, &[], true), vec![named(100, text(1))], calls));
        let (settings, mut expected) = ([DeviceSettings::default(), without()], expected.clone());
        if is_compared {
            expected.iter_mut().for_each(|row| row.push(row[0].clone()));
        }
        for (settings, groups_codes) in settings.into_iter().zip([true, false]) {
            let platform = Watched::new(|_| Ok(()));
            let answer = Fixture::over(platform.clone(), PLENTY_BYTES).run_with(grouped.clone(), settings);
            assert_eq!(sorted(answer.unwrap().rows), expected);
            let by_code = |count: u64| if groups_codes { count } else { 0 };
            // One a row group; then the groups of all, by their texts.
            let by_slot = if is_compared { 0 } else { by_code(3) };
            assert_eq!(platform.calls.count("flag_slots"), by_slot);
            assert_eq!(platform.calls.count("assign_groups"), 4 - by_slot);
            assert_eq!(platform.calls.count(GROUPS_OF_FEW), by_code(3) - by_slot);
        }
    }
}
