//! What waits in a pseudo-terminal: bytes that programs have written to it and its master has not read, and bytes that
//! the master has written and programs have not read.
//!
//! The kernel shows neither without giving it away. So it is read, and written again at once, in modes in which nothing
//! is done with it that has been done with it already: no echo, no signals, no new lines made of returns. Where lines
//! are collected they end again where they ended, and the one that is being typed can still be changed.
//!
//! Nothing here allocates between the first byte that is read and the last that is written: it may go on in a process of
//! which the rest is gone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Modes, set_modes};
use crate::unread_bytes::unread_bytes;

/// More than the kernel lets wait for a master: what a line buffers, and what is on its way there.
const OUTPUT_MAX: usize = 64 << 10;
/// The length of writes by which the most bytes fit: 22508, where no other length that was tried has more than 22448.
const OUTPUT_CHUNK: usize = 1023;
/// A line buffers 4095 bytes of input; what is beyond would be looked at in the wrong modes.
pub const INPUT_MAX: usize = 3500;
/// Far more than the kernel takes to move 12 KiB from one side to the other.
const PATIENCE: Duration = Duration::from_millis(500);
/// Character that there is not (`_POSIX_VDISABLE`).
const NONE: u8 = 0;

/// What waits in a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// What the master will read.
    pub output: Vec<u8>,
    /// What programs will read.
    pub input: Vec<u8>,
    /// Where in `input` a read ends without a character that says so (^D was typed), ascending.
    pub ends: Vec<u32>,
    /// Output stands still because ^S was typed.
    pub stopped: bool,
    /// Output stands still by `tcflow`.
    pub suspended: bool,
}

/// Why queues could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The kernel says so.
    Refused(Errno),
    /// There is more than could be put back as it was.
    TooMuch,
    /// What was there found no room any more, in part.
    Lost,
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Trouble {
        Trouble::Refused(errno)
    }
}

impl Queues {
    /// Room for all that can wait.
    pub fn with_room() -> Queues {
        Queues {
            output: Vec::with_capacity(OUTPUT_MAX),
            input: Vec::with_capacity(2 * 4096),
            ends: Vec::with_capacity(4096),
            ..Queues::default()
        }
    }

    /// Whether there is nothing to be put into a line, whose output goes on unless a call has suspended it.
    fn is_empty(&self) -> bool {
        self.output.is_empty() && self.input.is_empty() && self.ends.is_empty() && !self.stopped
    }
}

/// A pair whose queues are looked at or filled. Nobody else reads or writes there meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The master, which reads bytes and not packets.
    pub master: BorrowedFd<'a>,
    /// A description of the slave that does not block.
    pub slave: BorrowedFd<'a>,
    /// The modes that the line has, and is to have afterwards.
    pub modes: &'a Modes,
}

