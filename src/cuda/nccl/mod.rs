//! NCCL, which carries the blocks of exchanges between GPUs, one rank a GPU.
//!
//! ```text
//! network thread ─► NcclTransfers ─┬─► groups: parts for other ranks, region to region ─► connection
//!                                  └─► parts for this rank itself: copies on a stream beside
//! ```
//!
//! - `transfers.rs`: [`NcclTransfers`], one rank's end
//! - `connection.rs`: one communicator of NCCL: its start, its operations, its end
//! - `library.rs`: the library's functions, opened at run time
//!
//! Every communicator of NCCL is non-blocking (`ncclConfig_t::blocking = 0`): a call that would
//! wait for other ranks returns `ncclInProgress`, a thread of the library continues it, and
//! `ncclCommGetAsyncError` reports its end. So the network thread never waits inside the library
//! for another rank, and can end the communicator (`ncclCommAbort`) at any time.
//!
//! Invariants: one thread uses a connection. A connection in progress gets no other calls. Every
//! wait for a rank has a time limit, the end of a connection included: if it does not end in time,
//! it lasts until the process ends.
//!
//! Deliberately absent: how ranks find each other (they are given an [`NcclId`]); control messages
//! between ranks (control sockets of `pystachio_gpu::exchange`); multicast and reductions in the
//! switch, which sends and receives do not use: see [`ENVIRONMENT`].
//!
//! Source: NCCL user guide, "Fault tolerance", "Group calls" and "User buffer registration"; nccl.h of 2.28.3.

mod connection;
mod library;
mod transfers;

use std::time::Duration;

use pystachio_plan::{Error, ErrorKind, Result};

use self::library::NcclLibrary;
pub use self::transfers::NcclTransfers;

/// The environment of a rank's process from its start on, since the library reads it there, and
/// threads may read it at any time:
///
/// - `NCCL_NVLS_ENABLE=0`: no multicast objects. Sends and receives do not use them, and a host may
///   lack their requirements.
/// - `NCCL_P2P_DIRECT_DISABLE=1`: if several ranks are one process, none accesses memory of
///   another's GPU by its address: a GPU's memory is mapped for that GPU alone.
pub const ENVIRONMENT: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_P2P_DIRECT_DISABLE", "1")];

/// `NCCL_UNIQUE_ID_BYTES`.
const UNIQUE_ID_BYTES: usize = 128;

/// The name of a connection of all ranks. Rank 0 makes it, and sends it to all others as bytes;
/// each connection has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclId([u8; UNIQUE_ID_BYTES]);

impl NcclId {
    /// Its size.
    pub const BYTES: usize = UNIQUE_ID_BYTES;

    /// A new one. Ranks find each other at the process that makes it, which must live until all are
    /// connected.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the library is missing, too old, or finds no network interface.
    pub fn new() -> Result<Self> {
        check_environment(|name| std::env::var(name).ok())?;
        let library = NcclLibrary::get()?;
        library.unique_id().map(Self)
    }

    /// It as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// An id from [`NcclId::to_bytes`], perhaps of another process.
    ///
    /// # Errors
    ///
    /// `Protocol` for more or fewer bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        bytes.try_into().map(Self).map_err(|_| {
            let message = format!("no id of NCCL: bytes={}, bytes_expected={}", bytes.len(), Self::BYTES);
            Error::new(ErrorKind::Protocol, message)
        })
    }
}

/// Options of a rank's connection. The same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclOptions {
    /// The time limit for all ranks to connect.
    pub connect_max: Duration,
    /// Whether the exchange region is registered, so that GPUs that can access each other's memory
    /// write it without a copy in between. A library without registration works without.
    pub registers_region: bool,
}

impl Default for NcclOptions {
    fn default() -> Self {
        Self {
            // Two processes that began at once needed half a second for a connection; those that begin again load the kernels first.
            connect_max: Duration::from_secs(15),
            // Off until it is known to be faster, and to end as well.
            registers_region: false,
        }
    }
}

/// Whether the library is there, whatever the environment.
///
/// # Errors
///
/// `Unavailable` if it is missing or too old.
pub fn check_library() -> Result<()> {
    NcclLibrary::get().map(|_| ())
}

/// # Errors
///
/// `Unavailable` if a variable of [`ENVIRONMENT`] has another value.
fn check_environment(value: impl Fn(&str) -> Option<String>) -> Result<()> {
    let wrong = ENVIRONMENT.iter().find(|(name, expected)| value(name).as_deref() != Some(*expected));
    let Some((name, expected)) = wrong else { return Ok(()) };
    let message = format!("GPUs are not connected: the process has not {name}={expected} in its environment");
    let all: Vec<String> = ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let hint = format!("Start the engine with {} in its environment.", all.join(" "));
    Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_after_its_bytes_were_sent() {
        let id = NcclId([7; UNIQUE_ID_BYTES]);
        let bytes = id.to_bytes();
        assert_eq!((bytes.len(), NcclId::from_bytes(&bytes)), (NcclId::BYTES, Ok(id)));
        for wrong in [&bytes[..127], &bytes[..0], &[bytes.as_slice(), &[0]].concat()] {
            assert_eq!(NcclId::from_bytes(wrong).err().unwrap().kind, ErrorKind::Protocol);
        }
    }

    #[test]
    fn a_process_that_would_use_multicast_is_no_rank() {
        let all =
            |name: &str| ENVIRONMENT.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        assert_eq!(check_environment(all), Ok(()));
        let error = check_environment(|_| None).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.ends_with("has not NCCL_NVLS_ENABLE=0 in its environment"), "{error}");
        let other = |name: &str| all(name).map(|_| "1".to_owned());
        assert!(check_environment(other).is_err());
    }
}
