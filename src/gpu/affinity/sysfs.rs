//! Reads the host's topology from the kernel.
//!
//! | below /sys | what |
//! |---|---|
//! | `bus/pci/devices/ADDRESS` | a link to the device's place on the tree; its `numa_node` and `local_cpulist` |
//! | `block/NAME` | a link to a disk's place; `dev`, its partitions' `dev`, and `slaves` for what is made of others |
//! | `devices/virtual/nvme-subsystem/…` | the controllers of an NVMe disk that several paths may lead to |
//! | `devices/system/node/nodeN/distance` | distances of NUMA nodes; `devices/system/cpu/online` all processors |

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use super::{Disk, Gpu, PciPath, Processors, Topology};

/// Depth of block devices that consist of others.
const SLAVES_DEPTH_MAX: usize = 8;

/// Reads a tree like /sys. GPUs are given by their PCI addresses. Missing files are skipped.
pub(super) fn read(root: &Path, gpu_addresses: &[String]) -> Topology {
    let gpus = gpu_addresses.iter().map(|address| read_gpu(root, &address.to_ascii_lowercase())).collect();
    let mut disks: BTreeMap<String, Disk> = BTreeMap::new();
    let mut block_devices: Vec<(u64, Vec<String>)> = Vec::new();
    for name in names(&root.join("block")) {
        let found = disks_of(root, &name, 0);
        let folder = root.join("block").join(&name);
        let partitions = names(&folder).into_iter().map(|partition| folder.join(partition));
        for place in std::iter::once(folder.clone()).chain(partitions) {
            if let Some(number) = read_text(&place.join("dev")).and_then(|text| device_number(&text)) {
                block_devices.push((number, found.iter().map(|disk| disk.name.clone()).collect()));
            }
        }
        disks.extend(found.into_iter().map(|disk| (disk.name.clone(), disk)));
    }
    let disks: Vec<Disk> = disks.into_values().collect();
    let places = |names: Vec<String>| {
        names.iter().filter_map(|name| disks.iter().position(|disk| disk.name == *name)).collect()
    };
    let block_devices = block_devices
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(number, names)| (number, places(names)))
        .collect();
    Topology { gpus, disks, block_devices }
}

fn read_gpu(root: &Path, address: &str) -> Gpu {
    let folder = root.join("bus/pci/devices").join(address);
    let node = read_node(&folder);
    let online = read_text(&root.join("devices/system/cpu/online")).and_then(|text| Processors::parse(&text));
    let processors = read_text(&folder.join("local_cpulist")).and_then(|text| Processors::parse(&text));
    let distances =
        node.and_then(|node| read_text(&root.join(format!("devices/system/node/node{node}/distance"))));
    let node_distances = distances.unwrap_or_default();
    let node_distances = node_distances.split_whitespace().map(|distance| distance.parse().ok());
    Gpu {
        path: pci_path(root, &folder).map(|(path, _)| path),
        node,
        node_distances: node_distances.collect::<Option<Vec<u32>>>().unwrap_or_default(),
        processors: processors.filter(|processors| online.as_ref() != Some(processors)),
    }
}

/// The disks that a block device consists of.
fn disks_of(root: &Path, name: &str, depth: usize) -> Vec<Disk> {
    let folder = root.join("block").join(name);
    let slaves = names(&folder.join("slaves"));
    if !slaves.is_empty() && depth < SLAVES_DEPTH_MAX {
        // A slave may be a partition, whose folder is in its disk's.
        let disk_name = |slave: &String| match root.join("block").join(slave).exists() {
            true => Some(slave.clone()),
            false => {
                let disks = names(&root.join("block"));
                disks.into_iter().find(|disk| root.join("block").join(disk).join(slave).exists())
            }
        };
        let names = slaves.iter().filter_map(disk_name);
        return names.flat_map(|name| disks_of(root, &name, depth + 1)).collect();
    }
    let controllers: Vec<PathBuf> = match folder.canonicalize() {
        Ok(place) if place.components().any(|part| part.as_os_str() == "nvme-subsystem") => {
            let subsystem = place.parent().map(Path::to_owned).unwrap_or_default();
            let is_controller = |name: &String| {
                let number = name.strip_prefix("nvme").unwrap_or_default();
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            };
            names(&subsystem).into_iter().filter(is_controller).map(|name| subsystem.join(name)).collect()
        }
        Ok(place) => vec![place],
        Err(_) => Vec::new(),
    };
    let disk = |place: PathBuf| {
        let (path, device) = pci_path(root, &place)?;
        Some(Disk { name: controller_name(&place, name), path, node: read_node(&device) })
    };
    controllers.into_iter().filter_map(disk).collect()
}

/// `nvme0` for a device below a controller of NVMe, otherwise the block device's name.
fn controller_name(place: &Path, name: &str) -> String {
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let mut parts = place.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    match parts.find(|part| part == "nvme").and_then(|_| parts.next()) {
        Some(controller) => controller,
        None => name.to_owned(),
    }
}

/// A device's place on the PCI tree, and the folder of the last PCI device on the way to it.
fn pci_path(root: &Path, place: &Path) -> Option<(PciPath, PathBuf)> {
    let (place, root) = (place.canonicalize().ok()?, root.canonicalize().ok()?);
    let mut path = Vec::new();
    let (mut folder, mut device) = (root.clone(), root.clone());
    for part in place.strip_prefix(&root).ok()?.components() {
        let Component::Normal(name) = part else { return None };
        folder.push(name);
        let name = name.to_string_lossy();
        if is_host_bridge(&name) || is_address(&name) {
            path.push(name.into_owned());
            device.clone_from(&folder);
        }
    }
    (path.len() > 1).then_some((PciPath(path), device))
}

/// `pci0000:16`.
fn is_host_bridge(name: &str) -> bool {
    name.strip_prefix("pci")
        .is_some_and(|number| has_shape(number, "xxxx:xx") || has_shape(number, "xxxxx:xx"))
}

/// `0000:1b:00.0`.
fn is_address(name: &str) -> bool {
    has_shape(name, "xxxx:xx:xx.x") || has_shape(name, "xxxxx:xx:xx.x")
}

/// Whether a text has a hexadecimal digit for every x, and is otherwise the same.
fn has_shape(text: &str, shape: &str) -> bool {
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'x' => byte.is_ascii_hexdigit(),
        other => byte == other,
    };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

/// -1 is a host with one node.
fn read_node(device: &Path) -> Option<u32> {
    read_text(&device.join("numa_node"))?.parse().ok()
}

/// From `259:0`.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn read_text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
