//! Joins.
//!
//! PostgreSQL's search offers every legal pair of inputs for a join relation. The cheapest tree under our
//! cost model is kept; inputs are final when the search comes to their parents, because it goes from
//! smaller relations to larger ones.

use std::{collections::HashMap, rc::Rc};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{Expression, Function, JoinKey, JoinKind, JoinSide, Operator, Relation};

use super::{
    base::replace_paths,
    clauses::in_order,
    cost::{self, JoinInput},
    lower::{Lowered, Lowering, Refusal, check_depth},
    nodes::{elements, node_as},
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{Place, RelationInfo, place_placeholders},
    scope::{Scope, VarKey},
};
use crate::{pg::compat, settings};

/// Considers one pair of inputs for a join relation.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_join_paths(
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    unsafe {
        if !may_push(root) {
            return;
        }
        // Engines join relations without columns of outside only.
        if [joined, outer, inner].iter().any(|relation| !(**relation).lateral_relids.is_null()) {
            with_planning(|planning| planning.refuse("join: LATERAL".into()));
            return;
        }
        let kind = match join_type {
            pg_sys::JoinType::JOIN_INNER => JoinKind::Inner,
            pg_sys::JoinType::JOIN_LEFT => JoinKind::Left,
            pg_sys::JoinType::JOIN_FULL => JoinKind::Full,
            pg_sys::JoinType::JOIN_SEMI => JoinKind::Semi,
            pg_sys::JoinType::JOIN_ANTI => JoinKind::Anti,
            // The mirrored call comes too, and so does the plain form of a unique join.
            _ => return,
        };
        let (Some(left), Some(right)) = (RelationInfo::complete_of(outer), RelationInfo::complete_of(inner))
        else {
            return;
        };
        if left.server_oid != right.server_oid {
            return;
        }
        let inputs = [outer, inner];
        let candidate = Candidate {
            place: Place { root, relation: joined, inputs: &inputs },
            kind,
            left,
            right,
            left_width: f64::from((*(*outer).reltarget).width),
            right_width: f64::from((*(*inner).reltarget).width),
            rows: (*joined).rows,
        };
        let known_cost = RelationInfo::of(joined).map(|info| info.cost);
        match candidate.build((*extra).restrictlist, known_cost) {
            Ok(Some(info)) => info.attach(joined),
            Ok(None) => {}
            Err(Refusal(reason)) => {
                with_planning(|planning| planning.refuse(format!("join: {reason}")));
            }
        }
        // Core adds its own paths for every pair; what an engine can compute whole, it computes.
        if let Some(info) = RelationInfo::of(joined) {
            let (startup, total) = cost::path_costs(info.cost, (*joined).rows);
            let path = compat::create_foreign_join_path(root, joined, startup, total);
            replace_paths(joined, path);
        }
    }
}

/// Whether anything above base relations may leave PostgreSQL: rows that will be locked or changed need
/// their tables.
pub unsafe fn may_push(root: *mut pg_sys::PlannerInfo) -> bool {
    unsafe {
        let command = (*(*root).parse).commandType;
        settings::pushdown()
            && (*root).rowMarks.is_null()
            && matches!(command, pg_sys::CmdType::CMD_SELECT | pg_sys::CmdType::CMD_INSERT)
    }
}

struct Candidate<'a> {
    place: Place<'a>,
    kind: JoinKind,
    left: &'a RelationInfo,
    right: &'a RelationInfo,
    left_width: f64,
    right_width: f64,
    rows: f64,
}

/// The clauses of a join in the plan's terms.
#[derive(Default)]
struct Conditions {
    keys: Vec<JoinKey>,
    residual: Vec<Expression>,
    /// Checked on the result of an outer join.
    above: Vec<Expression>,
    /// Right columns that equal an expression of the left side in every result row of a semi join.
    equal_to_left: HashMap<VarKey, Lowered>,
    /// The one clause of a NOT IN.
    null_aware_key: Option<JoinKey>,
}

