//! The methods of reading from a file system to a device's memory.
//!
//! The engine tests a file system when it reads the first of its files, and keeps and logs the
//! result.
//!
//! Invariants: a method that the user names is used or is an error; only `Auto` chooses.
//!
//! Source of mount points: proc(5), /proc/pid/mountinfo.

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{Arc, Mutex},
};

use pystachio_engine::locking::lock_whole;
use pystachio_files::{DirectRefusals, PageCacheProbe, TableFile, is_in_page_cache, path_refused};
use pystachio_plan::{ErrorKind, Result, StoragePath};

use crate::{
    affinity::Affinity,
    device::{DeviceFile, DeviceFileMode, Platform},
};

/// Why an encrypted file is read by the host.
const DECRYPTED: &str = "it is encrypted, and the host decrypts it in memory";

/// The file systems that were read from.
pub struct FileSystems {
    platform: Arc<dyn Platform>,
    affinity: Affinity,
    page_cache: PageCacheProbe,
    /// By device number.
    known: Mutex<BTreeMap<u64, FileSystem>>,
}

/// A method of reading a file.
pub struct FileWay {
    /// Its name; never `Auto`.
    pub path: StoragePath,
    /// The file, if the device reads it by itself.
    pub device_file: Option<Box<dyn DeviceFile>>,
}

/// The methods of a file system.
#[derive(Clone, Debug)]
struct FileSystem {
    /// Its mount point, its kind, and the distance of its disks.
    name: String,
    /// The reason if there are no direct reads, or none by io_uring.
    direct_refusals: DirectRefusals,
    /// The reason if there is no GPUDirect.
    gpudirect_refusal: Option<String>,
}

impl FileSystems {
    /// None is known yet.
    pub fn new(platform: Arc<dyn Platform>, affinity: Affinity) -> Self {
        Self { platform, affinity, page_cache: is_in_page_cache, known: Mutex::default() }
    }

    /// With a page cache of the caller's.
    #[cfg(test)]
    pub fn with_page_cache(mut self, page_cache: PageCacheProbe) -> Self {
        self.page_cache = page_cache;
        self
    }

    /// Whether the page cache holds a range of a file, as far as the file system tells without reading it.
    pub fn is_in_page_cache(&self, file: &File, offset: u64, range_bytes: u64) -> bool {
        (self.page_cache)(file, offset, range_bytes)
    }

    /// Chooses a method for a file. `wanted` is the user's choice, `otherwise` is for `Auto` on a
    /// file system without GPUDirect. Tests the file system if the file is its first.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the user's choice is impossible on the file system; errors of opening
    /// the file.
    pub fn open(&self, file: &TableFile, wanted: StoragePath, otherwise: StoragePath) -> Result<FileWay> {
        let by_host = |path| Ok(FileWay { path, device_file: None });
        if file.is_decrypted() {
            return match wanted {
                StoragePath::Auto | StoragePath::PageCache => by_host(StoragePath::PageCache),
                StoragePath::Direct | StoragePath::DirectPread => {
                    Err(path_refused(file, "direct reads", DECRYPTED))
                }
                StoragePath::GpuDirect | StoragePath::CuFileCompat => {
                    Err(path_refused(file, "the device", DECRYPTED))
                }
            };
        }
        match wanted {
            StoragePath::PageCache => by_host(wanted),
            StoragePath::Direct | StoragePath::DirectPread => match self.find(file)?.direct_refusals.direct {
                None => by_host(wanted),
                Some(reason) => Err(path_refused(file, "direct reads", &reason)),
            },
            StoragePath::GpuDirect | StoragePath::CuFileCompat => self.open_on_device(file, wanted),
            StoragePath::Auto => {
                let found = self.find(file)?;
                if found.gpudirect_refusal.is_none()
                    && let Ok(way) = self.open_on_device(file, StoragePath::GpuDirect)
                {
                    return Ok(way);
                }
                match otherwise {
                    StoragePath::Direct if found.direct_refusals.direct.is_some() => {
                        by_host(StoragePath::PageCache)
                    }
                    otherwise => by_host(otherwise),
                }
            }
        }
    }

    fn open_on_device(&self, file: &TableFile, path: StoragePath) -> Result<FileWay> {
        let (name, mode) = match path {
            StoragePath::GpuDirect => ("GPUDirect", DeviceFileMode::GpuDirect),
            _ => ("cuFile", DeviceFileMode::Compatibility),
        };
        let opened = self.platform.open_file(&*file.handle()?, &file.footer.path, mode);
        let device_file = opened.map_err(|error| path_refused(file, name, &error.message))?;
        Ok(FileWay { path, device_file: Some(device_file) })
    }

    /// A line for each file system that was read from: its mount point, and its methods.
    pub fn lines(&self) -> Vec<String> {
        let known = lock_whole(&self.known);
        known.values().map(FileSystem::line).collect()
    }

