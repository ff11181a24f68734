//! Descriptors that the restarter makes when all processes are there, and hands to those that had them: of processes, which
//! can be opened only then, and of what it has to hold itself until the end.
//!
//! Several processes may share one description, so all get the same. They travel over the channel, in one packet for each process.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::read;

use super::ended::Ended;
use super::fanotify;
use super::message_queues::Queues;
use super::of_processes;
use super::reach::{self, Holders, Rights, Spot};
use crate::descriptor::made;
use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, OpenFile, Watch, path_of};
use crate::unread_bytes::unread_bytes;

/// What is handed over.
#[derive(Debug, Default)]
pub struct Handed(Vec<(usize, OwnedFd)>);

impl Handed {
    /// Makes those of `job`, whose processes are all there.
    ///
    /// # Errors
    /// When one cannot be made, by name.
    pub fn make(job: &JobImage, queues: &Queues) -> Result<Handed> {
        let holders = Holders::of(job);
        let files = job.objects.files.iter().enumerate().filter(|(_, file)| file.is_handed_over());
        let made = files.map(|(index, file)| Ok((index, make((job, &holders), (index, file), queues)?)));
        Ok(Handed(made.collect::<Result<_>>()?))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends all of them to whoever listens.
    pub fn send(&self, channel: &OwnedFd) -> Result<()> {
        let numbers: Vec<RawFd> = self.0.iter().map(|(_, made)| made.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        sendmsg::<()>(channel.as_raw_fd(), &[IoSlice::new(b"d")], &rights, MsgFlags::MSG_NOSIGNAL, None)
            .map(drop)
            .map_err(|source| Error::io("hand descriptors to", "the rebuilt process", source))
    }

    /// Does what can be done when everything else is in place: forgets what watches have seen of the restart itself, its files
    /// being put back above all, and goes on in what /proc has of processes where the program was.
    pub fn settle(&self, job: &JobImage) -> Result<()> {
        for (index, made) in &self.0 {
            let file = &job.objects.files[*index];
            match file.kind {
                FileKind::Inotify { .. } => {
                    drain(made).map_err(|source| Error::io("read", "the events of an inotify instance", source))?;
                }
                FileKind::Fanotify(_) => {
                    let failed = |source| Error::io("read", "the events of a fanotify group", source);
                    fanotify::forget_events(made).map_err(failed)?;
                }
                FileKind::OfProcess { .. } => of_processes::go_to_offset(file, made)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn make(
    (job, holders): (&JobImage, &Holders<'_>),
    (index, file): (usize, &OpenFile),
    queues: &Queues,
) -> Result<OwnedFd> {
    let holders = holders.of_file(index);
    match &file.kind {
        FileKind::OfProcess { .. } => of_processes::open(job, file, &holders),
        FileKind::Inotify { watches } => inotify(watches, file.flags, &holders),
        FileKind::Fanotify(group) => {
            let find = |path: &Path| watched(path, &holders);
            fanotify::make(group, file.flags, find)
        }
        FileKind::MessageQueue { queue } => queues.reopen(*queue, file.flags),
        &FileKind::PidFd { pid: 0, status, .. } => {
            ended_pidfd(status, file.flags).map_err(|source| Error::io("make", "a process that has ended", source))
        }
        &FileKind::PidFd { pid, thread, .. } => {
            let thread = if thread { libc::O_EXCL } else { 0 };
            // SAFETY: takes numbers only.
            let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, file.flags & libc::O_NONBLOCK | thread) };
            made(opened).map_err(|source| Error::io("open a pidfd of", format!("/proc/{pid}"), source))
        }
        _ => Err(Error::io("hand over", "a descriptor", io::ErrorKind::InvalidInput)),
    }
}

/// A descriptor of a process that has ended with `status` and has been waited for.
fn ended_pidfd(status: i32, flags: i32) -> nix::Result<OwnedFd> {
    let pidfd = Ended::with(status)?.wait();
    fcntl(&pidfd, FcntlArg::F_SETFL(OFlag::from_bits_truncate(flags & libc::O_NONBLOCK)))?;
    Ok(pidfd)
}

/// An instance whose watches have their numbers, which the kernel gives out in order: those between are used up.
fn inotify(watches: &[Watch], flags: i32, holders: &[Rights]) -> Result<OwnedFd> {
    let failed = |source| Error::io("make", "an inotify instance", source);
    let made = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(failed)?;
    for watch in watches {
        let path = path_of(&watch.path);
        let failed = |source: io::Error| Error::io("watch", path, source);
        let watched = watched(path, holders).map_err(|source| reach::failed("watch", path, source))?;
        loop {
            let mask = AddWatchFlags::from_bits_retain(watch.mask);
            let descriptor = add_watch(&made, (path, &watched), mask, holders).map_err(failed)?;
            match descriptor.as_raw() {
                number if number == watch.number => break,
                number if number > watch.number => {
                    return Err(Error::environment(
                        format!("watch {}", path.display()),
                        format!("the kernel gives it the number {number}, and it had {}", watch.number),
                        "restart another checkpoint",
                    ));
                }
                _ => made.rm_watch(descriptor).map_err(|errno| failed(errno.into()))?,
            }
            // Each removal is an event, and there is a limit.
            drain(made.as_fd()).map_err(|errno| failed(errno.into()))?;
        }
    }
    let inotify = OwnedFd::from(made);
    drain(&inotify).map_err(failed)?;
    fcntl(&inotify, FcntlArg::F_SETFL(OFlag::from_bits_truncate(flags & libc::O_NONBLOCK))).map_err(failed)?;
    Ok(inotify)
}

/// What the path leads to, which may be a symbolic link itself.
fn watched(path: &Path, holders: &[Rights]) -> io::Result<File> {
    if path == Path::new("/") {
        return reach::open(path, libc::O_PATH, holders, None);
    }
    Spot::reach(path, holders)?.itself()
}

/// Adds a watch of what `watched` is, which is only a path, with the rights of one of the `holders` to read it.
fn add_watch(
    inotify: &Inotify,
    (path, watched): (&Path, &File),
    mask: AddWatchFlags,
    holders: &[Rights],
) -> io::Result<WatchDescriptor> {
    let link = format!("/proc/self/fd/{}", watched.as_raw_fd());
    let add = || Ok(inotify.add_watch(link.as_str(), mask)?);
    match Rights::act_as_any(holders, add) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && reach::is_out_of_others_reach(path) => add(),
        outcome => outcome,
    }
}

/// Reads all events that there are.
fn drain(inotify: impl AsFd) -> nix::Result<()> {
    let mut events = [0; 65536];
    while unread_bytes(inotify.as_fd())? != 0 {
        read(inotify.as_fd(), &mut events)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_have_the_numbers_that_they_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = dir.path().canonicalize().unwrap().join(name);
            std::fs::write(&path, "").unwrap();
            path.into_os_string().into_encoded_bytes()
        };
        let mask = libc::IN_MODIFY | libc::IN_EXCL_UNLINK;
        let watches = [3, 4, 40].map(|number| Watch { number, mask, path: path(&number.to_string()) });
        let made = inotify(&watches, 0, &[Rights::own().unwrap()]).unwrap();
        let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", made.as_raw_fd())).unwrap();
        for watch in watches {
            assert!(shown.contains(&format!("inotify wd:{:x} ", watch.number)), "{shown}");
        }
        assert_eq!(shown.matches(&format!("mask:{mask:x} ")).count(), 3, "{shown}");
    }

    #[test]
    fn a_process_that_has_ended_is_dead_to_whoever_has_its_descriptor() {
        let pidfd = ended_pidfd(5 << 8, libc::O_NONBLOCK).unwrap();
        let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap();
        assert!(shown.contains("Pid:\t-1"), "{shown}");
    }
}
