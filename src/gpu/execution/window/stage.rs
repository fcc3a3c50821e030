//! The functions of one window, over rows that are in its order.

use pystachio_plan::{
    Aggregate, ColumnId, DataType, Error, ErrorKind, Expression, FrameBound, FrameUnit, Literal, Result,
    SortKey, WindowCall, WindowFrame, WindowFunction,
};

use crate::{
    device::{CellType, Chunk, Column},
    operation::{FilledRows, FrameValues, Frames, KEYS_MAX, Queue, SumWidth, WindowRows},
    program::Program,
};

/// Bytes of a row's runs: flags, numbers and starts of partitions and of peer groups.
const RUN_BYTES: u64 = 18;
/// Bytes of a row's frame.
const FRAME_BYTES: u64 = 8;
/// Bytes of the sums before a row, and of further temporary memory of a function.
const FUNCTION_BYTES: u64 = 44;
/// Bytes of a computed value.
const VALUE_BYTES: u64 = 17;

/// The functions of one window.
pub(in crate::execution) struct WindowStage {
    /// What keys, arguments and frames read of a row, each once.
    values: Vec<RowValue>,
    /// Places of the keys among the values.
    partition: Vec<usize>,
    order: Vec<usize>,
    frames: Vec<StageFrame>,
    calls: Vec<StageCall>,
    /// The place of the operator that counts its rows.
    pub(super) place: usize,
}

struct RowValue {
    expression: Expression,
    program: Program,
}

struct StageFrame {
    frame: WindowFrame,
    /// Places of its key and its limits.
    key: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
}

struct StageCall {
    function: WindowFunction,
    /// The place of its argument.
    argument: Option<usize>,
    /// The place of its frame.
    frame: usize,
    data_type: DataType,
}

/// Compiles the values of a stage.
struct Values<'a> {
    input: &'a [(ColumnId, DataType)],
    parameters: &'a [Literal],
    values: Vec<RowValue>,
}

impl Values<'_> {
    /// The place of a value.
    fn place(&mut self, expression: &Expression) -> Result<usize> {
        if let Some(known) = self.values.iter().position(|value| value.expression == *expression) {
            return Ok(known);
        }
        let program = Program::compile(std::slice::from_ref(expression), self.input, self.parameters)?;
        self.values.push(RowValue { expression: expression.clone(), program });
        Ok(self.values.len() - 1)
    }

    fn places<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expression>) -> Result<Vec<usize>> {
        let places: Vec<usize> =
            expressions.into_iter().map(|expression| self.place(expression)).collect::<Result<_>>()?;
        if places.len() > KEYS_MAX {
            let message =
                format!("more keys than a kernel takes: keys={}, keys_max={KEYS_MAX}", places.len());
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        Ok(places)
    }

    fn frame(&mut self, frame: &WindowFrame) -> Result<StageFrame> {
        let mut limit = |bound: &FrameBound| match bound {
            FrameBound::Limit(limit) => self.place(limit).map(Some),
            _ => Ok(None),
        };
        let (start, end) = (limit(&frame.start)?, limit(&frame.end)?);
        let key = match &frame.unit {
            FrameUnit::Range { key: Some(key), .. } => Some(self.place(key)?),
            FrameUnit::Range { key: None, .. } | FrameUnit::Rows | FrameUnit::Groups => None,
        };
        let cell_type = |place: usize| CellType::of(self.values[place].expression.data_type());
        for limit in [start, end].into_iter().flatten() {
            let key = key.ok_or_else(|| Error::internal("a frame of values lacks their key"))?;
            if cell_type(key)? != cell_type(limit)? {
                return Err(Error::internal("the key of a frame and its limits have different types"));
            }
        }
        Ok(StageFrame { frame: frame.clone(), key, start, end })
    }
}

impl WindowStage {
    /// The functions of a window over columns of these ids and types. `place`: of the operator that counts its rows.
    ///
    /// # Errors
    ///
    /// `NotSupported` for functions without a kernel.
    pub(in crate::execution) fn compile(
        (partition, order): (&[Expression], &[SortKey]),
        calls: &[WindowCall],
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
        place: usize,
    ) -> Result<Self> {
        let mut values = Values { input, parameters, values: Vec::new() };
        let partition = values.places(partition)?;
        let order = values.places(order.iter().map(|key| &key.expression))?;
        let mut frames: Vec<StageFrame> = Vec::new();
        let mut compiled = Vec::with_capacity(calls.len());
        for WindowCall { function, argument, frame, data_type, .. } in calls {
            let frame = match frames.iter().position(|known| known.frame == *frame) {
                Some(known) => known,
                None => {
                    frames.push(values.frame(frame)?);
                    frames.len() - 1
                }
            };
            if let (WindowFunction::Aggregate(Aggregate::Sum | Aggregate::Deviations), Some(argument)) =
                (function, argument)
            {
                SumWidth::of(argument.data_type())?;
            }
            CellType::of(data_type)?;
            let argument = argument.as_ref().map(|argument| values.place(argument)).transpose()?;
            let (function, data_type) = (*function, data_type.clone());
            compiled.push(StageCall { function, argument, frame, data_type });
        }
        Ok(Self { values: values.values, partition, order, frames, calls: compiled, place })
    }

    /// Bytes of a row that the functions take, besides the row: their results and temporary memory.
    pub(super) fn row_bytes(&self) -> u64 {
        let result = |call: &StageCall| CellType::of(&call.data_type).map_or(0, CellType::bytes);
        let results: u64 = self.calls.iter().map(|call| u64::from(result(call)) + 1).sum();
        let values = self.values.iter().filter(|value| !is_column(&value.expression)).count() as u64;
        let frames = self.frames.len() as u64;
        RUN_BYTES + FUNCTION_BYTES + FRAME_BYTES * frames + VALUE_BYTES * values + results
    }

