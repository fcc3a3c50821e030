//! Window functions, as one operator for each order of rows.
//!
//! ```text
//! SELECT rank() OVER (PARTITION BY a ORDER BY b), sum(c) OVER (PARTITION BY a)    Window sum(c) over (partition by a)
//!                                                                           ─►     Window rank() over (partition by a order by b)
//! ```
//!
//! PostgreSQL takes conditions such as `rank <= 3` of the query around for *run conditions* of the functions, with which it stops reading
//! a partition, and which it no longer tests elsewhere. They are a filter above the windows here.

use std::rc::Rc;

use pgrx::pg_sys;
use pystachio_lower::{BoundSource, FrameSource, Lowered, LoweredWindow, Refusal, Scope, Source, UnitSource};
use pystachio_plan::{
    Expression, FrameExclusion, Operator, Relation, SortKey, WindowCall, could_fail, first_of_partitions,
};

use super::{
    cost,
    lowering::Lowering,
    relation_info::RelationInfo,
    upper::{Upper, share, sort_descends},
};
use crate::pg::tree::{List, Node, WindowClause, WindowFunction};

/// The functions of windows that have one partition and one order.
struct Group {
    /// How many partitions are expected.
    count: f64,
    partition: Vec<Expression>,
    order: Vec<SortKey>,
    calls: Vec<WindowCall>,
}

/// A window as the plan has it.
struct Window {
    count: f64,
    partition: Vec<Expression>,
    order: Vec<SortKey>,
    /// The first key as it was lowered.
    first_key: Option<(Lowered, bool)>,
}

