//! What confines a process and all that it starts: seccomp filters, and no_new_privs.
//!
//! A container puts both on its first process. They are no state of the programs in there: whoever restarts one in another
//! container gives it that container's. What a program has added itself is its state.

use crate::settings::numbers::parse_decimal;
use crate::settings::text::Text;

/// Bytes of the value of [`crate::ENV_CONFINEMENT`]: always as many, so that it can be written over.
pub const CONFINEMENT_BYTES: usize = FILTERS_DIGITS + 2;
/// Digits of the number of filters. The kernel allows fewer than 10,000 by their length.
const FILTERS_DIGITS: usize = 5;

/// What confines a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// How many seccomp filters it is under.
    pub filters: u32,
    /// Whether it can gain no rights by what it executes.
    pub no_new_privs: bool,
}

impl Confinement {
    /// What `/proc/PID/status` says. `None` for a process in strict mode, and from a kernel that does not count filters (before
    /// Linux 5.9) of one that has some.
    pub fn of_status(status: &[u8]) -> Option<Confinement> {
        let value = |name: &[u8]| {
            let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"));
            line.map(<[u8]>::trim_ascii)
        };
        let filters = match value(b"Seccomp") {
            // A kernel without seccomp has no such line.
            None | Some(b"0") => 0,
            Some(b"2") => u32::try_from(parse_decimal(value(b"Seccomp_filters")?)?).ok()?,
            Some(_) => return None,
        };
        Some(Confinement { filters, no_new_privs: value(b"NoNewPrivs") == Some(b"1") })
    }

    /// Reads a value of [`crate::ENV_CONFINEMENT`].
    pub fn parse(value: &[u8]) -> Option<Confinement> {
        let (filters, no_new_privs) = value.split_at_checked(FILTERS_DIGITS)?;
        let no_new_privs = match no_new_privs {
            b"-0" => false,
            b"-1" => true,
            _ => return None,
        };
        Some(Confinement { filters: u32::try_from(parse_decimal(filters)?).ok()?, no_new_privs })
    }

    /// The value of [`crate::ENV_CONFINEMENT`].
    pub fn to_text(self) -> Text<{ CONFINEMENT_BYTES + 1 }> {
        let mut text = Text::new();
        text.push_decimal(u64::from(self.filters), FILTERS_DIGITS).push(b"-");
        text.push(if self.no_new_privs { b"1" } else { b"0" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confinement(filters: u32, no_new_privs: bool) -> Confinement {
        Confinement { filters, no_new_privs }
    }

    #[test]
    fn a_status_is_understood() {
        let status = b"Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nCpus_allowed:\t3\n";
        assert_eq!(Confinement::of_status(status), Some(confinement(3, true)));
        let free = b"NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n";
        assert_eq!(Confinement::of_status(free), Some(confinement(0, false)));
        assert_eq!(Confinement::of_status(b"Name:\tx\n"), Some(confinement(0, false)));
        assert_eq!(Confinement::of_status(b"Seccomp:\t1\nSeccomp_filters:\t0\n"), None);
        assert_eq!(Confinement::of_status(b"Seccomp:\t2\n"), None);
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        for known in [confinement(0, false), confinement(1, true), confinement(9_999, false)] {
            let text = known.to_text();
            assert_eq!(text.as_bytes().len(), CONFINEMENT_BYTES);
            assert_eq!(Confinement::parse(text.as_bytes()), Some(known));
        }
        for unreadable in [&b""[..], b"00001", b"00001-2", b"0000x-1", b"1-1", b"000001-1"] {
            assert_eq!(Confinement::parse(unreadable), None);
        }
    }
}
