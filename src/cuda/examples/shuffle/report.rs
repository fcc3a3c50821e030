//! Results of all ranks as one, and as a table.

use std::fmt::Write;

use serde_json::Value;

use super::{MB, Options};

/// The kind of a result that there is none of.
const FAILED: &str = "failed";

/// Measurements that failed, a line each.
pub fn failures(results: &[Value]) -> Vec<String> {
    let failed = results.iter().filter(|result| result["kind"] == FAILED);
    let line = |result: &Value| {
        let [links, variant, columns, reason] =
            ["links", "variant", "columns", "reason"].map(|name| text(&result[name]));
        format!("{links} {variant}, {columns} columns: not measured: {reason}")
    };
    failed.map(line).collect()
}

/// Results whose seconds are those of the slowest rank in each run.
pub fn slowest(of_ranks: Vec<Vec<Value>>, links: &str) -> Vec<Value> {
    let common = of_ranks.iter().map(Vec::len).min().unwrap_or(0);
    let mut of_ranks = of_ranks.into_iter();
    let mut results = of_ranks.next().unwrap_or_default();
    results.truncate(common);
    for other in of_ranks {
        for (result, other) in results.iter_mut().zip(other) {
            if [&*result, &other].iter().any(|result| result["kind"] == FAILED) {
                // Why it failed first on one rank, others heard from it.
                if result["kind"] != FAILED {
                    *result = other;
                }
                continue;
            }
            let slowest: Vec<f64> =
                seconds(result).into_iter().zip(seconds(&other)).map(|(a, b)| a.max(b)).collect();
            result["seconds"] = slowest.into();
        }
    }
    for result in &mut results {
        result["links"] = links.into();
        let best = best(result);
        for (bytes, rate) in [("bytes", "gb_s"), ("rows_bytes", "rows_gb_s")] {
            if let Some(bytes) = result[bytes].as_f64() {
                result[rate] = (bytes / best / 1e9).into();
            }
        }
    }
    results
}

fn seconds(result: &Value) -> Vec<f64> {
    result["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

fn best(result: &Value) -> f64 {
    seconds(result).into_iter().fold(f64::INFINITY, f64::min)
}

fn figure(result: &Value, name: &str) -> f64 {
    result[name].as_f64().unwrap_or(0.0)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Figures that a person looks at first.
pub fn table(results: &[Value], options: &Options) -> String {
    let mut table = String::new();
    let of = |kind: &'static str| results.iter().filter(move |result| result["kind"] == kind);
    for result in of("connect") {
        let (links, variant) = (text(&result["links"]), text(&result["variant"]));
        let _ = writeln!(table, "connect {links} {variant}: {:.3} s", best(result));
    }
    for result in of("first") {
        let (links, variant) = (text(&result["links"]), text(&result["variant"]));
        let ms: Vec<f64> = seconds(result).into_iter().map(|seconds| seconds * 1e3).collect();
        if let [first, later] = ms.as_slice() {
            let _ = writeln!(table, "first blocks {links} {variant}: {first:.1} ms, then {later:.1} ms");
        }
    }
    for result in of("gather") {
        let (links, variant) = (text(&result["links"]), text(&result["variant"]));
        let us = |seconds: f64| seconds * 1e6;
        let [p90, p99] = ["p90", "p99"].map(|part| us(result[part].as_f64().unwrap_or(0.0)));
        let _ = writeln!(
            table,
            "gather {links} {variant}: {:.1} us, 90 % within {p90:.1}, 99 % within {p99:.1}",
            us(best(result))
        );
    }
    let sizes: String =
        options.sizes.iter().map(|size| format!("{:>9}", format!("{} MB", size / MB))).collect();
    let _ = writeln!(table, "\n{:34}{sizes}", "raw, GB/s a rank, off the rank");
    let mut rows: Vec<(String, String)> = Vec::new();
    for result in of("raw") {
        let name = format!(
            "{} {}, {} on their way",
            text(&result["links"]),
            text(&result["variant"]),
            text(&result["depth"])
        );
        let figure = format!("{:9.1}", result["gb_s"].as_f64().unwrap_or(0.0));
        match rows.iter_mut().find(|(of, _)| *of == name) {
            Some((_, figures)) => figures.push_str(&figure),
            None => rows.push((name, figure)),
        }
    }
    rows.iter().for_each(|(name, figures)| {
        let _ = writeln!(table, "{name:34}{figures}");
    });
    let raw = |links: &Value| {
        let of_links = of("raw").filter(|result| result["links"] == *links);
        of_links.filter_map(|result| result["gb_s"].as_f64()).fold(0.0, f64::max)
    };
    let _ = writeln!(
        table,
        "\n{:34}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>11}",
        "rows", "columns", "GB/s off", "of raw", "GB/s all", "sent", "sender s", "receiver s"
    );
    for result in of("rows") {
        let rate = result["gb_s"].as_f64().unwrap_or(0.0);
        let _ = writeln!(
            table,
            "{:34}{:>9}{rate:9.1}{:8.0}%{:9.1}{:8.0}%{:11.3}{:11.3}",
            format!("{} {}", text(&result["links"]), text(&result["variant"])),
            text(&result["columns"]),
            100.0 * rate / raw(&result["links"]).max(f64::MIN_POSITIVE),
            result["rows_gb_s"].as_f64().unwrap_or(0.0),
            100.0 * figure(result, "sent_bytes") / figure(result, "sent_wide_bytes").max(1.0),
            result["producers_waited_s"].as_f64().unwrap_or(0.0),
            result["consumers_waited_s"].as_f64().unwrap_or(0.0),
        );
    }
    for failure in failures(results) {
        let _ = writeln!(table, "{failure}");
    }
    let _ = writeln!(
        table,
        "(GB/s: of rows as they are; sent: bytes of blocks, of those without narrowing; sender s, receiver s: seconds that these waited on rank 0 in the last run)"
    );
    table
}
