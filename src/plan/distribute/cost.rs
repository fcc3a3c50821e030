//! What it costs to move rows between ranks, and to compute on several rather than on one.
//!
//! ```text
//! shuffle    each rank sends and receives   bytes × (ranks − 1) / ranks²
//! broadcast  each rank receives             bytes × (ranks − 1) / ranks
//! gather     rank 0 receives                bytes × (ranks − 1) / ranks
//! ```
//!
//! An exchange takes as long as its busiest rank: what that sends or receives over the link, to ranks of its host or to those of others, what
//! its messages take however small they are, or what it packs or unpacks, its own rows too, whichever is most, as these go on beside each
//! other; and a fixed time. So a broadcast of a build side
//! pays while its bytes × (ranks − 1) are below what shuffling both sides would move, (build + probe) × (ranks − 1) / ranks,
//! less what it costs that every rank then builds a hash table of all its rows.
//!
//! Units: bytes and rows are of all ranks together unless a name says `local`; times are seconds.
//!
//! Of a shuffle in which rows with heavy keys are not partitioned ([`super::heavy`]) those of one side go nowhere, and those of the other are broadcast.
//!
//! Deliberately absent: skew of values that nothing is known of, spilling, overlap of exchanges with computing.

use std::slice;

use super::ranges::ColumnRanges;
use crate::{
    AggregateCall, AggregatePhase, ColumnId, DataType, ExchangeKind, NamedExpression, Operator, Relation,
};

/// What exchanges and operators cost. The host measures its own links; the other defaults are what two H100s of one host, with NVLink between
/// them, took for TPC-H SF 100 and joins of 440 million rows whose columns were on the devices (benches/results/2026-11-25-two-gpus.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeCosts {
    /// Ranks that may run a query; at least one.
    pub ranks: u32,
    /// Hosts that they are on, as many on each. Default: 1.
    pub hosts: u32,
    /// Bytes a second that a rank sends to those of its host, or receives from them, while all do. Default: 250 GB/s, what rounds of 64 to 256 MB gave
    /// between two H200s.
    pub link_bytes_per_s: f64,
    /// The same to ranks on other hosts. Default: 23 GB/s, what a network of 200 Gbit/s gives a rank that has a card of its own.
    pub host_link_bytes_per_s: f64,
    /// What a message to a rank of the same host takes in a round, however small it is, beside others. Default: 2 µs, assumed.
    pub message_s: f64,
    /// The same to a rank on another host. Default: 10 µs, assumed.
    pub host_message_s: f64,
    /// What an exchange takes however little moves: packing, agreeing on rounds, unpacking, the wait for the last rank. Default: 1.2 ms.
    pub exchange_s: f64,
    /// What a query takes more on all ranks than on one: its plan, their start, and their admission. Default: 2 ms.
    pub query_s: f64,
    /// Bytes a second of rows that a rank packs, or unpacks. Default: 105 GB/s, what a shuffle between two H100s gave.
    pub pack_bytes_per_s: f64,
    /// Putting a row into a join's hash table. Default: 0.03 ns.
    pub build_row_s: f64,
    /// Looking a row up in one. Default: 0.03 ns.
    pub probe_row_s: f64,
    /// Trying a pair of rows where a join has no keys. Default: 0.06 ns.
    pub pair_s: f64,
    /// Finding a row's group, and adding it up. Default: 0.08 ns.
    pub group_row_s: f64,
    /// Merging a group, or a value of a DISTINCT argument, with those of other chunks. Default: 0.4 ns, what 12 million values took an H200.
    pub merge_row_s: f64,
    /// Partitioning one before that, where they are too many for one merge. Default: 0.7 ns, what 36 million values took more.
    pub partition_row_s: f64,
    /// So many are merged at once. Default: 16 million, as of the operator.
    pub merge_rows_max: f64,
    /// One comparison of a sort. Default: 0.005 ns.
    pub compare_row_s: f64,
    /// Writing a row of an operator's result. Default: 0.01 ns.
    pub output_row_s: f64,
    /// Encoded bytes of files that a rank decodes in a second, from its device's cache. Default: 250 GB/s.
    pub scan_bytes_per_s: f64,
    /// Scans of no more encoded bytes are read whole by every rank. Default: 1 MB, which is read sooner than exchanged.
    pub whole_scan_bytes_max: u64,
}

