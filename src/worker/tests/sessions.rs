//! Sessions over real sockets, with an engine whose behaviour each query chooses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arrow::{
    array::{AsArray, DictionaryArray, Int64Array, RecordBatch, StringViewArray, StringViewBuilder},
    datatypes::{DataType, Field, Int32Type, Schema, SchemaRef},
    ipc::{reader::StreamReader, writer::StreamEncoder},
};
use async_trait::async_trait;
use pystachio_engine::{Engine, Meter, ResultStream, RowWriter, StopFlag, WriteProgress};
use pystachio_plan::{
    ANSWER_TO_OLDER, CacheEntry, DescribeExtent, DeviceSettings, EngineChoice, EngineStatus, Error,
    ErrorKind, FRAME_HEADER_BYTES, FileLayout, FileSet, FrameHeader, FrameKind, GenerateRequest, Greeting,
    Literal, Operator, OptimizeRequest, OptimizedColumn, Plan, QueryEntry, QueryMetrics, QueryOrigin,
    QueryProgress, QueryRequest, QueryState, QueryWait, Relation, Request, Response, Result, SampleRequest,
    ScanExtent, SpillRequest, StoreName, TableDescription, Value, WriteForm, WriteRequest, WriteTarget,
    WrittenColumn, WrittenFile, WrittenRows, decode_message, encode_message,
};
use pystachio_worker::{BATCH_BYTES_MAX, FrameReader, Host, Server, VERSION};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
};
use tokio_util::sync::CancellationToken;

/// Only a hang takes longer, whatever else the machine does.
const HANG: Duration = Duration::from_secs(300);
/// The role that runs the queries.
const ROLE: u32 = 16_384;

/// What a query does; its number travels as the first parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
enum Behaviour {
    ThreeBatches,
    Endless,
    ErrorAfterTwo,
    PanicInRun,
    PanicInStream,
    Large,
    NeverReady,
    BusyThreads,
    Dictionary,
    NoColumns,
    Slow,
    DeviceFails,
    WaitsForTurn,
    SpillsAndFails,
}

const BEHAVIOURS: [Behaviour; 14] = [
    Behaviour::ThreeBatches,
    Behaviour::Endless,
    Behaviour::ErrorAfterTwo,
    Behaviour::PanicInRun,
    Behaviour::PanicInStream,
    Behaviour::Large,
    Behaviour::NeverReady,
    Behaviour::BusyThreads,
    Behaviour::Dictionary,
    Behaviour::NoColumns,
    Behaviour::Slow,
    Behaviour::DeviceFails,
    Behaviour::WaitsForTurn,
    Behaviour::SpillsAndFails,
];

#[derive(Default)]
struct Seen {
    produced: AtomicU64,
    streams_open: AtomicU64,
    turn_comes: AtomicU64,
    writers_open: AtomicU64,
    rows_kept: AtomicU64,
}

struct FakeEngine(Arc<Seen>);

struct FakeStream {
    behaviour: Behaviour,
    seen: Arc<Seen>,
    next: u64,
    spilled: Arc<FakeMeter>,
}

/// Bytes in spill files.
#[derive(Default)]
struct FakeMeter(AtomicU64);

impl Meter for FakeMeter {
    fn progress(&self) -> QueryProgress {
        QueryProgress { temp_file_bytes: self.0.load(Ordering::SeqCst), ..QueryProgress::default() }
    }
}

fn numbers(rows: i64) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let values = Int64Array::from_iter_values(0..rows);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(values)]).unwrap()
}

/// 200,000 rows in about 23 MB.
static TEXTS: LazyLock<RecordBatch> = LazyLock::new(|| {
    let mut builder = StringViewBuilder::new();
    (0..200_000).for_each(|row| builder.append_value(format!("{row:0>100}")));
    let schema = Schema::new(vec![Field::new("t", DataType::Utf8View, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(builder.finish())]).unwrap()
});

fn words() -> RecordBatch {
    let words: DictionaryArray<Int32Type> = ["b", "a", "b"].into_iter().collect();
    let field = Field::new("w", arrow::array::Array::data_type(&words).clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(words)]).unwrap()
}

fn rows_alone(rows: usize) -> RecordBatch {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap()
}

impl FakeStream {
    fn batch(&self) -> RecordBatch {
        match self.behaviour {
            Behaviour::Large => TEXTS.clone(),
            Behaviour::Endless => numbers(100_000),
            Behaviour::Dictionary => words(),
            Behaviour::NoColumns => rows_alone(7),
            _ => numbers(10),
        }
    }
}

