//! The words and marks of PTX. Strings and comments are passed over.
//!
//! A dot begins a word, so `.visible.global` is two. A string ends with its line at the latest: the last byte of a path
//! may be a backslash, and one quote misread must not hide the declarations behind it.

use super::super::Defect;

/// A piece of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A directive with its dot, a name or a number.
    Word(&'a [u8]),
    /// Any other byte.
    Mark(u8),
}

/// The tokens of a text, one after the other.
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub fn of(text: &'a [u8]) -> Self {
        Tokens { text, at: 0 }
    }

    /// Where the next token is looked for.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next token, if there is one.
    pub fn next(&mut self) -> Result<Option<Token<'a>>, Defect> {
        loop {
            let rest = &self.text[self.at..];
            match rest {
                [] => return Ok(None),
                [b'/', b'/', ..] => self.at += line_bytes(rest),
                [b'/', b'*', ..] => self.at += self.comment_bytes(rest)?,
                [b'"', ..] => self.at += string_bytes(rest),
                [byte, ..] if byte.is_ascii_whitespace() || *byte == b'\x0b' => self.at += 1,
                [byte, ..] => {
                    let bytes = word_bytes(rest);
                    self.at += bytes.max(1);
                    return Ok(Some(if bytes == 0 { Token::Mark(*byte) } else { Token::Word(&rest[..bytes]) }));
                }
            }
        }
    }

    /// The next token of something that is not complete yet.
    pub fn required(&mut self) -> Result<Token<'a>, Defect> {
        self.next()?.ok_or_else(|| Defect::at(self.at, "it ends within a declaration"))
    }

    /// The token just read should not be there.
    pub fn unexpected(&self) -> Defect {
        Defect::at(self.at, "a declaration of a kind that is not known")
    }

    fn comment_bytes(&self, rest: &[u8]) -> Result<usize, Defect> {
        let end = rest[2..].windows(2).position(|pair| pair == b"*/");
        end.map(|end| end + 4).ok_or_else(|| Defect::at(self.at, "a comment is not closed"))
    }
}

/// Bytes of the first line.
fn line_bytes(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// Bytes of the string that `rest` begins with, up to its quote or the end of its line.
fn string_bytes(rest: &[u8]) -> usize {
    let ends = |n: &usize| rest[*n] == b'\n' || rest[*n] == b'"' && rest[n - 1] != b'\\';
    (1..rest.len()).find(ends).map_or(rest.len(), |last| last + 1)
}

/// Bytes of the word that `rest` begins with. Bytes beyond ASCII belong to names.
fn word_bytes(rest: &[u8]) -> usize {
    let begins = |byte: &u8| in_word(byte) || *byte == b'.';
    if !rest.first().is_some_and(begins) {
        return 0;
    }
    1 + rest[1..].iter().position(|byte| !in_word(byte)).unwrap_or(rest.len() - 1)
}

fn in_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%') || !byte.is_ascii()
}
