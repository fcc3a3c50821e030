//! GPUs and disks, and how far they are from each other.
//!
//! ```text
//! host bridge pci0000:16 ─┬─ 0000:16:02.0 ─── 0000:17:00.0 ─┬─ 0000:18:00.0 ─── GPU
//!                         │                      switch     └─ 0000:18:01.0 ─── NVMe      4 hops
//!                         └─ 0000:16:03.0 ─── NVMe                                        5 hops
//! ```

use std::{collections::BTreeMap, fmt};

use super::Processors;

/// A device's place on the PCI Express tree: its host bridge, and the functions on the way from there to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPath(
    /// As /sys names them: `pci0000:16`, `0000:16:02.0`, …
    pub Vec<String>,
);

impl PciPath {
    /// The device's own address.
    pub fn address(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its place; absent if the kernel does not report it.
    pub path: Option<PciPath>,
    /// Its NUMA node; absent on hosts with one.
    pub node: Option<u32>,
    /// The distance of that node from each other node, as the firmware reports it: 10 from itself.
    pub node_distances: Vec<u32>,
    /// The processors of its node, if they are not all.
    pub processors: Option<Processors>,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// As the kernel names it: `nvme0`, `sda`.
    pub name: String,
    /// The place of its controller.
    pub path: PciPath,
    /// Its controller's NUMA node; absent on hosts with one.
    pub node: Option<u32>,
}

/// The GPUs and disks of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// In the driver's order.
    pub gpus: Vec<Gpu>,
    /// In the order of their names.
    pub disks: Vec<Disk>,
    /// The disks, by place, that each block device consists of; by device number.
    pub block_devices: BTreeMap<u64, Vec<usize>>,
}

impl Topology {
    /// The disks that a block device consists of.
    pub fn disks_of(&self, device: u64) -> Vec<&Disk> {
        let places = self.block_devices.get(&device).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.disks.get(*place)).collect()
    }
}

/// The distance of a disk from a GPU: nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Below one host bridge.
    Hops(usize),
    /// Over two host bridges of a NUMA node, or of nodes that are not known.
    Bridges(usize),
    /// Over NUMA nodes this far from each other.
    Nodes(u32, usize),
    /// The kernel does not report where the GPU is.
    Unknown,
}

/// The distance between NUMA nodes if the firmware reports none: the usual value.
const REMOTE_NODE_DISTANCE: u32 = 20;

impl Distance {
    /// From a GPU to a disk.
    pub fn between(gpu: &Gpu, disk: &Disk) -> Self {
        let Some(path) = &gpu.path else { return Self::Unknown };
        let (gpu_path, disk_path) = (&path.0, &disk.path.0);
        let shared = gpu_path.iter().zip(disk_path).take_while(|(gpu, disk)| gpu == disk).count();
        let hops = gpu_path.len() + disk_path.len() - 2 * shared;
        match (gpu.node, disk.node) {
            _ if shared > 0 => Self::Hops(hops),
            (Some(gpu_node), Some(disk_node)) if gpu_node != disk_node => {
                let known = gpu.node_distances.get(disk_node as usize).copied();
                Self::Nodes(known.unwrap_or(REMOTE_NODE_DISTANCE), hops)
            }
            _ => Self::Bridges(hops),
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hops(hops) => write!(formatter, "{hops} hops"),
            Self::Bridges(hops) => write!(formatter, "{hops} hops over host bridges"),
            Self::Nodes(distance, hops) => {
                write!(formatter, "{hops} hops over NUMA nodes of distance {distance}")
            }
            Self::Unknown => write!(formatter, "a distance that is not known"),
        }
    }
}

fn node_text(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(", NUMA node {node}"))
}

impl fmt::Display for Gpu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.path.as_ref().map_or("at an unknown place", PciPath::address);
        write!(formatter, "{address}{}", node_text(self.node))?;
        match &self.processors {
            Some(processors) => write!(formatter, ", processors {processors}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}{})", self.name, self.path.address(), node_text(self.node))
    }
}