#[async_trait]
impl ResultStream for FakeStream {
    fn schema(&self) -> SchemaRef {
        self.batch().schema()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let last = match self.behaviour {
            Behaviour::ThreeBatches
            | Behaviour::Dictionary
            | Behaviour::NoColumns
            | Behaviour::Slow
            | Behaviour::WaitsForTurn => 3,
            Behaviour::Large => 1,
            _ => u64::MAX,
        };
        match self.behaviour {
            Behaviour::ErrorAfterTwo if self.next == 2 => {
                return Err(Error::new(ErrorKind::DivisionByZero, "division by zero"));
            }
            Behaviour::DeviceFails if self.next == 2 => {
                return Err(Error::new(ErrorKind::Device, "the GPU could not finish its work"));
            }
            Behaviour::Slow | Behaviour::WaitsForTurn => tokio::time::sleep(Duration::from_millis(50)).await,
            Behaviour::SpillsAndFails => {
                // The schema goes out meanwhile, and then the host looks at the bytes.
                let waits = if self.next == 0 { [50, 300] } else { [0, 20] }.map(Duration::from_millis);
                tokio::time::sleep(waits[0]).await;
                self.spilled.0.fetch_add(1000, Ordering::SeqCst);
                tokio::time::sleep(waits[1]).await;
                self.spilled.0.fetch_add(7, Ordering::SeqCst);
                if self.next == 2 {
                    return Err(Error::new(ErrorKind::SpillLimit, "too much"));
                }
            }
            Behaviour::PanicInStream => panic!("stream of the test"),
            Behaviour::NeverReady => std::future::pending().await,
            Behaviour::BusyThreads => {
                let end = Instant::now() + Duration::from_millis(50);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
            _ => {}
        }
        if self.next == last {
            return Ok(None);
        }
        self.next += 1;
        self.seen.produced.fetch_add(1, Ordering::SeqCst);
        Ok(Some(self.batch()))
    }

    fn metrics(&self) -> QueryMetrics {
        QueryMetrics { bytes_read: 77, ..QueryMetrics::default() }
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        self.seen.streams_open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Fails at the row 1000; counts the rows that are kept.
struct FakeWriter {
    seen: Arc<Seen>,
    row_count: u64,
}

#[async_trait]
impl RowWriter for FakeWriter {
    async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.row_count += batch.num_rows() as u64;
        match self.row_count {
            0..1000 => Ok(()),
            _ => Err(Error::new(ErrorKind::FileAccess, "the disk is full")),
        }
    }

    async fn finish(&mut self) -> Result<WrittenRows> {
        let file = WrittenFile {
            path: "/t/a".into(),
            provisional_path: "/t/.a".into(),
            overwrite: false,
            row_count: self.row_count,
            bytes: 1,
        };
        Ok(WrittenRows { files: vec![file], made_folders: Vec::new(), is_in_store: false })
    }

    fn keep(self: Box<Self>) {
        self.seen.rows_kept.fetch_add(self.row_count, Ordering::SeqCst);
    }
}

impl Drop for FakeWriter {
    fn drop(&mut self) {
        self.seen.writers_open.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Engine for FakeEngine {
    async fn names(
        &self,
        _folder: &str,
        _request: (&pystachio_plan::StoreAccess, &StopFlag),
    ) -> Result<Vec<StoreName>> {
        Ok(Vec::new())
    }

    async fn views(
        &self,
        _namespace: &[String],
        _wants_texts: bool,
        _request: (&pystachio_plan::StoreAccess, &StopFlag),
    ) -> Result<Vec<pystachio_plan::CatalogView>> {
        Ok(Vec::new())
    }

    async fn remove(
        &self,
        _paths: Vec<String>,
        _request: (&pystachio_plan::StoreAccess, &StopFlag),
    ) -> Result<Vec<(String, Error)>> {
        Ok(Vec::new())
    }

    async fn describe(
        &self,
        files: &FileSet,
        _extent: DescribeExtent,
        _request: (&pystachio_plan::StoreAccess, &StopFlag),
    ) -> Result<TableDescription> {
        if files.paths[0] == "/missing" {
            return Err(Error::new(ErrorKind::FileNotFound, "no file"));
        }
        Ok(TableDescription {
            files: Vec::new(),
            columns: Vec::new(),
            by_id: Vec::new(),
            row_count: 5,
            identity: 1,
            version: None,
        })
    }

    async fn identify(
        &self,
        _files: &FileSet,
        _request: (&pystachio_plan::StoreAccess, &StopFlag),
    ) -> Result<u64> {
        Ok(1)
    }

    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let Value::Int(number) = request.parameters[0].value else { panic!("no behaviour") };
        let behaviour = BEHAVIOURS[number as usize];
        assert_ne!(behaviour, Behaviour::PanicInRun, "run of the test");
        {
            // A wait that is over at once is not told.
            drop(stop.wait_for_turn());
            let _waits = (behaviour == Behaviour::WaitsForTurn).then(|| stop.wait_for_turn());
            while behaviour == Behaviour::WaitsForTurn && self.0.turn_comes.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        self.0.streams_open.fetch_add(1, Ordering::SeqCst);
        let stream = FakeStream { behaviour, seen: self.0.clone(), next: 0, spilled: Arc::default() };
        if behaviour == Behaviour::SpillsAndFails {
            let meter: Arc<dyn Meter> = stream.spilled.clone();
            stop.account().measure(Arc::downgrade(&meter));
        }
        Ok(Box::new(stream))
    }

    async fn preview(&self, _request: QueryRequest, _stop: StopFlag) -> Result<QueryMetrics> {
        Ok(QueryMetrics { row_groups_total: 7, ..QueryMetrics::default() })
    }

    async fn sample(&self, _request: SampleRequest, _stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        self.0.streams_open.fetch_add(1, Ordering::SeqCst);
        let (behaviour, seen, spilled) = (Behaviour::ThreeBatches, self.0.clone(), Arc::default());
        Ok(Box::new(FakeStream { behaviour, seen, next: 0, spilled }))
    }

    async fn generate(
        &self,
        _request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>> {
        progress(WriteProgress { name: "part".into(), rows_done: 1, rows_total: 2 });
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(vec![("part".into(), 2)])
    }

    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>> {
        progress(WriteProgress { name: request.source.clone(), rows_done: 1, rows_total: 2 });
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(vec![optimized_column(&request.target)])
    }

    async fn begin_write(&self, request: WriteRequest) -> Result<Box<dyn RowWriter>> {
        if request.columns.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "no columns"));
        }
        self.0.writers_open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeWriter { seen: self.0.clone(), row_count: 0 }))
    }

