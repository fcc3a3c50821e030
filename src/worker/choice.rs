//! Estimates of a query's time on the CPU engine and on a device's engine, from its plan and
//! footers.
//!
//! ```text
//! CPU     overhead + operators × threads × share + (decoding × first + Σ work) / threads^0.6
//! device  overhead + (compressed bytes / bus + decoding) × first + Σ work + operators × chunks × launch
//! both    the device's parts + handing over their rows + the CPU's time for the operators above
//! ```
//!
//! Both engines read the same bytes from the same storage, so the estimates leave storage out:
//! files count as in the page cache. An engine whose cache can hold the columns reads them once for
//! several queries, so `first` is a part of the reading time. Otherwise an engine that loads
//! columns slowly would never have them. Columns that an engine's cache has are not read at all.
//!
//! Units: nanoseconds. The CPU's rates are of one thread, fitted to the 22 queries of TPC-H at SF 1 on two cores
//! (each within a factor of 2.5, their sum within a tenth). The power of threads was fitted to 60 queries over TPC-H at SF 10 on the
//! 16 processors beside one H200: the device is expected to be faster wherever it was, but for one query. The device's rates are
//! of one H200, as the benchmark's step `calibrate` measured them over TPC-H at SF 10, rounded; a byte's decompression and the bus
//! follow from bandwidths.
//!
//! `machine.rs` measures how much faster or slower this machine is.
//!
//! Deliberately absent: how rows are distributed, spilling, and devices of several kinds.

use std::collections::HashSet;

use pystachio_files::ScanSize;
use pystachio_plan::{AggregateCall, DataType, Expression, JoinSide, Operator, Plan, Relation, WindowCall};

use crate::machine::MachineTimes;

/// What a unit of work costs a thread of the CPU, and the device.
#[derive(Clone, Copy, Default)]
struct Rate {
    cpu_ns: f64,
    device_ns: f64,
}

/// Decoding a value of a column.
const DECODE_VALUE: Rate = Rate { cpu_ns: 2.0, device_ns: 0.01 };
/// Decompressing a byte, and writing it where operators read it.
const DECODE_BYTE: Rate = Rate { cpu_ns: 0.2, device_ns: 0.005 };
/// Reading a row group and decoding it, however few rows it has: a file of many small ones is the CPU's. Measured over
/// 20,000 row groups of five rows, a reader and an array each on the CPU; on the device, the launches and waits of a chunk, unless it has
/// the row group already.
const ROW_GROUP: Rate = Rate { cpu_ns: 25_000.0, device_ns: CHUNK_NS };
/// Evaluating a part of an expression on a row: a call, a literal, a column.
const EVALUATE_PART: Rate = Rate { cpu_ns: 0.6, device_ns: 0.024 };
/// A call that reads text, in parts.
const TEXT_CALL_PARTS: f64 = 15.0;
/// Putting a row into a hash table.
const BUILD_ROW: Rate = Rate { cpu_ns: 45.0, device_ns: 0.06 };
/// Looking a row up in one, or in the filter that a join gives the scan below: of a large table, TPC-DS joins drop most rows there.
const PROBE_ROW: Rate = Rate { cpu_ns: 8.0, device_ns: 0.05 };
/// Finding and gathering a row of a join's result.
const OUTPUT_ROW: Rate = Rate { cpu_ns: 17.0, device_ns: 0.15 };
/// Trying a pair of rows where a join has no keys.
const TRY_PAIR: Rate = Rate { cpu_ns: 2.0, device_ns: 0.06 };
/// Finding a row's group.
const GROUP_ROW: Rate = Rate { cpu_ns: 12.0, device_ns: 0.25 };
/// Adding a row to one aggregate.
const ACCUMULATE_ROW: Rate = Rate { cpu_ns: 2.0, device_ns: 0.01 };
/// Finding the frame of a row and one function of it. The device's was measured over 40 million rows on one H200, a sum of 121 rows each;
/// the thread's is an estimate.
const WINDOW_ROW: Rate = Rate { cpu_ns: 10.0, device_ns: 0.08 };
/// One comparison of a sort, of which a row needs the logarithm of their number.
const COMPARE_ROW: Rate = Rate { cpu_ns: 4.0, device_ns: 0.01 };

