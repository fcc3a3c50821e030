// Functions of dates, times and timestamps. A timestamp with time zone is one in UTC, but for the functions of zones.
//
// Source: PostgreSQL 15, `timestamp.c` (`timestamp_part_common`, `timestamp_trunc`, `timestamp_pl_interval`,
// `timestamp_mi`, `timestamp_bin`, `float8_timestamptz`) and `date.c` (`extract_date`, `time_part_common`).
#pragma once

#include "float.cuh"
#include "integer.cuh"
#include "zone.cuh"

DEVICE int64_t without_year_zero(int64_t year) { return year > 0 ? year : year - 1; }

DEVICE int64_t date_field(uint32_t field, int64_t days) {
    const CivilDate date = date_of_days(days);
    const int64_t year = date.year;
    int64_t iso_year;
    switch (field) {
        case FIELD_DAY: return date.day;
        case FIELD_WEEK: return iso_week(days, &iso_year);
        case FIELD_MONTH: return date.month;
        case FIELD_QUARTER: return (date.month - 1) / 3 + 1;
        case FIELD_YEAR: return without_year_zero(year);
        case FIELD_DECADE: return year >= 0 ? year / 10 : -((8 - (year - 1)) / 10);
        case FIELD_CENTURY: return year > 0 ? (year + 99) / 100 : -((99 - (year - 1)) / 100);
        case FIELD_MILLENNIUM: return year > 0 ? (year + 999) / 1000 : -((999 - (year - 1)) / 1000);
        case FIELD_DAY_OF_WEEK: return day_of_week(days);
        case FIELD_ISO_DAY_OF_WEEK: return (day_of_week(days) + 6) % 7 + 1;
        case FIELD_DAY_OF_YEAR: return days - days_of_date(CivilDate{year, 1, 1}) + 1;
        case FIELD_EPOCH: return days * (DAY_MICROSECONDS / SECOND_MICROSECONDS);
        default: // FIELD_ISO_YEAR
            iso_week(days, &iso_year);
            return without_year_zero(iso_year);
    }
}

// A field of a time of day, in microseconds for the fields with a fraction.
DEVICE int64_t time_field(uint32_t field, int64_t time) {
    switch (field) {
        case FIELD_HOUR: return time / HOUR_MICROSECONDS;
        case FIELD_MINUTE: return time / MINUTE_MICROSECONDS % 60;
        case FIELD_EPOCH: return time;
        default: return time % MINUTE_MICROSECONDS;
    }
}

DEVICE int64_t timestamp_field(uint32_t field, int64_t timestamp) {
    if (field == FIELD_EPOCH) return timestamp;
    if (field <= FIELD_HOUR) return time_field(field, modulo_floor(timestamp, DAY_MICROSECONDS));
    return date_field(field, divide_floor(timestamp, DAY_MICROSECONDS));
}

// The date of a timestamp; infinity is the least or greatest number of either.
DEVICE int64_t date_of_timestamp(int64_t timestamp) {
    if (is_infinite_timestamp(timestamp)) return timestamp < 0 ? INT32_MIN : INT32_MAX;
    return divide_floor(timestamp, DAY_MICROSECONDS);
}

// Returns whether PostgreSQL does not have it.
DEVICE bool date_to_timestamp_overflows(int64_t days, int64_t *result) {
    if (!is_infinite_date(days)) return timestamp_overflows(days, 0, result);
    *result = days < 0 ? INT64_MIN : INT64_MAX;
    return false;
}

DEVICE CivilDate truncate_date(uint32_t field, const CivilDate &date) {
    const int64_t year = date.year;
    switch (field) {
        case FIELD_MONTH: return CivilDate{year, date.month, 1};
        case FIELD_QUARTER: return CivilDate{year, (date.month - 1) / 3 * 3 + 1, 1};
        case FIELD_YEAR: return CivilDate{year, 1, 1};
        case FIELD_DECADE: return CivilDate{year > 0 ? year / 10 * 10 : -((8 - (year - 1)) / 10) * 10, 1, 1};
        case FIELD_CENTURY:
            return CivilDate{year > 0 ? (year + 99) / 100 * 100 - 99 : -((99 - (year - 1)) / 100) * 100 + 1, 1, 1};
        default: // FIELD_MILLENNIUM
            return CivilDate{year > 0 ? (year + 999) / 1000 * 1000 - 999 : -((999 - (year - 1)) / 1000) * 1000 + 1, 1,
                             1};
    }
}

