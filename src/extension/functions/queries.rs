//! The queries of engines: those that run, those that ended last, and what all of them have cost.
//!
//! As in pg_stat_activity, a role sees that others' queries are there, and whose they are; the rest is for members of
//! `pg_read_all_stats` and for the role itself, and counts of rows that are hidden from it only for the former.

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{QueryEntry, QueryState, StatisticsEntry};

use super::{count, milliseconds};
use crate::{client, error::OrRaise, options, privileges};

/// The queries that run on a server's engine, and those that ended last. Starts nothing.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn query_entries(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(query, i64),
        name!(queryid, Option<i64>),
        name!(pid, i32),
        name!(userid, pg_sys::Oid),
        name!(engine, Option<String>),
        name!(ranks, Option<i32>),
        name!(state, Option<String>),
        name!(waiting_for, Option<String>),
        name!(started, Option<TimestampWithTimeZone>),
        name!(elapsed_ms, Option<f64>),
        name!(rows, Option<i64>),
        name!(bytes_read, Option<i64>),
        name!(bytes_expected, Option<i64>),
        name!(fraction_done, Option<f64>),
        name!(memory, Option<i64>),
        name!(spilled, Option<i64>),
        name!(error, Option<String>),
    ),
> {
    if !options::may_use_server(server) {
        return TableIterator::empty();
    }
    let sees_all = privileges::reads_all_statistics();
    let rows = client::queries(server).or_raise().into_iter().map(move |entry| {
        let sees = sees_all || privileges::may_see(Some(entry.role));
        let counts = sees && (sees_all || !entry.origin.hides_counts);
        let counted = |value: u64| counts.then(|| count(value));
        (
            count(entry.query),
            Some(entry.origin.query_id).filter(|query_id| sees && *query_id != 0),
            i32::try_from(entry.backend_pid).unwrap_or(i32::MAX),
            pg_sys::Oid::from(entry.role),
            entry.engine.filter(|_| sees).map(|engine| engine.to_string()),
            sees.then(|| ranks(entry.rank_count)),
            sees.then(|| entry.state.to_string()),
            entry.waits_for.filter(|_| sees).map(|wait| wait.to_string()),
            sees.then(|| pgrx::datum::to_timestamp(entry.started_unix_us as f64 / 1e6)),
            sees.then(|| milliseconds(entry.elapsed_us)),
            counted(entry.row_count),
            counted(entry.bytes_read),
            counted(entry.bytes_expected),
            fraction_done(&entry).filter(|_| counts),
            counted(entry.memory_bytes),
            counted(entry.spilled_bytes),
            entry.error.filter(|_| sees),
        )
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

/// How much of what its scans go through a query is through with; none where there is nothing of the kind, or it is not known yet.
fn fraction_done(entry: &QueryEntry) -> Option<f64> {
    if entry.state == QueryState::Finished {
        return Some(1.0);
    }
    (entry.bytes_expected > 0).then(|| entry.bytes_done as f64 / entry.bytes_expected as f64)
}

fn ranks(rank_count: u32) -> i32 {
    i32::try_from(rank_count).unwrap_or(i32::MAX)
}

/// What the queries of a server's engine have cost, by role, statement and engine. Starts nothing.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn statistics_entries(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(userid, pg_sys::Oid),
        name!(queryid, Option<i64>),
        name!(engine, Option<String>),
        name!(calls, Option<i64>),
        name!(failures, Option<i64>),
        name!(cancellations, Option<i64>),
        name!(fallbacks, Option<i64>),
        name!(rows, Option<i64>),
        name!(bytes_read, Option<i64>),
        name!(spilled, Option<i64>),
        name!(cache_hits, Option<i64>),
        name!(cache_misses, Option<i64>),
        name!(total_ms, Option<f64>),
        name!(min_ms, Option<f64>),
        name!(max_ms, Option<f64>),
        name!(ranks, Option<i32>),
        name!(since, Option<TimestampWithTimeZone>),
    ),
> {
    if !options::may_use_server(server) {
        return TableIterator::empty();
    }
    let sees_all = privileges::reads_all_statistics();
    let rows = client::statistics(server).or_raise().into_iter().map(move |entry: StatisticsEntry| {
        let sees = sees_all || privileges::may_see(Some(entry.role));
        let counts = sees && (sees_all || !entry.hides_counts);
        let seen = |value: u64| sees.then(|| count(value));
        let counted = |value: u64| counts.then(|| count(value));
        (
            pg_sys::Oid::from(entry.role),
            Some(entry.query_id).filter(|query_id| sees && *query_id != 0),
            entry.engine.filter(|_| sees).map(|engine| engine.to_string()),
            seen(entry.calls),
            seen(entry.failures),
            seen(entry.cancellations),
            seen(entry.fallbacks),
            counted(entry.row_count),
            counted(entry.bytes_read),
            counted(entry.spilled_bytes),
            counted(entry.cache_hits),
            counted(entry.cache_misses),
            sees.then(|| milliseconds(entry.total_us)),
            sees.then(|| milliseconds(entry.min_us)),
            sees.then(|| milliseconds(entry.max_us)),
            sees.then(|| ranks(entry.rank_count_max)),
            sees.then(|| pgrx::datum::to_timestamp(entry.since_unix_us as f64 / 1e6)),
        )
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

/// Makes a server's engine forget what queries have cost. Starts nothing.
#[pg_extern(sql = false)]
fn statistics_reset(server: &str) {
    client::reset_statistics(options::usable_server(server)).or_raise();
}
