//! Comparisons of composite values, as comparisons of their fields.
//!
//! Invariant: both sides have fields of the same types under the same collations, as `record_eq` and `record_cmp` demand when they run
//! (PostgreSQL 15, `rowtypes.c`). All else is left to PostgreSQL.

use pgrx::pg_sys::{self, Node, NodeTag, Oid};
use pystachio_lower::{
    ARRAY_ITEMS_MAX, Comparison, Part, RecordComparison, RecordFieldSource, RecordSource, RecordTest,
    Refusal, Source, SourceType,
};

use super::{
    catalog::source_type,
    collation, constant,
    constant::Elements,
    expression::{Contents, Mirror, type_of},
};
use crate::{
    pg::{
        list::{self, pointers},
        nodes::tag_of,
    },
    types::{attribute_count, composite_fields},
};

/// The comparison of composite values that a function is.
pub fn comparison_of_records(function: Oid) -> Option<Comparison> {
    Some(match u32::from(function) {
        pg_sys::F_RECORD_EQ => Comparison::Equal,
        pg_sys::F_RECORD_NE => Comparison::NotEqual,
        pg_sys::F_RECORD_LT => Comparison::Less,
        pg_sys::F_RECORD_LE => Comparison::LessEqual,
        pg_sys::F_RECORD_GT => Comparison::Greater,
        pg_sys::F_RECORD_GE => Comparison::GreaterEqual,
        _ => return None,
    })
}

/// A composite value, and the type and the collation of each of its fields.
struct Record {
    source: RecordSource,
    types: Vec<(Oid, Oid)>,
}

impl Record {
    fn add(&mut self, value: Source, type_oid: Oid, collation_oid: Oid) {
        self.source.fields.push(RecordFieldSource { collation: collation(collation_oid), value });
        self.types.push((type_oid, collation_oid));
    }
}

impl Mirror<'_> {
    /// A comparison of two composite values; `None` of others, and of those whose fields are not known.
    ///
    /// # Safety
    ///
    /// The nodes are valid expressions.
    pub(super) unsafe fn record_comparison(
        &self,
        test: RecordTest,
        [left, right]: [*mut Node; 2],
        contents: &mut Contents,
    ) -> Result<Option<Part>, Refusal> {
        // SAFETY: as the caller says.
        let (left, right) = unsafe { (self.record(left, contents)?, self.record(right, contents)?) };
        let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
        if left.types != right.types {
            return Ok(None);
        }
        let comparison = RecordComparison { test, left: left.source, right: right.source };
        Ok(Some(Part::RecordComparison(Box::new(comparison))))
    }

    /// `composite = ANY (array)` and `composite <> ALL (array)` as one comparison for each element; `None` of others.
    ///
    /// # Safety
    ///
    /// The node is valid, with its function set.
    pub(super) unsafe fn record_in_array(
        &self,
        call: &pg_sys::ScalarArrayOpExpr,
        contents: &mut Contents,
    ) -> Result<Option<Part>, Refusal> {
        let Some(comparison) = comparison_of_records(call.opfuncid) else { return Ok(None) };
        // SAFETY: as the caller says.
        unsafe {
            let arguments: Vec<*mut Node> = pointers(call.args).collect();
            let [value, array] = arguments.as_slice() else { return Ok(None) };
            let Some(items) = items_of(*array).filter(|items| !items.is_empty()) else { return Ok(None) };
            let mut tests = Vec::with_capacity(items.len());
            for item in items {
                let test = RecordTest::Comparison(comparison);
                let Some(part) = self.record_comparison(test, [*value, item], contents)? else {
                    return Ok(None);
                };
                tests.push(Source { has_given: contents.has_given, ..Source::new(part, SourceType::Bool) });
            }
            let function =
                if call.useOr { pystachio_plan::Function::Or } else { pystachio_plan::Function::And };
            Ok(match tests.len() {
                1 => tests.pop().map(|test| test.part),
                _ => Some(Part::Logic { function, arguments: tests }),
            })
        }
    }

    /// A composite value by its fields, if it is sorted or compared by them.
    ///
    /// # Safety
    ///
    /// The node is a valid expression.
    pub(super) unsafe fn record_source(
        &self,
        node: *mut Node,
        contents: &mut Contents,
    ) -> Result<Option<RecordSource>, Refusal> {
        // SAFETY: as the caller says.
        Ok(unsafe { self.record(node, contents)? }.map(|record| record.source))
    }

    /// # Safety
    ///
    /// The node is a valid expression.
    unsafe fn record(&self, node: *mut Node, contents: &mut Contents) -> Result<Option<Record>, Refusal> {
        // SAFETY: as the caller says; the tag says what a node is.
        unsafe {
            match tag_of(node) {
                NodeTag::T_RowExpr => self.row(&*node.cast(), contents),
                NodeTag::T_Const => Ok(constant_record(&*node.cast())),
                _ => self.named_record(node, contents),
            }
        }
    }

    /// `ROW(…)`, whose fields have the types and collations of its arguments, or those of the type that it has.
    unsafe fn row(&self, row: &pg_sys::RowExpr, contents: &mut Contents) -> Result<Option<Record>, Refusal> {
        // SAFETY: as of a record.
        unsafe {
            let mut record = record_of(Source::new(
                Part::Row { fields: Vec::new(), names: Vec::new() },
                source_type(row.row_typeid),
            ));
            let items: Vec<*mut Node> = pointers(row.args).collect();
            let declared = match row.row_typeid {
                pg_sys::RECORDOID => {
                    items.iter().map(|item| (type_of(*item), pg_sys::exprCollation(*item))).collect()
                }
                named => match fields_of(named) {
                    Some(fields) => {
                        fields.into_iter().map(|field| (field.type_oid, field.collation)).collect::<Vec<_>>()
                    }
                    None => return Ok(None),
                },
            };
            if declared.len() != items.len() {
                return Ok(None);
            }
            for (item, (type_oid, collation_oid)) in items.into_iter().zip(declared) {
                let value = contents.add(self.expression(item)?);
                record.add(value, type_oid, collation_oid);
            }
            Ok(Some(record))
        }
    }

    /// A value of a named composite type, whose fields are taken out of it.
    unsafe fn named_record(
        &self,
        node: *mut Node,
        contents: &mut Contents,
    ) -> Result<Option<Record>, Refusal> {
        // SAFETY: as of a record.
        let whole = unsafe {
            let Some(fields) = fields_of(type_of(node)) else { return Ok(None) };
            (contents.add(self.expression(node)?), fields)
        };
        let (whole, fields) = whole;
        let mut record = record_of(whole.clone());
        for field in fields {
            let of = source_type(field.type_oid);
            let has_modifier = matches!(of, SourceType::Numeric | SourceType::Character);
            let value = Source {
                part: Part::Field { record: Box::new(whole.clone()), name: field.name },
                modifier: if has_modifier { field.type_modifier } else { -1 },
                of,
                origin: None,
                has_given: whole.has_given,
            };
            record.add(value, field.type_oid, field.collation);
        }
        Ok(Some(record))
    }
}

