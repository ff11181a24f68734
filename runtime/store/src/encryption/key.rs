//! What opens an encrypted store: 256 random bits, and how they are written.

use std::{fmt, io};

use super::random;

/// What the text of a key begins with.
const MARK: &str = "ckpt-key-1-";
const KEY_BYTES: usize = 32;
const SUM_BYTES: usize = 4;

/// A key of a user: it opens the stores that it was added to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A new key.
    ///
    /// # Errors
    ///
    /// The system gives no random bytes.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// The key of these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The line that says the key: a mark, 64 hexadecimal digits, and 8 that tell a mistyped one.
    pub fn to_text(self) -> String {
        format!("{MARK}{}-{}", hex(&self.0), hex(&sum(&self.0)))
    }

    /// The key of a line that [`Key::to_text`] gave; spaces and line feeds around it are passed by.
    pub fn from_text(text: &str) -> Option<Self> {
        let (key, found) = text.trim().strip_prefix(MARK)?.split_once('-')?;
        let key = from_hex(key)?;
        (from_hex(found)? == sum(&key)).then_some(Self(key))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The name of a key in one store. In another store the same key has another name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(crate) [u8; 16]);

impl KeyId {
    /// The name that [`fmt::Display`] gave.
    pub fn from_text(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

fn sum(key: &[u8]) -> [u8; SUM_BYTES] {
    crc32fast::hash(key).to_be_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case alone: each key and each name has one text.
fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_text_and_a_mistyped_one_is_told() {
        let key = Key::random().unwrap();
        let text = key.to_text();
        assert_eq!(Key::from_text(&format!("  {text}\n")), Some(key));
        assert_ne!(Key::random().unwrap(), key);
        for at in 0..text.len() {
            let mut typed = text.clone().into_bytes();
            typed[at] = if typed[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(Key::from_text(str::from_utf8(&typed).unwrap()), None, "digit {at}");
        }
        assert!(
            ["", "ckpt-key-1-", &text[1..], &text[..text.len() - 1]].iter().all(|text| Key::from_text(text).is_none())
        );
    }

    #[test]
    fn debug_output_does_not_show_a_key() {
        assert_eq!(format!("{:?}", Key::from_bytes([7; 32])), "Key(..)");
    }
}
