//! Text in fixed memory, for messages and numbers. What does not fit is cut off; nothing here can fail or panic.

/// At most `N - 1` bytes, always followed by a zero.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    /// No bytes.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// The bytes, without the zero.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The first byte of the zero-terminated text.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Forgets the bytes.
    pub fn clear(&mut self) {
        self.bytes = [0; N];
        self.len = 0;
    }

    /// Adds `bytes` as they are.
    #[inline(never)]
    pub fn push(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            if self.len + 1 < N
                && let Some(slot) = self.bytes.get_mut(self.len)
            {
                *slot = byte;
                self.len += 1;
            }
        }
        self
    }

    /// Adds what a user wrote, at most `max` bytes of it, with unprintable bytes as `?`.
    pub fn push_quoted(&mut self, bytes: &[u8], max: usize) -> &mut Self {
        self.push(b"'");
        for &byte in bytes.iter().take(max) {
            self.push(&[printable(byte)]);
        }
        self.push(if bytes.len() > max { b"...'" } else { b"'" })
    }

    /// Makes it one line that no terminal obeys: unprintable bytes become `?`.
    pub fn make_printable(&mut self) -> &mut Self {
        for byte in self.bytes.iter_mut().take(self.len) {
            *byte = printable(*byte);
        }
        self
    }

    /// Adds a number in decimal, with zeros in front up to `width` digits.
    pub fn push_decimal(&mut self, number: u64, width: usize) -> &mut Self {
        self.push_number::<10>(number, width)
    }

    /// Adds a number in hexadecimal, with zeros in front up to `width` digits.
    pub fn push_hex(&mut self, number: u64, width: usize) -> &mut Self {
        self.push_number::<16>(number, width)
    }

    #[inline(never)]
    fn push_number<const BASE: u64>(&mut self, mut number: u64, width: usize) -> &mut Self {
        let mut digits = [b'0'; 20];
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            if number == 0 && count >= width.max(1) {
                break;
            }
            let value = (number % BASE) as u8;
            *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
            number /= BASE;
            count += 1;
        }
        self.push(digits.get(digits.len() - count..).unwrap_or_default())
    }
}

/// The byte, or `?` for what is no printable ASCII.
fn printable(byte: u8) -> u8 {
    if (b' '..=b'~').contains(&byte) { byte } else { b'?' }
}

/// Writes `parts`, one behind the other and ended by a zero, into a field of the control block. False, and an
/// empty field, when they do not fit.
#[must_use]
#[inline(never)]
pub fn write_field(field: &mut [u8], parts: &[&[u8]]) -> bool {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    if total >= field.len() {
        if let Some(first) = field.first_mut() {
            *first = 0;
        }
        return false;
    }
    let bytes = parts.iter().copied().flatten().chain(core::iter::once(&0));
    for (slot, &byte) in field.iter_mut().zip(bytes) {
        *slot = byte;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_bytes_that_deceive() {
        let mut text = Text::<64>::new();
        text.push("a\x1b]0;x\x07\n\u{202e}b~".as_bytes()).push(b"\xff").make_printable();
        assert_eq!(core::str::from_utf8(text.as_bytes()), Ok("a?]0;x?????b~?"));
    }
}
