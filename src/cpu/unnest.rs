//! Rows once for each element of an array, or of several side by side. A number stands for the array of those from 1 to it, which is
//! not made.

use std::{fmt, ops::Range, sync::Arc};

use crate::datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        execution_plan::{EmissionType, apply_expression_roots},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
        StructArray, UInt32Array, UInt64Array,
    },
    compute::{nullif, take},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use futures::StreamExt;

use crate::{inputs::with_one_input, scan::BATCH_ROWS};

/// What comes out beside a row.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    /// Lists and series, whose elements come out side by side; of shorter ones NULL.
    pub(crate) arrays: Vec<ElementColumns>,
    /// The name of the column with their numbers from 1, if that is wanted.
    pub(crate) number: Option<String>,
    /// Whether a row without elements comes out once.
    pub(crate) keeps_rows: bool,
}

/// The elements of a list, or the numbers of a series.
#[derive(Clone, Debug)]
pub(crate) struct ElementColumns {
    /// The list, or the last number.
    pub(crate) array: Arc<dyn PhysicalExpr>,
    /// The name of the column with the elements, or of structs those of the columns with their fields, as far as they are wanted.
    pub(crate) columns: Vec<Option<String>>,
}

/// Gives each row once for each element of its arrays.
#[derive(Debug)]
pub(crate) struct UnnestExec {
    input: Arc<dyn ExecutionPlan>,
    /// The input's columns that come out.
    projection: Vec<usize>,
    elements: Arc<Elements>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl UnnestExec {
    /// Columns: those of `projection`, those of the elements, the number.
    ///
    /// # Errors
    ///
    /// `Internal` if an array is none.
    pub(crate) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        projection: Vec<usize>,
        elements: Elements,
    ) -> DataFusionResult<Self> {
        let below = input.schema();
        let mut fields: Vec<Field> = projection.iter().map(|column| below.field(*column).clone()).collect();
        for ElementColumns { array, columns } in &elements.arrays {
            let item = match array.data_type(&below)? {
                DataType::List(item) => item.data_type().clone(),
                DataType::Int64 => DataType::Int64,
                _ => return Err(DataFusionError::Internal("an unnested expression is no array".to_owned())),
            };
            let types: Vec<DataType> = match item {
                DataType::Struct(fields) => fields.iter().map(|field| field.data_type().clone()).collect(),
                single => vec![single],
            };
            let columns = columns.iter().zip(types);
            fields.extend(
                columns.filter_map(|(name, data_type)| Some(Field::new(name.as_ref()?, data_type, true))),
            );
        }
        fields.extend(elements.number.as_ref().map(|name| Field::new(name, DataType::Int64, true)));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::new(fields))),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { input, projection, elements: Arc::new(elements), properties, metrics })
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Self::try_new(input, self.projection.clone(), Elements::clone(&self.elements))
    }
}

/// What the rows of a batch are repeated for.
enum Set {
    List(ListArray),
    /// Each row's last number.
    Series(Int64Array),
}

impl Set {
    fn new(array: &ArrayRef) -> DataFusionResult<Self> {
        if let Some(last) = array.as_primitive_opt() {
            return Ok(Self::Series(last.clone()));
        }
        let list = array.as_list_opt().cloned();
        list.map(Self::List)
            .ok_or_else(|| DataFusionError::Internal("an unnested expression is no array".to_owned()))
    }

    /// Where the elements of a row are among those of all rows; the numbers of a series begin anew with each row.
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::List(list) if list.is_valid(row) => {
                let offsets = list.value_offsets();
                offsets[row] as usize..offsets[row + 1] as usize
            }
            Self::Series(last) if last.is_valid(row) => 0..usize::try_from(last.value(row)).unwrap_or(0),
            Self::List(_) | Self::Series(_) => 0..0,
        }
    }

    /// The columns that are wanted, of the elements at some places.
    fn columns(&self, of: &ElementColumns, places: Vec<Option<u64>>) -> DataFusionResult<Vec<ArrayRef>> {
        let wanted = of.columns.iter().enumerate().filter(|(_, name)| name.is_some());
        match self {
            Self::Series(_) => {
                let numbers = places.into_iter().map(|place| place.map(|place| place as i64 + 1));
                let numbers: ArrayRef = Arc::new(Int64Array::from_iter(numbers));
                Ok(wanted.map(|_| numbers.clone()).collect())
            }
            Self::List(list) => {
                let places = UInt64Array::from(places);
                wanted
                    .map(|(number, _)| match list.values().as_struct_opt() {
                        Some(record) => take_field(record, number, &places),
                        None => Ok(take(list.values(), &places, None)?),
                    })
                    .collect()
            }
        }
    }
}

/// A batch whose arrays are on their way out.
struct Unnesting {
    columns: Vec<ArrayRef>,
    sets: Vec<Set>,
    row_count: usize,
    schema: SchemaRef,
    elements: Arc<Elements>,
    /// The row and, of its elements, the one that comes next.
    next: (usize, usize),
}

