//! What comes after the joins: grouping, DISTINCT, ORDER BY, LIMIT and the final target.

use std::{collections::HashSet, rc::Rc, sync::Arc};

use pgrx::pg_sys;
use pystachio_lower::{
    AggregateRefusal, Lowered, LoweredAggregate, OrderKey, Refusal, Scale, Scope, Source, SourceType,
    check_depth,
};
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, Expression, Function, Literal,
    NamedExpression, Operator, RecordField, Relation, SortKey, Value, WindowCall, WindowFrame,
    WindowFunction, could_fail, passing_share,
};

use super::{
    base::offer_paths,
    clauses::conditions_in_order,
    cost,
    descriptions::number_bounds,
    join::may_push,
    lowering::{Lowering, check_equality, order_key},
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{RelationInfo, defer_or_name, name_column, pass_through},
    sorted::SortedScan,
};
use crate::pg::tree::{self, GroupExtra, List, Node, Path, Query, Rel, Root, Stage, Target};

pub(super) type BuiltRelation<'p> = Result<RelationInfo<'p>, Refusal>;

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
        pg_sys::UpperRelationKind::UPPERREL_WINDOW | pg_sys::UpperRelationKind::UPPERREL_DISTINCT => {
            root.upper_target(kind)
        }
        _ => root.upper_target(last),
    };
    let Some(target) = target else { return };
    let (word, built) = match kind {
        pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG => ("grouping", upper.group(target, groups)),
        pg_sys::UpperRelationKind::UPPERREL_WINDOW => ("window functions", upper.windows()),
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
            let passing = List::of(built.local_conditions.iter().copied());
            let passing = root.selectivity(passing, 0, pg_sys::JoinType::JOIN_INNER, None);
            let rows = cost::clamp_rows(built.rows * passing);
            let costs = cost::path_costs(built.cost, cost::clamp_rows(built.rows));
            let costs = built.path_costs(root, output, costs);
            let pathkeys = if built.is_sorted { root.sort_pathkeys() } else { List::nil() };
            let place = (output, target);
            let mut paths = vec![built.stage_path(root, place, rows, costs, pathkeys).path()];
            if kind == pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG
                && let Some(sorted) = SortedScan::wanted_of_groups(root, output, &built)
            {
                let (rows, costs) = sorted.costs(root, output, &built, rows);
                paths.push(sorted.marked(built.stage_path(root, place, rows, costs, List::nil()), rows));
            }
            offer_paths(output, &built, paths);
            built.attach(output);
        }
        Err(refusal) => {
            with_planning(|planning| planning.refuse(format!("{word}: {refusal}")));
        }
    }
}

pub(super) struct Upper<'p> {
    pub(super) root: Root<'p>,
    pub(super) parse: Query<'p>,
    pub(super) info: &'p RelationInfo<'p>,
}

