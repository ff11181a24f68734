//! The messages in a POSIX message queue. Who looks at one takes it: all are taken and put back while the job stands still, by somebody who
//! does so to the end whatever becomes of us.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::capture::unbroken;
use crate::image::QueuedMessage;
use crate::mqueue::{self, Attributes};

/// Most bytes that are taken at once.
const ROOM_MAX: usize = 64 << 20;

/// Why they were not captured.
#[derive(Debug)]
pub enum Failure {
    /// They are in the queue as before.
    Kept(Errno),
    /// Some could not be put back.
    Lost(Errno),
}

/// Looks at what is in `queue`, which has these `attributes`.
pub fn queued(queue: &OwnedFd, attributes: &Attributes) -> Result<Vec<QueuedMessage>, Failure> {
    let (count, longest) = (attributes.queued.max(0) as usize, attributes.message_bytes.max(1) as usize);
    if count == 0 {
        return Ok(Vec::new());
    }
    let bytes = count.checked_mul(longest).filter(|&bytes| bytes <= ROOM_MAX).ok_or(Failure::Kept(Errno::E2BIG))?;
    let path = format!("/proc/self/fd/{}", queue.as_raw_fd());
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let opened = opened.map_err(|error| Failure::Kept(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))?;

    let mut room = vec![0; bytes];
    let mut taken = vec![(0, 0); count];
    let (mut known, mut failure) = (0, None);
    let mut work = || {
        for (message, about) in room.chunks_exact_mut(longest).zip(&mut taken) {
            match mqueue::take(opened.as_fd(), message) {
                Ok(found) => *about = found,
                Err(Errno::EAGAIN) => break,
                Err(errno) => {
                    failure = Some(Failure::Kept(errno));
                    break;
                }
            }
            known += 1;
        }
        for (message, &(bytes, priority)) in room.chunks_exact(longest).zip(&taken).take(known) {
            if let Err(errno) = mqueue::put(opened.as_fd(), &message[..bytes], priority) {
                failure = Some(Failure::Lost(errno));
            }
        }
    };
    unbroken::to_the_end(&mut work).map_err(Failure::Kept)?;
    let all = room.chunks_exact(longest).zip(&taken).take(known);
    let found = all.map(|(message, &(bytes, priority))| QueuedMessage { priority, bytes: message[..bytes].to_vec() });
    match failure {
        None => Ok(found.collect()),
        Some(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_seen_in_their_order_and_are_still_there() {
        let name = std::ffi::CString::new(format!("ckpt-test-{}", std::process::id())).unwrap();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NONBLOCK;
        let queue = match mqueue::open(&name, flags, Some(&Attributes::of_new(5, 100))) {
            Err(Errno::ENOSYS) => return,
            queue => queue.unwrap(),
        };
        mqueue::unlink(&name).unwrap();
        for (text, priority) in [("low", 1), ("high", 9), ("", 1), ("low again", 1)] {
            mqueue::put(queue.as_fd(), text.as_bytes(), priority).unwrap();
        }
        for _ in 0..2 {
            let found = queued(&queue, &mqueue::attributes(queue.as_fd()).unwrap()).unwrap();
            let found: Vec<_> = found.iter().map(|message| (message.bytes.as_slice(), message.priority)).collect();
            assert_eq!(found, [(b"high".as_slice(), 9), (b"low", 1), (b"", 1), (b"low again", 1)]);
        }
        assert_eq!(mqueue::attributes(queue.as_fd()).unwrap().queued, 4);
    }
}