    async fn cache(&self) -> Vec<CacheEntry> {
        Vec::new()
    }

    fn status(&self) -> EngineStatus {
        EngineStatus { device: "fake".into(), ..EngineStatus::default() }
    }
}

/// A server with its runtimes, as the executable has them.
struct TestServer {
    sockets: Runtime,
    compute: Runtime,
    socket: PathBuf,
    seen: Arc<Seen>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    host: Arc<Host>,
    _folder: tempfile::TempDir,
}

impl TestServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine/socket");
        let runtime = |threads| {
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
        };
        let (sockets, compute) = (runtime(2), runtime(2));
        let seen = Arc::new(Seen::default());
        let host =
            Host::new(Arc::new(FakeEngine(seen.clone())), compute.handle().clone(), vec!["a library".into()]);
        let stop = CancellationToken::new();
        let server = sockets.block_on(async { Server::bind(&socket).unwrap() });
        let serving = sockets.spawn(server.serve(host.clone(), stop.clone()));
        Self { sockets, compute, socket, seen, stop, serving, host, _folder: folder }
    }

    fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.sockets.block_on(async { tokio::time::timeout(HANG, test).await.expect("test takes too long") })
    }

    async fn connect(&self) -> Client {
        let mut client = Client::connect(&self.socket).await;
        let greeting = client.greet(&Greeting::own("test")).await;
        assert!(greeting.is_understood() && greeting.pid == std::process::id());
        client
    }

    /// Waits until every stream is dropped.
    async fn wait_for_streams_to_end(&self) {
        while self.seen.streams_open.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until so many queries run: what a session has not read when the device is lost gets no answer.
    async fn wait_for_streams(&self, count: u64) {
        while self.seen.streams_open.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn produced(&self) -> u64 {
        self.seen.produced.load(Ordering::SeqCst)
    }
}

struct Client {
    reader: FrameReader<OwnedReadHalf>,
    target: OwnedWriteHalf,
}

/// A whole answer.
struct Answer {
    batches: Vec<RecordBatch>,
    frame_bytes: Vec<usize>,
    end: Response,
}

impl Client {
    async fn connect(socket: &PathBuf) -> Self {
        let (source, target) = UnixStream::connect(socket).await.unwrap().into_split();
        Self { reader: FrameReader::new(source), target }
    }

    async fn greet(&mut self, greeting: &Greeting) -> Greeting {
        self.target.write_all(&greeting.encode()).await.unwrap();
        self.receive_greeting().await
    }

    async fn receive_greeting(&mut self) -> Greeting {
        self.reader.greeting().await.unwrap().unwrap()
    }

    async fn send(&mut self, request: &Request) {
        self.target.write_all(&encode_message(request).unwrap()).await.unwrap();
    }

    async fn receive(&mut self) -> Option<(FrameKind, Vec<u8>)> {
        self.reader.next().await.unwrap()
    }

    async fn receive_message(&mut self) -> Response {
        let (kind, body) = self.receive().await.unwrap();
        assert_eq!(kind, FrameKind::Message);
        decode_message(&body).unwrap()
    }

    async fn ask(&mut self, request: &Request) -> Response {
        self.send(request).await;
        self.receive_message().await
    }

    async fn query(&mut self, behaviour: Behaviour) -> Answer {
        self.send(&query(behaviour)).await;
        self.receive_answer().await
    }

    async fn receive_answer(&mut self) -> Answer {
        let (mut stream, mut frame_bytes) = (Vec::new(), Vec::new());
        loop {
            let (kind, body) = self.receive().await.unwrap();
            if kind == FrameKind::Message {
                let batches = if stream.is_empty() {
                    Vec::new()
                } else {
                    let batches = StreamReader::try_new(stream.as_slice(), None).unwrap();
                    batches.map(|batch| batch.unwrap()).collect()
                };
                return Answer { batches, frame_bytes, end: decode_message(&body).unwrap() };
            }
            frame_bytes.push(body.len());
            stream.extend(body);
        }
    }
}

fn query(behaviour: Behaviour) -> Request {
    let scan = Operator::Scan {
        table: "t".to_owned(),
        files: FileSet::parquet(vec!["/t".to_owned()]),
        columns: Vec::new(),
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    let plan = Plan { root: Relation::new(scan, 0.0), outputs: Vec::new() };
    let behaviour = Literal::new(Value::Int(behaviour as i64), pystachio_plan::DataType::Int64);
    let request = QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan,
        planned_files: Vec::new(),
        parameters: vec![behaviour],
        with_metrics: false,
        batch_rows_max: 100,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Cpu,
        role: ROLE,
    };
    Request::Run(Box::new(request), QueryOrigin { query_id: 5, hides_counts: false })
}

fn failure(response: Response) -> Error {
    match response {
        Response::Failed(error) => error,
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn result_arrives_whole_and_the_connection_serves_the_next_request() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        for _ in 0..3 {
            let answer = client.query(Behaviour::ThreeBatches).await;
            assert_eq!(answer.batches, vec![numbers(10); 3]);
            let Response::Finished(metrics) = answer.end else { panic!("{:?}", answer.end) };
            assert_eq!((metrics.row_count, metrics.bytes_read), (30, 77));
        }
        let tables = vec![FileSet::parquet(vec!["/a".into()]), FileSet::parquet(vec!["/missing".into()])];
        let Response::Described(described) = client
            .ask(&Request::Describe {
                tables,
                extent: DescribeExtent::All,
                access: pystachio_plan::StoreAccess::default(),
            })
            .await
        else {
            panic!()
        };
        assert_eq!(described[0].as_ref().unwrap().row_count, 5);
        assert_eq!(described[1].as_ref().unwrap_err().kind, ErrorKind::FileNotFound);
        assert_eq!(client.ask(&Request::Cache).await, Response::Cache(Vec::new()));
    });
}

