//! `pystachio.functions()`: the registry of functions.

use std::collections::BTreeSet;

use pgrx::prelude::*;
use pystachio_plan::FUNCTIONS;

/// A row for each function of the plan language; `examples` are SQL with `{a}` and `{b}` for columns.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the function")]
fn functions() -> TableIterator<
    'static,
    (
        name!(name, &'static str),
        name!(meaning, &'static str),
        name!(signatures, Vec<String>),
        name!(nulls, &'static str),
        name!(fails, &'static str),
        name!(on_device, bool),
        name!(catalog_names, Vec<String>),
        name!(examples, Vec<String>),
    ),
> {
    let rows = FUNCTIONS.iter().map(|entry| {
        let names = entry.catalog.iter().flat_map(|names| names.names);
        // Signatures of one operator have the same SQL.
        let examples: BTreeSet<String> = entry
            .signatures
            .iter()
            .flat_map(|signature| signature.examples)
            .flat_map(|example| example.expressions())
            .collect();
        (
            entry.name,
            entry.meaning,
            entry.signatures.iter().map(ToString::to_string).collect(),
            entry.nulls.name(),
            entry.failure.name(),
            entry.is_on_device,
            names.map(|name| (*name).to_string()).collect(),
            examples.into_iter().collect(),
        )
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}
