//! `array_agg`: the values of each group, in an order.
//!
//! Rows are kept as they come, with their groups' numbers, and sorted once, when groups are emitted:
//!
//! ```text
//! batches: value, keys, group ─► together ─► by group (counting) ─► within a group by keys ─► lists of values
//! ```
//!
//! Between two phases, and in spill files, a group is a list of rows: the value and the keys.
//!
//! Invariants: a group without a row is NULL. The memory that emitting the kept rows takes is counted while they come.

use std::{cmp::Ordering, mem::size_of, sync::Arc};

use crate::datafusion::{
    common::ScalarValue,
    error::{DataFusionError, Result as DataFusionResult},
    logical_expr::{
        Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::{AggregateOrderSensitivity, format_state_name},
    },
};
use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, UInt32Array},
    buffer::{NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::{SortOptions, concat, filter, take},
    datatypes::{DataType as ArrowType, Field, FieldRef, Fields},
    row::{RowConverter, Rows, SortField},
};
use pystachio_plan::{Error, ErrorKind};

use crate::{compact::compact_column, error::to_datafusion};

/// A key of the order: which of the aggregate's arguments it is, and how it is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CollectedKey {
    pub(super) argument: usize,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

/// `array_agg` of its first argument; the others are keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Collect {
    arguments: Vec<ArrowType>,
    keys: Vec<CollectedKey>,
    signature: Signature,
}

impl Collect {
    /// An aggregate of arguments of these types, of which there is at least one.
    pub(super) fn new(arguments: Vec<ArrowType>, keys: Vec<CollectedKey>) -> Self {
        let signature = Signature::any(arguments.len(), Volatility::Immutable);
        Self { arguments, keys, signature }
    }

    fn value_type(&self) -> DataFusionResult<&ArrowType> {
        self.arguments.first().ok_or_else(|| internal("array_agg has no argument"))
    }

    /// The fields of a kept row.
    fn row_fields(&self) -> Fields {
        let field = |(number, of): (usize, &ArrowType)| Field::new(format!("c{number}"), of.clone(), true);
        self.arguments.iter().enumerate().map(field).collect()
    }

    fn collected(&self) -> Collected {
        Collected { of: self.clone(), batches: Vec::new(), group_count: 0, row_count: 0, bytes: 0 }
    }
}

impl AggregateUDFImpl for Collect {
    fn name(&self) -> &str {
        "array_agg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        Ok(ArrowType::List(list_field(self.value_type()?.clone())))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Ungrouped(self.collected())))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let rows = ArrowType::List(list_field(ArrowType::Struct(self.row_fields())));
        Ok(vec![Arc::new(Field::new(format_state_name(arguments.name, "rows"), rows, true))])
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.collected()))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Rows that have come, and the group of each.
#[derive(Debug)]
struct Kept {
    columns: Vec<ArrayRef>,
    groups: Vec<u32>,
}

/// The rows of all groups.
#[derive(Debug)]
struct Collected {
    of: Collect,
    batches: Vec<Kept>,
    group_count: usize,
    row_count: usize,
    bytes: usize,
}

/// Rows by group: those of group `n` are at `places[offsets[n]..offsets[n + 1]]`, in the order in which they came.
struct ByGroup {
    columns: Vec<ArrayRef>,
    offsets: Vec<i32>,
    places: Vec<u32>,
}

