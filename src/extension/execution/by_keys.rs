//! A plan that is run for one key after another, as one plan for many keys.
//!
//! ```text
//! Limit 3                    Sort d             rows of both keys, each with its key, in the order of each key's rows;
//!   Sort d              ─►     Scan t           the reader counts to 3
//!     Scan t [k = $1]            [k IN (7, 9)]
//! ```
//!
//! An aggregate over the rows of a key becomes one by keys. Over no rows it has a row too, which no key of the new plan stands
//! for: the reader runs the old plan with NULL for the key, which equals nothing.
//!
//! Invariants: for every key the new plan has the rows of the old one, in the same order where the old one has an order. An
//! expression that fails for the rows of one key fails the new plan: the reader must then run the old one, key by key.
//!
//! Deliberately absent: keys of types whose equality is not that of their bytes, and limits below other operators.

use std::{collections::BTreeMap, sync::Arc};

use pystachio_plan::{
    AggregatePhase, ColumnId, DataType, Expression, Function, JoinKey, JoinKind, Literal, NamedExpression,
    Operator, Plan, Relation, Value, could_fail, parameters_of,
};

/// Values of the parameters that are keys.
pub type KeyValues = BTreeMap<u32, Vec<Value>>;

/// One plan for many keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedPlan {
    /// The outputs are those of the plan for one key, and then key columns that are none of these.
    pub plan: Plan,
    /// Where the keys of a row are: at least one.
    pub keys: Vec<OutputKey>,
    /// How many rows of each key are skipped.
    pub offset: u64,
    /// How many rows of each key are given at most.
    pub count: Option<u64>,
    /// Whether a key without rows may still have some: an aggregate's over no rows.
    pub has_rows_over_nothing: bool,
}

/// A key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputKey {
    /// The parameter that has its value.
    pub parameter: u32,
    /// Its place among the outputs.
    pub output_index: usize,
}

/// One plan for many values of the parameters that `is_key` names; `None` if it can't be made. With `values` it returns about
/// the rows of these alone, else of all. `literals` are the values of all other parameters.
pub fn by_keys(
    plan: &Plan,
    is_key: &dyn Fn(u32) -> bool,
    values: Option<&KeyValues>,
    literals: &[Literal],
) -> Option<KeyedPlan> {
    let mut lift = Lift {
        is_key,
        values,
        literals,
        next_id: greatest_id(&plan.root) + 1,
        factor: values.and_then(|values| values.values().map(Vec::len).max()).unwrap_or(1) as f64,
        offset: 0,
        count: None,
        has_rows_over_nothing: false,
    };
    let (root, found) = lift.lift(&plan.root, Place { limits: true, aggregates: true })?;
    if found.is_empty() {
        return None;
    }
    let mut outputs = plan.outputs.clone();
    let keys = found.into_iter().map(|key| {
        let output_index = outputs.iter().position(|known| *known == key.column).unwrap_or_else(|| {
            outputs.push(key.column);
            outputs.len() - 1
        });
        OutputKey { parameter: key.parameter, output_index }
    });
    let keys = keys.collect();
    let (offset, count, has_rows_over_nothing) = (lift.offset, lift.count, lift.has_rows_over_nothing);
    Some(KeyedPlan { plan: Plan { root, outputs }, keys, offset, count, has_rows_over_nothing })
}

/// A column that equals a parameter.
#[derive(Clone, PartialEq)]
struct Key {
    parameter: u32,
    column: ColumnId,
    data_type: DataType,
}

impl Key {
    fn expression(&self) -> Expression {
        Expression::column(self.column, self.data_type.clone())
    }
}

/// What may stand at a place of the plan.
#[derive(Clone, Copy)]
struct Place {
    /// A limit, which then is one of the plan's rows.
    limits: bool,
    /// An aggregate without groups, whose row then is the plan's.
    aggregates: bool,
}

const BELOW: Place = Place { limits: false, aggregates: false };

