//! What footers say about the tables of a query.
//!
//! A query whose tables the session knows ([`known_files`]) is planned without a question to the engine, which finds out when
//! the plan runs whether the files are still those (`replan.rs`). Tables that the session does not know are asked for together.
//!
//! Invariant: a plan that rests on what the session knew says so in its [`crate::scan_private::Origin`].

use std::rc::Rc;

use pgrx::pg_sys;
use pystachio_plan::{ColumnId, DescribeExtent, Error, FileSet, TableDescription};

use super::{planning::with_planning, relation_info::is_our_entry};
use crate::{
    client,
    known_files::{self, TableKey},
    options,
    options::TableOptions,
    pg::tree::{Query, RangeEntry, Root},
    writing,
};

/// The options of a table that this run of the planner has met.
pub fn planned_options(table_oid: pg_sys::Oid) -> TableOptions {
    let mut table = options::table_options(table_oid);
    table.files.role = with_planning(|planning| planning.role_of(table_oid));
    table
}

/// What a table is known by.
pub fn key_of(table: &TableOptions) -> TableKey {
    (u32::from(table.server_oid), table.files.clone())
}

/// What the footers say about a table, or said when the session asked last.
///
/// # Errors
///
/// Those of reaching the engine and of the files.
pub fn describe(table: &TableOptions) -> Result<Rc<TableDescription>, Error> {
    let key = key_of(table);
    if let Some(found) = with_planning(|planning| planning.description(&key)) {
        return Ok(found);
    }
    let Some(known) = known(&key) else { return describe_now(table) };
    with_planning(|planning| {
        planning.keep_description(key.clone(), known.clone(), true);
        planning.description(&key);
    });
    Ok(known)
}

/// What the footers say about a table now. For a table whose known description does not fit its declaration.
///
/// # Errors
///
/// As of [`describe`].
pub fn describe_now(table: &TableOptions) -> Result<Rc<TableDescription>, Error> {
    let key = key_of(table);
    let answers = ask(std::slice::from_ref(&key))?;
    with_planning(|planning| planning.description(&key));
    let answer = answers.into_iter().next().map(|(_, answer)| answer);
    answer.unwrap_or_else(|| Err(Error::internal("the engine described no table")))
}

/// The least and the greatest number of a column of a scan, or bounds beyond them, if it is a table's and footers tell.
pub fn number_bounds(id: ColumnId) -> Option<(f64, f64)> {
    let (table_oid, attribute_number) = with_planning(|planning| planning.column_of_table(id))?;
    let description = describe(&planned_options(table_oid)).ok()?;
    description.column(&options::file_column(table_oid, attribute_number))?.number_bounds()
}

/// Shares the locks of the files of writable tables that a query names, so that files which it is planned for are there when it runs.
pub fn share_named(query: Query<'_>) {
    query.any_entry(&mut |entry| {
        if is_our_entry(entry) && options::table_options(entry.table_oid()).writable {
            writing::share_files(entry.table_oid());
        }
        false
    });
}

/// Asks for the tables that a query names and the session does not know. What fails is asked for again, and its error raised,
/// when the table is planned.
pub fn describe_named(query: Query<'_>) {
    let mut wanted = Vec::new();
    query.any_entry(&mut |entry| {
        add_wanted(entry, &mut wanted);
        false
    });
    // A single one is asked for when it is planned.
    if wanted.len() > 1 {
        drop(ask(&wanted));
    }
}

/// As [`describe_named`], for the tables of the planner's run in which `table` is planned: partitions are there only once their
/// parent is expanded.
pub fn describe_expanded(root: Root<'_>, table: &TableOptions) {
    if is_at_hand(&key_of(table)) {
        return;
    }
    let mut wanted = Vec::new();
    for entry in root.indexes().filter_map(|index| root.entry(index)) {
        add_wanted(entry, &mut wanted);
    }
    if wanted.len() > 1 {
        drop(ask(&wanted));
    }
}

fn add_wanted(entry: RangeEntry<'_>, wanted: &mut Vec<TableKey>) {
    if is_our_entry(entry) {
        let key = key_of(&options::table_options(entry.table_oid()));
        // Whose user mapping counts is known when the table is planned.
        if !key.1.is_in_store() && !is_at_hand(&key) && !wanted.contains(&key) {
            wanted.push(key);
        }
    }
}

type Answers = Vec<(TableKey, Result<Rc<TableDescription>, Error>)>;

/// One request for all of them, to each engine.
fn ask(tables: &[TableKey]) -> Result<Answers, Error> {
    let mut servers: Vec<u32> = tables.iter().map(|(server, _)| *server).collect();
    servers.sort_unstable();
    servers.dedup();
    let mut described = Vec::new();
    for server in servers {
        let of_server = tables.iter().filter(|(of, _)| *of == server);
        let files: Vec<FileSet> = of_server.map(|(_, files)| files.clone()).collect();
        let answers = client::describe(pg_sys::Oid::from(server), &files, DescribeExtent::Some)?;
        for (files, answer) in files.into_iter().zip(answers) {
            described.push(((server, files), answer.map(Rc::new)));
        }
    }
    for (key, answer) in &described {
        match answer {
            Ok(description) => {
                known_files::keep(key.clone(), description);
                with_planning(|planning| planning.keep_description(key.clone(), description.clone(), false));
            }
            Err(_) => known_files::forget(key),
        }
    }
    Ok(described)
}

fn is_at_hand(key: &TableKey) -> bool {
    known(key).is_some() || with_planning(|planning| planning.knows(key))
}

fn known(key: &TableKey) -> Option<Rc<TableDescription>> {
    // Without the hook nothing finds out that files have changed.
    with_planning(|planning| planning.is_hooked()).then(|| known_files::find(key))?
}
