//! Rank 0's handle of another rank.

use std::{
    collections::HashMap,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use pystachio_engine::{Meter, StopFlag, locking::lock_whole};
use pystachio_gpu::{
    exchange::{QueryId, Rank},
    execution::{BegunOnFirst, RankPeer},
};
use pystachio_plan::{
    CacheEntry, Error, ErrorKind, QueryMetrics, QueryProgress, QueryRequest, QueryTimeline, Result,
};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    control::{ControlReader, ControlWriter},
    message::{FromRank, RankFacts, Recalled, Recollection, ToRank, check_version},
};

/// Messages that a rank has not been sent yet: a query is a few of them, and not many queries run at once. One that takes none is lost.
const UNSENT_MAX: usize = 1024;
/// A wait for a rank polls the query's cancel flag at this interval.
const STOP_INTERVAL: Duration = Duration::from_millis(10);
/// How long a view waits for what a rank remembers.
const RECALL_MAX: Duration = Duration::from_secs(1);

/// A message, and descriptors that go with it.
type Outgoing = (ToRank, Vec<OwnedFd>);

/// Another rank's process, as long as it lives.
pub(super) struct RemoteRank {
    rank: Rank,
    unsent: mpsc::Sender<Outgoing>,
    state: Mutex<RemoteState>,
    /// Wakes the watch after a change of the rank's state.
    news: Arc<Notify>,
}

#[derive(Default)]
struct RemoteState {
    /// Blocks that it has room for are not larger; present once its device is open.
    block_bytes_max: Option<u64>,
    /// Where it listens for other ranks.
    link_address: Option<SocketAddr>,
    facts: RankFacts,
    /// Messages that came.
    heard_count: u64,
    /// The network that it has joined last, or could not.
    joined: Option<(u64, std::result::Result<(), Error>)>,
    queries: HashMap<u64, oneshot::Sender<Result<QueryMetrics>>>,
    /// The pending requests for its state, by number.
    asked: HashMap<u64, oneshot::Sender<Recalled>>,
    asked_count: u64,
    /// Why it ends, where it has said so.
    failed: Option<Error>,
    /// Why its connection is of no more use.
    closed: Option<Error>,
    /// Why it is lost.
    lost: Option<Error>,
}

/// How it is with a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteNews {
    pub(super) block_bytes_max: Option<u64>,
    pub(super) link_address: Option<SocketAddr>,
    pub(super) facts: RankFacts,
    pub(super) heard_count: u64,
    pub(super) joined: Option<(u64, std::result::Result<(), Error>)>,
    pub(super) failed: Option<Error>,
    pub(super) closed: Option<Error>,
}

impl RemoteRank {
    /// Begins to hear a rank and to tell it things. Called within a runtime.
    pub(super) fn start(
        rank: Rank,
        (reader, writer): (ControlReader, ControlWriter),
        news: Arc<Notify>,
    ) -> Arc<Self> {
        let (unsent, messages) = mpsc::channel(UNSENT_MAX);
        let remote = Arc::new(Self { rank, unsent, state: Mutex::default(), news });
        tokio::spawn(write_messages(writer, messages));
        tokio::spawn({
            let remote = remote.clone();
            async move {
                let error = remote.hear(reader).await;
                remote.lock().closed = Some(error);
                remote.news.notify_one();
            }
        });
        remote
    }

    /// Tells it something. Whether it was there to be told.
    pub(super) fn tell(&self, message: ToRank, descriptors: Vec<OwnedFd>) -> bool {
        self.unsent.try_send((message, descriptors)).is_ok()
    }

    /// How it is with it now.
    pub(super) fn news(&self) -> RemoteNews {
        let state = self.lock();
        RemoteNews {
            block_bytes_max: state.block_bytes_max,
            link_address: state.link_address,
            facts: state.facts.clone(),
            heard_count: state.heard_count,
            joined: state.joined.clone(),
            failed: state.failed.clone(),
            closed: state.closed.clone(),
        }
    }