struct Lift<'a> {
    is_key: &'a dyn Fn(u32) -> bool,
    values: Option<&'a KeyValues>,
    literals: &'a [Literal],
    /// An id that no column of the plan has.
    next_id: u32,
    /// Keys of the new plan, for estimates.
    factor: f64,
    offset: u64,
    count: Option<u64>,
    has_rows_over_nothing: bool,
}

type Lifted = Option<(Arc<Relation>, Vec<Key>)>;

impl Lift<'_> {
    fn lift(&mut self, relation: &Arc<Relation>, place: Place) -> Lifted {
        if !parameters_of(relation).into_iter().any(|index| (self.is_key)(index)) {
            return Some((relation.clone(), Vec::new()));
        }
        let (operator, keys) = match &relation.operator {
            Operator::Scan { table, files, columns, filters, extent } => {
                let (filters, keys) = self.without_keys(filters)?;
                let (table, files) = (table.clone(), files.clone());
                let (columns, extent) = (columns.clone(), extent.clone());
                (Operator::Scan { table, files, columns, filters, extent }, keys)
            }
            Operator::Filter { input, predicate } => {
                let (conditions, mut keys) = self.without_keys(std::slice::from_ref(predicate))?;
                let (input, below) = self.lift(input, BELOW)?;
                keys.extend(below);
                match Expression::all_of(conditions) {
                    Some(predicate) => (Operator::Filter { input, predicate }, keys),
                    None => return Some((input, keys)),
                }
            }
            Operator::Project { input, expressions } => {
                self.reads_no_key(relation)?;
                let (input, keys) = self.lift(input, place)?;
                (Operator::Project { input, expressions: with_keys(expressions, &keys) }, keys)
            }
            Operator::Sort { input, keys: order } => {
                self.reads_no_key(relation)?;
                let (input, keys) = self.lift(input, Place { limits: false, ..place })?;
                (Operator::Sort { input, keys: order.clone() }, keys)
            }
            Operator::Limit { input, offset, count } if place.limits => {
                self.offset = self.row_count(offset.as_ref())?.unwrap_or(0);
                self.count = self.row_count(count.as_ref())?;
                return self.lift(input, BELOW);
            }
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole } => {
                self.reads_no_key(relation)?;
                if groups.is_empty() {
                    if !place.aggregates {
                        return None;
                    }
                    self.has_rows_over_nothing = true;
                }
                let (input, keys) = self.lift(input, BELOW)?;
                let (groups, keys) = self.grouped(groups, keys);
                let aggregates = aggregates.clone();
                (Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole }, keys)
            }
            Operator::Join { .. } => self.lift_join(relation)?,
            Operator::Limit { .. }
            | Operator::Aggregate { .. }
            | Operator::UnionAll { .. }
            | Operator::Unnest { .. }
            | Operator::Window { .. }
            | Operator::Exchange { .. } => return None,
        };
        Some((Relation::new(operator, relation.estimate.rows * self.factor), keys))
    }

    /// Keys of one side are keys of the join. A key that both sides have is one by which they are joined: before, both equalled
    /// the parameter. What the other side of a join without that key has can't be told apart by it.
    fn lift_join(&mut self, relation: &Arc<Relation>) -> Option<(Operator, Vec<Key>)> {
        let Operator::Join { kind, left, right, keys, residual, build } = &relation.operator else {
            return None;
        };
        self.reads_no_key(relation)?;
        let (left, mut found) = self.lift(left, BELOW)?;
        let (right, of_right) = self.lift(right, BELOW)?;
        let mut keys = keys.clone();
        let mut alone = Vec::new();
        for key in of_right {
            match found.iter().find(|known| known.parameter == key.parameter) {
                Some(known) if known.data_type == key.data_type => {
                    keys.push(JoinKey { left: known.expression(), right: key.expression() });
                }
                _ => alone.push(key),
            }
        }
        let is_possible = match kind {
            JoinKind::Inner => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => alone.is_empty(),
            // One key is all that it has.
            JoinKind::NullAwareAnti => alone.is_empty() && keys.len() == 1,
            JoinKind::Full => false,
        };
        // Without a key every pair would be tried, of all keys' rows.
        if !is_possible || (keys.is_empty() && !found.is_empty() && !alone.is_empty()) {
            return None;
        }
        found.extend(alone);
        let (kind, residual, build) = (*kind, residual.clone(), *build);
        Some((Operator::Join { kind, left, right, keys, residual, build }, found))
    }

    /// The groups of an aggregate, which those by keys are among, and the keys as columns of it.
    fn grouped(&mut self, groups: &[NamedExpression], keys: Vec<Key>) -> (Vec<NamedExpression>, Vec<Key>) {
        let mut groups = groups.to_vec();
        let keys = keys.into_iter().map(|key| {
            let expression = key.expression();
            let known = groups.iter().find(|named| named.expression == expression).map(|named| named.id);
            let column = known.unwrap_or_else(|| {
                let id = ColumnId(self.next_id);
                self.next_id += 1;
                groups.push(NamedExpression { id, expression });
                id
            });
            Key { column, ..key }
        });
        let keys = keys.collect();
        (groups, keys)
    }

    /// The conditions without those on keys, in whose place the values stand, and the keys.
    fn without_keys(&self, conditions: &[Expression]) -> Option<(Vec<Expression>, Vec<Key>)> {
        let mut waiting: Vec<&Expression> = conditions.iter().rev().collect();
        let (mut rest, mut keys) = (Vec::new(), Vec::new());
        while let Some(condition) = waiting.pop() {
            match condition {
                Expression::Call { function: Function::And, arguments, .. } => {
                    waiting.extend(arguments.iter().rev());
                }
                _ => match as_key(condition).filter(|key| (self.is_key)(key.parameter)) {
                    Some(key) => {
                        rest.extend(self.membership(&key));
                        keys.push(key);
                    }
                    None if self.has_key(condition) => return None,
                    None => rest.push(condition.clone()),
                },
            }
        }
        Some((rest, keys))
    }

    /// Whether a column has one of the values of its key, where these are known.
    fn membership(&self, key: &Key) -> Option<Expression> {
        let values = self.values?.get(&key.parameter)?;
        // An integer that a narrower column can't have equals none of it.
        let is_possible = |value: &&Value| match (&key.data_type, value) {
            (DataType::Int16, Value::Int(value)) => i16::try_from(*value).is_ok(),
            (DataType::Int32, Value::Int(value)) => i32::try_from(*value).is_ok(),
            (_, value) => **value != Value::Null,
        };
        let literals = values.iter().filter(is_possible);
        let literals: Vec<_> =
            literals.map(|value| Expression::literal(value.clone(), key.data_type.clone())).collect();
        if literals.is_empty() {
            return Some(Expression::literal(Value::Bool(false), DataType::Bool));
        }
        let arguments = std::iter::once(key.expression()).chain(literals).collect();
        Some(Expression::predicate(Function::In, arguments))
    }

    fn has_key(&self, expression: &Expression) -> bool {
        let mut found = false;
        expression.walk(&mut |part| {
            found = found || matches!(part, Expression::Parameter { index, .. } if (self.is_key)(*index));
        });
        found
    }

    /// `None` if an expression of the operator itself has a key.
    fn reads_no_key(&self, relation: &Relation) -> Option<()> {
        (!relation.expressions().into_iter().any(|expression| self.has_key(expression))).then_some(())
    }

    /// The number of a LIMIT or OFFSET, `None` inside if there is none; `None` if it is a key's or below zero.
    #[expect(clippy::option_option, reason = "unknown, absent, or a number")]
    fn row_count(&self, expression: Option<&Expression>) -> Option<Option<u64>> {
        let value = match expression {
            None => return Some(None),
            Some(Expression::Literal(literal)) => &literal.value,
            Some(Expression::Parameter { index, .. }) if !(self.is_key)(*index) => {
                &self.literals.get(*index as usize)?.value
            }
            Some(_) => return None,
        };
        match value {
            Value::Null => Some(None),
            Value::Int(count) => u64::try_from(*count).ok().map(Some),
            _ => None,
        }
    }
}

