// Byte-code of scalar expressions: what evaluate_program interprets.
//
// A program computes one row. Its registers and constants are cells of 16 bytes, or pairs of them in the kernel for
// programs that have decimals of more than 38 digits:
//
//   integer   low: int64_t. booleans (0, 1), integers, dates, times, timestamps, decimals of at most 18 digits
//   wide      low, high: __int128. decimals of 19 to 38 digits
//   int256    two cells. decimals of more digits
//   float     low: double. `real` is held as the double of the same value
//   text      StringCell; uuid: 16 bytes in order; interval: IntervalCell
//
// A register is NULL or not; a constant never is. An instruction does nothing in rows that an enclosing PUSH or NARROW
// has made inactive, and a strict instruction gives NULL where an operand is NULL, so that nothing fails there.
//
// Invariants: every PUSH has its POP further down; `skip` of PUSH and of NARROW is the place of that POP. A register is
// written before it is read in every row that reads it.
//
// Source: a register machine interpreted by every thread for a row of its own is ours; masks instead of branches are
// those of Levinthal, Porter, "Chap - a SIMD graphics processor", SIGGRAPH 1984.
#pragma once

#include <stdint.h>

#include "column.h"

// Registers of a program, of one for the kernels for small and for uniform programs, and of one with pairs of cells,
// which take as much memory a thread as PROGRAM_REGISTERS cells.
#define PROGRAM_REGISTERS 64
#define PROGRAM_REGISTERS_SMALL 16
#define PROGRAM_REGISTERS_INT256 32
// Input columns that a program may load, and output columns.
#define PROGRAM_COLUMNS_MAX 96
#define PROGRAM_OUTPUTS_MAX 64
// Nested PUSHes: a bit each.
#define PROGRAM_DEPTH_MAX 64
// Marks an operand that is the number of a constant; the others are registers.
#define OPERAND_CONSTANT 0x8000u
// A text that a function makes has at most this many bytes, as in PostgreSQL.
#define TEXT_BYTES_MAX 0x3fffffffu

typedef struct Instruction {
    uint16_t opcode; // Opcode
    uint16_t target; // register; of STORE_ the number of the output
    uint16_t a;      // operands: registers or constants; of LOAD_ the number of the column
    uint16_t b;
    uint16_t c;
    uint16_t mode;   // by opcode
    uint32_t detail; // by opcode; `fault`: an ErrorCode and its detail from bit 8 on
} Instruction;

