//! What EXPLAIN shows of a scan.
//!
//! ```text
//! Foreign Scan
//!   Engine: cpu
//!   Engine Plan:
//!     Limit 10  (rows=10 actual=10)            COSTS, ANALYZE
//!       Sort by revenue DESC  (…)
//!   Keys of the Join: $1                       of keyed joins
//!   Not Pushed Down: …                         VERBOSE
//!   Runs On: cuda                              COSTS; Ran On: ANALYZE
//!   Expected Times: cpu 93 ms, cuda 12 ms
//!   Ranks: all 4; expected: 12 ms on all, 40 ms on one      of servers with several
//!   Rank Plan:
//!     Merge …: the order of all ranks' rows
//!   Exchanges:                               ANALYZE
//!     Shuffle 0: rows=6000 kept=3010 bytes=96000 skew=1.02
//!       rank 0: kept …, sent …
//!   Engine Time: 12.3 ms (…)                   ANALYZE
//! ```
#![expect(unsafe_code, reason = "PostgreSQL's EXPLAIN state is a C structure")]

use std::{ffi::CStr, time::Duration};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ActualRows, DeviceWork, EngineEstimates, ExchangeChoice, ExchangeTraffic, OperatorMetrics, PlanFacts,
    QueryMetrics, QueryRequest, RankChoice, RanksReport, SpillRequest, plan_lines,
};

use super::{
    parameters::with_settled_moments,
    query::QueryCost,
    scan::{ScanState, read_refusals},
};
use crate::{
    client,
    error::OrRaise,
    options::{self, Device},
    pg::encoding::to_shown,
    privileges,
    scan_private::ScanPrivate,
    settings, stores,
};

/// Writes the scan's properties.
#[pg_guard]
pub unsafe extern "C-unwind" fn explain_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
    explain: *mut pg_sys::ExplainState,
) {
    // SAFETY: called by EXPLAIN with a node that began.
    unsafe {
        let state = &*(*node).fdw_state.cast::<ScanState>();
        let writer = Writer::new(explain);
        let private = &state.private;
        let hides_counts = state.hides_counts();
        writer.text("Engine", &engine_name(pg_sys::Oid::from(private.server_oid)));
        let cost = if (*explain).analyze { state.cost() } else { None };
        let metrics = cost.as_ref().and_then(|cost| cost.metrics.as_ref());
        let facts = PlanFacts {
            estimates: (*explain).costs,
            actual_rows: metrics.filter(|_| !hides_counts).map_or(&[], |metrics| &metrics.actual_rows),
            run_count: cost.as_ref().map_or(0, |cost| cost.run_count),
            exchanges: &[],
        };
        writer.lines("Engine Plan", &plan_lines(&private.plan, facts));
        if let Some(keys) = &private.join_keys {
            let names = keys.parameters.iter().map(|parameter| format!("${}", parameter.index + 1));
            writer.text("Keys of the Join", &names.collect::<Vec<_>>().join(", "));
        }
        if (*explain).verbose {
            let refusals = read_refusals((*node).ss.ps.plan.cast()).or_raise();
            if !refusals.is_empty() {
                writer.lines("Not Pushed Down", &refusals);
            }
        }
        if (*explain).costs && !(*explain).analyze && private.parameters.is_empty() {
            write_preview(&writer, private, hides_counts);
        }
        if let Some(cost) = &cost {
            write_cost(&writer, cost, (*explain).timing, hides_counts);
        }
    }
}

/// The sum of what two runs of a query have cost.
pub fn sum_metrics(before: &QueryMetrics, mut now: QueryMetrics) -> QueryMetrics {
    now.has_changed_files |= before.has_changed_files;
    now.row_count += before.row_count;
    now.elapsed_us += before.elapsed_us;
    now.prepare_us += before.prepare_us;
    now.blocked_us += before.blocked_us;
    now.bytes_read += before.bytes_read;
    now.bytes_expected += before.bytes_expected;
    before.storage_paths.iter().for_each(|path| now.add_storage_path(*path));
    now.row_groups_total += before.row_groups_total;
    now.row_groups_pruned += before.row_groups_pruned;
    now.files_total += before.files_total;
    now.files_pruned += before.files_pruned;
    now.cache_hits += before.cache_hits;
    now.cache_misses += before.cache_misses;
    now.memory_peak_bytes = now.memory_peak_bytes.max(before.memory_peak_bytes);
    now.spilled_bytes += before.spilled_bytes;
    now.device_work = sum_work(before.device_work, now.device_work);
    now.actual_rows = sum_all_rows(&before.actual_rows, &now.actual_rows);
    if let Some(report) = &mut now.ranks {
        let before = before.ranks.as_ref().map_or(&[][..], |before| &before.actual_rows);
        report.actual_rows = sum_all_rows(before, &report.actual_rows);
    }
    for traffic in &mut now.exchanges {
        let is_same =
            |known: &&ExchangeTraffic| (known.rank, &known.exchange) == (traffic.rank, &traffic.exchange);
        let Some(before) = before.exchanges.iter().find(is_same) else { continue };
        traffic.sent_rows += before.sent_rows;
        traffic.sent_bytes += before.sent_bytes;
        traffic.sent_wide_bytes += before.sent_wide_bytes;
        traffic.partners = traffic.partners.max(before.partners);
        traffic.received_rows += before.received_rows;
        traffic.received_bytes += before.received_bytes;
        traffic.moving_us += before.moving_us;
        traffic.send_wait_us += before.send_wait_us;
        traffic.receive_wait_us += before.receive_wait_us;
    }
    now
}