impl Unnesting {
    fn begin(
        batch: &RecordBatch,
        schema: SchemaRef,
        projection: &[usize],
        elements: Arc<Elements>,
    ) -> DataFusionResult<Self> {
        let set = |of: &ElementColumns| Set::new(&of.array.evaluate(batch)?.into_array(batch.num_rows())?);
        let sets = elements.arrays.iter().map(set).collect::<DataFusionResult<_>>()?;
        let columns = projection.iter().map(|column| batch.column(*column).clone()).collect();
        Ok(Self { columns, sets, row_count: batch.num_rows(), schema, elements, next: (0, 0) })
    }

    /// The next rows, as many as a batch has; `None` after the last.
    fn next_batch(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        let (mut rows, mut numbers) = (Vec::new(), Vec::new());
        let mut places = vec![Vec::new(); self.sets.len()];
        let mut ranges = Vec::with_capacity(self.sets.len());
        let (mut row, mut taken) = self.next;
        while row < self.row_count && rows.len() < BATCH_ROWS {
            ranges.clear();
            ranges.extend(self.sets.iter().map(|set| set.range(row)));
            let count = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            if count == 0 && self.elements.keeps_rows {
                rows.push(row as u32);
                places.iter_mut().for_each(|places| places.push(None));
                numbers.push(None);
            }
            let end = count.min(taken + BATCH_ROWS - rows.len().min(BATCH_ROWS));
            for number in taken..end {
                rows.push(row as u32);
                for (places, range) in places.iter_mut().zip(&ranges) {
                    places.push((number < range.len()).then(|| (range.start + number) as u64));
                }
                numbers.push(Some(number as i64 + 1));
            }
            (row, taken) = if end == count { (row + 1, 0) } else { (row, end) };
        }
        self.next = (row, taken);
        if rows.is_empty() {
            return Ok(None);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let rows = UInt32Array::from(rows);
        let mut columns = Vec::with_capacity(self.columns.len() + 2);
        for column in &self.columns {
            columns.push(take(column, &rows, None)?);
        }
        for ((set, of), places) in self.sets.iter().zip(&self.elements.arrays).zip(places) {
            columns.extend(set.columns(of, places)?);
        }
        if self.elements.number.is_some() {
            columns.push(Arc::new(Int64Array::from(numbers)));
        }
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?))
    }
}

/// A field of some structs, which is NULL where they are.
fn take_field(record: &StructArray, field: usize, places: &UInt64Array) -> DataFusionResult<ArrayRef> {
    let taken = take(record.column(field), places, None)?;
    let Some(nulls) = record.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(taken) };
    let is_null = take(&BooleanArray::new(!nulls.inner(), None), places, None)?;
    Ok(nullif(&taken, is_null.as_boolean())?)
}

impl DisplayAs for UnnestExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrays: Vec<String> = self.elements.arrays.iter().map(|of| of.array.to_string()).collect();
        write!(formatter, "UnnestExec: arrays={}", arrays.join(", "))
    }
}

