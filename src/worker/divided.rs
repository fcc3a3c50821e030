//! Queries that both engines run, because the device has no kernel for a part.
//!
//! ```text
//!   operators without a kernel, all above them  CPU engine
//!   ───────── rows, as Arrow batches ────────
//!   a part          another part                the device
//! ```
//!
//! A part is the largest tree of operators that has all kernels. So `md5` of the groups of a large table costs that table's aggregate on
//! the device and a few hashes on processors, and not the whole query on processors.
//!
//! Invariants: a part returns the same rows as on the CPU engine. If the device refuses a part
//! after all, the CPU engine runs the whole plan, unless the part has returned a row. Stopping a
//! part ends that part alone, and stopping the query ends its parts.
//!
//! Deliberately absent: operators of the device above one without a kernel. Rows would have to go
//! back to the device, and most queries have few rows there.

use std::{collections::HashSet, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_engine::{GivenPart, PartSource, ResultStream, StopFlag};
use pystachio_gpu::execution::{DeviceEngine, RankedEngine};
use pystachio_plan::{
    ColumnId, Error, ErrorKind, Expression, Function, Operator, Plan, QueryMetrics, QueryRequest, Relation,
    Result,
};

/// Rows of a batch that an operator of the CPU engine gets.
const BATCH_ROWS: u32 = 8192;

/// The parts of a refused plan that the device has kernels for. Blocks.
pub fn device_parts(device: &DeviceEngine, request: &QueryRequest, stop: &StopFlag) -> Vec<Arc<Relation>> {
    let mut refused = HashSet::new();
    let mut tried = HashSet::new();
    // Each round learns of one more operator without a kernel, the first one of the whole plan.
    loop {
        let mut parts = Vec::new();
        collect_parts(&request.plan.root, &refused, &mut parts);
        let Some(part) = parts.iter().find(|part| tried.insert(address(part))) else {
            return parts.iter().map(without_variances).filter(|part| saves_work(part)).collect();
        };
        match device.refused_operator(&of_part(request, part, Vec::new()), stop) {
            // Nothing of the plan is refused before it runs.
            Ok(None) if Arc::ptr_eq(part, &request.plan.root) => return Vec::new(),
            Ok(None) => {}
            Ok(Some(operator)) => {
                refused.insert(operator);
            }
            // The engine that runs the query reports it.
            Err(_) => return Vec::new(),
        }
    }
}

/// The highest relations below which nothing was refused.
fn collect_parts(relation: &Arc<Relation>, refused: &HashSet<usize>, parts: &mut Vec<Arc<Relation>>) {
    if !contains_any(relation, refused) {
        return parts.push(relation.clone());
    }
    relation.inputs().into_iter().for_each(|input| collect_parts(input, refused, parts));
}

fn contains_any(relation: &Arc<Relation>, refused: &HashSet<usize>) -> bool {
    refused.contains(&address(relation))
        || relation.inputs().into_iter().any(|input| contains_any(input, refused))
}

/// The part without the variances that it ends with. Processors compute variances on both engines, and the CPU engine only for the rows
/// that a condition above leaves.
fn without_variances(part: &Arc<Relation>) -> Arc<Relation> {
    let Operator::Project { input, expressions } = &part.operator else { return part.clone() };
    let mut has_variance = false;
    for named in expressions {
        named.expression.walk(&mut |part| {
            let Expression::Call { function, .. } = part else { return };
            has_variance |= matches!(function, Function::Variance { .. } | Function::VarianceScale { .. });
        });
    }
    if has_variance { input.clone() } else { part.clone() }
}

/// Whether a part does more than hand over the rows of files.
fn saves_work(part: &Relation) -> bool {
    match &part.operator {
        Operator::Scan { filters, .. } => !filters.is_empty(),
        Operator::Project { input, expressions } => {
            let is_computed = |expression: &Expression| !matches!(expression, Expression::Column { .. });
            expressions.iter().any(|named| is_computed(&named.expression)) || saves_work(input)
        }
        _ => true,
    }
}

fn address(relation: &Arc<Relation>) -> usize {
    Arc::as_ptr(relation) as usize
}

/// The request for a part alone.
fn of_part(request: &QueryRequest, part: &Arc<Relation>, outputs: Vec<ColumnId>) -> QueryRequest {
    let plan = Plan { root: part.clone(), outputs };
    QueryRequest { plan, batch_rows_max: BATCH_ROWS, ..request.clone() }
}

/// A part for the CPU engine, which the device computes when it is asked for the first row.
pub fn given_part(
    device: &Arc<RankedEngine>,
    relation: Arc<Relation>,
    request: &QueryRequest,
    stop: &StopFlag,
) -> GivenPart {
    let source = DevicePart {
        device: device.clone(),
        request: of_part(request, &relation, Vec::new()),
        stop: stop.clone(),
    };
    GivenPart { relation, source: Arc::new(source) }
}

struct DevicePart {
    device: Arc<RankedEngine>,
    request: QueryRequest,
    /// The whole query's.
    stop: StopFlag,
}

#[async_trait]
impl PartSource for DevicePart {
    async fn start(&self, outputs: Vec<ColumnId>) -> Result<Box<dyn ResultStream>> {
        let request = of_part(&self.request, &self.request.plan.root, outputs);
        // A stream that is dropped stops what it belongs to.
        self.device.run(request, self.stop.of_part()).await.map_err(|error| match error.kind {
            // More memory of the CPU engine would not help.
            ErrorKind::OutOfMemory => Error { kind: ErrorKind::NotSupported, ..error },
            _ => error,
        })
    }
}

/// The stream once its first batch is there, so that a query that fails before may run elsewhere.
pub async fn first_rows(stream: Result<Box<dyn ResultStream>>) -> Result<BegunStream> {
    let mut stream = stream?;
    let first = stream.next_batch().await?;
    Ok(BegunStream { stream, first: Some(first) })
}

/// A stream whose first batch, or its end, is there.
pub struct BegunStream {
    stream: Box<dyn ResultStream>,
    first: Option<Option<RecordBatch>>,
}

#[async_trait]
impl ResultStream for BegunStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.stream.next_batch().await,
        }
    }

    fn metrics(&self) -> QueryMetrics {
        self.stream.metrics()
    }
}
