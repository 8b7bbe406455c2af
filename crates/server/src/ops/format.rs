//! How numbers and texts are written for people: on the dashboard and in `hearth top`.

use std::fmt::Display;
use std::time::Duration;

/// Formats a count with a narrow space between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number with its noun: "1 day", "2 days".
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Formats a duration in the unit that fits it.
pub(crate) fn took(took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if seconds < 0.000_999_5 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 0.009_95 {
        format!("{:.1} ms", seconds * 1e3)
    } else if seconds < 0.999_5 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 59.95 {
        format!("{seconds:.1} s")
    } else {
        age(took)
    }
}

/// Formats an age roughly, by its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else if seconds < 3600 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else if seconds < 86_400 {
        format!("{} h {} min", seconds / 3600, seconds / 60 % 60)
    } else {
        format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24)
    }
}

/// Formats how long ago a time was, in seconds since 1970.
pub(crate) fn ago(at: f64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let past = now.unwrap_or_default().as_secs_f64() - at;
    format!("{} ago", age(Duration::try_from_secs_f64(past.max(0.0)).unwrap_or_default()))
}

/// Formats bytes in MB, as /proc counts them.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / f64::from(1 << 20))
}

/// A rate: whole above ten.
pub(crate) fn rate(rate: f64) -> String {
    if rate >= 9.95 || rate == 0.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// Formats a part of a whole, in percent.
#[expect(clippy::cast_precision_loss, reason = "no digit behind the point is shown")]
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".into() } else { format!("{:.0} %", part as f64 * 100.0 / whole as f64) }
}

/// Replaces a character that could move the cursor or turn the direction of text.
pub(crate) fn harmless(c: char) -> char {
    match c {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        control if control.is_control() => '?',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        let took = |micros| took(Duration::from_micros(micros));
        assert_eq!(
            [took(420), took(4_210), took(87_000), took(1_240_000), took(61_000_000)],
            ["420 µs", "4.2 ms", "87 ms", "1.2 s", "1 min 1 s"]
        );
        assert_eq!(age(Duration::from_secs(90_061)), "1 d 1 h");
        assert_eq!(
            (rate(0.04), rate(9.99), rate(1234.5)),
            ("0.0".into(), "10".into(), "1234".into())
        );
        assert_eq!((percent(1, 0), percent(2, 3)), ("–".to_owned(), "67 %".to_owned()));
    }
}
