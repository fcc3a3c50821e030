//! What comes after the joins: grouping, DISTINCT, ORDER BY, LIMIT and the final target.

use std::{rc::Rc, sync::Arc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, LoweredAggregate, Refusal, Scale, Scope, Source, check_depth};
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, DataType, Expression, NamedExpression, Operator, Relation,
    SortKey, Value, passing_share,
};

use super::{
    base::offer_paths,
    clauses::conditions_in_order,
    cost,
    descriptions::number_bounds,
    join::may_push,
    lowering::{Lowering, check_equality, check_order},
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{RelationInfo, defer_or_name, name_column, pass_through},
    sorted::SortedScan,
};
use crate::pg::tree::{self, ForeignPath, GroupExtra, List, Node, Path, Query, Rel, Root, Stage, Target};

type BuiltRelation<'p> = Result<RelationInfo<'p>, Refusal>;

/// Considers one stage above the joins.
pub fn offer_stage(stage: &Stage<'_>) {
    let Stage { root, kind, input, output, groups } = *stage;
    if !may_push(root) || output.has_private() {
        return;
    }
    let Some(info) = RelationInfo::complete_of(input) else { return };
    if root.parse().has_sets_in_target() && expands_sets(input) {
        with_planning(|planning| planning.refuse(Refusal::SetInTarget.to_string()));
        return;
    }
    let upper = Upper { root, parse: root.parse(), info };
    let last = pg_sys::UpperRelationKind::UPPERREL_FINAL;
    let target = match kind {
        pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG => Some(output.target()),
        pg_sys::UpperRelationKind::UPPERREL_DISTINCT => root.upper_target(kind),
        _ => root.upper_target(last),
    };
    let Some(target) = target else { return };
    let (word, built) = match kind {
        pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG => ("grouping", upper.group(target, groups)),
        pg_sys::UpperRelationKind::UPPERREL_DISTINCT => ("DISTINCT", upper.distinct(target)),
        pg_sys::UpperRelationKind::UPPERREL_ORDERED => ("ORDER BY", upper.order()),
        pg_sys::UpperRelationKind::UPPERREL_FINAL => {
            if root.parse().command() != pg_sys::CmdType::CMD_SELECT {
                return;
            }
            ("LIMIT", upper.finish())
        }
        _ => return,
    };
    let built = built.and_then(|built| {
        check_depth(built.depth)?;
        outputs_of(&built, target)?;
        Ok(built)
    });
    match built {
        Ok(built) => {
            let rows = cost::clamp_rows(built.rows);
            let costs = cost::path_costs(built.cost, rows);
            let pathkeys = if built.is_sorted { root.sort_pathkeys() } else { List::nil() };
            let mut paths = vec![ForeignPath::of_stage(root, output, target, rows, costs, pathkeys).path()];
            if kind == pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG
                && let Some(sorted) = SortedScan::wanted_of_groups(root, output, &built)
            {
                let (rows, costs) = sorted.costs(&built, rows);
                let path = ForeignPath::of_stage(root, output, target, rows, costs, List::nil());
                paths.push(sorted.marked(path, rows));
            }
            built.attach(output);
            offer_paths(output, paths);
        }
        Err(refusal) => {
            with_planning(|planning| planning.refuse(format!("{word}: {refusal}")));
        }
    }
}

struct Upper<'p> {
    root: Root<'p>,
    parse: Query<'p>,
    info: &'p RelationInfo<'p>,
}

