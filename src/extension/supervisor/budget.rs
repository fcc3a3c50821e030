//! The budget of the cluster: which memory and which GPUs an engine may have beside the others.
//!
//! Memory: `pystachio.memory` limits the sum over all processes. A server with the option `memory`
//! gets that amount or waits. Another server gets two thirds of the free memory. So the first
//! engine of a cluster has half of the machine by default, and others still find room. GPUs: the
//! percentages of a GPU's memory that servers ask for add up to 100 at most.
//!
//! Engines that run no request end if that makes room, those first that were unused for longest. A
//! server with `device 'auto'` whose GPU is taken runs on the processors until the GPU is free.
//!
//! Deliberately absent: processors, which all engines share (`processors.rs`); sizes of GPUs, which
//! only an engine knows. So an option `device_memory` in bytes is not counted here.

use std::time::Duration;

use pystachio_plan::MemorySize;
use serde::{Deserialize, Serialize};

use super::{engine::Engine, home::Promise};
use crate::{
    options::{Device, Resources, ServerOptions},
    settings,
};

/// What an engine without the option `memory` is started with at least.
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// How long an engine must have been without requests before it ends for another one.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// How many engines an error names.
const NAMED_MAX: usize = 5;
/// Present on hosts with GPUs.
const GPU_DRIVER: &str = "/proc/driver/nvidia/version";

/// What a process is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Threads and memory.
    pub resources: Resources,
    /// Where it computes.
    pub device: Device,
    /// GPUs, each with the hundredths of its memory that the process may take; 0 if bytes are given instead.
    pub gpus: Vec<(u32, u32)>,
    /// The server has `device 'auto'`, and other engines have its GPU.
    pub is_displaced: bool,
}

impl Share {
    /// The memory that is promised to the process.
    pub fn promised_bytes(&self) -> u64 {
        let pinned_bytes = if uses_device(self.device) { self.resources.pinned_cache_bytes } else { 0 };
        self.resources.memory_bytes.saturating_add(pinned_bytes)
    }

    /// The same as the views show it.
    pub fn promise(&self) -> Promise {
        Promise { memory_bytes: self.promised_bytes(), gpus: self.gpus.clone() }
    }
}

/// Why an engine can't start now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is missing.
    pub message: String,
    /// Who has it.
    pub detail: Option<String>,
    /// The way out.
    pub hint: String,
    /// Waiting does not help.
    pub is_final: bool,
}

/// Whether an engine may start.
pub enum Decision {
    /// With this.
    Start(Share),
    /// Not now. These engines, which seem to be idle, would make room.
    Wait(Refusal, Vec<String>),
}

/// Decides on an engine that is to be started. `engines` are all of them, by name.
pub fn decide<'a>(
    engine: &Engine,
    engines: impl Iterator<Item = (&'a String, &'a Engine)> + Clone,
) -> Decision {
    let options = &engine.home().options;
    let gpus = gpus_of(options);
    let holders = gpu_holders(&gpus, engines.clone());
    if holders.is_empty() {
        return decide_memory(engine, options.device, gpus, engines);
    }
    if let Some(names) = idle_names(&holders) {
        return Decision::Wait(gpu_refusal(engine, &holders), names);
    }
    match options.device {
        Device::Auto => decide_memory(engine, Device::Cpu, Vec::new(), engines),
        _ => Decision::Wait(gpu_refusal(engine, &holders), Vec::new()),
    }
}

/// Whether a displaced engine could have its GPUs now.
pub fn could_return<'a>(engine: &Engine, engines: impl Iterator<Item = (&'a String, &'a Engine)>) -> bool {
    gpu_holders(&gpus_of(&engine.home().options), engines).is_empty()
}

fn decide_memory<'a>(
    engine: &Engine,
    device: Device,
    gpus: Vec<(u32, u32)>,
    engines: impl Iterator<Item = (&'a String, &'a Engine)> + Clone,
) -> Decision {
    let options = &engine.home().options;
    let is_displaced = device != options.device;
    let budget_bytes = settings::memory_bytes();
    let share = |memory_bytes| Share {
        resources: options.resources(memory_bytes),
        device,
        gpus: gpus.clone(),
        is_displaced,
    };
    let promised_bytes: u64 =
        engines.clone().flat_map(|(_, engine)| engine.shares()).map(Share::promised_bytes).sum();
    let free_bytes = budget_bytes.saturating_sub(promised_bytes);
    let (wanted, least) = match options.memory_bytes {
        Some(memory_bytes) => (share(memory_bytes), share(memory_bytes)),
        None => (share(free_bytes / 3 * 2), share(MEMORY_BYTES_MIN.min(budget_bytes / 3 * 2))),
    };
    for share in [wanted, least.clone()] {
        if share.promised_bytes() <= free_bytes
            && share.resources.memory_bytes >= least.resources.memory_bytes
        {
            return Decision::Start(share);
        }
    }
    let needed_bytes = least.promised_bytes();
    let refusal = memory_refusal(engine, needed_bytes, budget_bytes, engines.clone());
    let mut idle: Vec<_> = engines.filter(|(_, other)| other.unused_for() >= Some(IDLE_TIME)).collect();
    idle.sort_by_key(|(_, other)| std::cmp::Reverse(other.unused_for()));
    let (mut names, mut room_bytes) = (Vec::new(), free_bytes);
    for (name, other) in idle {
        if room_bytes < needed_bytes {
            room_bytes += other.shares().map(Share::promised_bytes).sum::<u64>();
            names.push(name.clone());
        }
    }
    if room_bytes < needed_bytes {
        names.clear();
    }
    Decision::Wait(refusal, names)
}

