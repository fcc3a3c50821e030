//! The service by which hosts speak: one call, which begins a rank's process and then carries its control connection.
//!
//! ```proto
//! package pystachio;
//! service Ranks { rpc Serve (stream ToHost) returns (stream FromHost); }
//! message ToHost   { Open open = 1; bytes control = 2; }
//! message Open     { string version = 1; uint32 protocol_version = 2; string hosts = 3; uint32 ranks = 4; string coordinator = 5; uint32 rank = 6; }
//! message FromHost { uint32 process = 1; bytes control = 2; string ended = 3; }
//! ```
//!
//! The first message each way has `open` and `process`, those after it `control`: bytes of the connection that rank 0 has with a rank on its own
//! host (`message.rs`). The last one to the coordinator has `ended`, if the process has.
//!
//! The code is written by hand: it is one call, and a compiler of such files would be a dependency of every build.

use std::{
    convert::Infallible,
    error::Error as StdError,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::sync::mpsc;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{Service, http},
    server::StreamingService,
    transport::Channel,
};
use tonic_prost::ProstCodec;

/// Where the call is.
const PATH: &str = "/pystachio.Ranks/Serve";

/// From a coordinator to another host.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ToHost {
    /// In the first message.
    #[prost(message, optional, tag = "1")]
    pub(super) open: Option<Open>,
    /// Bytes for the rank.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) control: Vec<u8>,
}

/// The wanted rank, and the caller.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Open {
    /// [`crate::VERSION`].
    #[prost(string, tag = "1")]
    pub(super) version: String,
    /// The version of what ranks tell each other.
    #[prost(uint32, tag = "2")]
    pub(super) protocol_version: u32,
    /// The server option `hosts`, which is the same on all hosts.
    #[prost(string, tag = "3")]
    pub(super) hosts: String,
    /// The ranks of a host.
    #[prost(uint32, tag = "4")]
    pub(super) ranks: u32,
    /// Whose rank 0 it is, as named in `hosts`.
    #[prost(string, tag = "5")]
    pub(super) coordinator: String,
    /// The rank.
    #[prost(uint32, tag = "6")]
    pub(super) rank: u32,
}

/// From another host to a coordinator.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FromHost {
    /// In the first message: the rank's process.
    #[prost(uint32, tag = "1")]
    pub(super) process: u32,
    /// Bytes of the rank.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) control: Vec<u8>,
    /// How its process has ended.
    #[prost(string, tag = "3")]
    pub(super) ended: String,
}

/// What a host does when it is called.
pub(super) trait ServeRank: Send + Sync + 'static {
    /// Begins a rank's process. What it says goes to the sender, up to its end.
    fn serve(
        self: Arc<Self>,
        messages: Streaming<ToHost>,
        answers: mpsc::Sender<FromHost>,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Answers that have not been sent.
const ANSWERS_MAX: usize = 16;

/// The service, as a connection has it.
pub(super) struct RankService<S>(pub(super) Arc<S>);

impl<S> Clone for RankService<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Call<S>(Arc<S>);

impl<S: ServeRank> StreamingService<ToHost> for Call<S> {
    type Response = FromHost;
    type ResponseStream = BoxStream<'static, Result<FromHost, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ToHost>>) -> Self::Future {
        let host = self.0.clone();
        Box::pin(async move {
            let (answers, answered) = mpsc::channel(ANSWERS_MAX);
            host.serve(request.into_inner(), answers).await?;
            Ok(Response::new(received(answered).map(Ok).boxed()))
        })
    }
}

impl<S: ServeRank> Service<http::Request<Body>> for RankService<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let host = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(
                    Status::unimplemented("hosts have the call pystachio.Ranks/Serve only").into_http()
                );
            }
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<FromHost, ToHost>::default());
            Ok(grpc.streaming(Call(host), request).await)
        })
    }
}

/// Calls a host. The messages end the call when they end.
///
/// # Errors
///
/// Why there is no call, with all reasons beneath it.
pub(super) async fn call(
    channel: Channel,
    messages: mpsc::Receiver<ToHost>,
) -> Result<Streaming<FromHost>, String> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| reasons(&error))?;
    let path = http::uri::PathAndQuery::from_static(PATH);
    let codec = ProstCodec::<ToHost, FromHost>::default();
    let called = grpc.streaming(Request::new(received(messages)), path, codec).await;
    called.map(Response::into_inner).map_err(|status| status_text(&status))
}

/// What a call failed with.
pub(super) fn status_text(status: &Status) -> String {
    match status.source() {
        Some(source) => reasons(source),
        None => status.message().to_owned(),
    }
}

/// An error and all that it comes from.
pub(super) fn reasons(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

fn received<T: Send + 'static>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send + 'static {
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|message| (message, receiver))
    })
}
