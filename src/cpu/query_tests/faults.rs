//! Files that are not what they should be: each an error with the file's name, and the next query works.

use super::*;
use pystachio_plan::{DeviceSettings, EngineChoice, ErrorKind, SpillRequest};

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let numbers: Vec<_> = (0..5000).map(|row| Some(row * 31 % 1009)).collect();
    let words: Vec<String> = (0..5000).map(|row| format!("word {row}")).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    vec![("v", int64s(&numbers)), ("w", texts(&words))]
}

fn input(path: &Path) -> Arc<Relation> {
    scan(path, &[(1, "v", DataType::Int64), (2, "w", DataType::Text)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_footers_are_errors() {
    let fixture = Fixture::new();
    let good = std::fs::read(fixture.write("good", columns(), 1000)).unwrap();
    let path = fixture.path("bad");
    let mut encrypted = good.clone();
    let end = encrypted.len();
    encrypted[end - 4..].copy_from_slice(b"PARE");
    let mut long_footer = good.clone();
    long_footer[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut garbage = good.clone();
    garbage[end - 200..end - 8].fill(0xa5);
    for (content, reason) in [
        (Vec::new(), "empty"),
        (b"PAR1".to_vec(), "too short"),
        (b"a,b,c\n1,2,3\n4,5,6\n".to_vec(), "not Parquet"),
        (good[..end / 2].to_vec(), "truncated"),
        (encrypted, "encrypted"),
        (long_footer, "footer"),
        (garbage, "footer"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = fixture.run(input(&path), &[1]).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
        assert!(
            error.message.contains("bad.parquet") && error.message.contains(reason),
            "{reason} in {error}"
        );
    }
    assert_eq!(fixture.run(input(&fixture.path("good")), &[1]).await.unwrap().rows.len(), 5000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_pages_are_errors_or_change_nothing_else() {
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let good = std::fs::read(fixture.write("good", columns(), 1000)).unwrap();
        let path = fixture.path("bad");
        let mut failures = 0;
        for start in (4..good.len() / 2).step_by(997) {
            let mut content = good.clone();
            let end = (start + 64).min(good.len() / 2);
            content[start..end].fill(0xff);
            std::fs::write(&path, content).unwrap();
            match fixture.run(input(&path), &[1, 2]).await {
                Ok(answer) => assert_eq!(answer.rows.len(), 5000),
                Err(error) => {
                    failures += 1;
                    assert!(error.message.contains("bad.parquet"), "at {start}: {error}");
                    assert_ne!(error.kind, ErrorKind::Internal, "at {start}: {error}");
                }
            }
        }
        assert!(failures > 10, "{failures}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_files_and_patterns_are_errors() {
    let fixture = Fixture::new();
    let error = fixture.run(input(&fixture.path("none")), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::FileNotFound);
    assert!(error.message.contains("none.parquet"), "{error}");
    let error = fixture.run(input(&fixture.folder.path().join("*.parquet")), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::FileNotFound);
    let error = fixture.run(input(fixture.folder.path()), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::FileNotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_and_patterns_read_all_their_files() {
    let fixture = Fixture::new();
    let nested = fixture.folder.path().join("a/b");
    std::fs::create_dir_all(&nested).unwrap();
    for (path, value) in [("a/1.parquet", 1), ("a/b/2.parquet", 2), ("a/_3.parquet", 3), ("a/.4.parquet", 4)]
    {
        write_file(&fixture.folder.path().join(path), vec![("v", int64s(&[Some(value)]))], 10);
    }
    let read = |path: &str| scan(&fixture.folder.path().join(path), &[(1, "v", DataType::Int64)]);
    assert_eq!(fixture.run(read("a"), &[1]).await.unwrap().sorted(), ["1", "2"]);
    assert_eq!(fixture.run(read("a/[12].parquet"), &[1]).await.unwrap().sorted(), ["1"]);
    assert_eq!(fixture.run(read("*/*/*.parquet"), &[1]).await.unwrap().sorted(), ["2"]);
}

/// A file that changes after its query has started.
async fn run_while(change: impl Fn(&Path), cache_bytes: u64) -> Result<usize, Error> {
    let fixture = Fixture::with_memory(1 << 30, cache_bytes);
    let numbers: Vec<_> = (0..400_000).map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&numbers))], 20_000);
    let plan = Plan { root: scan(&path, &[(1, "v", DataType::Int64)]), outputs: vec![ColumnId(1)] };
    let request = QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan,
        planned_files: Vec::new(),
        parameters: Vec::new(),
        with_metrics: false,
        batch_rows_max: 1000,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Cpu,
        role: 0,
    };
    let mut stream = fixture.engine.run(request, StopFlag::default()).await?;
    assert!(stream.next_batch().await?.is_some());
    change(&path);
    let mut row_count = 1000;
    while let Some(batch) = stream.next_batch().await? {
        row_count += batch.num_rows();
    }
    Ok(row_count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_replaced_or_deleted_while_it_is_read_is_read_to_its_end() {
    for cache_bytes in [0, 64 << 20] {
        let replace = |path: &Path| {
            let other = path.with_extension("new");
            write_file(&other, vec![("v", int64s(&[Some(1)]))], 10);
            std::fs::rename(&other, path).unwrap();
        };
        assert_eq!(run_while(replace, cache_bytes).await.unwrap(), 400_000);
        assert_eq!(
            run_while(|path| std::fs::remove_file(path).unwrap(), cache_bytes).await.unwrap(),
            400_000
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_truncated_while_it_is_read_is_an_error() {
    for cache_bytes in [0, 64 << 20] {
        let truncate = |path: &Path| File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
        let error = run_while(truncate, cache_bytes).await.unwrap_err();
        assert!(error.message.contains("t.parquet"), "{error}");
        assert!(matches!(error.kind, ErrorKind::FileAccess | ErrorKind::FileCorrupt), "{error}");
    }
}

/// The count of the pairs that a join keeps.
fn pair_count(path: &Path, keys: bool, residual: Option<Expression>) -> Plan {
    let side = |id| scan(path, &[(id, "v", DataType::Int64)]);
    let keys =
        if keys { vec![pystachio_plan::JoinKey { left: column(1), right: column(2) }] } else { Vec::new() };
    let join = Operator::Join {
        kind: pystachio_plan::JoinKind::Inner,
        left: side(1),
        right: side(2),
        keys,
        residual,
        build: pystachio_plan::JoinSide::Left,
    };
    let count = Operator::Aggregate {
        input: Relation::new(join, 1e10),
        groups: Vec::new(),
        aggregates: vec![call(3, Aggregate::Count, None, DataType::Int64)],
        phase: AggregatePhase::Whole,
    };
    Plan { root: Relation::new(count, 1.0), outputs: vec![ColumnId(3)] }
}

/// Runs a query that takes minutes, on every thread of the engine, and drops its stream. The threads are not the
/// host's, whose clock would stand still while they are busy.
fn ends_soon(plan: impl Fn(&Path) -> Plan) {
    let compute = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let fixture = {
        let _entered = compute.enter();
        Fixture::with_memory(1 << 30, 0)
    };
    let host = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    host.block_on(ends_soon_on(&fixture, plan));
}

async fn ends_soon_on(fixture: &Fixture, plan: impl Fn(&Path) -> Plan) {
    let numbers: Vec<_> = (0..300_000).map(|row| Some(row % 3)).collect();
    let path = fixture.write("t", vec![("v", int64s(&numbers))], 20_000);
    let request = QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan: plan(&path),
        planned_files: Vec::new(),
        parameters: Vec::new(),
        with_metrics: false,
        batch_rows_max: 1000,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Cpu,
        role: 0,
    };
    let mut stream = fixture.engine.run(request, StopFlag::default()).await.unwrap();
    let waited = tokio::time::timeout(std::time::Duration::from_millis(200), stream.next_batch()).await;
    assert!(waited.is_err());
    assert_eq!(fixture.engine.status().queries_running, 1);
    let ended = std::time::Instant::now();
    drop(stream);
    while fixture.engine.status().memory_used_bytes > 0 || fixture.engine.status().queries_running > 0 {
        // The pairs would take minutes.
        assert!(ended.elapsed().as_secs() < 60, "the query goes on");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_dropped_stream_ends_its_query() {
    ends_soon(|path| pair_count(path, true, None));
}

#[test]
fn a_dropped_stream_ends_joins_that_keep_no_pair() {
    let never = || Some(compare(Function::Less, call_add(column(1), column(2)), int(0)));
    ends_soon(|path| pair_count(path, true, never()));
    ends_soon(|path| pair_count(path, false, never()));
}

fn call_add(left: Expression, right: Expression) -> Expression {
    Expression::call(Function::Add, vec![left, right], DataType::Int64)
}
