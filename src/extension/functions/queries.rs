//! The queries of engines: those that run, those that ended last, and what all of them have cost.
//!
//! As in pg_stat_activity, a role sees that other roles' queries exist, and whose they are. Only
//! the role itself and members of `pg_read_all_stats` see the rest. Only the latter see counts of
//! rows that are hidden from the role.

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{QueryEntry, QueryState, StatisticsEntry};

use super::{
    count, milliseconds,
    rows::{Row, cell, return_rows},
    text_argument,
};
use crate::{client, error::OrRaise, options, privileges};

/// `pystachio.query_entries()`: the queries that run on a server's engine, and those that ended last. Starts nothing.
#[pg_extern(sql = false)]
fn query_entries(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, query_rows(server));
}

fn query_rows(server: pg_sys::Oid) -> Vec<Row> {
    if !options::may_use_server(server) {
        return Vec::new();
    }
    let sees_all = privileges::reads_all_statistics();
    let rows = client::queries(server).or_raise().into_iter().map(|entry| {
        let sees = sees_all || privileges::may_see(Some(entry.role));
        let counts = sees && (sees_all || !entry.origin.hides_counts);
        let counted = |value: u64| counts.then(|| count(value));
        vec![
            cell("query", count(entry.query)),
            cell("queryid", Some(entry.origin.query_id).filter(|query_id| sees && *query_id != 0)),
            cell("pid", i32::try_from(entry.backend_pid).unwrap_or(i32::MAX)),
            cell("userid", pg_sys::Oid::from(entry.role)),
            cell("engine", entry.engine.filter(|_| sees).map(|engine| engine.to_string())),
            cell("ranks", sees.then(|| ranks(entry.rank_count))),
            cell("state", sees.then(|| entry.state.to_string())),
            cell("waiting_for", entry.waits_for.filter(|_| sees).map(|wait| wait.to_string())),
            cell("started", sees.then(|| pgrx::datum::to_timestamp(entry.started_unix_us as f64 / 1e6))),
            cell("elapsed_ms", sees.then(|| milliseconds(entry.elapsed_us))),
            cell("rows", counted(entry.row_count)),
            cell("bytes_read", counted(entry.bytes_read)),
            cell("bytes_expected", counted(entry.bytes_expected)),
            cell("fraction_done", fraction_done(&entry).filter(|_| counts)),
            cell("memory", counted(entry.memory_bytes)),
            cell("spilled", counted(entry.spilled_bytes)),
            cell("error", entry.error.filter(|_| sees)),
        ]
    });
    rows.collect()
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

/// `pystachio.statistics_entries()`: what the queries of a server's engine have cost, by role, statement and engine. Starts nothing.
#[pg_extern(sql = false)]
fn statistics_entries(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, statistics_rows(server));
}

fn statistics_rows(server: pg_sys::Oid) -> Vec<Row> {
    if !options::may_use_server(server) {
        return Vec::new();
    }
    let sees_all = privileges::reads_all_statistics();
    let rows = client::statistics(server).or_raise().into_iter().map(|entry: StatisticsEntry| {
        let sees = sees_all || privileges::may_see(Some(entry.role));
        let counts = sees && (sees_all || !entry.hides_counts);
        let seen = |value: u64| sees.then(|| count(value));
        let counted = |value: u64| counts.then(|| count(value));
        vec![
            cell("userid", pg_sys::Oid::from(entry.role)),
            cell("queryid", Some(entry.query_id).filter(|query_id| sees && *query_id != 0)),
            cell("engine", entry.engine.filter(|_| sees).map(|engine| engine.to_string())),
            cell("calls", seen(entry.calls)),
            cell("failures", seen(entry.failures)),
            cell("cancellations", seen(entry.cancellations)),
            cell("fallbacks", seen(entry.fallbacks)),
            cell("rows", counted(entry.row_count)),
            cell("bytes_read", counted(entry.bytes_read)),
            cell("spilled", counted(entry.spilled_bytes)),
            cell("cache_hits", counted(entry.cache_hits)),
            cell("cache_misses", counted(entry.cache_misses)),
            cell("total_ms", sees.then(|| milliseconds(entry.total_us))),
            cell("min_ms", sees.then(|| milliseconds(entry.min_us))),
            cell("max_ms", sees.then(|| milliseconds(entry.max_us))),
            cell("ranks", sees.then(|| ranks(entry.rank_count_max))),
            cell("since", sees.then(|| pgrx::datum::to_timestamp(entry.since_unix_us as f64 / 1e6))),
        ]
    });
    rows.collect()
}

/// Makes a server's engine forget what queries have cost. Starts nothing.
#[pg_extern(sql = false)]
fn statistics_reset(server: &[u8]) {
    client::reset_statistics(options::usable_server(&text_argument(server))).or_raise();
}
