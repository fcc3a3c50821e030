//! The work of GPUs for the last queries, of all ranks on one clock: as rows, and as a trace for
//! browsers. A role sees its own queries, and members of `pg_read_all_stats` see all.

use std::collections::BTreeSet;

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{Activity, Error, ErrorKind, QueryTimeline, Result};

use super::{
    count, milliseconds,
    rows::{Row, cell, return_rows},
    text_argument,
};
use crate::{client, error::OrRaise, options, pg::encoding, privileges};

/// What the GPUs of a server's ranks did for a query: one row a read, copy, kernel, or movement from or to another rank. The last query that was
/// noted, unless one is named. `bytes` of a kernel: what it reads and writes, estimated from below. Starts nothing.
#[pg_extern(sql = false)]
fn timeline(query: Option<i64>, server: &[u8], fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, timeline_rows(query, server));
}

/// The same, as version 0.2 of the extension declares it.
#[pg_extern(sql = false)]
fn timeline_0_2(query: Option<i64>, server: &[u8], fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, timeline_rows(query, server));
}

fn timeline_rows(query: Option<i64>, server: &[u8]) -> Vec<Row> {
    let Some(timeline) = find(&text_argument(server), query).or_raise() else { return Vec::new() };
    let number = count(timeline.query);
    let rows = timeline.activities.into_iter().map(|activity| {
        vec![
            cell("query", number),
            cell("rank", i32::try_from(activity.rank).unwrap_or(i32::MAX)),
            cell("activity", activity.kind.to_string()),
            cell("name", activity.name),
            cell("lane", i32::try_from(activity.lane).unwrap_or(i32::MAX)),
            cell("start_ms", milliseconds(activity.started_us)),
            cell("elapsed_ms", milliseconds(activity.elapsed_us)),
            cell("bytes", count(activity.bytes)),
        ]
    });
    rows.collect()
}

/// The queries whose timelines an engine keeps.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the function")]
fn timeline_queries(
    server: &[u8],
) -> TableIterator<
    'static,
    (
        name!(query, i64),
        name!(started, Option<TimestampWithTimeZone>),
        name!(elapsed_ms, f64),
        name!(activities, i64),
    ),
> {
    let timelines = visible_timelines(&text_argument(server)).or_raise();
    let rows = timelines.into_iter().map(|timeline| {
        let started = pgrx::datum::to_timestamp(timeline.started_unix_us as f64 / 1e6);
        let activities = count(timeline.activities.len() as u64);
        (count(timeline.query), Some(started), milliseconds(timeline.elapsed_us), activities)
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

/// A timeline in the Trace Event Format, which Perfetto and Chrome show; NULL if there is none.
///
/// Source: Trace Event Format, complete events (`"ph": "X"`), times in microseconds.
#[pg_extern(sql = false)]
fn timeline_trace(query: Option<i64>, server: &[u8]) -> Option<pgrx::Json> {
    let timeline = find(&text_argument(server), query).or_raise()?;
    let ranks = ranks(&timeline.activities).into_iter().map(|rank| {
        let name = format!("rank {rank}");
        serde_json::json!({"ph": "M", "name": "process_name", "pid": process(rank), "args": {"name": name}})
    });
    let names = lanes(&timeline.activities).into_iter().map(|((rank, lane), name)| {
        serde_json::json!({"ph": "M", "name": "thread_name", "pid": process(rank), "tid": lane, "args": {"name": name}})
    });
    let events = timeline.activities.iter().map(|activity| {
        serde_json::json!({
            "ph": "X", "name": activity.name, "cat": activity.kind.to_string(),
            "pid": process(activity.rank), "tid": activity.lane,
            "ts": activity.started_us, "dur": activity.elapsed_us, "args": {"bytes": activity.bytes},
        })
    });
    let events: Vec<serde_json::Value> = ranks.chain(names).chain(events).collect();
    Some(pgrx::Json(serde_json::json!({
        "displayTimeUnit": "ms",
        "otherData": {"query": timeline.query, "elapsed_us": timeline.elapsed_us},
        "traceEvents": events,
    })))
}

/// A rank as a process of a trace, which has none of number 0.
fn process(rank: u32) -> u64 {
    u64::from(rank) + 1
}

/// The ranks that have activities.
fn ranks(activities: &[Activity]) -> BTreeSet<u32> {
    activities.iter().map(|activity| activity.rank).collect()
}

/// Names of the lanes of ranks that have activities.
fn lanes(activities: &[Activity]) -> Vec<((u32, u32), String)> {
    let lanes: BTreeSet<(u32, u32)> =
        activities.iter().map(|activity| (activity.rank, activity.lane)).collect();
    let name = |lane| match lane {
        0 => "storage".to_string(),
        1 => "network".to_string(),
        lane => format!("stream {}", lane - 1),
    };
    lanes.into_iter().map(|(rank, lane)| ((rank, lane), name(lane))).collect()
}

/// The timelines that the current role may see, the last one last.
fn visible_timelines(server: &str) -> Result<Vec<QueryTimeline>> {
    let server_oid = options::usable_server(server);
    let mut timelines = client::timelines(server_oid)?;
    if timelines.is_empty() && client::status(server_oid)?.is_some_and(|status| status.device == "cpu") {
        let notice = format!("the engine of server \"{server}\" has no GPU, and no timelines");
        notice!("{}", encoding::to_message(notice));
    }
    timelines.retain(|timeline| privileges::may_see(Some(timeline.role)));
    Ok(timelines)
}

fn find(server: &str, query: Option<i64>) -> Result<Option<QueryTimeline>> {
    let mut timelines = visible_timelines(server)?;
    let Some(query) = query else { return Ok(timelines.pop()) };
    let known: Vec<String> = timelines.iter().map(|timeline| timeline.query.to_string()).collect();
    match timelines.into_iter().find(|timeline| count(timeline.query) == query) {
        Some(timeline) => Ok(Some(timeline)),
        None => {
            let message = format!("server \"{server}\" keeps no timeline of query {query}");
            Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(match known.is_empty() {
                true => "Set pystachio.timeline to on and run the query again.".to_string(),
                false => format!("It keeps those of queries {}.", known.join(", ")),
            }))
        }
    }
}
