//! A plan becomes DataFusion's physical operators.
//!
//! Physical operators are built directly. The plan is typed, its filters and columns are where they
//! belong and its join order is chosen, so DataFusion's analyzer and logical optimizer would cost time
//! and change nothing. Of its physical rules those run that place exchanges, push filters and limits
//! and answer from statistics.
//!
//! - `expressions.rs`: plan expressions made physical; float keys
//! - `aggregates.rs`: grouping, DISTINCT, shared subexpressions
//! - `joins.rs`: joins of every kind; `semi.rs`: semi and anti joins in linear time
//! - `windows.rs`: window functions
//! - `rules.rs`: the physical rules
//!
//! Invariants: the operators of a relation give every column that its reader requires, by name; they may
//! give more. An empty column list carries the count of rows.
//!
//! A plan comes in two forms: the fastest, and one whose operators spill ([`PlanForm`]).
//!
//! Deliberately absent: choosing a join order or a build side; the planner has done that.

mod aggregates;
mod expressions;
mod joins;
mod rules;
mod semi;
mod windows;

pub(crate) use self::{
    aggregates::aggregates_distinct_values,
    joins::swaps_join,
    semi::{RightSide, right_side},
};

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::datafusion::{
    config::ConfigOptions,
    physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr, expressions::Column},
    physical_plan::{
        ExecutionPlan,
        empty::EmptyExec,
        filter::FilterExecBuilder,
        limit::GlobalLimitExec,
        projection::{ProjectionExec, ProjectionExpr},
        sorts::sort::SortExec,
        union::UnionExec,
    },
};
use arrow::{compute::SortOptions, datatypes::SchemaRef};
use pystachio_engine::{GivenPart, StopFlag};
use pystachio_files::ScanConditions;
use pystachio_plan::{
    AggregatePhase, ColumnId, DataType, Error, ErrorKind, Expression, Function, Literal, NamedExpression,
    Operator, Plan, RELATION_DEPTH_MAX, Relation, RepeatedParts, Result, ScanExtent, SortKey, UnnestedArray,
};

use self::expressions::PhysicalInput;
use crate::{
    column_name,
    error::from_datafusion,
    given_rows::GivenRowsExec,
    scan::{RowGroupScanExec, ScanContext, ScanRequest},
    screen::{Screen, ScreenExec, ScreenedCondition},
    shared::{SharedExec, SharedPart},
    unnest::{ElementColumns, Elements, UnnestExec},
};

/// A sort key of so many parts is computed before the sort.
const LARGE_KEY_PARTS: usize = 12;

/// Relations nested deeper are refused, so that a plan can't exhaust the stack. Those that are decoded are
/// not as deep.
const DEPTH_MAX: usize = 2 * RELATION_DEPTH_MAX;

/// The columns that an operator's reader needs.
type Required = BTreeSet<ColumnId>;

/// Which operators a plan is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanForm {
    /// The fastest. Some of them fail without the memory that they need.
    Fast,
    /// Those that go on in files with what memory they have, wherever there is one.
    Spilling,
}

/// What lowering needs beside the plan.
pub(crate) struct Lowering<'a> {
    /// The values of the plan's parameters.
    pub(crate) parameters: &'a [Literal],
    /// Files, footers and cached columns.
    pub(crate) scans: &'a ScanContext,
    /// DataFusion's settings.
    pub(crate) config: &'a Arc<ConfigOptions>,
    /// Set when the query is not wanted any more.
    pub(crate) stop: &'a StopFlag,
    /// Which operators the plan is made of.
    pub(crate) form: PlanForm,
    /// Memory that the first rows of an order may take, and rows that several readers share. More are sorted with all others,
    /// which may spill, or computed for each reader.
    pub(crate) kept_bytes_max: usize,
    /// The parts that are computed once, and those of them that were made.
    pub(crate) repeated: RepeatedParts,
    pub(crate) shared: RefCell<HashMap<usize, Shared>>,
    /// The parts that another engine computes, by the addresses of their relations.
    pub(crate) given: &'a HashMap<usize, GivenPart>,
    /// The next id of a column that the plan does not have; counts down from the greatest.
    pub(crate) next_column: std::cell::Cell<u32>,
}

/// A part that was made, and where it has the columns of the relation.
#[derive(Clone)]
pub(crate) struct Shared {
    part: Arc<SharedPart>,
    places: Vec<usize>,
}

