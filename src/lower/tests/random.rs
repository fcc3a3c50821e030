//! Invariants of lowering, of thousands of sources at random.
//!
//! Half of the sources have the types that PostgreSQL's parser would give them; those keep all invariants. The others put any
//! part in any place: of these only that lowering ends without a panic, and within its limits.

use pystachio_plan::{CatalogUse, FUNCTIONS, Function, Interval};

use super::*;
use crate::{ArrayComparison, DEPTH_MAX, PARTS_MAX, Placeholder, RowColumn, UnknownPart, numeric::is_null};

const SOURCES: u64 = 20_000;
const DEPTH: usize = 5;

/// The seed of the first source: `PYSTACHIO_SEED`, or always the same.
fn first_seed() -> u64 {
    std::env::var("PYSTACHIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Numbers at random. Source: the finalizer of SplitMix64, Steele, Lea, Flood, OOPSLA 2014.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// Types of which there are columns, constants and functions.
const TYPES: [SourceType; 10] = [
    SourceType::Bool,
    SourceType::Integer,
    SourceType::BigInt,
    SourceType::Double,
    SourceType::Numeric,
    SourceType::Text,
    SourceType::Date,
    SourceType::Timestamp,
    SourceType::TimestampTz,
    SourceType::Interval,
];

struct Generator {
    random: Random,
    origins: u32,
}

impl Generator {
    fn constant(&mut self, of: &SourceType) -> Source {
        let random = &mut self.random;
        if random.chance(10) {
            return null(of.clone());
        }
        let value = match of {
            SourceType::Bool => Value::Bool(random.chance(50)),
            SourceType::Integer => Value::Int(random.pick(&[0, 1, -1, 7, 2_147_483_647, -2_147_483_648])),
            SourceType::BigInt => Value::Int(random.pick(&[0, 3, i64::MAX, i64::MIN])),
            SourceType::Double => Value::Float(random.pick(&[0.0, -0.0, 1.5, f64::NAN, f64::INFINITY])),
            SourceType::Numeric => {
                let long = "9".repeat(38);
                return numeric(random.pick(&["0", "0.00", "-1.5", "12345.678", "NaN", long.as_str()]));
            }
            SourceType::Text => {
                let words = ["", " ", "a%", "year", "Hour", "epoch", "UTC", "Nowhere", "microseconds", "\\"];
                Value::Text(random.pick(&words).to_owned())
            }
            SourceType::Date => {
                Value::Int(random.pick(&[0, 19_000, i64::from(i32::MAX), i64::from(i32::MIN)]))
            }
            SourceType::Timestamp | SourceType::TimestampTz => {
                Value::Int(random.pick(&[0, 86_400_000_000, 86_400_000_001, -1, i64::MAX, i64::MIN]))
            }
            SourceType::Interval => Value::Interval(Interval {
                months: random.pick(&[0, 0, 1, i32::MIN, i32::MAX]),
                days: random.pick(&[0, 7, i32::MIN]),
                microseconds: random.pick(&[0, 5, i64::MIN, i64::MAX / 1_000]),
            }),
            _ => return null(of.clone()),
        };
        constant(value, of.clone())
    }

    /// A value without parts.
    fn leaf(&mut self, of: &SourceType) -> Source {
        let named: Vec<i16> =
            columns().into_iter().filter(|known| known.1 == *of).map(|known| known.0).collect();
        match self.random.below(4) {
            0 => self.constant(of),
            1 => {
                self.origins += 1;
                let is_given = self.random.chance(50);
                let part = Part::Parameter { is_given };
                let origin = Some(Origin(self.origins));
                Source { origin, has_given: is_given, ..Source::new(part, of.clone()) }
            }
            _ if named.is_empty() => self.constant(of),
            _ => column(self.random.pick(&named)),
        }
    }

    /// An expression of the type.
    fn typed(&mut self, of: &SourceType, depth: usize) -> Source {
        if depth == 0 || self.random.chance(15) {
            return self.leaf(of);
        }
        let source = match self.random.below(10) {
            0 => self.case(of, depth),
            1 => {
                let arguments = (0..=self.random.below(3)).map(|_| self.typed(of, depth - 1)).collect();
                Source::new(Part::Coalesce(arguments), of.clone())
            }
            2 if *of != SourceType::Bool => {
                let function = self.random.pick(&[Function::Greatest, Function::Least]);
                let arguments = vec![self.typed(of, depth - 1), self.typed(of, depth - 1)];
                let collation = (*of == SourceType::Text).then(bytes_collation).flatten();
                Source::new(Part::Extreme { function, collation, arguments }, of.clone())
            }
            3 if *of == SourceType::Integer => {
                let arguments = vec![self.typed(of, depth - 1), self.typed(of, depth - 1)];
                Source::new(Part::NullIf(call_of("int4eq", arguments)), of.clone())
            }
            _ => self.call(of, depth),
        };
        self.finished(source)
    }

    fn case(&mut self, of: &SourceType, depth: usize) -> Source {
        let operand = self.random.chance(30).then(|| Box::new(self.typed(&SourceType::Integer, depth - 1)));
        let branches = (0..=self.random.below(2)).map(|_| {
            let condition = match &operand {
                Some(_) => {
                    let operand = Source::new(Part::CaseOperand, SourceType::Integer);
                    test("int4eq", operand, self.constant(&SourceType::Integer))
                }
                None => self.typed(&SourceType::Bool, depth - 1),
            };
            (condition, self.typed(of, depth - 1))
        });
        let branches = branches.collect();
        let otherwise = self.random.chance(70).then(|| Box::new(self.typed(of, depth - 1)));
        Source::new(Part::Case { operand, branches, otherwise }, of.clone())
    }

    /// A function, operator or test that gives the type.
    fn call(&mut self, of: &SourceType, depth: usize) -> Source {
        use SourceType::{
            BigInt, Bool, Date, Double, Integer, Interval, Numeric, Text, Timestamp, TimestampTz,
        };
        /// Names, and the types of their arguments. `""` is for those that are no functions.
        type Calls = &'static [(&'static str, &'static [SourceType])];
        let calls: Calls = match of {
            Bool => return self.condition(depth),
            Integer => &[
                ("int4pl", &[Integer, Integer]),
                ("int4div", &[Integer, Integer]),
                ("int4up", &[Integer]),
                ("int4abs", &[Integer]),
                ("length", &[Text]),
                ("position", &[Text, Text]),
                ("date_mi", &[Date, Date]),
                ("int4", &[Numeric]),
                ("int4", &[Bool]),
            ],
            BigInt => &[
                ("int48mul", &[Integer, BigInt]),
                ("int8mod", &[BigInt, BigInt]),
                ("int8um", &[BigInt]),
                ("int8", &[Integer]),
            ],
            Double => &[
                ("float8pl", &[Double, Double]),
                ("dsqrt", &[Double]),
                ("float8", &[Integer]),
                ("date_part", &[Text, Timestamp]),
                ("ceil", &[Double]),
                ("sign", &[Double]),
            ],
            Numeric => &[
                ("numeric_add", &[Numeric, Numeric]),
                ("numeric_sub", &[Numeric, Numeric]),
                ("numeric_mul", &[Numeric, Numeric]),
                ("numeric_div", &[Numeric, Numeric]),
                ("numeric_mod", &[Numeric, Numeric]),
                ("numeric_uminus", &[Numeric]),
                ("round", &[Numeric, Integer]),
                ("trunc", &[Numeric]),
                ("ceil", &[Numeric]),
                ("sign", &[Numeric]),
                ("numeric", &[Integer]),
                ("extract", &[Text, Timestamp]),
                ("extract", &[Text, Date]),
                ("extract", &[Text, TimestampTz]),
            ],
            Text => &[
                ("upper", &[Text]),
                ("textcat", &[Text, Text]),
                ("substring", &[Text, Integer, Integer]),
                ("btrim", &[Text]),
                ("ltrim", &[Text, Text]),
                ("right", &[Text, Integer]),
                ("replace", &[Text, Text, Text]),
                ("text", &[Bool]),
            ],
            Date => &[
                ("date_pli", &[Date, Integer]),
                ("integer_pl_date", &[Integer, Date]),
                ("date_mii", &[Date, Integer]),
                ("date", &[Timestamp]),
                ("date", &[TimestampTz]),
            ],
            Timestamp => &[
                ("date_trunc", &[Text, Timestamp]),
                ("timestamp_pl_interval", &[Timestamp, Interval]),
                ("date_mi_interval", &[Date, Interval]),
                ("date_bin", &[Interval, Timestamp, Timestamp]),
                ("timezone", &[Text, TimestampTz]),
                ("timezone", &[TimestampTz]),
                ("timestamp", &[Date]),
            ],
            TimestampTz => &[
                ("date_trunc", &[Text, TimestampTz]),
                ("date_trunc", &[Text, TimestampTz, Text]),
                ("timestamptz_mi_interval", &[TimestampTz, Interval]),
                ("timezone", &[Text, Timestamp]),
                ("timezone", &[Interval, Timestamp]),
                ("to_timestamp", &[Double]),
                ("timestamptz", &[Date]),
            ],
            Interval => &[("timestamp_mi", &[Timestamp, Timestamp])],
            _ => &[],
        };
        if calls.is_empty() {
            return self.leaf(of);
        }
        let (name, types) = self.random.pick(calls);
        // Much is lowered over constants alone.
        let argument = |of: &SourceType| match of {
            Text | Interval if self.random.chance(50) => self.constant(of),
            _ => self.typed(of, depth - 1),
        };
        call(name, of.clone(), types.iter().map(argument).collect())
    }

    fn condition(&mut self, depth: usize) -> Source {
        const COMPARED: &[(SourceType, [&str; 3])] = &[
            (SourceType::Integer, ["int4eq", "int4ne", "int4lt"]),
            (SourceType::BigInt, ["int8eq", "int8ge", "int8gt"]),
            (SourceType::Double, ["float8eq", "float8le", "float8gt"]),
            (SourceType::Numeric, ["numeric_eq", "numeric_lt", "numeric_ge"]),
            (SourceType::Text, ["texteq", "text_lt", "textlike"]),
            (SourceType::Date, ["date_eq", "date_lt", "date_ge"]),
            (SourceType::Timestamp, ["timestamp_eq", "timestamp_lt", "timestamp_ge"]),
            (SourceType::TimestampTz, ["timestamptz_eq", "timestamptz_lt", "timestamptz_ge"]),
        ];
        const MIXED: &[(&str, SourceType, SourceType)] = &[
            ("int48lt", SourceType::Integer, SourceType::BigInt),
            ("int84ne", SourceType::BigInt, SourceType::Integer),
            ("date_lt_timestamp", SourceType::Date, SourceType::Timestamp),
            ("timestamp_ge_date", SourceType::Timestamp, SourceType::Date),
            ("timestamp_eq_timestamptz", SourceType::Timestamp, SourceType::TimestampTz),
        ];
        let (of, names) = self.random.pick(COMPARED);
        let name = self.random.pick(&names);
        let part = match self.random.below(9) {
            0 => {
                let function = self.random.pick(&[Function::And, Function::Or]);
                let arguments =
                    (0..2 + self.random.below(2)).map(|_| self.typed(&SourceType::Bool, depth - 1));
                Part::Logic { function, arguments: arguments.collect() }
            }
            1 => {
                let function = self.random.pick(&[Function::IsNull, Function::IsNotNull]);
                Part::NullTest { function, argument: Box::new(self.typed(&of, depth - 1)), row_fields: None }
            }
            2 => {
                let function = self.random.pick(&[Function::IsTrue, Function::IsNotFalse]);
                Part::TruthTest { function, argument: Box::new(self.typed(&SourceType::Bool, depth - 1)) }
            }
            3 => {
                let items = (0..self.random.below(3)).map(|_| self.leaf(&of));
                let array = Part::Array { items: items.collect(), is_nested: false };
                let array = match self.random.chance(50) {
                    true => Source::new(array, SourceType::array_of(of.clone())),
                    false => {
                        self.origins += 1;
                        given(self.origins, SourceType::array_of(of.clone()))
                    }
                };
                let scalar = self.typed(&of, depth - 1);
                Part::ArrayComparison(ArrayComparison {
                    function: Rc::new(CatalogFunction::builtin(name)),
                    collation: bytes_collation(),
                    is_any: self.random.chance(50),
                    operands: Some(Box::new((scalar, array))),
                })
            }
            4 => {
                let column = |generator: &mut Self| RowColumn {
                    function: Rc::new(CatalogFunction::builtin("int4lt")),
                    collation: None,
                    left: generator.typed(&SourceType::Integer, depth - 1),
                    right: generator.typed(&SourceType::Integer, depth - 1),
                };
                let columns = (0..=self.random.below(3)).map(|_| column(self)).collect();
                Part::RowComparison { order: Some(Function::Less), columns }
            }
            5 => {
                let (a, b) = (self.typed(&of, depth - 1), self.typed(&of, depth - 1));
                Part::Distinct(call_of(names[0], vec![a, b]))
            }
            6 => {
                let (name, a, b) = self.random.pick(MIXED);
                Part::Call(call_of(name, vec![self.typed(&a, depth - 1), self.typed(&b, depth - 1)]))
            }
            _ => Part::Call(call_of(name, vec![self.typed(&of, depth - 1), self.typed(&of, depth - 1)])),
        };
        Source::new(part, SourceType::Bool)
    }

    /// The source with the marks that its parts give it.
    fn finished(&mut self, source: Source) -> Source {
        let parts = source.children();
        let has_given = parts.iter().any(|part| part.has_given);
        let is_known = !parts.is_empty()
            && parts.iter().all(|part| part.is_known_at_start())
            && !source.contains(&|part| part.part == Part::CaseOperand);
        let origin = is_known.then(|| {
            self.origins += 1;
            Origin(self.origins)
        });
        Source { origin, has_given, ..source }
    }

    /// Any part, of any type.
    fn wild(&mut self, depth: usize) -> Source {
        let of = self.any_type();
        if depth == 0 {
            return match self.random.below(4) {
                0 => Source::new(Part::CaseOperand, of),
                1 => Source::new(Part::Unknown(UnknownPart { kind: "T_Any".into() }), of),
                2 => Source { of, ..self.leaf(&SourceType::Integer) },
                _ => self.leaf(&of),
            };
        }
        let count = self.random.below(4);
        let mut parts: Vec<Source> = (0..count).map(|_| self.wild(depth - 1)).collect();
        let name = self.any_name();
        let call = |arguments| call_of(&name, arguments);
        let mut one = || Box::new(parts.pop().unwrap_or_else(|| column(NUMBER)));
        let part = match self.random.below(16) {
            0 => Part::Logic { function: Function::And, arguments: parts },
            1 => Part::Relabel(one()),
            2 => Part::CoerceViaText(one()),
            3 => Part::Coalesce(parts),
            4 => Part::Extreme { function: Function::Least, collation: None, arguments: parts },
            5 => Part::TruthTest { function: Function::IsTrue, argument: one() },
            6 => Part::NullTest { function: Function::IsNull, argument: one(), row_fields: None },
            7 => Part::Distinct(call(parts)),
            8 => Part::NullIf(call(parts)),
            9 => {
                let (operand, branch) = (one(), (*one(), *one()));
                Part::Case { operand: Some(operand), branches: vec![branch], otherwise: Some(one()) }
            }
            10 => {
                let operands = Some(Box::new((*one(), *one())));
                let (function, is_any) = (Rc::new(CatalogFunction::builtin(name)), true);
                Part::ArrayComparison(ArrayComparison { function, collation: None, is_any, operands })
            }
            11 => {
                let relations = vec![1];
                Part::Placeholder(Placeholder { id: 1, levels_up: 0, relations, expression: one() })
            }
            12 => Part::Array { items: parts, is_nested: false },
            13 => Part::ArrayCast { array: one(), evaluated: Some(Origin(0)) },
            _ => Part::Call(call(parts)),
        };
        let source =
            Source { modifier: self.random.pick(&[-1, 9, i32::MIN, i32::MAX]), ..Source::new(part, of) };
        self.finished(source)
    }

    fn any_type(&mut self) -> SourceType {
        match self.random.below(6) {
            0 => SourceType::array_of(self.random.pick(&TYPES)),
            1 => self.random.pick(&[
                SourceType::Character,
                SourceType::Json,
                SourceType::from_text("jsonb"),
                SourceType::Name,
                SourceType::Bytea,
                SourceType::Uuid,
                SourceType::other("xml"),
            ]),
            _ => self.random.pick(&TYPES),
        }
    }

    fn any_name(&mut self) -> String {
        let entry = self.random.pick(FUNCTIONS);
        let names: Vec<_> = entry.catalog.iter().flat_map(|names| names.names).collect();
        let others = ["varchar", "bpchar", "int4up", "now", "pg_sleep"];
        if names.is_empty() { self.random.pick(&others).into() } else { self.random.pick(&names).to_string() }
    }
}

/// Whether calls have types that their functions take, and parameters those under which they were noted.
fn check_parts(expression: &Expression, notes: &Notes) {
    expression.walk(&mut |part| match part {
        Expression::Parameter { index, data_type } => {
            let (_, noted) = notes.parameter_at(*index).expect("a parameter is noted");
            let is_item = noted == DataType::List(Box::new(data_type.clone()));
            assert!(noted == *data_type || is_item, "{noted} as {data_type}");
        }
        Expression::Call { function, arguments, data_type } => {
            let types: Vec<_> = arguments.iter().map(|argument| argument.data_type().clone()).collect();
            let accepts =
                function.entry().signatures.iter().any(|signature| signature.accepts(&types, data_type));
            // Before the query starts, a comparison may be of two types of moments, a list may be one parameter, and the
            // one test of LIKE ANY stands alone.
            let is_open = matches!(function, Function::In | Function::And | Function::Or)
                || pystachio_plan::are_mixed_moments(&types[0], types.last().unwrap());
            assert!(accepts || is_open, "{} of {types:?} as {data_type}", expression_text(part));
        }
        Expression::Case { branches, otherwise, data_type } => {
            for branch in branches {
                assert_eq!(*branch.condition.data_type(), DataType::Bool, "{}", expression_text(part));
            }
            let results = branches.iter().map(|branch| &branch.result).chain(otherwise.as_deref());
            for result in results {
                assert_eq!(result.data_type(), data_type, "{}", expression_text(part));
            }
        }
        Expression::Column { .. } | Expression::Literal(_) => {}
    });
}

fn check_limits(lowered: &Lowered) {
    let size = lowered.size();
    assert!(size.depth <= DEPTH_MAX && size.parts <= PARTS_MAX, "{size:?}");
}

/// Whether the value has the type of its source, and a scale that fits.
fn check_type(lowered: &Lowered, of: &SourceType) {
    match (of.data_type(), lowered.data_type()) {
        (Some(DataType::Numeric), DataType::Decimal { scale: own, .. }) => match &lowered.scale {
            Scale::Fixed(digits) => assert!((0..=i32::from(*own)).contains(digits), "{lowered:?}"),
            Scale::Varies(digits) => assert_eq!(*digits.data_type(), DataType::Int32),
            Scale::None => assert!(is_null(&lowered.expression), "{lowered:?}"),
        },
        (Some(DataType::Numeric), DataType::Numeric) => {}
        (Some(expected), data_type) => {
            assert_eq!(expected, *data_type, "{}", expression_text(&lowered.expression));
            assert_eq!(lowered.scale, Scale::None);
        }
        (None, data_type) => panic!("{data_type} of {}", of.name()),
    }
}

#[test]
fn sources_of_the_parser_s_types_keep_them() {
    let (first, mut count) = (first_seed(), 0);
    println!("sources of seeds {first} to {}", first + SOURCES - 1);
    for seed in first..first + SOURCES {
        let mut generator = Generator { random: Random(seed), origins: 0 };
        let of = generator.random.pick(&TYPES);
        let source = generator.typed(&of, DEPTH);
        let notes = Notes::default();
        println!("seed {seed}");
        match lower_with(&source, &notes) {
            Ok(lowered) => {
                count += 1;
                check_limits(&lowered);
                check_type(&lowered, &source.of);
                check_parts(&lowered.expression, &notes);
                if let Scale::Varies(scale) = &lowered.scale {
                    check_parts(scale, &notes);
                }
                let again = lower(&source).map(|again| expression_text(&again.expression));
                assert_eq!(again, Ok(expression_text(&lowered.expression)), "of one source");
            }
            Err(refusal) => {
                let words = refusal.to_string();
                assert!(!words.is_empty() && !words.contains('\n'), "{refusal:?}");
                assert_eq!(notes.lost_parameter(), source.has_given, "{refusal}");
            }
        }
        assert_eq!(source, source.clone());
    }
    // Otherwise the test would say little.
    assert!(count > SOURCES / 4, "{count} of {SOURCES} were lowered");
}

#[test]
fn any_source_is_lowered_or_refused() {
    let first = first_seed();
    println!("sources of seeds {first} to {}", first + SOURCES - 1);
    for seed in first..first + SOURCES {
        println!("seed {seed}");
        let mut generator = Generator { random: Random(seed), origins: 0 };
        let source = generator.wild(DEPTH);
        let notes = Notes::default();
        let forms =
            [TextForm::Utf8, TextForm::Bytes, TextForm::OneByte { is_ordered: false }, TextForm::Other];
        let server = TestServer {
            text_form: generator.random.pick(&forms),
            has_no_stack: generator.random.chance(1),
            has_infinite_intervals: generator.random.chance(50),
            right_wraps: generator.random.chance(50),
            bins_wrongly: generator.random.chance(50),
            keeps_float_sums: false,
        };
        match Lowering::new(&scope(), &notes, &server).lower(&source) {
            Ok(lowered) => check_limits(&lowered),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
}

#[test]
fn the_generator_s_functions_are_those_of_the_registry() {
    let mut generator = Generator { random: Random(1), origins: 0 };
    for of in &TYPES {
        for _ in 0..200 {
            let Part::Call(call) = generator.call(of, 1).part else { continue };
            let name = &call.function.name;
            assert!(call.function.meaning.is_some(), "{name}");
            let is_exchanged =
                pystachio_plan::function_of_catalog(name).is_some_and(|(_, is)| is == CatalogUse::Exchanged);
            assert_eq!(is_exchanged, name == "integer_pl_date");
        }
    }
}