    /// Marks the rank as lost and fails its queries with this error.
    pub(super) fn lose(&self, error: Error) {
        let queries = {
            let mut state = self.lock();
            state.lost.get_or_insert_with(|| error.clone());
            state.asked.clear();
            std::mem::take(&mut state.queries)
        };
        for outcome in queries.into_values() {
            // The receiver is gone if the query has ended here.
            let _ = outcome.send(Err(error.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, RemoteState> {
        lock_whole(&self.state)
    }

    /// Hears it to its end: why that came.
    async fn hear(&self, mut reader: ControlReader) -> Error {
        loop {
            let message = match reader.next().await {
                Ok(Some(message)) => message,
                Ok(None) => return Error::new(ErrorKind::Unavailable, "closed its control connection"),
                Err(error) => return error,
            };
            if let Err(error) = self.take(message) {
                return error;
            }
            self.news.notify_one();
        }
    }

    /// # Errors
    ///
    /// Why nothing more is heard of it.
    fn take(&self, message: FromRank) -> Result<()> {
        let mut state = self.lock();
        state.heard_count += 1;
        match message {
            FromRank::Ready { protocol_version, block_bytes_max, link_address } => {
                check_version(protocol_version)?;
                state.block_bytes_max = Some(block_bytes_max);
                state.link_address = link_address;
            }
            FromRank::Failed(error) => {
                state.failed = Some(error.clone());
                return Err(error);
            }
            FromRank::Joined { generation, joined } => state.joined = Some((generation, joined)),
            FromRank::Facts(facts) => state.facts = facts,
            FromRank::Recalled { number, recalled } => {
                if let Some(asked) = state.asked.remove(&number) {
                    // The receiver may be gone.
                    let _ = asked.send(recalled);
                }
            }
            FromRank::Ended { query, outcome } => {
                let asked = state.queries.remove(&query);
                drop(state);
                if let Some(asked) = asked {
                    let _ = asked.send(outcome.map(|metrics| *metrics));
                }
            }
        }
        Ok(())
    }

    /// What it remembers.
    async fn recall(&self, wanted: Recollection) -> Result<Recalled> {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            if let Some(error) = &state.lost {
                return Err(error.clone());
            }
            state.asked_count += 1;
            let number = state.asked_count;
            state.asked.insert(number, sender);
            number
        };
        let recalled = match self.tell(ToRank::Recall { number, wanted }, Vec::new()) {
            true => tokio::time::timeout(RECALL_MAX, answer).await.ok().and_then(std::result::Result::ok),
            false => None,
        };
        self.lock().asked.remove(&number);
        recalled.ok_or_else(|| {
            let message = format!("has not sent its statistics within {RECALL_MAX:?}");
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    /// Expects the outcome of a query.
    fn expect(&self, query: QueryId) -> Result<oneshot::Receiver<Result<QueryMetrics>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        match &state.lost {
            Some(error) => Err(error.clone()),
            None => {
                state.queries.insert(query.0, sender);
                Ok(receiver)
            }
        }
    }
}

async fn write_messages(writer: ControlWriter, mut messages: mpsc::Receiver<Outgoing>) {
    while let Some((message, descriptors)) = messages.recv().await {
        if let Err(error) = writer.send(&message, &descriptors).await {
            // The reader of the rank's messages notices the closed connection.
            tracing::debug!(%error, "the connection to a rank is closed");
            return;
        }
    }
}

/// A rank in the network of one generation.
pub(super) struct RemotePeer {
    pub(super) remote: Arc<RemoteRank>,
    pub(super) generation: u64,
}

/// How far another rank's part in a query is, as that rank has said last.
struct RemoteMeter {
    remote: Arc<RemoteRank>,
    query: QueryId,
    /// It says nothing any more of what has ended there.
    last: Mutex<QueryProgress>,
}

impl RemoteMeter {
    fn new(remote: Arc<RemoteRank>, query: QueryId) -> Self {
        Self { remote, query, last: Mutex::default() }
    }
}

impl Meter for RemoteMeter {
    fn progress(&self) -> QueryProgress {
        let state = self.remote.lock();
        let told = state.facts.progress.iter().find(|(query, _)| *query == self.query.0);
        let mut last = lock_whole(&self.last);
        *last = match told {
            Some((_, progress)) => *progress,
            None => QueryProgress { memory_bytes: 0, ..*last },
        };
        *last
    }
}

/// A query on another rank. Dropping it stops the query there.
struct RemoteQuery<'a> {
    remote: &'a RemoteRank,
    query: QueryId,
    is_stopped: bool,
}

impl RemoteQuery<'_> {
    fn stop(&mut self) {
        if !self.is_stopped {
            self.is_stopped = true;
            self.remote.tell(ToRank::Stop { query: self.query.0 }, Vec::new());
        }
    }
}

impl Drop for RemoteQuery<'_> {
    fn drop(&mut self) {
        if self.remote.lock().queries.remove(&self.query.0).is_some() {
            self.stop();
        }
    }
}

#[async_trait]
impl RankPeer for RemotePeer {
    fn rank(&self) -> Rank {
        self.remote.rank
    }

    async fn run(
        &self,
        query: QueryId,
        request: QueryRequest,
        mut first: BegunOnFirst,
        stop: StopFlag,
    ) -> Result<QueryMetrics> {
        let mut outcome = self.remote.expect(query)?;
        let meter: Arc<dyn Meter> = Arc::new(RemoteMeter::new(self.remote.clone(), query));
        stop.account().measure(Arc::downgrade(&meter));
        let mut running = RemoteQuery { remote: &self.remote, query, is_stopped: false };
        let run = ToRank::Run { generation: self.generation, query: query.0, request: Box::new(request) };
        let unheard = || Error::new(ErrorKind::Unavailable, "can't be sent a query");
        if !self.remote.tell(run, Vec::new()) {
            return Err(unheard());
        }
        let mut is_begin_awaited = true;
        loop {
            if stop.is_stopped() {
                running.stop();
            }
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    return outcome.unwrap_or_else(|_| Err(Error::internal("the query's outcome was lost")));
                }
                begun = first.wait_for(Option::is_some), if is_begin_awaited => {
                    is_begin_awaited = false;
                    match begun.ok().and_then(|begin| begin.clone()) {
                        Some(begin) => {
                            if !self.remote.tell(ToRank::Begin { query: query.0, begin }, Vec::new()) {
                                return Err(unheard());
                            }
                        }
                        // It never begins, perhaps because this rank is lost: the outcome says so.
                        None => running.stop(),
                    }
                }
                () = tokio::time::sleep(STOP_INTERVAL) => {}
            }
        }
    }

