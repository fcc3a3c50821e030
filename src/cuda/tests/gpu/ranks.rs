//! Ranks of tests and benchmarks: a process for each GPU, or threads with emulated devices.
//!
//! Processes find each other in a folder: rank 0 writes the id of each generation there, and a rank
//! that has reached a point writes a file of that name.

#![allow(dead_code, reason = "tests and benchmarks use parts of it")]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use pystachio_cuda::{
    CudaPlatform, SharedRegions,
    nccl::{ENVIRONMENT, NcclId, NcclOptions, NcclTransfers},
};
use pystachio_gpu::{
    device::{DeviceMemory, EmulatedPlatform, Platform},
    exchange::{
        Communicator, ControlledCommunicator, DirectTransfers, ExchangeNetwork, ExchangeRegion, LinkSocket,
        NetworkOptions, Rank, RankLink, SocketTransfers, links_of_one_host, warm_up,
    },
};
use pystachio_plan::{Error, Result};

/// How often files and processes are polled.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// How long a rank waits for rank 0's id: the other process opens its GPU meanwhile.
const ID_MAX: Duration = Duration::from_secs(30);
/// How long ranks wait for each other at one point.
const MEET_MAX: Duration = Duration::from_secs(60);
/// Bytes of the end of a log that are shown.
const LOG_END_BYTES: u64 = 4000;

/// The carriers of bytes between GPUs.
#[derive(Clone, Copy, Debug)]
pub enum Carrier {
    Nccl(NcclOptions),
    /// Copies between GPUs that read each other's memory.
    Direct,
}

impl Carrier {
    /// NCCL as it is used.
    pub fn nccl() -> Self {
        Self::Nccl(NcclOptions::default())
    }
}

/// How a rank connects: its region, the number of the generation, and the carrier, if there is a
/// choice.
type Connect = dyn Fn(&ExchangeRegion, u64, Carrier) -> Result<Box<dyn Communicator>> + Send + Sync;

/// One rank. Cheap to clone.
#[derive(Clone)]
pub struct Member {
    pub rank: Rank,
    pub rank_count: usize,
    pub platform: Arc<dyn Platform>,
    pub region: ExchangeRegion,
    /// Whether it reads the memory of the others, which may.
    pub reaches_others: bool,
    connect: Arc<Connect>,
}

impl Member {
    /// Ranks of this process, with emulated devices that work at once (seed 0) or in an order that the seed chooses.
    pub fn emulated(rank_count: usize, seed: u64, region_bytes: u64) -> Result<Vec<Self>> {
        // Of ranks that have not connected, by generation and rank.
        let links = Arc::new(Mutex::new(BTreeMap::<(u64, usize), Vec<Option<RankLink>>>::new()));
        let member = |number: usize| {
            let platform = match seed {
                0 => EmulatedPlatform::at_once(),
                seed => EmulatedPlatform::with_seed(seed * 1000 + number as u64),
            };
            let (platform, rank, links) = (Arc::new(platform), Rank(number as u16), links.clone());
            let region = ExchangeRegion::new(platform.clone(), region_bytes)?;
            let connect = move |region: &ExchangeRegion, generation, _| {
                let mut links = links.lock().map_err(|_| Error::internal("another rank panicked"))?;
                let own = match links.remove(&(generation, number)) {
                    Some(own) => own,
                    None => {
                        let of_all = links_of_one_host(rank_count)?.into_iter().enumerate();
                        links.extend(of_all.map(|(rank, of_rank)| ((generation, rank), of_rank)));
                        links.remove(&(generation, number)).unwrap_or_default()
                    }
                };
                let transfers = |data| SocketTransfers::new(rank, data, region);
                Ok(Box::new(ControlledCommunicator::connect(rank, own, transfers)?) as Box<dyn Communicator>)
            };
            Ok(Self { rank, rank_count, platform, region, reaches_others: false, connect: Arc::new(connect) })
        };
        (0..rank_count).map(member).collect()
    }