fn record_of(whole: Source) -> Record {
    Record { source: RecordSource { whole, fields: Vec::new() }, types: Vec::new() }
}

/// The fields of a composite type that has never lost one.
fn fields_of(type_oid: Oid) -> Option<Vec<crate::types::CompositeField>> {
    let fields = composite_fields(type_oid)?;
    (fields.len() == usize::try_from(attribute_count(type_oid)).ok()?).then_some(fields)
}

/// A constant that is not NULL, as its fields.
///
/// # Safety
///
/// The constant is valid.
unsafe fn constant_record(known: &pg_sys::Const) -> Option<Record> {
    let is_named = known.consttype != pg_sys::RECORDOID;
    if known.constisnull || (is_named && fields_of(known.consttype).is_none()) {
        return None;
    }
    // SAFETY: as the caller says: a composite value begins with a header that says its type, whose descriptor is copied and freed.
    unsafe {
        let header =
            pg_sys::pg_detoast_datum(known.constvalue.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
        let datum = (*header).t_choice.t_datum;
        let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(datum.datum_typeid, datum.datum_typmod);
        let attributes = list::attributes(descriptor);
        let mut tuple = pg_sys::HeapTupleData {
            t_len: pgrx::varsize(header.cast()) as u32,
            t_data: header,
            ..Default::default()
        };
        let mut values = vec![pg_sys::Datum::from(0); attributes.len()];
        let mut nulls = vec![true; attributes.len()];
        pg_sys::heap_deform_tuple(&raw mut tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::FreeTupleDesc(descriptor);
        let mut record = record_of(Source::new(
            Part::Row { fields: Vec::new(), names: Vec::new() },
            source_type(known.consttype),
        ));
        for (attribute, (value, is_null)) in attributes.iter().zip(values.into_iter().zip(nulls)) {
            if attribute.attisdropped {
                return None;
            }
            let of = source_type(attribute.atttypid);
            let has_modifier = matches!(of, SourceType::Numeric | SourceType::Character);
            let part = Part::Constant(constant(value, is_null, attribute.atttypid));
            let modifier = if has_modifier { attribute.atttypmod } else { -1 };
            let value = Source { modifier, ..Source::new(part, of) };
            record.add(value, attribute.atttypid, attribute.attcollation);
        }
        Some(record)
    }
}

/// The elements of an array, each as a node; `None` of one whose elements are not known.
///
/// # Safety
///
/// The node is a valid expression.
unsafe fn items_of(array: *mut Node) -> Option<Vec<*mut Node>> {
    // SAFETY: as the caller says; the tag says what the node is.
    unsafe {
        match tag_of(array) {
            NodeTag::T_ArrayExpr => {
                let array = &*array.cast::<pg_sys::ArrayExpr>();
                (!array.multidims).then(|| pointers(array.elements).collect())
            }
            NodeTag::T_Const => {
                let known = &*array.cast::<pg_sys::Const>();
                if known.constisnull {
                    return None;
                }
                let elements = Elements::of(known.constvalue, known.consttype)?;
                let item = |place: usize| {
                    let (value, is_null) = elements.get(place);
                    let (length, by_value) = (i32::from(elements.length), elements.by_value);
                    pg_sys::makeConst(
                        elements.type_oid,
                        -1,
                        pg_sys::InvalidOid,
                        length,
                        value,
                        is_null,
                        by_value,
                    )
                    .cast()
                };
                (elements.count <= ARRAY_ITEMS_MAX).then(|| (0..elements.count).map(item).collect())
            }
            _ => None,
        }
    }
}
