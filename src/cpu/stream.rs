//! A query's result as the host sees it.
//!
//! A task of the engine's runtime drives the query and hands batches over through a short queue, so that
//! the host may poll from any runtime, and a panic anywhere in the query becomes an error. Dropping the
//! stream aborts that task, which drops the operators and with them the tasks and memory they hold; the
//! query's flag ends what is in the middle of a poll.

use std::{sync::Arc, time::Instant};

use crate::datafusion::{execution::TaskContext, physical_plan::ExecutionPlan};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use async_trait::async_trait;
use futures::StreamExt;
use pystachio_engine::{ResultStream, StopFlag};
use pystachio_plan::{Error, QueryMetrics, Relation, Result};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use crate::{
    actual_rows,
    error::{from_arrow, from_datafusion, from_panic},
    metrics::{self, QueryPool},
};

/// Batches that wait for the host. The query stops producing when they are not taken.
const QUEUE_BATCHES: usize = 2;

/// What a running query is.
pub(crate) struct RunningQuery {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) context: Arc<TaskContext>,
    pub(crate) pool: Arc<QueryPool>,
    pub(crate) output_types: Vec<pystachio_plan::DataType>,
    pub(crate) batch_rows_max: usize,
    /// The plan's operators, if what each of them gave is asked for.
    pub(crate) counted: Option<Arc<Relation>>,
    pub(crate) started: Instant,
    /// Set when the result is not wanted any more.
    pub(crate) stop: StopFlag,
    pub(crate) prepare_us: u64,
    /// Whatever ends with the query.
    pub(crate) _guard: Box<dyn Send + Sync>,
}

/// The result of a query that runs.
pub(crate) struct QueryStream {
    query: RunningQuery,
    schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    task: Option<JoinHandle<()>>,
    abort: AbortHandle,
    row_count: u64,
    elapsed_us: Option<u64>,
}

impl QueryStream {
    /// Starts the query on `runtime`.
    pub(crate) fn start(query: RunningQuery, runtime: &Handle) -> Self {
        let fields: Vec<Field> = query
            .plan
            .schema()
            .fields()
            .iter()
            .zip(&query.output_types)
            .map(|(field, data_type)| Field::new(field.name(), data_type.to_arrow(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let (sender, batches) = mpsc::channel(QUEUE_BATCHES);
        let task = runtime.spawn(drive(
            query.plan.clone(),
            query.context.clone(),
            schema.clone(),
            query.batch_rows_max,
            sender,
        ));
        let abort = task.abort_handle();
        Self { query, schema, batches, task: Some(task), abort, row_count: 0, elapsed_us: None }
    }

    async fn finish(&mut self) -> Result<()> {
        self.elapsed_us = Some(micros(self.query.started));
        let Some(task) = self.task.take() else { return Ok(()) };
        match task.await {
            Ok(()) => Ok(()),
            Err(failure) => match failure.try_into_panic() {
                Ok(payload) => Err(from_panic(payload.as_ref())),
                Err(_) => Err(Error::new(pystachio_plan::ErrorKind::Cancelled, "the query was cancelled")),
            },
        }
    }
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        self.query.stop.stop();
        self.abort.abort();
    }
}

#[async_trait]
impl ResultStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.batches.recv().await {
            Some(Ok(batch)) => {
                self.row_count += batch.num_rows() as u64;
                Ok(Some(batch))
            }
            Some(Err(error)) => {
                self.batches.close();
                self.finish().await.ok();
                Err(error)
            }
            None => self.finish().await.map(|()| None),
        }
    }

    fn metrics(&self) -> QueryMetrics {
        let mut result = QueryMetrics {
            row_count: self.row_count,
            elapsed_us: self.elapsed_us.unwrap_or_else(|| micros(self.query.started)),
            prepare_us: self.query.prepare_us,
            memory_peak_bytes: self.query.pool.peak_bytes(),
            ..QueryMetrics::default()
        };
        metrics::collect(&self.query.plan, self.query.counted.is_some(), &mut result);
        if let Some(root) = &self.query.counted {
            result.actual_rows = actual_rows::collect(root, &self.query.plan);
        }
        result
    }
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

async fn drive(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    schema: SchemaRef,
    batch_rows_max: usize,
    sender: mpsc::Sender<Result<RecordBatch>>,
) {
    let mut stream = match plan.execute(0, context) {
        Ok(stream) => stream,
        Err(error) => {
            sender.send(Err(from_datafusion(&error))).await.ok();
            return;
        }
    };
    while let Some(batch) = stream.next().await {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                sender.send(Err(from_datafusion(&error))).await.ok();
                return;
            }
        };
        for start in (0..batch.num_rows()).step_by(batch_rows_max) {
            let part = batch.slice(start, batch_rows_max.min(batch.num_rows() - start));
            let part = finish_batch(&part, &schema);
            let failed = part.is_err();
            if sender.send(part).await.is_err() || failed {
                return;
            }
        }
    }
}

/// The batch in the layout that readers expect, without the parts of buffers that it does not use.
fn finish_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| finish_column(column, field.data_type()))
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(|error| from_arrow(&error))
}

fn finish_column(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let column = if column.data_type() == data_type {
        column.clone()
    } else {
        cast(column, data_type).map_err(|error| from_arrow(&error))?
    };
    Ok(match column.data_type() {
        DataType::Utf8View => {
            let views = column.as_string_view();
            if wastes(column.as_ref(), views.total_buffer_bytes_used()) {
                Arc::new(views.gc())
            } else {
                column
            }
        }
        DataType::BinaryView => {
            let views = column.as_binary_view();
            if wastes(column.as_ref(), views.total_buffer_bytes_used()) {
                Arc::new(views.gc())
            } else {
                column
            }
        }
        _ => column,
    })
}

/// Whether most of what the array's buffers hold is not the array's.
fn wastes(column: &dyn Array, used_bytes: usize) -> bool {
    let held_bytes = column.get_buffer_memory_size();
    held_bytes > 2 * (used_bytes + 16 * column.len())
}
