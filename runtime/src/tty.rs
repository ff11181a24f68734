//! What a terminal can be asked and told, whole: nix knows fewer flags than the kernel, and would drop the others.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// The modes of a terminal, as `tcgetattr` gives them.
///
/// # Errors
/// The kernel's: ENOTTY for what is no terminal, EIO for one that is gone.
pub fn modes(terminal: &impl AsFd) -> Result<libc::termios, Errno> {
    let mut modes = MaybeUninit::uninit();
    // SAFETY: tcgetattr writes one termios to `modes`, or fails.
    Errno::result(unsafe { libc::tcgetattr(terminal.as_fd().as_raw_fd(), modes.as_mut_ptr()) })?;
    // SAFETY: it has succeeded.
    Ok(unsafe { modes.assume_init() })
}

/// Sets them once what has been written is out. From the background that stops the caller, unless SIGTTOU is blocked.
///
/// # Errors
/// The kernel's.
pub fn set_modes(terminal: &impl AsFd, modes: &libc::termios) -> Result<(), Errno> {
    // SAFETY: tcsetattr reads one termios from `modes`.
    Errno::result(unsafe { libc::tcsetattr(terminal.as_fd().as_raw_fd(), libc::TCSADRAIN, modes) }).map(drop)
}

/// Rows and columns of a terminal; zero where nobody has said.
///
/// # Errors
/// The kernel's: ENOTTY for what is no terminal, EIO for one that is gone.
pub fn size(terminal: &impl AsFd) -> Result<(u16, u16), Errno> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to `size`.
    Errno::result(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) })?;
    Ok((size.ws_row, size.ws_col))
}

#[cfg(test)]
mod tests {
    use nix::pty::{Winsize, openpty};

    use super::*;

    #[test]
    fn modes_that_are_set_are_read_again_and_a_pipe_has_none() {
        let size_of_it = Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size_of_it), None).unwrap();
        let mut wanted = modes(&pair.slave).unwrap();
        wanted.c_lflag ^= libc::ECHO | libc::ICANON | libc::EXTPROC;
        wanted.c_cc[libc::VINTR] = 7;
        set_modes(&pair.slave, &wanted).unwrap();
        let found = modes(&pair.master).unwrap();
        assert_eq!((found.c_lflag, found.c_cc[libc::VINTR]), (wanted.c_lflag, 7));
        assert_eq!(size(&pair.slave), Ok((33, 101)));
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        assert_eq!(modes(&pipe).map(|_| ()), Err(Errno::ENOTTY));
        assert_eq!(size(&pipe), Err(Errno::ENOTTY));
    }
}
