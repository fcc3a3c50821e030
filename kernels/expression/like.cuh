// LIKE and ILIKE with backslash as the escape character.
//
// On a mismatch the match goes back to the last `%`, in the same order of attempts as PostgreSQL, because a pattern
// that ends with the escape character is an error only if an attempt gets that far.
//
// Source: PostgreSQL 15, `like_match.c`, `MatchText`. We differ: no recursion.
#pragma once

#include "cell16.cuh"

DEVICE uint8_t fold_byte(uint8_t byte, bool fold) { return fold && byte >= 'A' && byte <= 'Z' ? byte + 32 : byte; }

DEVICE uint32_t next_character(const Text &text, uint32_t place) {
    place++;
    while (place < text.length && (text.bytes[place] & 0xc0) == 0x80) place++;
    return place;
}

// The place of a byte in a text from a place on, or the text's length. Reads whole aligned words, which may begin before the text
// and end after it.
DEVICE uint32_t find_byte(const Text &text, uint32_t place, uint8_t byte) {
    const uint64_t lowest = 0x0101010101010101ull, highest = 0x8080808080808080ull;
    while (place < text.length) {
        const uint64_t address = (uint64_t)text.bytes + place;
        const uint32_t skipped = address % 8;
        // Zero where a byte is the wanted one, but for those before the place.
        const uint64_t different = (*(const uint64_t *)(address - skipped) ^ byte * lowest) | ((1ull << 8 * skipped) - 1);
        // The lowest of these bits is the first zero's.
        const uint64_t equal = (different - lowest) & ~different & highest;
        if (equal) {
            place += (uint32_t)(__ffsll((long long)equal) - 1) / 8 - skipped;
            break;
        }
        place += 8 - skipped;
    }
    return place < text.length ? place : text.length;
}

// Whether the text matches; *fault is set if an attempt reached an escape character at the pattern's end.
DEVICE_CALL bool matches_like(const Text &text, const Text &pattern, bool fold, Fault *fault) {
    uint32_t t = 0, p = 0;
    // After a `%`: the pattern behind it, its first literal byte, and the next place in the text to try.
    bool has_retry = false;
    uint32_t retry_pattern = 0, retry_text = 0;
    uint8_t retry_first = 0;
    for (;;) {
        if (t >= text.length) {
            for (; p < pattern.length; p++) {
                if (pattern.bytes[p] != '%') return false;
            }
            return true;
        }
        bool matched = false;
        if (p < pattern.length) {
            uint8_t literal = pattern.bytes[p];
            if (literal == '%') {
                // Skips wildcards, each `_` with a character of the text.
                for (;; p++) {
                    if (p >= pattern.length) return true;
                    literal = pattern.bytes[p];
                    if (literal == '%') continue;
                    if (literal != '_') break;
                    if (t >= text.length) return false;
                    t = next_character(text, t);
                }
                if (literal == '\\') {
                    if (p + 1 >= pattern.length) {
                        *fault = ERROR_PATTERN;
                        return false;
                    }
                    literal = pattern.bytes[p + 1];
                }
                has_retry = true;
                retry_pattern = p;
                retry_text = t;
                retry_first = fold_byte(literal, fold);
                // The first attempt is chosen like every later one.
            } else if (literal == '_') {
                t = next_character(text, t);
                p++;
                continue;
            } else {
                if (literal == '\\') {
                    p++;
                    if (p >= pattern.length) {
                        *fault = ERROR_PATTERN;
                        return false;
                    }
                    literal = pattern.bytes[p];
                }
                matched = fold_byte(text.bytes[t], fold) == fold_byte(literal, fold);
            }
        }
        if (matched) {
            t++;
            p++;
            continue;
        }
        if (!has_retry) return false;
        // The bytes of a character after its first one never equal a pattern's first byte.
        if (fold) {
            while (retry_text < text.length && fold_byte(text.bytes[retry_text], fold) != retry_first) retry_text++;
        } else {
            retry_text = find_byte(text, retry_text, retry_first);
        }
        if (retry_text >= text.length) return false;
        t = retry_text;
        p = retry_pattern;
        retry_text = next_character(text, t);
    }
}
