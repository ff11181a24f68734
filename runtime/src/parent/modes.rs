//! The modes that a restarted program finds at its terminal: its own, on somebody else's line.

use nix::libc::{self, termios};

use crate::image::TerminalModes;

/// The keys by which a line is edited. They matter only where the terminal collects lines, and there the user knows those
/// of the terminal in front of him.
const EDITING: [usize; 8] =
    [libc::VERASE, libc::VKILL, libc::VWERASE, libc::VREPRINT, libc::VLNEXT, libc::VEOF, libc::VEOL, libc::VEOL2];

/// The modes of `program` at a terminal that is in the modes `now`. The line stays as it is: speed, size of characters,
/// parity, and whether characters are UTF-8.
pub fn at_terminal(program: &TerminalModes, mut now: termios) -> termios {
    now.c_iflag = program.input & !libc::IUTF8 | now.c_iflag & libc::IUTF8;
    now.c_oflag = program.output;
    now.c_lflag = program.local;
    let collects_lines = program.local & libc::ICANON != 0;
    for (place, (now, &wanted)) in now.c_cc.iter_mut().zip(&program.characters).enumerate() {
        if !(collects_lines && EDITING.contains(&place)) {
            *now = wanted;
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use nix::pty::openpty;

    use super::*;
    use crate::tty;

    fn modes_of(terminal: &termios) -> TerminalModes {
        TerminalModes {
            input: terminal.c_iflag,
            output: terminal.c_oflag,
            local: terminal.c_lflag,
            characters: terminal.c_cc.to_vec(),
        }
    }

    #[test]
    fn a_raw_program_is_raw_again_and_the_line_stays() {
        let mut now = tty::modes(&openpty(None, None).unwrap().slave).unwrap();
        let mut raw = now;
        // SAFETY: cfmakeraw changes the termios that it is given.
        unsafe { libc::cfmakeraw(&mut raw) };
        raw.c_cc[libc::VERASE] = 8;
        now.c_iflag |= libc::IUTF8;
        now.c_cflag = libc::CS7 | libc::PARENB | libc::B9600;
        let merged = at_terminal(&modes_of(&raw), now);
        assert_eq!((merged.c_lflag, merged.c_oflag), (raw.c_lflag, raw.c_oflag));
        assert_eq!(merged.c_iflag, raw.c_iflag | libc::IUTF8);
        assert_eq!((merged.c_cflag, merged.c_cc), (now.c_cflag, raw.c_cc));
    }

    #[test]
    fn where_lines_are_collected_the_keys_to_edit_them_are_those_of_the_terminal() {
        let now = tty::modes(&openpty(None, None).unwrap().slave).unwrap();
        let mut before = now;
        before.c_lflag &= !libc::ECHO;
        before.c_cc[libc::VERASE] = 8;
        before.c_cc[libc::VINTR] = 7;
        let merged = at_terminal(&modes_of(&before), now);
        assert_eq!(merged.c_lflag, before.c_lflag);
        assert_eq!((merged.c_cc[libc::VERASE], merged.c_cc[libc::VINTR]), (now.c_cc[libc::VERASE], 7));
    }

    #[test]
    fn characters_that_an_image_lacks_stay() {
        let now = tty::modes(&openpty(None, None).unwrap().slave).unwrap();
        let merged = at_terminal(&TerminalModes { characters: vec![9], ..modes_of(&now) }, now);
        assert_eq!((merged.c_cc[0], &merged.c_cc[1..]), (9, &now.c_cc[1..]));
    }
}