impl Lowering<'_> {
    /// The executable form of a plan; its columns are the plan's outputs in order. Blocks on files.
    ///
    /// # Errors
    ///
    /// Those of the files, `NotSupported`, and `Internal` for a plan that contradicts itself.
    pub(crate) fn lower_plan(&self, plan: &Plan) -> Result<Arc<dyn ExecutionPlan>> {
        let required = plan.outputs.iter().copied().collect();
        let root = self.lower(&plan.root, &required, 0)?;
        let root = keep_columns(root, &plan.outputs)?;
        self.optimize(root)
    }

    fn lower(
        &self,
        relation: &Relation,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if depth > DEPTH_MAX {
            let message = format!("the plan is nested more than {DEPTH_MAX} deep");
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        if let (Some(part), None) = (self.given_part(relation), self.repeated.group(relation)) {
            return Ok(Arc::new(GivenRowsExec::new(part, required)));
        }
        if let Some(group) = self.repeated.group(relation) {
            return self.lower_shared(relation, group, depth);
        }
        self.lower_unshared(relation, required, depth)
    }

    /// A relation that is computed here, whether others read it or not.
    fn lower_unshared(
        &self,
        relation: &Relation,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &relation.operator {
            Operator::Scan { extent: ScanExtent::Whole, .. } => {
                self.lower_scan(relation, &[], required, false)
            }
            Operator::Filter { .. } => self.lower_filter(relation, required, depth),
            Operator::Project { input, expressions } => {
                self.lower_project(input, expressions, None, required, depth)
            }
            Operator::Join { kind, left, right, keys, residual, build } => {
                let join = joins::Join {
                    kind: *kind,
                    left,
                    right,
                    keys,
                    residual: residual.as_ref(),
                    build: *build,
                };
                self.lower_join(&join, required, depth)
            }
            Operator::Aggregate { phase: AggregatePhase::Partial | AggregatePhase::Final, .. }
            | Operator::Exchange { .. }
            | Operator::Scan { extent: ScanExtent::Partitioned | ScanExtent::Range { .. }, .. } => {
                Err(Error::new(ErrorKind::NotSupported, "the CPU engine has no ranks"))
            }
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole } => {
                self.lower_aggregate(input, groups, aggregates, relation.estimate, depth)
            }
            Operator::Sort { input, keys } => self.lower_sort(input, keys, required, depth),
            Operator::Limit { input, offset, count } => {
                let plan = self.lower(input, required, depth + 1)?;
                let skip = self.row_count(offset.as_ref(), "OFFSET")?.unwrap_or(0);
                let fetch = self.row_count(count.as_ref(), "LIMIT")?;
                if fetch == Some(0) {
                    // A sort with a limit wants to keep at least one row.
                    return Ok(Arc::new(EmptyExec::new(plan.schema())));
                }
                Ok(Arc::new(GlobalLimitExec::new(plan, skip, fetch)))
            }
            Operator::UnionAll { inputs, columns } => self.lower_union(inputs, columns, depth),
            Operator::Window { .. } => self.lower_window(relation, None, required, depth),
            Operator::Unnest { input, arrays, number, keeps_rows } => {
                let plan = {
                    let mut needed = required.clone();
                    arrays.iter().for_each(|unnested| require_columns(&unnested.array, &mut needed));
                    self.lower(input, &needed, depth + 1)?
                };
                let below = self.input(&plan)?;
                let kept = |id: &ColumnId| required.contains(id).then(|| column_name(*id));
                let array = |unnested: &UnnestedArray| {
                    let columns = unnested.columns.iter().map(kept).collect();
                    Ok(ElementColumns { array: below.physical(&unnested.array)?, columns })
                };
                let elements = Elements {
                    arrays: arrays.iter().map(array).collect::<Result<_>>()?,
                    number: number.as_ref().and_then(kept),
                    keeps_rows: *keeps_rows,
                };
                let projection = positions(&plan, required);
                let unnest = UnnestExec::try_new(plan, projection, elements);
                Ok(Arc::new(unnest.map_err(|error| from_datafusion(&error))?))
            }
        }
    }

    /// The part that a relation is, if another engine computes it.
    fn given_part(&self, relation: &Relation) -> Option<&GivenPart> {
        self.given.get(&(std::ptr::from_ref(relation) as usize))
    }

    /// Whether a relation is a scan that this engine does.
    fn is_own_scan(&self, relation: &Relation) -> bool {
        matches!(relation.operator, Operator::Scan { .. }) && self.given_part(relation).is_none()
    }

    /// A part that is computed once, for one of its readers.
    fn lower_shared(
        &self,
        relation: &Relation,
        group: usize,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let known = self.shared.borrow().get(&group).cloned();
        let is_first = known.is_none();
        let Shared { part, places } = match known {
            Some(known) => known,
            None => {
                let all = relation.columns().into_iter().map(|(id, _)| id).collect();
                let plan: Arc<dyn ExecutionPlan> = match self.given_part(relation) {
                    Some(part) => Arc::new(GivenRowsExec::new(part, &all)),
                    None => self.optimize(self.lower_unshared(relation, &all, depth)?)?,
                };
                let place = |(id, _): &(ColumnId, DataType)| {
                    let found = plan.schema().index_of(&column_name(*id));
                    found.map_err(|error| Error::internal(error.to_string()))
                };
                let places = relation.columns().iter().map(place).collect::<Result<Vec<_>>>()?;
                let made = Shared { part: SharedPart::new(plan, relation.estimate.rows), places };
                self.shared.borrow_mut().insert(group, made.clone());
                made
            }
        };
        let names = relation.columns().into_iter().map(|(id, _)| column_name(id));
        let columns: Vec<_> = places.into_iter().zip(names).collect();
        Ok(Arc::new(SharedExec::new(part, is_first, &columns)))
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        rules::optimize(plan, self.config, self.form, self.kept_bytes_max)
    }

    /// A scan with the conditions of the filters above it, the lowest first: a condition is evaluated for the rows that
    /// those before it keep. `with_bounds` if its reader may answer from bounds of whole columns.
    fn lower_scan(
        &self,
        relation: &Relation,
        above: &[&Expression],
        required: &Required,
        with_bounds: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Operator::Scan { table, files, columns, filters, extent: ScanExtent::Whole } = &relation.operator
        else {
            return Err(Error::new(ErrorKind::NotSupported, "the CPU engine has no ranks"));
        };
        let estimate_rows = relation.estimate.rows;
        // Those above the scan rule out row groups too.
        let all: Cow<'_, [Expression]> = match above {
            [] => Cow::Borrowed(filters),
            _ => filters.iter().chain(above.iter().copied()).cloned().collect(),
        };
        let conditions = ScanConditions { columns, filters: &all, parameters: self.parameters };
        let request = ScanRequest { table, files, conditions, output: required, estimate_rows, with_bounds };
        let lower_filters = |schema| {
            let input = PhysicalInput::new(schema, self.parameters, self.config)?;
            all.iter().map(|filter| input.physical(filter)).collect()
        };
        Ok(Arc::new(RowGroupScanExec::try_new(self.scans, &request, lower_filters)?))
    }

    fn lower_filter(
        &self,
        relation: &Relation,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Operator::Filter { input, predicate } = &relation.operator else {
            return Err(Error::internal("a filter is something else"));
        };
        // DataFusion would push filters into a scan too, but the highest first.
        let mut predicates = vec![predicate];
        let mut lowest: &Relation = input;
        while let Operator::Filter { input, predicate } = &lowest.operator
            && self.given_part(lowest).is_none()
        {
            predicates.push(predicate);
            lowest = input;
        }
        if self.is_own_scan(lowest) {
            predicates.reverse();
            return self.lower_scan(lowest, &predicates, required, false);
        }
        let mut needed = required.clone();
        require_columns(predicate, &mut needed);
        let mut screen = None;
        let plan = match (self.first_rows_of(input, predicate), &input.operator) {
            (Some(first), _) => self.lower_window(input, Some(first), &needed, depth + 1)?,
            (None, Operator::Project { input: below, expressions }) if self.given_part(input).is_none() => {
                // Before what the condition reads is computed.
                let composed = composed(predicate, expressions);
                self.lower_project(below, expressions, Some(&composed), &needed, depth + 1)?
            }
            _ => {
                screen = Screen::of(predicate, self.parameters);
                self.lower(input, &needed, depth + 1)?
            }
        };
        let predicate = self.input(&plan)?.physical(predicate)?;
        let predicate = match screen {
            Some(screen) => Arc::new(ScreenedCondition::new(predicate, screen)) as _,
            None => predicate,
        };
        let projection = positions(&plan, required);
        let filter = FilterExecBuilder::new(predicate, plan)
            .apply_projection(Some(projection))
            .and_then(FilterExecBuilder::build)
            .map_err(|error| from_datafusion(&error))?;
        Ok(Arc::new(filter))
    }

    /// A projection of rows, but for those that a condition above it can't be true for: one over the columns of `input`.
    fn lower_project(
        &self,
        input: &Relation,
        expressions: &[NamedExpression],
        condition: Option<&Expression>,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kept: Vec<_> = expressions.iter().filter(|named| required.contains(&named.id)).collect();
        let mut needed = Required::new();
        kept.iter().for_each(|named| require_columns(&named.expression, &mut needed));
        let mut plan = self.lower(input, &needed, depth + 1)?;
        if let Some(screen) = condition.and_then(|condition| Screen::of(condition, self.parameters)) {
            plan = Arc::new(ScreenExec::new(plan, screen));
        }
        let input = self.input(&plan)?;
        let expressions = kept
            .iter()
            .map(|named| Ok((input.physical(&named.expression)?, column_name(named.id))))
            .collect::<Result<Vec<_>>>()?;
        project(plan, expressions)
    }

    fn lower_sort(
        &self,
        input: &Relation,
        keys: &[SortKey],
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut needed = required.clone();
        keys.iter().for_each(|key| require_columns(&key.expression, &mut needed));
        let plan = self.lower(input, &needed, depth + 1)?;
        let below = self.input(&plan)?;
        if !keys.iter().any(|key| is_large(&key.expression)) {
            return Ok(match ordering_of(&below, keys)? {
                Some(ordering) => Arc::new(SortExec::new(ordering, plan)),
                None => plan,
            });
        }
        // Large keys are columns: each is computed once, and the optimizer is spared to compare it with every order that it meets.
        let kept: Vec<ColumnId> = required.iter().copied().collect();
        let schema = plan.schema();
        let names = schema.fields().iter().map(|field| field.name()).enumerate();
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> =
            names.map(|(place, name)| (Arc::new(Column::new(name, place)) as _, name.clone())).collect();
        let mut small_keys = keys.to_vec();
        for key in small_keys.iter_mut().filter(|key| is_large(&key.expression)) {
            let id = self.fresh_column();
            columns.push((below.physical_key(&key.expression)?, column_name(id)));
            key.expression = Expression::column(id, key.expression.data_type().clone());
        }
        let plan = project(plan, columns)?;
        let ordering = ordering_of(&self.input(&plan)?, &small_keys)?;
        let ordering = ordering.ok_or_else(|| Error::internal("a sort has lost its keys"))?;
        keep_columns(Arc::new(SortExec::new(ordering, plan)), &kept)
    }

    fn lower_union(
        &self,
        inputs: &[(Arc<Relation>, Vec<ColumnId>)],
        columns: &[(ColumnId, DataType)],
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut plans = Vec::with_capacity(inputs.len());
        for (relation, ids) in inputs {
            if ids.len() != columns.len() {
                return Err(Error::internal("a union's inputs have different numbers of columns"));
            }
            let types = relation.columns();
            let plan = self.lower(relation, &ids.iter().copied().collect(), depth + 1)?;
            let input = self.input(&plan)?;
            let expressions = ids
                .iter()
                .zip(columns)
                .map(|(id, (name, data_type))| {
                    let found = types.iter().find(|(column, _)| column == id);
                    let (_, own) = found.ok_or_else(|| Error::internal("a union names an unknown column"))?;
                    let column = Expression::column(*id, own.clone());
                    let expression = if own == data_type {
                        column
                    } else {
                        Expression::call(Function::Cast, vec![column], data_type.clone())
                    };
                    Ok((input.physical(&expression)?, column_name(*name)))
                })
                .collect::<Result<Vec<_>>>()?;
            plans.push(project(plan, expressions)?);
        }
        if plans.len() < 2 {
            return plans.pop().ok_or_else(|| Error::internal("a union has no inputs"));
        }
        UnionExec::try_new(plans).map_err(|error| from_datafusion(&error))
    }

    /// The value of LIMIT or OFFSET.
    fn row_count(&self, expression: Option<&Expression>, clause: &str) -> Result<Option<usize>> {
        let literal = match expression {
            None => return Ok(None),
            Some(Expression::Literal(literal)) => literal,
            Some(Expression::Parameter { index, .. }) => usize::try_from(*index)
                .ok()
                .and_then(|index| self.parameters.get(index))
                .ok_or_else(|| Error::internal(format!("parameter {index} of {clause} has no value")))?,
            Some(_) => return Err(Error::internal(format!("{clause} is neither literal nor parameter"))),
        };
        match literal.value {
            pystachio_plan::Value::Null => Ok(None),
            pystachio_plan::Value::Int(value) => usize::try_from(value).map(Some).map_err(|_| {
                Error::new(ErrorKind::InvalidArgument, format!("{clause} must not be negative"))
            }),
            _ => Err(Error::internal(format!("{clause} is not an integer"))),
        }
    }

    /// An id that no column of the plan has: the planner counts up from 0.
    fn fresh_column(&self) -> ColumnId {
        let id = self.next_column.get();
        self.next_column.set(id - 1);
        ColumnId(id)
    }

    fn input(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<PhysicalInput<'_>> {
        PhysicalInput::new(plan.schema(), self.parameters, self.config)
    }
}