impl ExecutionPlan for UnnestExec {
    fn name(&self) -> &'static str {
        "UnnestExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    with_one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        apply_expression_roots(self.elements.arrays.iter().map(|of| &of.array), visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let (schema, projection): (_, Arc<[usize]>) = (self.schema(), self.projection.as_slice().into());
        let elements = self.elements.clone();
        let state = (input, None::<Unnesting>);
        let unnested = futures::stream::try_unfold(state, {
            let schema = schema.clone();
            move |(mut input, mut current)| {
                let (schema, projection, elements) = (schema.clone(), projection.clone(), elements.clone());
                let metrics = metrics.clone();
                async move {
                    loop {
                        let elapsed = metrics.elapsed_compute().clone();
                        let timer = elapsed.timer();
                        if let Some(unnesting) = &mut current
                            && let Some(batch) = unnesting.next_batch()?
                        {
                            metrics.record_output(batch.num_rows());
                            return Ok(Some((batch, (input, current))));
                        }
                        timer.done();
                        let Some(batch) = input.next().await.transpose()? else { return Ok(None) };
                        let begun = Unnesting::begin(&batch, schema.clone(), &projection, elements.clone());
                        current = Some(begun?);
                    }
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, unnested)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests {
    use arrow::{array::Int32Array, datatypes::Int32Type};

    use super::*;
    use crate::datafusion::physical_expr::expressions::Column;

    /// The number of a row, an element and its number.
    type Unnested = (i32, Option<i32>, Option<i64>);

    /// Rows and elements, batch by batch.
    fn unnested(lists: Vec<Option<Vec<Option<i32>>>>, keeps_rows: bool) -> Vec<Vec<Unnested>> {
        let row_count = lists.len() as i32;
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let below = Schema::new(vec![
            Field::new("row", DataType::Int32, false),
            Field::new("list", lists.data_type().clone(), true),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(below),
            vec![Arc::new(Int32Array::from_iter_values(0..row_count)), Arc::new(lists)],
        );
        let schema = Schema::new(vec![
            Field::new("row", DataType::Int32, false),
            Field::new("element", DataType::Int32, true),
            Field::new("number", DataType::Int64, true),
        ]);
        let elements = Arc::new(Elements {
            arrays: vec![ElementColumns {
                array: Arc::new(Column::new("list", 1)),
                columns: vec![Some("element".to_owned())],
            }],
            number: Some("number".to_owned()),
            keeps_rows,
        });
        let mut unnesting = Unnesting::begin(&batch.unwrap(), Arc::new(schema), &[0], elements).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = unnesting.next_batch().unwrap() {
            let rows = batch.column(0).as_primitive::<Int32Type>().values().iter().copied();
            let elements = batch.column(1).as_primitive::<Int32Type>().iter();
            let numbers = batch.column(2).as_primitive::<arrow::datatypes::Int64Type>().iter();
            batches.push(
                rows.zip(elements)
                    .zip(numbers)
                    .map(|((row, element), number)| (row, element, number))
                    .collect(),
            );
        }
        batches
    }

    #[test]
    fn each_element_is_a_row() {
        let lists = || vec![Some(vec![Some(7), None]), None, Some(vec![]), Some(vec![Some(8)])];
        let elements = [(0, Some(7), Some(1)), (0, None, Some(2)), (3, Some(8), Some(1))];
        assert_eq!(unnested(lists(), false), [elements.to_vec()]);
        let kept = [elements[0], elements[1], (1, None, None), (2, None, None), elements[2]];
        assert_eq!(unnested(lists(), true), [kept.to_vec()]);
        assert!(unnested(vec![None, Some(vec![])], false).is_empty());
    }

    #[test]
    fn arrays_side_by_side_are_as_long_as_the_longest() {
        let list =
            |lists: Vec<Option<Vec<Option<i32>>>>| ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let numbers = list(vec![Some(vec![Some(1)]), None, Some(vec![Some(2), Some(3)])]);
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), Some(8), Some(9)]));
        let field = Arc::new(Field::new("f", DataType::Int32, true));
        let records =
            StructArray::new(vec![field].into(), vec![values], Some(vec![true, false, true].into()));
        let item = Arc::new(Field::new_list_field(records.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 2, 3, 3].into());
        let records = ListArray::new(item, offsets, Arc::new(records), None);
        let below = Schema::new(vec![
            Field::new("numbers", numbers.data_type().clone(), true),
            Field::new("records", records.data_type().clone(), true),
        ]);
        let batch =
            RecordBatch::try_new(Arc::new(below), vec![Arc::new(numbers), Arc::new(records)]).unwrap();
        let of = |name: &str, place| ElementColumns {
            array: Arc::new(Column::new(name, place)),
            columns: vec![Some(format!("{name} of"))],
        };
        let arrays = vec![of("numbers", 0), of("records", 1)];
        let elements = Arc::new(Elements { arrays, number: None, keeps_rows: false });
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int32, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let mut unnesting = Unnesting::begin(&batch, schema, &[], elements).unwrap();
        let rows = unnesting.next_batch().unwrap().unwrap();
        let column = |place| rows.column(place).as_primitive::<Int32Type>().iter().collect::<Vec<_>>();
        assert_eq!(column(0), [Some(1), None, None, Some(2), Some(3)]);
        assert_eq!(column(1), [Some(7), None, Some(9), None, None]);
        assert!(unnesting.next_batch().unwrap().is_none());
    }

    #[test]
    fn numbers_of_a_series_come_in_batches() {
        let last: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), None, Some(-1), Some(i64::MAX)]));
        let below = Schema::new(vec![Field::new("last", DataType::Int64, true)]);
        let batch = RecordBatch::try_new(Arc::new(below), vec![last]).unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, true)]));
        let array = Arc::new(Column::new("last", 0));
        let arrays = vec![ElementColumns { array, columns: vec![Some("number".to_owned())] }];
        let elements = Arc::new(Elements { arrays, number: None, keeps_rows: true });
        let mut unnesting = Unnesting::begin(&batch, schema, &[], elements).unwrap();
        let first = unnesting.next_batch().unwrap().unwrap();
        assert_eq!(first.num_rows(), BATCH_ROWS);
        let numbers = first.column(0).as_primitive::<arrow::datatypes::Int64Type>().iter();
        let expected = [Some(1), Some(2), None, None].into_iter().chain((1..).map(Some));
        assert!(numbers.eq(expected.take(BATCH_ROWS)));
        assert_eq!(unnesting.next_batch().unwrap().unwrap().num_rows(), BATCH_ROWS);
    }

    #[test]
    fn long_arrays_come_in_batches() {
        let long = BATCH_ROWS * 2 + 1;
        let numbers = |count: usize| Some((0..count as i32).map(Some).collect());
        let batches = unnested(vec![numbers(3), numbers(long), None, numbers(1)], true);
        assert!(batches.iter().all(|batch| batch.len() <= BATCH_ROWS));
        let rows: Vec<_> = batches.concat();
        assert_eq!(rows.len(), 3 + long + 1 + 1);
        assert_eq!(rows[3 + long - 1], (1, Some(long as i32 - 1), Some(long as i64)));
        assert_eq!(rows[3 + long..], [(2, None, None), (3, Some(0), Some(1))]);
    }
}
