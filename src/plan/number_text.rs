//! Numbers as C prints them.

/// A double as `%.*g` prints it: with so many significant digits at most, without zeros at the end.
///
/// Source: ISO C, `fprintf`; PostgreSQL's own `snprintf.c` for what is no number.
pub fn general_text(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let digits = digits.max(1);
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        let cases = [
            (61.123_456_7, "61.1235"),
            (1e20, "1e+20"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (0.000_1, "0.0001"),
            (0.000_012, "1.2e-05"),
            (-1.5, "-1.5"),
            (-0.0, "-0"),
            (999_999.5, "1e+06"),
            (1.234_565e100, "1.23456e+100"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(general_text(value, 6), text);
        }
        assert_eq!(general_text(0.1, 15), "0.1");
        assert_eq!(general_text(1.0 / 3.0, 15), "0.333333333333333");
    }
}
