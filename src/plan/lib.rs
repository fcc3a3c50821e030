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
//! - `repeated.rs`: parts of a plan that occur more than once; `alike.rs`: parts that differ in their columns become such; `grouping_sets.rs`: coarse groups made of fine ones
//! - `eager_aggregation.rs`: groups that are made below joins
//! - `narrow.rs`: conditions that a plan is given, or loses, after it was made
//! - `group_filter.rs`: how many groups pass a condition on an aggregate
//! - `gate.rs`: parts of a plan that are skipped because a condition without columns is not true
//! - `moment.rs`: comparisons of dates and timestamps of several types; `zone.rs`: time zones as tables
//! - `moment_format.rs`, `number_format.rs`: formats of `to_char`; `moment_reading.rs`: those of `to_date`; `number_text.rs`: numbers as C prints them;
//!   `regular_expression.rs`: patterns of `~`; `json_path.rs`: ways to a part of a JSON document
//! - `exchange.rs`: where rows change ranks; `partial.rs`: aggregates in two steps
//! - `distribute/`: a plan becomes one that all ranks run
//! - `explain.rs`: plans in words; `depth.rs`: how deep they may be
//! - `message.rs`, `frame.rs`: what travels over the socket
//! - `store.rs`: paths of object stores, and what an engine needs to reach them
//! - `folder_keys.rs`: folders whose names are values
//! - `table_format.rs`: which folders are tables of Delta Lake, Iceberg or Hudi
//! - `memory.rs`: amounts of memory, and where memory is
//! - `error.rs`: the one error that crosses it
//!
//! Invariants: every column of a plan has an id that no other column of that plan has, so an expression
//! needs no qualifier. Every expression knows its type. A value means what PostgreSQL means by it: where
//! a function's result could differ from PostgreSQL's, the function does not exist here.
//!
//! Deliberately absent: PostgreSQL, CUDA, DataFusion, what is in files. This crate must stay cheap to build and to
//! load into a backend.

#![forbid(unsafe_code)]

mod affinity;
mod alike;
mod ctype;
mod depth;
mod distribute;
mod eager_aggregation;
mod error;
mod exchange;
mod explain;
mod expression;
mod failure;
mod file_keys;
mod folder_keys;
mod frame;
mod function;
mod functions;
mod gate;
mod greeting;
mod group_filter;
mod grouping_sets;
mod json_path;
mod memory;
mod message;
mod moment;
mod moment_format;
mod moment_reading;
mod narrow;
mod number_format;
mod number_text;
mod partial;
mod prune;
mod regular_expression;
mod relation;
mod repeated;
mod store;
mod table_format;
mod techniques;
mod types;
mod value;
mod window;
mod zone;

