//! One running query: its connection, its batches, and what it cost.
//!
//! Invariants: a query that failed has no connection any more, so that its work has stopped, and says so
//! whenever it is asked for rows. That holds for a failure that PostgreSQL raises while we wait, too.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::{convert::fb_to_schema, reader::read_record_batch, root_as_message};
use arrow_schema::{DataType as ArrowType, Field, Schema, SchemaRef};
use pgrx::pg_sys;
use pystachio_plan::{
    Error, ErrorKind, FrameKind, QueryMetrics, Request, Response, Result, WrittenFile, WrittenRows,
    encode_message,
};

use super::temp_files;
use crate::{
    client::{self, Frame, PooledConnection},
    writing,
};

/// Continuation marker and length before an encapsulated message's metadata.
const ENCAPSULATION_BYTES: usize = 8;

/// A query whose rows are being read. Dropping it stops it in the engine.
pub struct RunningQuery {
    answer: Answer,
    /// What was sent, as long as nothing of the answer has come.
    unanswered: Option<Unanswered>,
    schema: Option<SchemaRef>,
    started: Instant,
    waited_before: Duration,
    /// What its spill files have held, as far as the engine has told and PostgreSQL was not.
    temp_file_bytes: u64,
    /// What the engine has written of a query's rows.
    rows: Option<WrittenRows>,
    /// The same as the transaction's.
    written: Vec<WrittenFile>,
    cost: QueryCost,
}

/// How far the engine's answer is.
enum Answer {
    /// More of it comes over this connection.
    Open(Box<PooledConnection>),
    /// It is complete, and the connection has gone back to the pool.
    Complete,
    /// It ended with this error, and the connection is closed.
    Failed(Error),
    /// An ERROR ended the reading of it, and the connection is closed.
    Interrupted,
}

/// A request, to be sent again if the engine ends before it begins it.
struct Unanswered {
    server_oid: pg_sys::Oid,
    frame: Vec<u8>,
}

/// What a query cost, seen from both sides.
#[derive(Clone, Debug, Default)]
pub struct QueryCost {
    /// The engine's account, if the query ran to its end.
    pub metrics: Option<QueryMetrics>,
    /// Runs of the query that `metrics` is the sum of.
    pub run_count: u64,
    /// How long the backend waited for the engine.
    pub waited: Duration,
    /// From the request to the end of the answer.
    pub elapsed: Duration,
}

impl RunningQuery {
    /// Sends a request whose answer is rows. If the engine ends before it begins the request, the next one gets it.
    ///
    /// # Errors
    ///
    /// Those of reaching the engine.
    pub fn start(server_oid: pg_sys::Oid, request: &Request) -> Result<Self> {
        let frame = encode_message(request)?;
        let connection = client::send(server_oid, &frame)?;
        let waited_before = connection.waited();
        Ok(Self {
            answer: Answer::Open(Box::new(connection)),
            unanswered: Some(Unanswered { server_oid, frame }),
            schema: None,
            started: Instant::now(),
            waited_before,
            temp_file_bytes: 0,
            rows: None,
            written: Vec::new(),
            cost: QueryCost::default(),
        })
    }

