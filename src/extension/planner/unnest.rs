//! `unnest(column)` and `generate_series(1, n)` in FROM: the elements of an array, or numbers, beside the row that it is of.
//!
//! ```text
//! FROM t, unnest(t.tags) AS tag                       ──►  Unnest tags over t
//! FROM t LEFT JOIN unnest(t.tags) AS tag ON true      ──►  the same, keeping rows without elements
//! FROM t, generate_series(1, t.n) AS number           ──►  the same of the numbers from 1 to n, each a bigint
//! FROM t, unnest(t.tags, t.codes) AS u (tag, code)    ──►  Unnest tags, codes over t: NULL for what the shorter one lacks
//! ```
//!
//! Elements of a composite type are columns of its fields.
//!
//! The function reads a column of another relation, so no engine computes it alone. It is labelled as a relation of the other's server,
//! so that PostgreSQL offers the join of both.
//!
//! Deliberately absent: arrays that are computed, and of several tables.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Refusal, Scope, check_depth};
use pystachio_plan::{ColumnId, DataType, Expression, Operator, RecordField, Relation, UnnestedArray};

use super::{
    base::offer_paths,
    clauses::in_order,
    cost,
    lowering::Lowering,
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{Place, RelationInfo, place_placeholders},
};
use crate::{
    pg::{
        mirror::is_builtin,
        tree::{Attachment, JoinPair, Node, RangeEntry, Rel, Root},
    },
    types::{self, CompositeField},
};

/// What functions in FROM give rows of, and whether these are numbered.
pub struct Unnested<'p> {
    sets: Vec<Set<'p>>,
    is_numbered: bool,
}

