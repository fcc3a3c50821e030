use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::*;

/// A tree like /sys, of devices that are added one after another.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new(processors: &str) -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["bus/pci/devices", "block", "devices/virtual/block"] {
            fs::create_dir_all(tree.path(folder)).unwrap();
        }
        tree.write("devices/system/cpu/online", processors);
        tree
    }

    fn path(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    fn write(&self, place: &str, text: &str) {
        fs::create_dir_all(self.path(place).parent().unwrap()).unwrap();
        fs::write(self.path(place), format!("{text}\n")).unwrap();
    }

    fn link(&self, link: &str, target: &str) {
        fs::create_dir_all(self.path(link).parent().unwrap()).unwrap();
        symlink(self.path(target), self.path(link)).unwrap();
    }

    /// A PCI device below `devices/`.
    fn pci(&self, place: &str, node: i32, processors: &str) {
        let place = format!("devices/{place}");
        self.write(&format!("{place}/numa_node"), &node.to_string());
        self.write(&format!("{place}/local_cpulist"), processors);
        let address = Path::new(&place).file_name().unwrap().to_str().unwrap().to_owned();
        self.link(&format!("bus/pci/devices/{address}"), &place);
    }

    /// A block device below `devices/`, with a partition.
    fn block(&self, place: &str, major: u32, minor: u32) {
        let place = format!("devices/{place}");
        let name = Path::new(&place).file_name().unwrap().to_str().unwrap().to_owned();
        self.write(&format!("{place}/dev"), &format!("{major}:{minor}"));
        self.write(&format!("{place}/{name}p1/dev"), &format!("{major}:{}", minor + 1));
        self.link(&format!("block/{name}"), &place);
    }

    fn affinity(&self, gpus: &[&str], rule: &str) -> Affinity {
        let addresses: Vec<String> = gpus.iter().map(ToString::to_string).collect();
        Affinity {
            topology: sysfs::read(self.folder.path(), &addresses),
            rule: rule.parse().unwrap(),
            gpu: 0,
        }
    }
}

const GPUS: [&str; 4] = ["0000:18:00.0", "0000:2A:00.0", "0000:98:00.0", "0000:a8:00.0"];

/// Two sockets with two GPUs each: one shares a switch with a disk, the other one is below the same host bridge on
/// the first socket, and below another on the second.
fn two_sockets() -> Tree {
    let tree = Tree::new("0-63");
    for (node, distances) in [(0, "10 21"), (1, "21 10")] {
        tree.write(&format!("devices/system/node/node{node}/distance"), distances);
    }
    let (near, far) = ("0-15,32-47", "16-31,48-63");
    tree.pci("pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:00.0", 0, near);
    tree.pci("pci0000:16/0000:16:02.0/0000:17:01.0/0000:19:00.0", 0, near);
    tree.block("pci0000:16/0000:16:02.0/0000:17:01.0/0000:19:00.0/nvme/nvme0/nvme0n1", 259, 0);
    tree.pci("pci0000:16/0000:16:03.0/0000:2a:00.0", 0, near);
    tree.pci("pci0000:97/0000:97:01.0/0000:98:00.0", 1, far);
    tree.pci("pci0000:97/0000:97:02.0/0000:99:00.0", 1, far);
    tree.block("pci0000:97/0000:97:02.0/0000:99:00.0/nvme/nvme1/nvme1n1", 259, 4);
    tree.pci("pci0000:a7/0000:a7:01.0/0000:a8:00.0", 1, far);
    // A RAID of a disk and a partition, and a disk in memory.
    tree.write("devices/virtual/block/md0/dev", "9:0");
    tree.write("devices/virtual/block/md0/slaves/nvme0n1/dev", "259:0");
    tree.write("devices/virtual/block/md0/slaves/nvme1n1p1/dev", "259:5");
    tree.link("block/md0", "devices/virtual/block/md0");
    tree.block("virtual/block/zram0", 252, 0);
    tree
}

fn disk<'a>(affinity: &'a Affinity, name: &str) -> &'a Disk {
    affinity.topology.disks.iter().find(|disk| disk.name == name).unwrap()
}