    /// The next batch, or `None` after the last.
    ///
    /// # Errors
    ///
    /// Those of the query; the same again if it has failed before.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        // The connection is ours while we wait: an ERROR that unwinds from here closes it.
        let mut connection = match std::mem::replace(&mut self.answer, Answer::Interrupted) {
            Answer::Open(connection) => connection,
            Answer::Interrupted => return Err(interrupted()),
            Answer::Complete => {
                self.answer = Answer::Complete;
                return Ok(None);
            }
            Answer::Failed(error) => {
                self.answer = Answer::Failed(error.clone());
                return Err(error);
            }
        };
        let received = loop {
            let received = self.receive_batch(&mut connection);
            let is_begun = received.as_ref().err().is_none_or(|error| !connection.has_not_begun(error));
            let Some(request) = self.unanswered.as_ref().filter(|_| !is_begun) else { break received };
            // The engine has ended without beginning the query.
            match client::send(request.server_oid, &request.frame) {
                Ok(next) => *connection = next,
                Err(error) => break Err(error),
            }
            self.waited_before = connection.waited();
        };
        match received {
            Ok(Some(batch)) => {
                self.answer = Answer::Open(connection);
                Ok(Some(batch))
            }
            Ok(None) => {
                self.cost.waited = connection.waited() - self.waited_before;
                self.cost.elapsed = self.started.elapsed();
                match self.rows.take() {
                    Some(rows) => self.written = writing::take_files(*connection, rows),
                    None => connection.give_back(),
                }
                self.report_temp_files();
                self.answer = Answer::Complete;
                Ok(None)
            }
            Err(error) => {
                let error = of_server(error, &connection.home().server_name);
                self.answer = Answer::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Waits until the engine has written the rows, and returns the files. They belong to the transaction then.
    ///
    /// # Errors
    ///
    /// Those of the query and of writing.
    pub fn written(mut self) -> Result<Vec<WrittenFile>> {
        match self.next_batch()? {
            None => Ok(std::mem::take(&mut self.written)),
            Some(_) => Err(protocol("rows that were to be written")),
        }
    }

    /// Ends the query and discards its further rows.
    pub fn end(mut self) {
        if let Answer::Open(connection) = &mut self.answer {
            connection.close_early();
        }
    }

    fn report_temp_files(&mut self) {
        temp_files::report(std::mem::take(&mut self.temp_file_bytes));
    }

    /// What the query has cost so far.
    pub fn cost(&self) -> QueryCost {
        let mut cost = self.cost.clone();
        if let Answer::Open(connection) = &self.answer {
            cost.waited = connection.waited() - self.waited_before;
            cost.elapsed = self.started.elapsed();
        }
        cost
    }

    fn receive_batch(&mut self, connection: &mut PooledConnection) -> Result<Option<RecordBatch>> {
        loop {
            let frame = connection.receive()?;
            match frame.kind {
                FrameKind::Schema => {
                    self.unanswered = None;
                    self.schema = Some(read_schema(&frame)?);
                }
                FrameKind::Batch => return self.read_batch(&frame.body).map(Some),
                FrameKind::Message => match client::message(&frame)? {
                    Response::Turn { is_awaited } => {
                        self.unanswered = None;
                        connection.note_turn(is_awaited);
                    }
                    Response::Spilled { temp_file_bytes } => {
                        self.unanswered = None;
                        self.temp_file_bytes = self.temp_file_bytes.max(temp_file_bytes);
                    }
                    Response::Written(rows) => {
                        connection.note_turn(false);
                        self.rows = Some(rows);
                        return Ok(None);
                    }
                    Response::Finished(metrics) => {
                        connection.note_turn(false);
                        self.temp_file_bytes = self.temp_file_bytes.max(metrics.temp_file_bytes);
                        self.cost.metrics = Some(*metrics);
                        self.cost.run_count = 1;
                        return Ok(None);
                    }
                    other => return Err(client::unexpected(&other)),
                },
            }
        }
    }

    fn read_batch(&self, body: &Buffer) -> Result<RecordBatch> {
        let schema = self.schema.clone().ok_or_else(|| protocol("batch before its schema"))?;
        let (metadata, data) = split(body)?;
        let message = root_as_message(metadata).map_err(|error| protocol(&format!("batch: {error}")))?;
        let batch =
            message.header_as_record_batch().ok_or_else(|| protocol("batch frame without a batch"))?;
        read_record_batch(&data, batch, schema, &HashMap::new(), None, &message.version())
            .map_err(|error| protocol(&format!("batch: {error}")))
    }
}

impl Drop for RunningQuery {
    /// A query that ends early has spilled what the engine has told so far.
    fn drop(&mut self) {
        self.report_temp_files();
    }
}

fn read_schema(frame: &Frame) -> Result<SchemaRef> {
    let (metadata, _) = split(&frame.body)?;
    let message = root_as_message(metadata).map_err(|error| protocol(&format!("schema: {error}")))?;
    let schema = message.header_as_schema().ok_or_else(|| protocol("schema frame without a schema"))?;
    let fields: Vec<Arc<Field>> = fb_to_schema(schema).fields().iter().map(text_as_bytes).collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// Text is read as bytes, which have the same layout: PostgreSQL is given bytes, and to check again that
/// they are UTF-8 costs a tenth of the time of a large result.
fn text_as_bytes(field: &Arc<Field>) -> Arc<Field> {
    let data_type = match field.data_type() {
        ArrowType::Utf8View => ArrowType::BinaryView,
        ArrowType::Utf8 => ArrowType::Binary,
        ArrowType::LargeUtf8 => ArrowType::LargeBinary,
        ArrowType::List(item) => ArrowType::List(text_as_bytes(item)),
        ArrowType::Struct(fields) => ArrowType::Struct(fields.iter().map(text_as_bytes).collect()),
        _ => return field.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// An encapsulated message's metadata, and what comes after it.
fn split(body: &Buffer) -> Result<(&[u8], Buffer)> {
    let header = body.get(..ENCAPSULATION_BYTES).ok_or_else(|| protocol("frame is too short"))?;
    let [_, _, _, _, a, b, c, d] = *header else { return Err(protocol("frame is too short")) };
    let data_offset = ENCAPSULATION_BYTES + u32::from_le_bytes([a, b, c, d]) as usize;
    let metadata = body.get(ENCAPSULATION_BYTES..data_offset).ok_or_else(|| protocol("frame is cut off"))?;
    Ok((metadata, body.slice(data_offset)))
}

/// An engine's error, with the server's name where it names a rank.
fn of_server(error: Error, server_name: &str) -> Error {
    match error.kind {
        ErrorKind::Peer => Error { message: format!("server \"{server_name}\": {}", error.message), ..error },
        _ => error,
    }
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Cancelled, "the query's rows are no longer read: an error has ended it before")
}

fn protocol(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("unexpected answer from the engine: {what}"))
}
