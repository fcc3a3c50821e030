//! The loop of a rank other than 0: it joins networks and runs its parts of queries on rank 0's orders.
//!
//! ```text
//!            ┌──────── Run ──► a task: its part in a query ──── outcome ──┐
//! control ───┼──────── Join ─► a thread: connects, takes part ── joined ──┼──► control
//!            ├─ Begin, Stop, GiveUp                   a clock ─── facts ──┤
//!            └─ Recall ────────────────────────────────────── recalled ──┘
//! ```
//!
//! Invariants: the rank ends when its control connection closes, which rank 0's end causes.

use std::{
    collections::HashMap,
    os::{fd::OwnedFd, unix::net::UnixStream},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use pystachio_engine::StopFlag;
use pystachio_gpu::{
    exchange::{ExchangeNetwork, NetworkOptions, QueryId, Rank},
    execution::{LocalPeer, RankDevice, RankPeer},
};
use pystachio_plan::{Error, ErrorKind, PROTOCOL_VERSION, QueryBegin, QueryMetrics, QueryRequest, Result};
use tokio::{
    sync::{mpsc, watch},
    time::MissedTickBehavior,
};

use super::{
    control::{self, ControlReader, ControlWriter},
    message::{FromRank, Invitation, Links, RankFacts, Recalled, Recollection, ToRank, check_version},
    network::RankNetwork,
};
use crate::process::resident_bytes;

/// How often a rank says how it is.
pub(super) const FACTS_INTERVAL: Duration = Duration::from_millis(250);
/// Queries that a rank runs at once: some times as many as rank 0 lets run, since those that were stopped may take a while to end.
const RUNNING_MAX: usize = 64;
/// Outcomes that wait to be told.
const OUTCOMES_MAX: usize = 16;

/// What a rank is.
pub struct RankSetup {
    /// Its number and how many ranks there are.
    pub place: (Rank, usize),
    /// Its device.
    pub device: Arc<RankDevice>,
    /// How it is connected with others.
    pub network: RankNetwork,
    /// Of networks; what rank 0 tells has precedence.
    pub options: NetworkOptions,
}

/// Something that a task or thread of the rank has done.
enum Done {
    Ended { query: u64, outcome: Result<Box<QueryMetrics>> },
    Joined { generation: u64, network: Result<Arc<ExchangeNetwork>> },
}

struct RankServer {
    setup: Arc<RankSetup>,
    writer: ControlWriter,
    done: mpsc::Sender<Done>,
    /// Its end of the network, and the generation of that.
    network: Option<(u64, Arc<ExchangeNetwork>)>,
    /// The generation that it was told to join last.
    wanted_generation: u64,
    /// Queries that run here, or are prepared.
    running: HashMap<u64, RunningPart>,
}

/// A part in a query.
struct RunningPart {
    stop: StopFlag,
    /// Told when the query has begun on rank 0.
    first: watch::Sender<Option<QueryBegin>>,
}

/// Serves rank 0 until that closes the connection. `open` opens the device, which may take a while, once rank 0 has said Hello.
///
/// # Errors
///
/// What `open` fails with, `Protocol` for what makes no sense, and `Device` when the device is lost, all of which rank 0 is told.
pub async fn serve_rank(
    socket: UnixStream,
    open: impl FnOnce() -> Result<RankSetup> + Send + 'static,
) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::internal(format!("the control connection can't be used: {error}"));
    let (mut reader, writer) = control::open(socket).map_err(failed)?;
    let served = serve(&mut reader, writer, open).await;
    if let Err((error, writer)) = served {
        // Rank 0 may be past reading.
        let _ = writer.send(&FromRank::Failed(error.clone()), &[]).await;
        return Err(error);
    }
    Ok(())
}

async fn serve(
    reader: &mut ControlReader,
    writer: ControlWriter,
    open: impl FnOnce() -> Result<RankSetup> + Send + 'static,
) -> std::result::Result<(), (Error, ControlWriter)> {
    let setup = match greet(reader, open).await {
        Ok(Some(setup)) => setup,
        Ok(None) => return Ok(()),
        Err(error) => return Err((error, writer)),
    };
    let (done, finished) = mpsc::channel(OUTCOMES_MAX);
    let mut server = RankServer {
        setup: Arc::new(setup),
        writer,
        done,
        network: None,
        wanted_generation: 0,
        running: HashMap::new(),
    };
    match server.serve(reader, finished).await {
        Ok(()) => Ok(()),
        // Rank 0 has ended with something unread.
        Err(error) if error.kind == ErrorKind::Unavailable => {
            tracing::debug!(%error, "rank 0 is gone");
            Ok(())
        }
        Err(error) => Err((error, server.writer)),
    }
}