/// Of operators of one plan; nothing if the plans differ.
fn sum_all_rows(before: &[Option<ActualRows>], now: &[Option<ActualRows>]) -> Vec<Option<ActualRows>> {
    match now.len() == before.len() {
        true => now.iter().zip(before).map(|(now, before)| sum_rows(*before, *now)).collect(),
        false => Vec::new(),
    }
}

fn sum_work(before: Option<DeviceWork>, now: Option<DeviceWork>) -> Option<DeviceWork> {
    let (before, now) = (before?, now?);
    Some(DeviceWork {
        kernel_us: before.kernel_us + now.kernel_us,
        copy_us: before.copy_us + now.copy_us,
        read_us: before.read_us + now.read_us,
        overlap_us: before.overlap_us + now.overlap_us,
        read_rate_max: before.read_rate_max.max(now.read_rate_max),
        memory_max_bytes: now.memory_max_bytes,
    })
}

fn sum_rows(before: Option<ActualRows>, now: Option<ActualRows>) -> Option<ActualRows> {
    let (before, now) = (before?, now?);
    Some(ActualRows {
        row_count: before.row_count + now.row_count,
        is_reduced: before.is_reduced || now.is_reduced,
    })
}

fn engine_name(server_oid: pg_sys::Oid) -> String {
    match options::server_options(server_oid).1.device {
        // The engine has chosen.
        Device::Auto => match client::status(server_oid) {
            Ok(Some(status)) => status.device,
            _ => Device::Auto.to_string(),
        },
        device => device.to_string(),
    }
}

/// What the query would read. A file that can't be read is left for the query itself to report.
fn write_preview(writer: &Writer, private: &ScanPrivate, hides_counts: bool) {
    if hides_counts {
        return write_hidden(writer);
    }
    let server_oid = pg_sys::Oid::from(private.server_oid);
    let Ok(access) = stores::access_of_plan(server_oid.into(), &private.plan) else { return };
    let request = QueryRequest {
        access,
        plan: with_settled_moments(&private.plan, &[]),
        planned_files: private.files.clone(),
        parameters: Vec::new(),
        with_metrics: false,
        batch_rows_max: settings::batch_rows(),
        spill: SpillRequest::default(),
        device: settings::device(),
        engine: settings::engine_choice(),
        role: privileges::current_role(),
    };
    if let Ok(metrics) = client::preview(server_oid, request) {
        write_device(writer, "Runs On", &metrics);
        write_ranks(writer, &metrics, 1);
        write_reading(writer, &metrics);
    }
}

/// In place of what would tell of rows that the role may not see: how many there are, and by what statistics of files
/// rule out, between which values.
fn write_hidden(writer: &Writer) {
    writer.text("Engine Counts", "hidden, as row security or a security barrier hides rows");
}

/// Which engine it is, where there are two, and the times that were expected of both.
fn write_device(writer: &Writer, label: &str, metrics: &QueryMetrics) {
    if !metrics.device.is_empty() {
        writer.text(label, &metrics.device);
    }
    if let Some(EngineEstimates { cpu_us, device_us, device }) = &metrics.estimates {
        writer.text("Expected Times", &format!("cpu {}, {device} {}", micros(*cpu_us), micros(*device_us)));
    }
}