/// What an operator costs for each thread that it gives rows to, and of how many rows on it gives them to all: TPC-DS at SF 10 on 16
/// threads, whose small queries took 20 to 80 ms more than their rows would.
const THREAD_SHARE_NS: f64 = 100_000.0;
const SHARED_ROWS: f64 = 8192.0;
/// Turning a plan into an executable one, starting threads, the last row's way back.
const CPU_OVERHEAD_NS: f64 = 2e6;
/// A query keeps so many threads busy: those of the machine to this power. They share memory, and cores.
const THREADS_POWER: f64 = 0.6;
/// The part of reading and decoding columns that a query is to bear where later ones find them in the cache.
const FIRST_PART: f64 = 0.25;
/// The part of a cache that the columns of one query may take to count as kept.
const KEPT_PART: f64 = 0.5;
/// What a decoded value takes in the CPU engine's cache.
const DECODED_VALUE_BYTES: f64 = 16.0;
/// A value of a part that the device computes for the CPU engine, from the device into an array of the host's, and a text: 80 bytes each,
/// 7 million of them on one H200. One thread hands all of them over.
const GIVE_VALUE_NS: f64 = 3.0;
const GIVE_TEXT_NS: f64 = 120.0;
/// From the page cache into the device's memory.
const BUS_BYTES_PER_NS: f64 = 20.0;
/// Launches and waits of an operator, however few rows it has: TPC-DS at SF 10 on one H200, a fit to 86 hot queries.
const OPERATOR_NS: f64 = 400_000.0;
/// Launches and waits of an operator over a further chunk.
const CHUNK_NS: f64 = 100_000.0;
/// Rows of a chunk.
const CHUNK_ROWS: f64 = (4 << 20) as f64;

/// What a query is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Microseconds on the CPU engine.
    pub cpu_us: f64,
    /// Microseconds on the device.
    pub device_us: f64,
}

/// What the engines have.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Threads of the CPU engine.
    pub threads: usize,
    /// From a plan to the device's first launch, and from its last to the first row.
    pub device_overhead_us: u32,
    /// The most that the CPU engine's column cache holds.
    pub cpu_cache_bytes: u64,
    /// The most that the device's caches hold.
    pub device_cache_bytes: u64,
    /// How fast the machine is.
    pub times: MachineTimes,
}

/// The times of a plan whose scans, from left to right ([`Relation::scans`]), have these sizes.
pub fn expected_times(plan: &Plan, sizes: &[ScanSize], resources: &Resources) -> Times {
    let parts = HashSet::new();
    let mut model = Model::new(sizes.iter(), resources, &parts);
    model.add(&plan.root, 1.0);
    Times { cpu_us: model.cpu_us(), device_us: model.device_us() }
}

/// The microseconds of a plan of which the device computes these parts, by the addresses of their relations, and the CPU engine the
/// rest, one after the other.
pub fn expected_time_divided(
    plan: &Plan,
    sizes: &[ScanSize],
    resources: &Resources,
    parts: &HashSet<usize>,
) -> f64 {
    let mut model = Model::new(sizes.iter(), resources, parts);
    model.add(&plan.root, 1.0);
    model.cpu_us() + model.parts_us
}

struct Model<'a> {
    sizes: std::slice::Iter<'a, ScanSize>,
    resources: &'a Resources,
    /// The relations that the device computes for the CPU engine, by their addresses, and how long it takes.
    parts: &'a HashSet<usize>,
    parts_us: f64,
    /// Operators whose rows the CPU's threads share.
    shared_operators: f64,
    cpu_ns: f64,
    device_ns: f64,
    /// Reading and decoding.
    first: Rate,
    /// What is read, as the files have it, and as the CPU engine's cache holds it.
    stored_bytes: f64,
    decoded_bytes: f64,
}

impl<'a> Model<'a> {
    fn new(
        sizes: std::slice::Iter<'a, ScanSize>,
        resources: &'a Resources,
        parts: &'a HashSet<usize>,
    ) -> Self {
        Self {
            sizes,
            resources,
            parts,
            parts_us: 0.0,
            shared_operators: 0.0,
            cpu_ns: 0.0,
            device_ns: 0.0,
            first: Rate::default(),
            stored_bytes: 0.0,
            decoded_bytes: 0.0,
        }
    }