#[test]
fn a_query_that_waits_for_its_turn_says_so_and_when_it_goes_on() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        client.send(&query(Behaviour::WaitsForTurn)).await;
        assert_eq!(client.receive_message().await, Response::Turn { is_awaited: true });
        server.seen.turn_comes.store(1, Ordering::SeqCst);
        let (mut frames, mut told) = (0, Vec::new());
        let end = loop {
            let (kind, body) = client.receive().await.unwrap();
            match (kind, (kind == FrameKind::Message).then(|| decode_message::<Response>(&body).unwrap())) {
                (FrameKind::Message, Some(Response::Turn { is_awaited })) => told.push(is_awaited),
                (FrameKind::Message, end) => break end.unwrap(),
                _ => frames += 1,
            }
        };
        assert!(matches!(end, Response::Finished(_)), "{end:?}");
        assert_eq!((frames, told), (4, vec![false]), "a schema and three batches");
        // One that does not wait tells nothing.
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn a_query_tells_what_it_has_spilled_before_its_rows_and_its_error() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        client.send(&query(Behaviour::SpillsAndFails)).await;
        let mut told = Vec::new();
        let end = loop {
            let (kind, body) = client.receive().await.unwrap();
            match kind {
                FrameKind::Schema => told.push("schema".to_owned()),
                FrameKind::Batch => told.push("batch".to_owned()),
                FrameKind::Message => match decode_message::<Response>(&body).unwrap() {
                    Response::Spilled { temp_file_bytes } => told.push(temp_file_bytes.to_string()),
                    end => break end,
                },
            }
        };
        assert!(matches!(&end, Response::Failed(error) if error.kind == ErrorKind::SpillLimit), "{end:?}");
        // While no row comes, with the rows that come after it, and before the error.
        let batches = told.iter().filter(|said| *said == "batch").count();
        assert_eq!((told.contains(&"1000".to_owned()), batches), (true, 2), "{told:?}");
        assert!(told.iter().position(|said| said == "1000") < told.iter().position(|said| said == "batch"));
        assert_eq!(told.last().unwrap(), "3021", "{told:?}");
        // One that does not spill tells nothing.
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

fn optimized_column(file: &str) -> OptimizedColumn {
    OptimizedColumn {
        file: file.into(),
        column: "a".into(),
        encoding: "PLAIN".into(),
        compression: "UNCOMPRESSED".into(),
        row_groups: 1,
        pages: 100,
        bytes_before: 2,
        bytes_after: 1,
        reason: "no rows to try".into(),
    }
}

#[test]
fn sample_generate_and_optimize_answer_as_promised() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        let files = FileSet::parquet(vec!["/a".into()]);
        client
            .send(&Request::Sample(SampleRequest {
                files,
                columns: Vec::new(),
                row_count: 3,
                seed: 1,
                access: pystachio_plan::StoreAccess::default(),
            }))
            .await;
        assert_eq!(client.receive_answer().await.batches.len(), 3);
        let request = GenerateRequest {
            directory: "/d".into(),
            scale_factor: 1.0,
            tables: Vec::new(),
            overwrite: false,
            row_group_rows: 0,
            compression: "none".into(),
            layout: FileLayout::Default,
        };
        let progress = Response::Progress { name: "part".into(), rows_done: 1, rows_total: 2 };
        assert_eq!(client.ask(&Request::Generate(request)).await, progress);
        let generated = Response::Generated { tables: vec![("part".into(), 2)] };
        assert_eq!(client.receive_message().await, generated);
        let request = OptimizeRequest {
            source: "/s".into(),
            target: "/t".into(),
            overwrite: false,
            row_group_rows: 1024,
            compression: "auto".into(),
        };
        let progress = Response::Progress { name: "/s".into(), rows_done: 1, rows_total: 2 };
        assert_eq!(client.ask(&Request::Optimize(request)).await, progress);
        assert_eq!(client.receive_message().await, Response::Optimized(vec![optimized_column("/t")]));
    });
}