/// Which ranks run it and why, and what they run.
fn write_ranks(writer: &Writer, metrics: &QueryMetrics, run_count: u64) {
    let Some(report) = &metrics.ranks else { return };
    let RanksReport { rank_count, choice, one_rank_us, all_ranks_us, actual_rows } = report;
    let expected = match all_ranks_us {
        Some(all_ranks_us) => {
            format!("; expected: {} on all, {} on one", micros(*all_ranks_us), micros(*one_rank_us))
        }
        None => String::new(),
    };
    match choice {
        RankChoice::All { plan, exchanges } => {
            writer.text("Ranks", &format!("all {rank_count}{expected}"));
            let facts = PlanFacts { estimates: true, actual_rows, run_count, exchanges };
            writer.lines("Rank Plan", &plan_lines(plan, facts));
        }
        RankChoice::First { reason } => {
            writer.text("Ranks", &format!("1 of {rank_count}: {reason}{expected}"));
        }
    }
}

/// Time in which an exchange moves something at least for its rate to be shown.
const RATED_US_MIN: u64 = 1000;

/// What each exchange has moved, and on each rank.
fn write_traffic(writer: &Writer, traffic: &[ExchangeTraffic], with_times: bool) {
    let mut by_exchange: Vec<(&str, Vec<&ExchangeTraffic>)> = Vec::new();
    for of_rank in traffic {
        match by_exchange.iter_mut().find(|(exchange, _)| *exchange == of_rank.exchange) {
            Some((_, known)) => known.push(of_rank),
            None => by_exchange.push((&of_rank.exchange, vec![of_rank])),
        }
    }
    let mut lines = Vec::new();
    for (exchange, of_ranks) in by_exchange {
        let sum = |of: fn(&ExchangeTraffic) -> u64| of_ranks.iter().map(|traffic| of(traffic)).sum::<u64>();
        // Rows of each rank afterwards.
        let rows_on = |traffic: &ExchangeTraffic| traffic.kept_rows + traffic.received_rows;
        let most = of_ranks.iter().map(|traffic| rows_on(traffic)).max().unwrap_or(0);
        let mean = sum(rows_on) as f64 / of_ranks.len() as f64;
        let skew = if most == 0 { 1.0 } else { most as f64 / mean };
        let (sent, kept) = (sum(|traffic| traffic.sent_rows), sum(|traffic| traffic.kept_rows));
        let choice = match of_ranks.iter().find_map(|traffic| traffic.choice) {
            None => "",
            Some(ExchangeChoice::Shuffle) => ", shuffled",
            Some(ExchangeChoice::Broadcast) if sent == 0 && kept > 0 => ", stayed",
            Some(ExchangeChoice::Broadcast) => ", broadcast",
        };
        let (rows, bytes) = (sent + kept, sum(|traffic| traffic.received_bytes));
        let heavy = heavy_text(sum(|traffic| traffic.heavy_rows));
        lines
            .push(format!("{exchange}{choice}: rows={rows} kept={kept}{heavy} bytes={bytes} skew={skew:.2}"));
        for traffic in of_ranks {
            lines.push(format!("  {}", traffic_line(traffic, with_times)));
        }
    }
    if !lines.is_empty() {
        writer.lines("Exchanges", &lines);
    }
}

/// How many rows stayed because their keys are heavy, if any did.
fn heavy_text(rows: u64) -> String {
    if rows == 0 { String::new() } else { format!(" heavy={rows}") }
}

fn traffic_line(traffic: &ExchangeTraffic, with_times: bool) -> String {
    let ExchangeTraffic { rank, sent_rows, kept_rows, sent_bytes, received_rows, received_bytes, .. } =
        traffic;
    let narrowed = match traffic.sent_wide_bytes {
        wide_bytes if wide_bytes > *sent_bytes => format!(" narrowed from {wide_bytes}"),
        _ => String::new(),
    };
    // With two ranks, each knows the other one.
    let partners = match traffic.partners {
        0 | 1 => String::new(),
        partners => format!(" to {partners} ranks"),
    };
    let heavy = heavy_text(traffic.heavy_rows);
    let mut line = format!(
        "rank {rank}: kept rows={kept_rows}{heavy}, sent rows={sent_rows} bytes={sent_bytes}{narrowed}{partners}, received rows={received_rows} bytes={received_bytes}"
    );
    if with_times {
        // Bytes a microsecond are megabytes a second.
        let bytes = traffic.received_bytes.max(traffic.sent_bytes);
        // A few blocks on their way together say nothing of how fast the network is.
        if traffic.moving_us >= RATED_US_MIN {
            let rate = bytes as f64 / traffic.moving_us as f64 / 1000.0;
            line += &format!(", {rate:.2} GB/s in {}", micros(traffic.moving_us));
        }
        let [to_send, to_receive] = [traffic.send_wait_us, traffic.receive_wait_us].map(micros);
        line += &format!(", waited to send {to_send}, to receive {to_receive}");
    }
    line
}

