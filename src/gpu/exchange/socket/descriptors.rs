//! Bytes on a Unix socket, and descriptors passed with them.
//!
//! Invariants: no call waits. A received descriptor belongs to the process from then on, and is
//! closed on exec.
#![expect(
    unsafe_code,
    reason = "descriptors travel in control messages, which the standard library has no calls for"
)]

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// Descriptors that one message carries: `SCM_MAX_FD` of Linux.
pub const DESCRIPTORS_MAX: usize = 253;
/// Room for them, and for the head of the control message.
const CONTROL_BYTES: usize = 16 + DESCRIPTORS_MAX * size_of::<RawFd>() + 4;
const _: () = assert!(CONTROL_BYTES.is_multiple_of(8));

/// Aligned memory for control messages.
#[repr(C, align(8))]
struct ControlSpace([u8; CONTROL_BYTES]);

/// Writes bytes for which there is room, the first of which have descriptors with them. Returns how
/// many bytes.
///
/// # Errors
///
/// Errors of the system, `WouldBlock` among them; more descriptors than [`DESCRIPTORS_MAX`].
pub fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    let socket = socket.as_raw_fd();
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::other("more descriptors than a message has"));
    }
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut space = ControlSpace([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !numbers.is_empty() {
        let payload_bytes = mem::size_of_val(numbers.as_slice());
        // SAFETY: the space has room for a head and as many numbers, which is what its macros compute; the first head
        // lies at its beginning.
        unsafe {
            message.msg_control = (&raw mut space.0).cast();
            message.msg_controllen = libc::CMSG_SPACE(payload_bytes as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(payload_bytes as u32) as _;
            ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(head), payload_bytes);
        }
    }
    // SAFETY: the message's parts live until the call returns.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reads available bytes, and the descriptors that came with them. Returns how many bytes: none at
/// the end.
///
/// # Errors
///
/// Errors of the system, `WouldBlock` among them.
pub fn receive_with(socket: BorrowedFd<'_>, target: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let socket = socket.as_raw_fd();
    let mut space = ControlSpace([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut space.0).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the message's parts live until the call returns.
    let read =
        unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let descriptors = descriptors_of(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("descriptors did not come: the process has too many open files"));
    }
    Ok((bytes, descriptors))
}

/// The descriptors that came with the bytes of a message.
fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has written whole heads into the message's space, and its macros stay
    // within that. Each number of a message of rights is a new descriptor of this process, which no
    // other code has.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for place in 0..count {
                    let number = libc::CMSG_DATA(head).cast::<RawFd>().add(place).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(number));
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    descriptors
}
