//! Joins.
//!
//! PostgreSQL's search offers every legal pair of inputs for a join relation. The cheapest tree under our
//! cost model is kept; inputs are final when the search comes to their parents, because it goes from
//! smaller relations to larger ones.
//!
//! A search offers thousands of pairs, and the genetic one offers the same pairs again and again. So an inner join of plain
//! relations is built only when its plan is asked for. Until then it is a pair of inputs, a list of clauses and a cost:
//! whether its clauses can be lowered is known of each clause, and what it returns its inputs return.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Refusal, Scope, VarKey, check_depth};
use pystachio_plan::{Expression, Function, JoinKey, JoinKind, JoinSide, Operator, Relation};

use super::{
    base::offer_paths,
    clauses::in_order,
    cost::{self, JoinInput},
    lowering::Lowering,
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{Built, Place, RelationInfo, place_placeholders},
    sorted::SortedScan,
};
use crate::{
    pg::tree::{Clause, ForeignPath, JoinPair, List, Node, Path, Rel, Relids, Root},
    settings,
};

/// Considers one pair of inputs for a join relation.
pub fn offer_joins(pair: &JoinPair<'_>) {
    let JoinPair { root, joined, outer, inner, .. } = *pair;
    if !may_push(root) {
        return;
    }
    // Engines join relations without columns of outside only.
    if [joined, outer, inner].iter().any(|relation| !relation.lateral_relids().is_empty()) {
        with_planning(|planning| planning.refuse(format!("join: {}", Refusal::Lateral)));
        return;
    }
    let kind = match pair.join_type {
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
    let pair = WaitingJoin {
        root,
        joined,
        outer,
        inner,
        clauses: pair.extra.clauses(),
        left,
        right,
        rows: joined.rows(),
    };
    let (_, own_cost) = pair.own_cost();
    let cost = left.cost + right.cost + own_cost;
    if RelationInfo::of(joined).is_none_or(|known| cost < known.cost) {
        let built = match kind == JoinKind::Inner && pair.can_wait() {
            true => Ok(RelationInfo::waiting(pair, cost)),
            false => pair.candidate(kind, &[outer, inner]).build(),
        };
        match built {
            Ok(info) => info.attach(joined),
            Err(refusal) => {
                with_planning(|planning| planning.refuse(format!("join: {refusal}")));
            }
        }
    }
    // Core adds its own paths for every pair; what an engine can compute whole, it computes.
    if let Some(info) = RelationInfo::of(joined) {
        let (startup, total) = cost::path_costs(info.cost, joined.rows());
        let ours: Vec<Path<'_>> =
            joined.paths().iter().filter(|path| path.is::<pg_sys::ForeignPath>()).collect();
        let is_same = ours.iter().any(|path| path.total_cost() == total);
        offer_paths(joined, if is_same { ours } else { paths_of(root, joined, info, (startup, total)) });
    }
}

/// The paths of a join: one in no order, and one in the order that is wanted.
fn paths_of<'p>(
    root: Root<'p>,
    joined: Rel<'p>,
    info: &RelationInfo<'p>,
    costs: (f64, f64),
) -> Vec<Path<'p>> {
    let mut paths = vec![ForeignPath::of_join(root, joined, costs).path()];
    if let Some(sorted) = SortedScan::wanted_of(root, joined, info) {
        let (rows, costs) = sorted.costs(info, joined.rows());
        paths.push(sorted.marked(ForeignPath::of_join(root, joined, costs), rows));
    }
    paths
}

/// Whether anything above base relations may leave PostgreSQL: rows that will be locked or changed need
/// their tables.
pub fn may_push(root: Root<'_>) -> bool {
    let command = root.parse().command();
    settings::pushdown()
        && root.row_marks().is_nil()
        && matches!(command, pg_sys::CmdType::CMD_SELECT | pg_sys::CmdType::CMD_INSERT)
}

