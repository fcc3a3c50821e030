// The offset of a time zone at a moment and at a local time, from a table among the constants.
//
// Local times that a transition skips belong to the offset before it, those that it repeats to the offset after it: the table
// by local time is made so.
//
// Source: src/plan/zone.rs, which makes the tables and says where PostgreSQL does the same.
#pragma once

#include "calendar.cuh"
#include "integer.cuh"

// 400 years, after which a rule that holds for ever repeats.
#define CYCLE_MICROSECONDS (ERA_DAYS * DAY_MICROSECONDS)

// The moment so many cycles earlier or later that is in the cycle that begins at `begin`.
DEVICE int64_t within_cycle(int64_t at, int64_t begin) {
    const int64_t into = modulo_floor(at, CYCLE_MICROSECONDS) - modulo_floor(begin, CYCLE_MICROSECONDS);
    return begin + (into < 0 ? into + CYCLE_MICROSECONDS : into);
}

// How many microseconds local time is ahead, by the moments that the steps start at.
DEVICE int64_t zone_offset(const ZoneSteps *zone, int64_t at) {
    const ZoneStep *steps = (const ZoneStep *)(zone + 1);
    const uint32_t step_count = zone->step_count;
    if (step_count == 0) return steps[0].offset;
    const int64_t first = steps[0].start, last = steps[step_count - 1].start;
    if (at < first) {
        if ((zone->repeats & ZONE_REPEATS_BEFORE) == 0) return steps[0].offset;
        at = within_cycle(at, first);
    } else if (at >= last) {
        if ((zone->repeats & ZONE_REPEATS_AFTER) == 0) return steps[step_count].offset;
        at = within_cycle(at, last - CYCLE_MICROSECONDS);
    }
    const uint32_t *stretches = (const uint32_t *)(steps + step_count + 1);
    const uint64_t stretch = ((uint64_t)at - (uint64_t)first) >> zone->stretch_shift;
    uint32_t place = stretches[stretch < zone->stretch_count ? stretch : zone->stretch_count - 1];
    while (steps[place].start <= at) place++;
    return steps[place].offset;
}

// The local time at a moment. Returns whether PostgreSQL does not have it.
DEVICE bool local_time_overflows(const ZoneSteps *zone, int64_t utc, int64_t *local) {
    return add_overflows(utc, zone_offset(zone, utc), local) || *local < TIMESTAMP_MIN;
}

// The moment of a local time. Returns whether PostgreSQL does not have it.
DEVICE bool instant_overflows(const ZoneSteps *zone, int64_t local, int64_t *utc) {
    const ZoneSteps *by_local = zone + zone->cell_count;
    return subtract_overflows(local, zone_offset(by_local, local), utc) || *utc < TIMESTAMP_MIN;
}
