//! The state of one other rank: its process, and the next step of the watch.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pystachio_gpu::exchange::{Deadline, Rank};
use pystachio_plan::{Error, ErrorKind, PROTOCOL_VERSION};
use tokio::sync::Notify;

use super::{
    control,
    message::ToRank,
    process::{RankCommand, RankProcess},
    rank_server::FACTS_INTERVAL,
    remote_rank::{RemoteNews, RemoteRank},
};

/// How long a rank may take to open its device: drivers take seconds for it, and more where all GPUs of a host are opened at once.
const OPEN_MAX: Duration = Duration::from_secs(90);
/// A rank that has closed its connection ends within that, or is ended.
const CLOSE_MAX: Duration = Duration::from_millis(300);
/// A rank that was not heard for so long is the one that a network waits for: some times as long as between two facts.
const QUIET_MAX: Duration = Duration::from_millis(1500);
const _: () = assert!(QUIET_MAX.as_millis() >= 4 * FACTS_INTERVAL.as_millis());
/// One that has run for so long has its failures forgotten.
const HEALTHY_TIME: Duration = Duration::from_secs(5);
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
/// Of one that was ready before it was lost, and of one that does not even open its device.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
const OPEN_BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// Where a rank's process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPhase {
    /// There is none; there is to be one.
    Waiting,
    /// It opens its device.
    Starting,
    /// It can be connected.
    Ready,
}

/// One of the other ranks.
pub(super) struct Slot {
    pub(super) rank: Rank,
    live: Option<LiveRank>,
    /// A process that it has lost, and that may not have ended.
    lost: Option<RankProcess>,
    start_at: Instant,
    failures: u32,
    pub(super) restarts: u64,
    pub(super) last_error: Option<String>,
}

/// A rank that has a process.
struct LiveRank {
    process: RankProcess,
    remote: Arc<RemoteRank>,
    started: Instant,
    opening: Deadline,
    /// Until it is silent for too long, and until it is the one that others wait for.
    silence: Deadline,
    quiet: Deadline,
    is_quiet: bool,
    heard_count: u64,
    closing: Option<Deadline>,
}

impl Slot {
    pub(super) fn new(rank: Rank, now: Instant) -> Self {
        Self { rank, live: None, lost: None, start_at: now, failures: 0, restarts: 0, last_error: None }
    }

    /// Where its process is in its life.
    pub(super) fn phase(&self) -> SlotPhase {
        match &self.live {
            None => SlotPhase::Waiting,
            Some(live) => match live.remote.news().block_bytes_max {
                None => SlotPhase::Starting,
                Some(_) => SlotPhase::Ready,
            },
        }
    }

    /// Whether it can be connected: it is ready, and not about to be lost.
    pub(super) fn can_join(&self) -> bool {
        self.phase() == SlotPhase::Ready && self.live.as_ref().is_some_and(|live| live.closing.is_none())
    }

    /// The rank, if it has a process.
    pub(super) fn remote(&self) -> Option<&Arc<RemoteRank>> {
        self.live.as_ref().map(|live| &live.remote)
    }

    /// How it is, if it has a process.
    pub(super) fn news(&self) -> Option<RemoteNews> {
        self.remote().map(|remote| remote.news())
    }

