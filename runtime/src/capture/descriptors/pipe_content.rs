//! What lies unread in a pipe, and where one packet ends and the next begins.
//!
//! It is read from a copy (`tee`), which has the same buffers with the same marks. A read that comes with more than it was asked for
//! tells that there are no packets: behind the copy a byte of ours is written, and a read stops at the end of a packet. Where
//! there are some, each buffer is looked at by itself, in the same way.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, tee};
use nix::unistd::{pipe2, read, write};

use crate::error::{Error, Result};
use crate::image::PipePiece;
use crate::proc::fdinfo::FdInfo;

/// The smallest pipe that there is has one buffer of a page.
const ONE_BUFFER: i32 = 4096;
const DEFAULT_CAPACITY: usize = 65536;

/// The unread bytes of a pipe.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// All of them.
    pub bytes: Vec<u8>,
    /// How they divide, if some of them are packets.
    pub pieces: Vec<PipePiece>,
    /// Whether there is nothing, and nobody who could write.
    pub at_end: bool,
}

/// What lies in the pipe that `read_end` leads to, whose buffers have room for `capacity` bytes. Nothing is consumed.
pub fn unread(read_end: &OwnedFd, capacity: usize, info: &FdInfo) -> Result<Unread> {
    look(read_end, capacity).map_err(|source| Error::io("read without consuming", info.shown(), source))
}

fn look(read_end: &OwnedFd, capacity: usize) -> nix::Result<Unread> {
    let Some((copy, bytes)) = copy_of(read_end, capacity)? else { return Ok(Unread::default()) };
    if bytes == 0 {
        return Ok(Unread { at_end: true, ..Unread::default() });
    }
    // Without room for it (a pipe may not be made larger by everybody) each buffer is looked at.
    let marked = write(&copy.1, b"x").is_ok();
    let mut content = vec![0; bytes + 1];
    if marked && read(copy.0.as_fd(), &mut content)? == bytes + 1 {
        content.truncate(bytes);
        return Ok(Unread { bytes: content, ..Unread::default() });
    }
    let Some((copy, bytes)) = copy_of(read_end, capacity)? else { return Ok(Unread::default()) };
    in_pieces(&copy.0, bytes)
}

/// Both ends of a pipe with the same content, and how many bytes that is; none if there is nothing, but somebody who may write.
fn copy_of(read_end: &OwnedFd, capacity: usize) -> nix::Result<Option<((OwnedFd, OwnedFd), usize)>> {
    let copy = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    // As many buffers as the original may hold: a pipe of single-byte writes fills buffers, not bytes.
    fcntl(&copy.1, FcntlArg::F_SETPIPE_SZ(capacity.max(DEFAULT_CAPACITY) as i32))?;
    match tee(read_end, &copy.1, capacity, SpliceFFlags::SPLICE_F_NONBLOCK) {
        Ok(bytes) => Ok(Some((copy, bytes))),
        Err(Errno::EAGAIN) => Ok(None),
        Err(source) => Err(source),
    }
}

/// Takes `copy` apart, buffer by buffer.
fn in_pieces(copy: &OwnedFd, bytes: usize) -> nix::Result<Unread> {
    let (first_out, first_in) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let (second_out, second_in) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    fcntl(&first_in, FcntlArg::F_SETPIPE_SZ(ONE_BUFFER))?;
    let mut unread = Unread::default();
    while unread.bytes.len() < bytes {
        let moved = move_bytes(copy, &first_in, bytes)?;
        move_bytes(&first_out, &second_in, moved)?;
        write(&second_in, b"x")?;
        let at = unread.bytes.len();
        unread.bytes.resize(at + moved + 1, 0);
        let got = read(second_out.as_fd(), &mut unread.bytes[at..])?;
        unread.bytes.truncate(at + moved);
        let packet = got == moved;
        if packet {
            read(second_out.as_fd(), &mut [0])?;
        }
        match unread.pieces.last_mut().filter(|last| !packet && !last.packet) {
            Some(last) => last.bytes += moved as u32,
            None => unread.pieces.push(PipePiece { bytes: moved as u32, packet }),
        }
    }
    if unread.pieces.iter().all(|piece| !piece.packet) {
        unread.pieces.clear();
    }
    Ok(unread)
}

fn move_bytes(from: &OwnedFd, into: &OwnedFd, bytes: usize) -> nix::Result<usize> {
    let (from, into): (BorrowedFd<'_>, BorrowedFd<'_>) = (from.as_fd(), into.as_fd());
    match splice(from, None, into, None, bytes, SpliceFFlags::SPLICE_F_NONBLOCK)? {
        0 => Err(Errno::EIO),
        moved => Ok(moved),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::descriptor;
    use super::*;

    fn looked_at(read_end: &OwnedFd) -> Unread {
        unread(read_end, 65536, &descriptor(3, "pipe:[1]")).unwrap()
    }

    #[test]
    fn what_lies_in_a_pipe_is_read_and_stays_there() {
        let (out, into) = pipe2(OFlag::O_NONBLOCK).unwrap();
        assert_eq!(looked_at(&out), Unread::default());
        for word in ["first ", "second"] {
            write(&into, word.as_bytes()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(looked_at(&out), Unread { bytes: b"first second".to_vec(), ..Unread::default() });
        }
        drop(into);
        assert!(!looked_at(&out).at_end);
        read(&out, &mut [0; 100]).unwrap();
        assert!(looked_at(&out).at_end);
    }

    #[test]
    fn packets_are_told_from_what_lies_between_them() {
        let (out, into) = pipe2(OFlag::O_NONBLOCK | OFlag::O_DIRECT).unwrap();
        let piece = |bytes: u32, packet: bool| PipePiece { bytes, packet };
        write(&into, b"a").unwrap();
        write(&into, &[b'b'; 5000]).unwrap();
        fcntl(&into, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        write(&into, b"cc").unwrap();
        write(&into, &[b'd'; 4096]).unwrap();
        for _ in 0..2 {
            let unread = looked_at(&out);
            assert_eq!(unread.bytes.len(), 1 + 5000 + 2 + 4096);
            assert_eq!(unread.pieces, [piece(1, true), piece(4096, true), piece(904, true), piece(4098, false)]);
        }
        fcntl(&into, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_DIRECT)).unwrap();
        write(&into, b"e").unwrap();
        assert_eq!(looked_at(&out).pieces.last(), Some(&piece(1, true)));
    }

    #[test]
    fn a_full_pipe_leaves_no_room_for_a_mark_and_is_read_all_the_same() {
        let (out, into) = pipe2(OFlag::O_NONBLOCK).unwrap();
        while write(&into, &[7; 4096]).is_ok() {}
        let unread = looked_at(&out);
        assert_eq!((unread.bytes.len(), unread.pieces.len()), (65536, 0));
    }
}
