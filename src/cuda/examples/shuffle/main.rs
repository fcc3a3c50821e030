//! How fast ranks shuffle: what the network can do, and what an exchange makes of it.
//!
//! ```text
//! shuffle [--ranks 2] [--emulated] [--sizes-mb 1,4,16,64,256,1024] [--columns 1,2,4,10] [--rows-mb 4096] [--chunk-rows 4194304]
//!         [--runs 3] [--links p2p,host] [--raw-only] [--out FILE] [--limit-s 120]
//! ```
//!
//! A rank is a process of this program, one a GPU; with `--emulated` it is a thread with an emulated device. Results are a table, and JSON
//! in a file.
//!
//! Bytes are carried by NCCL, out of a region that is registered with it and one that is not, and by copies between GPUs that read each
//! other's memory. What an engine uses here is measured in all variants.
//!
//! - `raw`: all-to-all of bytes through the communicator: each rank sends so many to others in a group, spread evenly
//! - `first`: the first blocks that ranks send each other after they were connected, and those after them
//! - `gather`: what a round costs that moves nothing: bytes of a control block told to all
//! - `rows`: rows of columns of 8 bytes through an exchange: spread by the hash of the first one, packed, sent, unpacked; not with `--raw-only`.
//!   `narrowed`: values of 32 bits, which leave as such; `nothing to narrow`: of 64, which are looked at and leave as they are
//!
//! Links are GPUs that copy to each other (`p2p`), or through memory of the host (`host`: `NCCL_P2P_DISABLE=1`), about as fast as
//! a network of 200 Gbit/s. A measurement that fails is named, with its reason, and the others go on; the program fails then. Every figure is that of the slowest rank. Bytes count once, where they are sent, and those that stay on
//! their rank do not count, but for `rows_gb_s`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a benchmark fails by a panic")]

#[path = "../../tests/gpu/ranks.rs"]
mod ranks;
mod raw;
mod report;
mod rows;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use pystachio_cuda::{
    CudaPlatform,
    nccl::{NcclOptions, check_library},
};
use pystachio_gpu::exchange::Rank;
use ranks::{Carrier, Member, RankProcess, leave_file, wait_for_file};
use serde_json::{Value, json};

const MB: u64 = 1 << 20;

/// What is measured.
#[derive(Clone, Debug)]
struct Options {
    ranks: usize,
    is_emulated: bool,
    is_raw_only: bool,
    sizes: Vec<u64>,
    columns: Vec<usize>,
    rows_bytes: u64,
    chunk_rows: usize,
    runs: usize,
    links: Vec<String>,
    out: Option<String>,
    limit: Duration,
    /// Of a process that is a rank: which one, and the folder that all have.
    rank: Option<(u16, String)>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let value = |name: &str| {
            let place = arguments.iter().position(|argument| argument == name)?;
            arguments.get(place + 1).cloned()
        };
        let number = |name: &str, default: u64| match value(name) {
            Some(text) => text.parse::<u64>().map_err(|error| format!("{name} {text}: {error}")),
            None => Ok(default),
        };
        let numbers = |name: &str, default: &str| {
            let text = value(name).unwrap_or_else(|| default.to_owned());
            let parse = |part: &str| part.parse::<u64>().map_err(|error| format!("{name} {text}: {error}"));
            text.split(',').map(parse).collect::<Result<Vec<u64>, String>>()
        };
        let rank = value("--rank").zip(value("--folder"));
        Ok(Self {
            ranks: number("--ranks", 2)? as usize,
            is_emulated: arguments.iter().any(|argument| argument == "--emulated"),
            is_raw_only: arguments.iter().any(|argument| argument == "--raw-only"),
            sizes: numbers("--sizes-mb", "1,4,16,64,256,1024")?.into_iter().map(|size| size * MB).collect(),
            columns: numbers("--columns", "1,2,4,10")?.into_iter().map(|count| count as usize).collect(),
            rows_bytes: number("--rows-mb", 4096)? * MB,
            chunk_rows: number("--chunk-rows", 4 << 20)? as usize,
            runs: number("--runs", 3)? as usize,
            links: value("--links")
                .unwrap_or_else(|| "p2p,host".to_owned())
                .split(',')
                .map(str::to_owned)
                .collect(),
            out: value("--out"),
            limit: Duration::from_secs(number("--limit-s", 120)?),
            rank: rank.map(|(rank, folder)| (rank.parse().unwrap_or(u16::MAX), folder)),
        })
    }

    /// Two messages of the largest size, or the boxes of an exchange.
    fn region_bytes(&self) -> u64 {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        (2 * largest + 64 * MB).max(2 * rows::buffer_bytes(self) + 64 * MB)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = Options::read(&arguments).unwrap_or_else(|error| panic!("{error}"));
    if let Some((rank, folder)) = &options.rank {
        let folder = Path::new(folder);
        let member = Member::on_gpu(Rank(*rank), options.ranks, folder, options.region_bytes());
        let member = member.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        measure(&member, &options, folder);
        return;
    }
    let results = match options.is_emulated {
        true => on_emulated_ranks(&options),
        false => on_gpus(&options, &arguments),
    };
    print!("{}", report::table(&results, &options));
    if let Some(out) = &options.out {
        let report = json!({ "ranks": options.ranks, "device": device(&options), "results": results });
        std::fs::write(out, format!("{report:#}\n")).unwrap_or_else(|error| panic!("{out}: {error}"));
    }
    if !report::failures(&results).is_empty() {
        std::process::exit(1);
    }
}

