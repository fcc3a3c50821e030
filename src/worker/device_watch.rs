//! Ends a process whose device hangs, or whose memory account is wrong after a panic.
//!
//! Deliberately absent: an orderly shutdown. Threads that wait for a hung device can't be stopped, and freeing its memory
//! would wait too.

use std::{io, process::id, sync::Arc, thread, time::Duration};

use pystachio_gpu::device::CallWatch;
use pystachio_plan::{Error, ErrorKind};

use crate::Host;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long sessions have to report the error to their clients.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Calls `end`, which ends the process, when a call of the device has not returned for `timeout_s` seconds.
///
/// # Errors
///
/// No thread can be started.
pub fn watch_device(
    calls: Arc<CallWatch>,
    timeout_s: u32,
    end: impl FnOnce(Error) + Send + 'static,
) -> io::Result<()> {
    // A thread of its own: those of the runtimes may be the ones that wait.
    thread::Builder::new().name("pystachio-watch".to_owned()).spawn(move || {
        while calls.look() <= timeout_s {
            thread::sleep(LOOK_INTERVAL);
        }
        let error = stuck(timeout_s);
        tracing::error!(process = id(), hint = error.hint, "{error}");
        end(error);
    })?;
    Ok(())
}

/// Fails all requests with this error, then ends the process with status 1.
pub fn end_process(host: Arc<Host>, error: Error) {
    let ending = thread::Builder::new().name("pystachio-end".to_owned()).spawn(move || give_up(&host, error));
    if ending.is_err() {
        end_now(1);
    }
}

/// Waits until all requests have failed with this error, then ends the process with status 1.
pub fn give_up(host: &Host, error: Error) -> ! {
    host.give_up(error);
    thread::sleep(ANSWER_WAIT);
    end_now(1)
}

fn stuck(timeout_s: u32) -> Error {
    let message = format!("the device has not returned from a call for {timeout_s} s, and is given up");
    Error::new(ErrorKind::Device, message).with_hint(
        "The engine restarts by itself. If the device is only slow, raise the server option device_timeout.",
    )
}

/// Ends the process without its exit handlers, which would wait for the device.
#[expect(unsafe_code, reason = "ends the process")]
pub fn end_now(status: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(status) }
}
