//! Statistics of a column that are made for one planning, and who may see them.

use pgrx::{IntoDatum, pg_sys, prelude::*};

use super::{Node, RangeEntry, Root, current_role, may_read_column};
use crate::pg::compat;

/// What PostgreSQL is told of a column, as a row of `pg_statistic` that was never stored.
pub struct ColumnStatistics {
    /// The part of the rows in which it is NULL.
    pub null_fraction: f64,
    /// Bytes of a value.
    pub width: i32,
    /// How many values there are, or minus their part of the rows; 0 if that is not known.
    pub distinct: f64,
    /// The type of the bounds, and the least and the greatest value.
    pub bounds: Option<(pg_sys::Oid, [pg_sys::Datum; 2])>,
    /// Whether the query may read the column in every row.
    pub may_read_all: bool,
}

impl ColumnStatistics {
    /// Writes them where PostgreSQL has asked for them.
    ///
    /// # Safety
    ///
    /// `variable` is the argument of get_relation_stats_hook.
    pub(super) unsafe fn write(
        &self,
        entry: RangeEntry<'_>,
        attribute_number: i16,
        variable: *mut pg_sys::VariableStatData,
    ) {
        // SAFETY: as the caller says.
        unsafe {
            (*variable).statsTuple = self.tuple(entry, attribute_number);
            (*variable).freefunc = Some(free_tuple);
            (*variable).acl_ok = self.may_read_all;
        }
    }

    fn tuple(&self, entry: RangeEntry<'_>, attribute_number: i16) -> pg_sys::HeapTuple {
        // SAFETY: the arrays have as many elements as the catalog has columns, and each value is of its column's type.
        unsafe {
            let catalog = pg_sys::table_open(pg_sys::StatisticRelationId, pg_sys::AccessShareLock as i32);
            let descriptor = (*catalog).rd_att;
            let attribute_count = (*descriptor).natts as usize;
            let mut values = vec![pg_sys::Datum::from(0); attribute_count];
            let mut nulls = vec![false; attribute_count];
            nulls[pg_sys::Anum_pg_statistic_stanumbers1 as usize - 1..].fill(true);
            let mut set = |number: u32, datum: pg_sys::Datum| {
                values[number as usize - 1] = datum;
                nulls[number as usize - 1] = false;
            };
            set(pg_sys::Anum_pg_statistic_starelid, entry.table_oid().into());
            set(pg_sys::Anum_pg_statistic_staattnum, pg_sys::Datum::from(attribute_number));
            set(pg_sys::Anum_pg_statistic_stanullfrac, float_datum(self.null_fraction));
            set(pg_sys::Anum_pg_statistic_stawidth, pg_sys::Datum::from(self.width));
            set(pg_sys::Anum_pg_statistic_stadistinct, float_datum(self.distinct));
            if let Some((type_oid, bounds)) = self.bounds {
                let (array, less_operator) = histogram(type_oid, bounds);
                let kind = pg_sys::Datum::from(pg_sys::STATISTIC_KIND_HISTOGRAM);
                set(pg_sys::Anum_pg_statistic_stakind1, kind);
                set(pg_sys::Anum_pg_statistic_staop1, less_operator.into());
                set(pg_sys::Anum_pg_statistic_stacoll1, pg_sys::get_typcollation(type_oid).into());
                set(pg_sys::Anum_pg_statistic_stavalues1, pg_sys::Datum::from(array));
            }
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::table_close(catalog, pg_sys::AccessShareLock as i32);
            tuple
        }
    }
}

/// A histogram of one bucket, from least to greatest, and the operator by which it is ordered.
///
/// # Safety
///
/// The bounds are values of the type.
unsafe fn histogram(
    type_oid: pg_sys::Oid,
    mut bounds: [pg_sys::Datum; 2],
) -> (*mut pg_sys::ArrayType, pg_sys::Oid) {
    // SAFETY: as the caller says; the others are places to write to.
    unsafe {
        let entry = pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_LT_OPR as i32);
        let (mut length, mut by_value, mut alignment) = (0i16, false, 0);
        pg_sys::get_typlenbyvalalign(type_oid, &raw mut length, &raw mut by_value, &raw mut alignment);
        let array =
            pg_sys::construct_array(bounds.as_mut_ptr(), 2, type_oid, i32::from(length), by_value, alignment);
        (array, (*entry).lt_opr)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn free_tuple(tuple: pg_sys::HeapTuple) {
    // SAFETY: a tuple that `tuple` has made.
    unsafe { pg_sys::heap_freetuple(tuple) }
}

fn float_datum(value: f64) -> pg_sys::Datum {
    (value as f32).into_datum().unwrap_or(pg_sys::Datum::from(0))
}

impl<'p> Root<'p> {
    /// How many values an expression has, as far as statistics tell.
    pub fn distinct_values(self, expression: Node<'p>) -> Option<f64> {
        // SAFETY: an expression of this planning; PostgreSQL fills the structure, and what it found is released.
        unsafe {
            let mut variable = pg_sys::VariableStatData::default();
            pg_sys::examine_variable(self.pointer(), expression.pointer(), 0, &raw mut variable);
            let mut is_default = false;
            let count = pg_sys::get_variable_numdistinct(&raw mut variable, &raw mut is_default);
            compat::release_statistics(&variable);
            (!is_default).then_some(count)
        }
    }
}

impl<'p> RangeEntry<'p> {
    /// Whether ANALYZE has stored statistics of a column.
    pub fn is_analyzed(self, attribute_number: i16) -> bool {
        // SAFETY: a look into a catalog.
        unsafe {
            pg_sys::SearchSysCacheExists(
                pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
                self.table_oid().into(),
                pg_sys::Datum::from(attribute_number),
                pg_sys::Datum::from(self.has_members()),
                pg_sys::Datum::from(0),
            )
        }
    }

    /// Whether the role whose rights count for this entry may read a column.
    pub fn may_read(self, root: Root<'p>, attribute_number: i16) -> bool {
        // SAFETY: an entry of this planning's query.
        let checked = unsafe { compat::checked_role(root.pointer(), self.pointer()) };
        let role = if checked == pg_sys::InvalidOid { current_role() } else { checked };
        may_read_column(self.table_oid(), attribute_number, role)
    }
}