impl Line<'_> {
    /// Copies what waits into `queues`, which have room and are empty; all of it waits again afterwards.
    ///
    /// # Errors
    /// What could not be done; as much as could has been put back.
    pub fn copy(&self, queues: &mut Queues) -> Result<(), Trouble> {
        let lines = collects_lines(self.modes);
        if unread_bytes(self.slave)? > INPUT_MAX {
            return Err(Trouble::TooMuch);
        }
        let flags = blocking(self.master, false)?;
        let taken = self.take(queues, lines);
        let put = if queues.is_empty() { set_modes(&self.master, self.modes) } else { self.put(queues) };
        set_flags(self.master, flags)?;
        taken?;
        put.map_err(|errno| if errno == Errno::EAGAIN { Trouble::Lost } else { Trouble::Refused(errno) })?;
        if queues.input.len() > INPUT_MAX { Err(Trouble::TooMuch) } else { Ok(()) }
    }

    /// Fills the queues of a line in which nothing waits.
    ///
    /// # Errors
    /// What could not be done.
    pub fn fill(&self, queues: &Queues) -> Result<(), Errno> {
        if queues.is_empty() && !queues.suspended {
            return Ok(());
        }
        let flags = blocking(self.master, false)?;
        let put = self.put(queues);
        set_flags(self.master, flags)?;
        put
    }

    /// Reads all that waits. The modes are others afterwards.
    fn take(&self, queues: &mut Queues, lines: bool) -> Result<(), Errno> {
        // What is on its way is there when somebody asks whether it is.
        is_ready(self.slave, libc::POLLIN)?;
        read_all(self.master, &mut queues.output)?;
        // There is room in an empty line, so it stands still if it takes nothing.
        let stands_still = !is_ready(self.slave, libc::POLLOUT)?;
        while lines && is_ready(self.slave, libc::POLLIN)? && queues.ends.len() < queues.ends.capacity() {
            let bytes = read_once(self.slave, &mut queues.input)?;
            let ends_itself = queues.input.last().is_some_and(|&last| ends_line(self.modes, last));
            if bytes == 0 || !ends_itself {
                queues.ends.push(queues.input.len() as u32);
            }
        }
        set_modes(&self.master, &quiet(self.modes, None, false))?;
        // Where nothing that is typed stops output any more, it goes on, but for what a call has suspended.
        queues.suspended = stands_still && !is_ready(self.slave, libc::POLLOUT)?;
        queues.stopped = stands_still && !queues.suspended;
        read_all(self.slave, &mut queues.input)
    }

    /// Writes what is to wait, and gives the line its modes.
    fn put(&self, queues: &Queues) -> Result<(), Errno> {
        let lines = collects_lines(self.modes);
        let signs = Signs::not_in(&queues.input, self.modes).ok_or(Errno::EOVERFLOW);
        let outcome = signs.and_then(|signs| {
            set_modes(&self.master, &quiet(self.modes, None, lines))?;
            if !is_ready(self.slave, libc::POLLOUT)? {
                flow(self.slave, libc::TCOON)?;
            }
            set_modes(&self.master, &quiet(self.modes, Some(&signs), lines))?;
            self.put_input(queues, &signs, lines)?;
            // In one piece it would take more room than it had.
            queues.output.chunks(OUTPUT_CHUNK).try_for_each(|piece| write_all(self.slave, piece))?;
            if queues.stopped { self.send(&signs, false).map(drop) } else { Ok(()) }
        });
        set_modes(&self.master, self.modes)?;
        if queues.suspended {
            flow(self.slave, libc::TCOOFF)?;
        }
        outcome
    }

    fn put_input(&self, queues: &Queues, signs: &Signs, lines: bool) -> Result<(), Errno> {
        let mut done = 0;
        for &end in &queues.ends {
            let end = (end as usize).min(queues.input.len());
            write_all(self.master, queues.input.get(done..end).unwrap_or_default())?;
            if lines {
                write_all(self.master, &[signs.end])?;
            }
            done = end;
        }
        write_all(self.master, &queues.input[done..])?;
        // When these have had their effect, what is before them has arrived.
        self.send(signs, false)?;
        self.send(signs, true)?;
        Ok(())
    }

    /// Types the character that starts output or stops it; whether it has had that effect in time.
    fn send(&self, signs: &Signs, start: bool) -> Result<bool, Errno> {
        write_all(self.master, &[if start { signs.start } else { signs.stop }])?;
        let end = Instant::now() + PATIENCE;
        while is_ready(self.slave, libc::POLLOUT)? != start {
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }
}

/// Characters with a meaning that do not occur in what is written.
struct Signs {
    end: u8,
    stop: u8,
    start: u8,
}

impl Signs {
    fn not_in(input: &[u8], modes: &Modes) -> Option<Signs> {
        let mut unused = (1..=u8::MAX).filter(|&sign| !input.contains(&sign) && !ends_line(modes, sign));
        Some(Signs { end: unused.next()?, stop: unused.next()?, start: unused.next()? })
    }
}

/// Whether a read ends behind a line. (Not under EXTPROC, where somebody else edits lines.)
fn collects_lines(modes: &Modes) -> bool {
    modes.c_lflag & libc::ICANON != 0 && modes.c_lflag & libc::EXTPROC == 0
}

/// Whether `byte` ends a line.
fn ends_line(modes: &Modes, byte: u8) -> bool {
    let is = |place: usize| modes.c_cc[place] != NONE && modes.c_cc[place] == byte;
    byte == b'\n' || is(libc::VEOL) || modes.c_lflag & libc::IEXTEN != 0 && is(libc::VEOL2)
}

/// Modes in which input stays what it is, but for `signs`, and output too. Lines are collected if `lines` says so; under EXTPROC
/// as before.
fn quiet(modes: &Modes, signs: Option<&Signs>, lines: bool) -> Modes {
    const SIGNS: [usize; 7] =
        [libc::VINTR, libc::VQUIT, libc::VSUSP, libc::VERASE, libc::VKILL, libc::VWERASE, libc::VREPRINT];
    let mut quiet = *modes;
    quiet.c_iflag &= libc::IUTF8;
    quiet.c_oflag &= !libc::OPOST;
    quiet.c_lflag &= libc::ICANON | libc::IEXTEN | libc::EXTPROC | libc::NOFLSH;
    SIGNS.into_iter().chain([libc::VLNEXT]).for_each(|place| quiet.c_cc[place] = NONE);
    if let Some(signs) = signs {
        quiet.c_iflag |= libc::IXON;
        (quiet.c_cc[libc::VSTOP], quiet.c_cc[libc::VSTART]) = (signs.stop, signs.start);
    }
    if modes.c_lflag & libc::EXTPROC != 0 {
        return quiet;
    }
    if lines {
        quiet.c_cc[libc::VEOF] = signs.map_or(NONE, |signs| signs.end);
    } else {
        quiet.c_lflag &= !libc::ICANON;
        (quiet.c_cc[libc::VMIN], quiet.c_cc[libc::VTIME]) = (1, 0);
    }
    quiet
}