fn greatest_id(relation: &Relation) -> u32 {
    let own = relation.columns().into_iter().map(|(id, _)| id.0);
    own.chain(relation.inputs().into_iter().map(|input| greatest_id(input))).max().unwrap_or(0)
}

/// The columns, and those of keys that are not among them.
fn with_keys(expressions: &[NamedExpression], keys: &[Key]) -> Vec<NamedExpression> {
    let mut all = expressions.to_vec();
    for key in keys {
        if !all.iter().any(|named| named.id == key.column) {
            all.push(NamedExpression { id: key.column, expression: key.expression() });
        }
    }
    all
}

/// The column and the parameter of `column = parameter`.
fn as_key(condition: &Expression) -> Option<Key> {
    let Expression::Call { function: Function::Equal, arguments, .. } = condition else { return None };
    let [a, b] = arguments.as_slice() else { return None };
    let (a, b) = (before_widening(a), before_widening(b));
    let (column, parameter) = if matches!(a, Expression::Parameter { .. }) { (b, a) } else { (a, b) };
    let Expression::Parameter { index, data_type } = parameter else { return None };
    let Expression::Column { id, data_type: column_type } = column else { return None };
    let is_same = column_type == data_type || (column_type.is_integer() && data_type.is_integer());
    let is_exact = data_type.is_integer()
        || matches!(
            data_type,
            DataType::Date
                | DataType::Time
                | DataType::Timestamp
                | DataType::TimestampTz
                | DataType::Text
                | DataType::Bytea
                | DataType::Uuid
        );
    (is_same && is_exact).then(|| Key { parameter: *index, column: *id, data_type: column_type.clone() })
}

