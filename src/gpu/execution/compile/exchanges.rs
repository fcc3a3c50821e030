//! An exchange of a plan: the part below becomes a fragment that sends, the part above gets a
//! source of the received rows.

use pystachio_plan::{
    Error, ErrorKind, ExchangeId, ExchangeKind, ExchangeReach, Expression, Relation, Result,
};

use super::{
    compiler::Compiler,
    joins::FirstPlaces,
    relations::{describe, relation, sorted},
};
use crate::{
    exchange::{Rank, RankPlace},
    execution::{
        CountedSource,
        exchange::{
            ExchangeSource, HeavyRows, OwnSource, OwnerKeys, ReceivedRows, SendTarget, SendingFragment,
        },
        expressions::RowProgram,
        query::NO_OPERATOR,
        row_wise::UnionSource,
        runtime_filter::FilterRoute,
    },
};

/// An exchange of a plan.
pub(super) struct ExchangeOperator<'a> {
    pub(super) id: ExchangeId,
    pub(super) input: &'a Relation,
    pub(super) kind: &'a ExchangeKind,
    pub(super) reach: ExchangeReach,
}

/// The rank that a plan is compiled for.
///
/// # Errors
///
/// `NotSupported` if there is only one.
pub(super) fn rank_place(compiler: &Compiler<'_>) -> Result<RankPlace> {
    let alone = || {
        Error::new(ErrorKind::NotSupported, "a plan for several ranks has come to an engine without others")
    };
    compiler.resources.exchanges.place().ok_or_else(alone)
}

/// No rows, in place of a compiled relation that this rank does not read.
pub(super) fn unread(below: CountedSource, place: usize) -> CountedSource {
    let columns = below.columns.clone();
    // Its scans are not read.
    drop(below);
    CountedSource::new(columns, UnionSource { inputs: Vec::new(), current: 0 }, place)
}

impl ExchangeOperator<'_> {
    /// The source of the rows for this rank. `row_count_max`: how many of the first rows are
    /// wanted.
    pub(super) fn compile(
        &self,
        route: FilterRoute,
        row_count_max: Option<usize>,
        compiler: &mut Compiler<'_>,
        depth: usize,
    ) -> Result<CountedSource> {
        let rank = rank_place(compiler)?;
        let Self { id, input, kind, reach } = self;
        let place = describe(compiler, self.description(), depth);
        let first = FirstPlaces::of(compiler);
        if kind.moves_rows() {
            compiler.exchange_depth += 1;
        }
        let below = relation(input, route.below(place).across(kind), compiler, depth + 1);
        if kind.moves_rows() {
            compiler.exchange_depth -= 1;
        }
        let below = below?;
        if matches!(kind, ExchangeKind::HashOrBroadcast { .. }) {
            // For the rows held until the decision.
            compiler.query.memory.add_small_holder();
        }
        let owner_keys = |keys: &[Expression], heavy| {
            OwnerKeys::compile(keys, heavy, (&below.columns, &compiler.query.parameters)).map(Box::new)
        };
        let target = match kind {
            ExchangeKind::Hash { keys } => SendTarget::Owner(owner_keys(keys, (&[], HeavyRows::Stay))?),
            ExchangeKind::HashOrBroadcast { keys, bytes_max, heavy } => SendTarget::OwnerOrAll {
                keys: owner_keys(keys, (heavy, HeavyRows::GoToAll))?,
                bytes_max: *bytes_max,
            },
            ExchangeKind::HashOrStay { keys, partner, heavy } => {
                let keys = owner_keys(keys, (heavy, HeavyRows::Stay))?;
                SendTarget::OwnerOrSelf { keys, partner: *partner }
            }
            ExchangeKind::Broadcast => SendTarget::All,
            ExchangeKind::Gather | ExchangeKind::Merge { .. } => SendTarget::First,
            ExchangeKind::Own { keys } if keys.is_empty() && rank.rank != Rank(0) => {
                return Ok(unread(below, place));
            }
            ExchangeKind::Own { keys } => {
                let columns = below.columns.clone();
                let compile = || RowProgram::compile(keys, &columns, &compiler.query.parameters);
                let keys = if keys.is_empty() { None } else { Some(compile()?) };
                return Ok(CountedSource::new(columns, OwnSource { input: below, keys, place: rank }, place));
            }
        };
        let end = FirstPlaces::of(compiler);
        let columns = below.columns.clone();
        let received = ReceivedRows::new(below.types());
        let filters = compiler.scans.reduced.passing(place);
        let mut sending = SendingFragment { input: below, target, reach: *reach, filters };
        let settings = compiler.query.settings.exchange;
        if settings.gathering {
            sending.input.expect_whole();
        }
        if !settings.overlap {
            compiler.query.memory.add_small_holder();
        }
        compiler.exchange_scans.push(first.all_scans_until(&end));
        compiler.resources.exchanges.add(*id, place, (sending, received.clone()));
        // Held rows, and blocks on their way off the device.
        for _ in 0..2 {
            compiler.query.memory.add_small_holder();
        }
        let source = ExchangeSource::new(received);
        match kind {
            ExchangeKind::Merge { keys } => {
                let unordered = CountedSource::new(columns, source, NO_OPERATOR);
                sorted((place, unordered, input.estimate.rows), keys, row_count_max, compiler)
            }
            _ => Ok(CountedSource::new(columns, source, place)),
        }
    }

    fn description(&self) -> String {
        let id = format!("{}{}", self.id.0, self.reach);
        match self.kind {
            ExchangeKind::Hash { .. }
            | ExchangeKind::HashOrBroadcast { .. }
            | ExchangeKind::HashOrStay { .. } => format!("Shuffle {id}"),
            ExchangeKind::Broadcast => format!("Broadcast {id}"),
            ExchangeKind::Gather => format!("Gather {id}"),
            ExchangeKind::Merge { .. } => format!("Merge {id}"),
            ExchangeKind::Own { .. } => format!("Own {id}"),
        }
    }
}