#[test]
fn cancel_ends_the_answer_and_keeps_the_connection() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        for behaviour in [Behaviour::NeverReady, Behaviour::Endless, Behaviour::BusyThreads] {
            client.send(&query(behaviour)).await;
            server.wait_for_streams(1).await;
            client.send(&Request::Cancel).await;
            assert_eq!(failure(client.receive_answer().await.end).kind, ErrorKind::Cancelled);
            server.wait_for_streams_to_end().await;
        }
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn a_lost_device_ends_the_server_once_other_queries_have_ended() {
    let mut server = TestServer::start();
    let serving = std::mem::replace(&mut server.serving, server.sockets.spawn(async {}));
    server.run(async {
        let (mut idle, mut busy) = (server.connect().await, server.connect().await);
        let mut failing = server.connect().await;
        busy.send(&query(Behaviour::Slow)).await;
        server.wait_for_streams(1).await;
        let error = failure(failing.query(Behaviour::DeviceFails).await.end);
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Device, "the GPU could not finish its work")
        );
        let answer = busy.receive_answer().await;
        assert_eq!(answer.batches.len(), 3);
        assert!(matches!(answer.end, Response::Finished(_)), "{:?}", answer.end);
        // All connections are closed, and the process that serves ends by itself.
        for client in [&mut idle, &mut busy, &mut failing] {
            assert!(client.receive().await.is_none());
        }
        serving.await.unwrap();
        assert!(!server.socket.exists());
        // The next engine takes over. New connections reach it.
        let engine = Arc::new(FakeEngine(server.seen.clone()));
        let host = Host::new(engine, server.compute.handle().clone(), Vec::new());
        let next = Server::bind(&server.socket).unwrap();
        tokio::spawn(next.serve(host, server.stop.clone()));
        assert_eq!(server.connect().await.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn a_retired_server_ends_what_runs_and_begins_nothing() {
    let mut server = TestServer::start();
    let serving = std::mem::replace(&mut server.serving, server.sockets.spawn(async {}));
    server.run(async {
        let (mut idle, mut busy) = (server.connect().await, server.connect().await);
        let mut silent = Client::connect(&server.socket).await;
        busy.send(&query(Behaviour::Slow)).await;
        server.wait_for_streams(1).await;
        assert!(!server.host.retire_if_idle(), "a query runs");
        assert_eq!(idle.query(Behaviour::ThreeBatches).await.batches.len(), 3);
        server.host.retire();
        // A connection without a request is told, and one without a greeting is closed.
        assert_eq!(failure(idle.receive_message().await).kind, ErrorKind::Retired);
        assert!(idle.receive().await.is_none() && silent.receive().await.is_none());
        let answer = busy.receive_answer().await;
        assert_eq!(answer.batches.len(), 3);
        assert!(matches!(answer.end, Response::Finished(_)), "{:?}", answer.end);
        assert_eq!(failure(busy.receive_message().await).kind, ErrorKind::Retired);
        serving.await.unwrap();
        assert!(!server.socket.exists());
    });
}

#[test]
fn an_idle_server_retires() {
    let mut server = TestServer::start();
    let serving = std::mem::replace(&mut server.serving, server.sockets.spawn(async {}));
    server.run(async {
        let mut client = server.connect().await;
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
        assert_eq!(server.host.requests().counts().0, 1);
        // The request is counted out when its session has written the last part, which the client may read before.
        while !server.host.retire_if_idle() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(failure(client.receive_message().await).kind, ErrorKind::Retired);
        serving.await.unwrap();
    });
}

#[test]
fn a_host_that_gives_up_fails_what_is_under_way_and_ends() {
    let mut server = TestServer::start();
    let serving = std::mem::replace(&mut server.serving, server.sockets.spawn(async {}));
    server.run(async {
        let (mut idle, mut stuck, mut unread) =
            (server.connect().await, server.connect().await, server.connect().await);
        stuck.send(&query(Behaviour::NeverReady)).await;
        unread.send(&query(Behaviour::Endless)).await;
        server.wait_for_streams(2).await;
        while server.produced() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.host.give_up(Error::new(ErrorKind::Device, "the device is stuck"));
        for client in [&mut stuck, &mut unread] {
            let error = failure(client.receive_answer().await.end);
            assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Device, "the device is stuck"));
        }
        for client in [&mut idle, &mut stuck, &mut unread] {
            assert!(client.receive().await.is_none());
        }
        serving.await.unwrap();
        assert!(!server.socket.exists());
    });
}

#[test]
fn a_cancel_is_seen_while_all_threads_compute() {
    let server = TestServer::start();
    server.run(async {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut client = server.connect().await;
            client.send(&query(Behaviour::BusyThreads)).await;
            clients.push(client);
        }
        server.wait_for_streams(8).await;
        for client in &mut clients {
            client.send(&Request::Cancel).await;
            assert_eq!(failure(client.receive_answer().await.end).kind, ErrorKind::Cancelled);
        }
        server.wait_for_streams_to_end().await;
    });
}

#[test]
fn closing_the_connection_stops_the_query() {
    let server = TestServer::start();
    server.run(async {
        for behaviour in [Behaviour::NeverReady, Behaviour::Endless] {
            let mut client = server.connect().await;
            client.send(&query(behaviour)).await;
            assert_eq!(client.receive().await.unwrap().0, FrameKind::Schema);
            drop(client);
            server.wait_for_streams_to_end().await;
        }
    });
}

#[test]
fn cancel_that_comes_too_late_is_no_error() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
        client.send(&Request::Cancel).await;
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn reader_that_does_not_read_stops_the_producer() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        client.send(&query(Behaviour::Endless)).await;
        let mut before = u64::MAX;
        while before != server.produced() || before == 0 {
            before = server.produced();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(before < 20, "{before} batches of 800 kB were produced for a reader that takes none");
        for _ in 0..30 {
            client.receive().await.unwrap();
        }
        assert!(server.produced() >= 28);
        client.send(&Request::Cancel).await;
        assert_eq!(failure(client.receive_answer_rest().await).kind, ErrorKind::Cancelled);
    });
}