impl<'p> Upper<'p> {
    pub(super) fn lowering(&self) -> Lowering<'_> {
        Lowering::new(self.info.scope())
    }

    fn group(&self, target: Target<'p>, extra: Option<GroupExtra<'p>>) -> BuiltRelation<'p> {
        let having = extra.and_then(GroupExtra::having).and_then(Node::as_list).unwrap_or(List::nil());
        match self.parse.grouping_sets().is_nil() {
            true => self.groups(target, having, &|_| true),
            false => self.grouping_sets(target, having),
        }
    }

    /// The groups by the keys whose references `is_key` names.
    pub(super) fn groups(
        &self,
        target: Target<'p>,
        having: List<'p, pg_sys::Node>,
        is_key: &dyn Fn(u32) -> bool,
    ) -> BuiltRelation<'p> {
        let mut lowered_keys = Vec::new();
        let mut groups = Vec::new();
        let mut aggregates = Vec::new();
        let mut keys = Vec::new();
        for (_, node) in self.keys_of(target).into_iter().filter(|(reference, _)| is_key(*reference)) {
            lowered_keys.push(self.lower_key(node)?);
            keys.push(node);
        }
        let mut computed = Vec::new();
        let mut found = name_keys(lowered_keys, &mut groups, &mut aggregates, &mut computed)?;
        let references = self.parse.groups().iter().map(|clause| clause.reference());
        if keys.len() < distinct(references.filter(|reference| is_key(*reference))) {
            return Err(Refusal::KeyNotInTarget);
        }
        let mut input = self.info.relation().clone();
        let called = self.aggregates_of(target, having);
        if let [only] = called.as_slice()
            && only.filter().is_none()
            && let Some(row) = counted_row(*only)
        {
            let (distinct, call) = self.distinct_rows(row, &mut groups, &aggregates)?;
            input = distinct;
            let count = Lowered::plain(Expression::column(call.id, DataType::Int64));
            found.push((self.lowering().mirror(only.node())?, count));
            aggregates.push(call);
        } else {
            for node in called {
                if let Some(row) = counted_row(node) {
                    let lowered = self.counted_rows(node, row)?;
                    let value = share_calls(lowered, &mut aggregates);
                    found.push((self.lowering().mirror(node.node())?, value));
                    continue;
                }
                let (source, lowered) = self.lowering().lower_aggregate(node)?;
                let value = share_calls(lowered, &mut aggregates);
                found.push((source, defer_or_name(value, &mut computed)));
            }
        }
        if aggregates.iter().any(takes_input_order)
            && let Some(order) = order_of(&input)?
        {
            let taking = aggregates.iter_mut().filter(|call| takes_input_order(call));
            taking.for_each(|call| call.order.clone_from(&order));
            if let Operator::Sort { input: unsorted, .. } = &input.operator {
                input = unsorted.clone();
            }
        }
        if groups.is_empty() && aggregates.is_empty() {
            // One row, even of nothing: that takes an aggregate.
            aggregates.push(count_of_rows());
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
        let relation_rows = rows;
        let mut rows = rows;
        let mut filters = Vec::new();
        let mut others = Vec::new();
        let mut local = Vec::new();
        for condition in conditions_in_order(self.root, having) {
            let filter = match Lowering::new(&scope).lower_condition(condition) {
                // A condition guards those that PostgreSQL tests after it.
                Ok(filter) if local.is_empty() || !could_fail(&filter, &|_| false) => filter,
                other => {
                    let refusal = other.err().unwrap_or(Refusal::CouldFailAfterLocal);
                    with_planning(|planning| planning.refuse(format!("HAVING: {refusal}")));
                    local.push(condition);
                    continue;
                }
            };
            match passing_share(&filter, &called_aggregates, rows_a_group, &number_bounds) {
                Some(share) => rows *= share,
                None => others.push(condition),
            }
            filters.push(filter);
        }
        let mut scope = scope;
        if let Some(mut predicate) = Expression::all_of(filters) {
            rows *= self.root.selectivity(List::of(others), 0, pg_sys::JoinType::JOIN_INNER, None);
            let named = name_repeated_variances(&mut predicate);
            if let (false, Scope::Expressions(entries)) = (named.is_empty(), &*scope) {
                let entry = |(source, value): &(Source, Lowered)| {
                    let value =
                        value.clone().map_expressions(&mut |expression| with_columns(expression, &named));
                    (source.clone(), value)
                };
                scope = Rc::new(Scope::Expressions(entries.iter().map(entry).collect()));
                let mut expressions = pass_through(&relation);
                expressions.extend(named);
                relation = Relation::new(Operator::Project { input: relation, expressions }, relation_rows);
            }
            let rows = cost::clamp_rows(rows);
            relation = Relation::new(Operator::Filter { input: relation, predicate }, rows);
        }
        let cost = cost::GROUP_ROW_COST * self.info.rows;
        let mut info = self.info.above(relation, scope, cost::clamp_rows(rows), cost);
        info.local_conditions = local;
        Ok(info)
    }

    /// The keys of the groups in a target, with their references.
    pub(super) fn keys_of(&self, target: Target<'p>) -> Vec<(u32, Node<'p>)> {
        let clauses = self.parse.groups();
        let entries = target.expressions().iter().enumerate();
        let entries = entries.map(|(place, node)| (target.reference(place), node));
        let is_key =
            |reference| reference != 0 && clauses.iter().any(|clause| clause.reference() == reference);
        entries.filter(|(reference, _)| is_key(*reference)).collect()
    }

    /// A key of grouping or DISTINCT.
    fn lower_key(&self, node: Node<'p>) -> Result<(Source, Lowered), Refusal> {
        check_equality(node)?;
        let source = self.lowering().mirror(node)?;
        let lowered = self.lowering().lower_source(&source)?;
        if *lowered.data_type() == DataType::Numeric {
            return Err(Refusal::GroupsOfRuntimeNumeric);
        }
        Ok((source, lowered))
    }

    /// `count(DISTINCT (a, b))` beside other aggregates.
    fn counted_rows(
        &self,
        call: tree::AggregateCall<'p>,
        row: tree::Row<'p>,
    ) -> Result<LoweredAggregate, Refusal> {
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (place, field) in row.fields().iter().enumerate() {
            let (_, lowered) = self.lower_key(field)?;
            if lowered.data_type().is_float() {
                // In a row 0 and -0 would be two values.
                let why = AggregateRefusal::Of(lowered.data_type().clone());
                return Err(Refusal::AggregateUse { name: "count".to_owned(), why });
            }
            fields.push(RecordField {
                name: format!("f{}", place + 1),
                data_type: lowered.data_type().clone(),
                length_max: None,
                trim_blanks: false,
                is_json: false,
            });
            columns.push(lowered.expression);
        }
        let filter = call.filter().map(|filter| self.lowering().lower_condition(filter)).transpose()?;
        let call = AggregateCall {
            id: with_planning(|planning| planning.new_column()),
            function: Aggregate::Count,
            argument: Some(Expression::call(Function::Row, columns, DataType::Record(fields))),
            distinct: true,
            filter,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let value = Lowered::plain(Expression::column(call.id, DataType::Int64));
        Ok(LoweredAggregate { calls: vec![call], value })
    }

    /// `count(DISTINCT (a, b))` alone counts groups by a and b, for rows are never NULL and NULLs in them are equal. Gives these
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
        Ok((distinct, count_of_rows()))
    }

    pub(super) fn aggregates_of(
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

    /// Whether a column with a reference is not one of the result's, nor what the result is ordered by.
    fn is_hidden(&self, reference: u32) -> bool {
        let is_ordered_by = self.parse.order().iter().any(|clause| clause.reference() == reference);
        let mut entries = self.root.processed_tlist().iter();
        let entry = entries.find(|entry| entry.reference() == reference);
        entry.is_some_and(|entry| entry.is_hidden()) && !is_ordered_by
    }

    /// The first row of each group, in the order of the query.
    fn distinct_on(&self) -> BuiltRelation<'p> {
        let (mut partition, mut nodes) = (Vec::new(), Vec::new());
        for clause in self.parse.distinct().iter() {
            let node = self.root.sorted_target(clause).expression();
            partition.extend(self.partition_key(node)?);
            nodes.push(node);
        }
        let order = self.sort_keys(self.parse.order())?;
        let order = order.into_iter().filter(|key| !partition.contains(&key.expression)).collect();
        let (number, is_first) = numbered_by(WindowFunction::RowNumber, Function::Equal, 1);
        let rows = self.estimate_groups(&nodes, self.info.rows);
        let input = self.info.relation().clone();
        let window = Operator::Window { input, partition, order, calls: vec![number] };
        let window = Relation::new(window, self.info.rows);
        let relation = Relation::new(Operator::Filter { input: window, predicate: is_first }, rows);
        let cost = cost::sort(self.info.rows, self.info.rows);
        Ok(self.info.above(relation, self.info.scope().clone(), rows, cost))
    }

    /// What a window divides rows by; `None` of what is the same in every row.
    pub(super) fn partition_key(&self, node: Node<'p>) -> Result<Option<Expression>, Refusal> {
        check_equality(node)?;
        let lowered = self.lowering().lower(node)?;
        match lowered.data_type() {
            // A runtime value.
            DataType::Numeric => Ok(None),
            other @ (DataType::List(_) | DataType::Record(_) | DataType::Interval) => {
                Err(Refusal::PartitionBy(other.clone()))
            }
            _ => Ok(Some(lowered.expression)),
        }
    }

    /// The keys of an order, without those that are the same in every row.
    pub(super) fn sort_keys(
        &self,
        clauses: List<'p, pg_sys::SortGroupClause>,
    ) -> Result<Vec<SortKey>, Refusal> {
        let mut keys = Vec::new();
        for clause in clauses.iter() {
            let node = self.root.sorted_target(clause).expression();
            let (descending, nulls_first) = (sort_descends(clause.sort_operator()), clause.nulls_first());
            if let Ok(descending) = descending
                && let Some(of_fields) = self.lowering().lower_record_order(node, descending, nulls_first)?
            {
                keys.extend(of_fields);
                continue;
            }
            let order = order_key(node)?;
            check_equality(node)?;
            let ordered = self.lowering().lower_ordered(node)?;
            if ordered.iter().any(|value| *value.data_type() == DataType::Numeric) {
                // A runtime value.
                continue;
            }
            let descending = descending?;
            let key = |value: Lowered| {
                let expression = order.of(value.expression);
                SortKey { expression, descending, nulls_first }
            };
            keys.extend(ordered.into_iter().map(key));
        }
        Ok(keys)
    }

    pub(super) fn estimate_groups(&self, keys: &[Node<'p>], rows: f64) -> f64 {
        if keys.is_empty() {
            return 1.0;
        }
        self.root.group_count(List::of(keys.iter().copied()), cost::clamp_rows(rows))
    }

    fn distinct(&self, target: Target<'p>) -> BuiltRelation<'p> {
        if self.parse.has_distinct_on() {
            return self.distinct_on();
        }
        let mut groups = Vec::new();
        let mut aggregates = Vec::new();
        let (mut hidden, mut lowered_keys) = (Vec::new(), Vec::new());
        let mut keys = Vec::new();
        for (place, node) in target.expressions().iter().enumerate() {
            let reference = target.reference(place);
            let is_key = self.parse.distinct().iter().any(|clause| clause.reference() == reference);
            if reference != 0 && !is_key && self.is_hidden(reference) {
                // A key of a window, which nothing above reads.
                let source = self.lowering().mirror(node)?;
                let data_type = self.lowering().lower_source(&source)?.data_type().clone();
                hidden.push((source, Lowered::plain(Expression::literal(Value::Null, data_type))));
                continue;
            }
            if reference == 0 || !is_key {
                return Err(Refusal::NotDistinct);
            }
            lowered_keys.push(self.lower_key(node)?);
            keys.push(node);
        }
        let mut computed = Vec::new();
        let mut found = name_keys(lowered_keys, &mut groups, &mut aggregates, &mut computed)?;
        found.append(&mut hidden);
        let rows = self.estimate_groups(&keys, self.info.rows);
        let input = self.info.relation().clone();
        let mut relation = Relation::new(
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole },
            rows,
        );
        if !computed.is_empty() {
            let mut expressions = pass_through(&relation);
            expressions.extend(computed);
            relation = Relation::new(Operator::Project { input: relation, expressions }, rows);
        }
        let cost = cost::GROUP_ROW_COST * self.info.rows;
        Ok(self.info.above(relation, Rc::new(Scope::Expressions(found)), rows, cost))
    }

    fn order(&self) -> BuiltRelation<'p> {
        let keys = self.sort_keys(self.parse.order())?;
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
        if parse.has_sets_in_target() {
            return Err(Refusal::SetInTarget);
        }
        let is_sorted = self.info.is_sorted;
        if parse.limit_option() == pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES {
            return self.first_with_ties();
        }
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

    /// The rows to the last one that is asked for, and those that are equal to it by the order.
    fn first_with_ties(&self) -> BuiltRelation<'p> {
        let count = |node: Option<Node<'p>>| match self.lower_limit(node)? {
            Some(Expression::Literal(Literal { value: Value::Int(count), .. })) if count >= 0 => Ok(count),
            None => Ok(0),
            // PostgreSQL says what is wrong with a negative one.
            Some(_) => Err(Refusal::WithTies),
        };
        let (skipped, wanted) = (count(self.parse.limit_offset())?, count(self.parse.limit_count())?);
        if wanted == 0 {
            // No row has a tie.
            let (input, count) =
                (self.info.relation().clone(), Some(Expression::literal(Value::Int(0), DataType::Int64)));
            let none = Relation::new(Operator::Limit { input, offset: None, count }, 1.0);
            return Ok(self.info.above(none, self.info.scope().clone(), 1.0, 0.0));
        }
        let last = skipped.checked_add(wanted).ok_or(Refusal::WithTies)?;
        let Operator::Sort { input, keys } = &self.info.relation().operator else {
            return Err(Refusal::WithTies);
        };
        let (rank, mut at_most) = numbered_by(WindowFunction::Rank, Function::LessEqual, last);
        let mut calls = vec![rank];
        if skipped > 0 {
            let (number, behind) = numbered_by(WindowFunction::RowNumber, Function::Greater, skipped);
            calls.push(number);
            at_most = Expression::predicate(Function::And, vec![at_most, behind]);
        }
        let rows = self.info.rows;
        let (input, order) = (input.clone(), keys.clone());
        let window = Operator::Window { input, partition: Vec::new(), order, calls };
        let window = Relation::new(window, rows);
        let rows = rows.min((wanted as f64).max(1.0));
        let filter = Relation::new(Operator::Filter { input: window, predicate: at_most }, rows);
        let sorted = Relation::new(Operator::Sort { input: filter, keys: keys.clone() }, rows);
        let mut info = self.info.above(sorted, self.info.scope().clone(), rows, 0.0);
        info.is_sorted = true;
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