    async fn cache_entries(&self) -> Result<Vec<CacheEntry>> {
        match self.remote.recall(Recollection::Cache).await? {
            Recalled::Cache(entries) => Ok(entries),
            Recalled::Timeline(_) => Err(answered_otherwise()),
        }
    }

    async fn timeline(&self, query: QueryId) -> Result<Option<QueryTimeline>> {
        match self.remote.recall(Recollection::Timeline { query: query.0 }).await? {
            Recalled::Timeline(timeline) => Ok(timeline),
            Recalled::Cache(_) => Err(answered_otherwise()),
        }
    }
}

fn answered_otherwise() -> Error {
    Error::new(ErrorKind::Protocol, "has answered something else than it was asked")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::sync::watch;

    use super::*;
    use crate::ranks::{control, rank_server::tests::request};

    /// What ends a query before it begins may be that this rank is lost, which is known a little later.
    #[tokio::test]
    async fn a_query_that_never_begins_waits_for_what_its_rank_says() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut orders, _writer) = control::open(theirs).unwrap();
        let remote = RemoteRank::start(Rank(1), control::open(ours).unwrap(), Arc::default());
        let peer = RemotePeer { remote: remote.clone(), generation: 1 };
        let (begun, first) = watch::channel(None);
        drop(begun);
        let run =
            tokio::spawn(async move { peer.run(QueryId(7), request(), first, StopFlag::default()).await });
        assert!(matches!(orders.next().await.unwrap(), Some(ToRank::Run { query: 7, .. })));
        assert_eq!(orders.next().await.unwrap(), Some(ToRank::Stop { query: 7 }));
        let lost = Error::new(ErrorKind::Unavailable, "was lost").with_detail("Its process 31 was killed.");
        remote.lose(lost.clone());
        assert_eq!(run.await.unwrap().unwrap_err(), lost);
    }
}