pub use affinity::{AffinityPolicy, AffinityRule};
pub use alike::with_equal_parts;
pub use ctype::{Collator, Ctype, LocaleName};
pub use depth::{EXPRESSION_DEPTH_MAX, RELATION_DEPTH_MAX};
pub use distribute::{
    ColumnRanges, DistributeRequest, Distributed, Distribution, EqualExpressions, ExchangeCosts,
    ExchangeFacts, ExchangeReason, FilterScope, KeyRange, OneRankReason, Partitioning, RankPolicy,
    RunTimeChoices, ScanFigures, distribute, filter_scope, heavy_key_columns, range_columns, row_bytes,
    with_common_values,
};
pub use eager_aggregation::{NumberBounds, aggregate_below_joins};
pub use error::{Error, ErrorKind, Result, system_reason};
pub use exchange::{ExchangeId, ExchangeKind, ExchangeReach, exchange_key_type, is_exchange_key, is_heavy};
pub use explain::{PlanFacts, expression_text, plan_lines};
pub use expression::{CaseBranch, Expression, ExpressionSize};
pub use failure::{call_could_fail, could_fail};
pub use file_keys::{FILE_KEY_OPTIONS, FileKey, FileKeys};
pub use folder_keys::{NULL_FOLDER, folder_keys, folder_text, percent_decoded_bytes};
pub use frame::{
    FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, decode_message, encode_message,
};
pub use function::{
    Aggregate, DateField, Digest, FloatFunction, Function, Justified, RADIANS_PER_DEGREE, TrimSide,
};
pub use functions::{
    CatalogNames, CatalogUse, Caveat, Example, FUNCTIONS, FailureRule, Form, FunctionEntry, NullRule,
    ResultType, Shown, Signature, TypeClass, function_of_catalog, function_of_name,
};
pub use gate::{close_gates, gate_parameters, parameters_of};
pub use greeting::{ANSWER_TO_OLDER, GREETING_HEADER_BYTES, GREETING_MARK_BYTES, Greeting, GreetingHeader};
pub use group_filter::passing_share;
pub use grouping_sets::{members_of_finest, share_finest_groups};
pub use json_path::{JsonPath, JsonStep};
pub use memory::{MemorySize, MemorySpace};
pub use message::{
    Activity, ActivityKind, ActualRows, CacheEntry, CatalogView, ColumnDescription, DescribeExtent,
    DeviceMemoryStatus, DeviceSettings, DeviceWork, EXCHANGE_GROUPS_MAX, EXCHANGE_SENDERS_MAX, EngineChoice,
    EngineEstimates, EngineStatus, ExchangeChoice, ExchangeCompression, ExchangeSettings, ExchangeTraffic,
    FieldDescription, FileColumn, FileDescription, FileLayout, FileSet, FilesState, GenerateRequest,
    OperatorMetrics, OptimizeRequest, OptimizedColumn, PATTERN_LETTERS, PROTOCOL_VERSION, PlannedFiles,
    QueryBegin, QueryEngine, QueryEntry, QueryMetrics, QueryOrigin, QueryProgress, QueryRequest, QueryState,
    QueryTimeline, QueryWait, RANK_PLACEHOLDER, RankChoice, RankStatus, RanksReport, Request, Response,
    SampleRequest, SeenFiles, SortedColumn, SpillRequest, StatisticsEntry, StoragePath, StoreName,
    TableDescription, TwoLevelExchange, ViewTexts, WriteForm, WriteRequest, WriteTarget, WrittenColumn,
    WrittenFile, WrittenRows,
};
pub use moment::{NextTransition, TimeZone, are_mixed_moments, settle_moments};
pub use moment_format::{FormatPart, LetterCase, MomentFormat, Pattern};
pub use moment_reading::{MomentReading, ReadingField, ReadingPart, is_blank, is_separator};
pub use narrow::{narrow, widen};
pub use number_format::{NumberFormat, NumberFormatRefusal, NumberPart};
pub use number_text::general_text;
pub use partial::{AggregatePhase, partial_type};
pub use prune::{columns_above_scans, prune_columns};
pub use regular_expression::{CharacterClass, Letters, RegularExpression, Stretch};
pub use relation::{
    AggregateCall, ColumnContent, ColumnId, CommonValue, Estimate, JoinKey, JoinKind, JoinSide,
    NamedExpression, Operator, Plan, Relation, ScanColumn, ScanExtent, SortKey, UnnestedArray,
};
pub use repeated::RepeatedParts;
pub use store::{
    CatalogOptions, CatalogSigning, STORE_SCHEMES, Secret, StoreAccess, StoreCredentials, StoreOptions,
    catalog_names, catalog_path, check_store_path, is_allowed_by, is_in_store, store_scheme,
};
pub use table_format::{
    TableFormat, TableVersion, check_folder, check_not_of_other_format, format_of_folder,
    is_iceberg_metadata, marks_table,
};
pub use techniques::technique_names;
pub use types::{DataType, RecordField};
pub use value::{Interval, Literal, Value};
pub use window::{
    FrameBound, FrameExclusion, FrameUnit, WindowCall, WindowFrame, WindowFunction, first_of_partitions,
};
pub use zone::{ZoneSteps, ZoneTable};
