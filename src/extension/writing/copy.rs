//! `COPY … TO 'file' (FORMAT parquet)`.
//!
//! PostgreSQL's grammar takes any name of a format, but its COPY refuses this one. So the hook of
//! utility commands runs the command instead. A session that has not loaded the library has no
//! hook, and raises PostgreSQL's error.
#![expect(unsafe_code, reason = "PostgreSQL's command is a C structure")]

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys;
use pystachio_plan::{Error, ErrorKind, Result, WriteForm};

use super::query::{RowQuery, RowTarget, write_rows};
use crate::{error::OrRaise, options, pg::list};

/// The format's name.
const FORMAT: &str = "parquet";
const OPTIONS: &str =
    "compression, file_size, format, layout, overwrite, partition_by, row_group_rows, server, sort_by";

/// Runs the statement if it is a COPY to a file of this format. Returns how many rows were written, or `None` of another statement.
///
/// # Safety
///
/// A utility command, and the text that it is in.
pub unsafe fn run(statement: *mut pg_sys::PlannedStmt, text: *const c_char) -> Option<u64> {
    // SAFETY: as the caller says.
    unsafe {
        let command = (*statement).utilityStmt;
        let is_ours = (*command).type_ == pg_sys::NodeTag::T_CopyStmt && is_ours(command.cast());
        is_ours.then(|| copy(command.cast(), statement, CStr::from_ptr(text)).or_raise())
    }
}

/// Whether a COPY writes a file of this format.
unsafe fn is_ours(command: *mut pg_sys::CopyStmt) -> bool {
    // SAFETY: the caller has a COPY command, whose options are a list of DefElem.
    unsafe {
        let to_file = !(*command).is_from && !(*command).is_program && !(*command).filename.is_null();
        to_file
            && copy_options(command).iter().any(|(name, option)| {
                name == "format" && list::string(pg_sys::defGetString(*option)) == FORMAT
            })
    }
}

unsafe fn copy_options(command: *mut pg_sys::CopyStmt) -> Vec<(String, *mut pg_sys::DefElem)> {
    // SAFETY: as of `is_ours`.
    unsafe {
        let options = list::pointers::<pg_sys::DefElem>((*command).options);
        options.map(|option| (list::string((*option).defname), option)).collect()
    }
}

/// Writes the rows, and returns how many they are.
unsafe fn copy(
    command: *mut pg_sys::CopyStmt,
    statement: *mut pg_sys::PlannedStmt,
    text: &CStr,
) -> Result<u64> {
    options::require_write_server_files("COPY to a file");
    // A file is replaced, as COPY does with its own formats.
    let (mut overwrite, mut server_name) = (true, "pystachio".to_owned());
    let mut form = WriteForm::default();
    let mut named: Vec<String> = Vec::new();
    // SAFETY: as of `is_ours`. A value of another kind is an ERROR of PostgreSQL's.
    let path = unsafe {
        for (name, option) in copy_options(command) {
            if named.contains(&name) {
                return invalid(format!("option \"{name}\" of COPY is given twice"), "Give it once.");
            }
            match name.as_str() {
                "format" => {}
                "overwrite" => overwrite = pg_sys::defGetBoolean(option),
                "server" => server_name = list::string(pg_sys::defGetString(option)),
                other => {
                    let value = list::string(pg_sys::defGetString(option));
                    if !options::set_form_option(&mut form, other, &value)? {
                        let message = format!("option \"{other}\" of COPY does not go with format {FORMAT}");
                        return invalid(message, &format!("Valid options: {OPTIONS}."));
                    }
                }
            }
            named.push(name);
        }
        if !(*command).whereClause.is_null() {
            return invalid("WHERE is for COPY FROM only".to_owned(), "COPY (SELECT … WHERE …) TO a file.");
        }
        list::string((*command).filename)
    };
    let target = RowTarget { path, overwrite, form, server_name };
    // SAFETY: the command's query, or the text of one for its table.
    let files = unsafe {
        let query = (*command).query;
        if query.is_null() {
            let text = table_query(command)?;
            write_rows(&RowQuery::of_text(&text)?, target)?
        } else {
            write_rows(
                &RowQuery::of_part(query, text, (*statement).stmt_location, (*statement).stmt_len),
                target,
            )?
        }
    };
    Ok(files.iter().map(|file| file.row_count).sum())
}

/// The query for the rows of a table that COPY names: those of the table alone, unless it has none of its own.
unsafe fn table_query(command: *mut pg_sys::CopyStmt) -> Result<CString> {
    // SAFETY: names of the command; an ERROR if there is no such table. The query locks it, and checks rights.
    unsafe {
        let relation = (*command).relation;
        let table_oid = pg_sys::RangeVarGetRelidExtended(
            relation,
            pg_sys::AccessShareLock as i32,
            0,
            None,
            std::ptr::null_mut(),
        );
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table_oid));
        let name =
            CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, pg_sys::get_rel_name(table_oid)));
        let columns: Vec<&[u8]> = list::pointers::<pg_sys::Node>((*command).attlist)
            .map(|column| {
                CStr::from_ptr(pg_sys::quote_identifier((*column.cast::<pg_sys::String>()).sval)).to_bytes()
            })
            .collect();
        let columns = if columns.is_empty() { b"*".to_vec() } else { columns.join(&b", "[..]) };
        let only: &[u8] = match pg_sys::get_rel_relkind(table_oid) as u8 {
            pg_sys::RELKIND_RELATION => b"ONLY ",
            _ => b"",
        };
        let text = [b"SELECT ", columns.as_slice(), b" FROM ", only, name.to_bytes()].concat();
        CString::new(text).map_err(|_| Error::internal("a name with a zero byte"))
    }
}

fn invalid<T>(message: String, hint: &str) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint.to_owned()))
}
