//! `pystachio.import_views`: views of a catalog's namespace, as views of PostgreSQL.
//!
//! ```text
//! text of the catalog ─► parsed ─► one SELECT? ─► names of tables ─► analysed ─► functions, tables? ─► CREATE VIEW of the deparsed query
//! ```
//!
//! Others may write into a catalog, so its text is never run. PostgreSQL parses the text and prints
//! the query that it understood, with all names qualified. The calling role runs the printed
//! statement, with its own rights.
//!
//! Invariants
//!
//! - A text is one SELECT that locks nothing, writes nothing, and reads tables of the target schema alone.
//! - All its functions are PostgreSQL's own and not volatile: later readers of the view call them with their own rights.
//! - Views are made with `security_invoker`. A view that fails leaves nothing behind, and does not keep others back.
#![expect(unsafe_code, reason = "parses, analyses and deparses statements of PostgreSQL")]

use std::{collections::HashSet, ffi::CString, ffi::c_void};

use pgrx::{pg_sys, pg_sys::panic::CaughtError, prelude::*};
use pystachio_plan::{CatalogView, Error, ErrorKind, Result, ViewTexts, catalog_path};

use super::{
    rows::{cell, return_rows},
    text_argument,
};
use crate::{
    client,
    error::OrRaise,
    file_tables, import, options,
    pg::{encoding, list, nodes},
    stores,
};

/// Dialects that are PostgreSQL's own.
const OWN_DIALECTS: &[&str] = &["postgresql", "postgres"];
/// Where names of a view's text are looked up that have no schema after all names of tables have got theirs.
const SEARCH_PATH: &std::ffi::CStr = c"pg_catalog, pg_temp";

/// `pystachio.import_views(server, namespace, schema, other_dialects)`: makes the views of a namespace that can be made. A row for each,
/// with the command that has made it, or the reason why there is none.
#[pg_extern(sql = false)]
fn import_views(
    server: &[u8],
    namespace: &[u8],
    schema: pg_sys::Oid,
    other_dialects: bool,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    let target = Target::new(schema, other_dialects).or_raise();
    let (server, namespace) = (text_argument(server), text_argument(namespace));
    let outcomes = target.import(options::usable_server(&server), &server, &namespace).or_raise();
    let rows = outcomes.into_iter().map(|(view, outcome)| {
        let (command, reason) = match outcome {
            Ok(command) => (Some(command), None),
            Err(reason) => (None, Some(reason)),
        };
        vec![cell("view", view), cell("command", command), cell("reason", reason)]
    });
    return_rows(fcinfo, rows);
}

/// The command that has made a view, or why there is none.
type Outcome = std::result::Result<String, String>;

/// Where views are made, and of what.
struct Target {
    schema_oid: pg_sys::Oid,
    schema: String,
    other_dialects: bool,
}

impl Target {
    fn new(schema_oid: pg_sys::Oid, other_dialects: bool) -> Result<Self> {
        // SAFETY: looks into catalogs; NULL for a schema that is gone.
        let name = unsafe { pg_sys::get_namespace_name(schema_oid) };
        if name.is_null() {
            let message = format!("schema {} does not exist", u32::from(schema_oid));
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("CREATE SCHEMA first."));
        }
        // SAFETY: a C string.
        Ok(Self { schema_oid, schema: unsafe { list::string(name) }, other_dialects })
    }

    fn import(
        &self,
        server_oid: pg_sys::Oid,
        server: &str,
        namespace: &str,
    ) -> Result<Vec<(String, Outcome)>> {
        if !stores::has_catalog(server_oid)? {
            let message = format!("server \"{server}\" has no catalog, whose views could be imported");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("Name a server with the option catalog."));
        }
        let names = options::dotted_names(namespace).ok_or_else(|| import::not_a_namespace(namespace))?;
        let views = client::views(server_oid, &catalog_path(&names), true)?;
        let mut outcomes: Vec<Outcome> = views.iter().map(|view| self.make(&names, view)).collect();
        // A view may read one that was made after it was tried.
        loop {
            let mut is_progress = false;
            let failed = views.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_err());
            for (view, outcome) in failed {
                *outcome = self.make(&names, view);
                is_progress |= outcome.is_ok();
            }
            if !is_progress {
                break;
            }
        }
        Ok(views.into_iter().map(|view| view.name).zip(outcomes).collect())
    }

    fn make(&self, namespace: &[String], view: &CatalogView) -> Outcome {
        let texts = view.texts.as_ref().map_err(|error| error.message.clone())?;
        let text = self.text_of(texts)?;
        let reading = Reading { target: self, namespace, texts };
        in_subtransaction(|| reading.create(&import::shorten(&view.name), text))
    }

    /// The text that a view is made of: PostgreSQL's, else another if these are wanted.
    fn text_of<'t>(&self, texts: &'t ViewTexts) -> std::result::Result<&'t str, String> {
        let is_own = |(dialect, _): &&(String, String)| OWN_DIALECTS.contains(&dialect.as_str());
        let found = texts.texts.iter().find(is_own);
        let other = || texts.texts.first().filter(|_| self.other_dialects);
        found.or_else(other).map(|(_, text)| text.as_str()).ok_or_else(|| {
            let dialects: Vec<&str> = texts.texts.iter().map(|(dialect, _)| dialect.as_str()).collect();
            match dialects.is_empty() {
                true => "it has no text in SQL".to_owned(),
                false => format!(
                    "its text is in the dialect {}: other_dialects => true takes it where PostgreSQL understands it",
                    dialects.join(", ")
                ),
            }
        })
    }
}

