//! Times between checkpoints as people write them.

/// Checks `30s`, `10m`, `2h` or a bare number of seconds and gives it back unchanged: libckpt.so reads it again
/// inside the program, where it could not complain.
pub fn check_interval(text: &str) -> Result<String, String> {
    let digits = text.strip_suffix(['s', 'm', 'h']).unwrap_or(text);
    let unit_ms = match text.as_bytes().last() {
        Some(b'm') => 60_000,
        Some(b'h') => 3_600_000,
        _ => 1_000,
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("write 30s, 10m, 2h or a number of seconds".to_owned());
    }
    match digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit_ms)) {
        Some(_) => Ok(text.to_owned()),
        None => Err("that is longer than any program runs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::check_interval;

    #[test]
    fn seconds_minutes_hours_and_bare_seconds_are_intervals() {
        for text in ["30s", "10m", "2h", "45", "0"] {
            assert_eq!(check_interval(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn anything_else_is_refused_before_the_program_starts() {
        for text in ["", "s", "-5s", "+5", "1.5h", "10 m", "5d", "10ms", "99999999999999999h", "5S"] {
            assert!(check_interval(text).is_err(), "{text}");
        }
    }
}
