//! Comparisons and the order of composite values, by their fields.
//!
//! Whole values are compared other than rows of SQL are: a field that is NULL equals one that is NULL, and is greater than all others. The
//! comparison is NULL where one of the values itself is NULL, which is not a value whose fields all are.
//!
//! Invariants: fields of both sides have one type and one collation each. What is compared is of one relation: a join by whole values has
//! keys in PostgreSQL that engines do not have.
//!
//! Source: PostgreSQL 15, `rowtypes.c`, `record_eq` and `record_cmp`.

use std::rc::Rc;

use pystachio_plan::{CaseBranch, DataType, Expression, Function, SortKey, Value};

use crate::{
    Collation, Comparison, Constant, Lowered, LoweredResult, Lowering, Part, Refusal, Source, check_equality,
    collation::{OrderKey, order_key},
    comparison::compare,
};

/// How two composite values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordTest {
    /// By an operator.
    Comparison(Comparison),
    /// `IS DISTINCT FROM`.
    IsDistinct,
}

/// A comparison of two composite values.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordComparison {
    /// How.
    pub test: RecordTest,
    /// The left value.
    pub left: RecordSource,
    /// The right value.
    pub right: RecordSource,
}

/// A composite value, and its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordSource {
    /// The value itself. One that is made of its fields is never NULL.
    pub whole: Source,
    /// In order.
    pub fields: Vec<RecordFieldSource>,
}

/// A field of a composite value.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordFieldSource {
    /// Under which it is compared.
    pub collation: Option<Rc<Collation>>,
    /// Its value.
    pub value: Source,
}

impl RecordSource {
    /// The whole and the parts.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.whole).chain(self.fields.iter().map(|field| &field.value))
    }

    /// The relations of the columns in it, by their numbers.
    fn relations(&self) -> Vec<u32> {
        let mut relations = Vec::new();
        self.sources().for_each(|source| collect_relations(source, &mut relations));
        relations.sort_unstable();
        relations
    }
}

fn collect_relations(source: &Source, relations: &mut Vec<u32>) {
    if let Part::Column(column) = &source.part
        && !relations.contains(&column.relation)
    {
        relations.push(column.relation);
    }
    source.children().into_iter().for_each(|child| collect_relations(child, relations));
}

