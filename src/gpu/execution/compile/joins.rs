//! Compiles a join into a source, with the filters that it sends to scans below.

use std::{ops::Range, sync::Arc};

use pystachio_plan::{
    DataType, Error, ErrorKind, Expression, FilterScope, JoinKey, JoinKind, JoinSide, Relation, Result,
    filter_scope,
};

use super::{
    compiler::Compiler,
    relations::{build_side, describe, relation, retyped},
};
use crate::{
    execution::{
        Columns, CountedSource,
        exchange::{KeyGiver, SharedKeys},
        expressions::{RowProgram, columns_of, places_of},
        join::{FragmentPlace, JoinSource, Matching, Residual, UnreadBuild},
        runtime_filter::{
            FilterGiver, FilterRoute, JoinFilters, drops_unmatched, is_selective, key_columns, passes_join,
        },
    },
    program::Filter,
};

/// A join of a plan.
pub(super) struct JoinOperator<'a> {
    pub(super) kind: JoinKind,
    pub(super) left: &'a Relation,
    pub(super) right: &'a Relation,
    pub(super) keys: &'a [JoinKey],
    pub(super) residual: Option<&'a Expression>,
    pub(super) build: JoinSide,
}

impl JoinOperator<'_> {
    pub(super) fn compile(
        &self,
        route: FilterRoute,
        compiler: &mut Compiler<'_>,
        depth: usize,
    ) -> Result<CountedSource> {
        let build_side = build_side(self.kind, self.build);
        let place = describe(compiler, format!("{:?} join", self.kind), depth);
        let route = route.below(place);
        let (left_route, right_route) =
            (self.route(JoinSide::Left, &route), self.route(JoinSide::Right, &route));
        let (left_route, right_route, filters, shared) = match build_side {
            JoinSide::Left => {
                let (own, filters, shared) = self.filters(JoinSide::Right, &left_route, compiler)?;
                (left_route, right_route.and(own), filters, shared)
            }
            JoinSide::Right => {
                let (own, filters, shared) = self.filters(JoinSide::Left, &right_route, compiler)?;
                (left_route.and(own), right_route, filters, shared)
            }
        };
        let first = FirstPlaces::of(compiler);
        let left = relation(self.left, left_route, compiler, depth + 1)?;
        let between = FirstPlaces::of(compiler);
        let right = relation(self.right, right_route, compiler, depth + 1)?;
        let build_place = match build_side {
            JoinSide::Left => first.fragment(place, &between, compiler),
            JoinSide::Right => between.fragment(place, &FirstPlaces::of(compiler), compiler),
        };
        let mut columns = left.columns.clone();
        if self.kind.keeps_right_columns() {
            columns.extend(right.columns.iter().cloned());
        }
        let residual = match self.residual {
            None => None,
            Some(residual) => {
                let read = columns_of(residual);
                let places = |side: &CountedSource| places_of(&read, &side.columns);
                let (left_places, right_places) = (places(&left), places(&right));
                let known = |side: &CountedSource, places: &[usize]| -> Columns {
                    places.iter().map(|place| side.columns[*place].clone()).collect()
                };
                let both = [known(&left, &left_places), known(&right, &right_places)].concat();
                let condition = Filter::compile(residual, &both, &compiler.query.parameters)?;
                Some(Residual { condition, left: left_places, right: right_places })
            }
        };
        let keys =
            if self.keys.is_empty() { None } else { Some(self.compile_keys(&left, &right, compiler)?) };
        let (mut build, probe, keys) = match build_side {
            JoinSide::Left => (left, right, keys),
            JoinSide::Right => (right, left, keys.map(|(left, right)| (right, left))),
        };
        build.expect_whole();
        let types = (build.types(), probe.types());
        let matching = Matching::new(self.kind, build_side, keys, residual, types);
        let built = match build_side {
            JoinSide::Left => self.left,
            JoinSide::Right => self.right,
        };
        compiler.query.memory.add_holder(built.estimate.rows, &build.columns);
        // Probe chunks while the join chooses its build side.
        compiler.query.memory.add_small_holder();
        let shared = shared.filter(|shared| shared.filters.has_targets());
        if let Some(shared) = &shared {
            compiler.resources.exchanges.add_keys(place, shared.clone());
        }
        let shared = shared.map(KeyGiver);
        let unread = UnreadBuild { matching, operator: build, filters: FilterGiver(filters), shared };
        let build = compiler.resources.fragments.add(unread, build_place, &compiler.query.stop);
        Ok(CountedSource::new(columns, JoinSource::new(build, probe), place))
    }

    fn side(&self, side: JoinSide) -> &Relation {
        match side {
            JoinSide::Left => self.left,
            JoinSide::Right => self.right,
        }
    }

    /// The filters of joins above for a side's rows.
    fn route(&self, side: JoinSide, route: &FilterRoute) -> FilterRoute {
        match passes_join(self.kind, side) {
            true => route.clone().within(&self.side(side).columns()),
            false => FilterRoute::none(),
        }
    }

    /// The filters that the join sends to its probe side, if the build side is expected to have few
    /// keys. `build_route`: the filters that reduce the build side from above.
    fn filters(
        &self,
        probe_side: JoinSide,
        build_route: &FilterRoute,
        compiler: &Compiler<'_>,
    ) -> Result<(FilterRoute, Arc<JoinFilters>, Option<Arc<SharedKeys>>)> {
        let filters = Arc::new(JoinFilters::default());
        let build = match probe_side {
            JoinSide::Left => self.right,
            JoinSide::Right => self.left,
        };
        let is_wanted = compiler.query.settings.runtime_filters
            && drops_unmatched(self.kind, probe_side)
            && (is_selective(build) || !build_route.is_empty());
        let (mut route, mut shared) = (FilterRoute::none(), None);
        if is_wanted {
            let (scope, keys) =
                (build_scope(build, build_route, compiler)?, key_columns(self.keys, probe_side));
            route = FilterRoute::from_join(&filters, &keys, scope);
            // Ranks exchange the keys if all of them read the build side: above all exchanges, only rank 0
            // does.
            let is_shared = scope == FilterScope::Share && compiler.exchange_depth > 0;
            if is_shared && compiler.query.settings.exchange.filters {
                let types = |key: &JoinKey| common_type(key.left.data_type(), key.right.data_type());
                let of_all = SharedKeys::new(self.keys.iter().map(types).collect::<Result<_>>()?);
                route = route.and(FilterRoute::from_all_ranks(&of_all.filters, &keys));
                shared = Some(of_all);
            }
        }
        Ok((route.within(&self.side(probe_side).columns()), filters, shared))
    }

    /// The keys of either side, in common types.
    fn compile_keys(
        &self,
        left: &CountedSource,
        right: &CountedSource,
        compiler: &Compiler<'_>,
    ) -> Result<(RowProgram, RowProgram)> {
        let (mut left_keys, mut right_keys) = (Vec::new(), Vec::new());
        for key in self.keys {
            let common = common_type(key.left.data_type(), key.right.data_type())?;
            left_keys.push(retyped(&key.left, &common));
            right_keys.push(retyped(&key.right, &common));
        }
        let parameters = &compiler.query.parameters;
        Ok((
            RowProgram::compile(&left_keys, &left.columns, parameters)?,
            RowProgram::compile(&right_keys, &right.columns, parameters)?,
        ))
    }
}

