//! Which GPUs should read a disk.

use pystachio_plan::{AffinityPolicy, AffinityRule};

use super::{Disk, Distance, Topology};

/// Entries of a rule that name a missing disk or GPU.
pub(super) fn unknown_entries(topology: &Topology, rule: &AffinityRule) -> Vec<String> {
    let is_known = |(disk, gpu): &&(String, u32)| {
        (*gpu as usize) < topology.gpus.len() && topology.disks.iter().any(|known| known.name == *disk)
    };
    let unknown = rule.disks.iter().filter(|entry| !is_known(entry));
    unknown.map(|(disk, gpu)| format!("{disk}:{gpu}")).collect()
}

/// The GPUs that should read files on some disks, in their order. All of them if nothing decides.
pub(super) fn gpus_for(topology: &Topology, rule: &AffinityRule, disks: &[&Disk]) -> Vec<usize> {
    let count = topology.gpus.len();
    let named = rule.disks.iter().filter(|(name, _)| disks.iter().any(|disk| disk.name == *name));
    let mut named: Vec<usize> = named.map(|(_, gpu)| *gpu as usize).filter(|gpu| *gpu < count).collect();
    if !named.is_empty() {
        named.sort_unstable();
        named.dedup();
        return named;
    }
    let chosen: Vec<usize> = match rule.policy {
        AffinityPolicy::System => Vec::new(),
        AffinityPolicy::Numa => {
            let is_of_node = |gpu: &usize| {
                let node = topology.gpus.get(*gpu).and_then(|gpu| gpu.node);
                node.is_some() && disks.iter().any(|disk| disk.node == node)
            };
            (0..count).filter(is_of_node).collect()
        }
        AffinityPolicy::Optimal => {
            // If disks are read together, the farthest one decides.
            let farthest = |gpu: usize| {
                let gpu = topology.gpus.get(gpu)?;
                disks.iter().map(|disk| Distance::between(gpu, disk)).max()
            };
            let least = (0..count).filter_map(farthest).min();
            (0..count).filter(|gpu| farthest(*gpu) == least).collect()
        }
    };
    if chosen.is_empty() { (0..count).collect() } else { chosen }
}
