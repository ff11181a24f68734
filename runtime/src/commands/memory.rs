//! Amounts of memory as people write them.

use ckpt_wire::MEMORY_BYTES_MIN;
use ckpt_wire::settings::numbers;

/// Checks `64M`, `1G`, `65536K` or a bare number of bytes, 16 MiB or more, and gives it back unchanged: libckpt.so reads it
/// again inside the program, where it could not complain.
pub fn check_memory(text: &str) -> Result<String, String> {
    match numbers::parse_bytes(text.as_bytes()) {
        Some(bytes) if bytes >= MEMORY_BYTES_MIN => Ok(text.to_owned()),
        _ => Err("write 64M, 1G or a number of bytes, 16M or more".to_owned()),
    }
}

/// The same for how much of a file is captured, with `all` and `none`.
pub fn check_files(text: &str) -> Result<String, String> {
    match text {
        "all" | "none" => Ok(text.to_owned()),
        _ => {
            let wanted = || "write 64M, 1G, a number of bytes, all or none".to_owned();
            numbers::parse_bytes(text.as_bytes()).map(|_| text.to_owned()).ok_or_else(wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{check_files, check_memory};

    #[test]
    fn bytes_and_their_multiples_are_amounts_of_memory() {
        for text in ["64M", "1G", "65536K", "268435456", "16M", "16777216"] {
            assert_eq!(check_memory(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn files_are_captured_up_to_an_amount_or_all_or_none() {
        assert!(["64M", "1", "all", "none"].into_iter().all(|text| check_files(text).is_ok()));
        assert!(["0", "some", ""].into_iter().all(|text| check_files(text).is_err()));
    }

    #[test]
    fn anything_else_is_refused_before_the_program_starts() {
        for text in ["", "M", "0", "0G", "-5M", "1.5G", "10 M", "5T", "64MB", "64m", "99999999999G", "15M", "16777215"]
        {
            assert!(check_memory(text).is_err(), "{text}");
        }
    }
}