/// An integer is the same number in a wider type.
fn before_widening(expression: &Expression) -> &Expression {
    match expression {
        Expression::Call { function: Function::Cast, arguments, .. }
            if !could_fail(expression, &|_| false) =>
        {
            let is_integer = |part: &&Expression| part.data_type().is_integer();
            arguments.first().filter(|_| is_integer(&expression)).filter(is_integer).unwrap_or(expression)
        }
        _ => expression,
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{
        Aggregate, AggregateCall, ColumnContent, FileSet, JoinSide, PlanFacts, ScanColumn, ScanExtent,
        SortKey, plan_lines,
    };

    use super::*;

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    fn parameter(index: u32) -> Expression {
        Expression::Parameter { index, data_type: DataType::Int64 }
    }

    fn equal(a: Expression, b: Expression) -> Expression {
        Expression::predicate(Function::Equal, vec![a, b])
    }

    fn scan(table: &str, ids: &[u32], filters: Vec<Expression>) -> Arc<Relation> {
        let columns = ids.iter().map(|id| ScanColumn {
            id: ColumnId(*id),
            name: format!("c{id}"),
            data_type: DataType::Int64,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        });
        let scan = Operator::Scan {
            table: table.into(),
            files: FileSet::parquet(Vec::new()),
            columns: columns.collect(),
            filters,
            extent: ScanExtent::Whole,
        };
        Relation::new(scan, 1.0)
    }

    fn keyed(root: Arc<Relation>, output: u32) -> Option<KeyedPlan> {
        let values = KeyValues::from([(0, vec![Value::Int(7), Value::Int(9)])]);
        by_keys(&Plan { root, outputs: vec![ColumnId(output)] }, &|index| index == 0, Some(&values), &[])
    }

    fn lines(plan: &Plan) -> Vec<String> {
        plan_lines(plan, PlanFacts::default()).into_iter().map(|line| line.trim().to_owned()).collect()
    }

    fn count(input: Arc<Relation>, groups: Vec<NamedExpression>) -> Arc<Relation> {
        let call = AggregateCall {
            id: ColumnId(10),
            function: Aggregate::Count,
            argument: None,
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let phase = AggregatePhase::Whole;
        Relation::new(Operator::Aggregate { input, groups, aggregates: vec![call], phase }, 1.0)
    }

    fn limit(input: Arc<Relation>, count: i64) -> Arc<Relation> {
        let count = Some(Expression::literal(Value::Int(count), DataType::Int64));
        Relation::new(Operator::Limit { input, offset: None, count }, 1.0)
    }

    fn sort(input: Arc<Relation>, id: u32) -> Arc<Relation> {
        let key = SortKey { expression: column(id), descending: true, nulls_first: true };
        Relation::new(Operator::Sort { input, keys: vec![key] }, 1.0)
    }

    fn join(kind: JoinKind, left: Arc<Relation>, right: Arc<Relation>) -> Arc<Relation> {
        let (keys, residual, build) = (Vec::new(), None, JoinSide::Right);
        Relation::new(Operator::Join { kind, left, right, keys, residual, build }, 1.0)
    }

    #[test]
    fn a_limit_is_left_to_the_reader_and_keeps_its_order() {
        let one = scan("t", &[1, 2], vec![equal(column(1), parameter(0))]);
        let found = keyed(limit(sort(one.clone(), 2), 3), 2).unwrap();
        assert_eq!((found.offset, found.count, found.has_rows_over_nothing), (0, Some(3), false));
        assert_eq!(found.plan.outputs, [ColumnId(2), ColumnId(1)]);
        assert_eq!(found.keys, [OutputKey { parameter: 0, output_index: 1 }]);
        let lines = lines(&found.plan);
        assert!(lines[0].starts_with("Sort") && lines[1].contains("IN (7, 9)"), "{lines:?}");
        assert!(keyed(count(limit(one, 3), Vec::new()), 10).is_none());
    }

    #[test]
    fn an_aggregate_is_one_by_keys_and_one_over_nothing_is_the_readers() {
        let one = scan("t", &[1, 2], vec![equal(parameter(0), column(1))]);
        let found = keyed(count(one.clone(), Vec::new()), 10).unwrap();
        assert!(found.has_rows_over_nothing);
        let Operator::Aggregate { groups, .. } = &found.plan.root.operator else { panic!() };
        assert_eq!(groups, &[NamedExpression { id: ColumnId(11), expression: column(1) }]);
        assert_eq!(found.plan.outputs, [ColumnId(10), ColumnId(11)]);
        let named = NamedExpression { id: ColumnId(2), expression: column(2) };
        assert!(!keyed(count(one.clone(), vec![named]), 10).unwrap().has_rows_over_nothing);
        // A condition above would see no row of a key whose aggregate it drops.
        let having =
            Operator::Filter { input: count(one, Vec::new()), predicate: equal(column(10), column(10)) };
        assert!(keyed(Relation::new(having, 1.0), 10).is_none());
    }

    #[test]
    fn sides_that_equal_one_parameter_are_joined_by_it() {
        let side = |table: &str, id| scan(table, &[id], vec![equal(column(id), parameter(0))]);
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            let found = keyed(join(kind, side("a", 1), side("b", 3)), 1).unwrap();
            let Operator::Join { keys, .. } = &found.plan.root.operator else { panic!() };
            assert_eq!(keys, &[JoinKey { left: column(1), right: column(3) }]);
        }
        let other = || scan("b", &[3], Vec::new());
        assert!(keyed(join(JoinKind::Left, side("a", 1), other()), 1).is_some());
        assert!(keyed(join(JoinKind::Left, other(), side("a", 1)), 3).is_none());
        assert!(keyed(join(JoinKind::Full, side("a", 1), other()), 1).is_none());
    }

    #[test]
    fn a_parameter_that_is_more_than_a_key_is_refused() {
        let less = Expression::predicate(Function::Less, vec![column(1), parameter(0)]);
        assert!(keyed(scan("t", &[1], vec![less.clone()]), 1).is_none());
        assert!(keyed(scan("t", &[1], vec![equal(column(1), parameter(0)), less]), 1).is_none());
        let other = Expression::predicate(Function::Less, vec![column(1), parameter(1)]);
        assert!(keyed(scan("t", &[1], vec![equal(column(1), parameter(0)), other]), 1).is_some());
        assert!(keyed(scan("t", &[1], Vec::new()), 1).is_none());
    }
}