// The start of the unit that the timestamp is in. Returns whether PostgreSQL does not have it.
DEVICE bool truncate_overflows(uint32_t field, int64_t value, int64_t *result) {
    *result = value;
    if (is_infinite_timestamp(value)) return false;
    const int64_t days = divide_floor(value, DAY_MICROSECONDS);
    int64_t unit;
    switch (field) {
        case FIELD_MICROSECONDS: unit = 1; break;
        case FIELD_MILLISECONDS: unit = SECOND_MICROSECONDS / 1000; break;
        case FIELD_SECOND: unit = SECOND_MICROSECONDS; break;
        case FIELD_MINUTE: unit = MINUTE_MICROSECONDS; break;
        case FIELD_HOUR: unit = HOUR_MICROSECONDS; break;
        case FIELD_DAY: return timestamp_overflows(days, 0, result);
        case FIELD_WEEK: return timestamp_overflows(week_start(days), 0, result);
        default: return timestamp_overflows(days_of_date(truncate_date(field, date_of_days(days))), 0, result);
    }
    // Every unit divides a day; the first timestamp is a midnight.
    *result = value - modulo_floor(value, unit);
    return false;
}

// Months first, then days, then microseconds. Returns whether a step is a timestamp that PostgreSQL does not have.
DEVICE bool add_interval_overflows(int64_t start, const IntervalCell &interval, int64_t *result) {
    *result = start;
    if (is_infinite_timestamp(start)) return false;
    int64_t days = divide_floor(start, DAY_MICROSECONDS);
    const int64_t time = modulo_floor(start, DAY_MICROSECONDS);
    if (interval.months != 0) {
        days = days_of_date(add_months(date_of_days(days), interval.months));
        if (timestamp_overflows(days, time, result)) return true;
    }
    days += interval.days;
    if (timestamp_overflows(days, time, result)) return true;
    return add_overflows(*result, interval.microseconds, result) || *result < TIMESTAMP_MIN;
}

// The start of the stride that a timestamp is in, counted from an origin.
DEVICE Fault date_bin(int64_t timestamp, int64_t stride, int64_t origin, int64_t *result) {
    *result = timestamp;
    if (is_infinite_timestamp(timestamp)) return 0;
    if (is_infinite_timestamp(origin)) return ERROR_ORIGIN_RANGE;
    if (stride <= 0) return ERROR_STRIDE;
    int64_t distance;
    if (subtract_overflows(timestamp, origin, &distance)) return ERROR_INTERVAL_RANGE;
    // Between the two.
    const int64_t rest = distance % stride;
    *result = timestamp - rest;
    if (rest >= 0) return 0;
    return subtract_overflows(*result, stride, result) || *result < TIMESTAMP_MIN ? (Fault)ERROR_TIMESTAMP_RANGE : 0;
}

// The moment so many seconds after 1970 began, in PostgreSQL's steps. Returns whether PostgreSQL or 64 bits do not have it.
DEVICE bool seconds_overflow(double seconds, int64_t *result) {
    const double first = (double)(DATE_MIN * (DAY_MICROSECONDS / SECOND_MICROSECONDS));
    const double end = (double)(TIMESTAMP_END_DAYS * (DAY_MICROSECONDS / SECOND_MICROSECONDS));
    const int64_t epoch_seconds = POSTGRES_EPOCH_DAYS * (DAY_MICROSECONDS / SECOND_MICROSECONDS);
    if (is_infinite(seconds)) {
        *result = seconds < 0 ? INT64_MIN : INT64_MAX;
        return false;
    }
    if (!(seconds >= first && seconds < end)) return true;
    const int64_t since_2000 = (int64_t)rint((seconds - (double)epoch_seconds) * (double)SECOND_MICROSECONDS);
    return add_overflows(since_2000, epoch_seconds * SECOND_MICROSECONDS, result) || *result < TIMESTAMP_MIN ||
           is_infinite_timestamp(*result);
}

