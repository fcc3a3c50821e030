//! The executable with ranks in processes of their own: they come, are started anew when they are lost, and leave nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use pystachio_plan::{
    EngineStatus, FRAME_HEADER_BYTES, FrameHeader, Greeting, RankStatus, Request, Response, decode_message,
    encode_message,
};

/// How long anything may take before a test fails, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

/// An engine with some ranks.
struct TestEngine {
    child: Child,
    folder: tempfile::TempDir,
}

impl TestEngine {
    fn start(ranks: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let ordinals: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pystachio-engine"));
        command
            .arg(format!("--socket={}", path("home/socket")))
            .args(["--device=emulated", "--rank-policy=all", "--rank-processes=own", "--threads=1"])
            .args(["--memory=268435456", "--cache=0", "--device-memory=100%", "--pinned-cache=0"])
            .args(["--device-timeout=60", "--affinity=optimal", "--name=ranks"])
            .arg(format!("--ranks={ranks}"))
            .arg(format!("--device-ordinals={}", ordinals.join(",")))
            .arg(format!("--spill-directory={}", path("spill")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        Self { child, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("home/socket")
    }

    /// How it is, if it answers.
    fn status(&self) -> Option<EngineStatus> {
        let mut stream = UnixStream::connect(self.socket()).ok()?;
        stream.write_all(&Greeting::own("test").encode()).ok()?;
        Greeting::read(&mut stream).ok()?;
        match ask(&mut stream, &Request::Status)? {
            Response::Status(status) => Some(status),
            other => panic!("no status: {other:?}"),
        }
    }

    /// The ranks, once they are all connected in a generation after `generation`, and the new one.
    fn wait_connected(&self, generation: u64) -> (u64, Vec<RankStatus>) {
        wait_for("ranks are connected", || {
            let status = self.status()?;
            let is_running = status.ranks.iter().all(|rank| rank.state == "running");
            let now = status.generation?;
            (is_running && now > generation).then_some((now, status.ranks))
        })
    }

    /// Folders for spill files, by their processes.
    fn spill_pids(&self) -> BTreeSet<u32> {
        let entries = fs::read_dir(self.folder.path().join("spill")).unwrap();
        let pid = |name: String| name.rsplit('_').nth(1).unwrap().parse().unwrap();
        entries.map(|entry| pid(entry.unwrap().file_name().into_string().unwrap())).collect()
    }

    fn signal(&self, pid: u32, signal: &str) {
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(stream: &mut UnixStream, request: &Request) -> Option<Response> {
    stream.write_all(&encode_message(request).ok()?).ok()?;
    let mut head = [0; FRAME_HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; FrameHeader::decode(head).ok()?.body_bytes];
    stream.read_exact(&mut body).ok()?;
    decode_message(&body).ok()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn pids(ranks: &[RankStatus]) -> BTreeSet<u32> {
    ranks.iter().map(|rank| rank.pid.unwrap()).collect()
}

#[test]
fn ranks_come_are_started_anew_and_leave_nothing() {
    let mut engine = TestEngine::start(3);
    let (first, ranks) = engine.wait_connected(0);
    assert_eq!(ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [1, 2]);
    let (killed, kept) = (ranks[0].pid.unwrap(), ranks[1].pid.unwrap());
    engine.signal(killed, "-9");
    let (second, ranks) = engine.wait_connected(first);
    assert!(ranks[0].pid != Some(killed) && ranks[1].pid == Some(kept), "{ranks:?}");
    assert_eq!((ranks[0].restarts, ranks[1].restarts), (1, 0));
    let reason = ranks[0].last_error.as_deref().unwrap();
    assert!(reason.contains(&format!("process {killed} was killed by signal 9")), "{reason}");
    wait_for("the rank is waited for", || (!is_there(killed)).then_some(()));

    // One that is asked to end is no less wanted.
    engine.signal(kept, "-TERM");
    let (_, ranks) = engine.wait_connected(second);
    assert!(!pids(&ranks).contains(&kept));
    let alive: BTreeSet<u32> = pids(&ranks).into_iter().chain([engine.child.id()]).collect();
    wait_for("spill folders are those of processes", || (engine.spill_pids() == alive).then_some(()));

    engine.signal(engine.child.id(), "-TERM");
    let ended = wait_for("the engine ends", || engine.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    assert!(!ranks.iter().any(|rank| is_there(rank.pid.unwrap())), "{ranks:?}");
    assert!(engine.spill_pids().is_empty() && !engine.socket().exists());
}

#[test]
fn ranks_die_with_a_rank_0_that_is_killed() {
    let mut engine = TestEngine::start(2);
    let (_, ranks) = engine.wait_connected(0);
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    let is_gone = |pid: u32| {
        // A dead orphan stays a zombie if no process reaps it.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    wait_for("the rank dies", || is_gone(ranks[0].pid.unwrap()).then_some(()));
}

#[test]
fn a_process_that_is_no_rank_of_anybody_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Command::new(env!("CARGO_BIN_EXE_pystachio-engine"))
        .args("--socket=/nowhere --device=emulated --ranks=2 --rank-policy=all --rank-processes=own --threads=1".split(' '))
        .args("--memory=100000000 --cache=0 --device-ordinals=0,1 --device-memory=100% --pinned-cache=0".split(' '))
        .args("--device-timeout=60 --affinity=optimal --name=ranks --rank=1".split(' '))
        .arg(format!("--spill-directory={}", folder.path().display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ended = wait_for("it ends", || engine.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
}