fn write_reading(writer: &Writer, metrics: &QueryMetrics) {
    writer.number("Files", metrics.files_total);
    if metrics.files_pruned > 0 {
        writer.number("Files Pruned", metrics.files_pruned);
    }
    writer.number("Row Groups", metrics.row_groups_total);
    writer.number("Row Groups Pruned", metrics.row_groups_pruned);
}

fn write_cost(writer: &Writer, cost: &QueryCost, with_times: bool, hides_counts: bool) {
    let Some(metrics) = &cost.metrics else {
        writer.text("Engine Result", "not read to its end");
        return;
    };
    if hides_counts {
        return write_hidden(writer);
    }
    write_device(writer, "Ran On", metrics);
    write_ranks(writer, metrics, cost.run_count);
    write_traffic(writer, &metrics.exchanges, with_times);
    writer.bytes("Bytes Read", metrics.bytes_read);
    write_reading(writer, metrics);
    let (hits, misses) = (metrics.cache_hits, metrics.cache_misses);
    let cache = [("Column Cache Hits", Figure::Count(hits)), ("Column Cache Misses", Figure::Count(misses))];
    writer.figures("Column Cache", &format!("hits={hits} misses={misses}"), &cache);
    writer.bytes("Peak Engine Memory", metrics.memory_peak_bytes);
    if metrics.spilled_bytes > 0 {
        writer.bytes("Spilled Bytes", metrics.spilled_bytes);
    }
    if with_times {
        let working_us = metrics.elapsed_us.saturating_sub(metrics.blocked_us);
        let in_postgres = cost.elapsed.saturating_sub(cost.waited);
        let engine = format!("{} (prepare {})", micros(working_us), micros(metrics.prepare_us));
        let times = [("Engine Time", working_us), ("Engine Preparation Time", metrics.prepare_us)];
        writer.figures("Engine Time", &engine, &times.map(|(label, us)| (label, Figure::micros(us))));
        writer.time("Waited for Engine", cost.waited);
        writer.time("Time in Postgres", in_postgres);
    }
    if with_times && let Some(work) = &metrics.device_work {
        write_device_work(writer, metrics, work);
    }
    let operators: Vec<String> =
        metrics.operators.iter().map(|operator| operator_line(operator, with_times)).collect();
    if !operators.is_empty() {
        writer.lines("Engine Operators", &operators);
    }
}

/// What the device did, and how far the query is from the time that reading alone takes.
fn write_device_work(writer: &Writer, metrics: &QueryMetrics, work: &DeviceWork) {
    let device = format!("kernels {} copies {}", micros(work.kernel_us), micros(work.copy_us));
    let times = [("Kernel Time", work.kernel_us), ("Copy Time", work.copy_us)];
    writer.figures("Device Time", &device, &times.map(|(label, us)| (label, Figure::micros(us))));
    writer.bytes("Device Memory", work.memory_max_bytes);
    if metrics.bytes_read == 0 {
        return;
    }
    let rate = |bytes: u64, us: u64| bytes as f64 / 1000.0 / us.max(1) as f64;
    let storage = format!(
        "{} at {:.2} GB/s, of which {} with the device at work",
        micros(work.read_us),
        rate(metrics.bytes_read, work.read_us),
        micros(work.overlap_us)
    );
    let times = [("Storage Time", work.read_us), ("Storage Time with Device at Work", work.overlap_us)];
    writer.figures("Storage Time", &storage, &times.map(|(label, us)| (label, Figure::micros(us))));
    let paths: Vec<String> = metrics.storage_paths.iter().map(ToString::to_string).collect();
    if !paths.is_empty() {
        writer.text("Storage Path", &paths.join(", "));
    }
    let bandwidth = match settings::storage_bandwidth() {
        0 => work.read_rate_max,
        bandwidth => bandwidth,
    };
    if bandwidth > 0 {
        let least_us = (metrics.bytes_read as f64 / bandwidth as f64 * 1e6) as u64;
        let ratio = metrics.elapsed_us as f64 / least_us.max(1) as f64;
        let least = format!(
            "{} at {:.2} GB/s, and this was {ratio:.2} times it",
            micros(least_us),
            bandwidth as f64 / 1e9
        );
        let figures = [("T_min", Figure::micros(least_us)), ("Times T_min", Figure::Ratio(ratio))];
        writer.figures("T_min", &least, &figures);
    }
}