    fn cpu_us(&self) -> f64 {
        let first_part = first_part(self.decoded_bytes, self.resources.cpu_cache_bytes);
        let threads = (self.resources.threads as f64).powf(THREADS_POWER).max(1.0);
        let sharing_ns = THREAD_SHARE_NS * self.resources.threads as f64 * self.shared_operators;
        let all_ns = CPU_OVERHEAD_NS + sharing_ns + (self.cpu_ns + self.first.cpu_ns * first_part) / threads;
        all_ns * self.resources.times.thread / 1e3
    }

    fn device_us(&self) -> f64 {
        let first_part = first_part(self.stored_bytes, self.resources.device_cache_bytes);
        f64::from(self.resources.device_overhead_us)
            + (self.device_ns + self.first.device_ns * first_part) / 1e3
    }

    /// Adds an operator and what is below it. A limit above wants this `share` of its rows and no more.
    fn add(&mut self, relation: &Relation, share: f64) {
        if !self.parts.contains(&(std::ptr::from_ref(relation) as usize)) {
            return self.add_operator(relation, share);
        }
        // A part is computed whole.
        let none = HashSet::new();
        let mut part = Model::new(self.sizes.clone(), self.resources, &none);
        part.add_operator(relation, 1.0);
        self.parts_us += part.device_us();
        self.sizes = self.sizes.as_slice()[self.sizes.len() - part.sizes.len()..].iter();
        let value_ns = |data_type: &DataType| match data_type {
            DataType::Text | DataType::Bytea => GIVE_TEXT_NS,
            _ => GIVE_VALUE_NS,
        };
        let row_ns: f64 = relation.columns().iter().map(|(_, data_type)| value_ns(data_type)).sum();
        self.parts_us += relation.estimate.rows.max(0.0) * row_ns * self.resources.times.thread / 1e3;
    }

