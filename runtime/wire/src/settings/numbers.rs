//! Numbers as users write them. An interval is `500ms`, `30s`, `10m`, `2h`, or bare seconds; memory is `256M`, `1G`, or bare bytes.

/// Milliseconds in `text`; 0 switches automatic checkpoints off. `None` when it cannot be read.
pub fn parse_interval_ms(text: &[u8]) -> Option<u64> {
    let (digits, unit_ms) = match text.split_last()? {
        (b's', [digits @ .., b'm']) => (digits, 1),
        (b's', digits) => (digits, 1_000),
        (b'm', digits) => (digits, 60_000),
        (b'h', digits) => (digits, 3_600_000),
        _ => (text, 1_000),
    };
    parse_decimal(digits)?.checked_mul(unit_ms)
}

/// Bytes in `text`, which may end in K, M or G (1024 and its powers). `None` when it cannot be read, and for none at all.
pub fn parse_bytes(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.split_last()? {
        (b'K', digits) => (digits, 1 << 10),
        (b'M', digits) => (digits, 1 << 20),
        (b'G', digits) => (digits, 1 << 30),
        _ => (text, 1),
    };
    parse_decimal(digits)?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// The number written in `digits`: at least one digit, no sign, nothing else.
#[inline(never)]
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        let value = digit.checked_sub(b'0').filter(|&value| value < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(value))
    })
}

/// The number written in 1 to 16 hexadecimal digits of either case.
pub fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        let value = char::from(digit).to_digit(16)?;
        Some(number << 4 | u64::from(value))
    })
}
