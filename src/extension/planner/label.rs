//! Subqueries in FROM whose whole plan is ours, and unions of them, labelled as foreign relations, so that
//! joins and aggregates above are offered to us too.
//!
//! Only labels are given: the subquery keeps its own paths, and where nothing above is pushed down,
//! PostgreSQL scans it as it always would. (A ForeignPath on a subquery trips an assertion of core.)

use std::{collections::HashMap, rc::Rc, sync::Arc};

use pgrx::{pg_sys, prelude::*};
use pystachio_lower::{Lowered, Refusal, Scale, Scope, check_depth, common_scale, retype, unify_branches};
use pystachio_plan::{ColumnId, DataType, Expression, NamedExpression, Operator, Relation, could_fail};

use super::{
    clauses::in_order,
    cost, empty,
    join::may_push,
    lowering::Lowering,
    planning::with_planning,
    relation_info::{Place, RelationInfo, defer_or_name, name_column, pass_through, place_placeholders},
    sent_rows::input_of,
    unnest::Unnested,
};
use crate::pg::tree::{RangeEntry, Rel, Root, Routine};

/// Labels a relation of the range table, if an engine can compute it whole.
pub fn label_relation<'p>(root: Root<'p>, relation: Rel<'p>, entry: RangeEntry<'p>) {
    if !may_push(root) || relation.has_private() {
        return;
    }
    let is_subquery = entry.kind() == pg_sys::RTEKind::RTE_SUBQUERY;
    if is_subquery && !entry.has_members() && empty::mark_if_empty(relation) {
        return;
    }
    if !relation.lateral_relids().is_empty() {
        if entry.kind() == pg_sys::RTEKind::RTE_FUNCTION {
            Unnested::label(root, relation, entry);
        }
        if is_subquery {
            with_planning(|planning| planning.refuse(format!("subquery: {}", Refusal::Lateral)));
        }
        return;
    }
    let built = if entry.has_members() {
        label_union(root, relation)
    } else if is_subquery {
        label_subquery(root, relation, entry)
    } else {
        return;
    };
    let checked = built.and_then(|built| {
        built.iter().try_for_each(|(_, info)| check_depth(info.depth))?;
        Ok(built)
    });
    let (routine, info) = match checked {
        Ok(Some(built)) => built,
        Ok(None) => return,
        Err(refusal) => {
            with_planning(|planning| planning.refuse(format!("subquery: {refusal}")));
            return;
        }
    };
    if !with_planning(|planning| planning.is_hooked()) {
        say_loaded_late();
        return;
    }
    relation.set_server_oid(info.server_oid);
    relation.set_user_oid(pg_sys::InvalidOid);
    relation.set_user_is_current(false);
    relation.set_routine(routine);
    info.attach(relation);
}

type Labelled<'p> = Result<Option<(Option<Routine<'p>>, RelationInfo<'p>)>, Refusal>;

fn label_subquery<'p>(root: Root<'p>, relation: Rel<'p>, entry: RangeEntry<'p>) -> Labelled<'p> {
    let is_read = |subroot: &Root<'p>| subroot.parse().row_marks().is_nil();
    let Some(subroot) = relation.subroot().filter(is_read) else { return Ok(None) };
    let kind = pg_sys::UpperRelationKind::UPPERREL_FINAL;
    let last = subroot.upper_relation(kind);
    // What PostgreSQL sends to a subquery is planned with the subquery alone.
    let Some(info) = RelationInfo::complete_of(last).filter(|info| info.is_whole()) else { return Ok(None) };
    let Some(target) = subroot.upper_target(kind) else { return Ok(None) };
    let mut computed = Vec::new();
    let mut columns = HashMap::new();
    for (place, node) in target.expressions().iter().enumerate() {
        let lowered = match Lowering::new(info.scope()).lower(node) {
            Ok(lowered) if *lowered.data_type() != DataType::Numeric => lowered,
            // Needed only if something above needs it, and then refused there.
            _ => continue,
        };
        columns.insert(place as i16 + 1, defer_or_name(lowered, &mut computed));
    }
    let mut projected = info.relation().clone();
    if !computed.is_empty() {
        let mut expressions = pass_through(&projected);
        expressions.extend(computed);
        let rows = cost::clamp_rows(info.rows);
        projected = Relation::new(Operator::Project { input: projected, expressions }, rows);
    }
    let scope = Rc::new(Scope::of_columns(relation.index(), columns));
    let place = Place { root, relation, inputs: &[] };
    let mut labelled = finish_label(&place, info, projected, scope, entry.is_security_barrier())?;
    labelled.absorbed.push(subroot);
    Ok(Some((last.routine(), labelled)))
}