    fn add_operator(&mut self, relation: &Relation, share: f64) {
        let rows = |relation: &Relation, share: f64| relation.estimate.rows.max(0.0) * share;
        match &relation.operator {
            Operator::Scan { columns, filters, .. } => {
                let size = self.sizes.next().copied().unwrap_or_default();
                let row_count = size.row_count as f64 * share;
                let row_group_count = size.row_group_count as f64 * share;
                self.cpu_ns += ROW_GROUP.cpu_ns * row_group_count;
                let value_count = row_count * columns.len() as f64;
                let (stored_bytes, bytes) =
                    (size.compressed_bytes as f64 * share, size.uncompressed_bytes as f64 * share);
                self.first.cpu_ns +=
                    (DECODE_VALUE.cpu_ns * value_count + DECODE_BYTE.cpu_ns * bytes) * (1.0 - size.held.cpu);
                let MachineTimes { launch, memory, bus, .. } = self.resources.times;
                self.first.device_ns +=
                    ((DECODE_VALUE.device_ns * value_count + DECODE_BYTE.device_ns * bytes) * memory
                        + ROW_GROUP.device_ns * row_group_count * launch
                        + stored_bytes / BUS_BYTES_PER_NS * bus)
                        * (1.0 - size.held.device);
                self.stored_bytes += stored_bytes;
                self.decoded_bytes += value_count * DECODED_VALUE_BYTES + bytes;
                self.work(EVALUATE_PART, row_count * parts(filters));
                self.launch(row_count);
            }
            Operator::Filter { input, predicate } => {
                self.work(EVALUATE_PART, rows(input, share) * parts([predicate]));
                self.launch(rows(input, share));
                self.add(input, share);
            }
            Operator::Project { input, expressions } => {
                // A column as itself is not computed.
                let computed = expressions.iter().map(|named| &named.expression);
                let computed = computed.filter(|expression| !matches!(expression, Expression::Column { .. }));
                self.work(EVALUATE_PART, rows(input, share) * parts(computed));
                self.launch(rows(input, share));
                self.add(input, share);
            }
            Operator::Join { left, right, keys, residual, build, .. } => {
                // The build side is read whole.
                let (left_share, right_share) = match build {
                    JoinSide::Left => (1.0, share),
                    JoinSide::Right => (share, 1.0),
                };
                let (left_rows, right_rows) = (rows(left, left_share), rows(right, right_share));
                let (build_rows, probe_rows) = match build {
                    JoinSide::Left => (left_rows, right_rows),
                    JoinSide::Right => (right_rows, left_rows),
                };
                if keys.is_empty() {
                    self.work(TRY_PAIR, build_rows * probe_rows);
                } else {
                    self.work(BUILD_ROW, build_rows);
                    self.work(PROBE_ROW, probe_rows);
                    let expressions = keys.iter().flat_map(|key| [&key.left, &key.right]);
                    self.work(EVALUATE_PART, probe_rows * parts(expressions));
                }
                self.work(EVALUATE_PART, rows(relation, share) * parts(residual));
                self.work(OUTPUT_ROW, rows(relation, share));
                self.launch(build_rows);
                self.launch(probe_rows);
                self.add(left, left_share);
                self.add(right, right_share);
            }
            Operator::Aggregate { input, groups, aggregates, .. } => {
                let input_rows = rows(input, 1.0);
                if !groups.is_empty() {
                    self.work(GROUP_ROW, input_rows);
                    self.work(
                        EVALUATE_PART,
                        input_rows * parts(groups.iter().map(|named| &named.expression)),
                    );
                }
                for (place, call) in aggregates.iter().enumerate() {
                    // Those of one argument share their order.
                    let is_same =
                        |known: &AggregateCall| AggregateCall { id: call.id, ..known.clone() } == *call;
                    if !call.order.is_empty() && !aggregates[..place].iter().any(is_same) {
                        self.work(COMPARE_ROW, input_rows * input_rows.max(2.0).log2());
                        self.launch(input_rows);
                    }
                    self.work(ACCUMULATE_ROW, input_rows);
                    self.work(EVALUATE_PART, input_rows * parts(call.argument.iter().chain(&call.filter)));
                    if call.distinct {
                        self.work(GROUP_ROW, input_rows);
                    }
                }
                self.launch(input_rows);
                self.add(input, 1.0);
            }
            Operator::Sort { input, .. } => {
                let input_rows = rows(input, 1.0);
                self.work(COMPARE_ROW, input_rows * input_rows.max(2.0).log2());
                self.launch(input_rows);
                self.add(input, 1.0);
            }
            Operator::Window { input, partition, order, calls } => {
                let input_rows = rows(input, 1.0);
                if !(partition.is_empty() && order.is_empty()) {
                    self.work(COMPARE_ROW, input_rows * input_rows.max(2.0).log2());
                }
                self.work(EVALUATE_PART, input_rows * parts(calls.iter().flat_map(WindowCall::expressions)));
                self.work(WINDOW_ROW, input_rows * calls.len() as f64);
                self.launch(input_rows);
                self.add(input, 1.0);
            }
            // The engine of processors alone has arrays; both repeat rows.
            Operator::Unnest { input, .. } => {
                self.work(OUTPUT_ROW, rows(relation, share));
                self.launch(rows(relation, share));
                self.add(input, share);
            }
            Operator::Limit { input, .. } => {
                let wanted = rows(relation, 1.0) / rows(input, 1.0).max(1.0);
                self.add(input, share * wanted.clamp(0.0, 1.0));
            }
            Operator::UnionAll { inputs, .. } => {
                inputs.iter().for_each(|(input, _)| self.add(input, share));
            }
            Operator::Exchange { input, .. } => self.add(input, share),
        }
    }

    fn work(&mut self, rate: Rate, count: f64) {
        self.cpu_ns += rate.cpu_ns * count;
        self.device_ns += rate.device_ns * count * self.resources.times.memory;
    }

    /// What the device does for an operator over so many rows, however little each row is.
    fn launch(&mut self, row_count: f64) {
        let launch_ns = OPERATOR_NS + CHUNK_NS * (row_count / CHUNK_ROWS).floor();
        self.device_ns += launch_ns * self.resources.times.launch;
        if row_count >= SHARED_ROWS {
            self.shared_operators += 1.0;
        }
    }
}

/// The part of reading and decoding that a query bears, if an engine's cache has so many bytes.
fn first_part(bytes: f64, cache_bytes: u64) -> f64 {
    if bytes <= cache_bytes as f64 * KEPT_PART { FIRST_PART } else { 1.0 }
}

