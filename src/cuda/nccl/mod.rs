//! NCCL: what carries the blocks of exchanges between GPUs, one rank a GPU.
//!
//! ```text
//! network thread ─► NcclTransfers ─┬─► groups: parts for other ranks, region to region ─► connection
//!                                  └─► parts for this rank itself: copies on a stream beside
//! ```
//!
//! - `transfers.rs`: [`NcclTransfers`], one rank's end
//! - `connection.rs`: one communicator of NCCL: how it begins, what it does, how it ends
//! - `library.rs`: the library's functions, opened at run time
//!
//! Every communicator of NCCL is one that does not block (`ncclConfig_t::blocking = 0`): a call that would wait for other ranks returns
//! `ncclInProgress`, a thread of the library's goes on with it, and whoever asks `ncclCommGetAsyncError` finds out when that is over. So the
//! network thread is never within the library for as long as another rank takes, and can end it (`ncclCommAbort`) at any time.
//!
//! Invariants: one thread uses a connection. Nothing else is asked of a connection that is in progress. Whatever waits for a rank has a time
//! limit, the end of a connection too: what does not end by then is left to the process.
//!
//! Deliberately absent: how ranks find each other (they are given an [`NcclId`]); what ranks tell each other (control
//! sockets of `pystachio_gpu::exchange`); multicast and reductions in the switch, which sends and
//! receives have no use for: see [`ENVIRONMENT`].
//!
//! Source: NCCL user guide, "Fault tolerance", "Group calls" and "User buffer registration"; nccl.h of 2.28.3.

mod connection;
mod library;
mod transfers;

use std::time::Duration;

use pystachio_plan::{Error, ErrorKind, Result};

use self::library::NcclLibrary;
pub use self::transfers::NcclTransfers;

/// What a process that is a rank has in its environment from its start on, since the library reads it there and threads read it at any time:
///
/// - `NCCL_NVLS_ENABLE=0`: no multicast objects. Sends and receives do not use them, and a host may not have what they need.
/// - `NCCL_P2P_DIRECT_DISABLE=1`: where several ranks are one process, none reads or writes memory of another's GPU by its address: a
///   GPU's memory is mapped for that GPU alone.
pub const ENVIRONMENT: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_P2P_DIRECT_DISABLE", "1")];

/// `NCCL_UNIQUE_ID_BYTES`.
const UNIQUE_ID_BYTES: usize = 128;

/// Names a connection of all ranks. Rank 0 makes it, and gives it to all others as bytes; each connection has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclId([u8; UNIQUE_ID_BYTES]);

impl NcclId {
    /// How many bytes it has.
    pub const BYTES: usize = UNIQUE_ID_BYTES;

    /// A new one. The process that makes it is where ranks find each other: it has to live until all are connected.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the library is not there, is too old, or finds no network interface.
    pub fn new() -> Result<Self> {
        check_environment(|name| std::env::var(name).ok())?;
        let library = NcclLibrary::get()?;
        library.unique_id().map(Self)
    }

    /// It as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// One that [`NcclId::to_bytes`] gave, perhaps in another process.
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

/// How a rank connects. The same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclOptions {
    /// All ranks are there within that, or none is connected.
    pub connect_max: Duration,
    /// Whether the exchange region is registered, so that GPUs that can write each other's memory do so without a copy in between. A
    /// library that has no registration does without.
    pub registers_region: bool,
}

impl Default for NcclOptions {
    fn default() -> Self {
        Self {
            // Two processes that began at once needed half a second for a connection; those that begin again load the kernels first.
            connect_max: Duration::from_secs(15),
            // Not before it is known to be faster, and to end as well.
            registers_region: false,
        }
    }
}

/// Whether the library is there, whatever the environment.
///
/// # Errors
///
/// `Unavailable` if it is not, or is too old.
pub fn check_library() -> Result<()> {
    NcclLibrary::get().map(|_| ())
}

/// # Errors
///
/// `Unavailable` if something of [`ENVIRONMENT`] is not as it must be.
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