#[test]
fn distances_are_by_node_then_bridge_then_hops() {
    let tree = two_sockets();
    let affinity = tree.affinity(&GPUS, "optimal");
    let names: Vec<&str> = affinity.topology.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["nvme0", "nvme1"]);
    let distances = |name: &str| {
        let of = |gpu: &Gpu| Distance::between(gpu, disk(&affinity, name));
        affinity.topology.gpus.iter().map(of).collect::<Vec<_>>()
    };
    use Distance::{Bridges, Hops, Nodes};
    assert_eq!(distances("nvme0"), [Hops(4), Hops(5), Nodes(21, 7), Nodes(21, 7)]);
    assert_eq!(distances("nvme1"), [Nodes(21, 7), Nodes(21, 6), Hops(4), Bridges(6)]);
    assert!(Hops(9) < Bridges(2) && Bridges(9) < Nodes(11, 2) && Nodes(99, 9) < Distance::Unknown);
}

#[test]
fn policies_choose_the_nearest_those_of_the_node_or_all() {
    let tree = two_sockets();
    let expected: [(&str, &[usize], &[usize]); 3] =
        [("optimal", &[0], &[2]), ("numa", &[0, 1], &[2, 3]), ("system", &[0, 1, 2, 3], &[0, 1, 2, 3])];
    for (policy, first, second) in expected {
        let affinity = tree.affinity(&GPUS, policy);
        assert_eq!(affinity.gpus_for(&[disk(&affinity, "nvme0")]), first, "{policy}");
        assert_eq!(affinity.gpus_for(&[disk(&affinity, "nvme1")]), second, "{policy}");
        assert_eq!(affinity.gpus_for(&[]), [0, 1, 2, 3], "{policy}");
    }
}

#[test]
fn disks_that_are_named_overrule_policies_and_what_is_not_there_is_said() {
    let tree = two_sockets();
    for policy in ["optimal", "numa", "system"] {
        let affinity = tree.affinity(&GPUS, &format!("{policy},nvme0:3,nvme0:1,nvme7:0,nvme1:4"));
        assert_eq!(affinity.gpus_for(&[disk(&affinity, "nvme0")]), [1, 3]);
        // An entry without effect leaves the policy.
        let plain = tree.affinity(&GPUS, policy);
        let second = [disk(&affinity, "nvme1")];
        assert_eq!(affinity.gpus_for(&second), plain.gpus_for(&second));
        let unknown: Vec<String> = affinity
            .lines()
            .into_iter()
            .filter(|line| line.contains("names a missing disk or GPU"))
            .collect();
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        assert!(unknown[0].contains("nvme7:0") && unknown[1].contains("nvme1:4"));
    }
}

#[test]
fn what_is_made_of_several_disks_is_as_far_as_the_farthest() {
    let tree = two_sockets();
    let affinity = tree.affinity(&GPUS, "optimal");
    let both = affinity.topology.disks_of(libc::makedev(9, 0));
    assert_eq!(both.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["nvme0", "nvme1"]);
    // The second GPU has six hops to the far disk, and the others on its node seven.
    assert_eq!(affinity.gpus_for(&both), [1]);
    assert_eq!(affinity.place_of(libc::makedev(259, 1)).unwrap(), "nvme0 at 4 hops");
    let both = affinity.place_of(libc::makedev(9, 0)).unwrap();
    assert_eq!(both, "nvme0 at 4 hops, nvme1 at 7 hops over NUMA nodes of distance 21");
    for memory in [libc::makedev(252, 0), libc::makedev(0, 25)] {
        assert_eq!(affinity.place_of(memory), None);
    }
}

#[test]
fn readers_run_beside_their_gpu_unless_the_system_places_them() {
    let tree = two_sockets();
    for (policy, first, third) in
        [("optimal", "0-15,32-47", "16-31,48-63"), ("numa", "0-15,32-47", "16-31,48-63"), ("system", "", "")]
    {
        let shown = |gpu| {
            let affinity = Affinity { gpu, ..tree.affinity(&GPUS, policy) };
            affinity.reader_processors().map_or_else(String::new, |processors| processors.to_string())
        };
        assert_eq!((shown(0).as_str(), shown(2).as_str()), (first, third), "{policy}");
        assert_eq!(shown(9), "");
    }
}

