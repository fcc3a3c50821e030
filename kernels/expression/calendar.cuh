// The proleptic Gregorian calendar, and the ranges of PostgreSQL's dates and timestamps.
//
// Units: days and microseconds count from 1970-01-01. A year is astronomical: 0 is 1 BC, -1 is 2 BC.
//
// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", 2013, which agree with `date2j` and `j2date`
// of PostgreSQL's `datetime.c`; for the days that fit it, Neri and Schneider, "Euclidean affine functions and their
// application to calendar algorithms", Software: Practice and Experience 2023, section 6; ranges from PostgreSQL 15,
// `datatype/timestamp.h`.
#pragma once

#include "cell16.cuh"

#define SECOND_MICROSECONDS 1000000ll
#define MINUTE_MICROSECONDS (60 * SECOND_MICROSECONDS)
#define HOUR_MICROSECONDS (3600 * SECOND_MICROSECONDS)
#define DAY_MICROSECONDS (86400 * SECOND_MICROSECONDS)

// Days from 2000-01-01, where PostgreSQL counts from, to 1970-01-01.
#define POSTGRES_EPOCH_DAYS 10957ll
// 4714-11-24 BC, Julian day 0, and the day after 5874897-12-31.
#define DATE_MIN (-2451545ll + POSTGRES_EPOCH_DAYS)
#define DATE_END (2147483494ll - 2451545ll + POSTGRES_EPOCH_DAYS)
// The day after the last of PostgreSQL's timestamps, 294276-12-31.
#define TIMESTAMP_END_DAYS (109203528ll - 2451545ll + POSTGRES_EPOCH_DAYS)
// Midnight of DATE_MIN. PostgreSQL's latest timestamps, from 294247 on, are beyond 64 bits here.
#define TIMESTAMP_MIN (DATE_MIN * DAY_MICROSECONDS)
static_assert(TIMESTAMP_MIN == -211813488000000000ll + POSTGRES_EPOCH_DAYS * DAY_MICROSECONDS, "as in PostgreSQL");

// Days in four centuries, and from 0000-03-01 to 1970-01-01.
#define ERA_DAYS 146097
#define ERA_EPOCH_DAYS 719468
// Years before the year 0 from which the fast algorithm counts: whole cycles of 400.
#define FAST_YEARS (400 * 82)
// Days from there to 1970-01-01.
#define FAST_EPOCH_DAYS (ERA_DAYS * 82ll + ERA_EPOCH_DAYS)
// The last day for which four times the days and three fit 32 bits.
#define FAST_DAYS_MAX ((0xffffffffu - 3) / 4)

// Whether PostgreSQL's `infinity` or `-infinity`, which parameters and constants may be.
DEVICE bool is_infinite_date(int64_t days) { return days == INT32_MIN || days == INT32_MAX; }
DEVICE bool is_infinite_timestamp(int64_t timestamp) { return timestamp == INT64_MIN || timestamp == INT64_MAX; }

struct CivilDate {
    int64_t year, month, day;
};

DEVICE int64_t divide_floor(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return a - quotient * b < 0 ? quotient - 1 : quotient;
}
// For positive b.
DEVICE int64_t modulo_floor(int64_t a, int64_t b) {
    int64_t rest = a % b;
    return rest < 0 ? rest + b : rest;
}

// The date of a day counted from 1 March of the year -FAST_YEARS.
DEVICE CivilDate date_of_shifted_days(uint32_t shifted) {
    const uint32_t quarter_days = 4 * shifted + 3;
    const uint32_t century = quarter_days / ERA_DAYS;
    const uint32_t day_of_century = quarter_days % ERA_DAYS / 4;
    const uint64_t product = 2939745ull * (4 * day_of_century + 3);
    const uint32_t year_of_century = (uint32_t)(product >> 32);
    const uint32_t day_of_year = (uint32_t)product / 2939745u / 4;
    const uint32_t scaled_month = 2141 * day_of_year + 197913;
    const int64_t month = scaled_month >> 16, day = (scaled_month & 0xffff) / 2141;
    // January and February end the shifted year.
    const bool next = day_of_year >= 306;
    const int64_t year = 100 * (int64_t)century + year_of_century - FAST_YEARS + (next ? 1 : 0);
    return CivilDate{year, next ? month - 12 : month, day + 1};
}

DEVICE CivilDate date_of_any_days(int64_t days) {
    const int64_t shifted = days + ERA_EPOCH_DAYS;
    const int64_t era = divide_floor(shifted, ERA_DAYS);
    const int64_t day_of_era = modulo_floor(shifted, ERA_DAYS);
    const int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t shifted_month = (5 * day_of_year + 2) / 153;
    const int64_t day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    const int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    return CivilDate{year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day};
}

DEVICE CivilDate date_of_days(int64_t days) {
    const int64_t shifted = days + FAST_EPOCH_DAYS;
    if (shifted >= 0 && shifted <= (int64_t)FAST_DAYS_MAX) return date_of_shifted_days((uint32_t)shifted);
    return date_of_any_days(days);
}

DEVICE int64_t days_of_date(const CivilDate &date) {
    const int64_t year = date.year - (date.month <= 2 ? 1 : 0);
    const int64_t era = divide_floor(year, 400);
    const int64_t year_of_era = modulo_floor(year, 400);
    const int64_t shifted_month = (date.month + 9) % 12;
    const int64_t day_of_year = (153 * shifted_month + 2) / 5 + date.day - 1;
    const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * ERA_DAYS + day_of_era - ERA_EPOCH_DAYS;
}

DEVICE int64_t month_length(int64_t year, int64_t month) {
    if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// The same day some months later, or the last day of that month if it is shorter.
DEVICE CivilDate add_months(const CivilDate &date, int64_t months) {
    const int64_t month_index = date.year * 12 + date.month - 1 + months;
    const int64_t year = divide_floor(month_index, 12), month = modulo_floor(month_index, 12) + 1;
    const int64_t length = month_length(year, month);
    return CivilDate{year, month, date.day < length ? date.day : length};
}

// Sunday 0 to Saturday 6; 1970-01-01 was a Thursday.
DEVICE int64_t day_of_week(int64_t days) { return modulo_floor(days + 4, 7); }

// The Monday of the day's week.
DEVICE int64_t week_start(int64_t days) { return days - (day_of_week(days) + 6) % 7; }

// The ISO year and week of a day: those of the week's Thursday.
DEVICE int64_t iso_week(int64_t days, int64_t *year) {
    const int64_t thursday = week_start(days) + 3;
    *year = date_of_days(thursday).year;
    return (thursday - days_of_date(CivilDate{*year, 1, 1})) / 7 + 1;
}

DEVICE bool is_date(int64_t days) { return days >= DATE_MIN && days < DATE_END; }

// A day and a time of it. Returns whether PostgreSQL or 64 bits do not have it.
DEVICE bool timestamp_overflows(int64_t days, int64_t microseconds, int64_t *timestamp) {
    const int128 wide = (int128)days * DAY_MICROSECONDS + microseconds;
    *timestamp = (int64_t)wide;
    return (int128)*timestamp != wide || *timestamp < TIMESTAMP_MIN;
}
