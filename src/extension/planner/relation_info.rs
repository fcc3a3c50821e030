//! What is known about a relation that an engine can compute.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Refusal, Scale, Scope};
use pystachio_plan::{NamedExpression, Operator, Relation};

use super::{
    join::WaitingJoin,
    known_servers,
    lowering::Lowering,
    outputs::outputs_of,
    planning::with_planning,
    sent_rows::{SentInput, send_path},
};
use crate::pg::tree::{
    Attachment, ForeignPath, List, Node, PlaceHolder, Query, RangeEntry, Rel, Root, Target, has_our_routine,
    server_of,
};

/// How large an expression may be that is left to its readers, each of which has it as its own.
const DEFERRED_PARTS_MAX: usize = 30;

/// The plan of a relation, kept with it.
#[derive(Clone)]
pub struct RelationInfo<'p> {
    /// Whose engine computes it.
    pub server_oid: pg_sys::Oid,
    /// The plan.
    relation: OnceCell<Arc<Relation>>,
    /// How its columns are found.
    scope: OnceCell<Rc<Scope>>,
    /// What the plan is built of where it is not built yet.
    waiting: Option<WaitingJoin<'p>>,
    /// Operators above each other.
    pub depth: usize,
    /// It is a relation of the range table, or an inner join of such: then its scope is the same, however it was joined.
    pub is_plain: bool,
    /// Whether it has what is read of it above.
    returns_target: OnceCell<bool>,
    /// Rows that the engine is expected to return.
    pub rows: f64,
    /// Cost of the whole tree, in the units of `cost`.
    pub cost: f64,
    /// Which clauses PostgreSQL must check on the rows: their places in the relation's `baserestrictinfo`, since a join of
    /// partitions puts adjusted copies there. Only of base relations.
    pub local_clauses: Vec<usize>,
    /// The conditions of a join or of groups, and of what is below, that PostgreSQL checks on the rows.
    pub local_conditions: Vec<Node<'p>>,
    /// Planner roots of the subqueries inside.
    pub absorbed: Vec<Root<'p>>,
    /// What PostgreSQL computes of it, and sends.
    pub inputs: Vec<SentInput<'p>>,
    /// Set if the plan ends with a sort, so that a limit keeps its order.
    pub is_sorted: bool,
}

/// A [`RelationInfo`] as what is kept with a relation.
pub struct KeptInfo;

impl Attachment for KeptInfo {
    type At<'p> = RelationInfo<'p>;
}

/// A plan, and how its columns are found.
pub type Built = (Arc<Relation>, Rc<Scope>);

impl<'p> RelationInfo<'p> {
    /// A relation of the range table.
    pub fn of_table(server_oid: pg_sys::Oid, (relation, scope): Built, rows: f64, cost: f64) -> Self {
        Self {
            server_oid,
            depth: relation.depth(),
            relation: OnceCell::from(relation),
            scope: OnceCell::from(scope),
            waiting: None,
            returns_target: OnceCell::new(),
            is_plain: true,
            rows,
            cost,
            local_clauses: Vec::new(),
            local_conditions: Vec::new(),
            absorbed: Vec::new(),
            inputs: Vec::new(),
            is_sorted: false,
        }
    }

    /// A join that is built when it is asked for.
    pub fn waiting(join: WaitingJoin<'p>, cost: f64) -> Self {
        let (left, right) = (join.left(), join.right());
        Self {
            server_oid: left.server_oid,
            relation: OnceCell::new(),
            scope: OnceCell::new(),
            depth: 1 + left.depth.max(right.depth),
            // What it returns its inputs return.
            returns_target: OnceCell::from(true),
            is_plain: true,
            rows: join.rows,
            cost,
            local_clauses: Vec::new(),
            local_conditions: Vec::new(),
            absorbed: left.absorbed.iter().chain(&right.absorbed).copied().collect(),
            inputs: left.inputs.iter().chain(&right.inputs).cloned().collect(),
            is_sorted: false,
            waiting: Some(join),
        }
    }

