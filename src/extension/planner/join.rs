//! Joins.
//!
//! PostgreSQL's search offers every legal pair of inputs for a join relation. The cheapest tree under our
//! cost model is kept; inputs are final when the search comes to their parents, because it goes from
//! smaller relations to larger ones.
//!
//! A search offers thousands of pairs, and the genetic one offers the same pairs again and again. So an inner join of plain
//! relations is built only when its plan is asked for. Until then it is a pair of inputs, a list of clauses and a cost:
//! whether its clauses can be lowered is known of each clause, and what it returns its inputs return.

use std::{collections::HashMap, rc::Rc, sync::Arc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Refusal, Scope, VarKey, check_depth};
use pystachio_plan::{Expression, Function, JoinKey, JoinKind, JoinSide, Operator, Relation, could_fail};

use super::{
    base::offer_paths,
    clauses::in_order,
    cost::{self, JoinInput},
    lowering::Lowering,
    outputs::outputs_of,
    planning::with_planning,
    relation_info::{Built, Place, RelationInfo, place_placeholders},
    sorted::SortedScan,
    unnest::offer_unnested,
};
use crate::{
    pg::tree::{Clause, JoinPair, List, Node, Path, Rel, Relids, Root},
    settings,
};

/// Considers one pair of inputs for a join relation.
pub fn offer_joins(pair: &JoinPair<'_>) {
    let JoinPair { root, joined, outer, inner, .. } = *pair;
    if !may_push(root) {
        return;
    }
    if offer_unnested(pair) {
        return;
    }
    // Engines join relations without columns of outside only.
    if [joined, outer, inner].iter().any(|relation| !relation.lateral_relids().is_empty()) {
        with_planning(|planning| planning.refuse(format!("join: {}", Refusal::Lateral)));
        return;
    }
    if let (Some(left), Some(right)) =
        (RelationInfo::joinable_of(root, outer), RelationInfo::joinable_of(root, inner))
    {
        offer_join(pair, left, right);
    }
}

/// What is known of an input, and the conditions on it that PostgreSQL checks above the join.
pub type Joinable<'p> = (&'p RelationInfo<'p>, Vec<Node<'p>>);

/// Considers a join of inputs that an engine can have.
pub fn offer_join<'p>(pair: &JoinPair<'p>, left: Joinable<'p>, right: Joinable<'p>) {
    let JoinPair { root, joined, outer, inner, .. } = *pair;
    let ((left, left_local), (right, right_local)) = (left, right);
    let kind = match pair.join_type {
        pg_sys::JoinType::JOIN_INNER => JoinKind::Inner,
        pg_sys::JoinType::JOIN_LEFT => JoinKind::Left,
        pg_sys::JoinType::JOIN_FULL => JoinKind::Full,
        pg_sys::JoinType::JOIN_SEMI => JoinKind::Semi,
        pg_sys::JoinType::JOIN_ANTI => JoinKind::Anti,
        // The mirrored call comes too, and so does the plain form of a unique join.
        _ => return,
    };
    // A condition is checked above the join if the join drops no other rows for it.
    let keeps_left = kind != JoinKind::Full || left_local.is_empty();
    let keeps_right = kind == JoinKind::Inner || right_local.is_empty();
    if left.server_oid != right.server_oid || !keeps_left || !keeps_right {
        return;
    }
    let local: Vec<_> = left_local.into_iter().chain(right_local).collect();
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
    let known = RelationInfo::of(joined);
    let is_wanted = |is_complete: bool, cost: f64| {
        known.is_none_or(|known| (!is_complete, cost) < (!known.is_complete(), known.cost))
    };
    let mut is_new = false;
    if is_wanted(local.is_empty(), cost) {
        let built = match kind == JoinKind::Inner && local.is_empty() && pair.can_wait() {
            true => Ok(RelationInfo::waiting(pair, cost)),
            false => pair.candidate(kind, &[outer, inner]).build(local),
        };
        match built {
            Ok(info) => {
                is_new = is_wanted(info.is_complete(), info.cost);
                if is_new {
                    info.attach(joined);
                }
            }
            Err(refusal) => {
                with_planning(|planning| planning.refuse(format!("join: {refusal}")));
            }
        }
    }
    let Some(info) = RelationInfo::of(joined) else { return };
    let costs = info.path_costs(root, joined, cost::path_costs(info.cost, info.rows));
    if !info.is_whole() {
        if is_new {
            offer_paths(joined, info, paths_of(root, joined, info, costs));
        }
        return;
    }
    // Core adds its own paths for every pair; what an engine can compute whole, it computes.
    let ours: Vec<Path<'_>> = joined.paths().iter().filter(|path| path.is::<pg_sys::ForeignPath>()).collect();
    let is_same = ours.iter().any(|path| path.total_cost() == costs.1);
    offer_paths(joined, info, if is_same { ours } else { paths_of(root, joined, info, costs) });
}

