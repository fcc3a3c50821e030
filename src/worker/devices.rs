//! Opens the device of a rank as the options name it, and limits the memory that the rank uses of the device and the host.

use std::{fmt, sync::Arc};

use pystachio_cuda::CudaPlatform;
use pystachio_engine::spill::Spilling;
use pystachio_gpu::{
    affinity::Affinity,
    device::{EmulatedPlatform, Platform},
    execution::DeviceOptions,
};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::{Device, Options, RankNetwork, RankProcesses, process::wait_for_ending_engines};

/// The share of a device's arena for column chunks that stay between queries.
const DEVICE_CACHE_PERCENT: u64 = 60;
/// The share of the option `memory` that queries may page-lock for data that does not fit on the device.
const HOST_MEMORY_PERCENT: u64 = 25;

/// A device and the limits of its rank.
pub struct OpenedDevice {
    /// The devices of this process: one, but for emulated ranks that share it.
    pub platforms: Vec<Arc<dyn Platform>>,
    /// The limits of each.
    pub options: DeviceOptions,
    /// How it is connected with other ranks.
    pub network: RankNetwork,
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenedDevice").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Opens the device of this process's rank, which spills into its process's folder.
///
/// # Errors
///
/// `Unavailable` if it is not there, or there are fewer than ranks; `NotSupported` for the CPU, which is no device.
pub fn open_device(options: &Options, spill: &Spilling) -> Result<OpenedDevice> {
    match options.device {
        Device::Emulated => open_emulated(options, spill),
        Device::Cuda | Device::Auto => open_gpu(options, spill),
        Device::Cpu => Err(Error::new(ErrorKind::NotSupported, "the CPU engine has no device")),
    }
}

/// The emulated device has as much memory as the option `memory`, its cache included. Ranks share it
/// equally.
fn open_emulated(options: &Options, spill: &Spilling) -> Result<OpenedDevice> {
    let device_options = device_options(options, spill, options.memory_bytes)?;
    let cache_bytes = device_options.cache_bytes.min(options.cache_bytes);
    let part = |bytes: u64| bytes / options.ranks as u64;
    let device_options = DeviceOptions {
        memory_bytes: part(device_options.memory_bytes),
        cache_bytes: part(cache_bytes),
        ..device_options
    };
    let platforms = match options.rank_processes {
        RankProcesses::One => options.ranks,
        RankProcesses::Own => 1,
    };
    let platforms = (0..platforms).map(|_| Arc::new(EmulatedPlatform::new()) as Arc<dyn Platform>);
    Ok(OpenedDevice {
        platforms: platforms.collect(),
        options: device_options,
        network: RankNetwork::of_sockets(),
    })
}

/// Rank k has the k-th GPU that is named.
fn open_gpu(options: &Options, spill: &Spilling) -> Result<OpenedDevice> {
    if options.ranks > 1 && options.rank_processes == RankProcesses::One {
        let message = format!("ranks on GPUs have a process each: ranks={}", options.ranks);
        return Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint("Set the server option rank_processes to 'own'."));
    }
    let ordinals = &options.device_ordinals;
    let Some(ordinal) =
        ordinals.get(options.rank_on_host()).copied().filter(|_| ordinals.len() == options.ranks)
    else {
        let message = format!("ranks have a GPU each: ranks={}, devices={}", options.ranks, ordinals.len());
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Name as many GPUs by the server option devices as there are ranks, or none."));
    };
    if options.ranks > 1 {
        check_gpu_count(options)?;
    }
    wait_for_ending_engines();
    let platform = Arc::new(CudaPlatform::open(ordinal)?);
    let addresses = platform.gpu_addresses()?;
    let affinity = Affinity::of_host(&addresses, ordinal as usize, options.affinity.clone());
    affinity.lines().iter().for_each(|line| tracing::info!("{line}"));
    let device_options =
        DeviceOptions { affinity, ..device_options(options, spill, platform.memory_bytes())? };
    let DeviceOptions { memory_bytes, pinned_cache_bytes, .. } = device_options;
    let (gpu, rank) = (platform.description(), options.rank);
    tracing::info!(gpu, rank, ordinal, memory_bytes, pinned_cache_bytes, "GPU is open");
    Ok(OpenedDevice {
        platforms: vec![platform.clone()],
        options: device_options,
        network: RankNetwork::of_gpu(platform),
    })
}

fn check_gpu_count(options: &Options) -> Result<()> {
    let gpu_count = CudaPlatform::count()?;
    let ordinal_max = options.device_ordinals.iter().copied().max().unwrap_or(0);
    if ordinal_max < gpu_count {
        return Ok(());
    }
    let message = format!(
        "there are fewer GPUs than ranks need: ranks={}, gpus={gpu_count}, highest_gpu={ordinal_max}",
        options.ranks
    );
    let hint = format!(
        "ALTER SERVER … OPTIONS (SET ranks '{gpu_count}'), or let the server see more GPUs (CUDA_VISIBLE_DEVICES)."
    );
    Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint))
}

/// The limits for a device with so much memory. Queries spill to page-locked memory first, then to files. Ranks share the
/// host's memory equally.
fn device_options(options: &Options, spill: &Spilling, device_bytes: u64) -> Result<DeviceOptions> {
    let memory_bytes = options.device_memory.bytes_of(device_bytes);
    if memory_bytes > device_bytes {
        let message = format!(
            "the server option device_memory is more than the device has: device_memory_bytes={memory_bytes}, \
             device_bytes={device_bytes}"
        );
        let hint = "ALTER SERVER … OPTIONS (SET device_memory '85%').";
        return Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint));
    }
    let part = |bytes: u64| bytes / options.ranks as u64;
    Ok(DeviceOptions {
        memory_bytes,
        cache_bytes: memory_bytes / 100 * DEVICE_CACHE_PERCENT,
        pinned_cache_bytes: part(options.pinned_cache_bytes),
        host_bytes: part(options.memory_bytes / 100 * HOST_MEMORY_PERCENT),
        spill: spill.clone(),
        affinity: Affinity::default(),
    })
}