    fn waiting_join(&self) -> &WaitingJoin<'p> {
        self.waiting.as_ref().unwrap_or_else(|| pgrx::error!("a relation of pystachio has no plan"))
    }

    /// The plan.
    pub fn relation(&self) -> &Arc<Relation> {
        self.relation.get_or_init(|| self.waiting_join().build())
    }

    /// How the plan's columns are found. A search asks for that of each tree that it tries, and builds no plan for it.
    pub fn scope(&self) -> &Rc<Scope> {
        self.scope.get_or_init(|| self.waiting_join().scope())
    }

    /// The same with another plan that has the same columns.
    pub fn with_relation(self, relation: Arc<Relation>) -> Self {
        Self { relation: OnceCell::from(relation), ..self }
    }

    /// Whether it has what is read above of `relation`, whose info it is.
    pub fn returns_target(&self, relation: Rel<'p>) -> bool {
        *self.returns_target.get_or_init(|| outputs_of(self, relation.target()).is_ok())
    }

    /// Whether nothing of the relation is left to PostgreSQL.
    pub fn is_complete(&self) -> bool {
        self.local_clauses.is_empty() && self.local_conditions.is_empty()
    }

    /// Whether PostgreSQL has no part in it at all: it is complete, and PostgreSQL computes nothing for it.
    pub fn is_whole(&self) -> bool {
        self.is_complete() && self.inputs.is_empty()
    }

    /// A path of it as a join, of these costs at the first and at the last row.
    pub fn join_path(&self, root: Root<'p>, joined: Rel<'p>, costs: (f64, f64)) -> ForeignPath<'p> {
        self.receiving(ForeignPath::of_join(root, joined, costs))
    }

    /// A path of it as a stage above the joins, in the order of these keys.
    pub fn stage_path(
        &self,
        root: Root<'p>,
        (stage, target): (Rel<'p>, Target<'p>),
        rows: f64,
        costs: (f64, f64),
        pathkeys: List<'p, pg_sys::PathKey>,
    ) -> ForeignPath<'p> {
        self.receiving(ForeignPath::of_stage(root, stage, target, rows, costs, pathkeys))
    }

    /// The path of a scan of it, with that of what PostgreSQL sends.
    fn receiving(&self, path: ForeignPath<'p>) -> ForeignPath<'p> {
        if !self.inputs.is_empty() {
            path.set_outer(send_path(path, &self.inputs));
        }
        path
    }

    /// A relation over this one.
    pub fn above(&self, relation: Arc<Relation>, scope: Rc<Scope>, rows: f64, cost: f64) -> Self {
        Self {
            server_oid: self.server_oid,
            depth: relation.depth(),
            relation: OnceCell::from(relation),
            scope: OnceCell::from(scope),
            waiting: None,
            returns_target: OnceCell::new(),
            is_plain: false,
            rows,
            cost: self.cost + cost,
            local_clauses: Vec::new(),
            local_conditions: Vec::new(),
            absorbed: self.absorbed.clone(),
            inputs: self.inputs.clone(),
            is_sorted: false,
        }
    }

    /// What PostgreSQL checks on the rows of the relation, whose info it is.
    pub fn local(&self, relation: Rel<'p>) -> Vec<Node<'p>> {
        let own = relation.clauses().iter().enumerate();
        let own = own.filter(|(place, _)| self.local_clauses.contains(place));
        own.map(|(_, clause)| clause.expression()).chain(self.local_conditions.iter().copied()).collect()
    }

    /// The costs of a path of the relation, with those of what PostgreSQL checks on each row: a subquery may be among that, which
    /// asks an engine each time.
    pub fn path_costs(&self, root: Root<'p>, relation: Rel<'p>, (startup, total): (f64, f64)) -> (f64, f64) {
        // What PostgreSQL sends is in the total already, and the engine begins when it has all of it.
        let startup = (startup + self.inputs.iter().map(SentInput::cost).sum::<f64>()).min(total);
        let costs = self.local(relation).into_iter().map(|condition| root.cost_of_node(condition));
        costs.fold((startup, total), |(startup, total), cost| {
            (startup + cost.startup, total + cost.startup + cost.per_tuple * self.rows)
        })
    }

    /// Keeps the info with a relation.
    pub fn attach(self, relation: Rel<'p>) {
        relation.attach::<KeptInfo>(self);
    }

    /// The info of a relation whose foreign-data wrapper is ours.
    pub fn of(relation: Rel<'p>) -> Option<&'p Self> {
        relation.attached::<KeptInfo>()
    }

    /// The info of a relation that nothing of is left to PostgreSQL, neither clauses nor columns of outside.
    pub fn complete_of(relation: Rel<'p>) -> Option<&'p Self> {
        Self::of(relation).filter(|info| info.is_complete() && relation.lateral_relids().is_empty())
    }

    /// The info of a relation that an engine may join, and the conditions on it that PostgreSQL then checks above the join.
    ///
    /// A condition with a volatile function is checked once for each row of the relation. A policy is checked before anything
    /// that a user wrote. A PlaceHolderVar of the join would be computed for rows that the condition drops.
    pub fn joinable_of(root: Root<'p>, relation: Rel<'p>) -> Option<(&'p Self, Vec<Node<'p>>)> {
        let info = Self::of(relation).filter(|_| relation.lateral_relids().is_empty())?;
        if info.is_complete() {
            return Some((info, Vec::new()));
        }
        let conditions = info.local(relation);
        let may_wait = root.highest_security_level() == 0
            && root.placeholder_list().is_nil()
            && !conditions.iter().any(|node| node.is_volatile());
        may_wait.then_some((info, conditions))
    }
}

/// Whether a server belongs to the wrapper whose routine table this library filled.
pub fn is_ours_oid(server_oid: pg_sys::Oid) -> bool {
    server_oid != pg_sys::InvalidOid && known_servers::is_ours(server_oid, || has_our_routine(server_oid))
}

/// Whether a foreign table is of a server of ours.
pub fn is_our_table(table_oid: pg_sys::Oid) -> bool {
    is_ours_oid(server_of(table_oid))
}

/// Whether an entry of a range table is a foreign table of ours.
pub fn is_our_entry(entry: RangeEntry<'_>) -> bool {
    entry.kind() == pg_sys::RTEKind::RTE_RELATION
        && entry.relation_kind() == pg_sys::RELKIND_FOREIGN_TABLE
        && is_our_table(entry.table_oid())
}

/// Whether a query, or one within it, names a foreign table of ours. Partitioned tables are not looked into.
pub fn names_our_table(query: Query<'_>) -> bool {
    query.any_entry(&mut |entry| is_our_entry(entry))
}

/// Where PlaceHolderVars are computed.
pub struct Place<'a, 'p> {
    /// The planner's state.
    pub root: Root<'p>,
    /// The relation.
    pub relation: Rel<'p>,
    /// What it joins.
    pub inputs: &'a [Rel<'p>],
}

impl Place<'_, '_> {
    /// Refuses a PlaceHolderVar that is not this relation's to compute.
    fn check(&self, placeholder: PlaceHolder<'_>) -> Result<(), Refusal> {
        let known = self.root.placeholder_list().iter().find(|known| known.id() == placeholder.id());
        let Some(known) = known else {
            return Err(Refusal::PlaceholderOfOtherLevel);
        };
        if !known.lateral_relids().is_empty() {
            return Err(Refusal::LateralPlaceholder);
        }
        // Here it would not be NULL where an outer join between has found no partner.
        if self.inputs.iter().any(|input| known.evaluated_at().is_subset(input.relids())) {
            return Err(Refusal::LostPlaceholder);
        }
        Ok(())
    }
}

/// Computes the PlaceHolderVars that the relation must have and its inputs don't.
///
/// A PlaceHolderVar is evaluated at the lowest relation that has all its columns, so that outer joins above
/// turn it into NULL.
///
/// # Errors
///
/// A refusal if one can't be computed, or not here.
pub fn place_placeholders(
    place: &Place<'_, '_>,
    relation: Arc<Relation>,
    scope: Rc<Scope>,
) -> Result<(Arc<Relation>, Rc<Scope>), Refusal> {
    let mut placeholders = std::collections::HashMap::new();
    let mut computed = Vec::new();
    for node in place.relation.target().expressions().iter() {
        let Some(placeholder) = node.downcast::<pg_sys::PlaceHolderVar>() else { continue };
        if scope.find_placeholder(placeholder.id()).is_some() {
            continue;
        }
        place.check(placeholder)?;
        let lowered = Lowering::new(&scope).lower(placeholder.expression())?;
        placeholders.insert(placeholder.id(), name_column(lowered, &mut computed));
    }
    if placeholders.is_empty() {
        return Ok((relation, scope));
    }
    let mut expressions = pass_through(&relation);
    expressions.extend(computed);
    let rows = relation.estimate.rows;
    let relation = Relation::new(Operator::Project { input: relation, expressions }, rows);
    Ok((relation, Rc::new(Scope::Placed { input: scope, placeholders })))
}

/// Every column of a relation as itself.
pub fn pass_through(relation: &Relation) -> Vec<NamedExpression> {
    let columns = relation.columns();
    let column = |(id, data_type)| NamedExpression {
        id,
        expression: pystachio_plan::Expression::column(id, data_type),
    };
    columns.into_iter().map(column).collect()
}

/// Leaves an expression to the operators that read it, if it is NULL wherever an outer join makes its columns NULL.
/// Otherwise gives it a column here. An expression that is computed late is computed for fewer rows.
pub fn defer_or_name(lowered: Lowered, computed: &mut Vec<NamedExpression>) -> Lowered {
    let scale_follows = match &lowered.scale {
        Scale::Varies(scale) => scale.is_null_with_columns(),
        _ => true,
    };
    if scale_follows
        && lowered.expression.is_null_with_columns()
        && lowered.size().parts <= DEFERRED_PARTS_MAX
    {
        return lowered;
    }
    name_column(lowered, computed)
}

/// Gives an expression, and its display scale where that varies, columns of their own.
pub fn name_column(lowered: Lowered, computed: &mut Vec<NamedExpression>) -> Lowered {
    lowered.map_expressions(&mut |expression| {
        let id = with_planning(|planning| planning.new_column());
        let column = pystachio_plan::Expression::column(id, expression.data_type().clone());
        computed.push(NamedExpression { id, expression });
        column
    })
}