// The start of the unit that a moment is in, in a time zone. Units shorter than a day keep the offset of the moment. Returns
// whether PostgreSQL does not have it.
DEVICE bool truncate_in_zone_overflows(uint32_t field, const ZoneSteps *zone, int64_t utc, int64_t *result) {
    const int64_t offset = zone_offset(zone, utc);
    int64_t local, start;
    if (add_overflows(utc, offset, &local) || truncate_overflows(field, local, &start)) return true;
    if (field > FIELD_HOUR) return instant_overflows(zone, start, result);
    return subtract_overflows(start, offset, result) || *result < TIMESTAMP_MIN;
}

// The rare functions of dates and times.
DEVICE Fault run_datetime(const Instruction &in, Cell *target, const Cell &a_cell, const Cell &b_cell, const Cell &c_cell,
                          const Cell *constants) {
    const int64_t a = integer_of(a_cell), b = integer_of(b_cell);
    int64_t result = 0;
    switch (in.opcode) {
        case OPCODE_EXTRACT_TIME: result = time_field(in.mode, a); break;
        case OPCODE_EXTRACT_TIMESTAMP:
            if (is_infinite_timestamp(a)) return ERROR_INFINITE_FIELD;
            result = timestamp_field(in.mode, a);
            break;
        case OPCODE_TRUNCATE_TIMESTAMP:
            if (truncate_overflows(in.mode, a, &result)) return ERROR_TIMESTAMP_RANGE;
            break;
        case OPCODE_ADD_DAYS:
        case OPCODE_SUBTRACT_DAYS:
            result = in.opcode == OPCODE_ADD_DAYS ? a + b : a - b; // of 32 bits
            if (is_infinite_date(a)) {
                result = a;
            } else if (!is_date(result) || result != (int32_t)result) {
                return ERROR_DATE_RANGE;
            }
            break;
        case OPCODE_DAYS_BETWEEN:
            if (is_infinite_date(a) || is_infinite_date(b)) return ERROR_INFINITE_DATES;
            result = a - b; // of 32 bits
            if (result != (int32_t)result) return ERROR_DATE_RANGE;
            break;
        case OPCODE_DATE_TO_TIMESTAMP:
            if (date_to_timestamp_overflows(a, &result)) return ERROR_DATE_TO_TIMESTAMP;
            break;
        case OPCODE_TIMESTAMP_TO_TIME:
            if (is_infinite_timestamp(a)) return ERROR_INFINITE_FIELD;
            result = modulo_floor(a, DAY_MICROSECONDS);
            break;
        case OPCODE_ADD_INTERVAL:
            if (add_interval_overflows(a, interval_of(b_cell), &result)) return ERROR_TIMESTAMP_RANGE;
            break;
        case OPCODE_TIMESTAMP_DIFFERENCE:
            if (is_infinite_timestamp(a) || is_infinite_timestamp(b)) return ERROR_INFINITE_TIMESTAMPS;
            if (subtract_overflows(a, b, &result)) return ERROR_INTERVAL_RANGE;
            set_interval(target, result % DAY_MICROSECONDS, (int32_t)(result / DAY_MICROSECONDS), 0);
            return 0;
        case OPCODE_DATE_BIN: {
            const Fault fault = date_bin(a, b, integer_of(c_cell), &result);
            if (fault != 0) return fault;
            break;
        }
        case OPCODE_TO_TIMESTAMP:
            if (seconds_overflow(float_of(a_cell), &result)) return ERROR_NO_MOMENT;
            break;
        case OPCODE_LOCAL_TIME:
        case OPCODE_INSTANT:
        case OPCODE_TRUNCATE_IN_ZONE: {
            const ZoneSteps *zone = (const ZoneSteps *)(constants + b_cell.low);
            result = a;
            if (is_infinite_timestamp(a)) break;
            const bool overflow = in.opcode == OPCODE_LOCAL_TIME ? local_time_overflows(zone, a, &result)
                                  : in.opcode == OPCODE_INSTANT  ? instant_overflows(zone, a, &result)
                                                                 : truncate_in_zone_overflows(in.mode, zone, a, &result);
            if (overflow) return ERROR_TIMESTAMP_RANGE;
            break;
        }
        default: // OPCODE_COMPARE_INTERVAL
            result = ordering_holds(in.mode,
                                    compare_numbers(interval_span(interval_of(a_cell)), interval_span(interval_of(b_cell))));
    }
    set_integer(target, result);
    return 0;
}
