//! Bytes between a call and a rank's control connection.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
};
use tonic::{Status, Streaming};

/// A message has no more of them.
const BYTES_MAX: usize = 64 * 1024;

/// Reads from a socket up to its end, into messages.
pub(super) async fn send<T>(
    mut socket: OwnedReadHalf,
    messages: &mpsc::Sender<T>,
    message: impl Fn(Vec<u8>) -> T,
) {
    let mut bytes = vec![0; BYTES_MAX];
    while let Ok(count @ 1..) = socket.read(&mut bytes).await {
        if messages.send(message(bytes[..count].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Writes what messages have to a socket, up to the end of either.
///
/// # Errors
///
/// The call's.
pub(super) async fn receive<T>(
    messages: &mut Streaming<T>,
    mut socket: OwnedWriteHalf,
    mut bytes: impl FnMut(T) -> Option<Vec<u8>>,
) -> Result<(), Status> {
    while let Some(message) = messages.message().await? {
        let Some(bytes) = bytes(message) else { return Ok(()) };
        if socket.write_all(&bytes).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
