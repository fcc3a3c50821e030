//! Waits for sockets, time and other processes. A wait notices a cancel, a termination, a timeout,
//! a lost client and the postmaster's death at once.
#![expect(unsafe_code, reason = "calls PostgreSQL's latch functions")]

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use pgrx::{check_for_interrupts, pg_sys};

use super::compat;

/// How often a wait looks whether the client is still there.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// What a socket must be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Something to read, or the end.
    Read,
    /// Room to write.
    Write,
}

/// What a backend waits for, as pg_stat_activity shows it; before PostgreSQL 17 all of it is `Extension`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// An engine is starting, or has not answered yet.
    Connect,
    /// The query waits in the engine until others have ended or given up memory.
    Turn,
    /// The engine works on the answer.
    Answer,
    /// A supervisor: until something happens to its engine.
    Supervise,
    /// Whatever else.
    Other,
}

/// Waits until the socket is ready. Raises an ERROR if the query is cancelled meanwhile.
pub fn wait_socket(socket: RawFd, direction: Direction, wait_event: WaitEvent) {
    let socket_event = match direction {
        Direction::Read => pg_sys::WL_SOCKET_READABLE,
        Direction::Write => pg_sys::WL_SOCKET_WRITEABLE,
    };
    loop {
        let events = wait(socket_event, socket, CLIENT_CHECK_INTERVAL, wait_event);
        if events & socket_event != 0 {
            return;
        }
        if events & pg_sys::WL_TIMEOUT != 0 {
            check_client();
        }
    }
}

/// Waits until the socket is ready or the deadline has passed. Returns whether it is ready.
pub fn wait_socket_until(socket: RawFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let events = wait(pg_sys::WL_SOCKET_READABLE, socket, left, WaitEvent::Connect);
        if events & pg_sys::WL_SOCKET_READABLE != 0 {
            return true;
        }
    }
}

/// Waits for this time, or less if the process's latch is set.
pub fn wait_time(time: Duration, wait_event: WaitEvent) {
    wait(0, -1, time, wait_event);
}

/// Waits until there is something to read, or its other end is closed; for this time at most, or less if the process's latch is set.
pub fn wait_readable(descriptor: RawFd, time: Duration, wait_event: WaitEvent) {
    wait(pg_sys::WL_SOCKET_READABLE, descriptor, time, wait_event);
}

/// Makes reads of a descriptor return at once.
///
/// # Errors
///
/// It is none that could.
pub fn set_nonblocking(descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: system calls on a descriptor, without pointers.
    let done = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        flags >= 0 && libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn wait(socket_event: u32, socket: RawFd, time: Duration, wait_event: WaitEvent) -> u32 {
    let wait_event = compat::wait_event_number(wait_event);
    // A wait of zero would spin where the caller means a very short one.
    let milliseconds = time.as_millis().clamp(1, 3_600_000) as i64;
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH | socket_event;
    // SAFETY: MyLatch is this process's own; a socket of -1 goes with no socket event.
    let events = unsafe {
        pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as i32, socket, milliseconds, wait_event)
    } as u32;
    if events & pg_sys::WL_LATCH_SET != 0 {
        // SAFETY: as above.
        unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
    }
    check_for_interrupts!();
    events
}

/// PostgreSQL itself notices a client that is gone only when it writes to it, or by
/// `client_connection_check_interval`, which is off by default.
fn check_client() {
    if !compat::client_is_connected() {
        // SAFETY: the flags are this process's own; ProcessInterrupts ends the session because of them.
        unsafe {
            pg_sys::ClientConnectionLost = 1;
            pg_sys::InterruptPending = 1;
        }
        check_for_interrupts!();
    }
}
