//! One connection: frames in and out, and what its end means.
#![expect(unsafe_code, reason = "reads from a socket into memory that is not initialised")]

use std::{
    io::{ErrorKind as IoErrorKind, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use arrow_buffer::{Buffer, MutableBuffer};
use pystachio_plan::{
    Error, ErrorKind, FRAME_HEADER_BYTES, FrameHeader, FrameKind, GREETING_HEADER_BYTES, Greeting,
    GreetingHeader, PROTOCOL_VERSION, Request, Response, Result, encode_message,
};

use crate::{
    client,
    pg::wait::{Direction, WaitEvent, wait_socket, wait_socket_until},
    supervisor::EngineHome,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long an engine that is running may take for its welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the supervisor may take to note why an engine ended.
const EXIT_NOTE_TIMEOUT: Duration = Duration::from_millis(500);

/// A frame as it came.
pub struct Frame {
    /// What the body is.
    pub kind: FrameKind,
    /// The body, aligned as Arrow likes it.
    pub body: Buffer,
}

/// An open connection to an engine. Dropping it stops what the engine does for it.
pub struct Connection {
    socket: UnixStream,
    home: EngineHome,
    engine_pid: u32,
    waited: Duration,
    /// The query waits in the engine for its turn.
    is_turn_awaited: bool,
    /// The engine ended without having read all that was sent.
    is_unread: bool,
}

impl Connection {
    /// Exchanges greetings with the engine at the other end of the socket.
    ///
    /// # Errors
    ///
    /// `Protocol` if the two sides are of different versions, `Unavailable` if the engine ends.
    pub fn open(socket: UnixStream, home: EngineHome) -> Result<Self> {
        socket.set_nonblocking(true).map_err(|error| Error::internal(format!("socket: {error}")))?;
        let mut connection = Self {
            socket,
            home,
            engine_pid: 0,
            waited: Duration::ZERO,
            is_turn_awaited: false,
            is_unread: false,
        };
        let own = Greeting::own(VERSION);
        connection.send_frame(&own.encode())?;
        if !wait_socket_until(connection.socket.as_raw_fd(), Instant::now() + WELCOME_TIMEOUT) {
            let name = &connection.home.server_name;
            let message = format!("engine of server \"{name}\" does not answer");
            return Err(Error::new(ErrorKind::Unavailable, message)
                .with_hint("Look at pystachio.engines and into the server log."));
        }
        let mut header = [0; GREETING_HEADER_BYTES];
        // SAFETY: the header has room for GREETING_HEADER_BYTES.
        unsafe { connection.fill(header.as_mut_ptr(), GREETING_HEADER_BYTES)? };
        let header = GreetingHeader::decode(header).map_err(|_| connection.other_version(None))?;
        let mut version = vec![0; header.version_bytes];
        // SAFETY: the vector has that many bytes.
        unsafe { connection.fill(version.as_mut_ptr(), header.version_bytes)? };
        let greeting = header.with_version(&version);
        if !greeting.is_understood() {
            return Err(connection.other_version(Some(&greeting)));
        }
        connection.engine_pid = greeting.pid;
        Ok(connection)
    }

    /// The error of an engine that speaks another protocol; without a greeting, of one that is older than greetings.
    fn other_version(&self, greeting: Option<&Greeting>) -> Error {
        let name = &self.home.server_name;
        let engine = greeting.map_or_else(
            || "an older one".to_owned(),
            |greeting| format!("{} (protocol {})", greeting.version, greeting.protocol_version),
        );
        let message = format!(
            "engine of server \"{name}\" and extension are of different versions: the extension is {VERSION} \
             (protocol {PROTOCOL_VERSION}), the engine {engine}"
        );
        Error::new(ErrorKind::Protocol, message).with_hint(
            "Restart the database server: since pystachio was upgraded, sessions and engines run different versions.",
        )
    }

    /// Which engine this is.
    pub fn home(&self) -> &EngineHome {
        &self.home
    }

    /// Notes whether the query waits in the engine for its turn. `pg_stat_activity` shows it as a wait event.
    pub fn note_turn(&mut self, is_awaited: bool) {
        self.is_turn_awaited = is_awaited;
    }

    /// How long this connection has waited for its engine, in all.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether the engine still holds its end, and has nothing to say.
    pub fn is_idle(&self) -> bool {
        let mut byte = 0u8;
        // SAFETY: one byte of room, and the socket is open. MSG_PEEK leaves what there is.
        let read = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_PEEK | libc::MSG_DONTWAIT,
            )
        };
        read < 0 && std::io::Error::last_os_error().kind() == IoErrorKind::WouldBlock
    }

    /// Sends a request. Raises an ERROR if the query is cancelled meanwhile.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the engine is gone.
    pub fn send(&mut self, request: &Request) -> Result<()> {
        self.send_frame(&encode_message(request)?)
    }

    /// As [`Connection::send`], of bytes that are encoded.
    ///
    /// # Errors
    ///
    /// As of [`Connection::send`].
    pub fn send_frame(&mut self, bytes: &[u8]) -> Result<()> {
        let mut sent_bytes = 0;
        while sent_bytes < bytes.len() {
            match self.socket.write(&bytes[sent_bytes..]) {
                Ok(count) => sent_bytes += count,
                Err(error) if error.kind() == IoErrorKind::Interrupted => {}
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {
                    wait_socket(self.socket.as_raw_fd(), Direction::Write, WaitEvent::Answer);
                }
                Err(error) => return Err(self.last_word(error.kind())),
            }
        }
        Ok(())
    }

    /// Whether an engine that failed with this error has begun nothing for the last request: it was retired, or ended before it
    /// had read the request to its end.
    pub fn has_not_begun(&self, error: &Error) -> bool {
        error.kind == ErrorKind::Retired || self.is_unread
    }

    /// Cancels the rest of an answer if the socket takes the message at once, and closes the connection.
    pub fn close_early(&mut self) {
        if let Ok(frame) = encode_message(&Request::Enough) {
            // An engine that misses the message sees the connection close.
            let _ = self.socket.write(&frame);
        }
    }

    /// The next frame. Raises an ERROR if the query is cancelled meanwhile.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the engine is gone, `Protocol` if the frame makes no sense.
    pub fn receive(&mut self) -> Result<Frame> {
        let mut header = [0; FRAME_HEADER_BYTES];
        // SAFETY: the header has room for FRAME_HEADER_BYTES.
        unsafe { self.fill(header.as_mut_ptr(), FRAME_HEADER_BYTES)? };
        let FrameHeader { kind, body_bytes } = FrameHeader::decode(header)?;
        let mut body = MutableBuffer::with_capacity(body_bytes);
        // SAFETY: the buffer has room for `body_bytes`, all of which are written before set_len.
        unsafe {
            self.fill(body.as_mut_ptr(), body_bytes)?;
            body.set_len(body_bytes);
        }
        Ok(Frame { kind, body: body.into() })
    }

    /// One question, one answer.
    ///
    /// # Errors
    ///
    /// As of [`Connection::send`] and [`client::message`].
    pub fn ask(&mut self, request: &Request) -> Result<Response> {
        self.send(request)?;
        client::message(&self.receive()?)
    }

    /// Reads `bytes` bytes.
    ///
    /// # Safety
    ///
    /// `target` has room for them.
    unsafe fn fill(&mut self, target: *mut u8, bytes: usize) -> Result<()> {
        let socket = self.socket.as_raw_fd();
        let mut filled_bytes = 0;
        while filled_bytes < bytes {
            // SAFETY: what is left of the room that the caller promises.
            let count =
                unsafe { libc::recv(socket, target.add(filled_bytes).cast(), bytes - filled_bytes, 0) };
            if count > 0 {
                filled_bytes += count.unsigned_abs();
                continue;
            }
            if count == 0 {
                return Err(self.lost());
            }
            match std::io::Error::last_os_error().kind() {
                IoErrorKind::Interrupted => {}
                IoErrorKind::WouldBlock => {
                    let start = Instant::now();
                    let event = if self.is_turn_awaited { WaitEvent::Turn } else { WaitEvent::Answer };
                    wait_socket(socket, Direction::Read, event);
                    self.waited += start.elapsed();
                }
                kind => return Err(self.failed(kind)),
            }
        }
        Ok(())
    }

    /// The error of a connection that takes no more: what the engine has said last, or that it is gone.
    fn last_word(&mut self, kind: IoErrorKind) -> Error {
        let error = match self.receive().and_then(|frame| client::message(&frame)) {
            Ok(_) => self.lost(),
            Err(error) => error,
        };
        self.is_unread = is_of_unread(kind);
        error
    }

    /// The error of a connection that the system has ended.
    fn failed(&mut self, kind: IoErrorKind) -> Error {
        self.is_unread = is_of_unread(kind);
        self.lost()
    }

    /// The error of a connection whose engine is gone.
    fn lost(&self) -> Error {
        let name = &self.home.server_name;
        if self.engine_pid == 0 {
            return Error::new(ErrorKind::Unavailable, format!("engine of server \"{name}\" is ending"))
                .with_hint("Look at pystachio.engines and into the server log.");
        }
        let message = format!("engine of server \"{name}\" ended unexpectedly: process {}", self.engine_pid);
        let error = Error::new(ErrorKind::Unavailable, message).with_hint(
            "Run the query again: the engine restarts by itself. Look into the server log for the reason.",
        );
        match self.home.wait_exit_reason(self.engine_pid, EXIT_NOTE_TIMEOUT) {
            Some(reason) => error.with_detail(format!("The engine process {reason}.")),
            None => error,
        }
    }
}

/// Whether the other end has not read what was sent to it. Linux resets a Unix socket whose other end was closed with bytes that
/// were not read; to write to one that is closed already is a broken pipe.
fn is_of_unread(kind: IoErrorKind) -> bool {
    matches!(kind, IoErrorKind::ConnectionReset | IoErrorKind::BrokenPipe)
}
