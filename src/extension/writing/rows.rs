//! Rows on their way to an engine that writes them.
//!
//! Invariant: after an error the connection is closed, so that the engine removes what it wrote.
#![expect(unsafe_code, reason = "takes datums")]

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use pgrx::pg_sys::{self, Datum};
use pystachio_plan::{
    Error, FileSet, FrameHeader, FrameKind, Request, Response, Result, WriteForm, WriteRequest, WriteTarget,
    WrittenColumn, WrittenFile, WrittenRows, encode_message,
};

use super::transaction;
use crate::{
    client::{self, PooledConnection},
    execution,
    stores::{self, ServerUser},
    types::{ColumnWriter, sent_column, written_column},
};

/// A batch is sent when it has so many rows,
const BATCH_ROWS: usize = 64 << 10;
/// or about so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A column of rows to be written, as PostgreSQL has it.
pub struct RowColumn {
    /// Its name in the files.
    pub name: String,
    /// Its type.
    pub type_oid: pg_sys::Oid,
    /// Its type modifier.
    pub type_modifier: i32,
    /// Whether no value is NULL.
    pub not_null: bool,
}

/// Rows that are being written. Dropped before [`RowSink::finish`], it leaves nothing behind.
pub struct RowSink {
    connection: PooledConnection,
    columns: Vec<ColumnWriter>,
    schema: SchemaRef,
    encoder: StreamEncoder,
    row_count: usize,
}

impl RowSink {
    /// Has the server's engine begin to write, with what the role's user mapping allows.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a column that files can't hold; those of reaching the engine, and its own.
    pub fn begin(
        user: impl Into<ServerUser>,
        target: WriteTarget,
        form: WriteForm,
        columns: &[RowColumn],
    ) -> Result<Self> {
        let user = user.into();
        let written = match target {
            WriteTarget::Spill => sent_columns(columns)?,
            WriteTarget::File { .. } | WriteTarget::Folder { .. } => written_columns(columns)?,
        };
        let writers = written.iter().zip(columns);
        let writers = writers
            .map(|(written, column)| ColumnWriter::new(written, column.type_oid, column.type_modifier))
            .collect::<Result<Vec<_>>>()?;
        let fields = written
            .iter()
            .map(|column| Field::new(&column.name, column.data_type.to_written_arrow(), !column.not_null));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let encoder = StreamEncoder::try_new(&schema).map_err(|error| encoding_failed(&error))?;
        let frame = encode_message(&Request::Write(write_request(user, target, form, written)?))?;
        let mut connection = client::send(user.server_oid, &frame)?;
        loop {
            match connection.receive().and_then(|frame| client::message(&frame)) {
                Ok(Response::Writing) => break,
                Ok(other) => return Err(client::unexpected(&other)),
                Err(error) if connection.has_not_begun(&error) => {
                    connection = client::send(user.server_oid, &frame)?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { connection, columns: writers, schema, encoder, row_count: 0 })
    }

    /// Adds a row: a value for each column, in order; `None` is NULL.
    ///
    /// # Errors
    ///
    /// A value that files can't hold; those of the engine.
    ///
    /// # Safety
    ///
    /// The datums are valid values of the columns' types.
    pub unsafe fn push(&mut self, values: impl Iterator<Item = Option<Datum>>) -> Result<()> {
        let mut bytes = 0;
        for (column, value) in self.columns.iter_mut().zip(values) {
            // SAFETY: the caller says so.
            unsafe { column.push(value)? };
            bytes += column.bytes();
        }
        self.row_count += 1;
        if self.row_count >= BATCH_ROWS || bytes >= BATCH_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Sends the rows so far.
    fn send(&mut self) -> Result<()> {
        if self.row_count == 0 {
            return Ok(());
        }
        self.row_count = 0;
        let columns = self.columns.iter_mut().map(ColumnWriter::take).collect::<Result<Vec<_>>>()?;
        let batch =
            RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| encoding_failed(&error))?;
        let body = self.encoder.encode(&batch).map_err(|error| encoding_failed(&error))?;
        // An engine that can't go on says so before the connection is full.
        if !self.connection.is_idle() {
            return Err(self.failure());
        }
        let body_bytes = body.iter().map(|part| part.len()).sum();
        self.connection.send_frame(&FrameHeader { kind: FrameKind::Batch, body_bytes }.encode()?)?;
        body.iter().try_for_each(|part| self.connection.send_frame(part))
    }

    /// Why the engine has ended the answer.
    fn failure(&mut self) -> Error {
        match self.connection.receive().and_then(|frame| client::message(&frame)) {
            Ok(other) => client::unexpected(&other),
            Err(error) => error,
        }
    }

    /// Completes the files, which belong to the transaction then, and returns them.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn finish(mut self) -> Result<Vec<WrittenFile>> {
        let rows = self.end()?;
        Ok(take_files(self.connection, rows))
    }

    /// Completes spill files, and returns them.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn finish_spilled(mut self) -> Result<SpilledRows> {
        let WrittenRows { files, .. } = self.end()?;
        Ok(SpilledRows {
            paths: files.iter().map(|file| file.provisional_path.clone()).collect(),
            row_count: files.iter().map(|file| file.row_count).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            connection: self.connection,
        })
    }

