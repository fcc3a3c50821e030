//! Ranks that are killed or stopped.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use pystachio_gpu::exchange::{NetworkOptions, Rank};
use pystachio_plan::ErrorKind;

use super::{
    GENERATION, Member, RANK_TIME_MAX, are_gpus_there, blocks, network, one_at_a_time, options, say,
    start_rank,
};
use crate::gpu::ranks::{leave_file, wait_for_file};

/// What a rank that is silent is waited for in these tests.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A rank has ended by then: its deadline for another rank's part of a group, and the end of connections.
const END_MAX: Duration = Duration::from_secs(9);
/// A communicator of the next generation works by then, the start of the new process included.
const AGAIN_MAX: Duration = Duration::from_secs(5);

fn impatient(generation: u64) -> NetworkOptions {
    NetworkOptions { generation, silence_max: SILENCE_MAX, ..options() }
}

/// Shuffles until that ends; goes on with a communicator of the next generation. One that begins with the next one only does that.
pub fn survive(member: &Member, folder: &Path) {
    let generation: u64 = std::env::var(GENERATION).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if generation == 0 {
        let network = network(member, impatient(0));
        say(member, "connected");
        let name = format!("begun-{}", member.rank);
        let error = blocks::shuffle_for_ever(member, &network, || leave_file(folder, &name, b""))
            .expect_err("it is for ever");
        say(member, &format!("ended by: {error}"));
        assert_eq!(error.kind, ErrorKind::Peer, "{error}");
        assert!(error.message.contains("rank 1 "), "{error}");
        drop(network);
        leave_file(folder, &format!("ended-{}", member.rank), error.message.as_bytes());
    }
    let begun = Instant::now();
    let again = blocks::run_once(member, folder, impatient(1));
    say(member, &format!("again after {:?}: {again:?}", begun.elapsed()));
    again.unwrap();
}

/// Two ranks shuffle; rank 1 gets a signal and does nothing more; rank 0 says so in time, and goes on with another rank 1.
pub fn replace_rank(signal: i32) {
    let _turn = one_at_a_time();
    if !are_gpus_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut survivor = start_rank("survivor", 0, folder, 0);
    let mut lost = start_rank("survivor", 1, folder, 0);
    for rank in [Rank(0), Rank(1)] {
        let begun = wait_for_file(folder, &format!("begun-{rank}"), RANK_TIME_MAX);
        assert!(begun.is_some(), "{}\n{}", survivor.log_end(), lost.log_end());
    }
    lost.signal(signal);
    let signalled = Instant::now();
    let ended = wait_for_file(folder, "ended-0", END_MAX);
    let Some(reason) = ended else { panic!("rank 0 has not ended: {}", survivor.log_end()) };
    println!("rank 0 ended after {:?}: {}", signalled.elapsed(), String::from_utf8_lossy(&reason));
    let ended = Instant::now();
    lost.kill();
    let mut replacement = start_rank("survivor", 1, folder, 1);
    let again = wait_for_file(folder, "again-0", RANK_TIME_MAX);
    let took = ended.elapsed();
    println!("and went on after {took:?}");
    assert!(again.is_some(), "{}\n{}", survivor.log_end(), replacement.log_end());
    for rank in [&mut survivor, &mut replacement] {
        rank.wait(RANK_TIME_MAX).unwrap_or_else(|reason| panic!("{reason}"));
        rank.show_steps();
    }
    assert!(took < AGAIN_MAX, "it took {took:?} to go on");
}