// X(opcode). The order is the numbering and part of the contract with the host.
//
// After PROGRAM_STRICT every operand that an opcode does not use is a constant.
#define PROGRAM_OPCODES(X)                                                                                       \
    /* Activity. mode: Condition on a; detail: skip. */                                                          \
    X(PUSH)                                                                                                      \
    X(NARROW)                                                                                                    \
    X(POP)                                                                                                       \
    /* Columns. */                                                                                               \
    X(LOAD_BOOL)                                                                                                 \
    X(LOAD_INT16)                                                                                                \
    X(LOAD_INT32)                                                                                                \
    X(LOAD_INT64)                                                                                                \
    X(LOAD_FLOAT32)                                                                                              \
    X(LOAD_CELL)                                                                                                 \
    X(LOAD_INT256)                                                                                               \
    X(STORE_INT8)                                                                                                \
    X(STORE_INT16)                                                                                               \
    X(STORE_INT32)                                                                                               \
    X(STORE_INT64)                                                                                               \
    X(STORE_FLOAT32)                                                                                             \
    X(STORE_CELL)                                                                                                \
    X(STORE_INT256)                                                                                              \
    X(STORE_FLAG)                                                                                                \
    /* Choices. */                                                                                               \
    X(MOVE)                                                                                                      \
    X(SET_NULL)                                                                                                  \
    X(AND)                                                                                                       \
    X(OR)                                                                                                        \
    X(TEST)     /* mode: Condition on a */                                                                       \
    X(SELECT)   /* a is true ? b : c */                                                                          \
    X(COALESCE) /* a is NULL ? b : a */                                                                          \
    X(NULL_IF)  /* b is true ? NULL : a */                                                                       \
    X(CHOOSE)   /* a is NULL or c is true ? b : a */                                                             \
    X(DISTINCT) /* neither a nor b is NULL ? c : both are NULL ? mode : 1 - mode */                              \
    /* From here on strict. Ordering: mode is a set of OrderingBit. Ranges: mode is a count of bits. */          \
    X(NOT)                                                                                                       \
    X(NOT_ZERO)                                                                                                  \
    X(COMPARE_INTEGER)                                                                                           \
    X(COMPARE_WIDE)                                                                                              \
    X(COMPARE_FLOAT)                                                                                             \
    X(ADD_INTEGER)                                                                                               \
    X(SUBTRACT_INTEGER)                                                                                          \
    X(MULTIPLY_INTEGER)                                                                                          \
    X(CHECK_INTEGER)                                                                                             \
    X(WIDEN)                                                                                                     \
    X(MULTIPLY_INTO_WIDE)                                                                                        \
    X(ADD_WIDE)                                                                                                  \
    X(SUBTRACT_WIDE)                                                                                             \
    X(TIMESTAMP_TO_DATE)                                                                                         \
    X(EXTRACT_DATE) /* mode: ProgramField */                                                                     \
    /* Integers and decimals. */                                                                                 \
    X(DIVIDE_INTEGER)                                                                                            \
    X(MODULO_INTEGER)                                                                                            \
    X(ROUND_INTEGER) /* a / b, half away from zero; b > 0 */                                                     \
    X(BIT_AND) /* mode of these: the bits of the type */                                                         \
    X(BIT_OR)                                                                                                    \
    X(BIT_XOR)                                                                                                   \
    X(BIT_NOT)                                                                                                   \
    X(SHIFT_LEFT)                                                                                                \
    X(SHIFT_RIGHT)                                                                                               \
    X(LIMIT_INTEGER) /* a, a fault unless -b < a < b */                                                          \
    X(NARROW_WIDE)                                                                                               \
    X(MULTIPLY_WIDE)                                                                                             \
    X(ROUND_WIDE)                                                                                                \
    X(LIMIT_WIDE)                                                                                                \
    X(SIGN_WIDE)                                                                                                 \
    X(COMPARE_SCALED) /* detail: powers of ten that a and, from bit 8 on, b are multiplied by */                 \
    X(MODULO_WIDE)    /* detail: as of COMPARE_SCALED */                                                         \
    X(ROUND_DECIMAL)  /* mode: Rounding of a to b digits; detail: scale of a, scale of the result */             \
    X(DIVIDE_DECIMAL) /* a / b to c digits; detail: scales of a, of b and of the result, 8 bits each */          \
    X(LEADING_GROUP)  /* of a, with its display scale b; detail: scale */                                        \
    X(QUOTIENT_SCALE) /* of two LEADING_GROUPs */                                                                \
    /* Floats. mode of these: FloatForm. */                                                                      \
    X(ADD_FLOAT)                                                                                                 \
    X(SUBTRACT_FLOAT)                                                                                            \
    X(MULTIPLY_FLOAT)                                                                                            \
    X(DIVIDE_FLOAT)                                                                                              \
    X(NEGATE_FLOAT)                                                                                              \
    X(ABSOLUTE_FLOAT)                                                                                            \
    X(SIGN_FLOAT)                                                                                                \
    X(ROUND_FLOAT) /* mode: Rounding */                                                                          \
    X(SQUARE_ROOT)                                                                                               \
    X(INTEGER_TO_FLOAT)                                                                                          \
    X(WIDE_TO_FLOAT) /* detail: scale */                                                                         \
    X(DOUBLE_TO_REAL)                                                                                            \
    X(FLOAT_TO_INTEGER)                                                                                          \
    /* Dates and times. mode: ProgramField. */                                                                   \
    X(EXTRACT_TIME)                                                                                              \
    X(EXTRACT_TIMESTAMP)                                                                                         \
    X(TRUNCATE_TIMESTAMP)                                                                                        \
    X(ADD_DAYS)                                                                                                  \
    X(SUBTRACT_DAYS)                                                                                             \
    X(DAYS_BETWEEN)                                                                                              \
    X(DATE_TO_TIMESTAMP)                                                                                         \
    X(TIMESTAMP_TO_TIME)                                                                                         \
    X(ADD_INTERVAL)                                                                                              \
    X(TIMESTAMP_DIFFERENCE)                                                                                      \
    X(DATE_BIN)         /* the start of the stride b, counted from c, that a is in */                            \
    X(TO_TIMESTAMP)     /* of seconds */                                                                         \
    X(LOCAL_TIME)       /* at the moment a; b: a time zone's first cell and their count */                       \
    X(INSTANT)          /* of the local time a; b: as of LOCAL_TIME */                                           \
    X(TRUNCATE_IN_ZONE) /* the moment a; b: as of LOCAL_TIME */                                                  \
    X(COMPARE_INTERVAL)                                                                                          \
    /* Comparisons of cells of 16 bytes. */                                                                      \
    X(COMPARE_TEXT)                                                                                              \
    X(COMPARE_UUID)                                                                                              \
    X(SEARCH) /* whether a is among sorted constants; b: the first one's cell and count; mode: ProgramOrder */   \
    /* Text that exists already. */                                                                              \
    X(LIKE)   /* mode: 1 to fold ASCII letters */                                                                \
    X(SUBSTRING)                                                                                                 \
    X(SUBSTRING_FROM)                                                                                            \
    X(LEFT)                                                                                                      \
    X(RIGHT)                                                                                                     \
    X(TRIM) /* mode: TrimBit set */                                                                              \
    X(LENGTH)                                                                                                    \
    X(OCTET_LENGTH)                                                                                              \
    X(POSITION)                                                                                                  \
    X(STARTS_WITH)                                                                                               \
    X(MATCH_TABLE) /* whether a part of a matches; b: a table of src/gpu/program/automaton.rs */                 \
    X(SPLIT_PART)                                                                                                \
    /* Text that is made. */                                                                                     \
    X(FOLD_TEXT) /* mode: 1 for upper */                                                                         \
    X(MAP_TEXT)  /* each character of a by b: a table as src/engine/character_case.rs lays it out */                \
    X(CONCAT)                                                                                                    \
    X(REPLACE)                                                                                                   \
    X(PAD_BLANKS)                                                                                                \
    X(PAD_TEXT) /* a to b characters by c; mode: 1 at the start */                                               \
    X(REPEAT)                                                                                                    \
    X(REVERSE)                                                                                                   \
    X(TRANSLATE)                                                                                                 \
    X(FORMAT_MOMENT) /* a timestamp; b: a table of src/gpu/program/moment_pieces.rs */                           \
    X(WRITE_TEXT) /* a as text; mode: WrittenText */                                                             \
    /* 256 bits. What has a name above is the same as there. */                                                  \
    X(WIDEN_INT256)  /* of 128 bits */                                                                           \
    X(NARROW_INT256) /* to 128 bits */                                                                           \
    X(ADD_INT256)                                                                                                \
    X(SUBTRACT_INT256)                                                                                           \
    X(MULTIPLY_INT256)                                                                                           \
    X(ROUND_INT256)                                                                                              \
    X(LIMIT_INT256)                                                                                              \
    X(SIGN_INT256)                                                                                               \
    X(COMPARE_INT256) /* as COMPARE_SCALED */                                                                    \
    X(MODULO_INT256)                                                                                             \
    X(ROUND_DECIMAL_INT256)                                                                                      \
    X(DIVIDE_INT256) /* as DIVIDE_DECIMAL */                                                                     \
    X(LEADING_GROUP_INT256)                                                                                      \
    X(INT256_TO_FLOAT)