fn device(options: &Options) -> String {
    match options.is_emulated {
        true => "emulated".to_owned(),
        false => {
            CudaPlatform::open(0).map_or_else(|error| error.to_string(), |gpu| gpu.description().to_owned())
        }
    }
}

/// What one rank measures, in the same order on all of them. What there is is left after each step, whatever becomes of the next one.
fn measure(member: &Member, options: &Options, folder: &Path) -> Vec<Value> {
    let mut results: Vec<Value> = Vec::new();
    let name = format!("results-{}", member.rank);
    let mut generations = 0..;
    let nccl = |registers_region| Carrier::Nccl(NcclOptions { registers_region, ..NcclOptions::default() });
    // What an engine uses comes last.
    let mut carriers = vec![("registered", nccl(true)), ("nccl", nccl(false))];
    if member.reaches_others {
        carriers.push(("copies", Carrier::Direct));
    }
    let used = carriers.len() - 1;
    for (place, (carrier_name, carrier)) in
        carriers.into_iter().enumerate().skip(if options.is_emulated { used } else { 0 })
    {
        let mut next = || generations.next().unwrap_or(u64::MAX);
        results.extend(raw::measure(member, options, folder, (next(), (carrier_name, carrier))));
        leave_file(folder, &name, json!(results).to_string().as_bytes());
        let of_rows = if options.is_raw_only {
            Vec::new()
        } else {
            rows::variants(options, (carrier_name, carrier), place == used)
        };
        for variant in of_rows {
            results.push(rows::measure(member, options, folder, (next(), variant)));
            leave_file(folder, &name, json!(results).to_string().as_bytes());
        }
    }
    results
}

fn on_emulated_ranks(options: &Options) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let members = Member::emulated(options.ranks, 0, options.region_bytes()).expect("emulated ranks");
    let of_ranks = thread::scope(|scope| {
        let start = |member| {
            let path = folder.path();
            scope.spawn(move || measure(&member, options, path))
        };
        let threads: Vec<_> = members.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    report::slowest(of_ranks, "emulated")
}

fn on_gpus(options: &Options, arguments: &[String]) -> Vec<Value> {
    match CudaPlatform::count() {
        Ok(count) if count as usize >= options.ranks => {}
        Ok(count) => panic!("{} ranks need as many GPUs: there are {count}", options.ranks),
        Err(error) => panic!("{error}"),
    }
    if let Err(error) = check_library() {
        panic!("{error}: {}", error.hint.as_deref().unwrap_or_default());
    }
    let mut results = Vec::new();
    for links in &options.links {
        match on_gpus_over(links, options, arguments) {
            Ok((measured, failures)) => {
                results.extend(measured);
                failures.iter().for_each(|failure| eprintln!("{links}: {failure}"));
            }
            Err(reason) => eprintln!("{links}: {reason}"),
        }
    }
    results
}

/// Starts a process for each rank, and puts their results together: what all ranks have, and what failed.
fn on_gpus_over(
    links: &str,
    options: &Options,
    arguments: &[String],
) -> Result<(Vec<Value>, Vec<String>), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().display().to_string();
    let mut environment = vec![];
    if links == "host" {
        environment.push(("NCCL_P2P_DISABLE", "1".to_owned()));
    }
    let start = |rank: usize| {
        let number = rank.to_string();
        let own = ["--rank", &number, "--folder", &path];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(own).collect();
        RankProcess::start(&arguments, &environment, folder.path().join(format!("log-{rank}")))
    };
    let processes: Result<Vec<_>, _> = (0..options.ranks).map(start).collect();
    let mut processes = processes.map_err(|error| error.to_string())?;
    let (mut of_ranks, mut failures) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for (rank, process) in processes.iter_mut().enumerate() {
        let left = options.limit.saturating_sub(begun.elapsed()).max(Duration::from_secs(1));
        if let Err(reason) = process.wait(left) {
            failures.push(format!("rank {rank}: {reason}"));
        }
        let text = wait_for_file(folder.path(), &format!("results-{rank}"), Duration::ZERO);
        let results: Option<Vec<Value>> = text.and_then(|text| serde_json::from_slice(&text).ok());
        of_ranks.push(results.unwrap_or_default());
    }
    Ok((report::slowest(of_ranks, links), failures))
}