impl Default for ExchangeCosts {
    fn default() -> Self {
        Self {
            ranks: 1,
            hosts: 1,
            link_bytes_per_s: 250e9,
            host_link_bytes_per_s: 23e9,
            message_s: 2e-6,
            host_message_s: 1e-5,
            exchange_s: 1.2e-3,
            query_s: 2e-3,
            pack_bytes_per_s: 105e9,
            build_row_s: 3e-11,
            probe_row_s: 3e-11,
            pair_s: 6e-11,
            group_row_s: 8e-11,
            merge_row_s: 4e-10,
            partition_row_s: 7e-10,
            merge_rows_max: (16u64 << 20) as f64,
            compare_row_s: 5e-12,
            output_row_s: 1e-11,
            scan_bytes_per_s: 250e9,
            whole_scan_bytes_max: 1 << 20,
        }
    }
}

/// What the footers say of what a scan reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanFigures {
    /// Rows of the row groups that statistics leave.
    pub row_count: u64,
    /// Bytes of the column chunks that are read, as they are encoded.
    pub encoded_bytes: u64,
    /// Of those columns of [`range_columns`](super::range_columns) whose ranges all row groups tell.
    pub ranges: Vec<ColumnRanges>,
}

/// What an exchange is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Rows of its input, over all ranks.
    pub(super) rows: f64,
    /// Bytes of a row.
    pub(super) row_bytes: f64,
    /// Ranks that have the rows.
    pub(super) senders: f64,
    /// How a shuffle partitions them.
    pub(super) shuffle: ShuffleSpread,
}

/// How a shuffle partitions rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShuffleSpread {
    /// Among how many ranks, of which each gets as many as the one that gets most: few keys make them fewer.
    pub(super) owners: f64,
    /// The share of the rows that it does not partition, as their keys are heavy.
    pub(super) heavy_share: f64,
}

impl ShuffleSpread {
    /// All rows among so many ranks.
    pub(super) fn among(owners: f64) -> Self {
        Self { owners, heavy_share: 0.0 }
    }
}

/// What an exchange is expected to move.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Movement {
    /// Bytes that go from one rank to another, over all ranks.
    pub(super) bytes: f64,
    /// How long it takes.
    pub(super) seconds: f64,
}

impl Movement {
    /// One after the other.
    pub(super) fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, seconds: self.seconds + other.seconds }
    }
}

/// What the busiest rank of an exchange sends or gets by one kind of link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkLoad {
    /// How many bytes.
    pub(super) bytes: f64,
    /// To how many other ranks, or from how many.
    pub(super) partners: f64,
}

/// What the busiest rank of an exchange has to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RankLoad {
    /// With ranks of its host.
    pub(super) near: LinkLoad,
    /// With ranks of other hosts.
    pub(super) far: LinkLoad,
    /// Bytes that it packs, or unpacks.
    pub(super) handled_bytes: f64,
}

/// So many bytes leave a rank in one round, and the next has as many messages again. As of the network's own options.
const ROUND_BYTES: f64 = (256u64 << 20) as f64;

/// The bytes of a text or of other bytes, for want of anything better.
const TEXT_BYTES: f64 = 24.0;
/// Decimals of so many digits have cells of 8 bytes, and of so many 16.
const NARROW_DIGITS_MAX: u8 = 18;
const WIDE_DIGITS_MAX: u8 = 38;

/// An estimate of the bytes of a row with these columns. At least one: rows without columns are counted.
pub fn row_bytes(columns: &[(ColumnId, DataType)]) -> f64 {
    columns.iter().map(|(_, data_type)| cell_bytes(data_type)).sum::<f64>().max(1.0)
}

