//! Exchanges between GPUs over NCCL: rows and blocks arrive once, whatever their sizes; a rank that is killed, stopped or gives up ends
//! all others in time, by its name, and those that are left go on with another one.
//!
//! A rank is a process of this program, one a GPU, or a thread. Without two GPUs, or without libnccl, the tests say so and pass; with
//! `PYSTACHIO_REQUIRE_GPUS=2` that is a failure. What ranks do is tried over emulated devices too, whatever the host has.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "exchange/blocks.rs"]
mod blocks;
#[path = "exchange/faults.rs"]
mod faults;
mod gpu;
#[path = "exchange/rows.rs"]
mod rows;
#[path = "exchange/transfers.rs"]
mod transfers;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use gpu::ranks::{Carrier, Member, RankProcess};
use pystachio_cuda::{CudaPlatform, nccl::check_library};
use pystachio_gpu::exchange::{NetworkOptions, Rank};

/// No rank of a test takes as long.
const RANK_TIME_MAX: Duration = Duration::from_secs(90);
const REGION_BYTES: u64 = 1 << 30;
/// Of emulated devices: as much memory of the host for each rank.
const EMULATED_REGION_BYTES: u64 = 128 << 20;
/// Variables of a process that is a rank: what it does, which rank it is, of how many, and the folder that all have.
const PART: &str = "PYSTACHIO_TEST_PART";
const RANK: &str = "PYSTACHIO_TEST_RANK";
const RANK_COUNT: &str = "PYSTACHIO_TEST_RANK_COUNT";
const FOLDER: &str = "PYSTACHIO_TEST_RANK_FOLDER";
/// Which generation a rank begins with, and whether it is there until it is killed.
const GENERATION: &str = "PYSTACHIO_TEST_GENERATION";

/// What one rank does in a test.
type Part = fn(&Member, &Path);

const PARTS: [(&str, Part); 9] = [
    ("transfers", transfers::move_parts),
    ("registered", transfers::move_registered_parts),
    ("copies", transfers::copy_parts),
    ("absence", transfers::be_absent_or_give_up),
    ("blocks", blocks::move_blocks),
    ("many", blocks::move_many_exchanges),
    ("rows", rows::move_rows),
    ("survivor", faults::survive),
    ("threads", |_, _| panic!("threads are started by their process")),
];

/// GPUs are for one test at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are two GPUs and what connects them. Says why not, and with `PYSTACHIO_REQUIRE_GPUS=2` fails then.
fn are_gpus_there() -> bool {
    if gpu::is_set("PYSTACHIO_SANITIZED") {
        println!("skipped: several processes under a sanitizer");
        return false;
    }
    let reason = match CudaPlatform::count() {
        Ok(count) if count >= 2 => match check_library() {
            Ok(()) => return true,
            Err(error) => error.to_string(),
        },
        Ok(count) => format!("there are {count} GPUs, and two are needed"),
        Err(error) => error.to_string(),
    };
    let is_required = std::env::var("PYSTACHIO_REQUIRE_GPUS").is_ok_and(|count| count != "0");
    assert!(!is_required, "{reason}");
    println!("skipped: {reason}");
    false
}

/// Starts a process that is a rank.
fn start_rank(part: &str, rank: u16, folder: &Path, generation: u64) -> RankProcess {
    let environment = [
        (PART, part.to_owned()),
        (RANK, rank.to_string()),
        (RANK_COUNT, "2".to_owned()),
        (FOLDER, folder.display().to_string()),
        (GENERATION, generation.to_string()),
    ];
    let arguments = ["--exact", "a_process_that_is_a_rank", "--nocapture", "--test-threads=1"];
    let log = folder.join(format!("rank-{rank}-{generation}.log"));
    RankProcess::start(&arguments, &environment, log).expect("a process")
}

/// Two processes that are ranks do their part.
fn on_two_gpus(part: &str) {
    let _turn = one_at_a_time();
    if !are_gpus_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut ranks: Vec<RankProcess> = (0..2).map(|rank| start_rank(part, rank, folder.path(), 0)).collect();
    let done: Vec<_> = ranks.iter_mut().map(|rank| rank.wait(RANK_TIME_MAX)).collect();
    for (rank, done) in done.into_iter().enumerate() {
        done.unwrap_or_else(|reason| panic!("{part}, rank {rank}: {reason}"));
    }
    ranks.iter().for_each(RankProcess::show_steps);
}

/// Threads that are ranks do their part.
fn on_threads(members: Vec<Member>, part: Part, folder: &Path) {
    thread::scope(|scope| {
        for member in members {
            scope.spawn(move || part(&member, folder));
        }
    });
}

