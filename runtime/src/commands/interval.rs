//! Times between checkpoints as people write them.

use std::time::Duration;

use ckpt_wire::settings::numbers;

/// Checks `500ms`, `30s`, `10m`, `2h` or a bare number of seconds and gives it back unchanged: libckpt.so reads it again
/// inside the program, where it could not complain.
pub fn check_interval(text: &str) -> Result<String, String> {
    let wanted = || "write 500ms, 30s, 10m, 2h or a number of seconds".to_owned();
    interval_ms(text).map(|_| text.to_owned()).ok_or_else(wanted)
}

/// Milliseconds of an interval, none if it is no time or longer than any program runs.
pub fn interval_ms(text: &str) -> Option<u64> {
    numbers::parse_interval_ms(text.as_bytes())
}

/// Reads `10ms`, `30s`, `10m`, `2h` or a bare number of seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let wanted = || "write 10ms, 30s, 10m, 2h or a number of seconds".to_owned();
    interval_ms(text).map(Duration::from_millis).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::{check_interval, interval_ms, parse_time};

    #[test]
    fn times_may_be_milliseconds() {
        let ms = |text| parse_time(text).map(|time| time.as_millis());
        assert_eq!(["10ms", "3s", "2m", "1h", "7", "0"].map(ms), [10, 3000, 120_000, 3_600_000, 7000, 0].map(Ok));
        for text in ["", "ms", "s", "-1s", "+1", "1.5s", "1 s", "99999999999999999h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_minutes_hours_and_bare_seconds_are_intervals() {
        for text in ["500ms", "30s", "10m", "2h", "45", "0"] {
            assert_eq!(check_interval(text).as_deref(), Ok(text));
        }
        assert_eq!(["30s", "10m", "2h", "45", "0"].map(interval_ms), [30, 600, 7200, 45, 0].map(|s| Some(s * 1000)));
    }

    #[test]
    fn anything_else_is_refused_before_the_program_starts() {
        for text in ["", "s", "-5s", "+5", "1.5h", "10 m", "5d", "10us", "99999999999999999h", "5S"] {
            assert!(check_interval(text).is_err(), "{text}");
        }
    }
}