impl<'p> Upper<'p> {
    fn lowering(&self) -> Lowering<'_> {
        Lowering::new(self.info.scope())
    }

    fn group(&self, target: Target<'p>, extra: Option<GroupExtra<'p>>) -> BuiltRelation<'p> {
        if !self.parse.grouping_sets().is_nil() {
            return Err(Refusal::GroupingSets);
        }
        let mut found = Vec::new();
        let mut groups = Vec::new();
        let mut aggregates = Vec::new();
        let mut keys = Vec::new();
        for (place, node) in target.expressions().iter().enumerate() {
            let reference = target.reference(place);
            let clause =
                self.parse.groups().iter().find(|clause| reference != 0 && clause.reference() == reference);
            if clause.is_none() {
                continue;
            }
            let (source, key) = self.lower_key(node)?;
            found.push((source, name_key(key, &mut groups, &mut aggregates)));
            keys.push(node);
        }
        if keys.len() < distinct_references(self.parse.groups()) {
            return Err(Refusal::KeyNotInTarget);
        }
        let having = extra.and_then(GroupExtra::having).and_then(Node::as_list).unwrap_or(List::nil());
        let mut computed = Vec::new();
        let mut input = self.info.relation().clone();
        let called = self.aggregates_of(target, having);
        if let [only] = called.as_slice()
            && let Some(row) = counted_row(*only)
        {
            let (distinct, call) = self.distinct_rows(row, &mut groups, &aggregates)?;
            input = distinct;
            let count = Lowered::plain(Expression::column(call.id, DataType::Int64));
            found.push((self.lowering().mirror(only.node())?, count));
            aggregates.push(call);
        } else {
            for node in called {
                let (source, lowered) = self.lowering().lower_aggregate(node)?;
                let value = share_calls(lowered, &mut aggregates);
                found.push((source, defer_or_name(value, &mut computed)));
            }
        }
        let rows = self.estimate_groups(&keys, self.info.rows);
        let called_aggregates = aggregates.clone();
        let mut relation = Relation::new(
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole },
            rows,
        );
        if !computed.is_empty() {
            let mut expressions = pass_through(&relation);
            expressions.extend(computed);
            relation = Relation::new(Operator::Project { input: relation, expressions }, rows);
        }
        let scope = Rc::new(Scope::Expressions(found));
        let rows_a_group = self.info.rows / rows.max(1.0);
        let mut rows = rows;
        let mut filters = Vec::new();
        let mut others = Vec::new();
        for condition in conditions_in_order(self.root, having) {
            let filter = Lowering::new(&scope).lower_condition(condition)?;
            match passing_share(&filter, &called_aggregates, rows_a_group, &number_bounds) {
                Some(share) => rows *= share,
                None => others.push(condition),
            }
            filters.push(filter);
        }
        if let Some(predicate) = Expression::all_of(filters) {
            rows *= self.root.selectivity(List::of(others), 0, pg_sys::JoinType::JOIN_INNER, None);
            let rows = cost::clamp_rows(rows);
            relation = Relation::new(Operator::Filter { input: relation, predicate }, rows);
        }
        let cost = cost::GROUP_ROW_COST * self.info.rows;
        Ok(self.info.above(relation, scope, cost::clamp_rows(rows), cost))
    }

    /// A key of grouping or DISTINCT.
    fn lower_key(&self, node: Node<'p>) -> Result<(Source, Lowered), Refusal> {
        check_equality(node)?;
        let source = self.lowering().mirror(node)?;
        let lowered = self.lowering().lower_source(&source)?;
        if lowered.data_type().is_float() {
            // 0 and -0 are one group and print differently; the one that comes first wins.
            return Err(Refusal::GroupsOfFloats);
        }
        if *lowered.data_type() == DataType::Numeric {
            return Err(Refusal::GroupsOfRuntimeNumeric);
        }
        Ok((source, lowered))
    }

    /// `count(DISTINCT (a, b))` counts groups by a and b, for rows are never NULL and NULLs in them are equal. Gives these
    /// groups, which become the input of those by `groups`, and the count.
    fn distinct_rows(
        &self,
        row: tree::Row<'p>,
        groups: &mut [NamedExpression],
        companions: &[AggregateCall],
    ) -> Result<(Arc<Relation>, AggregateCall), Refusal> {
        if !companions.is_empty() {
            return Err(Refusal::RowsCountedByScales);
        }
        let mut columns = Vec::new();
        for group in groups {
            let id = with_planning(|planning| planning.new_column());
            let data_type = group.expression.data_type().clone();
            let expression = std::mem::replace(&mut group.expression, Expression::column(id, data_type));
            columns.push(NamedExpression { id, expression });
        }
        let fields: Vec<_> = row.fields().iter().collect();
        for field in &fields {
            let (_, lowered) = self.lower_key(*field)?;
            name_column(Lowered { scale: Scale::None, ..lowered }, &mut columns);
        }
        let rows = self.estimate_groups(&fields, self.info.rows);
        let input = self.info.relation().clone();
        let (groups, aggregates, phase) = (columns, Vec::new(), AggregatePhase::Whole);
        let distinct = Relation::new(Operator::Aggregate { input, groups, aggregates, phase }, rows);
        let count = AggregateCall {
            id: with_planning(|planning| planning.new_column()),
            function: Aggregate::Count,
            argument: None,
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
        };
        Ok((distinct, count))
    }

    fn aggregates_of(
        &self,
        target: Target<'p>,
        having: List<'p, pg_sys::Node>,
    ) -> Vec<tree::AggregateCall<'p>> {
        let mut found: Vec<tree::AggregateCall<'p>> = Vec::new();
        let mut collect = |node: Node<'p>| {
            let Some(aggregate) = node.downcast::<pg_sys::Aggref>() else { return true };
            if !found.iter().any(|known| known.equals(aggregate)) {
                found.push(aggregate);
            }
            false
        };
        for node in target.expressions().iter().chain(having.iter()) {
            node.walk(&mut collect);
        }
        found
    }

    fn estimate_groups(&self, keys: &[Node<'p>], rows: f64) -> f64 {
        if keys.is_empty() {
            return 1.0;
        }
        self.root.group_count(List::of(keys.iter().copied()), cost::clamp_rows(rows))
    }

    fn distinct(&self, target: Target<'p>) -> BuiltRelation<'p> {
        if self.parse.has_distinct_on() {
            return Err(Refusal::DistinctOn);
        }
        let mut groups = Vec::new();
        let mut aggregates = Vec::new();
        let mut found = Vec::new();
        let mut keys = Vec::new();
        for (place, node) in target.expressions().iter().enumerate() {
            let reference = target.reference(place);
            let is_key = self.parse.distinct().iter().any(|clause| clause.reference() == reference);
            if reference == 0 || !is_key {
                return Err(Refusal::NotDistinct);
            }
            let (source, key) = self.lower_key(node)?;
            found.push((source, name_key(key, &mut groups, &mut aggregates)));
            keys.push(node);
        }
        let rows = self.estimate_groups(&keys, self.info.rows);
        let input = self.info.relation().clone();
        let relation = Relation::new(
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole },
            rows,
        );
        let cost = cost::GROUP_ROW_COST * self.info.rows;
        Ok(self.info.above(relation, Rc::new(Scope::Expressions(found)), rows, cost))
    }

    fn order(&self) -> BuiltRelation<'p> {
        let mut keys = Vec::new();
        for clause in self.parse.order().iter() {
            let node = self.root.sorted_target(clause).expression();
            check_order(node)?;
            check_equality(node)?;
            let lowered = self.lowering().lower(node)?;
            if *lowered.data_type() == DataType::Numeric {
                // A runtime value is the same in every row.
                continue;
            }
            let descending = sort_descends(clause.sort_operator())?;
            let nulls_first = clause.nulls_first();
            keys.push(SortKey { expression: lowered.expression, descending, nulls_first });
        }
        let mut relation = self.info.relation().clone();
        if !keys.is_empty() {
            relation = Relation::new(Operator::Sort { input: relation, keys }, self.info.rows);
        }
        let scope = self.info.scope().clone();
        let mut info =
            self.info.above(relation, scope, self.info.rows, cost::sort(self.info.rows, self.info.rows));
        info.is_sorted = true;
        Ok(info)
    }

    fn finish(&self) -> BuiltRelation<'p> {
        let parse = self.parse;
        if parse.limit_option() == pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES {
            return Err(Refusal::WithTies);
        }
        if parse.has_sets_in_target() {
            return Err(Refusal::SetInTarget);
        }
        let is_sorted = self.info.is_sorted;
        let has_limit = parse.limit_count().is_some() || parse.limit_offset().is_some();
        let mut relation = self.info.relation().clone();
        let mut rows = self.info.rows;
        if has_limit {
            let offset = self.lower_limit(parse.limit_offset())?;
            let count = self.lower_limit(parse.limit_count())?;
            if let Some(Expression::Literal(literal)) = &count
                && let Value::Int(limit) = literal.value
            {
                rows = rows.min((limit as f64).max(1.0));
            }
            relation = Relation::new(Operator::Limit { input: relation, offset, count }, rows);
        }
        let mut info = self.info.above(relation, self.info.scope().clone(), rows, 0.0);
        info.is_sorted = is_sorted;
        Ok(info)
    }

    fn lower_limit(&self, node: Option<Node<'p>>) -> Result<Option<Expression>, Refusal> {
        let Some(node) = node else { return Ok(None) };
        let lowered = self.lowering().lower(node)?;
        if *lowered.data_type() != DataType::Int64 {
            return Err(Refusal::LimitType);
        }
        Ok(Some(lowered.expression))
    }
}