impl Candidate<'_> {
    /// The join, if it costs less than what is known.
    unsafe fn build(
        &self,
        clauses: *mut pg_sys::List,
        known_cost: Option<f64>,
    ) -> Result<Option<RelationInfo>, Refusal> {
        unsafe {
            let has_keys = elements::<pg_sys::RestrictInfo>(clauses).any(|clause| (*clause).can_join);
            let inputs = (
                JoinInput { rows: self.left.rows, width: self.left_width },
                JoinInput { rows: self.right.rows, width: self.right_width },
            );
            let (build, own_cost) = if has_keys {
                cost::hash_join(inputs.0, inputs.1, self.rows)
            } else {
                cost::nested_loop(inputs.0, inputs.1, self.rows)
            };
            let cost = self.left.cost + self.right.cost + own_cost;
            if known_cost.is_some_and(|known| known <= cost) {
                return Ok(None);
            }
            let scope = Scope::Join(self.left.scope.clone(), self.right.scope.clone());
            let conditions = self.conditions(clauses, &scope)?;
            let info = self.relation(conditions, build, own_cost)?;
            check_depth(&info.relation)?;
            outputs_of(&info, (*self.place.relation).reltarget)?;
            Ok(Some(info))
        }
    }

    unsafe fn relation(
        &self,
        mut conditions: Conditions,
        build: JoinSide,
        own_cost: f64,
    ) -> Result<RelationInfo, Refusal> {
        let is_null_aware = self.kind == JoinKind::Anti
            && conditions.keys.is_empty()
            && conditions.residual.len() == 1
            && conditions.null_aware_key.is_some();
        let kind = if is_null_aware { JoinKind::NullAwareAnti } else { self.kind };
        if let (true, Some(key)) = (is_null_aware, conditions.null_aware_key.take()) {
            conditions.keys.push(key);
            conditions.residual.clear();
        }
        let join = Operator::Join {
            kind,
            left: self.left.relation.clone(),
            right: self.right.relation.clone(),
            keys: conditions.keys,
            residual: Expression::all_of(conditions.residual),
            build,
        };
        let mut relation = Relation::new(join, self.rows);
        if let Some(predicate) = Expression::all_of(conditions.above) {
            relation = Relation::new(Operator::Filter { input: relation, predicate }, self.rows);
        }
        let scope = self.result_scope(conditions.equal_to_left);
        let (relation, scope) = unsafe { place_placeholders(&self.place, relation, scope)? };
        let mut info = self.left.above(relation, scope, self.rows, self.right.cost + own_cost);
        info.absorbed.extend(&self.right.absorbed);
        Ok(info)
    }

    fn result_scope(&self, equal_to_left: HashMap<VarKey, Lowered>) -> Rc<Scope> {
        let left = self.left.scope.clone();
        match self.kind {
            JoinKind::Semi => Rc::new(Scope::Replaced { input: left, columns: equal_to_left }),
            // `LEFT JOIN … WHERE right IS NULL` became an anti join: the right side reads as NULL.
            JoinKind::Anti | JoinKind::NullAwareAnti => {
                Rc::new(Scope::Join(left, Rc::new(Scope::Null(self.right.scope.clone()))))
            }
            JoinKind::Left => Rc::new(Scope::Join(left, nullable(self.right))),
            JoinKind::Full => Rc::new(Scope::Join(nullable(self.left), nullable(self.right))),
            JoinKind::Inner => Rc::new(Scope::Join(left, self.right.scope.clone())),
        }
    }

    unsafe fn conditions(&self, clauses: *mut pg_sys::List, scope: &Scope) -> Result<Conditions, Refusal> {
        unsafe {
            let is_outer = self.kind != JoinKind::Inner && self.kind != JoinKind::Semi;
            let mut conditions = Conditions::default();
            let joined = (*self.place.relation).relids;
            for clause in in_order(self.place.root, clauses) {
                let is_above = is_outer
                    && ((*clause).is_pushed_down
                        || !pg_sys::bms_is_subset((*clause).required_relids, joined));
                if is_above {
                    let above = self.result_scope(HashMap::new());
                    let lowered = Lowering::new(&above).lower_condition((*clause).clause.cast())?;
                    conditions.above.push(lowered);
                    continue;
                }
                self.add_clause((*clause).clause.cast(), scope, &mut conditions)?;
            }
            Ok(conditions)
        }
    }

    unsafe fn add_clause(
        &self,
        clause: *mut pg_sys::Node,
        scope: &Scope,
        conditions: &mut Conditions,
    ) -> Result<(), Refusal> {
        unsafe {
            let lowered = Lowering::new(scope).lower_condition(clause)?;
            if let Some(key) = self.as_key(&lowered) {
                if self.kind == JoinKind::Semi {
                    self.note_equal(clause, conditions);
                }
                conditions.keys.push(key);
                return Ok(());
            }
            // NOT IN over nullable columns: the right row matches unless the comparison is false.
            if let Expression::Call { function: Function::IsNotFalse, arguments, .. } = &lowered
                && let [comparison] = arguments.as_slice()
            {
                conditions.null_aware_key = self.as_key(comparison);
            }
            conditions.residual.push(lowered);
            Ok(())
        }
    }

    /// The clause as a key: an equality with one side over each input.
    fn as_key(&self, clause: &Expression) -> Option<JoinKey> {
        let Expression::Call { function: Function::Equal, arguments, .. } = clause else { return None };
        let [a, b] = arguments.as_slice() else { return None };
        let (side_a, side_b) = (self.side_of(a)?, self.side_of(b)?);
        match (side_a, side_b) {
            (JoinSide::Left, JoinSide::Right) => Some(JoinKey { left: a.clone(), right: b.clone() }),
            (JoinSide::Right, JoinSide::Left) => Some(JoinKey { left: b.clone(), right: a.clone() }),
            _ => None,
        }
    }

    /// The only input whose columns an expression has; `None` if it has both or none.
    fn side_of(&self, expression: &Expression) -> Option<JoinSide> {
        let left = self.left.relation.columns();
        let (mut has_left, mut has_right) = (false, false);
        expression.walk(&mut |part| {
            if let Expression::Column { id, .. } = part {
                if left.iter().any(|(known, _)| known == id) {
                    has_left = true;
                } else {
                    has_right = true;
                }
            }
        });
        match (has_left, has_right) {
            (true, false) => Some(JoinSide::Left),
            (false, true) => Some(JoinSide::Right),
            _ => None,
        }
    }

    /// Notes which left expression stands for the right column of an equality: clauses above a semi join
    /// may name the right member of the equivalence, which the join does not return.
    unsafe fn note_equal(&self, clause: *mut pg_sys::Node, conditions: &mut Conditions) {
        unsafe {
            let Some(operator) = node_as::<pg_sys::OpExpr>(clause, pg_sys::NodeTag::T_OpExpr) else { return };
            let operands: Vec<_> = elements::<pg_sys::Node>(operator.args).collect();
            let [a, b] = operands.as_slice() else { return };
            for (this, other) in [(*a, *b), (*b, *a)] {
                let var = node_as::<pg_sys::Var>(this, pg_sys::NodeTag::T_Var);
                if let Some(var) = var
                    && self.right.scope.find(this).is_some()
                    && let Ok(lowered) = Lowering::new(&self.left.scope).lower(other)
                    && pg_sys::exprType(this) == pg_sys::exprType(other)
                {
                    conditions.equal_to_left.insert((var.varno as u32, var.varattno), lowered);
                }
            }
        }
    }
}

fn nullable(input: &RelationInfo) -> Rc<Scope> {
    Rc::new(Scope::Nullable(input.scope.clone()))
}
