//! The executable `pystachio-engine`: an engine behind a Unix socket, started and watched by the
//! extension's supervisor.
//!
//! The process ends with status 0 after SIGTERM, SIGINT or the end of its parent, with 2 for invalid arguments, and
//! with 1 if it can't start or loses its device. The supervisor then starts another. After SIGUSR1 it takes no more requests,
//! and ends with status 0 when those that run have ended; after SIGUSR2 the same, if none runs. Logs go to stderr.

use std::{
    ffi::OsString,
    os::{fd::AsFd, unix::net::UnixStream, unix::process::parent_id},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use pystachio_cpu::{CpuEngine, CpuOptions};
use pystachio_cuda::{CudaPlatform, library_lines};
use pystachio_engine::{
    Engine, descriptors::raise_descriptor_limit, locking::end_process_by, spill::Spilling,
    spill_folder::SpillFolder,
};
use pystachio_files::Stores;
use pystachio_gpu::{
    device::CallWatch,
    exchange::{NetworkOptions, Rank},
    execution::{DeviceEngine, RankDevice, RankTable, RankedEngine, RankedOptions, ranks_of_one_process},
};
use pystachio_plan::{Error, ErrorKind, Result};
use pystachio_worker::{
    Command, Device, FooterMemory, Host, HostListener, Hosts, LinkListener, ListenerSetup, OpenedDevice,
    Options, PairedEngine, RankCommand, RankNetwork, RankProcesses, RankSetup, RankWatch, Server, USAGE,
    USED_FILE, VERSION, WatchSetup, end_at_memory_faults, end_now, end_process, give_up, host_name,
    name_thread, note_use, open_device, parse_arguments, prefer_as_oom_victim, return_memory_at_rest,
    serve_rank, use_interface_of, wait_for_orphaning, watch_device,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Threads that serve sockets: one may decode a large plan while the other reads a cancel.
const SOCKET_THREADS: usize = 2;
/// Plans are trees that code walks recursively. Address space, not memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// How long rank 0 waits for the other ranks before it serves without them.
const RANKS_WAIT: Duration = Duration::from_secs(10);
/// The same for ranks on other hosts, which may be down.
const HOSTS_WAIT: Duration = Duration::from_secs(2);
/// The folder of cached objects within that of the spill files.
const OBJECTS_FOLDER: &str = "objects";
/// How long an orderly shutdown waits for work to stop.
const STOP_WAIT: Duration = Duration::from_millis(700);

fn main() -> ExitCode {
    // It may have been started by another path than the executable's.
    name_thread(c"pystachio-engine");
    let parent = parent_id();
    end_at_memory_faults();
    let options = match parse_arguments(std::env::args().skip(1)) {
        Ok(Command::Serve(options)) => options,
        Ok(Command::Version) => {
            println!("pystachio-engine {VERSION}");
            return ExitCode::SUCCESS;
        }
        Ok(Command::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("pystachio-engine: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    choose_interface(&options);
    start_log();
    if let Err(error) = raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of file descriptors stays as it is");
    }
    let served = match options.rank {
        0 => serve(&options, parent),
        _ => serve_as_rank(Options::clone(&options), parent),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(server = options.name, rank = options.rank, hint = error.hint, "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The caller is the only thread of the process.
#[expect(unsafe_code, reason = "writes the environment")]
fn choose_interface(options: &Options) {
    if let Some(hosts) = &options.hosts {
        // SAFETY: this is the only thread.
        unsafe { use_interface_of(hosts.own()) };
    }
}

fn start_log() {
    let mut filter = EnvFilter::try_from_env("PYSTACHIO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Their lines may quote URLs and headers, which have secrets.
    for quiet in ["object_store=off", "reqwest=off", "hyper=off", "hyper_util=off", "h2=off", "rustls=off"] {
        if let Ok(directive) = quiet.parse() {
            filter = filter.add_directive(directive);
        }
    }
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

fn serve(options: &Options, parent: u32) -> Result<()> {
    prefer_as_oom_victim();
    let folder = spill_folder(options)?;
    let (objects, stores) = stores(options, &folder)?;
    let spill = Spilling::within(folder.path(), options.spill_bytes_max);
    let compute = runtime("compute", options.threads)?;
    let sockets = runtime("socket", SOCKET_THREADS)?;
    let libraries = libraries(options.device);
    let Started { engine, calls, ranks } =
        start_engine(options, (&spill, stores), (compute.handle(), sockets.handle()))?;
    let host = Host::new(engine, compute.handle().clone(), libraries);
    end_process_by({
        let host = host.clone();
        move |error| end_process(host.clone(), error)
    });
    if let Some(calls) = calls.filter(|_| options.device_timeout_s > 0) {
        let host = host.clone();
        watch_device(calls, options.device_timeout_s, move |error| give_up(&host, error))
            .map_err(|error| Error::internal(format!("the device's watch can't be started: {error}")))?;
    }
    let counters = host.counters().clone();
    sockets.spawn(return_memory_at_rest(move || counters.queries()));
    let requests = host.requests().clone();
    sockets.spawn(note_use(options.socket.with_file_name(USED_FILE), move || requests.counts()));
    let retiring = host.clone();
    sockets.block_on(async { retire_on_signals(retiring) })?;
    let served = sockets.block_on(async {
        if let Some(ranks) = &ranks
            && !ranks.wait_connected(options.hosts.as_ref().map_or(RANKS_WAIT, |_| HOSTS_WAIT)).await
        {
            tracing::error!(server = options.name, "the engine begins without its other ranks");
        }
        let server = Server::bind(&options.socket)?;
        tracing::info!(
            server = options.name,
            socket = %options.socket.display(),
            threads = options.threads,
            memory_bytes = options.memory_bytes,
            cache_bytes = options.cache_bytes,
            version = VERSION,
            "engine is ready"
        );
        let stop = CancellationToken::new();
        let mut serving = tokio::spawn(server.serve(host.clone(), stop.clone()));
        let reason = tokio::select! {
            reason = wait_for_end(parent) => reason?,
            // The server ends by itself only when it was asked to, or after a fatal error.
            _ = &mut serving => match host.device_lost().is_cancelled() {
                true => return Err(host.why_ended()),
                false => "the last request has ended",
            },
        };
        tracing::info!(server = options.name, reason, "engine stops");
        stop.cancel();
        // Sessions that don't end by themselves end with the runtime.
        if !serving.is_finished() {
            let _ = tokio::time::timeout(STOP_WAIT, serving).await;
        }
        Ok(())
    });
    if let Some(ranks) = ranks {
        ranks.stop();
    }
    sockets.shutdown_background();
    compute.shutdown_timeout(STOP_WAIT);
    drop(objects);
    served
}

/// Runs a rank other than 0 to its end.
fn serve_as_rank(options: Options, parent: u32) -> Result<()> {
    prefer_as_oom_victim();
    end_process_by(|error| {
        tracing::error!("{error}");
        end_now(1)
    });
    let folder = spill_folder(&options)?;
    let (objects, stores) = stores(&options, &folder)?;
    let spill = Spilling::within(folder.path(), options.spill_bytes_max);
    let runtime = runtime("rank", SOCKET_THREADS)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let socket =
        socket.map_err(|error| Error::internal(format!("a rank has no control connection: {error}")))?;
    let setup = rank_setup(&options, (&spill, stores));
    let served = runtime.block_on(async {
        tokio::select! {
            served = serve_rank(socket, setup) => served,
            reason = wait_for_end(parent) => reason.map(|reason| {
                tracing::info!(server = options.name, rank = options.rank, reason, "rank stops");
            }),
        }
    });
    if let Err(error) = &served {
        tracing::error!(server = options.name, rank = options.rank, hint = error.hint, "{error}");
    }
    drop((folder, objects));
    // Threads within a query or a round have no client left to report to.
    end_now(i32::from(served.is_err()))
}

/// Opens the device of a rank other than 0.
fn rank_setup(
    options: &Options,
    (spill, stores): (&Spilling, Arc<Stores>),
) -> impl FnOnce() -> Result<RankSetup> + Send + use<> {
    let options = options.clone();
    let spill = spill.clone();
    move || {
        let OpenedDevice { platforms, options: device_options, network } = open_device(&options, &spill)?;
        let platform =
            platforms.into_iter().next().ok_or_else(|| Error::internal("a rank without a device"))?;
        if options.device_timeout_s > 0 {
            watch_device(platform.calls(), options.device_timeout_s, |_| end_now(1))
                .map_err(|error| Error::internal(format!("the device's watch can't be started: {error}")))?;
        }
        let catalog = FooterMemory::catalog(options.memory_bytes / options.ranks as u64, options.ranks);
        catalog.set_stores(stores);
        let device = Arc::new(RankDevice::open(platform, &device_options, catalog)?);
        let engine = device.engine().clone();
        tokio::spawn(return_memory_at_rest(move || engine.query_counts()));
        let place = (Rank(options.rank), options.rank_count());
        let network = over_hosts(network, &options)?;
        Ok(RankSetup { place, device, network, options: network_options(&options) })
    }
}

fn spill_folder(options: &Options) -> Result<SpillFolder> {
    SpillFolder::create(&options.spill_directory).map_err(|error| {
        let path = options.spill_directory.display();
        Error::new(
            ErrorKind::FileAccess,
            format!("folder for spill files can't be made: path={path}: {error}"),
        )
    })
}

/// The stores of this process, and the folder of their cache if it is not the spill files'. Processes of ranks divide the budget.
fn stores(options: &Options, spill: &SpillFolder) -> Result<(Option<SpillFolder>, Arc<Stores>)> {
    let own = options.object_cache_directory.as_deref().map(SpillFolder::create).transpose();
    let own = own.map_err(|error| {
        let path = options.object_cache_directory.as_deref().unwrap_or(spill.path()).display();
        let message = format!("folder for the cache of objects can't be made: path={path}: {error}");
        Error::new(ErrorKind::FileAccess, message)
    })?;
    let folder = own.as_ref().map_or_else(|| spill.path().join(OBJECTS_FOLDER), |own| own.path().to_owned());
    let processes = match options.rank_processes {
        RankProcesses::Own => options.ranks.max(1) as u64,
        RankProcesses::One => 1,
    };
    Ok((own, Arc::new(Stores::new(&folder, options.object_cache_bytes / processes))))
}

fn runtime(name: &str, threads: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(format!("pystachio-{name}"))
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("threads can't be started: threads={threads}: {error}")))
}

/// Finds and logs the libraries that a GPU engine uses on this host.
fn libraries(device: Device) -> Vec<String> {
    match device {
        Device::Cpu | Device::Emulated => Vec::new(),
        Device::Cuda | Device::Auto => {
            let lines = library_lines();
            lines.iter().for_each(|line| tracing::info!("{line}"));
            lines
        }
    }
}

/// An engine, the watch over its device if it has one, and its other ranks if they have processes.
struct Started {
    engine: Arc<dyn Engine>,
    calls: Option<Arc<CallWatch>>,
    ranks: Option<Arc<RankWatch>>,
}

/// The engine of a device, and its other ranks if these have processes.
type StartedDevice = (RankedEngine, Option<Arc<RankWatch>>);

fn start_engine(
    options: &Options,
    (spill, stores): (&Spilling, Arc<Stores>),
    (compute, sockets): (&Handle, &Handle),
) -> Result<Started> {
    let _context = compute.enter();
    let cpu = CpuEngine::new(CpuOptions {
        threads: options.threads,
        memory_bytes: options.memory_bytes,
        cache_bytes: options.cache_bytes,
        rank_count: options.ranks,
        spill: spill.clone(),
    })?;
    cpu.catalog().set_stores(stores);
    let name = match options.device {
        Device::Cpu => return Ok(Started { engine: Arc::new(cpu), calls: None, ranks: None }),
        Device::Emulated => "emulated",
        Device::Cuda | Device::Auto => "cuda",
    };
    let device = start_device(options, spill, &cpu, sockets);
    let device = match (device, options.device) {
        (Err(reason), Device::Auto) if !is_short_of_gpus(options) => {
            tracing::info!("{reason}");
            return Ok(Started { engine: Arc::new(cpu), calls: None, ranks: None });
        }
        (Err(error), Device::Cuda) if error.hint.is_none() => {
            Err(error.with_hint("Set the server option device to 'cpu' or 'auto'."))
        }
        (device, _) => device,
    };
    let device = device.inspect_err(|error| tracing::error!("{error}"));
    let calls = device.as_ref().ok().map(|(device, _)| device.first().memory().platform().calls());
    let ranks = device.as_ref().ok().and_then(|(_, ranks)| ranks.clone());
    let device = device.map(|(device, _)| device);
    let engine = PairedEngine::new(name, device, cpu).with_ranks(ranks.clone()).measured();
    Ok(Started { engine: Arc::new(engine), calls, ranks })
}

/// Whether there are GPUs, but fewer than ranks. That is an error, not a reason to use the CPU.
fn is_short_of_gpus(options: &Options) -> bool {
    options.rank_count() > 1 && CudaPlatform::count().is_ok_and(|count| count > 0)
}

fn start_device(
    options: &Options,
    spill: &Spilling,
    cpu: &CpuEngine,
    sockets: &Handle,
) -> Result<StartedDevice> {
    let OpenedDevice { platforms, options: device_options, network } = open_device(options, spill)?;
    let ranked = RankedOptions::of(options.rank_policy);
    let catalog = cpu.catalog().clone();
    if options.rank_count() > 1 && options.rank_processes == RankProcesses::One {
        return Ok((ranks_of_one_process(platforms, &device_options, &catalog, ranked)?, None));
    }
    let platform =
        platforms.into_iter().next().ok_or_else(|| Error::internal("an engine without a device"))?;
    if options.rank_count() == 1 {
        let device = DeviceEngine::new(platform, &device_options).with_catalog(catalog);
        return Ok((RankedEngine::alone(device), None));
    }
    let device = Arc::new(RankDevice::open(platform, &device_options, catalog)?);
    let table = Arc::new(RankTable::new(options.rank_count(), ranked.on_hosts(options.host_count())));
    let engine = RankedEngine::with_ranks(device.engine().clone(), table.clone());
    let place = (Rank(0), options.rank_count());
    let network = over_hosts(network, options)?;
    let hosts = options.hosts.as_ref().map(|hosts| Hosts::new(hosts, options.ranks)).transpose()?;
    let arguments = std::env::args_os().skip(1).collect::<Vec<OsString>>();
    let (command, spill_directory) = (RankCommand { arguments, hosts }, options.spill_directory.clone());
    if let Some(hosts) = command.hosts.clone() {
        HostListener::start(ListenerSetup { hosts, command: command.clone(), spill_directory }, sockets)?;
    }
    let setup = WatchSetup {
        rank_0: Arc::new(RankSetup { place, device, network, options: network_options(options) }),
        command,
        table,
        spill_directory: options.spill_directory.clone(),
    };
    let watch = RankWatch::start(setup, sockets.clone())
        .map_err(|error| Error::internal(format!("no thread to look after ranks: {error}")))?;
    Ok((engine, Some(watch)))
}

/// The settings of a rank's rounds, whichever host it is on.
fn network_options(options: &Options) -> NetworkOptions {
    NetworkOptions { host_count: options.host_count(), ..NetworkOptions::default() }
}

/// The connections of a rank if ranks are on several hosts.
fn over_hosts(network: RankNetwork, options: &Options) -> Result<RankNetwork> {
    match &options.hosts {
        None => Ok(network),
        Some(hosts) => LinkListener::bind(host_name(hosts.own())).map(|listener| network.over(listener)),
    }
}

/// Takes no more requests after SIGUSR1, nor after SIGUSR2 if none runs then.
fn retire_on_signals(host: Arc<Host>) -> Result<()> {
    let (mut always, mut if_idle) =
        (listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?);
    tokio::spawn(async move {
        loop {
            let is_retired = tokio::select! {
                _ = always.recv() => { host.retire(); true }
                _ = if_idle.recv() => host.retire_if_idle(),
            };
            tracing::info!(is_retired, "engine was asked to end");
        }
    });
    Ok(())
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::internal(format!("signals can't be listened to: {error}")))
}

async fn wait_for_end(parent: u32) -> Result<&'static str> {
    let mut terminated = listen(SignalKind::terminate())?;
    let mut interrupted = listen(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminated.recv() => "SIGTERM",
        _ = interrupted.recv() => "SIGINT",
        () = wait_for_orphaning(parent) => "the supervisor is gone",
    })
}
