//! How much device memory may be taken, as the user says it: `CKPT_DEVICE_MEMORY`.

use std::env;

use super::error::{Error, Result};

/// What names the bound.
const VARIABLE: &str = "CKPT_DEVICE_MEMORY";

/// What [`super::Context::new`] takes as its bound: `CKPT_DEVICE_MEMORY`, in bytes, or in 2^10, 2^20 or 2^30 of them with a
/// K, M or G behind it. None when it is not set.
///
/// # Errors
/// [`Error::NoBound`] for anything else.
pub fn bound_from_environment() -> Result<Option<u64>> {
    let Some(value) = env::var_os(VARIABLE) else { return Ok(None) };
    let bytes = value.to_str().and_then(bytes);
    bytes.map(Some).ok_or_else(|| Error::NoBound { value: value.to_string_lossy().into_owned() })
}

fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    // What `parse` would take besides: a sign.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).and_then(|number: u64| number.checked_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_number_of_bytes_or_of_their_powers_of_two() {
        assert_eq!(bytes("0"), Some(0));
        assert_eq!(bytes("123456"), Some(123_456));
        assert_eq!(bytes("3K"), Some(3 << 10));
        assert_eq!(bytes("512M"), Some(512 << 20));
        assert_eq!(bytes("80G"), Some(80 << 30));
        assert_eq!(bytes("18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn anything_else_is_no_bound() {
        for text in
            ["", "G", "-1", "+1", "1.5G", "1 G", "1g", "1GB", "1T", "all", "18446744073709551616", "17179869184G", "1é"]
        {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
