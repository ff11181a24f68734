//! The three streams that stand for the outside: the restarter's own, or a file.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};

use crate::descriptor::are_duplicates;
use crate::error::{Error, Result};

/// Input, output and errors, by their numbers in this process.
#[derive(Debug)]
pub struct Streams {
    /// Their numbers.
    pub numbers: [RawFd; 3],
    /// Whether they are this process's own, so that its terminal may be the program's.
    pub own: bool,
    _null: Option<File>,
    _file: Option<Arc<File>>,
}

impl Streams {
    /// The restarter's own; /dev/null for those that it does not have.
    pub fn of_the_restarter() -> Result<Streams> {
        let mut streams = Streams { numbers: [0, 1, 2], own: true, _null: None, _file: None };
        let missing = streams.numbers.map(|number| {
            // SAFETY: F_GETFD takes no argument and changes nothing, whatever the number is.
            unsafe { libc::fcntl(number, libc::F_GETFD) == -1 }
        });
        if missing.contains(&true) {
            let null = null()?;
            for (number, _) in streams.numbers.iter_mut().zip(missing).filter(|(_, missing)| *missing) {
                *number = null.as_raw_fd();
            }
            streams._null = Some(null);
        }
        Ok(streams)
    }

    /// Output and errors to `file`, no input.
    pub fn to_file(file: Arc<File>) -> Result<Streams> {
        let null = null()?;
        let numbers = [null.as_raw_fd(), file.as_raw_fd(), file.as_raw_fd()];
        Ok(Streams { numbers, own: false, _null: Some(null), _file: Some(file) })
    }

    /// Stream `place`, 0 to 2.
    pub fn stream(&self, place: usize) -> BorrowedFd<'_> {
        // SAFETY: the numbers are open for as long as this is: they are files of ours, or the standard streams, which
        // nobody closes here.
        unsafe { BorrowedFd::borrow_raw(self.numbers[place]) }
    }

    /// Whether stream `place` is a terminal.
    pub fn is_terminal(&self, place: usize) -> bool {
        std::io::IsTerminal::is_terminal(&self.stream(place))
    }

    /// Whether what was opened with the access mode `wanted` may be done with stream `place`.
    pub fn allows(&self, place: usize, wanted: i32) -> bool {
        let has = fcntl(self.stream(place), FcntlArg::F_GETFL).unwrap_or(0) & libc::O_ACCMODE;
        has == libc::O_RDWR || has == wanted & libc::O_ACCMODE
    }

    /// The first stream that is the same open file description as stream `place`.
    pub fn first_alike(&self, place: usize) -> usize {
        let is_alike = |other: usize| {
            self.numbers[other] == self.numbers[place]
                || are_duplicates(self.stream(other), self.stream(place)).unwrap_or(false)
        };
        (0..place).find(|&other| is_alike(other)).unwrap_or(place)
    }
}

fn null() -> Result<File> {
    let opened = File::options().read(true).write(true).open("/dev/null");
    opened.map_err(|source| Error::io("open", "/dev/null", source))
}