impl Lowering<'_> {
    /// A comparison of two composite values. Not inlined: expressions nest, and its frame is large.
    #[inline(never)]
    pub(crate) fn lower_record_comparison(&self, comparison: &RecordComparison) -> LoweredResult {
        let RecordComparison { test, left, right } = comparison;
        let relations = [left.relations(), right.relations()];
        if relations.iter().all(|relations| !relations.is_empty()) && relations[0] != relations[1] {
            return Err(Refusal::RecordsOfJoin);
        }
        let is_ordering = matches!(test, RecordTest::Comparison(comparison) if comparison.is_ordering());
        let mut pairs = Vec::with_capacity(left.fields.len());
        let mut orders = Vec::with_capacity(left.fields.len());
        for (a, b) in left.fields.iter().zip(&right.fields) {
            let order = self.field_order(a, is_ordering)?;
            if self.field_order(b, is_ordering)? != order {
                return Err(Refusal::SeveralCollations);
            }
            orders.push(order);
            // The fields of values that are NULL are not looked at.
            pairs.push((self.lower_conditionally(&a.value)?, self.lower_conditionally(&b.value)?));
        }
        let value = match test {
            RecordTest::Comparison(Comparison::Equal) => self.fields_equal(&pairs)?,
            RecordTest::Comparison(Comparison::NotEqual) | RecordTest::IsDistinct => {
                not(self.fields_equal(&pairs)?)
            }
            RecordTest::Comparison(Comparison::Less) => self.fields_less(&pairs, &orders)?,
            RecordTest::Comparison(Comparison::GreaterEqual) => not(self.fields_less(&pairs, &orders)?),
            RecordTest::Comparison(comparison @ (Comparison::Greater | Comparison::LessEqual)) => {
                let mirrored: Vec<_> = pairs.iter().cloned().map(|(a, b)| (b, a)).collect();
                let less = self.fields_less(&mirrored, &orders)?;
                if *comparison == Comparison::Greater { less } else { not(less) }
            }
        };
        let nulls = (self.null_test(&left.whole)?, self.null_test(&right.whole)?);
        // Where the comparison is true these are, and where one is not true it is false, or as NULL as they are.
        let mut conditions = match test {
            RecordTest::Comparison(Comparison::Equal) => self.equal_to_constants(&pairs)?,
            _ => Vec::new(),
        };
        let branches = match (test, nulls) {
            (_, (None, None)) => Vec::new(),
            (RecordTest::IsDistinct, (Some(a), Some(b))) => {
                vec![branch(a, not(b.clone())), branch(b, truth(Value::Bool(true)))]
            }
            (RecordTest::IsDistinct, (a, b)) => {
                a.into_iter().chain(b).map(|is_null| branch(is_null, truth(Value::Bool(true)))).collect()
            }
            (RecordTest::Comparison(_), (a, b)) => {
                a.into_iter().chain(b).map(|is_null| branch(is_null, truth(Value::Null))).collect()
            }
        };
        let value = match branches.is_empty() {
            true => value,
            false => {
                Expression::Case { branches, otherwise: Some(Box::new(value)), data_type: DataType::Bool }
            }
        };
        conditions.push(value);
        Expression::all_of(conditions).map(Lowered::plain).ok_or(Refusal::EmptyRows)
    }

    /// The fields that equal constants, by which statistics rule rows out.
    fn equal_to_constants(&self, pairs: &[(Lowered, Lowered)]) -> Result<Vec<Expression>, Refusal> {
        let mut conditions = Vec::new();
        for pair in pairs {
            let (a, b) = self.operands(pair)?;
            let is_value = |side: &Expression| matches!(side, Expression::Literal(literal) if literal.value != Value::Null);
            if is_value(&a) != is_value(&b) {
                conditions.push(Expression::predicate(Function::Equal, vec![a, b]));
            }
        }
        Ok(conditions)
    }

    /// The keys by which composite values are sorted.
    ///
    /// # Errors
    ///
    /// If an engine does not order one of the fields as PostgreSQL does.
    pub fn lower_record_order(
        &self,
        record: &RecordSource,
        descending: bool,
        nulls_first: bool,
    ) -> Result<Vec<SortKey>, Refusal> {
        let mut keys = Vec::with_capacity(record.fields.len() + 1);
        if let Some(is_null) = self.null_test(&record.whole)? {
            keys.push(SortKey { expression: is_null, descending: nulls_first, nulls_first });
        }
        for field in &record.fields {
            let order = self.field_order(field, true)?;
            let value = self.lower(&field.value)?;
            if *value.data_type() == DataType::Numeric {
                return Err(Refusal::RuntimeNumerics);
            }
            // NULL is the greatest value of a field.
            let expression = order.of(value.expression);
            keys.push(SortKey { expression, descending, nulls_first: descending });
        }
        Ok(keys)
    }

    /// What is compared of a field, whose equality is that of bytes.
    fn field_order(&self, field: &RecordFieldSource, is_ordering: bool) -> Result<OrderKey, Refusal> {
        let collation = field.collation.as_deref();
        check_equality(&field.value.of, collation, self.server)?;
        match is_ordering {
            true => order_key(&field.value.of, collation, self.server),
            false => Ok(OrderKey::Value),
        }
    }

    /// Whether a composite value itself is NULL; `None` if it can't be.
    fn null_test(&self, whole: &Source) -> Result<Option<Expression>, Refusal> {
        match &whole.part {
            Part::Row { .. } => return Ok(None),
            Part::Constant(Constant::Null) => return Ok(Some(truth(Value::Bool(true)))),
            _ => {}
        }
        let lowered = self.lower(whole)?;
        match lowered.data_type() {
            DataType::Record(_) if lowered.is_never_null() => Ok(None),
            DataType::Record(_) => {
                Ok(Some(Expression::predicate(Function::IsNull, vec![lowered.expression])))
            }
            _ => Err(Refusal::Equality(whole.of.name().to_owned())),
        }
    }

    fn fields_equal(&self, pairs: &[(Lowered, Lowered)]) -> Result<Expression, Refusal> {
        let same = pairs.iter().map(|pair| self.is_same(pair)).collect::<Result<Vec<_>, _>>()?;
        Expression::all_of(same).ok_or(Refusal::EmptyRows)
    }

    /// Whether the left fields come first.
    fn fields_less(&self, pairs: &[(Lowered, Lowered)], orders: &[OrderKey]) -> Result<Expression, Refusal> {
        let mut less: Option<Expression> = None;
        for (pair, order) in pairs.iter().zip(orders).rev() {
            let (a, b) = self.operands(pair)?;
            let is_less =
                Expression::predicate(Function::Less, vec![order.of(a.clone()), order.of(b.clone())]);
            let is_less = Expression::predicate(Function::IsTrue, vec![is_less]);
            let only_b_is_null = Expression::predicate(
                Function::And,
                vec![
                    Expression::predicate(Function::IsNotNull, vec![a]),
                    Expression::predicate(Function::IsNull, vec![b]),
                ],
            );
            let mut ways = vec![is_less, only_b_is_null];
            if let Some(rest) = less {
                ways.push(Expression::predicate(Function::And, vec![self.is_same(pair)?, rest]));
            }
            less = Some(Expression::predicate(Function::Or, ways));
        }
        less.ok_or(Refusal::EmptyRows)
    }

    fn is_same(&self, pair: &(Lowered, Lowered)) -> Result<Expression, Refusal> {
        let (a, b) = self.operands(pair)?;
        Ok(not(Expression::predicate(Function::IsDistinctFrom, vec![a, b])))
    }

    /// Two fields, brought to one type.
    fn operands(&self, (a, b): &(Lowered, Lowered)) -> Result<(Expression, Expression), Refusal> {
        let types = (a.data_type().clone(), b.data_type().clone());
        match compare(self.notes, Comparison::Equal, a.clone(), b.clone())? {
            Expression::Call { function: Function::Equal, mut arguments, .. } if arguments.len() == 2 => {
                let b = arguments.remove(1);
                Ok((arguments.remove(0), b))
            }
            _ => Err(Refusal::Comparison(types.0, types.1)),
        }
    }
}

fn not(condition: Expression) -> Expression {
    Expression::predicate(Function::Not, vec![condition])
}

fn truth(value: Value) -> Expression {
    Expression::literal(value, DataType::Bool)
}

fn branch(condition: Expression, result: Expression) -> CaseBranch {
    CaseBranch { condition, result }
}