enum Opcode : uint16_t {
#define PROGRAM_OPCODE(name) OPCODE_##name,
    PROGRAM_OPCODES(PROGRAM_OPCODE)
#undef PROGRAM_OPCODE
};

// The first strict opcode, the first of those that are rare and large, the first of those that the kernel for small
// programs has not: functions of text, and the first of those that only the kernel with pairs of cells has.
#define PROGRAM_STRICT OPCODE_NOT
#define PROGRAM_RARE OPCODE_DIVIDE_INTEGER
#define PROGRAM_TEXT OPCODE_LIKE
#define PROGRAM_INT256 OPCODE_WIDEN_INT256

// A piece of a format of timestamps. Its flags and an argument follow it in a table: a byte, digits, letters of a name at most, or 1 for
// points in an abbreviation.
enum MomentPiece : uint16_t {
    PIECE_BYTE,
    PIECE_ERA,
    PIECE_HALF_DAY,
    PIECE_DAY_NAME,
    PIECE_MONTH_NAME,
    PIECE_ROMAN_MONTH,
    PIECE_CENTURY,
    PIECE_DAY_OF_YEAR,
    PIECE_DAY_OF_MONTH,
    PIECE_DAY_OF_WEEK,
    PIECE_FRACTION,
    PIECE_HOUR24,
    PIECE_HOUR12,
    PIECE_ISO_DAY_OF_YEAR,
    PIECE_ISO_DAY_OF_WEEK,
    PIECE_ISO_WEEK,
    PIECE_ISO_YEAR,
    PIECE_JULIAN_DAY,
    PIECE_MINUTE,
    PIECE_MONTH,
    PIECE_QUARTER,
    PIECE_SECOND_OF_DAY,
    PIECE_SECOND,
    PIECE_WEEK,
    PIECE_WEEK_OF_MONTH,
    PIECE_YEAR,
    PIECE_YEAR_WITH_COMMA,
};