/// What a function in FROM gives rows of.
enum Set<'p> {
    /// The elements of an array.
    Array(Node<'p>),
    /// Numbers from 1 to this one.
    Series(Node<'p>),
}

/// Marks an [`Unnested`] that is kept with a relation.
struct KeptUnnested;

impl Attachment for KeptUnnested {
    type At<'p> = Unnested<'p>;
}

impl<'p> Unnested<'p> {
    /// Labels a function in FROM that is one of these.
    pub fn label(root: Root<'p>, relation: Rel<'p>, entry: RangeEntry<'p>) {
        let Some(sets) = sets_of(entry) else { return };
        let mut outside = relation.lateral_relids().iter();
        let Some(other) = outside.next().and_then(|index| root.relation(index)) else { return };
        if RelationInfo::of(other).is_none() || other.routine().is_none() {
            return;
        }
        relation.set_server_oid(other.server_oid());
        relation.set_user_oid(pg_sys::InvalidOid);
        relation.set_user_is_current(false);
        relation.set_routine(other.routine());
        if sets.iter().any(|set| matches!(set, Set::Series(_))) {
            // PostgreSQL expects a thousand numbers of any row. Most are few: how often a row is repeated.
            relation.set_rows(1.0);
        }
        relation.attach::<KeptUnnested>(Self { sets, is_numbered: entry.has_ordinality() });
    }

    fn of(relation: Rel<'p>) -> Option<&'p Self> {
        relation.attached::<KeptUnnested>()
    }

    /// The rows of the outer side with their elements.
    fn join(&self, pair: &JoinPair<'p>, outer: &RelationInfo<'p>) -> Result<RelationInfo<'p>, Refusal> {
        let JoinPair { root, joined, inner, .. } = *pair;
        let keeps_rows = pair.join_type == pg_sys::JoinType::JOIN_LEFT;
        let new_column = || with_planning(|planning| planning.new_column());
        let mut columns = HashMap::new();
        let mut arrays = Vec::new();
        let mut width = 0;
        for set in &self.sets {
            let lowering = Lowering::new(outer.scope());
            let node = match set {
                Set::Array(node) | Set::Series(node) => *node,
            };
            let array = match set {
                Set::Array(_) => lowering.lower_array(node)?.expression,
                Set::Series(_) => lowering.lower(node)?.expression,
            };
            let item = array.data_type().item();
            let parts: Vec<Part> = match item {
                DataType::Record(fields) => {
                    let of_type =
                        types::composite_fields(types::item_type(node.type_oid())).unwrap_or_default();
                    fields
                        .iter()
                        .zip(&of_type)
                        .map(|(field, of_type)| Part::of_field(field, of_type))
                        .collect()
                }
                single => vec![Part { number: 1, data_type: single.clone(), modifier: -1 }],
            };
            let ids: Vec<ColumnId> = parts.iter().map(|_| new_column()).collect();
            for (id, Part { number, data_type, modifier }) in ids.iter().zip(parts) {
                let column = Lowered::of_type(Expression::column(*id, data_type));
                columns.insert(width + number, Lowered { modifier, ..column });
            }
            width += match item {
                DataType::Record(_) => types::attribute_count(types::item_type(node.type_oid())),
                _ => 1,
            };
            arrays.push(UnnestedArray { array, columns: ids });
        }
        let number = self.is_numbered.then(new_column);
        columns.extend(
            number.map(|number| (width + 1, Lowered::of_type(Expression::column(number, DataType::Int64)))),
        );
        let own = Scope::of_columns(inner.index(), columns);
        let scope = Rc::new(Scope::Join(outer.scope().clone(), Rc::new(own)));
        let operator = Operator::Unnest { input: outer.relation().clone(), arrays, number, keeps_rows };
        let rows = joined.rows();
        let mut relation = Relation::new(operator, rows);
        let mut conditions = Vec::new();
        for clauses in [inner.clauses(), pair.extra.clauses()] {
            for clause in in_order(root, clauses) {
                if keeps_rows {
                    return Err(Refusal::Lateral);
                }
                conditions.push(Lowering::new(&scope).lower_clause(root, clause)?);
            }
        }
        if let Some(predicate) = Expression::all_of(conditions) {
            relation = Relation::new(Operator::Filter { input: relation, predicate }, rows);
        }
        let place = Place { root, relation: joined, inputs: &[pair.outer, inner] };
        let (relation, scope) = place_placeholders(&place, relation, scope)?;
        let info = outer.above(relation, scope, rows, cost::EVALUATE_ROW_COST * rows);
        check_depth(info.depth)?;
        outputs_of(&info, joined.target())?;
        Ok(info)
    }
}

/// Considers a pair of inputs of which the inner one is a function that reads arrays of the outer one. Whether it is such a pair.
pub fn offer_unnested(pair: &JoinPair<'_>) -> bool {
    let JoinPair { root, joined, outer, inner, .. } = *pair;
    let Some(unnested) = Unnested::of(inner) else { return Unnested::of(outer).is_some() };
    let is_inside = joined.lateral_relids().is_empty() && inner.lateral_relids().is_subset(outer.relids());
    let is_known = matches!(pair.join_type, pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_LEFT);
    let (Some(info), true) = (RelationInfo::complete_of(outer), is_inside && is_known) else { return true };
    if info.server_oid != inner.server_oid() {
        return true;
    }
    match unnested.join(pair, info) {
        Ok(info) => {
            if RelationInfo::of(joined).is_none_or(|known| info.cost < known.cost) {
                let costs = info.path_costs(root, joined, cost::path_costs(info.cost, info.rows));
                offer_paths(joined, &info, [info.join_path(root, joined, costs).path()]);
                info.attach(joined);
            }
        }
        Err(refusal) => with_planning(|planning| planning.refuse(format!("unnest: {refusal}"))),
    }
    true
}

/// A column of an element: the element itself, or a field of it.
struct Part {
    /// Its number among the columns of the function.
    number: i16,
    data_type: DataType,
    /// The length of `character(n)`.
    modifier: i32,
}

impl Part {
    fn of_field(field: &RecordField, of_type: &CompositeField) -> Self {
        let (_, modifier) = types::base_type(of_type.type_oid, of_type.type_modifier);
        let modifier = if field.trim_blanks { modifier } else { -1 };
        Self { number: of_type.number, data_type: field.data_type.clone(), modifier }
    }
}

/// The sets of an entry of FROM that is of functions that are known here.
fn sets_of(entry: RangeEntry<'_>) -> Option<Vec<Set<'_>>> {
    let calls = entry.only_calls().into_iter().map(|call| {
        let mut arguments = call.arguments().iter();
        let (first, second) = (arguments.next()?, arguments.next());
        match second {
            None => is_builtin(call.function(), "unnest").then_some(Set::Array(first)),
            Some(last) => {
                let is_series = u32::from(call.function()) == pg_sys::F_GENERATE_SERIES_INT8_INT8;
                let is_one = first.downcast::<pg_sys::Const>().is_some_and(|one| {
                    let is_known = !one.is_null();
                    is_known && one.value().value() as i64 == 1
                });
                (is_series && is_one).then_some(Set::Series(last))
            }
        }
    });
    calls.collect::<Option<Vec<_>>>().filter(|sets| !sets.is_empty())
}
