// What sums of floats are: places for their words, and states or rounded floats of them. Head of float_sums.cuh.
//
// Grid:    any number of blocks; threads stride over the groups.
// Inputs:  words of every group, of which carry_floats has taken out the carries but for count_float_words and itself.
// Outputs: count_float_words: a word count a group. measure_float_states: the bytes of a group's state, 0 for a group without values.
//          write_float_states: states, their cells and validity. round_float_sums: floats and validity; it changes the words.
// Status:  ERROR_FLOAT_OVERFLOW for a finite sum that the result's type does not hold.
// Traffic: the words of every group, read and, by carry_floats, written; a cell a group.
#include "float_sums.cuh"

DEVICE uint64_t first_group() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t group_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// A number's words.
struct FloatWords {
    int64_t *words;
    uint32_t first; // the place of the first among those of all numbers
    uint32_t width;
};

// The words of a group's sum, and of its squares.
DEVICE FloatWords sum_words(const FinishFloats &args, uint64_t number) {
    const FloatWindow sum = sum_of_group(((const FloatGroup *)args.measured)[number]);
    return FloatWords{(int64_t *)words_of_group(args.words, args.offsets, number) + args.deviates, sum.first, sum.width()};
}
DEVICE FloatWords square_words(const FinishFloats &args, uint64_t number) {
    const FloatWindow squares = squares_of_group(((const FloatGroup *)args.measured)[number]);
    const FloatWords sum = sum_words(args, number);
    return FloatWords{sum.words + sum.width, squares.first, squares.width()};
}

KERNEL(count_float_words, FinishFloats, BLOCK_THREADS) {
    for (uint64_t number = first_group(); number < args.group_count; number += group_step()) {
        const FloatGroup &group = ((const FloatGroup *)args.measured)[number];
        ((uint32_t *)args.lengths)[number] = args.deviates + sum_of_group(group).width() + squares_of_group(group).width();
    }
}

// Leaves 32 bits in each word but the last.
DEVICE void carry(const FloatWords &number) {
    int64_t carried = 0;
    for (uint32_t word = 0; word < number.width; word++) {
        const int64_t sum = number.words[word] + carried;
        const bool is_last = word + 1 == number.width;
        number.words[word] = is_last ? sum : sum & 0xffffffffll;
        carried = sum >> 32;
    }
}

KERNEL(carry_floats, FinishFloats, BLOCK_THREADS) {
    for (uint64_t number = first_group(); number < args.group_count; number += group_step()) {
        carry(sum_words(args, number));
        carry(square_words(args, number));
    }
}

// The words that a state has of a number: one more than the number for what its last has above 32 bits, without zeros below and
// without those above that only repeat the sign.
struct StateWords {
    FloatWords number;
    uint32_t skipped, count;

    METHOD uint32_t word(uint32_t place) const {
        if (place < number.width) return (uint32_t)number.words[place];
        return (uint32_t)(uint64_t)(number.words[number.width - 1] >> 32);
    }
};

DEVICE StateWords state_words(const FloatWords &number) {
    StateWords state{number, 0, 0};
    while (state.skipped < number.width && number.words[state.skipped] == 0) state.skipped++;
    if (state.skipped == number.width) return state;
    uint32_t end = number.width + 1;
    while (end > state.skipped + 1 && (int32_t)state.word(end - 1) == (int32_t)state.word(end - 2) >> 31) end--;
    state.count = end - state.skipped;
    return state;
}

// Writes a number's words to an address; tells the place of the first one among those of all numbers, and how many they are.
DEVICE void write_words(uint64_t address, const FloatWords &number, uint32_t *first, uint32_t *count) {
    const StateWords state = state_words(number);
    uint32_t *target = (uint32_t *)address;
    for (uint32_t place = 0; place < state.count; place++) target[place] = state.word(state.skipped + place);
    *first = state.count ? number.first + state.skipped : 0;
    *count = state.count;
}

KERNEL(measure_float_states, FinishFloats, BLOCK_THREADS) {
    for (uint64_t number = first_group(); number < args.group_count; number += group_step()) {
        const bool has_values = ((const FloatGroup *)args.measured)[number].marks != 0;
        const uint32_t words = state_words(sum_words(args, number)).count + state_words(square_words(args, number)).count;
        ((uint32_t *)args.lengths)[number] = has_values ? FLOAT_STATE_BYTES + 4 * words : 0;
    }
}