/// Whether an aggregate shows the order in which a subquery has sorted its rows: PostgreSQL's manual says that this usually works.
fn takes_input_order(call: &AggregateCall) -> bool {
    call.function == Aggregate::Array && call.order.is_empty()
}

/// The order in which a relation has its rows, over its columns; `None` if it has none.
fn order_of(relation: &Relation) -> Result<Option<Vec<SortKey>>, Refusal> {
    match &relation.operator {
        Operator::Sort { keys, .. } => Ok(Some(keys.clone())),
        Operator::Filter { input, .. } | Operator::Limit { input, .. } => order_of(input),
        Operator::Window { partition, order, .. } => {
            let key = |expression: &Expression| SortKey {
                expression: expression.clone(),
                descending: false,
                nulls_first: false,
            };
            Ok(Some(partition.iter().map(key).chain(order.iter().cloned()).collect()))
        }
        Operator::Project { input, expressions } => {
            let Some(mut keys) = order_of(input)? else { return Ok(None) };
            for key in &mut keys {
                let column_of = |expression: &Expression| {
                    let found = expressions.iter().find(|named| named.expression == *expression)?;
                    Some(Expression::column(found.id, expression.data_type().clone()))
                };
                let column = column_of(&key.expression).or_else(|| match &key.expression {
                    Expression::Call { function: Function::SortKey(collator), arguments, .. } => {
                        Some(OrderKey::Collated(*collator).of(column_of(arguments.first()?)?))
                    }
                    _ => None,
                });
                key.expression = column.ok_or(Refusal::HiddenOrder)?;
            }
            Ok(Some(keys))
        }
        _ => Ok(None),
    }
}