fn is_ready(side: BorrowedFd<'_>, event: i16) -> Result<bool, Errno> {
    let mut polled = libc::pollfd { fd: side.as_raw_fd(), events: event, revents: 0 };
    // SAFETY: poll reads and writes one pollfd.
    Errno::result(unsafe { libc::poll(&mut polled, 1, 0) })?;
    Ok(polled.revents & event != 0)
}

fn read_all(side: BorrowedFd<'_>, into: &mut Vec<u8>) -> Result<(), Errno> {
    while into.len() < into.capacity() && is_ready(side, libc::POLLIN)? && read_once(side, into)? > 0 {}
    Ok(())
}

/// Appends to `into` as far as it has room.
fn read_once(side: BorrowedFd<'_>, into: &mut Vec<u8>) -> Result<usize, Errno> {
    let room = into.spare_capacity_mut();
    // SAFETY: read writes at most so many bytes there.
    let bytes = Errno::result(unsafe { libc::read(side.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) })? as usize;
    // SAFETY: so many bytes have been written behind its end.
    unsafe { into.set_len(into.len() + bytes) };
    Ok(bytes)
}

/// To a description that does not block.
fn write_all(side: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    let end = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        // SAFETY: write reads at most so many bytes from there.
        match Errno::result(unsafe { libc::write(side.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) }) {
            Ok(written) => bytes = bytes.get(written as usize..).unwrap_or_default(),
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < end => std::thread::yield_now(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn flow(slave: BorrowedFd<'_>, action: i32) -> Result<(), Errno> {
    // SAFETY: TCXONC takes a number.
    Errno::result(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TCXONC, action) }).map(drop)
}

/// Makes a description block or not, and gives the flags that it had.
fn blocking(side: BorrowedFd<'_>, on: bool) -> Result<i32, Errno> {
    // SAFETY: F_GETFL takes no argument.
    let flags = Errno::result(unsafe { libc::fcntl(side.as_raw_fd(), libc::F_GETFL) })?;
    set_flags(side, if on { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK })?;
    Ok(flags)
}

fn set_flags(side: BorrowedFd<'_>, flags: i32) -> Result<(), Errno> {
    // SAFETY: F_SETFL takes a number.
    Errno::result(unsafe { libc::fcntl(side.as_fd().as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use nix::unistd::{read, write};

    use super::super::{modes, new_master, open_slave};
    use super::*;

    const SLAVE: i32 = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;

    struct Pair {
        master: OwnedFd,
        slave: OwnedFd,
    }

    impl Pair {
        fn new(change: impl FnOnce(&mut Modes)) -> Pair {
            let master = new_master();
            let slave = open_slave(&master, SLAVE).unwrap();
            let mut wanted = modes(&master).unwrap();
            change(&mut wanted);
            set_modes(&master, &wanted).unwrap();
            Pair { master, slave }
        }

        fn modes(&self) -> Modes {
            modes(&self.master).unwrap()
        }

        fn copy(&self) -> Result<Queues, Trouble> {
            let (mut queues, modes) = (Queues::with_room(), self.modes());
            let line = Line { master: self.master.as_fd(), slave: self.slave.as_fd(), modes: &modes };
            line.copy(&mut queues).map(|()| queues)
        }

        fn fill(&self, queues: &Queues) {
            let modes = self.modes();
            Line { master: self.master.as_fd(), slave: self.slave.as_fd(), modes: &modes }.fill(queues).unwrap();
        }

        fn types(&self, keys: &[u8]) {
            assert_eq!(write(&self.master, keys), Ok(keys.len()));
            // What is on its way arrives.
            std::thread::sleep(Duration::from_millis(20));
        }

        fn prints(&self, text: &[u8]) {
            assert_eq!(write(&self.slave, text), Ok(text.len()));
        }

        /// What each read of a program gives, until nothing waits.
        fn reads(&self) -> Vec<Vec<u8>> {
            let mut all = Vec::new();
            let mut bytes = [0; 4096];
            while let Ok(count) = read(&self.slave, &mut bytes) {
                all.push(bytes[..count].to_vec());
            }
            all
        }

        fn shows(&self) -> Vec<u8> {
            let mut shown = Vec::with_capacity(OUTPUT_MAX);
            read_all(self.master.as_fd(), &mut shown).unwrap();
            shown
        }
    }

    fn words(modes: &Modes) -> (u32, u32, u32, u32, [u8; 19]) {
        (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag, modes.c_cc)
    }

    #[test]
    fn lines_and_what_is_being_typed_wait_again_after_they_were_copied_and_in_another_pair() {
        let pair = Pair::new(|_| {});
        pair.types(b"first\rsecond\n\x04eof-ended\x04half-w\x16\x03");
        pair.prints(b"out\n");
        let echoed = b"first\r\nsecond\r\n^Deof-ended^Dhalf-w^\x08^Cout\r\n";
        let before = words(&pair.modes());
        let queues = pair.copy().unwrap();
        assert_eq!(String::from_utf8_lossy(&queues.input), "first\nsecond\neof-endedhalf-w\x03");
        assert_eq!(queues.ends, [13, 22]);
        assert_eq!(pair.copy().unwrap(), queues, "it waits again");
        assert_eq!(words(&pair.modes()), before);

        let other = Pair::new(|_| {});
        other.fill(&queues);
        for pair in [&pair, &other] {
            let shown = pair.shows();
            assert_eq!(shown.len(), queues.output.len());
            assert!(String::from_utf8_lossy(&shown).ends_with("^Cout\r\n"), "{:?}", String::from_utf8_lossy(&shown));
            // It can be changed: both ends of it go, and nothing is echoed twice.
            pair.types(b"\x7f\x7fAY\n");
            let read: Vec<String> = pair.reads().iter().map(|line| String::from_utf8_lossy(line).into()).collect();
            assert_eq!(read, ["first\n", "second\n", "", "eof-ended", "half-AY\n"]);
        }
        assert!(echoed.ends_with(b"out\r\n"));
    }

    #[test]
    fn keys_wait_again_in_a_raw_terminal_whatever_they_are() {
        let raw = |modes: &mut Modes| {
            modes.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG | libc::IEXTEN);
            modes.c_iflag = 0;
            modes.c_cc[libc::VMIN] = 5;
        };
        let pair = Pair::new(raw);
        pair.types(b"\x03\x04\r\0\x13");
        assert_eq!(pair.copy().unwrap().input, b"\x03\x04\r\0\x13");
        let other = Pair::new(raw);
        other.fill(&pair.copy().unwrap());
        for pair in [pair, other] {
            assert_eq!(pair.reads(), [b"\x03\x04\r\0\x13"]);
            assert_eq!(pair.shows(), b"");
        }
    }

    #[test]
    fn what_a_master_has_not_read_waits_again_to_the_last_byte() {
        for length in [1, 512, 1000, 1023, 1792, 4096] {
            let pair = Pair::new(|_| {});
            let mut printed = 0;
            while let Ok(bytes) = write(&pair.slave, &[b'x'; 4096][..length]) {
                printed += bytes;
            }
            assert!(printed > 8192, "{printed}");
            let queues = pair.copy().unwrap();
            assert_eq!(queues.output.len(), printed, "written by {length}");
            let other = Pair::new(|_| {});
            other.fill(&queues);
            assert_eq!((pair.shows().len(), other.shows().len()), (printed, printed));
        }
    }

    #[test]
    fn output_that_stands_still_does_so_again_and_goes_on_by_the_key_or_the_call() {
        for by_key in [true, false] {
            let pair = Pair::new(|modes| modes.c_iflag = libc::IXON);
            pair.prints(b"before");
            match by_key {
                true => pair.types(b"\x13"),
                false => flow(pair.slave.as_fd(), libc::TCOOFF).unwrap(),
            }
            let queues = pair.copy().unwrap();
            assert_eq!(queues.output, b"before");
            assert_eq!((queues.stopped, queues.suspended), (by_key, !by_key));
            assert_eq!(pair.copy().unwrap(), queues);
            let other = Pair::new(|modes| modes.c_iflag = libc::IXON);
            other.fill(&queues);
            for pair in [pair, other] {
                assert_eq!(write(&pair.slave, b"x"), Err(Errno::EAGAIN));
                match by_key {
                    true => pair.types(b"\x11"),
                    false => flow(pair.slave.as_fd(), libc::TCOON).unwrap(),
                }
                pair.prints(b" after");
                assert_eq!(pair.shows(), b"before after");
            }
        }
    }

    #[test]
    fn a_flood_of_keys_is_refused_and_waits_as_before() {
        let pair = Pair::new(|modes| modes.c_lflag &= !(libc::ICANON | libc::ECHO));
        let keys: Vec<u8> = (0..6000).map(|key| b'a' + (key % 26) as u8).collect();
        pair.types(&keys);
        assert_eq!(pair.copy(), Err(Trouble::TooMuch));
        assert_eq!(pair.reads().concat(), keys);
    }
}