fn cell_bytes(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Bool => 1.0,
        DataType::Int16 => 2.0,
        DataType::Int32 | DataType::Float32 | DataType::Date => 4.0,
        DataType::Int64
        | DataType::Float64
        | DataType::Time
        | DataType::Timestamp
        | DataType::TimestampTz => 8.0,
        DataType::Decimal { precision, .. } if *precision <= NARROW_DIGITS_MAX => 8.0,
        DataType::Decimal { precision, .. } if *precision <= WIDE_DIGITS_MAX => 16.0,
        DataType::Interval | DataType::Uuid => 16.0,
        DataType::Decimal { .. } | DataType::Numeric => 32.0,
        DataType::Text | DataType::Bytea => TEXT_BYTES,
        DataType::List(item) => 4.0 * cell_bytes(item),
        DataType::Record(fields) => fields.iter().map(|field| cell_bytes(&field.data_type)).sum(),
    }
}

/// The different arguments of DISTINCT calls.
fn distinct_argument_count(aggregates: &[AggregateCall]) -> usize {
    let mut arguments = Vec::new();
    for call in aggregates.iter().filter(|call| call.counts_distinct()) {
        let argument = (&call.argument, &call.filter);
        if !arguments.contains(&argument) {
            arguments.push(argument);
        }
    }
    arguments.len()
}

/// Whether an aggregate merges its groups. It finds groups of one integer by its value. The first of two phases passes groups on that stay
/// many.
fn merges_groups(groups: &[NamedExpression], phase: AggregatePhase) -> bool {
    let is_merged = match groups {
        [] => false,
        [group] => {
            !matches!(group.expression.data_type(), DataType::Int16 | DataType::Int32 | DataType::Int64)
        }
        _ => true,
    };
    is_merged && phase != AggregatePhase::Partial
}

impl ExchangeCosts {
    pub(super) fn rank_count(&self) -> f64 {
        f64::from(self.ranks.max(1))
    }

    /// Hosts, of which each has as many ranks; one where that can't be.
    pub(super) fn host_count(&self) -> f64 {
        let is_even = self.hosts > 0 && self.ranks.is_multiple_of(self.hosts);
        if is_even { f64::from(self.hosts) } else { 1.0 }
    }

    /// What an exchange of so many rows costs, in which every rank sends to all.
    pub(super) fn movement(&self, kind: &ExchangeKind, load: Load) -> Movement {
        let Load { rows, row_bytes, senders, shuffle: ShuffleSpread { owners, heavy_share } } = load;
        let ranks = self.rank_count();
        let (whole, heavy) = (rows * row_bytes * (1.0 - heavy_share), rows * row_bytes * heavy_share);
        let moved = whole * (ranks - 1.0) / ranks;
        let (senders, owners) = (senders.clamp(1.0, ranks), owners.clamp(1.0, ranks));
        let broadcast = |whole: f64| {
            let bytes = whole * (ranks - 1.0);
            (bytes, (bytes / ranks).max(bytes / senders))
        };
        let busiest = senders.min(owners);
        // What moves, what the busiest rank sends or gets, and what one packs or unpacks.
        let (bytes, of_link, handled) = match kind {
            ExchangeKind::Own { .. } => return Movement { bytes: 0.0, seconds: rows * self.output_row_s },
            ExchangeKind::Gather | ExchangeKind::Merge { .. } => (moved, moved, whole),
            ExchangeKind::Broadcast => {
                let (bytes, of_busiest) = broadcast(whole);
                (bytes, of_busiest, whole)
            }
            ExchangeKind::Hash { .. } | ExchangeKind::HashOrStay { .. } => {
                (moved, moved / busiest, whole / busiest)
            }
            ExchangeKind::HashOrBroadcast { .. } => {
                let (bytes, of_busiest) = broadcast(heavy);
                (moved + bytes, moved / busiest + of_busiest, whole / busiest + heavy)
            }
        };
        // Rows with heavy keys are told from the others, and put together.
        let told_s = rows * heavy_share / senders * self.output_row_s;
        let of_host = ranks / self.host_count();
        let link = |partners: f64| LinkLoad { bytes: of_link * partners / (ranks - 1.0).max(1.0), partners };
        let load = RankLoad { near: link(of_host - 1.0), far: link(ranks - of_host), handled_bytes: handled };
        Movement { bytes, seconds: self.exchange_seconds(load) + told_s }
    }