/// Parts of expressions. A column or a constant alone is no work, and a function of text as much as some of numbers.
fn parts<'a>(expressions: impl IntoIterator<Item = &'a Expression>) -> f64 {
    let mut count = 0.0;
    for expression in expressions {
        count -= 1.0;
        expression.walk(&mut |part| {
            let is_text = |part: &&Expression| *part.data_type() == DataType::Text;
            count += if part.children().iter().any(is_text) { TEXT_CALL_PARTS } else { 1.0 };
        });
    }
    count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pystachio_plan::{
        Aggregate, AggregatePhase, ColumnContent, ColumnId, FileSet, Function, JoinKey, JoinKind,
        NamedExpression, ScanColumn, ScanExtent, SortKey,
    };

    use pystachio_files::HeldShares;

    use super::*;

    const OVERHEAD_US: u32 = 10_000;

    fn size(row_count: u64) -> ScanSize {
        ScanSize {
            row_group_count: row_count.div_ceil(10_000_000),
            row_count,
            compressed_bytes: row_count * 3,
            uncompressed_bytes: row_count * 8,
            held: HeldShares::default(),
        }
    }

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    fn scan(id: u32, rows: f64, filters: Vec<Expression>) -> Arc<Relation> {
        let columns = vec![ScanColumn {
            id: ColumnId(id),
            name: "c".to_owned(),
            data_type: DataType::Int64,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        }];
        let files = FileSet::parquet(vec!["/t".to_owned()]);
        Relation::new(
            Operator::Scan { table: "t".to_owned(), files, columns, filters, extent: ScanExtent::Whole },
            rows,
        )
    }

    fn count_by(input: Arc<Relation>, id: u32) -> Arc<Relation> {
        let groups = vec![NamedExpression { id: ColumnId(id), expression: column(id) }];
        let call = AggregateCall {
            id: ColumnId(99),
            function: Aggregate::Count,
            argument: None,
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        Relation::new(
            Operator::Aggregate { input, groups, aggregates: vec![call], phase: AggregatePhase::Whole },
            10.0,
        )
    }

    fn join(left: Arc<Relation>, right: Arc<Relation>, build: JoinSide) -> Arc<Relation> {
        let rows = left.estimate.rows.max(right.estimate.rows);
        let keys = vec![JoinKey { left: column(1), right: column(2) }];
        let kind = JoinKind::Inner;
        Relation::new(Operator::Join { kind, left, right, keys, residual: None, build }, rows)
    }

    fn times(root: Arc<Relation>, sizes: &[ScanSize], threads: usize) -> Times {
        times_with(root, sizes, threads, 0)
    }

    /// 16 threads beside a device, nothing cached.
    fn resources() -> Resources {
        Resources {
            threads: 16,
            device_overhead_us: 0,
            cpu_cache_bytes: 0,
            device_cache_bytes: 0,
            times: MachineTimes::REFERENCE,
        }
    }

    /// With a cache of the device that holds so many bytes.
    fn times_with(root: Arc<Relation>, sizes: &[ScanSize], threads: usize, device_cache_bytes: u64) -> Times {
        let resources =
            Resources { threads, device_overhead_us: OVERHEAD_US, device_cache_bytes, ..resources() };
        expected_times(&Plan { root, outputs: Vec::new() }, sizes, &resources)
    }

    #[test]
    fn columns_that_a_cache_can_hold_are_read_for_several_queries() {
        let counted = |cache_bytes| {
            let root = count_by(scan(1, 1e8, Vec::new()), 1);
            times_with(root, &[size(100_000_000)], 16, cache_bytes)
        };
        let (small, large) = (counted(500_000_000), counted(600_000_000));
        assert_eq!((small.cpu_us, counted(0).device_us), (large.cpu_us, small.device_us));
        let bus_us = 100_000_000.0 * 3.0 / BUS_BYTES_PER_NS / 1e3;
        assert!(small.device_us - large.device_us > bus_us * 0.7);
    }

    #[test]
    fn few_rows_are_faster_on_the_cpu_and_many_on_the_device() {
        let grouped = |rows: u64| times(count_by(scan(1, rows as f64, Vec::new()), 1), &[size(rows)], 16);
        let (few, many) = (grouped(10_000), grouped(600_000_000));
        assert!(few.cpu_us < few.device_us && few.device_us >= f64::from(OVERHEAD_US), "{few:?}");
        assert!(many.device_us < many.cpu_us, "{many:?}");
    }

    #[test]
    fn an_order_of_an_aggregate_costs_a_sort() {
        let ordered = |order_count: usize, is_descending: fn(usize) -> bool| {
            let mut root = count_by(scan(1, 1e8, Vec::new()), 1);
            let Operator::Aggregate { aggregates, .. } = &mut Arc::make_mut(&mut root).operator else {
                panic!("no aggregate")
            };
            let call = aggregates.remove(0);
            aggregates.extend((0..3).map(|place| {
                let (expression, descending) = (column(1), is_descending(place));
                let order = vec![SortKey { expression, descending, nulls_first: false }];
                let order = if place < order_count { order } else { Vec::new() };
                AggregateCall { id: ColumnId(99 + place as u32), order, ..call.clone() }
            }));
            times(root, &[size(100_000_000)], 1).device_us
        };
        let of_none = ordered(0, |_| false);
        let of_one = ordered(1, |_| false);
        assert!(of_one > of_none);
        assert_eq!(ordered(3, |_| false), of_one);
        assert!(ordered(3, |place| place == 1) > of_one);
    }

    #[test]
    fn row_groups_of_a_few_rows_are_the_cpus() {
        let cut = |row_group_count| {
            let size = ScanSize { row_group_count, ..size(50_000_000) };
            times(count_by(scan(1, 5e7, Vec::new()), 1), &[size], 4)
        };
        let (whole, cut) = (cut(5), cut(10_000_000));
        assert!(whole.device_us < whole.cpu_us && cut.cpu_us < cut.device_us, "{whole:?} {cut:?}");
    }

    #[test]
    fn what_an_engine_has_it_does_not_read() {
        let plan = Plan { root: count_by(scan(1, 1e8, Vec::new()), 1), outputs: Vec::new() };
        let of = |cpu, device| {
            let size = ScanSize { held: HeldShares { cpu, device }, ..size(100_000_000) };
            expected_times(&plan, &[size], &resources())
        };
        let (nothing, half, all) = (of(0.0, 0.0), of(0.0, 0.5), of(1.0, 1.0));
        assert!(all.device_us < half.device_us && half.device_us < nothing.device_us);
        assert!(all.cpu_us < half.cpu_us && half.cpu_us == nothing.cpu_us, "{half:?} {nothing:?}");
    }

    #[test]
    fn a_slower_machine_takes_longer_where_it_is_slower() {
        let plan = Plan { root: count_by(scan(1, 1e8, Vec::new()), 1), outputs: Vec::new() };
        let on = |times| expected_times(&plan, &[size(100_000_000)], &Resources { times, ..resources() });
        let here = on(MachineTimes::REFERENCE);
        let thread = on(MachineTimes { thread: 2.0, ..MachineTimes::REFERENCE });
        assert_eq!((thread.cpu_us, thread.device_us), (here.cpu_us * 2.0, here.device_us));
        for slower in [
            MachineTimes { launch: 2.0, ..MachineTimes::REFERENCE },
            MachineTimes { memory: 2.0, ..MachineTimes::REFERENCE },
            MachineTimes { bus: 2.0, ..MachineTimes::REFERENCE },
        ] {
            let slower = on(slower);
            assert!(
                slower.device_us > here.device_us && slower.device_us < here.device_us * 2.0,
                "{slower:?}"
            );
            assert_eq!(slower.cpu_us, here.cpu_us);
        }
        let all = on(MachineTimes { launch: 2.0, memory: 2.0, bus: 2.0, ..MachineTimes::REFERENCE });
        assert!((all.device_us / here.device_us - 2.0).abs() < 1e-9, "{all:?}");
    }

    #[test]
    fn threads_share_the_work() {
        let grouped = |threads| times(count_by(scan(1, 1e8, Vec::new()), 1), &[size(100_000_000)], threads);
        let (two, sixteen) = (grouped(2), grouped(16));
        assert!(two.cpu_us > 3.0 * sixteen.cpu_us);
        assert_eq!(two.device_us, sixteen.device_us);
    }

    #[test]
    fn what_statistics_rule_out_costs_nothing() {
        let condition = || vec![Expression::predicate(Function::Less, vec![column(1), column(1)])];
        let of = |rows| times(scan(1, 10.0, condition()), &[size(rows)], 4);
        assert!(of(1_000).cpu_us < of(100_000_000).cpu_us / 50.0);
    }

    #[test]
    fn a_limit_needs_a_share_of_what_streams_and_all_of_what_does_not() {
        let limit = |input| Relation::new(Operator::Limit { input, offset: None, count: None }, 10.0);
        let sizes = [size(10_000_000), size(10_000_000)];
        let (left, right) = (scan(1, 1e7, Vec::new()), scan(2, 1e7, Vec::new()));
        let streamed = times(limit(left.clone()), &sizes, 1);
        assert!(streamed.cpu_us < 3_000.0, "{streamed:?}");
        let sorted = Relation::new(Operator::Sort { input: left.clone(), keys: Vec::new() }, 1e7);
        let whole = times(sorted.clone(), &sizes, 1);
        assert_eq!(times(limit(sorted), &sizes, 1), whole);
        // The side that a hash table is built of is read whole, whichever it is.
        let built = times(limit(join(left.clone(), right.clone(), JoinSide::Left)), &sizes, 1);
        let built_right = times(limit(join(left, right, JoinSide::Right)), &sizes, 1);
        assert!(built.cpu_us > 100_000.0 && (built.cpu_us - built_right.cpu_us).abs() < 1.0);
    }

    #[test]
    fn the_device_shares_a_plan_where_it_leaves_few_rows() {
        let (left, right) = (scan(1, 1e8, Vec::new()), scan(2, 1e3, Vec::new()));
        let grouped = count_by(left.clone(), 1);
        let root = join(grouped.clone(), right, JoinSide::Right);
        let sizes = [size(100_000_000), size(1_000)];
        let resources = Resources { device_overhead_us: OVERHEAD_US, ..resources() };
        let plan = Plan { root: root.clone(), outputs: Vec::new() };
        let divided = |part: &Arc<Relation>| {
            expected_time_divided(&plan, &sizes, &resources, &HashSet::from([Arc::as_ptr(part) as usize]))
        };
        let whole = expected_times(&plan, &sizes, &resources);
        assert!(divided(&grouped) < whole.cpu_us, "few groups: {} {whole:?}", divided(&grouped));
        assert!(divided(&left) > divided(&grouped), "all rows are handed over");
        // Texts take one thread so long to hand over that the CPU engine is faster alone.
        let words = |rows: f64| {
            let mut words = Relation::clone(&scan(3, rows, Vec::new()));
            if let Operator::Scan { columns, .. } = &mut words.operator {
                columns[0].data_type = DataType::Text;
            }
            Arc::new(words)
        };
        let compared = |rows: f64| {
            let words = words(rows);
            let plan = Plan { root: count_by(words.clone(), 3), outputs: Vec::new() };
            let sizes = [size(100_000_000)];
            let parts = HashSet::from([Arc::as_ptr(&words) as usize]);
            let divided = expected_time_divided(&plan, &sizes, &resources, &parts);
            divided < expected_times(&plan, &sizes, &resources).cpu_us
        };
        assert!(compared(1e5) && !compared(1e8), "{} {}", compared(1e5), compared(1e8));
        // The part is the first of two scans: the second has its own size all the same.
        let swapped = [size(1_000), size(100_000_000)];
        assert!(expected_times(&plan, &swapped, &resources).cpu_us > divided(&grouped));
        let all = HashSet::from([Arc::as_ptr(&root) as usize]);
        let of_device = expected_time_divided(&plan, &sizes, &resources, &all);
        assert!(of_device > whole.device_us && of_device < whole.device_us + 3_000.0);
    }

    #[test]
    fn scans_come_in_the_order_of_their_sizes() {
        let root = join(scan(1, 1e6, Vec::new()), scan(2, 10.0, Vec::new()), JoinSide::Right);
        let ids: Vec<u32> = root
            .scans()
            .into_iter()
            .map(|scan| match scan {
                Operator::Scan { columns, .. } => columns[0].id.0,
                _ => 0,
            })
            .collect();
        assert_eq!(ids, [1, 2]);
        let right_is_large = times(root.clone(), &[size(10), size(1_000_000)], 1);
        let left_is_large = times(root, &[size(1_000_000), size(10)], 1);
        assert!((right_is_large.cpu_us - left_is_large.cpu_us).abs() < 1.0);
    }
}