/// A condition on a projection as one on its input.
fn composed(condition: &Expression, expressions: &[NamedExpression]) -> Expression {
    let mut composed = condition.clone();
    composed.map_parts(&mut |part| {
        if let Expression::Column { id, .. } = part
            && let Some(named) = expressions.iter().find(|named| named.id == *id)
        {
            *part = named.expression.clone();
        }
    });
    composed
}

fn ordering_of(input: &PhysicalInput<'_>, keys: &[SortKey]) -> Result<Option<LexOrdering>> {
    let ordering = keys.iter().map(|key| {
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        Ok(PhysicalSortExpr::new(input.physical_key(&key.expression)?, options))
    });
    Ok(LexOrdering::new(ordering.collect::<Result<Vec<_>>>()?))
}

/// Whether to compute a sort key once costs less than a column of its values.
fn is_large(expression: &Expression) -> bool {
    let mut parts = 0;
    expression.walk(&mut |_| parts += 1);
    parts >= LARGE_KEY_PARTS
}

/// The order by some keys of rows whose columns have the names of [`crate::column_name`]; `None` without keys.
///
/// # Errors
///
/// Those of lowering.
pub(crate) fn row_ordering(
    schema: SchemaRef,
    keys: &[SortKey],
    config: &Arc<ConfigOptions>,
) -> Result<Option<LexOrdering>> {
    ordering_of(&PhysicalInput::new(schema, &[], config)?, keys)
}