impl Client {
    /// The end of an answer of which the beginning has been read.
    async fn receive_answer_rest(&mut self) -> Response {
        loop {
            let (kind, body) = self.receive().await.unwrap();
            if kind == FrameKind::Message {
                return decode_message(&body).unwrap();
            }
        }
    }
}

/// The queries that the engine tells of, once the last of them is in this state.
async fn queries_once(client: &mut Client, state: QueryState) -> Vec<QueryEntry> {
    loop {
        let Response::Queries(queries) = client.ask(&Request::Queries).await else { panic!("no queries") };
        if queries.last().is_some_and(|last| last.state == state) {
            return queries;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn queries_are_seen_from_other_connections_and_counted() {
    let server = TestServer::start();
    server.run(async {
        let (mut client, mut watcher) = (server.connect().await, server.connect().await);
        client.query(Behaviour::ThreeBatches).await;
        client.query(Behaviour::ErrorAfterTwo).await;
        client.send(&query(Behaviour::WaitsForTurn)).await;
        let queries = queries_once(&mut watcher, QueryState::Waiting).await;
        assert_eq!(queries[2].waits_for, Some(QueryWait::Turn));
        server.seen.turn_comes.store(1, Ordering::SeqCst);
        client.receive_answer().await;
        client.send(&query(Behaviour::Endless)).await;
        queries_once(&mut watcher, QueryState::Returning).await;
        // Its reader has enough, which is no cancel.
        client.send(&Request::Enough).await;
        client.receive_answer_rest().await;
        queries_once(&mut watcher, QueryState::Finished).await;
        // Nor is it where the connection is closed at once.
        for _ in 0..20 {
            let mut leaving = server.connect().await;
            leaving.send(&query(Behaviour::Endless)).await;
            leaving.receive().await.unwrap();
            leaving.send(&Request::Enough).await;
            drop(leaving);
        }
        server.wait_for_streams_to_end().await;
        assert!(
            queries_once(&mut watcher, QueryState::Finished)
                .await
                .iter()
                .all(|query| query.state != QueryState::Cancelled)
        );
        let mut gone = server.connect().await;
        gone.send(&query(Behaviour::NeverReady)).await;
        gone.receive().await.unwrap();
        drop(gone);
        let queries = queries_once(&mut watcher, QueryState::Cancelled).await;
        let seen: Vec<_> = queries.iter().map(|query| (query.state, query.row_count)).collect();
        assert_eq!(seen.len(), 25);
        assert_eq!(
            seen[..3],
            [(QueryState::Finished, 30), (QueryState::Failed, 20), (QueryState::Finished, 30)]
        );
        assert_eq!(seen[24], (QueryState::Cancelled, 0));
        let numbers: Vec<u64> = queries.iter().map(|query| query.query).collect();
        assert_eq!(numbers, Vec::from_iter(1..=25));
        assert_eq!(queries[1].error.as_deref(), Some("division by zero"));
        assert!(queries.iter().all(|query| query.role == ROLE && query.origin.query_id == 5));
        assert!(queries.iter().all(|query| query.bytes_read == 77 && query.backend_pid != 0));
        let Response::Statistics(counted) = watcher.ask(&Request::Statistics).await else { panic!() };
        let [counted] = counted.as_slice() else { panic!("{counted:?}") };
        assert_eq!((counted.calls, counted.failures, counted.cancellations), (25, 1, 1));
        assert_eq!(counted.bytes_read, 25 * 77);
        assert_eq!(counted.row_count, seen.iter().map(|(_, rows)| rows).sum::<u64>());
        let forgotten = watcher.ask(&Request::ResetStatistics).await;
        assert_eq!(forgotten, Response::Statistics(Vec::new()));
        assert_eq!(watcher.ask(&Request::Statistics).await, forgotten);
    });
}

#[test]
fn blocked_time_is_counted() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        client.send(&query(Behaviour::Large)).await;
        // Until nothing more is produced: the query waits for its reader.
        let mut before = u64::MAX;
        while before != server.produced() || before == 0 {
            before = server.produced();
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let Response::Finished(metrics) = client.receive_answer().await.end else { panic!() };
        assert!(metrics.blocked_us > 100_000, "blocked_us={}", metrics.blocked_us);
        assert!(metrics.elapsed_us >= metrics.blocked_us);
    });
}

#[test]
fn error_comes_after_the_batches_before_it() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        let answer = client.query(Behaviour::ErrorAfterTwo).await;
        assert_eq!(answer.batches.len(), 2);
        assert_eq!(failure(answer.end).kind, ErrorKind::DivisionByZero);
        let Response::Status(status) = client.ask(&Request::Status).await else { panic!() };
        assert_eq!((status.queries_run, status.queries_running), (1, 0));
        assert_eq!(status.last_error.as_deref(), Some("division by zero"));
        assert_eq!(status.last_error_role, Some(ROLE));
        assert!(status.resident_bytes > 0 && status.device == "fake");
        assert_eq!(status.libraries, ["a library"]);
    });
}

#[test]
fn panic_ends_the_query_and_not_the_engine() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        for (behaviour, words) in
            [(Behaviour::PanicInRun, "run of the test"), (Behaviour::PanicInStream, "stream of the test")]
        {
            let error = failure(client.query(behaviour).await.end);
            assert_eq!(error.kind, ErrorKind::Internal);
            assert!(error.message.contains(words), "{}", error.message);
        }
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn large_batches_are_split_without_loss() {
    let server = TestServer::start();
    server.run(async {
        let answer = server.connect().await.query(Behaviour::Large).await;
        assert!(answer.batches.len() > 4);
        assert!(answer.frame_bytes.iter().all(|bytes| *bytes < BATCH_BYTES_MAX + 100_000));
        let mut expected = TEXTS.clone();
        for batch in &answer.batches {
            assert_eq!(batch, &expected.slice(0, batch.num_rows()));
            expected = expected.slice(batch.num_rows(), expected.num_rows() - batch.num_rows());
        }
        assert_eq!(expected.num_rows(), 0);
    });
}