/// A number that a window gives each row, and a comparison of it.
fn numbered_by(function: WindowFunction, comparison: Function, number: i64) -> (WindowCall, Expression) {
    let call = WindowCall {
        id: with_planning(|planning| planning.new_column()),
        function,
        argument: None,
        frame: WindowFrame::whole(),
        data_type: DataType::Int64,
    };
    let column = Expression::column(call.id, DataType::Int64);
    let number = Expression::literal(Value::Int(number), DataType::Int64);
    (call, Expression::predicate(comparison, vec![column, number]))
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

/// The keys of a grouping as columns of the groups. A key that others determine is no key, and is computed of them for each group:
/// `GROUP BY day, extract(year FROM day)` groups by days. So is a constant beside a key that is none: a constant alone makes a group
/// only where there are rows.
fn name_keys(
    keys: Vec<(Source, Lowered)>,
    groups: &mut Vec<NamedExpression>,
    aggregates: &mut Vec<AggregateCall>,
    computed: &mut Vec<NamedExpression>,
) -> Result<Vec<(Source, Lowered)>, Refusal> {
    let determines = keys.iter().filter(|(source, key)| determines_others(source, key));
    let determining: Vec<Expression> = determines.map(|(_, key)| key.expression.clone()).collect();
    let columns_of = |key: &Lowered| {
        let mut columns = Vec::new();
        key.expression.walk(&mut |part| {
            if matches!(part, Expression::Column { .. }) {
                columns.push(part.clone());
            }
        });
        columns
    };
    let has_columns = keys.iter().any(|(_, key)| !columns_of(key).is_empty());
    let is_determined = |key: &Lowered| {
        let is_column = matches!(key.expression, Expression::Column { .. });
        has_columns
            && !is_column
            && columns_of(key).iter().all(|column| determining.contains(column))
            && !matches!(key.scale, Scale::Varies(_))
    };
    let mut named = Vec::with_capacity(keys.len());
    let mut columns: Vec<(Expression, Expression)> = Vec::new();
    let mut determined = Vec::new();
    for (place, (source, key)) in keys.into_iter().enumerate() {
        if is_determined(&key) {
            determined.push((place, source, key));
            continue;
        }
        let expression = key.expression.clone();
        let key = name_key(key, groups, aggregates)?;
        columns.push((expression, key.expression.clone()));
        named.push((source, key));
    }
    for (place, source, key) in determined {
        let key = key.map_expressions(&mut |mut expression| {
            expression.map_parts(&mut |part| {
                if let Some((_, column)) = columns.iter().find(|(own, _)| own == part) {
                    *part = column.clone();
                }
            });
            expression
        });
        named.insert(place, (source, name_column(key, computed)));
    }
    Ok(named)
}

/// Whether values that are equal as keys are so to every function.
fn determines_others(source: &Source, key: &Lowered) -> bool {
    let is_told_apart = match key.data_type() {
        // 0 and -0, and numerics of several scales, are equal.
        DataType::Float32 | DataType::Float64 | DataType::Numeric | DataType::Interval => false,
        DataType::List(_) | DataType::Record(_) => false,
        _ => source.of != SourceType::Character,
    };
    is_told_apart
        && matches!(key.expression, Expression::Column { .. })
        && !matches!(key.scale, Scale::Varies(_))
}

/// A key as a column of the groups. Where equal keys have several scales, a group shows the one with most digits, as it would
/// over a heap table whose rows come in that order. Between members of a UNION the order is known: PostgreSQL shows the
/// value of the first.
fn name_key(
    key: Lowered,
    groups: &mut Vec<NamedExpression>,
    aggregates: &mut Vec<AggregateCall>,
) -> Result<Lowered, Refusal> {
    let Scale::Varies(digits) = key.scale else { return Ok(name_column(key, groups)) };
    if let Expression::Column { .. } = *digits {
        return Err(Refusal::GroupsOfSeveralScales);
    }
    let key = name_column(Lowered { scale: Scale::None, ..key }, groups);
    let call = AggregateCall {
        id: with_planning(|planning| planning.new_column()),
        function: Aggregate::Max,
        argument: Some(*digits),
        distinct: false,
        filter: None,
        data_type: DataType::Int32,
        order: Vec::new(),
    };
    let digits = Expression::column(call.id, DataType::Int32);
    aggregates.push(call);
    Ok(Lowered { scale: Scale::Varies(Box::new(digits)), ..key })
}

/// `count(*)`.
fn count_of_rows() -> AggregateCall {
    AggregateCall {
        id: with_planning(|planning| planning.new_column()),
        function: Aggregate::Count,
        argument: None,
        distinct: false,
        filter: None,
        data_type: DataType::Int64,
        order: Vec::new(),
    }
}

/// The row of `count(DISTINCT (a, b))`.
fn counted_row(aggregate: tree::AggregateCall<'_>) -> Option<tree::Row<'_>> {
    let is_count = aggregate.function() == pg_sys::Oid::from(pg_sys::F_COUNT_ANY)
        && !aggregate.distinct().is_nil()
        && aggregate.levels_up() == 0;
    let entry = aggregate.arguments().first().filter(|_| is_count)?;
    let row = entry.expression().downcast::<pg_sys::RowExpr>()?;
    (!row.fields().is_empty()).then_some(row)
}

/// Gives variances that a condition names several times a column each: their numbers have any size, so that they cost more than all
/// else. An engine computes a part of a choice as often as it is there.
fn name_repeated_variances(predicate: &mut Expression) -> Vec<NamedExpression> {
    let (mut once, mut repeated): (Vec<Expression>, Vec<Expression>) = (Vec::new(), Vec::new());
    predicate.walk(&mut |part| {
        let is_variance = matches!(
            part,
            Expression::Call { function: Function::Variance { .. } | Function::VarianceScale { .. }, .. }
        );
        if is_variance && !repeated.contains(part) {
            match once.contains(part) {
                true => repeated.push(part.clone()),
                false => once.push(part.clone()),
            }
        }
    });
    let name =
        |expression| NamedExpression { id: with_planning(|planning| planning.new_column()), expression };
    let named: Vec<NamedExpression> = repeated.into_iter().map(name).collect();
    *predicate = with_columns(predicate.clone(), &named);
    named
}

/// An expression with columns in the place of the parts that they are of.
fn with_columns(mut expression: Expression, named: &[NamedExpression]) -> Expression {
    expression.map_parts(&mut |part| {
        if let Some(known) = named.iter().find(|known| known.expression == *part) {
            *part = Expression::column(known.id, part.data_type().clone());
        }
    });
    expression
}

/// Adds the calls of an aggregate, using those that are there already: `sum(x)` and `avg(x)` share a sum.
fn share_calls(lowered: LoweredAggregate, aggregates: &mut Vec<AggregateCall>) -> Lowered {
    share(lowered.calls, lowered.value, aggregates, |call| &mut call.id)
}

/// Adds calls, using those that are there already but for their ids, and gives their value over what is there then.
pub(super) fn share<C: PartialEq>(
    calls: Vec<C>,
    value: Lowered,
    known: &mut Vec<C>,
    id: impl Fn(&mut C) -> &mut ColumnId,
) -> Lowered {
    let mut renamed: Vec<(ColumnId, ColumnId)> = Vec::new();
    for mut call in calls {
        let own = *id(&mut call);
        let same = known.iter_mut().find_map(|known| {
            let other = *id(known);
            *id(&mut call) = other;
            (call == *known).then_some(other)
        });
        *id(&mut call) = own;
        match same {
            Some(other) => renamed.push((own, other)),
            None => known.push(call),
        }
    }
    value.map_expressions(&mut |mut expression| {
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
pub(super) fn sort_descends(operator: pg_sys::Oid) -> Result<bool, Refusal> {
    // Operator families that initdb made order as the types' comparisons do; `text_pattern_ops` too, but
    // its operators have names of their own and never come here by ORDER BY.
    match tree::operator_descends(operator) {
        Some(descends) if u32::from(operator) < pg_sys::FirstNormalObjectId => Ok(descends),
        _ => Err(Refusal::SortOperator),
    }
}

/// How many different references there are.
fn distinct(references: impl Iterator<Item = u32>) -> usize {
    references.collect::<HashSet<_>>().len()
}