/// How the text of a view is read.
struct Reading<'a> {
    target: &'a Target,
    namespace: &'a [String],
    texts: &'a ViewTexts,
}

impl Reading<'_> {
    /// Makes the view. Within a subtransaction: ERRORs are reasons, too.
    fn create(&self, name: &str, text: &str) -> Outcome {
        let text = encoding::to_server(text.as_bytes()).map_err(|error| error.message)?;
        let text = CString::new(text).map_err(|_| "its text has a zero byte".to_owned())?;
        // SAFETY: the parser takes a C string, and what it gives lives as long as the memory context of the call.
        let query = unsafe {
            let parsed = pg_sys::raw_parser(text.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
            let statements: Vec<*mut pg_sys::RawStmt> = list::pointers(parsed).collect();
            let [statement] = statements.as_slice() else {
                return Err(format!("its text is {} statements, and not one SELECT", statements.len()));
            };
            self.check_and_name((**statement).stmt)?;
            set_search_path();
            let query = pg_sys::parse_analyze_fixedparams(
                *statement,
                text.as_ptr(),
                std::ptr::null(),
                0,
                std::ptr::null_mut(),
            );
            self.check_query(query)?;
            list::string(pg_sys::pg_get_querydef(query, false))
        };
        let columns = match self.texts.columns.is_empty() {
            true => String::new(),
            false => {
                let columns = self.texts.columns.iter();
                let columns: Vec<String> =
                    columns.map(|column| import::quote_identifier(&import::shorten(column))).collect();
                format!(" ({})", columns.join(", "))
            }
        };
        let command = format!(
            "CREATE VIEW {}.{}{columns} WITH (security_invoker = true) AS {query}",
            import::quote_identifier(&self.target.schema),
            import::quote_identifier(name),
        );
        file_tables::run(&command).map_err(|error| error.message)?;
        Ok(command)
    }

    /// Checks that a parsed statement only selects, and has the names of its tables be those of the target schema.
    ///
    /// # Safety
    ///
    /// The statement is valid, and may be changed.
    unsafe fn check_and_name(&self, statement: *mut pg_sys::Node) -> std::result::Result<(), String> {
        // SAFETY: as the caller says: nodes have the types of their tags.
        unsafe {
            if nodes::tag_of(statement) != pg_sys::NodeTag::T_SelectStmt {
                return Err("its text is not a SELECT".to_owned());
            }
            let mut named = HashSet::new();
            let mut tables = Vec::new();
            let mut reason = None;
            nodes::walk_parsed(statement, &mut |node| {
                match nodes::tag_of(node) {
                    pg_sys::NodeTag::T_IntoClause => reason = Some("its text has INTO"),
                    pg_sys::NodeTag::T_LockingClause => reason = Some("its text locks rows"),
                    pg_sys::NodeTag::T_InsertStmt
                    | pg_sys::NodeTag::T_UpdateStmt
                    | pg_sys::NodeTag::T_DeleteStmt
                    | pg_sys::NodeTag::T_MergeStmt => reason = Some("its text changes rows"),
                    pg_sys::NodeTag::T_CommonTableExpr => {
                        named.insert(list::string((*node.cast::<pg_sys::CommonTableExpr>()).ctename));
                    }
                    pg_sys::NodeTag::T_RangeVar => tables.push(node.cast::<pg_sys::RangeVar>()),
                    _ => {}
                }
                reason.is_none()
            });
            if let Some(reason) = reason {
                return Err(reason.to_owned());
            }
            let schema = CString::new(encoding::to_server(self.target.schema.as_bytes()).unwrap_or_default());
            let schema = schema.unwrap_or_default();
            for table in tables {
                let parts = [(*table).catalogname, (*table).schemaname];
                let parts: Vec<String> =
                    parts.into_iter().filter(|part| !part.is_null()).map(|part| list::string(part)).collect();
                if parts.is_empty() && named.contains(&list::string((*table).relname)) {
                    continue;
                }
                if !self.is_in_namespace(&parts) {
                    let table = [parts, vec![list::string((*table).relname)]].concat().join(".");
                    let namespace = options::dotted_text(self.namespace);
                    return Err(format!("it reads \"{table}\", which is not in namespace \"{namespace}\""));
                }
                (*table).catalogname = std::ptr::null_mut();
                (*table).schemaname = pg_sys::pstrdup(schema.as_ptr());
            }
        }
        Ok(())
    }

    /// Whether the names before that of a table mean the namespace. SQL writes names in lowercase.
    fn is_in_namespace(&self, parts: &[String]) -> bool {
        let is = |names: &[String]| {
            names.len() == parts.len()
                && names.iter().zip(parts).all(|(name, part)| name.eq_ignore_ascii_case(part))
        };
        let with_catalog = self
            .texts
            .catalog
            .iter()
            .any(|catalog| is(&[std::slice::from_ref(catalog), self.namespace].concat()));
        let is_default = || self.texts.namespace.as_deref().is_none_or(|names| names == self.namespace);
        is(self.namespace) || with_catalog || (parts.is_empty() && is_default())
    }

    /// Checks the tables and functions of an analysed query.
    ///
    /// # Safety
    ///
    /// The query is valid.
    unsafe fn check_query(&self, query: *mut pg_sys::Query) -> std::result::Result<(), String> {
        // SAFETY: as the caller says; lookups in catalogs.
        unsafe {
            let mut foreign = pg_sys::InvalidOid;
            let mut function = pg_sys::InvalidOid;
            nodes::walk_queries(query, &mut |node| {
                if nodes::tag_of(node) == pg_sys::NodeTag::T_RangeTblEntry {
                    let relation = (*node.cast::<pg_sys::RangeTblEntry>()).relid;
                    if relation != pg_sys::InvalidOid
                        && pg_sys::get_rel_namespace(relation) != self.target.schema_oid
                    {
                        foreign = relation;
                    }
                } else if nodes::tag_of(node) != pg_sys::NodeTag::T_Query
                    && nodes::tag_of(node) != pg_sys::NodeTag::T_List
                {
                    let context: *mut pg_sys::Oid = &raw mut function;
                    pg_sys::check_functions_in_node(node, Some(is_unsafe), context.cast());
                }
                foreign == pg_sys::InvalidOid && function == pg_sys::InvalidOid
            });
            if foreign != pg_sys::InvalidOid {
                let table = list::string(pg_sys::get_rel_name(foreign));
                return Err(format!(
                    "it reads \"{table}\", which is not in schema \"{}\"",
                    self.target.schema
                ));
            }
            if function != pg_sys::InvalidOid {
                let function = list::string(pg_sys::get_func_name(function));
                return Err(format!(
                    "it calls the function \"{function}\", which is volatile or not one of PostgreSQL's own"
                ));
            }
        }
        Ok(())
    }
}