/// A pair of inputs of which no plan is built yet.
#[derive(Clone, Copy)]
pub struct WaitingJoin<'p> {
    root: Root<'p>,
    joined: Rel<'p>,
    outer: Rel<'p>,
    inner: Rel<'p>,
    clauses: List<'p, pg_sys::RestrictInfo>,
    left: &'p RelationInfo<'p>,
    right: &'p RelationInfo<'p>,
    /// Rows expected.
    pub rows: f64,
}

impl<'p> WaitingJoin<'p> {
    /// What is known of the outer input.
    pub fn left(&self) -> &'p RelationInfo<'p> {
        self.left
    }

    /// What is known of the inner input.
    pub fn right(&self) -> &'p RelationInfo<'p> {
        self.right
    }

    /// The plan of an inner join for which [`Self::can_wait`] was true.
    pub fn build(&self) -> Built {
        let inputs = [self.outer, self.inner];
        match self.candidate(JoinKind::Inner, &inputs).built() {
            Ok(built) => built,
            Err(refusal) => pgrx::error!("a join that was checked can't be planned: {refusal}"),
        }
    }

    fn candidate<'a>(&'a self, kind: JoinKind, inputs: &'a [Rel<'p>]) -> Candidate<'a, 'p> {
        let place = Place { root: self.root, relation: self.joined, inputs };
        Candidate { pair: self, place, kind, left: self.left(), right: self.right(), rows: self.rows }
    }

    /// The side to build a hash table from, and the cost of the join alone.
    fn own_cost(&self) -> (JoinSide, f64) {
        let has_keys = self.clauses.iter().any(|clause| clause.can_join());
        let input = |relation: Rel<'p>, rows| JoinInput { rows, width: f64::from(relation.target().width()) };
        let left = input(self.outer, self.left().rows);
        let right = input(self.inner, self.right().rows);
        match has_keys {
            true => cost::hash_join(left, right, self.rows),
            false => cost::nested_loop(left, right, self.rows),
        }
    }

    /// Whether it is certain that an inner join of the pair can be built.
    fn can_wait(&self) -> bool {
        let (left, right) = (self.left(), self.right());
        left.is_plain
                && right.is_plain
                // Some may have to be computed here.
                && self.root.placeholder_list().is_nil()
                && check_depth(1 + left.depth.max(right.depth)).is_ok()
                && left.returns_target(self.outer)
                && right.returns_target(self.inner)
                && self.clauses.iter().all(|clause| self.lowers(clause))
    }

    /// Whether a clause over plain relations can be lowered.
    fn lowers(&self, clause: Clause<'p>) -> bool {
        let is_lasting = self.root.keeps(clause);
        let known = with_planning(|planning| planning.is_lowered(clause)).filter(|_| is_lasting);
        known.unwrap_or_else(|| {
            let scope = self.scope_of(clause.relids());
            let is_lowered =
                scope.is_some_and(|scope| Lowering::new(&scope).lower_clause(self.root, clause).is_ok());
            if is_lasting {
                with_planning(|planning| planning.note_lowered(clause, is_lowered));
            }
            is_lowered
        })
    }

    /// The columns of some relations of the range table.
    fn scope_of(&self, relations: Relids<'p>) -> Option<Rc<Scope>> {
        let mut scope: Option<Rc<Scope>> = None;
        // Outer joins have numbers too.
        for relation in relations.iter().filter_map(|index| self.root.relation(index)) {
            let columns = RelationInfo::complete_of(relation)?.scope().clone();
            scope = Some(scope.map_or(columns.clone(), |scope| Rc::new(Scope::Join(scope, columns))));
        }
        scope
    }
}

