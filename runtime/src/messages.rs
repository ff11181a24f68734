//! What is said to a person on standard error: the one way out, through which no character passes that a terminal obeys.
//!
//! Names in messages come from programs, stores and peers, and may hold anything.

use std::fmt::Arguments;
use std::io::Write;

use crate::units::printable;

/// Says one line, with our name in front.
pub fn say(message: Arguments<'_>) {
    // Without standard error there is no one to tell.
    let _ = std::io::stderr().write_all(line(message).as_bytes());
}

/// Says that we are at work, to whoever passes on what we say: an empty line, of which they say nothing.
pub fn be_heard() {
    let _ = std::io::stderr().write_all(b"\n");
}

/// [`say`], with what `format!` takes.
#[macro_export]
macro_rules! say {
    ($($message:tt)*) => { $crate::messages::say(format_args!($($message)*)) };
}

/// Written with one call, so that the lines of several processes do not mix.
fn line(message: Arguments<'_>) -> String {
    format!("ckpt: {}\n", printable(&message.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_is_in_it() {
        let name = "x\nckpt: done\x1b]0;title\x07\u{202e}";
        let shown = "ckpt: cannot open x\u{fffd}ckpt: done\u{fffd}]0;title\u{fffd}\u{fffd}\n";
        assert_eq!(line(format_args!("cannot open {name}")), shown);
    }
}
