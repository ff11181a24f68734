//! Names of signals: with or without `SIG`, in either case, `RTMIN+n`, `RTMAX-n`, or a number.

use super::numbers::parse_decimal;

/// Highest signal number of Linux.
pub const SIGNAL_MAX: i32 = 64;
/// First real-time signal that programs may use; glibc keeps 32 and 33 for itself.
const SIGRTMIN: i32 = 34;

/// The signals below 32, from number 1 on, without `SIG`.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// The number of the signal that `text` names; 0 for `none`. `None` when there is no such signal, or it
/// cannot be the trigger.
pub fn parse_signal(text: &[u8]) -> Option<i32> {
    if text.eq_ignore_ascii_case(b"none") {
        return Some(0);
    }
    let signal = match parse_decimal(text) {
        Some(number) => i32::try_from(number).ok()?,
        None => parse_name(strip_prefix(text, b"SIG").unwrap_or(text))?,
    };
    is_usable(signal).then_some(signal)
}

/// Not the ones that no handler can be installed for, those that glibc uses itself, and those of faults: a handler
/// that returns from a fault runs into it again.
fn is_usable(signal: i32) -> bool {
    let fault =
        matches!(signal, libc::SIGILL | libc::SIGTRAP | libc::SIGBUS | libc::SIGFPE | libc::SIGSEGV | libc::SIGSYS);
    let reserved = matches!(signal, libc::SIGKILL | libc::SIGSTOP) || (32..SIGRTMIN).contains(&signal);
    (1..=SIGNAL_MAX).contains(&signal) && !fault && !reserved
}

/// The name of `signal` with `SIG`, in two parts, and the number behind `SIGRTMIN`'s plus.
pub fn signal_name(signal: i32) -> (&'static str, &'static str, Option<u64>) {
    let index = usize::try_from(signal).unwrap_or(0).wrapping_sub(1);
    match (NAMES.get(index), u64::try_from(signal - SIGRTMIN)) {
        (Some(name), _) => ("SIG", name, None),
        (None, Ok(offset)) => ("SIG", "RTMIN+", Some(offset)),
        (None, Err(_)) => ("signal", "?", None),
    }
}

fn parse_name(name: &[u8]) -> Option<i32> {
    if let Some(offset) = strip_prefix(name, b"RTMIN") {
        return Some(SIGRTMIN + parse_offset(offset, b'+')?);
    }
    if let Some(offset) = strip_prefix(name, b"RTMAX") {
        return Some(SIGNAL_MAX - parse_offset(offset, b'-')?);
    }
    let index = NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
    i32::try_from(index + 1).ok()
}

/// `""` or the sign and a number that stays within the real-time signals.
fn parse_offset(text: &[u8], sign: u8) -> Option<i32> {
    let Some((&first, digits)) = text.split_first() else { return Some(0) };
    if first != sign {
        return None;
    }
    let offset = i32::try_from(parse_decimal(digits)?).ok()?;
    (offset <= SIGNAL_MAX - SIGRTMIN).then_some(offset)
}

fn strip_prefix<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}
