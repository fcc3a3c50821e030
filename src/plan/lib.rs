//! The language between the extension and its engines: types, expressions, operators and messages, with
//! their exact semantics.
//!
//! ```text
//! extension ──► plan ◄── engine ◄── cpu, worker
//! ```
//!
//! - `types.rs`: the value types and their Arrow layout
//! - `value.rs`: single values: literals, parameters, statistics
//! - `expression.rs`, `function.rs`: scalar expressions and the functions in them
//! - `functions/`: what is known of each function, by which planner, engines and tests go
//! - `failure.rs`: which expressions could fail
//! - `ctype.rs`: the locale that decides character case
//! - `relation.rs`: relational operators; `prune.rs`: drops unused columns
//! - `narrow.rs`: conditions that a plan is given, or loses, after it was made
//! - `group_filter.rs`: how many groups pass a condition on an aggregate
//! - `gate.rs`: parts of a plan that are skipped because a condition without columns is not true
//! - `moment.rs`: comparisons of dates and timestamps of several types; `zone.rs`: time zones as tables
//! - `exchange.rs`: where rows change ranks; `partial.rs`: aggregates in two steps
//! - `distribute/`: a plan becomes one that all ranks run
//! - `explain.rs`: plans in words; `depth.rs`: how deep they may be
//! - `message.rs`, `frame.rs`: what travels over the socket
//! - `table_format.rs`: folders that are tables of another format, which neither side reads
//! - `memory.rs`: amounts of memory, and where memory is
//! - `error.rs`: the one error that crosses it
//!
//! Invariants: every column of a plan has an id that no other column of that plan has, so an expression
//! needs no qualifier. Every expression knows its type. A value means what PostgreSQL means by it: where
//! a function's result could differ from PostgreSQL's, the function does not exist here.
//!
//! Deliberately absent: PostgreSQL, CUDA, DataFusion, what is in files. This crate must stay cheap to build and to
//! load into a backend.

mod affinity;
mod ctype;
mod depth;
mod distribute;
mod error;
mod exchange;
mod explain;
mod expression;
mod failure;
mod frame;
mod function;
mod functions;
mod gate;
mod greeting;
mod group_filter;
mod memory;
mod message;
mod moment;
mod narrow;
mod partial;
mod prune;
mod relation;
mod table_format;
mod techniques;
mod types;
mod value;
mod zone;

pub use affinity::{AffinityPolicy, AffinityRule};
pub use ctype::{Ctype, LocaleName};
pub use depth::{EXPRESSION_DEPTH_MAX, RELATION_DEPTH_MAX};
pub use distribute::{
    ColumnRanges, DistributeRequest, Distributed, Distribution, EqualExpressions, ExchangeCosts,
    ExchangeFacts, ExchangeReason, FilterScope, KeyRange, OneRankReason, Partitioning, RankPolicy,
    RunTimeChoices, ScanFigures, distribute, filter_scope, heavy_key_columns, range_columns,
    with_common_values,
};
pub use error::{Error, ErrorKind, Result, system_reason};
pub use exchange::{ExchangeId, ExchangeKind, ExchangeReach, exchange_key_type, is_exchange_key, is_heavy};
pub use explain::{PlanFacts, expression_text, plan_lines};
pub use expression::{CaseBranch, Expression, ExpressionSize};
pub use failure::{call_could_fail, could_fail};
pub use frame::{
    FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, decode_message, encode_message,
};
pub use function::{Aggregate, DateField, Function, TrimSide};
pub use functions::{
    CatalogNames, CatalogUse, Caveat, Example, FUNCTIONS, FailureRule, Form, FunctionEntry, NullRule,
    ResultType, Shown, Signature, TypeClass, function_of_catalog, function_of_name,
};
pub use gate::{close_gates, gate_parameters, parameters_of};
pub use greeting::{GREETING_HEADER_BYTES, Greeting, GreetingHeader};
pub use group_filter::passing_share;
pub use memory::{MemorySize, MemorySpace};
pub use message::{
    Activity, ActivityKind, ActualRows, CacheEntry, ColumnDescription, DeviceMemoryStatus, DeviceSettings,
    DeviceWork, EXCHANGE_GROUPS_MAX, EXCHANGE_SENDERS_MAX, EngineChoice, EngineEstimates, EngineStatus,
    ExchangeChoice, ExchangeCompression, ExchangeSettings, ExchangeTraffic, FileDescription, FileLayout,
    FileSet, FilesState, GenerateRequest, OperatorMetrics, OptimizeRequest, OptimizedColumn,
    PROTOCOL_VERSION, PlannedFiles, QueryEngine, QueryEntry, QueryMetrics, QueryOrigin, QueryProgress,
    QueryRequest, QueryState, QueryTimeline, QueryWait, RANK_PLACEHOLDER, RankChoice, RankStatus,
    RanksReport, Request, Response, SampleRequest, SeenFiles, SpillRequest, StatisticsEntry, StoragePath,
    TableDescription, TwoLevelExchange,
};
pub use moment::{NextTransition, TimeZone, are_mixed_moments, settle_moments};
pub use narrow::{narrow, widen};
pub use partial::{AggregatePhase, partial_type};
pub use prune::{columns_above_scans, prune_columns};
pub use relation::{
    AggregateCall, ColumnId, CommonValue, Estimate, JoinKey, JoinKind, JoinSide, NamedExpression, Operator,
    Plan, Relation, ScanColumn, ScanExtent, SortKey,
};
pub use table_format::check_not_of_other_format;
pub use techniques::technique_names;
pub use types::DataType;
pub use value::{Interval, Literal, Value};
pub use zone::{ZoneSteps, ZoneTable};