/// Adds the columns that an expression reads.
fn require_columns(expression: &Expression, required: &mut Required) {
    expression.walk(&mut |part| {
        if let Expression::Column { id, .. } = part {
            required.insert(*id);
        }
    });
}

/// Where the required columns are in a plan's output, in its order.
fn positions(plan: &Arc<dyn ExecutionPlan>, required: &Required) -> Vec<usize> {
    let names: BTreeSet<String> = required.iter().map(|id| column_name(*id)).collect();
    let schema = plan.schema();
    (0..schema.fields().len()).filter(|index| names.contains(schema.field(*index).name())).collect()
}

/// The plan with these columns in this order.
fn keep_columns(plan: Arc<dyn ExecutionPlan>, ids: &[ColumnId]) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let mut seen = BTreeSet::new();
    let expressions = ids
        .iter()
        .map(|id| {
            let name = column_name(*id);
            let column = Column::new_with_schema(&name, &schema).map_err(|error| from_datafusion(&error))?;
            // A column may be returned twice; names stay unique.
            let output = if seen.insert(*id) { name } else { format!("{name}_{}", seen.len()) };
            Ok((Arc::new(column) as Arc<dyn PhysicalExpr>, output))
        })
        .collect::<Result<Vec<_>>>()?;
    project(plan, expressions)
}

/// A projection, or the plan itself where it would change nothing.
fn project(
    plan: Arc<dyn ExecutionPlan>,
    expressions: Vec<(Arc<dyn PhysicalExpr>, String)>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let same = expressions.len() == schema.fields().len()
        && expressions.iter().enumerate().all(|(index, (expression, name))| {
            expression
                .downcast_ref::<Column>()
                .is_some_and(|column| column.index() == index && schema.field(index).name() == name)
        });
    if same {
        return Ok(plan);
    }
    let expressions = expressions.into_iter().map(|(expr, alias)| ProjectionExpr { expr, alias });
    let projection = ProjectionExec::try_new(expressions, plan).map_err(|error| from_datafusion(&error))?;
    Ok(Arc::new(projection))
}