fn operator_line(operator: &OperatorMetrics, with_times: bool) -> String {
    let mut facts = Vec::new();
    if let Some(rows) = operator.row_count {
        facts.push(format!("rows={rows}"));
    }
    if let Some(elapsed_us) = operator.elapsed_us.filter(|_| with_times) {
        facts.push(format!("time={}", micros(elapsed_us)));
    }
    let counters = operator.counters.iter().filter(|(name, _)| with_times || !name.ends_with("_us"));
    facts.extend(counters.map(|(name, value)| format!("{name}={value}")));
    let indent = "  ".repeat(operator.depth as usize);
    match facts.is_empty() {
        true => format!("{indent}{}", operator.description),
        false => format!("{indent}{}  ({})", operator.description, facts.join(" ")),
    }
}

fn micros(microseconds: u64) -> String {
    millis(Duration::from_micros(microseconds))
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}

/// What programs read in a format for them.
#[derive(Clone, Copy)]
enum Figure {
    Count(u64),
    /// In milliseconds.
    Time(f64),
    Ratio(f64),
}

impl Figure {
    fn micros(microseconds: u64) -> Self {
        Self::Time(microseconds as f64 / 1000.0)
    }
}

/// Writes properties of a node.
pub struct Writer {
    explain: *mut pg_sys::ExplainState,
}

impl Writer {
    /// Writes into the state of an EXPLAIN.
    ///
    /// # Safety
    ///
    /// The state is valid as long as the writer.
    pub unsafe fn new(explain: *mut pg_sys::ExplainState) -> Self {
        Self { explain }
    }

    /// A text.
    pub fn text(&self, label: &str, value: &str) {
        let (label, value) = (to_shown(label), to_shown(value));
        // SAFETY: both are C strings, and PostgreSQL copies them.
        unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), self.explain) };
    }

    /// A number.
    pub fn number(&self, label: &str, value: u64) {
        let label = to_shown(label);
        // SAFETY: as above; no unit.
        unsafe {
            pg_sys::ExplainPropertyUInteger(label.as_ptr(), std::ptr::null(), value, self.explain);
        }
    }

    /// A number of bytes.
    pub fn bytes(&self, label: &str, value: u64) {
        let label = to_shown(label);
        // SAFETY: as above; the unit is shown in text.
        unsafe {
            pg_sys::ExplainPropertyUInteger(label.as_ptr(), c"bytes".as_ptr(), value, self.explain);
        }
    }

    fn time(&self, label: &str, time: Duration) {
        self.float(label, Some(c"ms"), time.as_secs_f64() * 1000.0);
    }

    fn float(&self, label: &str, unit: Option<&CStr>, value: f64) {
        let (label, unit) = (to_shown(label), unit.map_or(std::ptr::null(), CStr::as_ptr));
        // SAFETY: as above; three digits, as PostgreSQL shows times.
        unsafe { pg_sys::ExplainPropertyFloat(label.as_ptr(), unit, value, 3, self.explain) };
    }

    /// Some figures: in text one line for all of them, in formats for programs each by itself.
    fn figures(&self, label: &str, text: &str, figures: &[(&str, Figure)]) {
        // SAFETY: EXPLAIN's own state.
        if unsafe { (*self.explain).format } == pg_sys::ExplainFormat::EXPLAIN_FORMAT_TEXT {
            return self.text(label, text);
        }
        for (label, figure) in figures {
            match figure {
                Figure::Count(count) => self.number(label, *count),
                Figure::Time(milliseconds) => self.float(label, Some(c"ms"), *milliseconds),
                Figure::Ratio(ratio) => self.float(label, None, *ratio),
            }
        }
    }

    /// A list: in text one line each, below the label.
    fn lines(&self, label: &str, lines: &[String]) {
        let label_text = to_shown(label);
        // SAFETY: EXPLAIN's own state; its functions copy what they are given.
        unsafe {
            if (*self.explain).format == pg_sys::ExplainFormat::EXPLAIN_FORMAT_TEXT {
                let indent = (*self.explain).indent;
                self.line(indent, &format!("{label}:"));
                for line in lines {
                    self.line(indent + 1, line);
                }
                return;
            }
            let items = lines.iter().fold(std::ptr::null_mut(), |list, line| {
                let item = pg_sys::pstrdup(to_shown(line).as_ptr());
                pg_sys::lappend(list, item.cast())
            });
            pg_sys::ExplainPropertyList(label_text.as_ptr(), items, self.explain);
        }
    }

    unsafe fn line(&self, indent: i32, line: &str) {
        // SAFETY: as of `lines`.
        unsafe {
            let target = (*self.explain).str_;
            pg_sys::appendStringInfoSpaces(target, indent * 2);
            pg_sys::appendStringInfoString(target, to_shown(line).as_ptr());
            pg_sys::appendStringInfoString(target, c"\n".as_ptr());
        }
    }
}