    /// Whether this is a rank that others name as missing.
    pub(super) fn is_quiet(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_quiet)
    }

    /// Starts it if it is time to. Called within a runtime, on a thread that lives as long as the process.
    pub(super) fn start_if_due(&mut self, command: &RankCommand, silence_max: Duration, news: &Arc<Notify>) {
        let now = Instant::now();
        if self.live.is_some() || now < self.start_at {
            return;
        }
        let started =
            command.start(self.rank).and_then(|(process, socket)| Ok((process, control::open(socket)?)));
        match started {
            Ok((process, connection)) => {
                let name = process.name();
                let remote = RemoteRank::start(self.rank, connection, news.clone());
                remote.tell(ToRank::Hello { protocol_version: PROTOCOL_VERSION }, Vec::new());
                tracing::info!(rank = self.rank.0, "a rank starts: {name}");
                self.live = Some(LiveRank {
                    process,
                    remote,
                    started: now,
                    opening: Deadline::new(OPEN_MAX, now),
                    silence: Deadline::new(silence_max, now),
                    quiet: Deadline::new(QUIET_MAX, now),
                    is_quiet: false,
                    heard_count: 0,
                    closing: None,
                });
            }
            Err(error) => self.note_failure(format!("can't be started: {error}"), OPEN_BACK_OFF_MAX, now),
        }
    }

    /// Looks whether it is there still. Why it is not, if it was lost just now: as of itself.
    pub(super) fn look(&mut self, now: Instant) -> Option<Error> {
        let live = self.live.as_mut()?;
        let reason = live.reason_against(now)?;
        Some(self.lose(reason, now))
    }

    /// Gives up its process, if it has one, and says why.
    pub(super) fn end(&mut self, reason: &str, now: Instant) {
        if self.live.is_some() {
            self.lose(reason.to_owned(), now);
        }
    }

    /// Ends the process that it has lost, if it has, and waits for that: a GPU takes a second and more. The process, if it was on
    /// this host.
    pub(super) fn bury(&mut self) -> Option<u32> {
        let mut process = self.lost.take()?;
        process.kill();
        process.host().is_none().then(|| process.pid()).flatten()
    }

    fn lose(&mut self, reason: String, now: Instant) -> Error {
        let name = self.live.as_ref().map_or_else(String::new, |live| live.process.name());
        let is_on_host = self.host().is_some();
        let error = Error::new(ErrorKind::Unavailable, "was lost")
            .with_detail(format!("Its {name} {reason}."))
            .with_hint(
                "Run the query again: the rank restarts by itself. Look into the server log for the reason.",
            );
        let back_off_max = match self.phase() {
            SlotPhase::Ready => BACK_OFF_MAX,
            // It costs nothing to ask whether it is there again.
            SlotPhase::Starting if is_on_host => BACK_OFF_MAX,
            SlotPhase::Starting | SlotPhase::Waiting => OPEN_BACK_OFF_MAX,
        };
        if let Some(live) = self.live.take() {
            live.remote.lose(error.clone());
            self.lost = Some(live.process);
            if now.saturating_duration_since(live.started) > HEALTHY_TIME {
                self.failures = 0;
            }
        }
        self.restarts += 1;
        self.note_failure(format!("{name} {reason}"), back_off_max, now);
        error
    }

    fn note_failure(&mut self, reason: String, back_off_max: Duration, now: Instant) {
        // A host that is away is asked again and again.
        if self.last_error.as_ref() != Some(&reason) {
            tracing::error!(rank = self.rank.0, "rank {}: {reason}", self.rank);
        }
        self.last_error = Some(reason);
        self.failures += 1;
        self.start_at = now + back_off(self.failures, back_off_max);
    }

    /// Asks its process to end.
    pub(super) fn ask_to_end(&self) {
        if let Some(live) = &self.live {
            live.process.ask_to_end();
        }
    }

    /// Whether it has no process, or one that has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.live.as_mut().is_none_or(|live| live.process.end_reason().is_some())
    }

    /// Its process, if it has or had one just now.
    pub(super) fn pid(&self) -> Option<u32> {
        self.live.as_ref().and_then(|live| live.process.pid())
    }

    /// The same, if it is on this host.
    pub(super) fn own_pid(&self) -> Option<u32> {
        self.host().is_none().then(|| self.pid()).flatten()
    }

    /// The other host that it is on, if it is.
    pub(super) fn host(&self) -> Option<&str> {
        self.live.as_ref().and_then(|live| live.process.host())
    }
}

impl LiveRank {
    /// Why it is of no more use.
    fn reason_against(&mut self, now: Instant) -> Option<String> {
        let news = self.remote.news();
        if let Some(reason) = self.process.end_reason() {
            // What it said before its end may be on its way.
            let closing = self.closing.get_or_insert_with(|| Deadline::new(CLOSE_MAX, now));
            if news.closed.is_none() && !closing.is_over(now) {
                return None;
            }
            return Some(match news.failed {
                Some(error) => format!("{reason}: {error}"),
                None => reason,
            });
        }
        if let Some(error) = &news.closed {
            let closing = self.closing.get_or_insert_with(|| Deadline::new(CLOSE_MAX, now));
            return closing.is_over(now).then(|| format!("is of no more use and was ended: {error}"));
        }
        if news.heard_count != self.heard_count {
            self.heard_count = news.heard_count;
            self.silence.renew(now);
            self.quiet.renew(now);
        }
        self.is_quiet = self.quiet.is_over(now);
        if news.block_bytes_max.is_none() {
            // It tells nothing while it opens its device.
            self.silence.renew(now);
            let is_over = self.opening.is_over(now);
            return is_over.then(|| format!("has not opened its device within {OPEN_MAX:?}, and was ended"));
        }
        self.silence.is_over(now).then(|| silent(self.silence.whole()))
    }
}

/// Why a rank was ended that was not heard for so long.
pub(super) fn silent(silence_max: Duration) -> String {
    format!("did not answer for {silence_max:?}, and was ended")
}

fn back_off(failures: u32, back_off_max: Duration) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => BACK_OFF_MIN.saturating_mul(1 << (more - 2).min(16)).min(back_off_max),
    }
}