// Flags of a piece.
#define PIECE_FILLED 1
#define PIECE_ORDINAL_UPPER 2
#define PIECE_ORDINAL_LOWER 4
#define PIECE_UPPER 8
#define PIECE_LOWER 16

enum Condition : uint16_t {
    CONDITION_ALWAYS = 0,
    CONDITION_NULL = 1,
    CONDITION_NOT_NULL = 2,
    CONDITION_TRUE = 3,
    CONDITION_NOT_TRUE = 4,
    CONDITION_FALSE = 5,
    CONDITION_NOT_FALSE = 6,
};

enum OrderingBit : uint16_t { ORDERING_LESS = 1, ORDERING_EQUAL = 2, ORDERING_GREATER = 4 };

enum TrimBit : uint16_t { TRIM_LEADING = 1, TRIM_TRAILING = 2 };

// Of floats: the type, and whether what PostgreSQL reports of one operator is reported.
enum FloatForm : uint16_t { FORM_DOUBLE = 0, FORM_REAL = 1, FORM_UNCHECKED = 2 };

enum Rounding : uint16_t { ROUNDING_ROUND = 0, ROUNDING_TRUNCATE = 1, ROUNDING_CEILING = 2, ROUNDING_FLOOR = 3 };

// How SEARCH compares.
enum ProgramOrder : uint16_t {
    ORDER_INTEGER = 0,
    ORDER_WIDE = 1,
    ORDER_FLOAT = 2,
    ORDER_TEXT = 3,
    ORDER_UUID = 4,
    ORDER_INTERVAL = 5,
};

enum ProgramField : uint16_t {
    FIELD_MICROSECONDS = 0,
    FIELD_MILLISECONDS = 1,
    FIELD_SECOND = 2,
    FIELD_MINUTE = 3,
    FIELD_HOUR = 4,
    FIELD_DAY = 5,
    FIELD_WEEK = 6,
    FIELD_MONTH = 7,
    FIELD_QUARTER = 8,
    FIELD_YEAR = 9,
    FIELD_DECADE = 10,
    FIELD_CENTURY = 11,
    FIELD_MILLENNIUM = 12,
    FIELD_DAY_OF_WEEK = 13,
    FIELD_ISO_DAY_OF_WEEK = 14,
    FIELD_DAY_OF_YEAR = 15,
    FIELD_ISO_YEAR = 16,
    FIELD_EPOCH = 17,
};