    fn find(&self, file: &TableFile) -> Result<FileSystem> {
        let device = file.device()?;
        let mut known = lock_whole(&self.known);
        if let Some(found) = known.get(&device) {
            return Ok(found.clone());
        }
        let handle = file.handle()?;
        let path = &file.footer.path;
        let gpudirect = self.platform.open_file(&handle, path, DeviceFileMode::GpuDirect);
        // A busy resource may be free later.
        let is_final = gpudirect.as_ref().err().is_none_or(|error| error.kind == ErrorKind::Unavailable);
        let found = FileSystem {
            name: mount_name(device, self.affinity.place_of(device)),
            direct_refusals: DirectRefusals::of(&handle),
            gpudirect_refusal: gpudirect.err().map(|error| error.message),
        };
        if is_final {
            tracing::info!("storage: {}", found.line());
            known.insert(device, found.clone());
        }
        Ok(found)
    }
}

impl FileSystem {
    fn line(&self) -> String {
        let gpudirect = match &self.gpudirect_refusal {
            None => "GPUDirect".to_owned(),
            Some(reason) => format!("no GPUDirect ({reason})"),
        };
        let direct = match (&self.direct_refusals.direct, &self.direct_refusals.ring) {
            (Some(reason), _) => format!("no direct reads ({reason})"),
            (None, Some(reason)) => format!("direct by pread (io_uring: {reason})"),
            (None, None) => "direct by io_uring".to_owned(),
        };
        format!("{}: {gpudirect}, {direct}, page cache", self.name)
    }
}

/// The mount point of the file system with this number, its kind, and its disks if known: `/data
/// (ext4 on /dev/nvme0n1; nvme0 at 4 hops)`.
fn mount_name(device: u64, place: Option<String>) -> String {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (mount, kind) =
        mount_of(&mounts, major, minor).unwrap_or_else(|| ("somewhere", format!("device {major}:{minor}")));
    let place = place.map_or_else(String::new, |place| format!("; {place}"));
    format!("{mount} ({kind}{place})")
}

/// The shortest mount point of a device number, for a file system may be mounted in parts too; and
/// its kind.
fn mount_of(mounts: &str, major: u32, minor: u32) -> Option<(&str, String)> {
    let number = format!("{major}:{minor}");
    let of_device = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&number));
    let line = of_device.min_by_key(|line| line.split(' ').nth(4).map_or(usize::MAX, str::len))?;
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    Some((place.split(' ').nth(4)?, format!("{} on {}", kind.next()?, kind.next()?)))
}

#[cfg(test)]
mod tests {
    use pystachio_files::FileCatalog;
    use pystachio_plan::{Error, FileSet};

    use super::*;
    use crate::device::EmulatedPlatform;

    fn file() -> TableFile {
        let path = "../../regress/data/t1.parquet";
        FileCatalog::default().open_all(&FileSet::parquet(vec![path.to_owned()])).unwrap().remove(0)
    }

    #[test]
    fn gpudirect_is_taken_where_it_is_and_nothing_else_is_forced() {
        let file = file();
        let (own, compatible) = (StoragePath::PageCache, StoragePath::CuFileCompat);
        for has_gpudirect in [false, true] {
            let platform =
                if has_gpudirect { EmulatedPlatform::with_gpudirect() } else { EmulatedPlatform::new() };
            let systems = FileSystems::new(Arc::new(platform), Affinity::default());
            let taken = |wanted| {
                let way = systems.open(&file, wanted, own)?;
                let is_device = matches!(way.path, StoragePath::GpuDirect | StoragePath::CuFileCompat);
                assert_eq!(way.device_file.is_some(), is_device);
                Ok::<_, Error>(way.path)
            };
            let best = if has_gpudirect { StoragePath::GpuDirect } else { own };
            assert_eq!(taken(StoragePath::Auto), Ok(best));
            assert_eq!((taken(own), taken(compatible)), (Ok(own), Ok(compatible)));
            match taken(StoragePath::GpuDirect) {
                Ok(path) => assert_eq!((path, has_gpudirect), (StoragePath::GpuDirect, true)),
                Err(error) => {
                    assert_eq!((error.kind, has_gpudirect), (ErrorKind::InvalidArgument, false));
                    assert!(error.message.contains("t1.parquet"), "{error}");
                }
            }
            let lines = systems.lines();
            assert_eq!(lines.len(), 1);
            assert_eq!(lines[0].contains("no GPUDirect"), !has_gpudirect, "{lines:?}");
        }
    }

    #[test]
    fn a_file_system_is_named_by_its_own_mount_point() {
        let mounts = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            30 22 259:2 /home /data/home rw - xfs /dev/nvme0n1p2 rw\n\
            31 22 259:2 / /data rw shared:7 master:3 - xfs /dev/nvme0n1p2 rw\n";
        assert_eq!(mount_of(mounts, 254, 0).unwrap(), ("/", "ext4 on /dev/vda".to_owned()));
        assert_eq!(mount_of(mounts, 259, 2).unwrap(), ("/data", "xfs on /dev/nvme0n1p2".to_owned()));
        assert_eq!(mount_of(mounts, 8, 1), None);
    }
}