/// Notes a function that a view of a catalog must not call.
#[pg_guard]
unsafe extern "C-unwind" fn is_unsafe(function: pg_sys::Oid, context: *mut c_void) -> bool {
    // SAFETY: the context is the caller's note; lookups in catalogs.
    unsafe {
        let is_own = pg_sys::get_func_namespace(function) == pg_sys::Oid::from(pg_sys::PG_CATALOG_NAMESPACE);
        let is_volatile = pg_sys::func_volatile(function) as u8 == pg_sys::PROVOLATILE_VOLATILE;
        if !is_own || is_volatile {
            *context.cast::<pg_sys::Oid>() = function;
            return true;
        }
    }
    false
}

/// Has names without a schema mean PostgreSQL's own things until the subtransaction's end.
fn set_search_path() {
    // SAFETY: sets a setting of the session as SET LOCAL does.
    unsafe {
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            SEARCH_PATH.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// Runs work of which nothing remains if it fails. Its ERRORs are reasons, but for those that end the statement.
fn in_subtransaction(work: impl FnOnce() -> Outcome + std::panic::UnwindSafe) -> Outcome {
    // SAFETY: as PL/pgSQL runs a block with EXCEPTION (pl_exec.c, exec_stmt_block). The level of settings ends before its subtransaction.
    unsafe {
        let (memory, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        let undo = move || {
            pg_sys::MemoryContextSwitchTo(memory);
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            pg_sys::MemoryContextSwitchTo(memory);
            pg_sys::CurrentResourceOwner = owner;
        };
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        PgTryBuilder::new(move || {
            let settings = pg_sys::NewGUCNestLevel();
            let outcome = work();
            match outcome.is_ok() {
                true => {
                    pg_sys::AtEOXact_GUC(true, settings);
                    pg_sys::ReleaseCurrentSubTransaction();
                    pg_sys::MemoryContextSwitchTo(memory);
                    pg_sys::CurrentResourceOwner = owner;
                }
                false => undo(),
            }
            outcome
        })
        .catch_others(move |error| {
            undo();
            match &error {
                CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)
                    if ![
                        PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
                        PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN,
                        PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
                    ]
                    .contains(&report.sql_error_code()) =>
                {
                    Err(report.message().to_owned())
                }
                _ => error.rethrow(),
            }
        })
        .execute()
    }
}
