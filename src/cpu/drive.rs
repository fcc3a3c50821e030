//! Driving a query: its batches, as its reader wants them, one after the other.
//!
//! A query whose reader has paused leaves its place to others. If they need its memory too, it runs to its end and
//! writes its rows to a file (`spool.rs`), where the reader finds them.
//!
//! Invariants: who has given a place back holds no memory, or has paused and says how much.

use std::{sync::Arc, time::Duration};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{SendableRecordBatchStream, TempFileFactory},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{DataType, SchemaRef},
};
use futures::{Stream, StreamExt, stream};
use pystachio_engine::StopFlag;
use pystachio_plan::Result;
use tokio::sync::mpsc::{
    Permit, Sender,
    error::{SendError, TrySendError},
};

use crate::{
    error::{from_arrow, from_datafusion},
    metrics::{MeasuredPlan, QueryPool},
    places::{Place, Turn},
    spool::{Spool, SpooledRows},
};

/// How long nobody takes a batch before the query leaves its place. Readers that are merely slower than the query take
/// one more often than that.
const READER_WAIT: Duration = Duration::from_millis(100);

/// What readers expect of a batch.
#[derive(Clone)]
pub(crate) struct BatchLayout {
    pub(crate) schema: SchemaRef,
    pub(crate) rows_max: usize,
}

/// Where a query's batches go.
pub(crate) struct Output {
    pub(crate) batches: Sender<Result<RecordBatch>>,
    pub(crate) place: Place,
    pub(crate) pool: Arc<QueryPool>,
    /// Where rows go that nobody reads.
    pub(crate) files: Arc<dyn TempFileFactory>,
    pub(crate) stop: StopFlag,
}

/// What became of a batch.
enum Given {
    /// It was handed on.
    Taken,
    /// Nothing is wanted after it.
    Last,
    /// Others need the query's memory. The batch is here unless it was handed on.
    MemoryWanted(Option<Result<RecordBatch>>),
}

impl Output {
    /// Hands a batch or the error on. Who waits for the reader leaves its place.
    async fn give(&mut self, batch: Result<RecordBatch>) -> Given {
        let is_last = batch.is_err();
        let batch = match self.batches.try_send(batch) {
            Ok(()) if is_last => return Given::Last,
            Ok(()) => return Given::Taken,
            Err(TrySendError::Closed(_)) => return Given::Last,
            Err(TrySendError::Full(batch)) => batch,
        };
        if let Ok(permit) = tokio::time::timeout(READER_WAIT, self.batches.reserve()).await {
            return hand_on(permit, batch);
        }
        self.place.pause(self.pool.held_bytes());
        let permit = tokio::select! {
            biased;
            () = self.place.memory_wanted() => return Given::MemoryWanted(Some(batch)),
            permit = self.batches.reserve() => permit,
        };
        match hand_on(permit, batch) {
            Given::Taken => {}
            given => return given,
        }
        match self.place.take_again(&self.stop).await {
            Ok(Turn::Go) => Given::Taken,
            Ok(Turn::GiveUpMemory) => Given::MemoryWanted(None),
            Err(_) => Given::Last,
        }
    }

    /// Gives rows from a file, for which no place and no memory is needed.
    async fn give_spooled(&self, rows: Result<SpooledRows>) {
        let mut rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                self.batches.send(Err(error)).await.ok();
                return;
            }
        };
        while let Some(batch) = rows.next().await.transpose() {
            let failed = batch.is_err();
            if self.batches.send(batch).await.is_err() || failed {
                return;
            }
        }
    }
}

fn hand_on(
    permit: std::result::Result<Permit<'_, Result<RecordBatch>>, SendError<()>>,
    batch: Result<RecordBatch>,
) -> Given {
    let Ok(permit) = permit else { return Given::Last };
    let is_last = batch.is_err();
    permit.send(batch);
    if is_last { Given::Last } else { Given::Taken }
}

/// Runs a plan to its end, and leaves its place when nothing of its memory is needed any more.
pub(crate) async fn drive(
    plan: Arc<MeasuredPlan>,
    started: DataFusionResult<SendableRecordBatchStream>,
    layout: BatchLayout,
    mut output: Output,
) -> Place {
    let mut parts = layout.parts(started);
    let mut spooled = None;
    while let Some(part) = parts.next().await {
        match output.give(part).await {
            Given::Taken => {}
            Given::Last => break,
            Given::MemoryWanted(part) => {
                let rest = stream::iter(part).chain(parts.by_ref());
                spooled = Some(write_all(rest, &layout.schema, output.files.as_ref()).await);
                break;
            }
        }
    }
    drop(parts);
    plan.end();
    output.place.leave();
    if let Some(rows) = spooled {
        output.give_spooled(rows).await;
    }
    output.place
}

async fn write_all(
    mut parts: impl Stream<Item = Result<RecordBatch>> + Unpin,
    schema: &SchemaRef,
    files: &dyn TempFileFactory,
) -> Result<SpooledRows> {
    let mut spool = Spool::create(files, schema)?;
    while let Some(part) = parts.next().await {
        spool.write(&part?)?;
    }
    spool.finish()
}

impl BatchLayout {
    /// A query's batches, cut and laid out; an error is the last of them.
    fn parts(
        &self,
        started: DataFusionResult<SendableRecordBatchStream>,
    ) -> stream::BoxStream<'static, Result<RecordBatch>> {
        let batches = match started {
            Ok(batches) => batches.boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        };
        let layout = self.clone();
        let parts = batches.flat_map(move |batch| {
            let (batch, error) = match batch {
                Ok(batch) => (Some(batch), None),
                Err(error) => (None, Some(Err(from_datafusion(&error)))),
            };
            let layout = layout.clone();
            let cut = batch.into_iter().flat_map(move |batch| layout.clone().cut(batch));
            stream::iter(cut.chain(error))
        });
        parts.boxed()
    }

    fn cut(self, batch: RecordBatch) -> impl Iterator<Item = Result<RecordBatch>> {
        (0..batch.num_rows()).step_by(self.rows_max).map(move |start| {
            let part = batch.slice(start, self.rows_max.min(batch.num_rows() - start));
            finish_batch(&part, &self.schema)
        })
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