#[test]
fn dictionaries_arrive_as_values() {
    let server = TestServer::start();
    server.run(async {
        let answer = server.connect().await.query(Behaviour::Dictionary).await;
        let words: Vec<_> = answer.batches[2].column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(words, ["b", "a", "b"]);
    });
}

#[test]
fn rows_without_columns_are_counted() {
    let server = TestServer::start();
    server.run(async {
        let answer = server.connect().await.query(Behaviour::NoColumns).await;
        assert_eq!(answer.batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [7, 7, 7]);
    });
}

#[test]
fn other_versions_are_told_the_engines_and_refused() {
    let server = TestServer::start();
    server.run(async {
        let mut client = Client::connect(&server.socket).await;
        let own = Greeting::own("9.9");
        let other = Greeting { protocol_version: own.protocol_version + 1, ..own };
        // It says which version it has, and no more.
        assert_eq!(client.greet(&other).await.version, VERSION);
        assert!(client.receive().await.is_none());
    });
}

#[test]
fn protocol_violations_end_the_connection_only() {
    let server = TestServer::start();
    server.run(async {
        let greeting = Greeting::own("test").encode();
        let violations: HashMap<&str, Vec<u8>> = HashMap::from([
            ("garbage", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            ("less than a greeting", b"\x04\0\0\0\0\0\x05\x80\x01".to_vec()),
            ("query without a greeting", encode_message(&query(Behaviour::ThreeBatches)).unwrap()),
            ("batch from a backend", [greeting.as_slice(), &[0, 0, 0, 0, 2]].concat()),
            ("unknown message", [greeting.as_slice(), &[1, 0, 0, 0, 0, 250]].concat()),
        ]);
        for (name, bytes) in violations {
            let mut client = Client::connect(&server.socket).await;
            client.target.write_all(&bytes).await.unwrap();
            if bytes.starts_with(&greeting) {
                client.receive_greeting().await;
                assert_eq!(failure(client.receive_message().await).kind, ErrorKind::Protocol, "{name}");
            } else {
                // As a backend of 0.2.0 reads it.
                let answer = client.reader.next().await.unwrap();
                assert_eq!(
                    answer,
                    Some((FrameKind::Message, ANSWER_TO_OLDER[FRAME_HEADER_BYTES..].to_vec()))
                );
            }
            // A server that has not read all resets the connection.
            let end = client.reader.next().await;
            let is_end = matches!(&end, Ok(None) | Err(Error { kind: ErrorKind::Unavailable, .. }));
            assert!(is_end, "{name}: {end:?}");
        }
        let mut client = server.connect().await;
        client.send(&query(Behaviour::NeverReady)).await;
        client.send(&query(Behaviour::ThreeBatches)).await;
        assert_eq!(failure(client.receive_answer_rest().await).kind, ErrorKind::Protocol);
        server.wait_for_streams_to_end().await;
        assert_eq!(server.connect().await.query(Behaviour::ThreeBatches).await.batches.len(), 3);
    });
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let server = TestServer::start();
    server.run(async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..32 {
            let mut client = server.connect().await;
            tasks.spawn(async move {
                for _ in 0..5 {
                    let expected = [Behaviour::ThreeBatches, Behaviour::Large][number % 2];
                    let rows: usize =
                        client.query(expected).await.batches.iter().map(RecordBatch::num_rows).sum();
                    assert_eq!(rows, [30, 200_000][number % 2]);
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(server.seen.streams_open.load(Ordering::SeqCst), 0);
    });
}

fn private_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

#[test]
fn socket_is_the_users_alone_and_goes_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let server = TestServer::start();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&server.socket), 0o600);
    assert_eq!(mode(server.socket.parent().unwrap()), 0o700);
    server.run(async {
        let error = Server::bind(&server.socket).unwrap_err();
        assert!(error.message.contains("another engine"), "{}", error.message);
        let mut client = server.connect().await;
        client.send(&query(Behaviour::NeverReady)).await;
        client.receive().await.unwrap();
        server.stop.cancel();
        server.wait_for_streams_to_end().await;
        while server.socket.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn folder_open_to_others_and_foreign_files_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let server = TestServer::start();
    let folder = private_folder();
    let socket = folder.path().join("s");
    std::fs::write(&socket, "a file").unwrap();
    server.run(async {
        assert!(Server::bind(&socket).unwrap_err().message.contains("no socket"));
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Server::bind(&folder.path().join("t")).unwrap_err().kind, ErrorKind::FilePermission);
    });
}

#[test]
fn socket_of_a_dead_engine_is_replaced() {
    let server = TestServer::start();
    let folder = private_folder();
    let socket = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    server.run(async { Server::bind(&socket).map(drop).unwrap() });
}

#[test]
fn views_that_use_little_of_their_buffers_are_shipped_small() {
    let views: StringViewArray = (0..1_000).map(|row| Some(format!("{row:0>1000}"))).collect();
    let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8View, true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(views.slice(5, 2))]).unwrap();
    let (mut encoder, _) = pystachio_worker::BatchEncoder::try_new(&schema).unwrap();
    let frames = encoder.encode(&batch).unwrap();
    assert_eq!(frames.len(), 1);
    assert!(frames[0].body_bytes() < 4_000, "{}", frames[0].body_bytes());
}