fn on_emulated_ranks(rank_count: usize, seed: u64, part: Part) {
    let folder = tempfile::tempdir().expect("a folder");
    let members = Member::emulated(rank_count, seed, EMULATED_REGION_BYTES).expect("emulated ranks");
    on_threads(members, part, folder.path());
}

fn options() -> NetworkOptions {
    NetworkOptions {
        block_bytes_max: 1 << 20,
        gather_bytes_min: 1 << 20,
        round_bytes_max: 4 << 20,
        ..NetworkOptions::default()
    }
}

/// Not a test of its own: what another one starts as a process that is a rank.
#[test]
fn a_process_that_is_a_rank() {
    let variable = |name| std::env::var(name).ok();
    let Some(part) = variable(PART) else { return };
    let folder = variable(FOLDER).expect("a folder");
    let folder = Path::new(&folder);
    let number = |name| variable(name).and_then(|value| value.parse::<u16>().ok()).expect("a number");
    let rank_count = usize::from(number(RANK_COUNT));
    let open = |rank: u16| Member::on_gpu(Rank(rank), rank_count, folder, REGION_BYTES).expect("a rank");
    if part == "threads" {
        for part in [transfers::move_parts, blocks::move_blocks] as [Part; 2] {
            // Each part has names of its own for what it leaves in the folder.
            let _ = std::fs::remove_file(folder.join("id-0"));
            on_threads((0..rank_count as u16).map(open).collect(), part, folder);
        }
        return;
    }
    let (_, run) = PARTS.iter().find(|(name, _)| *name == part).expect("a part");
    run(&open(number(RANK)), folder);
    println!("rank {} has done its part", number(RANK));
}

#[test]
fn parts_of_any_size_arrive_between_emulated_ranks() {
    for seed in [0, 1] {
        on_emulated_ranks(3, seed, transfers::move_parts);
    }
}

#[test]
fn parts_of_any_size_arrive_between_gpus() {
    on_two_gpus("transfers");
}

#[test]
fn parts_of_a_registered_region_arrive_between_gpus() {
    on_two_gpus("registered");
}

#[test]
fn parts_arrive_between_gpus_that_read_each_others_memory() {
    on_two_gpus("copies");
}

#[test]
fn who_is_absent_is_named_and_who_gives_up_begins_again() {
    on_two_gpus("absence");
}

#[test]
fn every_block_arrives_once_between_emulated_ranks() {
    on_emulated_ranks(2, 2, blocks::move_blocks);
    on_emulated_ranks(2, 0, blocks::move_many_exchanges);
}

#[test]
fn every_block_arrives_once_between_gpus() {
    on_two_gpus("blocks");
}

#[test]
fn many_exchanges_of_several_queries_move_at_once_between_gpus() {
    on_two_gpus("many");
}

#[test]
fn rows_arrive_once_and_equal_keys_together_between_emulated_ranks() {
    on_emulated_ranks(2, 0, rows::move_rows);
}

#[test]
fn rows_arrive_once_and_equal_keys_together_between_gpus() {
    on_two_gpus("rows");
}

#[test]
fn ranks_may_be_threads_of_one_process() {
    let _turn = one_at_a_time();
    if !are_gpus_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = start_rank("threads", 0, folder.path(), 0);
    process.wait(RANK_TIME_MAX).unwrap_or_else(|reason| panic!("{reason}"));
    process.show_steps();
}

#[test]
fn a_killed_rank_ends_the_other_in_time_and_is_replaced() {
    faults::replace_rank(libc::SIGKILL);
}

#[test]
fn a_stopped_rank_ends_the_other_in_time_and_is_replaced() {
    faults::replace_rank(libc::SIGSTOP);
}

/// What ranks of one part have in common: a line for each step, so that a log says how far it came.
fn say(member: &Member, text: &str) {
    println!("rank {}: {text}", member.rank);
}

/// The same result for the same numbers, on every rank.
fn mixed(numbers: &[u64]) -> u64 {
    let mix = |sum: u64, number: &u64| {
        let mut mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 29;
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
    };
    numbers.iter().fold(0x1234_5678_9abc_def1, mix)
}

/// Ends a rank's part that waits for too long.
fn deadline(what: &str) -> impl FnMut() + use<> {
    let (begun, what) = (std::time::Instant::now(), what.to_owned());
    move || {
        assert!(begun.elapsed() < RANK_TIME_MAX, "{what} takes too long");
        thread::yield_now();
    }
}

/// The network of a rank.
fn network(member: &Member, options: NetworkOptions) -> Arc<pystachio_gpu::exchange::ExchangeNetwork> {
    member.network(options).unwrap_or_else(|error| panic!("rank {}: {error}", member.rank))
}