fn memory_refusal<'a>(
    engine: &Engine,
    needed_bytes: u64,
    budget_bytes: u64,
    engines: impl Iterator<Item = (&'a String, &'a Engine)>,
) -> Refusal {
    let server = &engine.home().server_name;
    let (needed, budget) = (needed_bytes >> 20, budget_bytes >> 20);
    let holders: Vec<(String, u64)> = engines
        .map(|(_, other)| (other.place(), other.shares().map(Share::promised_bytes).sum::<u64>()))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    let promised = holders.iter().map(|(_, bytes)| bytes).sum::<u64>() >> 20;
    let named = holders.iter().take(NAMED_MAX).map(|(place, bytes)| format!("{place}: {} MB", bytes >> 20));
    let named = named.collect::<Vec<_>>().join(", ");
    let others = match holders.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    Refusal {
        message: format!(
            "no memory for the engine of server \"{server}\": it needs {needed} MB, and {promised} of {budget} MB are promised"
        ),
        detail: (!holders.is_empty()).then(|| format!("Engines in use: {named}{others}.")),
        hint: "Wait until queries of other engines have ended, lower the option memory of servers, or raise pystachio.memory."
            .to_owned(),
        is_final: needed_bytes > budget_bytes,
    }
}

fn gpu_refusal(engine: &Engine, holders: &[(&String, &Engine)]) -> Refusal {
    let server = &engine.home().server_name;
    let named: Vec<String> = holders.iter().take(NAMED_MAX).map(|(_, other)| other.place()).collect();
    Refusal {
        message: format!("no GPU for the engine of server \"{server}\": other engines have its memory"),
        detail: Some(format!("Engines in use: {}.", named.join(", "))),
        hint: "Wait until their queries have ended, lower the option device_memory of the servers, or set device to 'auto' or 'cpu'."
            .to_owned(),
        is_final: false,
    }
}

/// The engines that have so much of these GPUs that there is not enough left.
fn gpu_holders<'a>(
    gpus: &[(u32, u32)],
    engines: impl Iterator<Item = (&'a String, &'a Engine)>,
) -> Vec<(&'a String, &'a Engine)> {
    let engines: Vec<_> = engines.collect();
    let taken = |gpu: u32, engine: &Engine| {
        let shares = engine.shares().flat_map(|share| &share.gpus).filter(|(other, _)| *other == gpu);
        shares.map(|(_, percent)| percent).sum::<u32>()
    };
    let is_full = |(gpu, percent): &&(u32, u32)| {
        let taken: u32 = engines.iter().map(|(_, engine)| taken(*gpu, engine)).sum();
        *percent > 0 && taken + percent > 100
    };
    let full: Vec<u32> = gpus.iter().filter(is_full).map(|(gpu, _)| *gpu).collect();
    engines.iter().filter(|(_, engine)| full.iter().any(|gpu| taken(*gpu, engine) > 0)).copied().collect()
}

/// The engines' names if all of them seem to be idle.
fn idle_names(engines: &[(&String, &Engine)]) -> Option<Vec<String>> {
    let are_idle = engines.iter().all(|(_, engine)| engine.unused_for() >= Some(IDLE_TIME));
    are_idle.then(|| engines.iter().map(|(name, _)| (*name).clone()).collect())
}

/// The GPUs that a server's engine would take; none on a host without.
fn gpus_of(options: &ServerOptions) -> Vec<(u32, u32)> {
    if !matches!(options.device, Device::Cuda | Device::Auto) || !has_gpus() {
        return Vec::new();
    }
    let percent = match options.device_memory {
        MemorySize::Percent(percent) => u32::from(percent),
        MemorySize::Bytes(_) => 0,
    };
    options.devices.iter().map(|gpu| (*gpu, percent)).collect()
}

fn uses_device(device: Device) -> bool {
    match device {
        Device::Cpu => false,
        Device::Emulated => true,
        Device::Cuda | Device::Auto => has_gpus(),
    }
}

fn has_gpus() -> bool {
    std::fs::exists(GPU_DRIVER).unwrap_or(false)
}
