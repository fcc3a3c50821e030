//! Translation of a kernel's status into the CPU engine's error.

use std::{path::Path, sync::Arc};

use parquet::schema::types::ColumnDescriptor;
use pystachio_files::{ValueFault, ValuePlace};
use pystachio_plan::{DataType, Error, ErrorKind, ScanColumn};

use crate::abi::ErrorCode as error_code;
use crate::operation::Status;

/// Names for messages about a column of a file.
#[derive(Clone, Debug)]
pub(super) struct ColumnNames {
    pub(super) table: Arc<str>,
    pub(super) path: Arc<Path>,
    pub(super) column: Arc<str>,
    pub(super) data_type: DataType,
    pub(super) length_max: Option<u32>,
    pub(super) trim_blanks: bool,
}

impl ColumnNames {
    pub(super) fn new(table: &str, path: &Path, column: &ScanColumn) -> Self {
        Self {
            table: table.into(),
            path: path.into(),
            column: column.name.as_str().into(),
            data_type: column.data_type.clone(),
            length_max: column.length_max,
            trim_blanks: column.trim_blanks,
        }
    }

    /// An invalid page. Pages are counted from 0, the dictionary included.
    pub(super) fn corrupt_page(&self, page: usize, reason: &str) -> Error {
        Error::new(
            ErrorKind::FileCorrupt,
            format!(
                "could not read Parquet file \"{}\": column \"{}\", page {page}: {reason}",
                self.path.display(),
                self.column
            ),
        )
    }

    /// A page that the host has no memory to decompress.
    pub(super) fn page_beyond_memory(&self, page: usize, bytes: u64, bytes_max: u64) -> Error {
        let message = format!(
            "not enough memory to decompress a page of Parquet file \"{}\": column \"{}\", page {page}: \
             bytes={bytes}, bytes_max={bytes_max}",
            self.path.display(),
            self.column
        );
        Error::new(ErrorKind::OutOfMemory, message).with_hint("Raise the server option memory.")
    }

    /// The error for a form of the file that no kernel reads.
    pub(super) fn not_supported(&self, descriptor: &ColumnDescriptor, what: &str) -> Error {
        let message = format!(
            "no kernel reads column \"{}\" of file \"{}\": {what} of {}",
            self.column,
            self.path.display(),
            descriptor.physical_type()
        );
        Error::new(ErrorKind::NotSupported, message)
    }

    /// The error that a kernel reported about a page.
    pub(super) fn error_of(&self, status: Status, page: usize) -> Error {
        match status.code {
            error_code::NULL_IN_COLUMN => self.value_error(ValueFault::Null),
            error_code::TEXT_TOO_LONG => self.value_error(ValueFault::TooLong {
                length_max: self.length_max.unwrap_or_default(),
                trim_blanks: self.trim_blanks,
            }),
            error_code::INVALID_UTF8 => self.value_error(ValueFault::NotUtf8),
            error_code::VALUE_RANGE => self.value_error(ValueFault::OutOfRange(&self.data_type)),
            error_code::PAGE => self.corrupt_page(page, "its values or levels do not fit its bytes"),
            error_code::DICTIONARY_INDEX => {
                self.corrupt_page(page, "an index lies beyond the column's dictionary")
            }
            error_code::COMPRESSED_PAGE => self.corrupt_page(page, "it does not decompress"),
            code => Error::internal(format!("a kernel reported an unknown error: code={code}")),
        }
    }

    fn value_error(&self, fault: ValueFault<'_>) -> Error {
        fault.at(ValuePlace { table: &self.table, column: &self.column, file: &self.path })
    }
}
