//! Sizes, times and text for people.

/// Bytes in binary units, three digits or so: `512 B`, `1.4 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 999.95 would be shown as 1000.0.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Milliseconds with a precision that matters: `0.42`, `7.3`, `1250`.
pub fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Seconds since the epoch as local date and time.
pub fn local_time(unix_s: u64) -> String {
    let Some(tm) = local(unix_s) else { return format!("@{unix_s}") };
    let (year, month) = (i64::from(tm.tm_year) + 1900, tm.tm_mon + 1);
    format!("{year:04}-{month:02}-{:02} {:02}:{:02}:{:02}", tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec)
}

/// A time that has passed, roughly: `28 s`, `5 min`, `3 h`, `2 days`.
pub fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The same as syslog has it (RFC 3164): `Nov  6 01:02:03`.
pub fn syslog_time(unix_s: u64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Some(tm) = local(unix_s) else { return "Jan  1 00:00:00".to_owned() };
    let month = MONTHS.get(tm.tm_mon as usize).unwrap_or(&MONTHS[0]);
    format!("{month} {:2} {:02}:{:02}:{:02}", tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec)
}

fn local(unix_s: u64) -> Option<libc::tm> {
    let seconds = unix_s as libc::time_t;
    // SAFETY: `tm` is integers and a pointer, for which zero is a value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: localtime_r reads `seconds` and writes `tm`, both ours.
    let converted = unsafe { libc::localtime_r(&seconds, &mut tm) };
    (!converted.is_null()).then_some(tm)
}

/// Text from outside on one line, without what a terminal would obey and without what shows it as something else: each such
/// character becomes U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if deceives(character) { '\u{fffd}' } else { character }).collect()
}

/// The same for text of ours, whose line feeds are meant.
pub fn printable_lines(text: &str) -> String {
    text.chars()
        .map(|character| if deceives(character) && character != '\n' { '\u{fffd}' } else { character })
        .collect()
}

/// Whether a character is obeyed by terminals, or shows text as something else: control characters (Cc), line and paragraph
/// separators (Zl, Zp), and format characters (Cf), which turn the direction of what follows or are not seen.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_about_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(1_503_238_553), "1.4 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn milliseconds_are_as_precise_as_they_are_small() {
        assert_eq!(milliseconds(0.417), "0.42");
        assert_eq!(milliseconds(7.31), "7.3");
        assert_eq!(milliseconds(1250.4), "1250");
    }

    #[test]
    fn a_time_is_a_date_and_a_clock() {
        let text = local_time(1_000_000_000);
        assert!(text.starts_with("2001-09-0") && text.len() == "2001-09-09 01:46:40".len(), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{9b}d\te"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e");
        assert_eq!(printable_lines("a\x1b[2Jb\nc\r"), "a\u{fffd}[2Jb\nc\u{fffd}");
    }

    #[test]
    fn characters_that_turn_or_hide_text_are_shown() {
        for character in "\u{ad}\u{61c}\u{200b}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}\u{e0041}".chars() {
            assert_eq!(printable(&format!("a{character}b")), "a\u{fffd}b", "{:x}", character as u32);
        }
        let plain = "Zürich ßñ 日本 \u{1f600} a\u{301} ‐–—… ½";
        assert_eq!(printable(plain), plain);
    }
}