// What WRITE_TEXT writes.
enum WrittenText : uint16_t {
    WRITTEN_INTEGER = 0,
    WRITTEN_BOOL = 1,
    WRITTEN_DATE = 2,
    WRITTEN_TIME = 3,
    WRITTEN_TIMESTAMP = 4,
    WRITTEN_TIMESTAMP_UTC = 5,
    WRITTEN_UUID = 6,
};

// A time zone among the constants: the steps of its offset by the moment in UTC, and after them those by local time. Each:
//
//   ZoneSteps, ZoneStep [step_count + 1], uint32_t [stretch_count], up to a whole cell
//
// A stretch is a power of two of microseconds, counted from the first step's start. Its number says how many steps start at or
// before its beginning, so that the step of a moment is a few further on.
typedef struct ZoneSteps {
    uint32_t step_count;
    uint32_t stretch_count; // 0 without steps
    uint16_t stretch_shift; // microseconds of a stretch, as a power of two
    uint16_t repeats;       // set of ZoneRepeat
    uint32_t cell_count;    // of all of it
} ZoneSteps;

// Steps that go on every 400 years: before the first one, after the last one.
enum ZoneRepeat { ZONE_REPEATS_BEFORE = 1, ZONE_REPEATS_AFTER = 2 };

typedef struct ZoneStep {
    int64_t start;  // microseconds since 1970; of the one behind the last: INT64_MAX
    int64_t offset; // microseconds that local time is ahead until then
} ZoneStep;

// Where the cells and the validity bytes of a column are; no validity: 0.
typedef struct ProgramColumn {
    uint64_t values;
    uint64_t validity;
} ProgramColumn;

// evaluate_program, evaluate_small_program, evaluate_uniform_program, evaluate_narrow_program, evaluate_int256_program
typedef struct EvaluateProgram {
    uint64_t instructions; // Instruction [instruction_count]
    uint64_t constants;    // a cell each, or a pair of them; then tables of cells
    uint64_t row_count;
    uint64_t status;           // Status
    uint64_t text;             // where new text goes
    uint64_t text_bytes_max;   // its size
    uint64_t text_bytes;       // uint64_t: bytes wanted so far; above text_bytes_max rows were given up
    uint32_t instruction_count;
    uint32_t reserved;
    ProgramColumn columns[PROGRAM_COLUMNS_MAX];
    ProgramColumn outputs[PROGRAM_OUTPUTS_MAX];
} EvaluateProgram;

// A column of integers, or of booleans.
typedef struct RangeOperand {
    uint64_t values;     // uint8_t, int16_t, int32_t or int64_t [row_count]
    uint64_t validity;   // uint8_t [row_count], or 0
    uint32_t cell_bytes; // 1, 2, 4 or 8
    uint32_t reserved;
} RangeOperand;

// A comparison: of a column with a range, or with another column. Not true where a cell is NULL.
typedef struct RangeTerm {
    RangeOperand operand;
    RangeOperand other; // without values: the range counts
    int64_t least;
    int64_t greatest;
    uint32_t orderings; // of the operand and the other: a set of OrderingBit
    uint32_t reserved;
} RangeTerm;

// test_ranges
#define RANGE_TERMS_MAX 16

typedef struct TestRanges {
    uint64_t flags; // uint8_t [row_count]
    uint64_t row_count;
    uint32_t term_count;
    uint32_t reserved;
    RangeTerm terms[RANGE_TERMS_MAX];
} TestRanges;

static_assert(sizeof(EvaluateProgram) <= 4096, "a kernel's argument has at most 4096 bytes");