    /// A rank on the GPU of its number. All of them have the same folder.
    pub fn on_gpu(rank: Rank, rank_count: usize, folder: &Path, region_bytes: u64) -> Result<Self> {
        let gpu = Arc::new(CudaPlatform::open(u32::from(rank.0))?);
        let platform: Arc<dyn Platform> = gpu.clone();
        let region = ExchangeRegion::new(platform.clone(), region_bytes)?;
        let folder = folder.to_owned();
        let may_reach = !std::env::var("NCCL_P2P_DISABLE").is_ok_and(|value| value == "1");
        let reaches_others = may_reach && gpu.reaches_others()?;
        let place = (rank, rank_count);
        let connect = move |region: &ExchangeRegion, generation, carrier| {
            let links = links_through(&folder, place, generation)
                .map_err(|error| Error::internal(format!("no sockets between ranks: {error}")))?;
            let communicator: Box<dyn Communicator> = match carrier {
                Carrier::Direct => {
                    let sharing = Box::new(SharedRegions(gpu.clone()));
                    let transfers = |data| DirectTransfers::connect(rank, data, region, sharing);
                    Box::new(ControlledCommunicator::connect(rank, links, transfers)?)
                }
                Carrier::Nccl(options) => {
                    let id = agree_on_id(&folder, rank, generation)?;
                    let transfers = |_| NcclTransfers::connect(&gpu, region, &id, place, options);
                    Box::new(ControlledCommunicator::connect(rank, links, transfers)?)
                }
            };
            Ok(communicator)
        };
        Ok(Self { rank, rank_count, platform, region, reaches_others, connect: Arc::new(connect) })
    }

    /// Connects with all other ranks.
    pub fn connect(&self, generation: u64) -> Result<Box<dyn Communicator>> {
        self.connect_by(generation, Carrier::nccl())
    }

    /// The same by a given carrier.
    pub fn connect_by(&self, generation: u64, carrier: Carrier) -> Result<Box<dyn Communicator>> {
        let mut communicator = (self.connect)(&self.region, generation, carrier)?;
        let block_bytes_max = NetworkOptions::default().block_bytes_max;
        warm_up(&mut *communicator, &self.region, block_bytes_max, MEET_MAX)?;
        Ok(communicator)
    }

    /// Takes part in rounds.
    pub fn network(&self, options: NetworkOptions) -> Result<Arc<ExchangeNetwork>> {
        let communicator = self.connect(options.generation)?;
        Ok(Arc::new(ExchangeNetwork::start(communicator, self.region.clone(), options)?))
    }

    /// Waits until all ranks have come here: a rank that leaves a network ends it for all.
    pub fn meet(&self, folder: &Path, name: &str) {
        leave_file(folder, &format!("{name}-{}", self.rank), b"");
        for place in 0..self.rank_count {
            let other = format!("{name}-{}", Rank(place as u16));
            assert!(wait_for_file(folder, &other, MEET_MAX).is_some(), "{other} does not come");
        }
    }

    /// Memory beside the region.
    pub fn memory(&self, bytes: u64) -> DeviceMemory {
        DeviceMemory::new(self.platform.clone(), bytes)
    }
}

/// The id of a generation, which rank 0 makes.
fn agree_on_id(folder: &Path, rank: Rank, generation: u64) -> Result<NcclId> {
    let name = format!("id-{generation}");
    if rank == Rank(0) {
        let id = NcclId::new()?;
        leave_file(folder, &name, &id.to_bytes());
        return Ok(id);
    }
    match wait_for_file(folder, &name, ID_MAX) {
        Some(bytes) => NcclId::from_bytes(&bytes),
        None => Err(Error::internal(format!("rank 0 left no {name} within {ID_MAX:?}"))),
    }
}

