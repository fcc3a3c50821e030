//! The way from PostgreSQL's nodes to plan expressions: a node is mirrored ([`crate::pg::mirror`]), and the mirror is lowered
//! ([`pystachio_lower`]).
//!
//! Invariant: a clause that lives as long as the planning is mirrored once. A join search looks at it for each pair of inputs.

use std::rc::Rc;

use pystachio_lower::{
    FrameSource, Lowered, LoweredAggregate, LoweredWindow, Notes, OrderKey, Part, Refusal, Scope, Source,
};
use pystachio_plan::{Expression, SortKey};

use super::planning::with_planning;
use crate::pg::{
    mirror::{self, Origins, Postgres, collation, source_type},
    tree::{AggregateCall, Clause, Node, Root, WindowFunction},
};

/// Lowers expressions over one scope.
pub struct Lowering<'scope> {
    scope: &'scope Scope,
    notes: Rc<Notes>,
    origins: Rc<Origins>,
}

impl<'scope> Lowering<'scope> {
    /// A lowering over the scope, which notes for the current run of the planner.
    pub fn new(scope: &'scope Scope) -> Self {
        let (notes, origins) =
            with_planning(|planning| (planning.notes().clone(), planning.origins().clone()));
        Self { scope, notes, origins }
    }

    /// The expression as a value.
    pub fn mirror(&self, node: Node<'_>) -> Result<Source, Refusal> {
        mirror::mirror(node, &self.origins)
    }

    /// The plan expression with exactly PostgreSQL's value, or why there is none.
    pub fn lower(&self, node: Node<'_>) -> Result<Lowered, Refusal> {
        self.lower_source(&self.mirror(node)?)
    }

    /// The same of a mirror.
    pub fn lower_source(&self, source: &Source) -> Result<Lowered, Refusal> {
        self.of_sources().lower(source)
    }

    /// Values in whose order, one after the other, those of an expression are.
    pub fn lower_ordered(&self, node: Node<'_>) -> Result<Vec<Lowered>, Refusal> {
        self.of_sources().lower_ordered(&self.mirror(node)?)
    }

    /// The keys by which composite values of an expression are sorted; `None` if they are of another type, or have no fields that are known.
    pub fn lower_record_order(
        &self,
        node: Node<'_>,
        descending: bool,
        nulls_first: bool,
    ) -> Result<Option<Vec<SortKey>>, Refusal> {
        let record = mirror::mirror_record(node, &self.origins)?;
        record
            .map(|record| self.of_sources().lower_record_order(&record, descending, nulls_first))
            .transpose()
    }

    /// An array that a column has.
    pub fn lower_array(&self, node: Node<'_>) -> Result<Lowered, Refusal> {
        self.of_sources().lower_array(&self.mirror(node)?)
    }

    /// A condition.
    pub fn lower_condition(&self, node: Node<'_>) -> Result<Expression, Refusal> {
        self.of_sources().lower_condition(&self.mirror(node)?)
    }

    /// The condition of a clause.
    pub fn lower_clause(&self, root: Root<'_>, clause: Clause<'_>) -> Result<Expression, Refusal> {
        self.of_sources().lower_condition(&*self.mirror_clause(root, clause)?)
    }

    /// Something that need not be evaluated for every row.
    pub fn lower_conditionally(&self, node: Node<'_>) -> Result<Lowered, Refusal> {
        self.of_sources().lower_conditionally(&self.mirror(node)?)
    }

    /// An aggregate of a grouping over this scope, and its mirror.
    pub fn lower_aggregate(
        &self,
        aggregate: AggregateCall<'_>,
    ) -> Result<(Source, LoweredAggregate), Refusal> {
        let source = self.mirror(aggregate.node())?;
        let lowered = match &source.part {
            Part::Aggregate(aggregate) => self.of_sources().lower_aggregate(aggregate)?,
            _ => return Err(Refusal::AggregateOutside),
        };
        Ok((source, lowered))
    }

    /// A window function over this scope with a frame, and its mirror.
    pub fn lower_window(
        &self,
        function: WindowFunction<'_>,
        frame: &FrameSource<'_>,
    ) -> Result<(Source, LoweredWindow), Refusal> {
        let source = self.mirror(function.node())?;
        let lowered = match &source.part {
            Part::Window(window) => self.of_sources().lower_window(window, frame)?,
            _ => return Err(Refusal::WindowOutside),
        };
        Ok((source, lowered))
    }

    fn of_sources(&self) -> pystachio_lower::Lowering<'_> {
        pystachio_lower::Lowering::new(self.scope, &self.notes, &Postgres)
    }

    fn mirror_clause(&self, root: Root<'_>, clause: Clause<'_>) -> Result<Rc<Source>, Refusal> {
        let is_lasting = root.keeps(clause);
        let known = with_planning(|planning| planning.mirror_of(clause));
        if let Some(known) = known.filter(|_| is_lasting) {
            return Ok(known);
        }
        let source = Rc::new(self.mirror(clause.expression())?);
        if is_lasting {
            with_planning(|planning| planning.keep_mirror(clause, source.clone()));
        }
        Ok(source)
    }
}

/// What an engine compares to order by an expression as PostgreSQL does.
pub fn order_key(node: Node<'_>) -> Result<OrderKey, Refusal> {
    let (of, collation) = (source_type(node.type_oid()), collation(node.collation()));
    pystachio_lower::order_key(&of, collation.as_deref(), &Postgres)
}

/// Whether equality of an expression's values is that of their bytes.
pub fn check_equality(node: Node<'_>) -> Result<(), Refusal> {
    let (of, collation) = (source_type(node.type_oid()), collation(node.collation()));
    pystachio_lower::check_equality(&of, collation.as_deref(), &Postgres)
}