    /// The values of the keys: first those of the partition, then those of the order.
    pub(super) fn keys(&self, queue: &Queue, chunk: &Chunk) -> Result<Vec<Column>> {
        let mut computed = Computed::new(self, queue, chunk);
        self.partition.iter().chain(&self.order).map(|place| computed.value(*place)).collect()
    }

    /// Adds the functions' columns to rows in order.
    pub(super) fn add_columns(&self, queue: &Queue, chunk: &mut Chunk) -> Result<()> {
        let mut computed = Computed::new(self, queue, chunk);
        let partition = computed.values(&self.partition)?;
        let order = computed.values(&self.order)?;
        let rows = queue.window_rows(&partition, &order, chunk.row_count)?;
        let columns =
            self.calls.iter().map(|call| computed.column(&rows, call)).collect::<Result<Vec<_>>>()?;
        chunk.columns.extend(columns);
        Ok(())
    }
}

fn is_column(expression: &Expression) -> bool {
    matches!(expression, Expression::Column { .. })
}

/// What was computed of some rows, each when it is first needed.
struct Computed<'a> {
    stage: &'a WindowStage,
    queue: &'a Queue,
    chunk: &'a Chunk,
    /// By place.
    values: Vec<Option<Column>>,
    /// Of each value the rows that have one.
    filled: Vec<Option<FilledRows>>,
    frames: Vec<Option<Frames>>,
}

impl<'a> Computed<'a> {
    fn new(stage: &'a WindowStage, queue: &'a Queue, chunk: &'a Chunk) -> Self {
        let values = stage.values.iter().map(|_| None).collect();
        let filled = stage.values.iter().map(|_| None).collect();
        let frames = stage.frames.iter().map(|_| None).collect();
        Self { stage, queue, chunk, values, filled, frames }
    }

    fn value(&mut self, place: usize) -> Result<Column> {
        if let Some(known) = &self.values[place] {
            return Ok(known.clone());
        }
        let column = self.stage.values[place].program.evaluate(self.queue, self.chunk)?.pop();
        let column = column.ok_or_else(|| Error::internal("a program without a result"))?;
        self.values[place] = Some(column.clone());
        Ok(column)
    }

    fn values(&mut self, places: &[usize]) -> Result<Vec<Column>> {
        places.iter().map(|place| self.value(*place)).collect()
    }

    /// The column of a function.
    fn column(&mut self, rows: &WindowRows, call: &StageCall) -> Result<Column> {
        let queue = self.queue;
        let found = match call.function {
            WindowFunction::RowNumber
            | WindowFunction::Rank
            | WindowFunction::DenseRank
            | WindowFunction::PercentRank
            | WindowFunction::CumeDist
            | WindowFunction::Ntile(_) => return queue.number_rows(rows, call.function),
            WindowFunction::Lag(offset) => queue.rows_before(rows, offset)?,
            WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue(_) => {
                queue.rows_of_frames(&self.frames(rows, call)?, call.function)?
            }
            WindowFunction::Aggregate(aggregate) => {
                let frames = self.frames(rows, call)?;
                let is_greatest = matches!(aggregate, Aggregate::Max | Aggregate::BoolOr);
                match aggregate {
                    Aggregate::Count => return queue.count_frames(&frames, &self.filled(call.argument)?),
                    Aggregate::Sum => {
                        let (addends, filled) = (self.argument(call)?, self.filled(call.argument)?);
                        return queue.sum_frames(&frames, &addends, &filled, &call.data_type);
                    }
                    Aggregate::Min | Aggregate::Max | Aggregate::BoolAnd | Aggregate::BoolOr => {
                        queue.best_of_frames(rows, &frames, &self.argument(call)?, is_greatest)?
                    }
                    Aggregate::AnyValue => queue.rows_of_frames(&frames, WindowFunction::FirstValue)?,
                    Aggregate::Deviations
                    | Aggregate::BitAnd
                    | Aggregate::BitOr
                    | Aggregate::BitXor
                    | Aggregate::Array => {
                        let message = format!("no kernel computes {aggregate:?} over a window");
                        return Err(Error::new(ErrorKind::NotSupported, message));
                    }
                }
            }
        };
        queue.gather(&self.argument(call)?, &found)
    }

    fn argument(&mut self, call: &StageCall) -> Result<Column> {
        let place = call.argument.ok_or_else(|| Error::internal("a window function lacks its argument"))?;
        self.value(place)
    }

    /// The frames of a function.
    fn frames(&mut self, rows: &WindowRows, call: &StageCall) -> Result<Frames> {
        if let Some(known) = &self.frames[call.frame] {
            return Ok(known.clone());
        }
        let StageFrame { frame, key, start, end } = &self.stage.frames[call.frame];
        let mut value = |place: &Option<usize>| place.map(|place| self.value(place)).transpose();
        let (key, start, end) = (value(key)?, value(start)?, value(end)?);
        let values = FrameValues { key: key.as_ref(), start: start.as_ref(), end: end.as_ref() };
        let frames = self.queue.find_frames(rows, frame, values)?;
        self.frames[call.frame] = Some(frames.clone());
        Ok(frames)
    }

    /// The rows in which an argument has a value; without one all rows count.
    fn filled(&mut self, argument: Option<usize>) -> Result<FilledRows> {
        let row_count = self.chunk.row_count;
        let Some(place) = argument else { return self.queue.filled_rows(None, row_count) };
        if let Some(known) = &self.filled[place] {
            return Ok(known.clone());
        }
        let column = self.value(place)?;
        let filled = self.queue.filled_rows(Some(&column), row_count)?;
        self.filled[place] = Some(filled.clone());
        Ok(filled)
    }
}