KERNEL(write_float_states, FinishFloats, BLOCK_THREADS) {
    for (uint64_t number = first_group(); number < args.group_count; number += group_step()) {
        const uint32_t length = ((const uint32_t *)args.lengths)[number];
        const uint64_t address = args.bytes + ((const uint64_t *)args.byte_offsets)[number];
        ((uint8_t *)args.validity)[number] = length != 0;
        ((StringCell *)args.values)[number] = StringCell{length ? address : 0, length, 0};
        if (!length) continue;
        FloatState state{((const FloatGroup *)args.measured)[number].marks, 0, 0, 0, 0, 0, address + FLOAT_STATE_BYTES};
        write_words(state.words, sum_words(args, number), &state.first_word, &state.word_count);
        write_words(state.words + 4 * state.word_count, square_words(args, number), &state.first_square_word, &state.square_word_count);
        if (args.deviates) state.count = *words_of_group(args.words, args.offsets, number);
        write_head(address, state);
    }
}

// 2^exponent, a normal number.
DEVICE double power_of_two(int32_t exponent) { return __builtin_bit_cast(double, (uint64_t)(exponent + 1023) << 52); }

// digits * 2^exponent, which is exact or infinite. In two steps, of which the first does not leave the normal numbers.
DEVICE double scaled(uint64_t digits, int32_t exponent) {
    exponent = exponent < -1074 ? -1074 : exponent > 1100 ? 1100 : exponent;
    const int32_t half = exponent / 2;
    return (double)digits * power_of_two(half) * power_of_two(exponent - half);
}

DEVICE uint32_t bit_length(uint128 bits) {
    const uint64_t high = (uint64_t)(bits >> 64);
    return high ? 128 - (uint32_t)__clzll(high) : 64 - (uint32_t)__clzll((uint64_t)bits);
}

// The float next to a number, in a format of so many digits whose least number is 2^least; infinite if it is too great.
DEVICE double round_number(const FloatWords &number, int32_t digits_max, int32_t least) {
    if (number.width == 0) return 0;
    const bool is_negative = number.words[number.width - 1] < 0;
    if (is_negative) {
        for (uint32_t word = 0; word < number.width; word++) number.words[word] = -number.words[word];
        carry(number);
    }
    uint32_t end = number.width;
    while (end > 0 && number.words[end - 1] == 0) end--;
    if (end == 0) return 0;
    // The highest bits, a multiple of 2^exponent; whether a bit below them is set.
    const uint32_t start = end > 3 ? end - 3 : 0;
    uint128 bits = 0;
    for (uint32_t word = end; word > start; word--) bits = (bits << 32) + (uint64_t)number.words[word - 1];
    bool is_more = false;
    for (uint32_t word = 0; word < start; word++) is_more = is_more || number.words[word] != 0;
    const int32_t exponent = -1074 + 32 * (int32_t)(number.first + start);
    int32_t cut = (int32_t)bit_length(bits) - digits_max;
    if (cut < least - exponent) cut = least - exponent;
    if (cut < 0) cut = 0;
    // Beyond all bits is less than half of the least number.
    uint64_t digits = cut < 128 ? (uint64_t)(bits >> cut) : 0;
    if (cut > 0 && cut < 128) {
        const uint128 rest = bits & (((uint128)1 << cut) - 1), half = (uint128)1 << (cut - 1);
        // Halfway between two numbers the even one is nearer.
        if (rest > half || (rest == half && (is_more || (digits & 1)))) digits++;
    }
    const double value = scaled(digits, exponent + cut);
    return is_negative ? -value : value;
}

// NaN, an infinity, or -0 of nothing else; returns false for a finite sum.
DEVICE bool special_sum(uint32_t marks, double *value) {
    const uint32_t infinities = marks & (FLOAT_INFINITY | FLOAT_NEGATIVE_INFINITY);
    const double infinity = __builtin_bit_cast(double, 0x7ff0000000000000ull);
    if ((marks & FLOAT_NAN) || infinities == (FLOAT_INFINITY | FLOAT_NEGATIVE_INFINITY)) {
        *value = __builtin_bit_cast(double, 0x7ff8000000000000ull);
    } else if (infinities) {
        *value = infinities == FLOAT_INFINITY ? infinity : -infinity;
    } else if (!(marks & FLOAT_NOT_NEGATIVE_ZERO)) {
        *value = -0.0;
    } else {
        return false;
    }
    return true;
}

KERNEL(round_float_sums, FinishFloats, BLOCK_THREADS) {
    const bool is_single = args.cell_bytes == 4;
    const double greatest = is_single ? 3.4028234663852886e38 : 1.7976931348623157e308;
    for (uint64_t number = first_group(); number < args.group_count; number += group_step()) {
        const uint32_t marks = ((const FloatGroup *)args.measured)[number].marks;
        ((uint8_t *)args.validity)[number] = marks != 0;
        double value = 0;
        if (marks && !special_sum(marks, &value)) {
            value = round_number(sum_words(args, number), is_single ? 24 : 53, is_single ? -149 : -1074);
            if (value > greatest || value < -greatest) report_error(args.status, ERROR_FLOAT_OVERFLOW);
        }
        if (is_single) ((float *)args.values)[number] = (float)value;
        else ((double *)args.values)[number] = value;
    }
}