/// Which rows of a build side a filter covers. It lacks rows of other ranks, and rows that a filter
/// of this rank's rows has dropped.
fn build_scope(build: &Relation, build_route: &FilterRoute, compiler: &Compiler<'_>) -> Result<FilterScope> {
    match compiler.resources.exchanges.place() {
        None => Ok(FilterScope::Complete),
        Some(_) if build_route.has_share() => Ok(FilterScope::Share),
        Some(_) => filter_scope(build),
    }
}

/// The places that the operators, scans and exchanges of the relation compiled next will have in
/// the query.
pub(super) struct FirstPlaces {
    operator: usize,
    scan: usize,
    exchange: usize,
}

impl FirstPlaces {
    pub(super) fn of(compiler: &mut Compiler<'_>) -> Self {
        Self {
            operator: compiler.query.metrics_mut().operators.len(),
            scan: compiler.resources.readers.scan_count(),
            exchange: compiler.exchange_scans.len(),
        }
    }

    /// The scans of the relation compiled since then, by their numbers among the query's. Scans
    /// below an exchange belong to the exchange.
    fn scans_until(&self, end: &Self, compiler: &Compiler<'_>) -> Vec<usize> {
        let below = compiler.exchange_scans.get(self.exchange..end.exchange).unwrap_or_default();
        (self.scan..end.scan).filter(|scan| !below.iter().any(|scans| scans.contains(scan))).collect()
    }

    /// All scans compiled since then, including those below exchanges.
    pub(super) fn all_scans_until(&self, end: &Self) -> Range<usize> {
        self.scan..end.scan
    }

    /// The place of the relation compiled since then, which ends at `end`, as the build side of a
    /// join. `None` if it is no fragment: it reads nothing, or the query runs without fragments.
    fn fragment(&self, join: usize, end: &Self, compiler: &Compiler<'_>) -> Option<FragmentPlace> {
        let scans = self.scans_until(end, compiler);
        let rank = compiler.resources.readers.last_rank(&scans)?;
        let filters = compiler.scans.reduced.passing(self.operator);
        compiler.query.settings.concurrent_builds.then_some(FragmentPlace { join, rank, filters })
    }
}

/// A type that holds the values of both exactly.
fn common_type(left: &DataType, right: &DataType) -> Result<DataType> {
    match (left, right) {
        (left, right) if left == right => Ok(left.clone()),
        (
            DataType::Decimal { precision: left_precision, scale: left_scale },
            DataType::Decimal { precision: right_precision, scale: right_scale },
        ) => {
            let scale = *left_scale.max(right_scale);
            let whole = (left_precision - left_scale).max(right_precision - right_scale);
            Ok(DataType::Decimal { precision: whole + scale, scale })
        }
        _ => {
            let message = format!("no kernel joins {left} with {right}");
            Err(Error::new(ErrorKind::NotSupported, message))
        }
    }
}