/// Whether core has put functions that return sets between the relation's plan and what is above: then a row of the plan is
/// not a row of the relation.
fn expands_sets(relation: Rel<'_>) -> bool {
    let has_set_below = |path: Path<'_>| {
        let path = path.downcast::<pg_sys::ProjectionPath>().map_or(path, |projection| projection.path());
        path.is::<pg_sys::ProjectSetPath>()
    };
    relation.paths().iter().any(has_set_below)
}

/// A key as a column of the groups. Where equal keys have several scales, a group shows the one with most digits, as it would
/// over a heap table whose rows come in that order.
fn name_key(key: Lowered, groups: &mut Vec<NamedExpression>, aggregates: &mut Vec<AggregateCall>) -> Lowered {
    let Scale::Varies(digits) = key.scale else { return name_column(key, groups) };
    let key = name_column(Lowered { scale: Scale::None, ..key }, groups);
    let call = AggregateCall {
        id: with_planning(|planning| planning.new_column()),
        function: Aggregate::Max,
        argument: Some(*digits),
        distinct: false,
        filter: None,
        data_type: DataType::Int32,
    };
    let digits = Expression::column(call.id, DataType::Int32);
    aggregates.push(call);
    Lowered { scale: Scale::Varies(Box::new(digits)), ..key }
}

