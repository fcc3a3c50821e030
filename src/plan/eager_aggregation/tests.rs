use super::*;
use crate::{Function, JoinKey, PlanFacts, ScanExtent, Value, plan_lines, prune_columns};

/// Ids of the facts' columns: two keys, and numbers.
const ITEM: u32 = 1;
const DAY: u32 = 2;
const QUANTITY: u32 = 3;
const PRICE: u32 = 4;
/// Those of the dimensions.
const I_ITEM: u32 = 11;
const BRAND: u32 = 12;
const I_PRICE: u32 = 13;
const D_DAY: u32 = 21;
const MONTH: u32 = 22;

const PRICE_TYPE: DataType = DataType::Decimal { precision: 7, scale: 2 };

fn type_of(id: u32) -> DataType {
    match id {
        PRICE | I_PRICE => PRICE_TYPE,
        BRAND | MONTH => DataType::Text,
        _ => DataType::Int32,
    }
}

fn column(id: u32) -> Expression {
    Expression::column(ColumnId(id), type_of(id))
}

fn scan(table: &str, columns: &[(u32, &str)], rows: f64) -> Arc<Relation> {
    let column = |(id, name): &(u32, &str)| ScanColumn {
        id: ColumnId(*id),
        name: (*name).to_owned(),
        field_id: None,
        within: Vec::new(),
        data_type: type_of(*id),
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        common: Vec::new(),
    };
    let operator = Operator::Scan {
        table: table.to_owned(),
        files: FileSet::parquet(vec![table.to_owned()]),
        columns: columns.iter().map(column).collect(),
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    Relation::new(operator, rows)
}

fn facts() -> Arc<Relation> {
    scan("facts", &[(ITEM, "item"), (DAY, "day"), (QUANTITY, "q"), (PRICE, "p")], 1e6)
}

fn items(rows: f64) -> Arc<Relation> {
    scan("items", &[(I_ITEM, "i"), (BRAND, "brand"), (I_PRICE, "i_p")], rows)
}

fn days(rows: f64) -> Arc<Relation> {
    scan("days", &[(D_DAY, "d"), (MONTH, "month")], rows)
}

fn join(
    kind: JoinKind,
    inputs: (Arc<Relation>, Arc<Relation>),
    keys: (u32, u32),
    rows: f64,
) -> Arc<Relation> {
    let operator = Operator::Join {
        kind,
        left: inputs.0,
        right: inputs.1,
        keys: vec![JoinKey { left: column(keys.0), right: column(keys.1) }],
        residual: None,
        build: JoinSide::Right,
    };
    Relation::new(operator, rows)
}

/// The facts with their items.
fn sold() -> Arc<Relation> {
    join(JoinKind::Inner, (facts(), items(1e3)), (ITEM, I_ITEM), 1e6)
}

fn call(id: u32, function: Aggregate, argument: Option<Expression>, data_type: DataType) -> AggregateCall {
    AggregateCall {
        id: ColumnId(id),
        function,
        argument,
        distinct: false,
        filter: None,
        data_type,
        order: vec![],
    }
}

fn sum_of(argument: Expression) -> AggregateCall {
    let data_type = match argument.data_type() {
        DataType::Decimal { scale, .. } => DataType::Decimal { precision: 38, scale: *scale },
        float if float.is_float() => float.clone(),
        _ => DataType::Int64,
    };
    call(100, Aggregate::Sum, Some(argument), data_type)
}

fn aggregate(input: Arc<Relation>, groups: &[u32], aggregates: Vec<AggregateCall>) -> Arc<Relation> {
    let group = |id: &u32| named(ColumnId(50 + id), column(*id));
    let groups = groups.iter().map(group).collect();
    let operator = Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole };
    Relation::new(operator, 100.0)
}

/// A thousand items and days, and nothing known of other columns.
fn bounds(_: &FileSet, column: &ScanColumn) -> Option<(f64, f64)> {
    matches!(column.name.as_str(), "item" | "day" | "i" | "d").then_some((1.0, 1e3))
}

fn rewritten(root: &Arc<Relation>) -> Plan {
    let outputs = root.columns().into_iter().map(|(id, _)| id).collect();
    let mut next = 1000;
    let plan = Plan { root: root.clone(), outputs };
    let plan = aggregate_below_joins(&plan, &bounds, &mut || {
        next += 1;
        ColumnId(next)
    });
    assert_eq!(plan.root.columns(), root.columns(), "ids and types stay");
    prune_columns(&plan)
}

