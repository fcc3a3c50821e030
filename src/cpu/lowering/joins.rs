//! Joins of every kind.
//!
//! DataFusion builds its hash table from its first input. Where the planner would build from the right,
//! the inputs change places and the join type is mirrored; columns are found by name above, so their
//! order does not matter.
//!
//! A hash table has to fit into memory. A plan that must do with what memory there is has joins of sorted inputs
//! instead, which keep in files what they have no memory for. NOT IN stays a hash join, since a single NULL decides it
//! for all rows, and so does what has no keys.
//!
//! The right side of semi and anti joins is grouped first (`semi.rs`).

use std::sync::Arc;

use crate::datafusion::{
    common::{JoinSide as Side, JoinType, NullEquality},
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_plan::{
        ExecutionPlan,
        joins::{
            CrossJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
            utils::{ColumnIndex, JoinFilter, JoinOn},
        },
    },
};
use arrow::{compute::SortOptions, datatypes::Schema};
use pystachio_plan::{Expression, Function, JoinKey, JoinKind, JoinSide, Relation, Result};

use super::{
    Lowering, PlanForm, Required,
    expressions::{PhysicalInput, common_key_type},
    keep_columns, project, require_columns,
    semi::Reduced,
};
use crate::{column_name, error::from_datafusion, stopping::StoppableCondition};

/// A side of a join, and its keys.
type KeyedSide = (Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>);

/// A build side of fewer rows is built once and shared, however few the probe side's are.
const SHARED_BUILD_ROWS: f64 = 100_000.0;
/// A build side is shared if it has at most this part of the probe side's rows: then a single-threaded
/// build costs less than moving the rows of both sides between threads.
const SHARED_BUILD_PART: f64 = 1.0 / 6.0;
/// A build side of more rows is never shared, since its single-threaded build is memory bound.
const SHARED_BUILD_ROWS_MAX: f64 = 4_000_000.0;

/// Whether a join's right input is DataFusion's first. The null-aware join has no mirror image.
pub(crate) fn swaps_join(kind: JoinKind, key_count: usize, has_residual: bool, build: JoinSide) -> bool {
    build == JoinSide::Right && !(kind == JoinKind::NullAwareAnti && is_null_aware(key_count, has_residual))
}

/// Whether DataFusion's null-aware join can run a NOT IN.
fn is_null_aware(key_count: usize, has_residual: bool) -> bool {
    key_count == 1 && !has_residual
}

/// A join as the plan has it.
pub(super) struct Join<'a> {
    pub(super) kind: JoinKind,
    pub(super) left: &'a Arc<Relation>,
    pub(super) right: &'a Arc<Relation>,
    pub(super) keys: &'a [JoinKey],
    pub(super) residual: Option<&'a Expression>,
    pub(super) build: JoinSide,
}

