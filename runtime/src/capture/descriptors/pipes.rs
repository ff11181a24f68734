//! Pipes within the job, and what lies unread in them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, read};

use super::{Entry, place_of, refused};
use crate::error::{Error, Result};
use crate::image::{FileKind, PipeContent};
use crate::proc::fdinfo::FdInfo;

/// The pipes met so far.
pub struct Pipes<'a> {
    /// What lies in each.
    pub contents: Vec<PipeContent>,
    /// All descriptors of the job.
    entries: &'a [Entry<'a>],
    index_of_inode: BTreeMap<(u64, u64), u32>,
}

impl<'a> Pipes<'a> {
    /// Those that `entries` lead to, which are all descriptors of the job.
    pub fn among(entries: &'a [Entry<'a>]) -> Pipes<'a> {
        Pipes { contents: Vec::new(), entries, index_of_inode: BTreeMap::new() }
    }

    /// What a descriptor that leads to a pipe is.
    pub fn kind(&mut self, entry: Entry<'_>) -> Result<FileKind> {
        let info = entry.info;
        let pipe = place_of(info);
        if let Some(&pipe) = self.index_of_inode.get(&pipe) {
            return Ok(FileKind::Pipe { pipe });
        }
        let ends = || self.entries.iter().filter(|other| place_of(other.info) == pipe);
        let mode = |other: &Entry<'_>| other.info.flags & libc::O_ACCMODE;
        let has_reader = ends().any(|other| mode(other) != libc::O_WRONLY);
        let has_writer = ends().any(|other| mode(other) != libc::O_RDONLY);
        let within = (has_reader && has_writer) || other_end_is_closed(entry)?;
        if !within {
            return match ends().find(|other| other.info.number <= 2) {
                Some(standard) => Ok(FileKind::Standard { stream: standard.info.number, was: info.target.clone() }),
                None => Err(refused(
                    info,
                    "the pipe leads outside the job",
                    "close it before the checkpoint, or start the program without it",
                )),
            };
        }
        if !info.target.starts_with(b"pipe:") {
            return Err(refused(info, "named pipes are not captured yet", "close it before the checkpoint"));
        }
        // Only the write end shows the flag.
        if let Some(end) = ends().find(|end| end.info.flags & libc::O_DIRECT != 0) {
            return Err(refused(end.info, "pipes in packet mode (O_DIRECT) are not captured yet", "turn O_DIRECT off"));
        }
        let end = entry.fetch()?;
        let capacity = fcntl(&end, FcntlArg::F_GETPIPE_SZ)
            .map_err(|source| Error::io("read the capacity of", info.shown(), source))?;
        let content = match ends().find(|other| mode(other) != libc::O_WRONLY) {
            Some(reader) => unread(reader.fetch()?, capacity as usize, info)?,
            None => Vec::new(),
        };
        let index = self.contents.len() as u32;
        self.contents.push(PipeContent { capacity: capacity as u32, content, has_reader, has_writer });
        self.index_of_inode.insert(pipe, index);
        Ok(FileKind::Pipe { pipe: index })
    }
}

/// Whether nobody at all holds the other end of a pipe.
fn other_end_is_closed(end: Entry<'_>) -> Result<bool> {
    let fetched = end.fetch()?;
    let mut polled = [PollFd::new(fetched.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).map_err(|source| Error::io("poll", end.info.shown(), source))?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)))
}

/// The bytes in a pipe, read without consuming them.
fn unread(read_end: OwnedFd, capacity: usize, info: &FdInfo) -> Result<Vec<u8>> {
    let failed = |source: nix::errno::Errno| Error::io("read without consuming", info.shown(), source);
    let (copy_out, copy_in) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
    // As many buffers as the original may hold: a pipe of single-byte writes fills buffers, not bytes.
    fcntl(&copy_in, FcntlArg::F_SETPIPE_SZ(capacity.max(65536) as i32)).map_err(failed)?;
    let teed = match tee(&read_end, &copy_in, capacity, SpliceFFlags::SPLICE_F_NONBLOCK) {
        Ok(bytes) => bytes,
        Err(nix::errno::Errno::EAGAIN) => 0,
        Err(source) => return Err(failed(source)),
    };
    let mut content = vec![0; teed];
    let mut done = 0;
    while done < teed {
        match read(copy_out.as_fd(), &mut content[done..]).map_err(failed)? {
            0 => return Err(Error::io("read", info.shown(), std::io::ErrorKind::UnexpectedEof)),
            bytes => done += bytes,
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::super::tests::descriptor;
    use super::*;

    #[test]
    fn what_lies_in_a_pipe_is_read_and_stays_there() {
        let info = descriptor(3, "pipe:[1]");
        let (out, into) = pipe2(OFlag::O_NONBLOCK).unwrap();
        for word in ["first ", "second"] {
            nix::unistd::write(&into, word.as_bytes()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(unread(out.try_clone().unwrap(), 65536, &info).unwrap(), b"first second");
        }
    }
}
