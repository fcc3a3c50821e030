//! GROUPING SETS, ROLLUP and CUBE: a union of the groups of one set after the other.
//!
//! ```text
//! SELECT a, b, sum(x), GROUPING(b) FROM t GROUP BY ROLLUP (a, b)
//!   ─►  Union all
//!         Aggregate sum(x) by a, b    a, b, sum, 0
//!           Scan t
//!         Aggregate sum(x) by a       a, NULL, sum, 1
//!           Scan t
//!         Aggregate sum(x)            NULL, NULL, sum, 1
//!           Scan t
//! ```
//!
//! PostgreSQL plans what the groups are of once, however many sets there are. [`members_of_finest`] makes the coarse groups of the finest
//! ones. Then each member of the union reads a copy of the plan, with ids of its own for the columns, and engines compute equal parts once ([`pystachio_plan::RepeatedParts`]).
//!
//! Invariants: a key that a set does not group by is NULL in its groups, and in the condition of HAVING, but not in the arguments of
//! aggregates. GROUPING is a constant of each set. The union has a column for each key, aggregate and GROUPING that is read above.
//!
//! Left to PostgreSQL: keys without columns, which setrefs.c takes for constants above the groups; aggregates whose direct arguments
//! read keys; HAVING with a condition that engines do not compute; more than [`SETS_MAX`] sets.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Refusal, Scope};
use pystachio_plan::{ColumnId, DataType, Expression, members_of_finest};

use super::{
    cost,
    label::Union,
    lowering::Lowering,
    planning::with_planning,
    relation_info::RelationInfo,
    upper::{BuiltRelation, Upper},
};
use crate::pg::tree::{List, Node, Ref, Target};

/// Each is an operator of its own, with a copy of what it reads.
const SETS_MAX: usize = 32;

/// GROUPING().
type Grouping<'p> = Ref<'p, pg_sys::GroupingFunc>;

/// One set, and the keys that are in it and in other sets alone.
struct GroupingSet<'p> {
    references: Vec<u32>,
    present: Vec<Node<'p>>,
    absent: Vec<Node<'p>>,
}

/// The groups of one set, over columns of their own.
struct Member<'p> {
    set: GroupingSet<'p>,
    info: RelationInfo<'p>,
    /// The ids of its copy of the plan, by those of the original.
    ids: HashMap<ColumnId, ColumnId>,
}

impl<'p> Upper<'p> {
    /// The groups of all sets.
    pub(super) fn grouping_sets(
        &self,
        target: Target<'p>,
        having: List<'p, pg_sys::Node>,
    ) -> BuiltRelation<'p> {
        let keys = self.keys_of(target);
        let sets = self.parse.planned_grouping_sets();
        let mut called = self.aggregates_of(target, having).into_iter();
        // They are seen from the groups.
        let reads_keys = |direct: Node<'p>| direct.has_columns_of_level(0) || direct.has_subqueries();
        if sets.len() > SETS_MAX
            || !keys.iter().all(|(_, key)| key.has_columns_of_level(0))
            || called.any(|aggregate| aggregate.direct().iter().any(reads_keys))
        {
            return Err(Refusal::GroupingSets);
        }
        let mut sets: Vec<_> = sets.into_iter().map(|set| GroupingSet::new(set, &keys)).collect();
        match sets.iter().any(|set| !set.has_no_rows(having)) {
            true => sets.retain(|set| !set.has_no_rows(having)),
            false => sets.truncate(1),
        }
        let mut members: Vec<Member<'p>> = Vec::new();
        for set in sets {
            let info = self.groups(target, set.seen(having), &|reference| set.has(reference))?;
            if !info.is_complete() {
                return Err(Refusal::GroupingSets);
            }
            members.push(Member { set, info, ids: HashMap::new() });
        }
        let members = with_columns_of_their_own(members);
        let mut union = Union::new(members.iter().map(|member| member.info.relation().clone()));
        let mut found = Vec::new();
        let aggregates = self.aggregates_of(target, List::nil());
        let aggregates = aggregates.into_iter().map(|aggregate| aggregate.node());
        let keys = keys.into_iter().map(|(_, key)| key);
        for node in keys.chain(aggregates).chain(groupings_of(target)) {
            let values: Result<Vec<_>, _> = members.iter().map(|member| member.value(node)).collect();
            let values = values?;
            if values.iter().any(|value| *value.data_type() == DataType::Numeric) {
                return Err(Refusal::GroupingSets);
            }
            found.push((self.lowering().mirror(node)?, union.add(values)?));
        }
        let rows = cost::clamp_rows(members.iter().map(|member| member.info.rows).sum());
        let own_cost = members.iter().map(|member| member.info.cost - self.info.cost).sum();
        Ok(self.info.above(union.finish(rows), Rc::new(Scope::Expressions(found)), rows, own_cost))
    }
}

