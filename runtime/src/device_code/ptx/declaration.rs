//! One declaration, from behind its `.global` or `.const` to its semicolon:
//! `.attribute(.managed) .align 4 .v2 .u32 name[3][4] = {1, 2}, another;`

use super::super::{Defect, Found};
use super::tokens::{Token, Tokens};
use crate::device_code::variable::Kind;

/// What the words before the names say.
struct Declared {
    kind: Kind,
    /// Values side by side: `.v2`, `.v4`.
    lanes: u64,
    /// Size of one value.
    value_bytes: Option<u64>,
    /// Whether it has an address.
    addressed: bool,
}

/// Reads a declaration. One of variables that are `elsewhere` adds nothing.
pub(super) fn read(tokens: &mut Tokens, kind: Kind, elsewhere: bool, found: &mut Found) -> Result<(), Defect> {
    let mut declared = Declared { kind, lanes: 1, value_bytes: None, addressed: true };
    loop {
        match tokens.required()? {
            Token::Mark(b'[') => drop(dimension(tokens)?), // the bank of `.const[3]`
            Token::Word(b".attribute") => declared.attributes(tokens)?,
            Token::Word(b".align") => drop(tokens.required()?),
            Token::Word(word) if word.starts_with(b".") => declared.property(word),
            Token::Word(name) => {
                let found = if elsewhere || !declared.addressed { None } else { Some(&mut *found) };
                if !declared.variable(name, tokens, found)? {
                    return Ok(());
                }
            }
            _ => return Err(tokens.unexpected()),
        }
    }
}

impl Declared {
    /// `(.managed, .unified(1, 2))`
    fn attributes(&mut self, tokens: &mut Tokens) -> Result<(), Defect> {
        let mut depth = 0;
        loop {
            match tokens.required()? {
                Token::Mark(b'(') => depth += 1,
                Token::Mark(b')') if depth <= 1 => return Ok(()),
                Token::Mark(b')') => depth -= 1,
                Token::Word(b".managed") => self.kind = Kind::Managed,
                _ => {}
            }
        }
    }

    /// `.v2` or a type.
    fn property(&mut self, word: &[u8]) {
        match word {
            b".v2" => self.lanes = 2,
            b".v4" => self.lanes = 4,
            b".v8" => self.lanes = 8,
            b".texref" | b".samplerref" | b".surfref" => self.addressed = false,
            _ => self.value_bytes = value_bytes(word),
        }
    }

    /// The rest of one variable; whether another follows.
    fn variable(&self, name: &[u8], tokens: &mut Tokens, found: Option<&mut Found>) -> Result<bool, Defect> {
        let at = tokens.at();
        let mut bytes = self.value_bytes.and_then(|bytes| bytes.checked_mul(self.lanes));
        let mut depth = 0_u64;
        let mut initialised = false;
        let another = loop {
            match tokens.required()? {
                Token::Mark(b',') if depth == 0 => break true,
                Token::Mark(b';') if depth == 0 => break false,
                Token::Mark(b'=') => initialised = true,
                Token::Mark(b'[') if !initialised => {
                    let count = dimension(tokens)?;
                    bytes = bytes.zip(count).and_then(|(bytes, count)| bytes.checked_mul(count));
                }
                Token::Mark(b'{' | b'(') if initialised => depth += 1,
                Token::Mark(b'}' | b')') if depth > 0 => depth -= 1,
                _ if initialised => {}
                _ => return Err(tokens.unexpected()),
            }
        };
        let added = found.map_or(Ok(()), |found| found.add(name, self.kind, bytes));
        added.map(|()| another).map_err(|why| Defect::at(at, why))
    }
}

/// The number before `]`; none if there is none, or an expression.
fn dimension(tokens: &mut Tokens) -> Result<Option<u64>, Defect> {
    let mut count = None;
    let mut words = 0;
    loop {
        match tokens.required()? {
            Token::Mark(b']') => return Ok(count.filter(|_| words == 1)),
            Token::Mark(b';') => return Err(tokens.unexpected()),
            Token::Word(word) => count = number(word),
            _ => {}
        }
        words += 1;
    }
}

/// A whole number as PTX writes it: `12`, `0x1F`, `017`, `0b11`, each with or without `U`.
fn number(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let text = text.strip_suffix('U').unwrap_or(text);
    let in_base = |prefixes: [&str; 2], base| {
        let digits = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))?;
        u64::from_str_radix(digits, base).ok()
    };
    in_base(["0x", "0X"], 16).or_else(|| in_base(["0b", "0B"], 2)).or_else(|| match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    })
}

/// Size of one value of a type.
fn value_bytes(word: &[u8]) -> Option<u64> {
    Some(match word {
        b".b8" | b".u8" | b".s8" => 1,
        b".b16" | b".u16" | b".s16" | b".f16" | b".bf16" => 2,
        b".b32" | b".u32" | b".s32" | b".f32" | b".f16x2" | b".bf16x2" => 4,
        b".b64" | b".u64" | b".s64" | b".f64" => 8,
        b".b128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_in_every_base() {
        for (text, value) in [("0", 0), ("12", 12), ("0x1F", 31), ("0X1f", 31), ("017", 15), ("0b11", 3), ("8U", 8)] {
            assert_eq!(number(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["", "x", "-1", "09", "0xg", "99999999999999999999"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