/// Hears rank 0's greeting, and opens the device.
async fn greet(
    reader: &mut ControlReader,
    open: impl FnOnce() -> Result<RankSetup> + Send + 'static,
) -> Result<Option<RankSetup>> {
    match reader.next().await? {
        None => return Ok(None),
        Some(ToRank::Hello { protocol_version }) => check_version(protocol_version)?,
        Some(_) => return Err(Error::new(ErrorKind::Protocol, "the first message is not Hello")),
    }
    let opened = tokio::task::spawn_blocking(open).await;
    opened
        .unwrap_or_else(|error| Err(Error::internal(format!("opening the device panicked: {error}"))))
        .map(Some)
}

/// Why a network ends in whose place comes another.
fn connected_anew() -> Error {
    Error::new(ErrorKind::Peer, "ranks are connected anew")
}

impl RankServer {
    async fn serve(&mut self, reader: &mut ControlReader, mut finished: mpsc::Receiver<Done>) -> Result<()> {
        let block_bytes_max = self.setup.device.block_bytes_max();
        let link_address = self.setup.network.link_address();
        let protocol_version = PROTOCOL_VERSION;
        self.tell(&FromRank::Ready { protocol_version, block_bytes_max, link_address }).await?;
        let mut clock = tokio::time::interval(FACTS_INTERVAL);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = reader.next() => match message? {
                    Some(message) => self.take(message, reader).await?,
                    None => return Ok(()),
                },
                Some(done) = finished.recv() => self.note_done(done).await?,
                _ = clock.tick() => self.tell(&FromRank::Facts(self.facts())).await?,
            }
        }
    }

    async fn tell(&self, message: &FromRank) -> Result<()> {
        self.writer.send(message, &[]).await
    }

    async fn take(&mut self, message: ToRank, reader: &ControlReader) -> Result<()> {
        match message {
            ToRank::Hello { .. } => {
                return Err(Error::new(ErrorKind::Protocol, "Hello after the first message"));
            }
            ToRank::Join { generation, block_bytes_max, invitation } => {
                let descriptors = match invitation.links {
                    Links::Descriptors { count } => reader.take_descriptors(count)?,
                    Links::Addresses { .. } => Vec::new(),
                };
                let options = NetworkOptions { generation, block_bytes_max, ..self.setup.options };
                self.join(options, (invitation, descriptors));
            }
            ToRank::Run { generation, query, request } => self.run(generation, query, *request).await?,
            ToRank::Begin { query, begin } => {
                // It may have been refused here.
                if let Some(running) = self.running.get(&query) {
                    running.first.send_replace(Some(begin));
                }
            }
            ToRank::Stop { query } => {
                if let Some(running) = self.running.get(&query) {
                    running.stop.stop();
                }
            }
            ToRank::GiveUp { generation, reason } => {
                if let Some((joined, network)) = &self.network
                    && *joined == generation
                {
                    network.give_up(reason);
                }
            }
            ToRank::Recall { number, wanted } => {
                let engine = self.setup.device.engine();
                let recalled = match wanted {
                    Recollection::Cache => {
                        let objects = engine.catalog().stores().map(|stores| stores.cache_entries());
                        let objects = objects.unwrap_or_default();
                        Recalled::Cache(engine.cache_entries().into_iter().chain(objects).collect())
                    }
                    Recollection::Timeline { query } => {
                        Recalled::Timeline(engine.timeline_of(QueryId(query)))
                    }
                };
                self.tell(&FromRank::Recalled { number, recalled }).await?;
            }
        }
        Ok(())
    }

    /// Begins to take part in a network.
    fn join(&mut self, options: NetworkOptions, invitation: (Invitation, Vec<OwnedFd>)) {
        self.wanted_generation = options.generation;
        let (setup, done, before) = (self.setup.clone(), self.done.clone(), self.network.take());
        // It may wait for other ranks, and for the thread of the network before it.
        tokio::task::spawn_blocking(move || {
            if let Some((_, network)) = &before {
                network.give_up(connected_anew());
            }
            drop(before);
            let connect = || {
                let RankSetup { place, device, network, .. } = &*setup;
                network.join(*place, invitation, device, options)
            };
            // The process may be about to end.
            let _ = done.blocking_send(Done::Joined { generation: options.generation, network: connect() });
        });
    }

    /// Begins to run a part in a query.
    async fn run(&mut self, generation: u64, query: u64, request: QueryRequest) -> Result<()> {
        let network = match &self.network {
            Some((joined, network)) if *joined == generation => network.clone(),
            _ => {
                let message = format!("has no part in the network of generation {generation}");
                return self.refuse(query, Error::new(ErrorKind::Unavailable, message)).await;
            }
        };
        if self.running.len() >= RUNNING_MAX || self.running.contains_key(&query) {
            let message =
                format!("runs too many queries: queries={}, queries_max={RUNNING_MAX}", self.running.len());
            return self.refuse(query, Error::new(ErrorKind::Unavailable, message)).await;
        }
        let stop = StopFlag::default();
        let first = watch::Sender::new(None);
        let begun = first.subscribe();
        self.running.insert(query, RunningPart { stop: stop.clone(), first });
        let (peer, done) = (LocalPeer::new(self.setup.device.engine().clone(), network), self.done.clone());
        tokio::spawn(async move {
            let run = AssertUnwindSafe(peer.run(QueryId(query), request, begun, stop)).catch_unwind().await;
            let outcome = run.unwrap_or_else(|_| Err(Error::internal("its part of the query panicked")));
            let _ = done.send(Done::Ended { query, outcome: outcome.map(Box::new) }).await;
        });
        Ok(())
    }

    async fn refuse(&self, query: u64, error: Error) -> Result<()> {
        self.tell(&FromRank::Ended { query, outcome: Err(error) }).await
    }

    async fn note_done(&mut self, done: Done) -> Result<()> {
        match done {
            Done::Ended { query, outcome } => {
                self.running.remove(&query);
                let lost = outcome.as_ref().err().filter(|error| error.kind == ErrorKind::Device).cloned();
                self.tell(&FromRank::Ended { query, outcome }).await?;
                // This process is of no more use without its device.
                lost.map_or(Ok(()), Err)
            }
            Done::Joined { generation, network } => {
                let joined = network.map(|network| match generation == self.wanted_generation {
                    true => self.network = Some((generation, network)),
                    // Rank 0 has gone on meanwhile.
                    false => network.give_up(connected_anew()),
                });
                self.tell(&FromRank::Joined { generation, joined }).await
            }
        }
    }

    fn facts(&self) -> RankFacts {
        let engine = self.setup.device.engine();
        let (queries_run, queries_running) = engine.query_counts();
        RankFacts {
            resident_bytes: resident_bytes(),
            device_memory: engine.memory_status(),
            queries_running,
            queries_run,
            storage_paths: engine.storage_paths(),
            progress: self
                .running
                .iter()
                .map(|(query, running)| (*query, running.stop.account().progress()))
                .collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use pystachio_engine::spill::Spilling;
    use pystachio_gpu::{affinity::Affinity, device::EmulatedPlatform, execution::DeviceOptions};
    use pystachio_plan::{
        DeviceSettings, EngineChoice, FileSet, Operator, Plan, Relation, ScanExtent, SpillRequest,
    };

    use super::*;
    use crate::ranks::message::Carrier;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A rank on a device of its own, and what rank 0 has of it.
    struct TestRank {
        reader: ControlReader,
        writer: ControlWriter,
        served: tokio::task::JoinHandle<Result<()>>,
        _folder: tempfile::TempDir,
    }

    fn setup(rank: Rank, spill_directory: &Path) -> RankSetup {
        let options = DeviceOptions {
            memory_bytes: 16 << 20,
            cache_bytes: 0,
            pinned_cache_bytes: 0,
            host_bytes: 16 << 20,
            spill: Spilling::to(spill_directory),
            affinity: Affinity::default(),
        };
        let device = RankDevice::open(Arc::new(EmulatedPlatform::new()), &options, Arc::default()).unwrap();
        let (network, options) = (RankNetwork::of_sockets(), NetworkOptions::default());
        RankSetup { place: (rank, 2), device: Arc::new(device), network, options }
    }

    impl TestRank {
        async fn start(protocol_version: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let path = folder.path().to_owned();
            let served = tokio::spawn(serve_rank(theirs, move || Ok(setup(Rank(1), &path))));
            let (reader, writer) = control::open(ours).unwrap();
            writer.send(&ToRank::Hello { protocol_version }, &[]).await.unwrap();
            Self { reader, writer, served, _folder: folder }
        }

        /// The next message that says something else than how it is.
        async fn next(&mut self) -> Option<FromRank> {
            loop {
                match self.reader.next().await.unwrap() {
                    Some(FromRank::Facts(_)) => {}
                    message => return message,
                }
            }
        }

        async fn run(&self, generation: u64, query: u64) {
            let run = ToRank::Run { generation, query, request: Box::new(request()) };
            self.writer.send(&run, &[]).await.unwrap();
        }
    }

    /// A query over a file that is nowhere.
    pub(in crate::ranks) fn request() -> QueryRequest {
        let scan = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(vec!["/nowhere".to_owned()]),
            columns: Vec::new(),
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        QueryRequest {
            access: pystachio_plan::StoreAccess::default(),
            plan: Plan { root: Relation::new(scan, 1.0), outputs: Vec::new() },
            planned_files: Vec::new(),
            parameters: Vec::new(),
            with_metrics: false,
            batch_rows_max: 1000,
            spill: SpillRequest::default(),
            device: DeviceSettings::default(),
            engine: EngineChoice::Device,
            role: 0,
        }
    }

    #[tokio::test]
    async fn another_version_is_refused_and_named() {
        let mut rank = TestRank::start(PROTOCOL_VERSION + 1).await;
        let Some(FromRank::Failed(error)) = rank.next().await else { panic!("no refusal") };
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.message.contains("ranks are of different versions"), "{error}");
        assert_eq!(rank.served.await.unwrap().unwrap_err(), error);
    }

    #[tokio::test]
    async fn a_query_without_a_network_is_refused_and_what_makes_no_sense_ends_the_rank() {
        let mut rank = TestRank::start(PROTOCOL_VERSION).await;
        assert!(matches!(rank.next().await, Some(FromRank::Ready { .. })));
        rank.run(1, 7).await;
        let Some(FromRank::Ended { query: 7, outcome: Err(error) }) = rank.next().await else {
            panic!("no refusal")
        };
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        // It remembers what it has done: nothing yet.
        for (number, wanted, nothing) in [
            (3, Recollection::Cache, Recalled::Cache(Vec::new())),
            (4, Recollection::Timeline { query: 7 }, Recalled::Timeline(None)),
        ] {
            rank.writer.send(&ToRank::Recall { number, wanted }, &[]).await.unwrap();
            assert_eq!(rank.next().await, Some(FromRank::Recalled { number, recalled: nothing }));
        }
        // Sockets that did not come.
        let invitation = Invitation { links: Links::Descriptors { count: 2 }, carrier: Carrier::Sockets };
        let join = ToRank::Join { generation: 1, block_bytes_max: 1 << 16, invitation };
        rank.writer.send(&join, &[]).await.unwrap();
        let Some(FromRank::Failed(error)) = rank.next().await else { panic!("no end") };
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
        assert!(rank.next().await.is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_rank_joins_one_generation_after_another_and_ends_with_rank_0() {
        let mut rank = TestRank::start(PROTOCOL_VERSION).await;
        assert!(matches!(rank.next().await, Some(FromRank::Ready { .. })));
        let folder = tempfile::tempdir().unwrap();
        let first = setup(Rank(0), folder.path());
        for generation in 1..4 {
            let mut invitations = first.network.invite(2, 0, &[]).unwrap().into_iter();
            let (own, (invitation, descriptors)) = (invitations.next().unwrap(), invitations.next().unwrap());
            let block_bytes_max = first.device.block_bytes_max();
            let join = ToRank::Join { generation, block_bytes_max, invitation };
            rank.writer.send(&join, &descriptors).await.unwrap();
            drop(descriptors);
            let options = NetworkOptions { generation, block_bytes_max, ..first.options };
            let network = first.network.join(first.place, own, &first.device, options).unwrap();
            assert_eq!(rank.next().await, Some(FromRank::Joined { generation, joined: Ok(()) }));
            // What a query fails with there is told, and the network goes on.
            rank.run(generation, generation).await;
            let Some(FromRank::Ended { query, outcome }) = rank.next().await else { panic!("no outcome") };
            assert_eq!((query, outcome.unwrap_err().kind), (generation, ErrorKind::FileNotFound));
            assert!(network.failure().is_none());
            // What rank 0 gives up ends there too, for the same reason.
            let reason = Error::new(ErrorKind::Peer, "rank 5 was lost");
            rank.writer.send(&ToRank::GiveUp { generation, reason }, &[]).await.unwrap();
            let failed = async {
                while network.failure().is_none() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, failed).await.unwrap();
            assert_eq!(network.failure().unwrap().message, "rank 5 was lost");
        }
        drop((rank.reader, rank.writer));
        tokio::time::timeout(PATIENCE, rank.served).await.unwrap().unwrap().unwrap();
    }
}
