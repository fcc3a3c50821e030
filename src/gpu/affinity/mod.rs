//! Which GPU is near which disk, and which processors are near a GPU.
//!
//! - `topology.rs`: GPUs and disks on the PCI Express tree and on NUMA nodes, and how far they are from each other
//! - `sysfs.rs`: the host's topology, from the kernel's /sys
//! - `policy.rs`: which GPUs should read a disk, by a user's rule
//! - `processors.rs`: threads on the processors near a GPU
//!
//! Invariants: everything but reading /sys and binding threads is a pure function of a described
//! topology. If /sys lacks information, threads are not bound, and all GPUs count as equally near.
//!
//! Deliberately absent: CUDA. The caller passes the PCI addresses of the GPUs.
//!
//! Source: policies as PG-Strom has them, by PCI Express hops and NUMA nodes. We compare the NUMA nodes, the host
//! bridge and the hops one after another instead of adding weights.

mod policy;
mod processors;
mod sysfs;
mod topology;

pub use processors::Processors;
pub use topology::{Disk, Distance, Gpu, PciPath, Topology};

use std::path::Path;

use pystachio_plan::{AffinityPolicy, AffinityRule};

/// The surroundings of an engine's GPU.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    topology: Topology,
    rule: AffinityRule,
    /// The engine's GPU, in the topology's order.
    gpu: usize,
}

impl Affinity {
    /// The neighbourhood of one of the host's GPUs, which are known by their PCI addresses (`0000:1b:00.0`).
    pub fn of_host(addresses: &[String], gpu: usize, rule: AffinityRule) -> Self {
        Self { topology: sysfs::read(Path::new("/sys"), addresses), rule, gpu }
    }

    /// GPUs, disks, their distances and the conclusions from them, a line each, for the log.
    pub fn lines(&self) -> Vec<String> {
        let gpus = self.topology.gpus.iter().enumerate().map(|(number, gpu)| format!("GPU {number}: {gpu}"));
        let disks = self.topology.disks.iter().map(|disk| {
            let distance =
                |(number, gpu): (usize, &Gpu)| format!("GPU {number} at {}", Distance::between(gpu, disk));
            let distances: Vec<String> = self.topology.gpus.iter().enumerate().map(distance).collect();
            let chosen: Vec<String> = self.gpus_for(&[disk]).iter().map(usize::to_string).collect();
            format!("{disk}: {}; read by GPU {} ({})", distances.join(", "), chosen.join(", "), self.rule)
        });
        let unknown = policy::unknown_entries(&self.topology, &self.rule).into_iter().map(|entry| {
            format!("the option affinity names a missing disk or GPU: {entry}; the entry has no effect")
        });
        gpus.chain(disks).chain(unknown).collect()
    }

    /// The processors that the engine's readers should run on; `None` if any.
    pub fn reader_processors(&self) -> Option<Processors> {
        let gpu = self.topology.gpus.get(self.gpu)?;
        if self.rule.policy == AffinityPolicy::System {
            return None;
        }
        gpu.processors.clone()
    }

    /// The disks of the file system with this device number, and their distance from the engine's
    /// GPU: `nvme0 at 2 hops`. `None` if unknown.
    pub fn place_of(&self, device: u64) -> Option<String> {
        let gpu = self.topology.gpus.get(self.gpu)?;
        let disks = self.topology.disks_of(device);
        let place = |disk: &&Disk| format!("{} at {}", disk.name, Distance::between(gpu, disk));
        let places: Vec<String> = disks.iter().map(place).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// The GPUs that should read files on these disks, in their order; all of them if nothing
    /// decides.
    pub fn gpus_for(&self, disks: &[&Disk]) -> Vec<usize> {
        policy::gpus_for(&self.topology, &self.rule, disks)
    }
}

#[cfg(test)]
mod tests;