#[test]
fn a_host_with_one_node_binds_nothing_and_has_distances() {
    let tree = Tree::new("0-15");
    tree.pci("pci0000:00/0000:00:04.0", -1, "0-15");
    tree.pci("pci0000:00/0000:00:02.0", -1, "0-15");
    tree.block("pci0000:00/0000:00:02.0/virtio1/block/vda", 254, 0);
    let affinity = tree.affinity(&["0000:00:04.0"], "optimal");
    assert_eq!(affinity.reader_processors(), None);
    assert_eq!(affinity.place_of(libc::makedev(254, 0)).unwrap(), "vda at 2 hops");
    assert_eq!(
        affinity.lines(),
        ["GPU 0: 0000:00:04.0", "vda (0000:00:02.0): GPU 0 at 2 hops; read by GPU 0 (optimal)"]
    );
}

#[test]
fn a_disk_with_several_paths_has_a_place_for_each() {
    let tree = Tree::new("0-15");
    for (number, root) in [(0, "pci0000:16/0000:16:02.0"), (1, "pci0000:97/0000:97:01.0")] {
        tree.pci(root, number, "0-7");
        let controller = format!("devices/{root}/nvme/nvme{number}");
        fs::create_dir_all(tree.path(&controller)).unwrap();
        tree.link(&format!("devices/virtual/nvme-subsystem/nvme-subsys0/nvme{number}"), &controller);
    }
    tree.block("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", 259, 0);
    let affinity = tree.affinity(&[], "optimal");
    let disks = affinity.topology.disks_of(libc::makedev(259, 0));
    let found: Vec<_> = disks.iter().map(|disk| (disk.name.as_str(), disk.node)).collect();
    assert_eq!(found, [("nvme0", Some(0)), ("nvme1", Some(1))]);
}

#[test]
fn what_the_kernel_does_not_tell_is_left_open() {
    let empty = tempfile::tempdir().unwrap();
    let affinity =
        Affinity { topology: sysfs::read(empty.path(), &["0000:18:00.0".to_owned()]), ..Affinity::default() };
    assert_eq!((affinity.reader_processors(), affinity.place_of(1)), (None, None));
    assert_eq!(affinity.lines(), ["GPU 0: at an unknown place"]);
    // A loop of block devices ends.
    let tree = Tree::new("0");
    tree.write("devices/virtual/block/dm-0/dev", "253:0");
    tree.write("devices/virtual/block/dm-0/slaves/dm-0/dev", "253:0");
    tree.link("block/dm-0", "devices/virtual/block/dm-0");
    assert_eq!(tree.affinity(&[], "optimal").topology.disks, []);
}

#[test]
fn processors_are_read_and_shown_as_the_kernel_writes_them() {
    for text in ["0", "0-3", "0-15,32-47", "1,3,5-7"] {
        assert_eq!(Processors::parse(text).unwrap().to_string(), text);
    }
    for wrong in ["", "3-1", "a", "0-99999", "0,,1"] {
        assert_eq!(Processors::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_bound_thread_stays_on_processors_that_it_may_use() {
    let allowed = Processors::of_thread().unwrap();
    let first = allowed.to_string().split([',', '-']).next().unwrap().to_owned();
    let thread = std::thread::spawn(move || {
        Processors::parse(&first).unwrap().bind_thread().unwrap();
        let bound = Processors::of_thread().unwrap().to_string();
        // Where it may not run on any, nothing changes.
        Processors::parse("1023").unwrap().bind_thread().unwrap();
        assert_eq!(Processors::of_thread().unwrap().to_string(), bound);
        (first, bound)
    });
    let (first, bound) = thread.join().unwrap();
    assert_eq!(first, bound);
    assert_eq!(Processors::of_thread().unwrap(), allowed);
}