/// The row of `count(DISTINCT (a, b))`.
fn counted_row(aggregate: tree::AggregateCall<'_>) -> Option<tree::Row<'_>> {
    let is_count = aggregate.function() == pg_sys::Oid::from(pg_sys::F_COUNT_ANY)
        && !aggregate.distinct().is_nil()
        && aggregate.filter().is_none()
        && aggregate.levels_up() == 0;
    let entry = aggregate.arguments().first().filter(|_| is_count)?;
    let row = entry.expression().downcast::<pg_sys::RowExpr>()?;
    (!row.fields().is_empty()).then_some(row)
}

/// Adds the calls of an aggregate, using those that are there already: `sum(x)` and `avg(x)` share a sum.
fn share_calls(lowered: LoweredAggregate, aggregates: &mut Vec<AggregateCall>) -> Lowered {
    let mut renamed = Vec::new();
    for call in lowered.calls {
        let same = |known: &&AggregateCall| AggregateCall { id: known.id, ..call.clone() } == **known;
        match aggregates.iter().find(same) {
            Some(known) => renamed.push((call.id, known.id)),
            None => aggregates.push(call),
        }
    }
    lowered.value.map_expressions(&mut |mut expression| {
        expression.map_parts(&mut |part| {
            if let Expression::Column { id, .. } = part
                && let Some((_, known)) = renamed.iter().find(|(renamed, _)| renamed == id)
            {
                *id = *known;
            }
        });
        expression
    })
}

/// Whether a sort operator sorts the greatest first.
fn sort_descends(operator: pg_sys::Oid) -> Result<bool, Refusal> {
    // Operator families that initdb made order as the types' comparisons do; `text_pattern_ops` too, but
    // its operators have names of their own and never come here by ORDER BY.
    match tree::operator_descends(operator) {
        Some(descends) if u32::from(operator) < pg_sys::FirstNormalObjectId => Ok(descends),
        _ => Err(Refusal::SortOperator),
    }
}

fn distinct_references(clauses: List<'_, pg_sys::SortGroupClause>) -> usize {
    let mut references: Vec<u32> = clauses.iter().map(|clause| clause.reference()).collect();
    references.sort_unstable();
    references.dedup();
    references.len()
}