    /// How long an exchange takes whose busiest rank has so much to do.
    pub(super) fn exchange_seconds(&self, load: RankLoad) -> f64 {
        let RankLoad { near, far, handled_bytes } = load;
        let moving = (near.bytes / self.link_bytes_per_s.max(1.0))
            .max(far.bytes / self.host_link_bytes_per_s.max(1.0));
        let rounds = ((near.bytes + far.bytes) / ROUND_BYTES).max(1.0);
        let messages = rounds * (near.partners * self.message_s + far.partners * self.host_message_s);
        self.exchange_s + moving.max(messages).max(handled_bytes / self.pack_bytes_per_s.max(1.0))
    }

    /// How long a scan takes that `ranks` share.
    pub(super) fn scan_seconds(&self, encoded_bytes: u64, ranks: f64) -> f64 {
        encoded_bytes as f64 / ranks / self.scan_bytes_per_s.max(1.0)
    }

    /// How long a join takes on a rank. The side that turns out to be small is the one that is hashed.
    pub(super) fn join_seconds(&self, has_keys: bool, side_rows: (f64, f64), output_rows: f64) -> f64 {
        let (build_rows, probe_rows) = (side_rows.0.min(side_rows.1), side_rows.0.max(side_rows.1));
        let matching = match has_keys {
            true => build_rows * self.build_row_s + probe_rows * self.probe_row_s,
            false => build_rows * probe_rows * self.pair_s,
        };
        matching + output_rows * self.output_row_s
    }

    /// How long a rank merges rows most of which stay.
    fn merge_seconds(&self, rows: f64) -> f64 {
        let partitioning = if rows > self.merge_rows_max { self.partition_row_s } else { 0.0 };
        rows * (self.merge_row_s + partitioning)
    }

    /// How long an operator takes on a rank that has so many rows of it and of its inputs. Nothing for scans and exchanges,
    /// of which rows do not tell it.
    pub(super) fn operator_seconds(&self, operator: &Operator, rows: f64, input_rows: &[f64]) -> f64 {
        let below: f64 = input_rows.iter().sum();
        match (operator, input_rows) {
            (Operator::Scan { .. } | Operator::Exchange { .. }, _) => 0.0,
            (Operator::Filter { .. } | Operator::Project { .. } | Operator::UnionAll { .. }, _) => {
                below * self.output_row_s
            }
            (Operator::Limit { .. } | Operator::Unnest { .. }, _) => rows * self.output_row_s,
            (Operator::Join { keys, .. }, [left, right]) => {
                self.join_seconds(!keys.is_empty(), (*left, *right), rows)
            }
            (Operator::Join { .. }, _) => 0.0,
            (Operator::Aggregate { groups, aggregates, phase, .. }, _) => {
                let merged_groups = if merges_groups(groups, *phase) { rows } else { 0.0 };
                // How many values differ is not known: as many as there are rows.
                let values = distinct_argument_count(aggregates) as f64 * self.merge_seconds(below);
                below * self.group_row_s + self.merge_seconds(merged_groups) + values
            }
            (Operator::Sort { .. } | Operator::Window { .. }, _) => {
                below * below.max(2.0).log2() * self.compare_row_s
            }
        }
    }

    /// How long a plan takes on one rank, operator after operator. `scans` are of its scans, from left to right.
    pub(super) fn one_rank_seconds(&self, root: &Relation, scans: &[ScanFigures]) -> f64 {
        fn add(costs: &ExchangeCosts, relation: &Relation, scans: &mut slice::Iter<'_, ScanFigures>) -> f64 {
            let rows = |relation: &Relation| relation.estimate.rows.max(0.0);
            let inputs = relation.inputs();
            let input_rows: Vec<_> = inputs.iter().map(|input| rows(input)).collect();
            let below: f64 = inputs.into_iter().map(|input| add(costs, input, scans)).sum();
            let own = match &relation.operator {
                Operator::Scan { .. } => {
                    costs.scan_seconds(scans.next().map_or(0, |figures| figures.encoded_bytes), 1.0)
                }
                operator => costs.operator_seconds(operator, rows(relation), &input_rows),
            };
            below + own
        }
        add(self, root, &mut scans.iter())
    }
}