impl Collected {
    fn keep(&mut self, columns: &[ArrayRef], groups: Vec<u32>) -> DataFusionResult<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let columns = columns.iter().map(compact_column).collect::<DataFusionResult<Vec<_>>>()?;
        self.row_count += groups.len();
        if i32::try_from(self.row_count).is_err() {
            let message = format!("array_agg has more than {} values in one part", i32::MAX);
            return Err(to_datafusion(Error::new(ErrorKind::NotSupported, message)));
        }
        self.bytes += columns.iter().map(|column| column.get_array_memory_size()).sum::<usize>();
        self.bytes += size_of::<Kept>() + groups.capacity() * size_of::<u32>();
        self.batches.push(Kept { columns, groups });
        Ok(())
    }

    /// Takes the rows of the groups that are emitted, and numbers those of the others anew.
    fn take(&mut self, emit_to: EmitTo) -> DataFusionResult<ByGroup> {
        let batches = std::mem::take(&mut self.batches);
        let group_count = self.group_count;
        (self.group_count, self.row_count, self.bytes) = (0, 0, 0);
        let together = |column: usize| {
            let parts: Vec<&dyn Array> =
                batches.iter().filter_map(|kept| Some(kept.columns.get(column)?.as_ref())).collect();
            Ok(concat(&parts)?)
        };
        let columns: Vec<ArrayRef> = match batches.is_empty() {
            true => self.of.arguments.iter().map(arrow::array::new_empty_array).collect(),
            false => (0..self.of.arguments.len()).map(together).collect::<DataFusionResult<_>>()?,
        };
        let groups: Vec<u32> = batches.into_iter().flat_map(|kept| kept.groups).collect();
        let emitted = match emit_to {
            EmitTo::All => group_count,
            EmitTo::First(count) => count.min(group_count),
        };
        let rows_of = |is_wanted: &dyn Fn(usize) -> bool| {
            let places = (0..).zip(&groups).filter(|(_, group)| is_wanted(**group as usize));
            UInt32Array::from_iter_values(places.map(|(place, _): (u32, _)| place))
        };
        if emitted < group_count {
            let later = rows_of(&|group| group >= emitted);
            let kept = columns.iter().map(|column| Ok(take(column, &later, None)?));
            let kept = kept.collect::<DataFusionResult<Vec<_>>>()?;
            let numbers = groups.iter().filter(|group| **group as usize >= emitted);
            self.group_count = group_count - emitted;
            self.keep(&kept, numbers.map(|group| group - emitted as u32).collect())?;
        }
        Ok(ByGroup::of(columns, &groups, emitted))
    }

    /// A list for each group.
    fn lists(&self, rows: ByGroup, items: ArrayRef, nulls: Option<NullBuffer>) -> DataFusionResult<ArrayRef> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(rows.offsets));
        Ok(Arc::new(ListArray::try_new(list_field(items.data_type().clone()), offsets, items, nulls)?))
    }
}

impl ByGroup {
    /// The rows of the first `group_count` groups.
    fn of(columns: Vec<ArrayRef>, groups: &[u32], group_count: usize) -> Self {
        let mut offsets = vec![0_i32; group_count + 1];
        for group in groups.iter().filter(|group| (**group as usize) < group_count) {
            offsets[*group as usize + 1] += 1;
        }
        for group in 0..group_count {
            offsets[group + 1] += offsets[group];
        }
        let mut next = offsets.clone();
        let mut places = vec![0_u32; offsets[group_count] as usize];
        for (place, group) in (0..).zip(groups) {
            let group = *group as usize;
            if group < group_count {
                places[next[group] as usize] = place;
                next[group] += 1;
            }
        }
        Self { columns, offsets, places }
    }

    /// Sorts the rows of each group.
    fn sort(&mut self, keys: &[CollectedKey]) -> DataFusionResult<()> {
        if keys.is_empty() || self.places.is_empty() {
            return Ok(());
        }
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for key in keys {
            let column = self.columns.get(key.argument).ok_or_else(|| internal("a key has no column"))?;
            let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            fields.push(SortField::new_with_options(column.data_type().clone(), options));
            columns.push(column.clone());
        }
        let keys = SortedKeys::new(RowConverter::new(fields)?.convert_columns(&columns)?);
        let mut sorted: Vec<(u64, u32)> =
            self.places.iter().map(|place| (keys.start(*place), *place)).collect();
        for ends in self.offsets.windows(2) {
            let of_group = &mut sorted[ends[0] as usize..ends[1] as usize];
            of_group.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| keys.compare(a.1, b.1)));
        }
        for (place, (_, own)) in self.places.iter_mut().zip(sorted) {
            *place = own;
        }
        Ok(())
    }

    fn taken(&self, column: &ArrayRef) -> DataFusionResult<ArrayRef> {
        Ok(take(column, &UInt32Array::from(self.places.clone()), None)?)
    }
}

/// Keys as bytes that sort as they do. Most comparisons need eight of them: those behind what all keys begin with.
struct SortedKeys {
    rows: Rows,
    /// How many bytes all keys begin with.
    common: usize,
    /// The eight bytes are all that differs.
    is_told_by_start: bool,
}

impl SortedKeys {
    fn new(rows: Rows) -> Self {
        let mut all = rows.iter();
        let first = all.next();
        let mut common = first.map_or(0, |first| first.as_ref().len());
        let mut has_one_length = true;
        for row in all {
            let (first, row) = (first.as_ref().map_or(&[][..], |first| first.as_ref()), row.as_ref());
            has_one_length &= row.len() == first.len();
            let own = first.iter().zip(row).take(common);
            common = own.take_while(|(a, b)| a == b).count();
        }
        let length = first.map_or(0, |first| first.as_ref().len());
        let is_told_by_start = has_one_length && length <= common + size_of::<u64>();
        Self { rows, common, is_told_by_start }
    }