impl Lowering<'_> {
    pub(super) fn lower_join(
        &self,
        join: &Join<'_>,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if join.kind == JoinKind::NullAwareAnti && !is_null_aware(join.keys.len(), join.residual.is_some()) {
            return self.lower_not_in(join, required, depth);
        }
        if let Some(plan) = self.lower_nullable_equalities(join, required, depth) {
            return plan;
        }
        match self.reduced(join) {
            Some(Reduced { right, keys, residual }) => {
                let join = Join { right: &right, keys: &keys, residual: residual.as_ref(), ..*join };
                self.lower_pairs(&join, required, depth)
            }
            None => self.lower_pairs(join, required, depth),
        }
    }

    /// A join that tries all pairs of rows with equal keys.
    fn lower_pairs(
        &self,
        join: &Join<'_>,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut needed = required.clone();
        for key in join.keys {
            require_columns(&key.left, &mut needed);
            require_columns(&key.right, &mut needed);
        }
        join.residual.iter().for_each(|condition| require_columns(condition, &mut needed));
        let left = self.lower_side(join.left, &needed, depth)?;
        let right = self.lower_side(join.right, &needed, depth)?;
        let swap = swaps_join(join.kind, join.keys.len(), join.residual.is_some(), join.build);
        let sides = Sides::new(join, left, right, swap);
        let plan = if join.keys.is_empty() {
            self.pair_join(join, sides, required)?
        } else if self.form == PlanForm::Spilling && join.kind != JoinKind::NullAwareAnti {
            self.merge_join(join, sides)?
        } else {
            self.hash_join(join, sides, required)?
        };
        let kept: Vec<_> = join_columns(join).into_iter().filter(|id| required.contains(id)).collect();
        keep_columns_any_order(plan, &kept)
    }

    /// NOT IN with more than one equality: every pair that could be equal counts as a match.
    fn lower_not_in(
        &self,
        join: &Join<'_>,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut conditions: Vec<Expression> = join
            .keys
            .iter()
            .map(|key| {
                let common = common_key_type(key.left.data_type(), key.right.data_type());
                let equal = Expression::predicate(
                    Function::Equal,
                    vec![aligned(&key.left, &common), aligned(&key.right, &common)],
                );
                Expression::predicate(Function::IsNotFalse, vec![equal])
            })
            .collect();
        conditions.extend(join.residual.cloned());
        let residual = Expression::all_of(conditions);
        let join = Join { kind: JoinKind::Anti, keys: &[], residual: residual.as_ref(), ..*join };
        self.lower_join(&join, required, depth)
    }

    fn lower_side(&self, side: &Relation, needed: &Required, depth: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let ids: Required = side.columns().into_iter().map(|(id, _)| id).collect();
        self.lower(side, &needed.intersection(&ids).copied().collect(), depth + 1)
    }

    fn hash_join(
        &self,
        join: &Join<'_>,
        sides: Sides,
        required: &Required,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let on = self.key_pairs(join, &sides)?;
        let filter = self.join_filter(join, &sides)?;
        let null_aware = join.kind == JoinKind::NullAwareAnti;
        let mode = if null_aware || sides.shares_build() {
            PartitionMode::CollectLeft
        } else {
            PartitionMode::Partitioned
        };
        HashJoinExecBuilder::new(sides.build, sides.probe, on, sides.join_type)
            .with_filter(filter)
            .with_partition_mode(mode)
            .with_null_equality(NullEquality::NullEqualsNothing)
            .with_null_aware(null_aware)
            .build()
            .and_then(|exec| {
                let projection = positions_in(&exec.schema(), required);
                exec.with_projection(Some(projection))
            })
            .map(|exec| Arc::new(exec) as Arc<dyn ExecutionPlan>)
            .map_err(|error| from_datafusion(&error))
    }

    /// What is compared for equality, of the build side and of the probe side.
    fn key_pairs(&self, join: &Join<'_>, sides: &Sides) -> Result<JoinOn> {
        let build_input = self.input(&sides.build)?;
        let probe_input = self.input(&sides.probe)?;
        let pair = |key: &JoinKey| {
            let common = common_key_type(key.left.data_type(), key.right.data_type());
            let (build, probe) =
                if sides.swapped { (&key.right, &key.left) } else { (&key.left, &key.right) };
            Ok((
                build_input.physical_key(&aligned(build, &common))?,
                probe_input.physical_key(&aligned(probe, &common))?,
            ))
        };
        join.keys.iter().map(pair).collect()
    }

    /// A join of inputs that are sorted by their keys. It gives all columns of the sides that it keeps.
    fn merge_join(&self, join: &Join<'_>, sides: Sides) -> Result<Arc<dyn ExecutionPlan>> {
        let filter = self.join_filter(join, &sides)?;
        let (build_keys, probe_keys): (Vec<_>, Vec<_>) = self.key_pairs(join, &sides)?.into_iter().unzip();
        let (build, build_keys) = self.with_key_columns(sides.build, build_keys)?;
        let (probe, probe_keys) = self.with_key_columns(sides.probe, probe_keys)?;
        let orders = vec![SortOptions::default(); join.keys.len()];
        let on = build_keys.into_iter().zip(probe_keys).collect();
        let nulls = NullEquality::NullEqualsNothing;
        SortMergeJoinExec::try_new(build, probe, on, filter, sides.join_type, orders, nulls)
            .map(|exec| Arc::new(exec) as Arc<dyn ExecutionPlan>)
            .map_err(|error| from_datafusion(&error))
    }

    /// The side with its keys as columns, behind those that it has: DataFusion computes the keys of such a join where it
    /// expects no error.
    fn with_key_columns(
        &self,
        side: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<KeyedSide> {
        let schema = side.schema();
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            columns.push((Arc::new(Column::new(field.name(), index)), field.name().clone()));
        }
        let mut key_columns = Vec::with_capacity(keys.len());
        for key in keys {
            if key.is::<Column>() {
                key_columns.push(key);
                continue;
            }
            let name = column_name(self.fresh_column());
            key_columns.push(Arc::new(Column::new(&name, columns.len())) as Arc<dyn PhysicalExpr>);
            columns.push((key, name));
        }
        Ok((project(side, columns)?, key_columns))
    }

    /// A join without equalities.
    fn pair_join(
        &self,
        join: &Join<'_>,
        sides: Sides,
        required: &Required,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let filter = self.join_filter(join, &sides)?;
        if filter.is_none() && sides.join_type == JoinType::Inner {
            return Ok(Arc::new(CrossJoinExec::new(sides.build, sides.probe)));
        }
        // Where DataFusion computes a part of the filter below the join, it shifts the columns that such joins keep.
        let gives_probe_side = matches!(sides.join_type, JoinType::RightSemi | JoinType::RightAnti);
        NestedLoopJoinExec::try_new(sides.build, sides.probe, filter, &sides.join_type, None)
            .and_then(|exec| {
                let projection = positions_in(&exec.schema(), required);
                exec.with_projection((!gives_probe_side).then_some(projection))
            })
            .map(|exec| Arc::new(exec) as Arc<dyn ExecutionPlan>)
            .map_err(|error| from_datafusion(&error))
    }

    fn join_filter(&self, join: &Join<'_>, sides: &Sides) -> Result<Option<JoinFilter>> {
        let Some(residual) = join.residual else { return Ok(None) };
        let mut used = Required::new();
        require_columns(residual, &mut used);
        let mut indices = Vec::new();
        let mut fields = Vec::new();
        for (plan, side) in [(&sides.build, Side::Left), (&sides.probe, Side::Right)] {
            let schema = plan.schema();
            for index in positions_in(&schema, &used) {
                indices.push(ColumnIndex { index, side });
                fields.push(schema.field(index).clone());
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let input = PhysicalInput::new(schema.clone(), self.parameters, self.config)?;
        let condition = StoppableCondition::new(input.physical(residual)?, self.stop.clone());
        Ok(Some(JoinFilter::new(Arc::new(condition), indices, schema)))
    }
}

/// A join's inputs as DataFusion takes them.
struct Sides {
    build: Arc<dyn ExecutionPlan>,
    probe: Arc<dyn ExecutionPlan>,
    build_rows: f64,
    probe_rows: f64,
    join_type: JoinType,
    swapped: bool,
}

impl Sides {
    fn new(
        join: &Join<'_>,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        swapped: bool,
    ) -> Self {
        let join_type = match join.kind {
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Full => JoinType::Full,
            JoinKind::Semi => JoinType::LeftSemi,
            JoinKind::Anti | JoinKind::NullAwareAnti => JoinType::LeftAnti,
        };
        let (left_rows, right_rows) = (join.left.estimate.rows, join.right.estimate.rows);
        if swapped {
            Self {
                build: right,
                probe: left,
                build_rows: right_rows,
                probe_rows: left_rows,
                join_type: join_type.swap(),
                swapped,
            }
        } else {
            Self {
                build: left,
                probe: right,
                build_rows: left_rows,
                probe_rows: right_rows,
                join_type,
                swapped,
            }
        }
    }

    fn shares_build(&self) -> bool {
        // A full join of a shared build side would have to wait for every probe partition anyway.
        self.build_rows <= SHARED_BUILD_ROWS
            || (self.build_rows <= SHARED_BUILD_ROWS_MAX
                && self.build_rows <= self.probe_rows * SHARED_BUILD_PART)
    }
}

/// The key in the type in which it is compared.
fn aligned(key: &Expression, common: &pystachio_plan::DataType) -> Expression {
    if key.data_type() == common {
        key.clone()
    } else {
        Expression::call(Function::Cast, vec![key.clone()], common.clone())
    }
}

fn join_columns(join: &Join<'_>) -> Vec<pystachio_plan::ColumnId> {
    let mut ids: Vec<_> = join.left.columns().into_iter().map(|(id, _)| id).collect();
    if join.kind.keeps_right_columns() {
        ids.extend(join.right.columns().into_iter().map(|(id, _)| id));
    }
    ids
}

/// Drops what is left beyond these columns; the join has projected already in most cases.
fn keep_columns_any_order(
    plan: Arc<dyn ExecutionPlan>,
    ids: &[pystachio_plan::ColumnId],
) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.schema().fields().len() == ids.len() { Ok(plan) } else { keep_columns(plan, ids) }
}

fn positions_in(schema: &Schema, required: &Required) -> Vec<usize> {
    let names: std::collections::BTreeSet<String> = required.iter().map(|id| column_name(*id)).collect();
    (0..schema.fields().len()).filter(|index| names.contains(schema.field(*index).name())).collect()
}