/// UNION ALL in FROM, and partitioned tables. Of members that are not ours, PostgreSQL sends the rows.
fn label_union<'p>(root: Root<'p>, relation: Rel<'p>) -> Labelled<'p> {
    let children = || {
        let members = root.append_rel_list().iter();
        let members = members.filter(|member| member.parent_index() == relation.index());
        members.filter_map(|member| root.relation(member.child_index() as usize))
    };
    let Some((routine, first)) =
        children().find_map(|child| Some((child.routine(), RelationInfo::complete_of(child)?)))
    else {
        return Ok(None);
    };
    let server_oid = first.server_oid;
    let mut members = Vec::new();
    for member in root.append_rel_list().iter() {
        if member.parent_index() != relation.index() {
            continue;
        }
        let Some(child) = root.relation(member.child_index() as usize) else { return Ok(None) };
        if child.is_dummy() {
            continue;
        }
        let info = match RelationInfo::of(child) {
            Some(_) => RelationInfo::complete_of(child).filter(|info| info.server_oid == server_oid),
            None => input_of(root, child, server_oid),
        };
        match info {
            Some(info) => members.push((member, child, info)),
            None => return Ok(None),
        }
    }
    let Some((first_member, _, _)) = members.first() else { return Ok(None) };
    let mut union = Union::new(members.iter().map(|(_, _, info)| info.relation().clone()));
    let mut columns = HashMap::new();
    for place in 0..first_member.translated_vars().len() {
        let mut values = Vec::new();
        for (member, _, info) in &members {
            // A dropped column of a partition has no translation.
            let Some(node) = member.translated_vars().get(place) else { break };
            match Lowering::new(info.scope()).lower(node) {
                Ok(lowered) if *lowered.data_type() != DataType::Numeric => values.push(lowered),
                _ => break,
            }
        }
        if values.len() == members.len() {
            columns.insert(place as i16 + 1, union.add(values)?);
        }
    }
    let (mut absorbed, mut inputs) = (Vec::new(), Vec::new());
    for (_, _, info) in &members {
        absorbed.extend(&info.absorbed);
        inputs.extend(info.inputs.iter().cloned());
    }
    let rows = cost::clamp_rows(members.iter().map(|(_, _, info)| info.rows).sum());
    let cost = members.iter().map(|(_, _, info)| info.cost).sum();
    let scope = Rc::new(Scope::of_columns(relation.index(), columns));
    let place = Place { root, relation, inputs: &[] };
    let built = place_placeholders(&place, union.finish(rows), scope)?;
    let mut info = RelationInfo::of_table(server_oid, built, rows, cost);
    info.absorbed = absorbed;
    info.inputs = inputs;
    Ok(Some((routine, info)))
}

/// Applies the conditions that core could not push into a subquery. Above a security barrier none may fail: engines
/// push conditions down, and an error would show what the barrier hides.
fn finish_label<'p>(
    place: &Place<'_, 'p>,
    info: &RelationInfo<'p>,
    mut projected: Arc<Relation>,
    scope: Rc<Scope>,
    is_barrier: bool,
) -> Result<RelationInfo<'p>, Refusal> {
    let relation = place.relation;
    let mut filters = Vec::new();
    for clause in in_order(place.root, relation.clauses()) {
        filters.push(Lowering::new(&scope).lower_clause(place.root, clause)?);
    }
    if is_barrier && filters.iter().any(|filter| could_fail(filter, &|_| false)) {
        return Err(Refusal::CouldFailAboveBarrier);
    }
    let rows = relation.rows();
    if let Some(predicate) = Expression::all_of(filters) {
        projected = Relation::new(Operator::Filter { input: projected, predicate }, rows);
    }
    let (projected, scope) = place_placeholders(place, projected, scope)?;
    let mut labelled = info.above(projected, scope, rows, cost::EVALUATE_ROW_COST * info.rows);
    labelled.is_plain = true;
    Ok(labelled)
}

/// The columns of a union under construction.
pub struct Union {
    members: Vec<(Arc<Relation>, Vec<NamedExpression>)>,
    columns: Vec<(ColumnId, DataType)>,
}

impl Union {
    /// A union of these members, without columns.
    pub fn new(members: impl Iterator<Item = Arc<Relation>>) -> Self {
        Self { members: members.map(|member| (member, Vec::new())).collect(), columns: Vec::new() }
    }

    /// A column whose values are `values`, one a member.
    pub fn add(&mut self, values: Vec<Lowered>) -> Result<Lowered, Refusal> {
        let (values, data_type, magnitude) = unify_branches(values)?;
        let scale = common_scale(&values);
        let scales: Vec<_> = values.iter().map(|value| value.scale.expression()).collect();
        let values = values.into_iter().map(|value| retype(value, &data_type));
        let values: Result<Vec<_>, _> = values.map(|value| value.map(|value| value.expression)).collect();
        let expression = self.add_column(values?, data_type.clone());
        let scale = match scale {
            Some(Scale::None) if data_type.is_decimal() => Scale::Fixed(0),
            Some(scale) => scale,
            None => Scale::Varies(Box::new(self.add_column(scales, DataType::Int32))),
        };
        Ok(Lowered::number(expression, scale, magnitude))
    }

    fn add_column(&mut self, values: Vec<Expression>, data_type: DataType) -> Expression {
        for ((_, expressions), value) in self.members.iter_mut().zip(values) {
            name_column(Lowered::plain(value), expressions);
        }
        let id = with_planning(|planning| planning.new_column());
        self.columns.push((id, data_type.clone()));
        Expression::column(id, data_type)
    }

    /// The union, of which so many rows are expected.
    pub fn finish(self, rows: f64) -> Arc<Relation> {
        let inputs = self.members.into_iter().map(|(input, expressions)| {
            let ids = expressions.iter().map(|named| named.id).collect();
            let rows = input.estimate.rows;
            (Relation::new(Operator::Project { input, expressions }, rows), ids)
        });
        Relation::new(Operator::UnionAll { inputs: inputs.collect(), columns: self.columns }, rows)
    }
}

/// Warns once in a session: without planner_hook around the planning, the permissions of an absorbed subquery would not
/// be checked.
fn say_loaded_late() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        ereport!(
            PgLogLevel::NOTICE,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            "a subquery was not pushed down, because pystachio was loaded while the query was planned",
            "Run the query again, or add pystachio to shared_preload_libraries or session_preload_libraries."
        );
    });
}