    fn end(&mut self) -> Result<WrittenRows> {
        self.send()?;
        self.connection.send(&Request::WriteEnd)?;
        let answer = self.connection.receive().and_then(|frame| client::message(&frame))?;
        match answer {
            Response::Written(rows) => Ok(rows),
            other => Err(client::unexpected(&other)),
        }
    }
}

/// Rows in spill files, which the engine holds as long as this is there.
pub struct SpilledRows {
    connection: PooledConnection,
    paths: Vec<String>,
    row_count: u64,
    bytes: u64,
}

impl SpilledRows {
    /// The files, as the engine finds them.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// How many rows there are.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// The length of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has the engine remove the files, and keeps the connection for the next request.
    pub fn release(mut self) {
        if self.connection.send(&Request::Undo).is_ok() {
            self.connection.give_back();
        }
    }
}

/// How columns are written.
///
/// # Errors
///
/// `NotSupported` for a column that files can't hold.
pub fn written_columns(columns: &[RowColumn]) -> Result<Vec<WrittenColumn>> {
    let written = columns.iter().map(|column| {
        written_column(column.name.clone(), column.type_oid, column.type_modifier, column.not_null)
    });
    written.collect()
}

fn sent_columns(columns: &[RowColumn]) -> Result<Vec<WrittenColumn>> {
    let sent = columns.iter().map(|column| {
        sent_column(column.name.clone(), column.type_oid, column.type_modifier, column.not_null)
    });
    sent.collect()
}

/// The request to write such columns.
///
/// # Errors
///
/// `FilePermission` for a store that the server does not allow.
pub fn write_request(
    user: impl Into<ServerUser>,
    target: WriteTarget,
    form: WriteForm,
    columns: Vec<WrittenColumn>,
) -> Result<WriteRequest> {
    // What the server allows may be what is in a folder.
    let paths = match &target {
        WriteTarget::File { path, .. } => vec![path.clone()],
        WriteTarget::Folder { path, .. } => vec![format!("{path}/")],
        WriteTarget::Spill => Vec::new(),
    };
    let access = stores::access(user, &[FileSet::parquet(paths)])?;
    Ok(WriteRequest {
        access,
        target,
        columns,
        form,
        process: std::process::id(),
        spill: execution::spill_request(),
    })
}

/// Makes files that the engine has written those of the transaction, and returns them.
pub fn take_files(mut connection: PooledConnection, rows: WrittenRows) -> Vec<WrittenFile> {
    let files = rows.files.clone();
    if rows.is_in_store {
        transaction::hold(connection, rows);
    } else {
        transaction::note(rows);
        // They are the transaction's, whether the engine reads this or not. One that has not removes them, and the commit fails.
        let _ = connection.send(&Request::Keep);
        connection.give_back();
    }
    files
}

fn encoding_failed(error: &ArrowError) -> Error {
    Error::internal(format!("rows can't be encoded: {error}"))
}
