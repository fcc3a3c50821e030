//! Driving a query: its batches, as its reader wants them, one after the other.
//!
//! A query whose reader has paused leaves its place to others. If they need its memory too, it runs to its end and
//! writes its rows to a file ([`Spool`]), where the reader finds them. So does one that gets no memory for a batch that is to
//! wait for its reader.
//!
//! Invariants: a query without a place holds no memory, or it has paused and says how much it holds. Batches on their way to the
//! client are counted until the client asks for the next one.

use std::sync::Arc;

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{
        SendableRecordBatchStream,
        memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
    },
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{DataType, SchemaRef},
};
use futures::{Stream, StreamExt, stream};
use pystachio_engine::{
    StopFlag,
    spill::SpillSpace,
    spool::{READER_STOPPED, Spool},
};
use pystachio_plan::Result;
use tokio::sync::mpsc::{
    Permit, Sender,
    error::{SendError, TrySendError},
};

use crate::{
    compact::{used_bytes, without_unused_text},
    error::{from_arrow, from_datafusion},
    metrics::{MeasuredPlan, QueryPool},
    places::{Place, Turn},
    pool::ROWS_CONSUMER,
};

/// What readers expect of a batch.
#[derive(Clone)]
pub(crate) struct BatchLayout {
    pub(crate) schema: SchemaRef,
    pub(crate) rows_max: usize,
    /// Its bytes are about as many at most; it has one row at least.
    pub(crate) bytes_max: usize,
}

/// A batch on its way to its reader, with the memory that it takes.
pub(crate) struct HeldBatch {
    pub(crate) batch: RecordBatch,
    pub(crate) memory: MemoryReservation,
}

/// Where a query's batches go.
pub(crate) struct Output {
    batches: Sender<Result<HeldBatch>>,
    place: Place,
    pool: Arc<QueryPool>,
    /// What batches take is taken from.
    rows: MemoryReservation,
    /// The file for rows when the client has stopped reading.
    spool: Arc<SpillSpace>,
    stop: StopFlag,
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
    pub(crate) fn new(
        batches: Sender<Result<HeldBatch>>,
        place: Place,
        pool: Arc<QueryPool>,
        spool: Arc<SpillSpace>,
        stop: StopFlag,
    ) -> Self {
        let rows = MemoryConsumer::new(ROWS_CONSUMER).register(&(pool.clone() as Arc<dyn MemoryPool>));
        Self { batches, place, pool, rows, spool, stop }
    }

    /// The batch with memory for it, or the batch alone.
    fn try_hold(&self, batch: RecordBatch) -> std::result::Result<HeldBatch, RecordBatch> {
        let bytes = used_bytes(&batch);
        match self.rows.try_grow(bytes) {
            Ok(()) => Ok(HeldBatch { batch, memory: self.rows.split(bytes) }),
            Err(_) => Err(batch),
        }
    }

    /// The batch with memory for it, even if there is none: it is one of few, and read from a file.
    fn hold(&self, batch: RecordBatch) -> HeldBatch {
        let bytes = used_bytes(&batch);
        self.rows.grow(bytes);
        HeldBatch { batch, memory: self.rows.split(bytes) }
    }

    /// Sends a batch or the error to the client. A query that waits for its client leaves its place.
    async fn give(&mut self, batch: Result<RecordBatch>) -> Given {
        let is_last = batch.is_err();
        let batch = match batch.map(|batch| self.try_hold(batch)) {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(batch)) => return Given::MemoryWanted(Some(Ok(batch))),
            Err(error) => Err(error),
        };
        let batch = match self.batches.try_send(batch) {
            Ok(()) if is_last => return Given::Last,
            Ok(()) => return Given::Taken,
            Err(TrySendError::Closed(_)) => return Given::Last,
            Err(TrySendError::Full(batch)) => batch,
        };
        if let Ok(permit) = tokio::time::timeout(READER_STOPPED, self.batches.reserve()).await {
            return hand_on(permit, batch);
        }
        self.place.pause(self.pool.held_bytes());
        let permit = tokio::select! {
            biased;
            () = self.place.memory_wanted() => return Given::MemoryWanted(Some(batch.map(|held| held.batch))),
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
    async fn give_spooled(&self, mut rows: Spool, written: Result<()>) {
        // Without its rows: where it is the first that comes, the query may run again.
        if let Err(error) = written {
            self.batches.send(Err(error)).await.ok();
            return;
        }
        // A batch is read when there is room for it, so that it waits in the file.
        while let Ok(permit) = self.batches.reserve().await {
            match rows.pop() {
                Ok(Some(batch)) => permit.send(Ok(self.hold(batch))),
                Ok(None) => return,
                Err(error) => return permit.send(Err(error)),
            }
        }
    }
}

fn hand_on(
    permit: std::result::Result<Permit<'_, Result<HeldBatch>>, SendError<()>>,
    batch: Result<HeldBatch>,
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
                let mut rows = Spool::new(output.spool.clone());
                let rest = stream::iter(part).chain(parts.by_ref());
                let written = write_all(rest, &mut rows).await;
                spooled = Some((rows, written));
                break;
            }
        }
    }
    drop(parts);
    plan.end();
    output.place.leave();
    if let Some((rows, written)) = spooled {
        output.give_spooled(rows, written).await;
    }
    output.place
}

async fn write_all(
    mut parts: impl Stream<Item = Result<RecordBatch>> + Unpin,
    spool: &mut Spool,
) -> Result<()> {
    while let Some(part) = parts.next().await {
        spool.push(&part?)?;
    }
    Ok(())
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
        let rows_max = match batch.num_rows() {
            0 => 1,
            row_count => (self.bytes_max / (used_bytes(&batch) / row_count).max(1)).clamp(1, self.rows_max),
        };
        (0..batch.num_rows()).step_by(rows_max).map(move |start| {
            let part = batch.slice(start, rows_max.min(batch.num_rows() - start));
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
    Ok(without_unused_text(column))
}