/// The paths of a join: one in no order, and one in the order that is wanted.
fn paths_of<'p>(
    root: Root<'p>,
    joined: Rel<'p>,
    info: &RelationInfo<'p>,
    costs: (f64, f64),
) -> Vec<Path<'p>> {
    let mut paths = vec![info.join_path(root, joined, costs).path()];
    for sorted in SortedScan::wanted_of(root, joined, info) {
        let (rows, costs) = sorted.costs(root, joined, info, joined.rows());
        paths.push(sorted.marked(info.join_path(root, joined, costs), rows));
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
    pub fn build(&self) -> Arc<Relation> {
        let inputs = [self.outer, self.inner];
        let candidate = self.candidate(JoinKind::Inner, &inputs);
        match candidate.conditions(&[]).and_then(|conditions| candidate.relation(conditions, self.rows)) {
            Ok((relation, _)) => relation,
            Err(refusal) => pgrx::error!("a join that was checked can't be planned: {refusal}"),
        }
    }

    /// How the columns of that plan are found.
    pub fn scope(&self) -> Rc<Scope> {
        Rc::new(Scope::Join(self.left.scope().clone(), self.right.scope().clone()))
    }

    fn candidate<'a>(&'a self, kind: JoinKind, inputs: &'a [Rel<'p>]) -> Candidate<'a, 'p> {
        let place = Place { root: self.root, relation: self.joined, inputs };
        Candidate { pair: self, place, kind, left: self.left(), right: self.right() }
    }

    /// The side to build a hash table from, and the cost of the join alone.
    fn own_cost(&self) -> (JoinSide, f64) {
        self.own_cost_of(self.rows)
    }

    /// The same for so many rows of output.
    fn own_cost_of(&self, rows: f64) -> (JoinSide, f64) {
        let has_keys = self.clauses.iter().any(|clause| clause.can_join());
        let input = |relation: Rel<'p>, rows| JoinInput { rows, width: f64::from(relation.target().width()) };
        let left = input(self.outer, self.left().rows);
        let right = input(self.inner, self.right().rows);
        match has_keys {
            true => cost::hash_join(left, right, rows),
            false => cost::nested_loop(left, right, rows),
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
            let columns = RelationInfo::of(relation)?.scope().clone();
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
}

/// The clauses of a join in the plan's terms.
#[derive(Default)]
struct Conditions<'p> {
    /// PostgreSQL checks them on the rows of the join.
    local: Vec<Clause<'p>>,
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
    /// The join, with all that can be known of it. PostgreSQL checks conditions of its inputs, the `local` ones, above it.
    fn build(&self, mut local: Vec<Node<'p>>) -> Result<RelationInfo<'p>, Refusal> {
        let conditions = self.conditions(&local)?;
        local.extend(conditions.local.iter().map(|clause| clause.expression()));
        let rows = self.returned_rows(&local);
        let (relation, scope) = self.relation(conditions, rows)?;
        let (_, own_cost) = self.pair.own_cost_of(rows);
        let mut info = self.left.above(relation, scope, rows, self.right.cost + own_cost);
        info.absorbed.extend(&self.right.absorbed);
        info.inputs.extend(self.right.inputs.iter().cloned());
        info.local_conditions = local;
        check_depth(info.depth)?;
        outputs_of(&info, self.place.relation.target())?;
        Ok(info)
    }

    /// The rows that the engine returns where PostgreSQL drops those for which the `local` conditions are not true.
    fn returned_rows(&self, local: &[Node<'p>]) -> f64 {
        if local.is_empty() {
            return self.pair.rows;
        }
        let local = List::of(local.iter().copied());
        let passing = self.place.root.selectivity(local, 0, pg_sys::JoinType::JOIN_INNER, None);
        let all = self.left.rows * self.right.rows;
        cost::clamp_rows((self.pair.rows / passing.max(f64::EPSILON)).min(all))
    }

    fn relation(&self, mut conditions: Conditions<'p>, rows: f64) -> Result<Built, Refusal> {
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
        let mut relation = Relation::new(join, rows);
        if let Some(predicate) = Expression::all_of(conditions.above) {
            relation = Relation::new(Operator::Filter { input: relation, predicate }, rows);
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

    /// The clauses, in the order in which PostgreSQL tests them. Those `below` are the inputs' that it checks above the join.
    fn conditions(&self, below: &[Node<'p>]) -> Result<Conditions<'p>, Refusal> {
        let root = self.place.root;
        let scope = Scope::Join(self.left.scope().clone(), self.right.scope().clone());
        let is_outer = self.kind != JoinKind::Inner && self.kind != JoinKind::Semi;
        let joined = self.place.relation.relids();
        let mut conditions = Conditions::default();
        let mut lost_key = None;
        for clause in in_order(root, self.pair.clauses) {
            let is_above =
                is_outer && (clause.is_pushed_down() || !clause.required_relids().is_subset(joined));
            let lowered = match is_above {
                true => Lowering::new(&self.result_scope(HashMap::new())).lower_clause(root, clause),
                false => Lowering::new(&scope).lower_clause(root, clause),
            };
            // A condition guards those that PostgreSQL tests after it.
            let lowered = lowered.and_then(|lowered| {
                let is_guarded = !below.is_empty() || !conditions.local.is_empty();
                match is_guarded && could_fail(&lowered, &|_| false) {
                    true => Err(Refusal::CouldFailAfterLocal),
                    false => Ok(lowered),
                }
            });
            match lowered {
                Ok(lowered) if is_above => conditions.above.push(lowered),
                Ok(lowered) => self.add_clause(clause, lowered, &mut conditions),
                Err(refusal) => {
                    if !(self.kind == JoinKind::Inner || is_above) || !self.may_stay(clause) {
                        return Err(refusal);
                    }
                    with_planning(|planning| planning.refuse(format!("join: {refusal}")));
                    conditions.local.push(clause);
                    if clause.can_join() {
                        lost_key = Some(refusal);
                    }
                }
            }
        }
        // Without a key the engine would return every pair.
        match lost_key {
            Some(refusal) if conditions.keys.is_empty() => Err(refusal),
            _ => Ok(conditions),
        }
    }

    /// Whether PostgreSQL may check a clause on the rows of the join, as [`RelationInfo::joinable_of`] says.
    fn may_stay(&self, clause: Clause<'p>) -> bool {
        let root = self.place.root;
        root.highest_security_level() == 0
            && root.placeholder_list().is_nil()
            && !clause.is_pseudo_constant()
            && !clause.expression().is_volatile()
    }

    fn add_clause(&self, clause: Clause<'p>, lowered: Expression, conditions: &mut Conditions<'p>) {
        if let Some(key) = self.as_key(&lowered) {
            if self.kind == JoinKind::Semi {
                self.note_equal(clause, conditions);
            }
            conditions.keys.push(key);
            return;
        }
        // NOT IN over nullable columns: the right row matches unless the comparison is false.
        if let Expression::Call { function: Function::IsNotFalse, arguments, .. } = &lowered
            && let [comparison] = arguments.as_slice()
        {
            conditions.null_aware_key = self.as_key(comparison);
        }
        conditions.residual.push(lowered);
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

    /// Notes which left expression stands for the right column of an equality, and for other right columns that are equal to it:
    /// clauses above a semi join may name each right member of the equivalence, and the join returns none.
    fn note_equal(&self, clause: Clause<'p>, conditions: &mut Conditions<'p>) {
        let Some(operator) = clause.expression().downcast::<pg_sys::OpExpr>() else { return };
        let operands: Vec<_> = operator.arguments().iter().collect();
        let [a, b] = operands.as_slice() else { return };
        for (this, other) in [(*a, *b), (*b, *a)] {
            if this.type_oid() != other.type_oid() || self.right_column(this).is_none() {
                continue;
            }
            let Ok(lowered) = Lowering::new(self.left.scope()).lower(other) else { continue };
            let members = clause.equal_expressions().into_iter();
            let equal = members.filter(|member| member.type_oid() == other.type_oid()).chain([this]);
            for column in equal.filter_map(|member| self.right_column(member)) {
                conditions.equal_to_left.insert(column, lowered.clone());
            }
        }
    }

    /// The column of the right input that an expression is.
    fn right_column(&self, node: Node<'_>) -> Option<VarKey> {
        let column = node.downcast::<pg_sys::Var>().map(|var| (var.relation() as u32, var.attribute()))?;
        self.right.scope().find_column(column).map(|_| column)
    }
}

fn nullable(input: &RelationInfo<'_>) -> Rc<Scope> {
    Rc::new(Scope::Nullable(input.scope().clone()))
}
