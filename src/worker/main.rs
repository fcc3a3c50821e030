//! The executable `pystachio-engine`: an engine behind a Unix socket, started and watched by the
//! extension's supervisor.
//!
//! Ends with 0 after SIGTERM, SIGINT or the end of its parent, with 2 for arguments that make no sense and
//! with 1 if it can't start or its device is lost; the supervisor then starts another. Logs go to stderr.

use std::{os::unix::process::parent_id, process::ExitCode, sync::Arc, time::Duration};

use pystachio_cpu::{CpuEngine, CpuOptions};
use pystachio_cuda::{CudaPlatform, library_lines};
use pystachio_engine::{Engine, locking::end_process_by};
use pystachio_gpu::{
    affinity::Affinity,
    device::{CallWatch, EmulatedPlatform, Platform},
    execution::{DeviceEngine, DeviceOptions, RankedEngine, RankedOptions, ranks_of_one_process},
};
use pystachio_plan::{Error, ErrorKind, Result};
use pystachio_worker::{
    Command, Device, Host, Options, PairedEngine, Server, SpillFolder, USAGE, VERSION, end_at_memory_faults,
    end_process, parse_arguments, prefer_as_oom_victim, return_memory_at_rest, wait_for_orphaning,
    watch_device,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Threads that serve sockets: one may decode a large plan while the other reads a cancel.
const SOCKET_THREADS: usize = 2;
/// Plans are trees that code walks recursively. Address space, not memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// How much of a device's arena column chunks may take that stay between queries.
const DEVICE_CACHE_PERCENT: u64 = 60;
/// How much of the option `memory` a device's queries may page-lock for what does not fit on the device.
const HOST_MEMORY_PERCENT: u64 = 25;
/// How long an orderly end waits for work to stop.
const STOP_WAIT: Duration = Duration::from_millis(700);

fn main() -> ExitCode {
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
    start_log();
    match serve(&options, parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(server = options.name, hint = error.hint, "{error}");
            ExitCode::FAILURE
        }
    }
}

fn start_log() {
    let filter = EnvFilter::try_from_env("PYSTACHIO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

fn serve(options: &Options, parent: u32) -> Result<()> {
    prefer_as_oom_victim();
    let spill = SpillFolder::create(&options.spill_directory).map_err(|error| {
        let path = options.spill_directory.display();
        Error::new(
            ErrorKind::FileAccess,
            format!("folder for spill files can't be made: path={path}: {error}"),
        )
    })?;
    let compute = runtime("compute", options.threads)?;
    let sockets = runtime("socket", SOCKET_THREADS)?;
    let libraries = libraries(options.device);
    let (engine, calls) = start_engine(options, &spill, compute.handle())?;
    let host = Host::new(engine, compute.handle().clone(), libraries);
    end_process_by({
        let host = host.clone();
        move |error| end_process(host.clone(), error)
    });
    if let Some(calls) = calls.filter(|_| options.device_timeout_s > 0) {
        watch_device(calls, options.device_timeout_s, host.clone())
            .map_err(|error| Error::internal(format!("the device's watch can't be started: {error}")))?;
    }
    sockets.spawn(return_memory_at_rest(host.counters().clone()));
    let served = sockets.block_on(async {
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
            // By itself it ends only when nothing can be done any more.
            _ = &mut serving => return Err(host.why_ended()),
        };
        tracing::info!(server = options.name, reason, "engine stops");
        stop.cancel();
        // Sessions that don't end by themselves end with the runtime.
        let _ = tokio::time::timeout(STOP_WAIT, serving).await;
        Ok(())
    });
    sockets.shutdown_background();
    compute.shutdown_timeout(STOP_WAIT);
    served
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

/// What a GPU's engine finds on this host, which is logged too.
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

/// An engine, and what its device does if it has one.
type StartedEngine = (Arc<dyn Engine>, Option<Arc<CallWatch>>);

fn start_engine(options: &Options, spill: &SpillFolder, compute: &Handle) -> Result<StartedEngine> {
    let _context = compute.enter();
    let cpu = CpuEngine::new(CpuOptions {
        threads: options.threads,
        memory_bytes: options.memory_bytes,
        cache_bytes: options.cache_bytes,
        spill_directory: spill.path().to_owned(),
    })?;
    if options.ranks > 1 && options.device != Device::Emulated {
        let message = format!(
            "only the emulated device has ranks, ranks on GPUs are not there yet: device={}, ranks={}",
            options.device.name(),
            options.ranks
        );
        let hint = "Set the server option ranks to '1', or device to 'emulated'.";
        return Err(Error::new(ErrorKind::NotSupported, message).with_hint(hint));
    }
    match options.device {
        Device::Cpu => Ok((Arc::new(cpu), None)),
        Device::Emulated => {
            let device = open_emulated(options, spill, &cpu).inspect_err(|error| tracing::error!("{error}"));
            Ok(paired("emulated", device, cpu))
        }
        Device::Cuda => {
            let device = open_gpu(options, spill, &cpu)
                .inspect_err(|error| tracing::error!("{error}"))
                .map_err(|error| error.with_hint("Set the server option device to 'cpu' or 'auto'."));
            Ok(paired("cuda", device, cpu))
        }
        Device::Auto => match open_gpu(options, spill, &cpu) {
            Ok(device) => Ok(paired("cuda", Ok(device), cpu)),
            Err(reason) => {
                tracing::info!("{reason}");
                Ok((Arc::new(cpu), None))
            }
        },
    }
}

fn paired(device_name: &'static str, device: Result<RankedEngine>, cpu: CpuEngine) -> StartedEngine {
    let calls = device.as_ref().ok().map(|device| device.first().memory().platform().calls());
    (Arc::new(PairedEngine::new(device_name, device, cpu)), calls)
}

/// What a device with so much memory is given to use. Queries spill to page-locked memory first, and then to files.
fn device_options(options: &Options, spill: &SpillFolder, device_bytes: u64) -> Result<DeviceOptions> {
    let memory_bytes = options.device_memory.bytes_of(device_bytes);
    if memory_bytes > device_bytes {
        let message = format!(
            "the server option device_memory is more than the device has: device_memory_bytes={memory_bytes}, \
             device_bytes={device_bytes}"
        );
        let hint = "ALTER SERVER … OPTIONS (SET device_memory '85%').";
        return Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint));
    }
    Ok(DeviceOptions {
        memory_bytes,
        cache_bytes: memory_bytes / 100 * DEVICE_CACHE_PERCENT,
        pinned_cache_bytes: options.pinned_cache_bytes,
        host_bytes: options.memory_bytes / 100 * HOST_MEMORY_PERCENT,
        spill_directory: spill.path().to_owned(),
        affinity: Affinity::default(),
    })
}

