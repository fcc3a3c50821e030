//! Limits how deep plans may nest, so that no recursive walk of a plan exhausts the stack.
//!
//! Invariants: a plan that decodes is no deeper than this. Code that walks plans may therefore recurse.

use std::{cell::Cell, thread::LocalKey};

/// Expressions within expressions.
pub const EXPRESSION_DEPTH_MAX: usize = 250;
/// Operators below operators.
pub const RELATION_DEPTH_MAX: usize = 250;
/// Lists of lists, and fields of fields.
pub(crate) const DATA_TYPE_DEPTH_MAX: usize = 16;

thread_local! {
    pub(crate) static EXPRESSION_DEPTH: Cell<usize> = const { Cell::new(0) };
    pub(crate) static RELATION_DEPTH: Cell<usize> = const { Cell::new(0) };
    pub(crate) static DATA_TYPE_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One level of something that is being decoded; dropped, the level is left.
pub(crate) struct Level(&'static LocalKey<Cell<usize>>);

impl Level {
    /// Enters a level.
    ///
    /// # Errors
    ///
    /// If that is one more than `depth_max`.
    pub(crate) fn enter<E: serde::de::Error>(
        depth: &'static LocalKey<Cell<usize>>,
        depth_max: usize,
        what: &str,
    ) -> Result<Self, E> {
        if depth.get() >= depth_max {
            return Err(E::custom(format!("{what} nested more than {depth_max} deep")));
        }
        depth.set(depth.get() + 1);
        Ok(Self(depth))
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Gives a type that derives its encoding with `#[serde(remote = "Self")]` a decoder that counts levels.
macro_rules! decode_levels {
    ($type:ty, $depth:ident, $depth_max:expr, $what:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let _level =
                    $crate::depth::Level::enter::<D::Error>(&$crate::depth::$depth, $depth_max, $what)?;
                <$type>::deserialize(deserializer)
            }
        }
    };
}

pub(crate) use decode_levels;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ColumnId, DataType, DeviceSettings, EngineChoice, ErrorKind, Expression, FRAME_HEADER_BYTES,
        Function, Operator, Plan, QueryRequest, Relation, Request, SpillRequest, decode_message,
        encode_message,
    };

    fn decodes(root: std::sync::Arc<Relation>) -> crate::Result<Request> {
        let plan = Plan { root, outputs: Vec::new() };
        let request = QueryRequest {
            access: crate::StoreAccess::default(),
            plan,
            planned_files: Vec::new(),
            parameters: Vec::new(),
            with_metrics: false,
            batch_rows_max: 1,
            spill: SpillRequest::default(),
            device: DeviceSettings::default(),
            engine: EngineChoice::Cpu,
            role: 0,
        };
        let frame = encode_message(&Request::Run(Box::new(request), crate::QueryOrigin::default())).unwrap();
        decode_message(&frame[FRAME_HEADER_BYTES..])
    }

    fn filter(predicate: Expression) -> std::sync::Arc<Relation> {
        let input = Relation::empty_scan(1.0);
        Relation::new(Operator::Filter { input, predicate }, 1.0)
    }

    fn negations(count: usize) -> Expression {
        let column = Expression::column(ColumnId(1), DataType::Bool);
        (0..count).fold(column, |inner, _| Expression::predicate(Function::Not, vec![inner]))
    }

    fn filters(count: usize) -> std::sync::Arc<Relation> {
        (1..count).fold(filter(negations(0)), |input, _| {
            Relation::new(Operator::Filter { input, predicate: negations(0) }, 1.0)
        })
    }

    #[test]
    fn deep_expressions_do_not_decode() {
        assert!(decodes(filter(negations(EXPRESSION_DEPTH_MAX - 1))).is_ok());
        let error = decodes(filter(negations(EXPRESSION_DEPTH_MAX))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        // The levels of a plan that did not decode are left again.
        assert!(decodes(filter(negations(EXPRESSION_DEPTH_MAX - 1))).is_ok());
    }

    #[test]
    fn deep_relations_do_not_decode() {
        assert!(decodes(filters(RELATION_DEPTH_MAX - 1)).is_ok());
        assert_eq!(decodes(filters(RELATION_DEPTH_MAX)).unwrap_err().kind, ErrorKind::Protocol);
    }

    #[test]
    fn wide_expressions_decode() {
        let wide = Expression::predicate(Function::And, vec![negations(1); 100_000]);
        assert!(decodes(filter(wide)).is_ok());
    }

    #[test]
    fn bytes_that_nest_without_end_do_not_decode() {
        // A filter's encoding begins with its input's: its variant, repeated, goes down without end.
        for byte in 0..=255u8 {
            let _ = decode_message::<Request>(&[&[3u8][..], &vec![byte; 1 << 20]].concat());
        }
    }

    #[test]
    fn sizes_count_levels_and_parts() {
        let size = negations(3).size();
        assert_eq!((size.depth, size.parts), (4, 4));
        let wide = Expression::predicate(Function::And, vec![negations(1), negations(2)]);
        assert_eq!((wide.size().depth, wide.size().parts), (4, 6));
        assert_eq!(filters(3).depth(), 4);
    }
}
