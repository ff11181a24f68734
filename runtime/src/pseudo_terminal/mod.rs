//! What a pair of pseudo-terminals can be asked and told through its master, whole.
//!
//! The line between the two sides has one set of modes and one size, whichever side is asked. What waits in it is in
//! [`queues`].

pub mod queues;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::descriptor::made;

/// Number of a device that leads to the master side of a new pair (major, minor).
pub const MULTIPLEXER: (u64, u64) = (5, 2);
/// Number of the device that leads to whichever terminal controls the process that opens it (major, minor).
pub const OWN: (u64, u64) = (5, 0);
/// Major number of slave sides; the minor number is that in their names.
pub const SLAVES: u64 = 136;

/// Modes of a line, speeds included.
pub type Modes = libc::termios2;

/// Which pair `master` belongs to: N of /dev/pts/N.
///
/// # Errors
/// The kernel's: ENOTTY for what is no master.
pub fn number(master: &impl AsFd) -> Result<u32, Errno> {
    Ok(ask(master, libc::TIOCGPTN)? as u32)
}

/// Device (major, minor) of the terminal that `terminal` leads to, also where that was opened as /dev/tty.
///
/// # Errors
/// The kernel's: EIO where it has been hung up, ENOTTY for what is no terminal.
pub fn device(terminal: &impl AsFd) -> Result<(u64, u64), Errno> {
    // As in the kernel's new_encode_dev.
    let device = ask(terminal, libc::TIOCGDEV)? as u32 as u64;
    Ok(((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00)))
}

/// Opens the slave side, wherever it is mounted and whoever may open it by its name.
///
/// # Errors
/// The kernel's: EIO while it is locked, EBUSY while somebody has it for himself.
pub fn open_slave(master: &impl AsFd, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: TIOCGPTPEER takes flags.
    made(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGPTPEER, flags) })
}

/// The modes of the line.
///
/// # Errors
/// The kernel's.
pub fn modes(master: &impl AsFd) -> Result<Modes, Errno> {
    let mut modes = MaybeUninit::uninit();
    // SAFETY: TCGETS2 writes one termios2 to `modes`, or fails.
    Errno::result(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TCGETS2, modes.as_mut_ptr()) })?;
    // SAFETY: it has succeeded.
    Ok(unsafe { modes.assume_init() })
}

/// Sets the modes of the line at once.
///
/// # Errors
/// The kernel's.
pub fn set_modes(master: &impl AsFd, modes: &Modes) -> Result<(), Errno> {
    // SAFETY: TCSETS2 reads one termios2 from `modes`.
    Errno::result(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TCSETS2, modes) }).map(drop)
}

/// Rows, columns, width and height in pixels, each zero where nobody has said.
///
/// # Errors
/// The kernel's.
pub fn size(master: &impl AsFd) -> Result<[u16; 4], Errno> {
    let mut size = [0u16; 4];
    // SAFETY: TIOCGWINSZ writes one winsize, which is four such numbers.
    Errno::result(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) })?;
    Ok(size)
}

/// Sets the size, of which the foreground hears if it changes.
///
/// # Errors
/// The kernel's.
pub fn set_size(master: &impl AsFd, size: [u16; 4]) -> Result<(), Errno> {
    // SAFETY: TIOCSWINSZ reads one winsize, which is four such numbers.
    Errno::result(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCSWINSZ, size.as_ptr()) }).map(drop)
}

/// Whether the master reads packets: bytes behind what kind they are.
///
/// # Errors
/// The kernel's.
pub fn is_in_packet_mode(master: &impl AsFd) -> Result<bool, Errno> {
    Ok(ask(master, libc::TIOCGPKT)? != 0)
}

/// Has the master read packets, or bytes.
///
/// # Errors
/// The kernel's.
pub fn set_packet_mode(master: &impl AsFd, on: bool) -> Result<(), Errno> {
    tell(master, libc::TIOCPKT, on.into())
}

/// Whether the slave side cannot be opened yet (`unlockpt`).
///
/// # Errors
/// The kernel's.
pub fn is_locked(master: &impl AsFd) -> Result<bool, Errno> {
    Ok(ask(master, libc::TIOCGPTLCK)? != 0)
}

/// Locks the slave side against being opened, or unlocks it.
///
/// # Errors
/// The kernel's.
pub fn set_locked(master: &impl AsFd, locked: bool) -> Result<(), Errno> {
    tell(master, libc::TIOCSPTLCK, locked.into())
}

/// Whether those who have this side open keep others from opening it (`TIOCEXCL`).
///
/// # Errors
/// The kernel's.
pub fn is_exclusive(side: &impl AsFd) -> Result<bool, Errno> {
    Ok(ask(side, libc::TIOCGEXCL)? != 0)
}

/// Keeps others from opening this side, or no more.
///
/// # Errors
/// The kernel's.
pub fn set_exclusive(side: &impl AsFd, on: bool) -> Result<(), Errno> {
    let request = if on { libc::TIOCEXCL } else { libc::TIOCNXCL };
    // SAFETY: takes no argument.
    Errno::result(unsafe { libc::ioctl(side.as_fd().as_raw_fd(), request) }).map(drop)
}

/// The session that the slave side controls; none if it controls none.
///
/// # Errors
/// The kernel's.
pub fn session(master: &impl AsFd) -> Result<Option<i32>, Errno> {
    match ask(master, libc::TIOCGSID) {
        Err(Errno::ENOTTY) => Ok(None),
        asked => asked.map(|session| Some(session).filter(|&session| session != 0)),
    }
}

/// The process group in its foreground; none if there is none.
///
/// # Errors
/// The kernel's.
pub fn foreground(master: &impl AsFd) -> Result<Option<i32>, Errno> {
    match ask(master, libc::TIOCGPGRP) {
        Err(Errno::ENOTTY) => Ok(None),
        asked => asked.map(|group| Some(group).filter(|&group| group > 0)),
    }
}

fn ask(terminal: &impl AsFd, request: u64) -> Result<i32, Errno> {
    let mut answer = 0i32;
    // SAFETY: the requests that this is used with write one int.
    Errno::result(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), request, &raw mut answer) }).map(|_| answer)
}

fn tell(terminal: &impl AsFd, request: u64, value: i32) -> Result<(), Errno> {
    // SAFETY: the requests that this is used with read one int.
    Errno::result(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), request, &raw const value) }).map(drop)
}

/// A new pair's master, unlocked, in the tests.
#[cfg(test)]
pub fn new_master() -> OwnedFd {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    set_locked(&opened, false).unwrap();
    opened.into()
}