fn lines(root: &Arc<Relation>) -> Vec<String> {
    let lines = plan_lines(&rewritten(root), PlanFacts::default());
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

fn is_rewritten(root: &Arc<Relation>) -> bool {
    let outputs = root.columns().into_iter().map(|(id, _)| id).collect();
    rewritten(root) != prune_columns(&Plan { root: root.clone(), outputs })
}

#[test]
fn groups_by_a_dimension_are_made_of_groups_by_its_key() {
    let found = lines(&aggregate(sold(), &[BRAND], vec![sum_of(column(PRICE))]));
    let expected = [
        "Aggregate sum(sum(p)) by brand",
        "Inner join on item = i, build right",
        "Aggregate sum(p) by item",
        "Scan facts [item, p]",
        "Scan items [i, brand]",
    ];
    assert_eq!(found, expected);
}

#[test]
fn inner_groups_have_all_columns_that_are_read_above() {
    let below = join(JoinKind::Inner, (facts(), days(1e3)), (DAY, D_DAY), 1e6);
    let input = join(JoinKind::Inner, (below, items(1e3)), (ITEM, I_ITEM), 1e6);
    // The month is a text of unknown values, and days times items are too many.
    assert!(!is_rewritten(&aggregate(input.clone(), &[BRAND, MONTH], vec![sum_of(column(PRICE))])));
    let found = lines(&aggregate(input, &[BRAND], vec![sum_of(column(PRICE))]));
    let place = found.iter().position(|line| line == "Aggregate sum(p) by item");
    let days = found.iter().position(|line| line == "Inner join on day = d, build right");
    assert!(place.is_some() && place < days, "{found:?}");
}

#[test]
fn the_deepest_level_that_pays_saves_most() {
    let few = |_: &FileSet, column: &ScanColumn| match column.name.as_str() {
        "item" | "day" => Some((1.0, 10.0)),
        _ => None,
    };
    let below = join(JoinKind::Inner, (facts(), days(10.0)), (DAY, D_DAY), 1e6);
    let input = join(JoinKind::Inner, (below, items(10.0)), (ITEM, I_ITEM), 1e6);
    let root = aggregate(input, &[BRAND, MONTH], vec![sum_of(column(PRICE))]);
    let mut next = 1000;
    let plan = Plan { root, outputs: vec![ColumnId(100)] };
    let plan = aggregate_below_joins(&plan, &few, &mut || {
        next += 1;
        ColumnId(next)
    });
    let found = plan_lines(&prune_columns(&plan), PlanFacts::default());
    let aggregate = found.iter().position(|line| line.trim() == "Aggregate sum(p) by item, day");
    assert_eq!(
        aggregate.map(|place| found[place + 1].trim()),
        Some("Scan facts [item, day, p]"),
        "{found:?}"
    );
}

#[test]
fn counts_become_sums_and_extremes_of_the_dimension_stay_above() {
    let mut filtered = call(101, Aggregate::Count, None, DataType::Int64);
    filtered.filter =
        Some(Expression::predicate(Function::Greater, vec![column(QUANTITY), Expression::int32(5)]));
    let calls = vec![
        call(100, Aggregate::Count, None, DataType::Int64),
        filtered,
        call(102, Aggregate::Max, Some(column(I_PRICE)), PRICE_TYPE),
        call(103, Aggregate::Min, Some(column(QUANTITY)), DataType::Int32),
    ];
    let found = lines(&aggregate(sold(), &[BRAND], calls));
    let inner = "Aggregate count(*), count(*) FILTER ((q > 5)), min(q) by item";
    assert!(found.contains(&inner.to_owned()), "{found:?}");
    let outer = "Aggregate sum(count(*)), sum(count(*) FILTER ((q > 5))), max(i_p), min(min(q)) by brand";
    assert!(found.contains(&outer.to_owned()), "{found:?}");
}

#[test]
fn partial_sums_of_integers_are_wider_than_the_result() {
    let plan = rewritten(&aggregate(sold(), &[BRAND], vec![sum_of(column(QUANTITY))]));
    let mut relation = &plan.root;
    let mut types = Vec::new();
    while let Some(input) = relation.inputs().first().copied() {
        if let Operator::Aggregate { aggregates, .. } = &relation.operator {
            types.extend(aggregates.iter().map(|call| call.data_type.clone()));
        }
        relation = input;
    }
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    assert_eq!(types, [wide.clone(), wide]);
}

#[test]
fn what_is_not_made_in_two_steps_stays() {
    let stays = |call: AggregateCall| !is_rewritten(&aggregate(sold(), &[BRAND], vec![call]));
    let float = Expression::call(Function::Cast, vec![column(QUANTITY)], DataType::Float64);
    assert!(stays(sum_of(float)));
    assert!(stays(AggregateCall { distinct: true, ..sum_of(column(PRICE)) }));
    // A sum of the dimension's values depends on how many facts there are, and so does one of both.
    assert!(stays(sum_of(column(I_PRICE))));
    let both = Expression::call(Function::Least, vec![column(PRICE), column(I_PRICE)], PRICE_TYPE);
    assert!(stays(call(100, Aggregate::Max, Some(both), PRICE_TYPE)));
    // Facts without an item may be zero.
    let quotient = vec![Expression::int32(1), column(QUANTITY)];
    assert!(stays(sum_of(Expression::call(Function::Divide, quotient, DataType::Int32))));
    // Partial sums of so many digits might not fit where the sum of the rows that match does.
    let digits = DataType::Decimal { precision: 30, scale: 2 };
    assert!(stays(sum_of(Expression::call(Function::Cast, vec![column(PRICE)], digits))));
    assert!(!stays(sum_of(column(PRICE))));
}

#[test]
fn casts_may_rest_on_the_bounds_of_a_column() {
    let sum = |id, precision| {
        let data_type = DataType::Decimal { precision, scale: 0 };
        aggregate(
            sold(),
            &[BRAND],
            vec![sum_of(Expression::call(Function::Cast, vec![column(id)], data_type))],
        )
    };
    // The items are 1 to 1,000.
    assert!(is_rewritten(&sum(ITEM, 4)));
    assert!(!is_rewritten(&sum(ITEM, 3)));
    assert!(!is_rewritten(&sum(QUANTITY, 4)));
    assert!(is_rewritten(&sum(QUANTITY, 10)));
}

#[test]
fn other_joins_and_groups_of_the_facts_alone_stay() {
    let sums = || vec![sum_of(column(PRICE))];
    for kind in [JoinKind::Left, JoinKind::Full] {
        let input = join(kind, (facts(), items(1e3)), (ITEM, I_ITEM), 1e6);
        assert!(!is_rewritten(&aggregate(input, &[BRAND], sums())), "{kind:?}");
    }
    let mut with_residual = sold();
    if let Operator::Join { residual, .. } = &mut Arc::make_mut(&mut with_residual).operator {
        *residual = Some(Expression::predicate(Function::Less, vec![column(PRICE), column(I_PRICE)]));
    }
    assert!(!is_rewritten(&aggregate(with_residual, &[BRAND], sums())));
    assert!(!is_rewritten(&aggregate(sold(), &[DAY], sums())));
    assert!(!is_rewritten(&aggregate(sold(), &[], sums())));
    assert!(is_rewritten(&aggregate(sold(), &[BRAND], sums())));
    // Different values of the dimension's columns are groups without aggregates.
    assert!(is_rewritten(&aggregate(sold(), &[BRAND], Vec::new())));
}

#[test]
fn few_rows_many_groups_and_selective_joins_do_not_pay() {
    let sums = || vec![sum_of(column(PRICE))];
    let small = scan("facts", &[(ITEM, "item"), (PRICE, "p")], 5e4);
    let input = join(JoinKind::Inner, (small, items(1e3)), (ITEM, I_ITEM), 5e4);
    assert!(!is_rewritten(&aggregate(input, &[BRAND], sums())));
    let narrow = scan("facts", &[(ITEM, "item"), (PRICE, "p")], 1e6);
    let selective = join(JoinKind::Inner, (narrow.clone(), items(10.0)), (ITEM, I_ITEM), 1e4);
    assert!(!is_rewritten(&aggregate(selective, &[BRAND], sums())));
    let of_many = scan("facts", &[(ITEM, "item"), (PRICE, "p")], 1e6);
    let many = join(JoinKind::Inner, (of_many, items(1e5)), (ITEM, I_ITEM), 1e6);
    let root = aggregate(many, &[BRAND], sums());
    let wide = |_: &FileSet, column: &ScanColumn| (column.name == "item").then_some((1.0, 9e4));
    let lazy = LazyAggregate::of(&root).unwrap();
    assert!(lazy.best_level(&wide).is_none(), "a table of so many groups is slow");
    let by_quantity = join(JoinKind::Inner, (facts(), items(1e3)), (QUANTITY, I_ITEM), 1e6);
    assert!(!is_rewritten(&aggregate(by_quantity, &[BRAND], sums())), "its values are not known");
}

#[test]
fn keys_of_a_wide_calendar_are_expected_among_those_of_the_facts() {
    // The planner expects 100 of 100,000 days to match a thousandth of the facts, which are of 1,000 days.
    let dated = join(JoinKind::Inner, (facts(), days(100.0)), (DAY, D_DAY), 1e3);
    assert_eq!(expected_rows(&dated, &bounds), 1e5);
    let input = join(JoinKind::Inner, (dated, items(1e3)), (ITEM, I_ITEM), 1e3);
    assert!(is_rewritten(&aggregate(input, &[BRAND], vec![sum_of(column(PRICE))])));
}

#[test]
fn plans_that_would_be_too_deep_stay() {
    let mut root = aggregate(sold(), &[BRAND], vec![sum_of(column(PRICE))]);
    while root.depth() < RELATION_DEPTH_MAX {
        let predicate = Expression::literal(Value::Bool(true), DataType::Bool);
        root = Relation::new(Operator::Filter { input: root, predicate }, 100.0);
    }
    assert!(!is_rewritten(&root));
}