impl<'p> GroupingSet<'p> {
    fn new(references: Vec<u32>, keys: &[(u32, Node<'p>)]) -> Self {
        let is_present = |(reference, _): &&(u32, Node<'p>)| references.contains(reference);
        let (present, absent): (Vec<_>, Vec<_>) = keys.iter().partition(is_present);
        let nodes = |keys: Vec<&(u32, Node<'p>)>| keys.into_iter().map(|(_, key)| *key).collect();
        let (present, absent) = (nodes(present), nodes(absent));
        Self { references, present, absent }
    }

    fn has(&self, reference: u32) -> bool {
        self.references.contains(&reference)
    }

    /// Conditions over the groups as they are in those of this set.
    fn seen(&self, conditions: List<'p, pg_sys::Node>) -> List<'p, pg_sys::Node> {
        let seen = conditions.iter().map(|condition| {
            let seen = condition.substitute(&mut |node| {
                let is_one_of = |keys: &[Node<'p>]| keys.iter().any(|key| key.equals(node));
                if is_one_of(&self.present) || node.is::<pg_sys::Aggref>() {
                    return Some(node);
                }
                if is_one_of(&self.absent) {
                    return Some(node.null_of_type().node());
                }
                let grouping = node.downcast::<pg_sys::GroupingFunc>()?;
                Some(node.memory().integer(self.bits(grouping)).node())
            });
            seen.folded()
        });
        List::of(seen.filter(|condition| constant_of(*condition) != Some(true)))
    }

    /// Whether HAVING is never true, as `GROUPING(a) = 0` is where the set is without `a`.
    fn has_no_rows(&self, having: List<'p, pg_sys::Node>) -> bool {
        self.seen(having).iter().any(|condition| constant_of(condition) == Some(false))
    }

    /// The value of GROUPING: a bit for each argument, the last one's the lowest, set where it is not grouped by.
    fn bits(&self, grouping: Grouping<'p>) -> i32 {
        let references = grouping.references().iter();
        references.fold(0, |bits, reference| bits << 1 | i32::from(!self.has(reference as u32)))
    }
}

impl<'p> Member<'p> {
    /// A key, aggregate or GROUPING in the groups of this set.
    fn value(&self, node: Node<'p>) -> Result<Lowered, Refusal> {
        if let Some(grouping) = node.downcast::<pg_sys::GroupingFunc>() {
            return Ok(Lowered::plain(Expression::int32(self.set.bits(grouping))));
        }
        let lowering = Lowering::new(self.info.scope());
        if self.set.absent.iter().any(|key| key.equals(node)) {
            return lowering.lower(node.null_of_type().node());
        }
        Ok(lowering.lower(node)?.map_expressions(&mut |mut expression| {
            expression.map_parts(&mut |part| {
                if let Expression::Column { id, .. } = part {
                    *id = self.ids.get(id).copied().unwrap_or(*id);
                }
            });
            expression
        }))
    }
}

/// The groups of the sets, made of the finest ones where that pays. All but the first get columns of their own.
fn with_columns_of_their_own(members: Vec<Member<'_>>) -> Vec<Member<'_>> {
    let relations: Vec<_> = members.iter().map(|member| member.info.relation().clone()).collect();
    let shared = members_of_finest(&relations, &mut || with_planning(|planning| planning.new_column()));
    let members = members.into_iter().zip(shared.unwrap_or(relations)).enumerate();
    let renamed = members.map(|(place, (mut member, relation))| {
        let relation = match place {
            0 => relation,
            _ => relation.map_columns(&mut |id| {
                let copy = || with_planning(|planning| planning.copy_column(id));
                *member.ids.entry(id).or_insert_with(copy)
            }),
        };
        Member { info: member.info.with_relation(relation), ..member }
    });
    renamed.collect()
}

/// Whether a condition that is a constant lets rows through.
fn constant_of(condition: Node<'_>) -> Option<bool> {
    let constant = condition.downcast::<pg_sys::Const>()?;
    Some(!constant.is_null() && constant.value().value() != 0)
}

/// Each GROUPING in a target once.
fn groupings_of(target: Target<'_>) -> Vec<Node<'_>> {
    let mut found: Vec<Node<'_>> = Vec::new();
    for node in target.expressions().iter() {
        node.walk(&mut |part| {
            if part.is::<pg_sys::GroupingFunc>() && !found.iter().any(|known| known.equals(part)) {
                found.push(part);
            }
            true
        });
    }
    found
}