impl<'p> Upper<'p> {
    /// The relation with all window functions of the query.
    pub(super) fn windows(&self) -> Result<RelationInfo<'p>, Refusal> {
        let functions = self.window_functions();
        let mut groups: Vec<Group> = Vec::new();
        let mut found: Vec<(Source, Lowered)> = Vec::new();
        let mut conditions = Vec::new();
        let mut seen = Vec::new();
        for function in functions {
            let clauses = self.parse.windows();
            let clause = clauses.iter().find(|clause| clause.number() == function.window());
            let clause = clause.ok_or(Refusal::WindowOutside)?;
            if !seen.contains(&clause.number()) {
                seen.push(clause.number());
                conditions.extend(clause.run_conditions().iter());
            }
            conditions.extend(function.run_conditions());
            let window = self.window(clause)?;
            let (source, lowered) = self.lower_window(function, clause, &window)?;
            let Window { count, partition, order, .. } = window;
            let place = groups.iter().position(|group| group.partition == partition && group.order == order);
            let place = place.unwrap_or_else(|| {
                groups.push(Group { count, partition, order, calls: Vec::new() });
                groups.len() - 1
            });
            let LoweredWindow { calls, value } = lowered;
            found.push((source, share(calls, value, &mut groups[place].calls, |call| &mut call.id)));
        }
        // Rows that are in the longest order are in those that it begins with.
        groups.sort_by_key(|group| std::cmp::Reverse(group.partition.len() + group.order.len()));
        let rows = self.info.rows;
        let mut relation = self.info.relation().clone();
        for Group { partition, order, calls, .. } in &groups {
            let (partition, order, calls) = (partition.clone(), order.clone(), calls.clone());
            relation = Relation::new(Operator::Window { input: relation, partition, order, calls }, rows);
        }
        let input = self.info.scope().clone();
        let scope = Rc::new(Scope::Windows { input, functions: found });
        let mut passing = rows;
        if !conditions.is_empty() {
            passing *= self.root.selectivity(
                List::of(conditions.iter().copied()),
                0,
                pg_sys::JoinType::JOIN_INNER,
                None,
            );
            let filters =
                conditions.iter().map(|condition| Lowering::new(&scope).lower_condition(*condition));
            let filters = filters.collect::<Result<Vec<_>, _>>()?;
            // PostgreSQL does not evaluate arguments behind the last row that passes.
            let calls = groups.iter().flat_map(|group| &group.calls);
            let mut arguments = calls.flat_map(WindowCall::expressions);
            if arguments.any(|part| could_fail(part, &|_| false)) {
                return Err(Refusal::CouldFailBehindLast);
            }
            if let Some(predicate) = Expression::all_of(filters) {
                for Group { count, calls, .. } in &groups {
                    if let Some((_, first)) = first_of_partitions(&predicate, calls) {
                        passing = passing.min(count * first as f64);
                    }
                }
                passing = cost::clamp_rows(passing);
                relation = Relation::new(Operator::Filter { input: relation, predicate }, passing);
            }
        }
        Ok(self.info.above(relation, scope, passing, cost::sort(rows, rows)))
    }

    /// The window functions of the query, each once.
    fn window_functions(&self) -> Vec<WindowFunction<'p>> {
        let mut found: Vec<WindowFunction<'p>> = Vec::new();
        let mut collect = |node: Node<'p>| {
            let Some(function) = node.downcast::<pg_sys::WindowFunc>() else { return true };
            if !found.iter().any(|known| known.equals(function)) {
                found.push(function);
            }
            false
        };
        for entry in self.root.processed_tlist().iter() {
            entry.expression().walk(&mut collect);
        }
        found
    }

    fn window(&self, clause: WindowClause<'p>) -> Result<Window, Refusal> {
        let (mut partition, mut nodes) = (Vec::new(), Vec::new());
        for key in clause.partition().iter() {
            let node = self.root.sorted_target(key).expression();
            nodes.push(node);
            let key = self.partition_key(node)?;
            partition.extend(key.filter(|key| !partition.contains(key)));
        }
        let order = self.sort_keys(clause.order())?;
        let first_key = match clause.order().first() {
            Some(key) => {
                let lowered = self.lowering().lower(self.root.sorted_target(key).expression())?;
                Some((lowered, sort_descends(key.sort_operator())?))
            }
            None => None,
        };
        let count = self.estimate_groups(&nodes, self.info.rows);
        Ok(Window { count, partition, order, first_key })
    }

    fn lower_window(
        &self,
        function: WindowFunction<'p>,
        clause: WindowClause<'p>,
        window: &Window,
    ) -> Result<(Source, LoweredWindow), Refusal> {
        let lowering = self.lowering();
        let options = clause.frame_options() as u32;
        let has = |option: u32| options & option != 0;
        let bound = |is_unbounded, [preceding, following]: [u32; 2], offset: Option<Node<'p>>| {
            let source = offset.map(|offset| lowering.mirror(offset)).transpose()?;
            Ok(match source {
                _ if has(is_unbounded) => BoundSource::Unbounded,
                Some(source) if has(preceding) => BoundSource::Preceding(source),
                Some(source) if has(following) => BoundSource::Following(source),
                _ => BoundSource::Current,
            })
        };
        let start = bound(
            pg_sys::FRAMEOPTION_START_UNBOUNDED_PRECEDING,
            [pg_sys::FRAMEOPTION_START_OFFSET_PRECEDING, pg_sys::FRAMEOPTION_START_OFFSET_FOLLOWING],
            clause.start_offset(),
        )?;
        let end = bound(
            pg_sys::FRAMEOPTION_END_UNBOUNDED_FOLLOWING,
            [pg_sys::FRAMEOPTION_END_OFFSET_PRECEDING, pg_sys::FRAMEOPTION_END_OFFSET_FOLLOWING],
            clause.end_offset(),
        )?;
        let exclusions = [
            (pg_sys::FRAMEOPTION_EXCLUDE_CURRENT_ROW, FrameExclusion::CurrentRow),
            (pg_sys::FRAMEOPTION_EXCLUDE_GROUP, FrameExclusion::Group),
            (pg_sys::FRAMEOPTION_EXCLUDE_TIES, FrameExclusion::Ties),
        ];
        let exclude = exclusions.into_iter().find(|(option, _)| has(*option));
        let exclude = exclude.map_or(FrameExclusion::Nothing, |(_, exclusion)| exclusion);
        let unit = if has(pg_sys::FRAMEOPTION_ROWS) {
            UnitSource::Rows
        } else if has(pg_sys::FRAMEOPTION_GROUPS) {
            UnitSource::Groups
        } else {
            UnitSource::Range(window.first_key.as_ref().map(|(key, descending)| (key, *descending)))
        };
        let is_ordered = clause.order().first().is_some();
        lowering.lower_window(function, &FrameSource { unit, start, end, exclude, is_ordered })
    }
}
