//! Pipes within the job, with a name or without, and what lies unread in them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::entry::{Entry, place_of, refused};
use super::files;
use super::pipe_content::{Unread, unread};
use crate::error::{Error, Result};
use crate::image::{Fifo, FileKind, PipeContent};
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
        let place = place_of(info);
        if let Some(&pipe) = self.index_of_inode.get(&place) {
            return Ok(FileKind::Pipe { pipe });
        }
        let all = || self.entries.iter().filter(|other| place_of(other.info) == place);
        let ends = || all().filter(|other| other.info.flags & libc::O_PATH == 0);
        let mode = |other: &Entry<'_>| other.info.flags & libc::O_ACCMODE;
        let reader = ends().find(|other| mode(other) != libc::O_WRONLY);
        let writer = ends().find(|other| mode(other) != libc::O_RDONLY);

        let capacity = match reader.or(writer) {
            Some(end) => fcntl(end.fetch()?, FcntlArg::F_GETPIPE_SZ)
                .map_err(|source| Error::io("read the capacity of", info.shown(), source))?,
            None => 0,
        };
        let lies = match reader {
            Some(reader) => unread(&reader.fetch()?, capacity as usize, info)?,
            None => Unread::default(),
        };
        let is_over = |end: Option<&Entry<'_>>| end.map_or(Ok(false), |end| is_hung_up(*end));
        let within = match (reader, writer) {
            (Some(_), Some(_)) | (None, None) => true,
            (None, writer) => is_over(writer)?,
            (reader, None) => lies.at_end || is_over(reader)?,
        };
        if !within && let Some(standard) = ends().find(|other| other.info.number <= 2) {
            return Ok(FileKind::Standard { stream: standard.info.number, was: info.target.clone() });
        }
        let fifo = name(info, lies.at_end && writer.is_none() && !is_over(reader)?)?;
        if !within && fifo.is_some() {
            let advice = "close it before the checkpoint, or start the program without it";
            return Err(refused(info, "the other end of this named pipe is open in a process outside the job", advice));
        }
        let pipe = PipeContent {
            capacity: capacity as u32,
            content: lies.bytes,
            pieces: lies.pieces,
            has_reader: reader.is_some(),
            has_writer: writer.is_some(),
            fifo,
            outside: !within,
        };
        let index = self.contents.len() as u32;
        self.contents.push(pipe);
        self.index_of_inode.insert(place, index);
        Ok(FileKind::Pipe { pipe: index })
    }
}

/// The name of a pipe that has one. One whose name has been removed is as good as one that never had any.
fn name(info: &FdInfo, unwritten: bool) -> Result<Option<Fifo>> {
    if info.target.starts_with(b"pipe:") || info.metadata.links == 0 {
        return Ok(None);
    }
    let path = files::living_path(info)?;
    let shown = Path::new(OsStr::from_bytes(&path));
    let named = std::fs::metadata(shown).map_err(|source| Error::io("examine", shown, source))?;
    let (mode, uid, gid) = (named.mode() & 0o7777, named.uid(), named.gid());
    Ok(Some(Fifo { path, mode, uid, gid, unwritten }))
}

/// Whether an end tells that nobody at all holds the other one, and that somebody has.
fn is_hung_up(end: Entry<'_>) -> Result<bool> {
    let fetched = end.fetch()?;
    let mut polled = [PollFd::new(fetched.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).map_err(|source| Error::io("poll", end.info.shown(), source))?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)))
}
