//! Rows that are sorted on their way to a writer of files.
//!
//! ```text
//! batches ──► queue ──► SortExec, which spills ──► the writer of files
//! ```
//!
//! Invariants: the order is PostgreSQL's, but for text, which compares byte by byte. A sort that is dropped takes its spill files and what
//! was written with it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{
        ExecutionPlan,
        sorts::sort::SortExec,
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use pystachio_engine::{RowWriter, StopFlag, from_panic, locking::lock_whole};
use pystachio_plan::{
    ColumnId, DataType, Error, ErrorKind, Expression, Result, SortKey, SortedColumn, WrittenColumn,
    WrittenRows,
};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::{JoinError, JoinHandle},
};

use crate::{column_name, error::from_datafusion, lowering::row_ordering};

/// Batches that wait for the sort.
const QUEUE_BATCHES: usize = 2;

/// A column that rows are sorted by.
pub(crate) struct WriteOrder {
    place: usize,
    data_type: DataType,
    sorted: SortedColumn,
}

impl WriteOrder {
    /// The order by columns at these places.
    pub(crate) fn of(columns: &[WrittenColumn], places: Vec<(usize, SortedColumn)>) -> Vec<Self> {
        let data_type = |place: usize| columns[place].data_type.clone();
        places
            .into_iter()
            .map(|(place, sorted)| Self { place, data_type: data_type(place), sorted })
            .collect()
    }
}

/// Sorts rows, and has them written.
pub(crate) struct SortedWriter {
    /// Until the first batch comes, which says what its columns are.
    unsorted: Option<Unsorted>,
    sorting: Option<Sorting>,
    /// The writer, once it has written all rows.
    finished: Option<Box<dyn RowWriter>>,
    stop: StopFlag,
}

/// What a sort begins with.
struct Unsorted {
    writer: Box<dyn RowWriter>,
    order: Vec<WriteOrder>,
    context: Arc<TaskContext>,
    runtime: Handle,
}

struct Sorting {
    schema: SchemaRef,
    rows: mpsc::Sender<RecordBatch>,
    task: JoinHandle<Result<(Box<dyn RowWriter>, WrittenRows)>>,
}

impl SortedWriter {
    /// A writer that sorts with the memory and the spill files of a context. `stop` ends the sort when it is not wanted any more.
    pub(crate) fn new(
        writer: Box<dyn RowWriter>,
        order: Vec<WriteOrder>,
        context: Arc<TaskContext>,
        (runtime, stop): (Handle, StopFlag),
    ) -> Self {
        Self {
            unsorted: Some(Unsorted { writer, order, context, runtime }),
            sorting: None,
            finished: None,
            stop,
        }
    }
}

impl Drop for SortedWriter {
    fn drop(&mut self) {
        if let Some(sorting) = &self.sorting {
            self.stop.stop();
            sorting.task.abort();
        }
    }
}

#[async_trait]
impl RowWriter for SortedWriter {
    async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        if let Some(unsorted) = self.unsorted.take() {
            self.sorting = Some(unsorted.begin(batch.schema_ref())?);
        }
        let Some(sorting) = &mut self.sorting else { return Err(Error::internal("rows after the last one")) };
        let renamed = RecordBatch::try_new(sorting.schema.clone(), batch.columns().to_vec());
        let renamed = renamed.map_err(|error| {
            Error::new(
                ErrorKind::Protocol,
                format!("rows are not of the columns of those before them: {error}"),
            )
        })?;
        if sorting.rows.send(renamed).await.is_ok() {
            return Ok(());
        }
        match (&mut sorting.task).await.unwrap_or_else(ended) {
            Err(error) => Err(error),
            Ok(_) => Err(Error::internal("a sort has ended before its rows")),
        }
    }

    async fn finish(&mut self) -> Result<WrittenRows> {
        let (writer, rows) = match (self.unsorted.take(), self.sorting.take()) {
            // There were no rows.
            (Some(mut unsorted), _) => {
                let rows = unsorted.writer.finish().await?;
                (unsorted.writer, rows)
            }
            (None, Some(sorting)) => {
                drop(sorting.rows);
                let mut task = AbortedOnDrop(sorting.task, self.stop.clone());
                (&mut task.0).await.unwrap_or_else(ended)?
            }
            (None, None) => return Err(Error::internal("rows that are sorted twice")),
        };
        self.finished = Some(writer);
        Ok(rows)
    }

    async fn complete(&mut self) -> Result<()> {
        match &mut self.finished {
            Some(writer) => writer.complete().await,
            None => Err(Error::internal("rows are completed before they are written")),
        }
    }

    fn keep(mut self: Box<Self>) {
        if let Some(writer) = self.finished.take() {
            writer.keep();
        }
    }
}

/// A task that ends when it is not waited for any more.
struct AbortedOnDrop<T>(JoinHandle<T>, StopFlag);

impl<T> Drop for AbortedOnDrop<T> {
    fn drop(&mut self) {
        if !self.0.is_finished() {
            self.1.stop();
            self.0.abort();
        }
    }
}

impl Unsorted {
    fn begin(self, batch: &Schema) -> Result<Sorting> {
        let Self { mut writer, order, context, runtime } = self;
        let id = |place: usize| ColumnId(u32::try_from(place).unwrap_or(u32::MAX));
        let fields = batch.fields().iter().enumerate();
        let fields =
            fields.map(|(place, field)| Field::new(column_name(id(place)), field.data_type().clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let keys = order.into_iter().map(|WriteOrder { place, data_type, sorted }| SortKey {
            expression: Expression::column(id(place), data_type),
            descending: sorted.descending,
            nulls_first: sorted.nulls_first,
        });
        let config = context.session_config().options().clone();
        let ordering = row_ordering(schema.clone(), &keys.collect::<Vec<_>>(), &config)?;
        let ordering = ordering.ok_or_else(|| Error::internal("a sort without keys"))?;
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let source = QueuedRows { schema: schema.clone(), rows: Mutex::new(Some(receiver)) };
        let source =
            StreamingTableExec::try_new(schema.clone(), vec![Arc::new(source)], None, [], false, None);
        let sort = SortExec::new(ordering, Arc::new(source.map_err(|error| from_datafusion(&error))?));
        let task = runtime.spawn(async move {
            let sorted = sort.execute(0, context);
            let mut sorted = sorted.map_err(|error| from_datafusion(&error))?;
            while let Some(batch) = sorted.next().await {
                writer.write(batch.map_err(|error| from_datafusion(&error))?).await?;
            }
            let rows = writer.finish().await?;
            Ok((writer, rows))
        });
        Ok(Sorting { schema, rows: sender, task })
    }
}

/// Rows that come by a queue, as the input of an operator.
struct QueuedRows {
    schema: SchemaRef,
    rows: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl fmt::Debug for QueuedRows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("QueuedRows")
    }
}

impl PartitionStream for QueuedRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = lock_whole(&self.rows).take();
        let batches = stream::unfold(rows, |rows| async move {
            let mut rows = rows?;
            let batch = rows.recv().await?;
            Some((DataFusionResult::Ok(batch), Some(rows)))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

fn ended<T>(failure: JoinError) -> Result<T> {
    Err(match failure.try_into_panic() {
        Ok(panic) => from_panic(panic.as_ref()),
        Err(_) => Error::new(ErrorKind::Cancelled, "the engine is shutting down"),
    })
}