/// The emulated device has as much memory as the server, and what the server's cache may have of it is enough for
/// its cache. Ranks have a part of it each.
fn open_emulated(options: &Options, spill: &SpillFolder, cpu: &CpuEngine) -> Result<RankedEngine> {
    let device_options = device_options(options, spill, options.memory_bytes)?;
    let cache_bytes = device_options.cache_bytes.min(options.cache_bytes);
    let device_options = DeviceOptions { cache_bytes, ..device_options };
    if options.ranks == 1 {
        let device = DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &device_options);
        return Ok(RankedEngine::alone(device.with_catalog(cpu.catalog().clone())));
    }
    let part = |bytes: u64| bytes / options.ranks as u64;
    let of_rank = DeviceOptions {
        memory_bytes: part(device_options.memory_bytes),
        cache_bytes: part(device_options.cache_bytes),
        pinned_cache_bytes: part(device_options.pinned_cache_bytes),
        host_bytes: part(device_options.host_bytes),
        ..device_options
    };
    let platforms = (0..options.ranks).map(|_| Arc::new(EmulatedPlatform::new()) as Arc<dyn Platform>);
    let ranked = RankedOptions::of(options.rank_policy);
    tracing::info!(ranks = options.ranks, policy = ?options.rank_policy, "emulated ranks are open");
    ranks_of_one_process(platforms.collect(), &of_rank, cpu.catalog(), ranked)
}

fn open_gpu(options: &Options, spill: &SpillFolder, cpu: &CpuEngine) -> Result<RankedEngine> {
    let platform = CudaPlatform::open(options.device_ordinal)?;
    let addresses = platform.gpu_addresses()?;
    let affinity = Affinity::of_host(&addresses, options.device_ordinal as usize, options.affinity.clone());
    affinity.lines().iter().for_each(|line| tracing::info!("{line}"));
    let device_options =
        DeviceOptions { affinity, ..device_options(options, spill, platform.memory_bytes())? };
    let DeviceOptions { memory_bytes, pinned_cache_bytes, .. } = device_options;
    let (gpu, ordinal) = (platform.description(), options.device_ordinal);
    tracing::info!(gpu, ordinal, memory_bytes, pinned_cache_bytes, "GPU is open");
    let device = DeviceEngine::new(Arc::new(platform), &device_options);
    Ok(RankedEngine::alone(device.with_catalog(cpu.catalog().clone())))
}

async fn wait_for_end(parent: u32) -> Result<&'static str> {
    let listen = |kind| {
        signal(kind).map_err(|error| Error::internal(format!("signals can't be listened to: {error}")))
    };
    let mut terminated = listen(SignalKind::terminate())?;
    let mut interrupted = listen(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminated.recv() => "SIGTERM",
        _ = interrupted.recv() => "SIGINT",
        () = wait_for_orphaning(parent) => "the supervisor is gone",
    })
}