/// Two sockets to each other rank: each listens in the folder, and those after it come to it.
fn links_through(
    folder: &Path,
    (rank, rank_count): (Rank, usize),
    generation: u64,
) -> io::Result<Vec<Option<RankLink>>> {
    let path = |rank: Rank| folder.join(format!("links-{generation}-{rank}"));
    let mut sockets: Vec<[Option<LinkSocket>; 2]> = (0..rank_count).map(|_| [None, None]).collect();
    let listener = UnixListener::bind(path(rank))?;
    for (place, of_rank) in sockets.iter_mut().enumerate().take(rank.place()) {
        for (purpose, link) in of_rank.iter_mut().enumerate() {
            let mut socket = connect_soon(&path(Rank(place as u16)))?;
            socket.write_all(&[rank.place() as u8, purpose as u8])?;
            *link = Some(LinkSocket::unix(socket.into())?);
        }
    }
    for _ in 0..2 * (rank_count - rank.place() - 1) {
        let (mut socket, _) = listener.accept()?;
        let mut said = [0; 2];
        socket.read_exact(&mut said)?;
        let [place, purpose] = said.map(usize::from);
        sockets[place][purpose] = Some(LinkSocket::unix(socket.into())?);
    }
    // The next generation of this number may listen there.
    fs::remove_file(path(rank))?;
    let link = |[control, data]: [Option<LinkSocket>; 2]| {
        control.zip(data).map(|(control, data)| RankLink { control, data })
    };
    Ok(sockets.into_iter().map(link).collect())
}

/// Connects with a process that may not listen yet.
fn connect_soon(path: &Path) -> io::Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(_) if begun.elapsed() < ID_MAX => thread::sleep(LOOK_INTERVAL),
            result => return result,
        }
    }
}

/// Leaves a file, whole at once.
pub fn leave_file(folder: &Path, name: &str, content: &[u8]) {
    let unfinished = folder.join(format!(".{name}"));
    let left = fs::write(&unfinished, content).and_then(|()| fs::rename(&unfinished, folder.join(name)));
    assert!(left.is_ok(), "{name}: {left:?}");
}

/// A file's content as soon as it is there.
pub fn wait_for_file(folder: &Path, name: &str, limit: Duration) -> Option<Vec<u8>> {
    let begun = Instant::now();
    loop {
        match fs::read(folder.join(name)) {
            Ok(content) => return Some(content),
            Err(_) if begun.elapsed() < limit => thread::sleep(LOOK_INTERVAL),
            Err(_) => return None,
        }
    }
}

/// A process that is a rank. It ends when this is dropped.
pub struct RankProcess {
    child: Child,
    log: PathBuf,
}

impl RankProcess {
    /// This program once more, with other arguments and more in its environment; what it prints goes to a log.
    pub fn start(arguments: &[&str], environment: &[(&str, String)], log: PathBuf) -> io::Result<Self> {
        let file = File::create(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(arguments)
            .envs(ENVIRONMENT)
            .envs(environment.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: command.spawn()?, log })
    }

    /// Waits until it has ended well.
    ///
    /// # Errors
    ///
    /// The end of its log, where it failed or took too long.
    pub fn wait(&mut self, limit: Duration) -> std::result::Result<(), String> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{status}: {}", self.log_end())),
                Ok(None) if begun.elapsed() < limit => thread::sleep(LOOK_INTERVAL),
                Ok(None) => return Err(format!("not over after {limit:?}: {}", self.log_end())),
                Err(error) => return Err(format!("{error}: {}", self.log_end())),
            }
        }
    }

    /// Whether it has ended, successfully or not.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    #[expect(unsafe_code, reason = "signals are the system's")]
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is an unreaped child of this one.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "a signal to rank process {}", self.child.id());
    }

    /// Ends it at once, whether it runs or was stopped.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Prints what it said of its steps.
    pub fn show_steps(&self) {
        self.log_end().lines().filter(|line| line.starts_with("rank ")).for_each(|line| println!("{line}"));
    }

    /// The end of what it printed.
    pub fn log_end(&self) -> String {
        let read = || {
            let mut file = File::open(&self.log)?;
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END_BYTES)))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