fn write_request(columns: usize) -> Request {
    let column = |place| WrittenColumn {
        name: format!("c{place}"),
        data_type: pystachio_plan::DataType::Int64,
        is_json: false,
        is_utc: false,
        not_null: true,
    };
    Request::Write(WriteRequest {
        target: WriteTarget::Folder { path: "/t".into(), stem: "rows".into() },
        columns: (0..columns).map(column).collect(),
        form: WriteForm::default(),
        spill: SpillRequest::default(),
        access: pystachio_plan::StoreAccess::default(),
        process: 1,
    })
}

impl Client {
    async fn send_rows(&mut self, encoder: &mut StreamEncoder, rows: i64) {
        let body = encoder.encode(&numbers(rows)).unwrap();
        let body_bytes = body.iter().map(|part| part.len()).sum();
        let header = FrameHeader { kind: FrameKind::Batch, body_bytes }.encode().unwrap();
        self.target.write_all(&header).await.unwrap();
        for part in body {
            self.target.write_all(&part).await.unwrap();
        }
    }
}

#[test]
fn written_rows_are_kept_when_the_client_has_taken_them() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        for _ in 0..2 {
            let mut encoder = StreamEncoder::try_new(&numbers(0).schema()).unwrap();
            assert_eq!(client.ask(&write_request(1)).await, Response::Writing);
            client.send_rows(&mut encoder, 10).await;
            client.send_rows(&mut encoder, 5).await;
            let Response::Written(rows) = client.ask(&Request::WriteEnd).await else { panic!("not written") };
            assert_eq!(rows.files[0].row_count, 15);
            client.send(&Request::Keep).await;
        }
        // The next request is answered after the files were kept.
        assert_eq!(client.ask(&Request::Cache).await, Response::Cache(Vec::new()));
        assert_eq!(server.seen.rows_kept.load(Ordering::SeqCst), 30);
        assert_eq!(server.seen.writers_open.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn written_rows_go_with_a_client_that_has_not_taken_them() {
    let server = TestServer::start();
    server.run(async {
        for is_complete in [false, true] {
            let mut client = server.connect().await;
            let mut encoder = StreamEncoder::try_new(&numbers(0).schema()).unwrap();
            assert_eq!(client.ask(&write_request(1)).await, Response::Writing);
            client.send_rows(&mut encoder, 10).await;
            if is_complete {
                assert!(matches!(client.ask(&Request::WriteEnd).await, Response::Written(_)));
            }
            drop(client);
            while server.seen.writers_open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(server.seen.rows_kept.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn rows_that_cannot_be_written_end_the_connection_with_the_reason() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        let error = failure(client.ask(&write_request(0)).await);
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(client.receive().await.is_none());
        let mut client = server.connect().await;
        let mut encoder = StreamEncoder::try_new(&numbers(0).schema()).unwrap();
        assert_eq!(client.ask(&write_request(1)).await, Response::Writing);
        client.send_rows(&mut encoder, 1000).await;
        assert_eq!(failure(client.receive_message().await).message, "the disk is full");
        assert!(client.receive().await.is_none());
        for request in [Request::WriteEnd, Request::Keep] {
            let mut client = server.connect().await;
            assert_eq!(failure(client.ask(&request).await).kind, ErrorKind::Protocol);
        }
        let mut client = server.connect().await;
        assert_eq!(client.ask(&write_request(1)).await, Response::Writing);
        assert_eq!(failure(client.ask(&Request::Status).await).kind, ErrorKind::Protocol);
        while server.seen.writers_open.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.seen.rows_kept.load(Ordering::SeqCst), 0);
    });
}

/// As [`query`], of rows that the engine writes.
fn written_query(behaviour: Behaviour) -> Request {
    match (write_request(1), query(behaviour)) {
        (Request::Write(write), Request::Run(request, origin)) => Request::WriteQuery(write, request, origin),
        _ => panic!("other requests"),
    }
}

#[test]
fn an_engine_writes_the_rows_of_a_query_and_keeps_what_the_client_takes() {
    let server = TestServer::start();
    server.run(async {
        let mut client = server.connect().await;
        let Response::Written(rows) = client.ask(&written_query(Behaviour::ThreeBatches)).await else {
            panic!("not written")
        };
        assert_eq!(rows.files[0].row_count, 30);
        client.send(&Request::Keep).await;
        assert_eq!(client.query(Behaviour::ThreeBatches).await.batches.len(), 3);
        assert_eq!(server.seen.rows_kept.load(Ordering::SeqCst), 30);
        // A client that goes instead leaves no files.
        assert!(matches!(client.ask(&written_query(Behaviour::ThreeBatches)).await, Response::Written(_)));
        drop(client);
        // Nor does one that cancels, or a write that fails; after these, the connection serves the next request.
        let mut client = server.connect().await;
        let error = failure(client.ask(&written_query(Behaviour::Endless)).await);
        assert_eq!(error.message, "the disk is full");
        client.send(&written_query(Behaviour::ThreeBatches)).await;
        client.send(&Request::Cancel).await;
        drop(client);
        while server.seen.writers_open.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.seen.rows_kept.load(Ordering::SeqCst), 30);
    });
}