    fn start(&self, place: u32) -> u64 {
        let row = self.rows.row(place as usize);
        let rest = row.as_ref().get(self.common..).unwrap_or_default();
        let mut start = [0; size_of::<u64>()];
        let count = rest.len().min(start.len());
        start[..count].copy_from_slice(&rest[..count]);
        u64::from_be_bytes(start)
    }

    /// Keys whose starts are equal. Rows with equal keys stay in the order in which they came.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        match self.is_told_by_start {
            true => a.cmp(&b),
            false => self.rows.row(a as usize).cmp(&self.rows.row(b as usize)).then(a.cmp(&b)),
        }
    }
}

impl GroupsAccumulator for Collected {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> DataFusionResult<()> {
        self.group_count = total_num_groups;
        let Some(condition) = opt_filter else {
            return self.keep(values, group_indices.iter().map(|group| *group as u32).collect());
        };
        let values = values.iter().map(|column| Ok(filter(column, condition)?));
        let values = values.collect::<DataFusionResult<Vec<_>>>()?;
        let groups = group_indices.iter().zip(condition.iter());
        let groups = groups.filter(|(_, passes)| *passes == Some(true)).map(|(group, _)| *group as u32);
        self.keep(&values, groups.collect())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        let mut rows = self.take(emit_to)?;
        rows.sort(&self.of.keys)?;
        let values = rows.columns.first().ok_or_else(|| internal("array_agg has no argument"))?;
        let items = rows.taken(values)?;
        let nulls = rows.offsets.windows(2).map(|ends| ends[0] < ends[1]).collect();
        self.lists(rows, items, Some(NullBuffer::new(nulls)))
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        let rows = self.take(emit_to)?;
        let columns = rows.columns.iter().map(|column| rows.taken(column));
        let columns = columns.collect::<DataFusionResult<Vec<_>>>()?;
        let items = Arc::new(StructArray::try_new(self.of.row_fields(), columns, None)?);
        Ok(vec![self.lists(rows, items, None)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> DataFusionResult<()> {
        self.group_count = total_num_groups;
        let lists = values.first().and_then(|lists| lists.as_list_opt::<i32>());
        let lists = lists.ok_or_else(|| internal("array_agg merges no lists"))?;
        let offsets = lists.value_offsets();
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let rows = lists.values().slice(first, last - first);
        let rows = rows.as_struct_opt().ok_or_else(|| internal("array_agg merges no rows"))?;
        let mut groups = Vec::with_capacity(rows.len());
        for (ends, group) in offsets.windows(2).zip(group_indices) {
            groups.extend(std::iter::repeat_n(*group as u32, (ends[1] - ends[0]) as usize));
        }
        self.keep(rows.columns(), groups)
    }

    /// Each row is a group.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let row_count = values.first().map_or(0, |array| array.len());
        let groups: Vec<usize> = (0..row_count).collect();
        let mut rows = self.of.collected();
        rows.update_batch(values, &groups, opt_filter, row_count)?;
        GroupsAccumulator::state(&mut rows, EmitTo::All)
    }

    fn size(&self) -> usize {
        // The emitted rows are another copy, and so are the sortable keys with their starts.
        let (copies, sorted_bytes) =
            if self.of.keys.is_empty() { (2, 0) } else { (3, size_of::<(u64, u32)>()) };
        size_of::<Self>()
            + copies * self.bytes
            + self.row_count * (size_of::<u32>() + sorted_bytes)
            + self.group_count * 2 * size_of::<i32>()
    }
}

/// The one group of a query without groups.
#[derive(Debug)]
struct Ungrouped(Collected);

impl Ungrouped {
    fn groups(arrays: &[ArrayRef]) -> Vec<usize> {
        vec![0; arrays.first().map_or(0, |array| array.len())]
    }
}

impl Accumulator for Ungrouped {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.update_batch(values, &Self::groups(values), None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.merge_batch(states, &Self::groups(states), 1)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        self.0.group_count = 1;
        let states = GroupsAccumulator::state(&mut self.0, EmitTo::All)?;
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.0.group_count = 1;
        ScalarValue::try_from_array(&GroupsAccumulator::evaluate(&mut self.0, EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(&self.0)
    }
}

fn list_field(item: ArrowType) -> FieldRef {
    Arc::new(Field::new_list_field(item, true))
}

fn internal(message: &str) -> DataFusionError {
    to_datafusion(Error::internal(message))
}