struct Candidate<'a, 'p> {
    pair: &'a WaitingJoin<'p>,
    place: Place<'a, 'p>,
    kind: JoinKind,
    left: &'p RelationInfo<'p>,
    right: &'p RelationInfo<'p>,
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

impl<'p> Candidate<'_, 'p> {
    /// The join, with all that can be known of it.
    fn build(&self) -> Result<RelationInfo<'p>, Refusal> {
        let (relation, scope) = self.built()?;
        let (_, own_cost) = self.pair.own_cost();
        let mut info = self.left.above(relation, scope, self.rows, self.right.cost + own_cost);
        info.absorbed.extend(&self.right.absorbed);
        check_depth(info.depth)?;
        outputs_of(&info, self.place.relation.target())?;
        Ok(info)
    }

    /// The plan of the join.
    fn built(&self) -> Result<Built, Refusal> {
        let scope = Scope::Join(self.left.scope().clone(), self.right.scope().clone());
        let conditions = self.conditions(self.pair.clauses, &scope)?;
        self.relation(conditions)
    }

    fn relation(&self, mut conditions: Conditions) -> Result<Built, Refusal> {
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
            left: self.left.relation().clone(),
            right: self.right.relation().clone(),
            keys: conditions.keys,
            residual: Expression::all_of(conditions.residual),
            build: self.pair.own_cost().0,
        };
        let mut relation = Relation::new(join, self.rows);
        if let Some(predicate) = Expression::all_of(conditions.above) {
            relation = Relation::new(Operator::Filter { input: relation, predicate }, self.rows);
        }
        let scope = self.result_scope(conditions.equal_to_left);
        place_placeholders(&self.place, relation, scope)
    }

    fn result_scope(&self, equal_to_left: HashMap<VarKey, Lowered>) -> Rc<Scope> {
        let left = self.left.scope().clone();
        match self.kind {
            JoinKind::Semi => Rc::new(Scope::Replaced { input: left, columns: equal_to_left }),
            // `LEFT JOIN … WHERE right IS NULL` became an anti join: the right side reads as NULL.
            JoinKind::Anti | JoinKind::NullAwareAnti => {
                Rc::new(Scope::Join(left, Rc::new(Scope::Null(self.right.scope().clone()))))
            }
            JoinKind::Left => Rc::new(Scope::Join(left, nullable(self.right))),
            JoinKind::Full => Rc::new(Scope::Join(nullable(self.left), nullable(self.right))),
            JoinKind::Inner => Rc::new(Scope::Join(left, self.right.scope().clone())),
        }
    }

    fn conditions(
        &self,
        clauses: List<'p, pg_sys::RestrictInfo>,
        scope: &Scope,
    ) -> Result<Conditions, Refusal> {
        let is_outer = self.kind != JoinKind::Inner && self.kind != JoinKind::Semi;
        let mut conditions = Conditions::default();
        let joined = self.place.relation.relids();
        for clause in in_order(self.place.root, clauses) {
            let is_above =
                is_outer && (clause.is_pushed_down() || !clause.required_relids().is_subset(joined));
            if is_above {
                let above = self.result_scope(HashMap::new());
                let lowered = Lowering::new(&above).lower_clause(self.place.root, clause)?;
                conditions.above.push(lowered);
                continue;
            }
            self.add_clause(clause, scope, &mut conditions)?;
        }
        Ok(conditions)
    }

    fn add_clause(
        &self,
        clause: Clause<'p>,
        scope: &Scope,
        conditions: &mut Conditions,
    ) -> Result<(), Refusal> {
        let lowered = Lowering::new(scope).lower_clause(self.place.root, clause)?;
        if let Some(key) = self.as_key(&lowered) {
            if self.kind == JoinKind::Semi {
                self.note_equal(clause.expression(), conditions);
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
        let left = self.left.relation().columns();
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
    fn note_equal(&self, clause: Node<'_>, conditions: &mut Conditions) {
        let Some(operator) = clause.downcast::<pg_sys::OpExpr>() else { return };
        let operands: Vec<_> = operator.arguments().iter().collect();
        let [a, b] = operands.as_slice() else { return };
        for (this, other) in [(*a, *b), (*b, *a)] {
            let column = this.downcast::<pg_sys::Var>().map(|var| (var.relation() as u32, var.attribute()));
            if let Some(column) = column
                && self.right.scope().find_column(column).is_some()
                && let Ok(lowered) = Lowering::new(self.left.scope()).lower(other)
                && this.type_oid() == other.type_oid()
            {
                conditions.equal_to_left.insert(column, lowered);
            }
        }
    }
}

fn nullable(input: &RelationInfo<'_>) -> Rc<Scope> {
    Rc::new(Scope::Nullable(input.scope().clone()))
}
