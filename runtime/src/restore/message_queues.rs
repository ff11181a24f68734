//! POSIX message queues: found where they were, or made again.

use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::{Gid, Uid, fchown, geteuid};

use super::clocks;
use super::paths::c_path;
use crate::error::{Error, Result};
use crate::image::{JobImage, MessageQueue, QueuedMessage};
use crate::mqueue::{self, Attributes};

/// The queues of a job, open; the names of those that were made go again, unless they are kept.
#[derive(Debug, Default)]
pub struct Queues {
    opened: Vec<OwnedFd>,
    made: Vec<CString>,
}

impl Queues {
    /// Opens all queues of `job`, and makes those that are missing.
    ///
    /// # Errors
    /// When another queue is in the place of one, or it cannot be made. Then none is left.
    pub fn of(job: &JobImage) -> Result<Queues> {
        let mut queues = Queues::default();
        for queue in &job.objects.message_queues {
            let opened = queues.open(job, queue)?;
            queues.opened.push(opened);
        }
        Ok(queues)
    }

    fn open(&mut self, job: &JobImage, queue: &MessageQueue) -> Result<OwnedFd> {
        let failed = |action| move |source: Errno| Error::io(action, shown(queue), source);
        let is_nameless = queue.name.is_empty();
        let name = match is_nameless {
            // Its name goes as soon as it is made.
            true => c_path(format!("ckpt-{}-{}", std::process::id(), queue.inode).as_bytes())?,
            false => c_path(&queue.name)?,
        };
        let new = Attributes::of_new(queue.messages, queue.message_bytes);
        let access = libc::O_RDWR | libc::O_NONBLOCK;
        match mqueue::open(&name, access | libc::O_CREAT | libc::O_EXCL, Some(&new)) {
            Ok(made) => {
                if is_nameless {
                    mqueue::unlink(&name).map_err(failed("remove the name of"))?;
                } else {
                    self.made.push(name);
                }
                give_rights(&made, queue).map_err(|source| Error::io("set the rights of", shown(queue), source))?;
                Ok(made)
            }
            Err(Errno::EEXIST) if !is_nameless => {
                let there = mqueue::open(&name, access, None).map_err(failed("open"))?;
                refuse_another(job, queue, &there)?;
                Ok(there)
            }
            Err(source) => Err(failed("make")(source)),
        }
    }

    /// A description of queue `index` of its own.
    pub fn reopen(&self, index: u32, flags: i32) -> Result<OwnedFd> {
        let queue = self.opened.get(index as usize);
        let queue = queue.ok_or_else(|| Error::io("open", "a message queue", Errno::ENOENT))?;
        let access = flags & libc::O_ACCMODE;
        let opened = OpenOptions::new()
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & libc::O_NONBLOCK)
            .open(format!("/proc/self/fd/{}", queue.as_raw_fd()));
        opened.map(OwnedFd::from).map_err(|source| Error::io("open", "a message queue", source))
    }

    /// Takes out what an earlier life has left, and puts in what was there at the checkpoint. They stay.
    pub fn settle(mut self, job: &JobImage) -> Result<()> {
        self.made.clear();
        for (opened, queue) in self.opened.iter().zip(&job.objects.message_queues) {
            mqueue::empty(opened.as_fd()).map_err(|source| Error::io("empty", shown(queue), source))?;
            let put = |message: &QueuedMessage| mqueue::put(opened.as_fd(), &message.bytes, message.priority);
            let filled = queue.queued.iter().try_for_each(put);
            filled.map_err(|source| Error::io("put messages into", shown(queue), source))?;
        }
        Ok(())
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for name in &self.made {
            if let Err(error) = mqueue::unlink(name) {
                log::warn!("message queue {name:?} was made for the restart and stays: {error}");
            }
        }
    }
}

fn shown(queue: &MessageQueue) -> String {
    match queue.name.is_empty() {
        true => "message queue without a name".to_owned(),
        false => format!("message queue /{}", String::from_utf8_lossy(&queue.name)),
    }
}

fn give_rights(made: &OwnedFd, queue: &MessageQueue) -> std::io::Result<()> {
    if geteuid().is_root() {
        fchown(made, Some(Uid::from_raw(queue.uid)), Some(Gid::from_raw(queue.gid)))?;
    }
    File::from(made.try_clone()?).set_permissions(Permissions::from_mode(queue.mode))
}

/// The queue that an earlier life has left may hold anything; one that somebody has made since must be the same, and empty.
fn refuse_another(job: &JobImage, queue: &MessageQueue, there: &OwnedFd) -> Result<()> {
    let failed = |source| Error::io("examine", shown(queue), source);
    let found = fstat(there).map_err(failed)?;
    if clocks::is_boot_of(job) && found.st_ino == queue.inode {
        return Ok(());
    }
    let now = mqueue::attributes(there.as_fd()).map_err(failed)?;
    let is_expected = [queue.uid, geteuid().as_raw()].contains(&found.st_uid);
    let why = if !is_expected {
        // Its owner reads what is put into it.
        "it is another one by now, of another user"
    } else if (now.max_messages, now.message_bytes) != (queue.messages, queue.message_bytes) {
        "it is another one by now, which takes other messages"
    } else if now.queued > 0 {
        "it is another one by now, which has messages in it"
    } else {
        return Ok(());
    };
    Err(Error::environment(format!("open {}", shown(queue)), why, "remove it (mq_unlink) if nobody needs it"))
}
