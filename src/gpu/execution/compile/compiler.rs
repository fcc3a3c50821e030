//! The facts of a plan during its compilation. When the query runs, it keeps the plan's sources and
//! the operators that filters may reduce.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use pystachio_plan::{
    ColumnId, Error, Expression, JoinSide, NamedExpression, Operator, Plan, Relation, RepeatedParts,
    columns_above_scans,
};

use super::{picks::Picks, relations::build_side};
use crate::execution::{
    CountedSource, QueryContext,
    exchange::Exchanges,
    join::Fragments,
    runtime_filter::ReducedOperators,
    scan::{ChunkCache, PlannedScans, ReaderPool},
    shared::SharedPart,
};

/// What the sources of a query use beside its context. The sources get it when they are compiled;
/// the run of the query begins and ends it.
///
/// # Ordering
///
/// [`Self::end`] before it is dropped: then no driver waits for a reader any more.
pub(in crate::execution) struct QueryResources {
    /// The column chunks that stay on the device between queries.
    pub(in crate::execution) cache: ChunkCache,
    pub(in crate::execution) readers: ReaderPool,
    /// Build sides that may have drivers of their own.
    pub(in crate::execution) fragments: Arc<Fragments>,
    /// Rows to and from other ranks.
    pub(in crate::execution) exchanges: Arc<Exchanges>,
}

impl QueryResources {
    /// Ends all drivers but the query's own.
    pub(in crate::execution) fn end(&self) {
        self.fragments.end();
        self.exchanges.end();
    }
}

/// A plan that can run.
pub(in crate::execution) struct CompiledPlan {
    /// Its columns are the plan's outputs in order.
    pub(in crate::execution) root: CountedSource,
    /// The operators whose rows filters of joins may reduce.
    pub(in crate::execution) reduced: ReducedOperators,
}

/// A plan that can't run.
pub(in crate::execution) struct RefusedPlan {
    pub(in crate::execution) error: Error,
    /// The lowest operator that could not be compiled for want of a kernel, by the address of its
    /// relation.
    pub(in crate::execution) operator: Option<usize>,
}

/// The state of a compilation.
pub(super) struct Compiler<'a> {
    /// No driver runs yet.
    pub(super) query: &'a mut QueryContext,
    pub(super) resources: &'a QueryResources,
    pub(super) scans: PlannedScans<'a>,
    /// The position in which the query will want each scan, by the address of its relation.
    pub(super) scan_ranks: HashMap<usize, usize>,
    /// The parts that are computed once.
    pub(super) repeated: RepeatedParts,
    /// Those of them that were compiled, by their group, and the place among the plan's columns of each of theirs.
    pub(super) shared: HashMap<usize, (Arc<SharedPart>, Vec<usize>)>,
    /// The values that aggregates of ordered rows pick.
    pub(super) picks: Picks,
    /// See [`RefusedPlan::operator`].
    pub(super) refused_operator: Option<usize>,
    /// The number of row-moving exchanges above the relation that is being compiled.
    pub(super) exchange_depth: usize,
    /// The scans below each compiled exchange, by their numbers among the query's.
    pub(super) exchange_scans: Vec<Range<usize>>,
}

impl<'a> Compiler<'a> {
    /// Before a plan whose picks are known is compiled.
    pub(super) fn new(
        plan: &Plan,
        picks: Picks,
        query: &'a mut QueryContext,
        resources: &'a QueryResources,
    ) -> Self {
        let QueryResources { cache, readers, .. } = resources;
        // Two aggregates that are alike may have different values picked.
        let repeated = RepeatedParts::of(&plan.root, |part| !picks.are_of(part));
        let mut columns_above = columns_above_scans(plan);
        note_shared_columns(&plan.root, &repeated, &mut columns_above);
        Self {
            query,
            resources,
            scans: PlannedScans {
                cache,
                readers,
                only_keys: only_keys(&plan.root),
                columns_above,
                integer_ranges: HashMap::new(),
                reduced: ReducedOperators::default(),
            },
            scan_ranks: scan_ranks(&plan.root),
            repeated,
            shared: HashMap::new(),
            picks,
            refused_operator: None,
            exchange_depth: 0,
            exchange_scans: Vec::new(),
        }
    }
}

/// The order in which a query wants its scans: build sides before probe sides. By the relation's address.
fn scan_ranks(root: &Relation) -> HashMap<usize, usize> {
    let mut ranks = HashMap::new();
    // Those nearest to the root are wanted first.
    let mut waiting = vec![root];
    while let Some(relation) = waiting.pop() {
        match &relation.operator {
            Operator::Scan { .. } => {
                let rank = ranks.len();
                ranks.insert(std::ptr::from_ref(relation) as usize, rank);
            }
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Aggregate { input, .. }
            | Operator::Sort { input, .. }
            | Operator::Limit { input, .. }
            | Operator::Unnest { input, .. }
            | Operator::Window { input, .. }
            | Operator::Exchange { input, .. } => waiting.push(input),
            Operator::Join { kind, left, right, build, .. } => match build_side(*kind, *build) {
                JoinSide::Left => waiting.extend([right, left].map(Arc::as_ref)),
                JoinSide::Right => waiting.extend([left, right].map(Arc::as_ref)),
            },
            Operator::UnionAll { inputs, .. } => {
                waiting.extend(inputs.iter().rev().map(|(input, _)| input.as_ref()));
            }
        }
    }
    ranks
}

/// Notes the columns of parts that are computed once: another reader may read what the first one does not.
fn note_shared_columns(relation: &Relation, repeated: &RepeatedParts, read: &mut HashSet<ColumnId>) {
    if repeated.group(relation).is_some() {
        read.extend(relation.columns().into_iter().map(|(id, _)| id));
    }
    relation.inputs().into_iter().for_each(|input| note_shared_columns(input, repeated, read));
}

/// The columns by which an aggregate alone groups.
fn only_keys(root: &Relation) -> HashSet<ColumnId> {
    let mut keys = HashSet::new();
    let mut waiting = vec![root];
    while let Some(relation) = waiting.pop() {
        if let Operator::Aggregate { groups, .. } = &relation.operator
            && let [NamedExpression { expression: Expression::Column { id, .. }, .. }] = groups.as_slice()
        {
            keys.insert(*id);
        }
        waiting.extend(relation.inputs().into_iter().map(|input| &**input));
    }
    keys
}
