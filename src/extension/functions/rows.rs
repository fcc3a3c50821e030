//! Rows of set-returning functions whose columns are found by name.
//!
//! A function has the columns that its `CREATE FUNCTION` declares. After a package upgrade and before `ALTER EXTENSION
//! UPDATE` that is an earlier version's declaration: it has fewer columns, or other places for them. So each function
//! gives its columns by name, and one C function serves every version of the extension.
//!
//! Invariant: a column's name and type never change. A declared column without a value is an error.
#![expect(unsafe_code, reason = "fills the tuplestore that PostgreSQL makes for the call")]

use std::ffi::CStr;

use pgrx::{IntoDatum, pg_sys, prelude::*};
use pystachio_plan::{Error, ErrorKind};

use crate::{
    error::OrRaise,
    pg::{compat, encoding},
};

/// A value of a row.
#[derive(Debug)]
pub enum Cell {
    /// `boolean`
    Bool(bool),
    /// `integer`
    Int32(i32),
    /// `bigint`
    Int64(i64),
    /// `double precision`
    Float64(f64),
    /// `oid`
    Oid(pg_sys::Oid),
    /// `text`
    Text(String),
    /// `text[]`
    Texts(Vec<String>),
    /// `timestamp with time zone`
    Time(TimestampWithTimeZone),
}

/// A value, or NULL.
#[derive(Debug)]
pub struct MaybeCell(Option<Cell>);

/// A row: the name of each column, and its value.
pub type Row = Vec<(&'static str, MaybeCell)>;

/// A column of a [`Row`]: NULL for `None`.
pub fn cell(name: &'static str, value: impl Into<MaybeCell>) -> (&'static str, MaybeCell) {
    (name, value.into())
}

macro_rules! cells_from {
    ($($type:ty => $cell:ident),+ $(,)?) => {
        $(impl From<$type> for MaybeCell {
            fn from(value: $type) -> Self {
                Self(Some(Cell::$cell(value)))
            }
        }

        impl From<Option<$type>> for MaybeCell {
            fn from(value: Option<$type>) -> Self {
                Self(value.map(Cell::$cell))
            }
        })+
    };
}

cells_from! {
    bool => Bool,
    i32 => Int32,
    i64 => Int64,
    f64 => Float64,
    pg_sys::Oid => Oid,
    String => Text,
    Vec<String> => Texts,
    TimestampWithTimeZone => Time,
}

impl Cell {
    fn type_oid(&self) -> pg_sys::Oid {
        match self {
            Self::Bool(_) => pg_sys::BOOLOID,
            Self::Int32(_) => pg_sys::INT4OID,
            Self::Int64(_) => pg_sys::INT8OID,
            Self::Float64(_) => pg_sys::FLOAT8OID,
            Self::Oid(_) => pg_sys::OIDOID,
            Self::Text(_) => pg_sys::TEXTOID,
            Self::Texts(_) => pg_sys::TEXTARRAYOID,
            Self::Time(_) => pg_sys::TIMESTAMPTZOID,
        }
    }

    fn into_datum(self) -> Option<pg_sys::Datum> {
        match self {
            Self::Bool(value) => value.into_datum(),
            Self::Int32(value) => value.into_datum(),
            Self::Int64(value) => value.into_datum(),
            Self::Float64(value) => value.into_datum(),
            Self::Oid(value) => value.into_datum(),
            // Bytes have the layout of text, which pgrx has in UTF-8 alone.
            Self::Text(value) => encoding::to_shown(&value).into_bytes().into_datum(),
            Self::Texts(value) => {
                value.into_iter().map(encoding::to_message).collect::<Vec<_>>().into_datum()
            }
            Self::Time(value) => value.into_datum(),
        }
    }
}

/// Makes the rows the result of the function that is being called.
///
/// Raises an ERROR if the function is declared with a column that the rows don't have.
pub fn return_rows(call: pg_sys::FunctionCallInfo, rows: impl IntoIterator<Item = Row>) {
    // SAFETY: PostgreSQL calls a function with information about the call, which lives as long as the call. It raises an
    // error where the caller can't take rows.
    let result = unsafe {
        pg_sys::InitMaterializedSRF(call, 0);
        &*(*call).resultinfo.cast::<pg_sys::ReturnSetInfo>()
    };
    // SAFETY: the function above has made both; the descriptor has so many attributes.
    let columns: Vec<(String, pg_sys::Oid)> = unsafe {
        (0..(*result.setDesc).natts as usize)
            .map(|place| {
                let attribute = compat::attribute(result.setDesc, place);
                let name = CStr::from_ptr(attribute.attname.data.as_ptr());
                (name.to_string_lossy().into_owned(), attribute.atttypid)
            })
            .collect()
    };
    for mut row in rows {
        let mut values = Vec::with_capacity(columns.len());
        let mut nulls = Vec::with_capacity(columns.len());
        for (name, type_oid) in &columns {
            let value = row.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value.0.take());
            let datum = match value {
                Some(Some(cell)) if cell.type_oid() == *type_oid => cell.into_datum(),
                Some(None) => None,
                _ => return Err::<(), _>(unknown_column(name)).or_raise(),
            };
            nulls.push(datum.is_none());
            values.push(datum.unwrap_or(pg_sys::Datum::null()));
        }
        // SAFETY: one value and one flag for each attribute, of its type.
        unsafe {
            pg_sys::tuplestore_putvalues(
                result.setResult,
                result.setDesc,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }
}

fn unknown_column(name: &str) -> Error {
    Error::new(
        ErrorKind::NotSupported,
        format!("column \"{name}\" is not known to version {}", env!("CARGO_PKG_VERSION")),
    )
    .with_hint(
        "Run ALTER EXTENSION pystachio UPDATE, or restart the database server if it runs an earlier library.",
    )
}
