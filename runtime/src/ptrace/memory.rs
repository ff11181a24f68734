//! Reading and writing the memory of another process.
//!
//! `process_vm_readv` is the fast way (7 GB/s in batches of 64 KiB to 1 MiB, measured) but stops at pages the
//! process itself may not read; `/proc/PID/mem` goes through protections when the caller traces the process. Where a container
//! forbids the two calls, that file is what there is: it is opened for each use, because an open one would lead to the memory of
//! before when the process executes another program.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::fault;
use crate::filtered;

/// Whether `process_vm_readv` and `process_vm_writev` are to be had: by calls on our own memory, which nothing but a filter, or a
/// kernel without them, refuses.
#[derive(Clone, Copy, Debug)]
struct ByCalls {
    read: nix::Result<()>,
    write: nix::Result<()>,
}

impl ByCalls {
    /// Found out once in this process.
    fn found() -> ByCalls {
        static FOUND: OnceLock<ByCalls> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let own = Pid::this();
            let (from, mut into) = ([1_u8], [0_u8]);
            let remote = |byte: *const u8| [RemoteIoVec { base: byte as usize, len: 1 }];
            let unless_deadly = |number| if filtered::is_deadly(number, 0) { Err(Errno::EPERM) } else { Ok(()) };
            let read = unless_deadly(libc::SYS_process_vm_readv)
                .and_then(|()| process_vm_readv(own, &mut [IoSliceMut::new(&mut into)], &remote(from.as_ptr())));
            let write = unless_deadly(libc::SYS_process_vm_writev)
                .and_then(|()| process_vm_writev(own, &[IoSlice::new(&from)], &remote(into.as_mut_ptr())));
            ByCalls { read: read.map(drop), write: write.map(drop) }
        })
    }
}

/// Whether memory of other processes is read by `process_vm_readv`.
pub fn is_read_by_call() -> bool {
    ByCalls::found().read.is_ok()
}

/// Writes to the log, once, how memory of other processes is read and written where that is not the fast way.
pub fn say_slow_way() {
    static SAID: OnceLock<()> = OnceLock::new();
    let ByCalls { read, write } = ByCalls::found();
    let calls = [("process_vm_readv", "read", read), ("process_vm_writev", "written", write)];
    SAID.get_or_init(|| {
        for (call, what, outcome) in calls {
            if let Err(errno) = outcome {
                log::info!("{call}: {}; memory is {what} through /proc/PID/mem", errno.desc());
            }
        }
    });
}

/// Reads `into.len()` bytes at `address` of process `pid`; the range must be readable by the process.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> Result<()> {
    if !is_read_by_call() {
        return through_file(pid, address, into.len(), "read memory of", |file, done| {
            file.read_at(&mut into[done..], address + done as u64)
        });
    }
    let mut done = 0;
    while done < into.len() {
        let remote = [RemoteIoVec { base: address as usize + done, len: into.len() - done }];
        let rest = &mut into[done..];
        match process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(rest)], &remote) {
            Ok(0) => return Err(short(pid, "read memory at the end of", address + done as u64)),
            Ok(bytes) => done += bytes,
            Err(source) => return Err(failed(pid, "read memory of", address + done as u64, source)),
        }
    }
    Ok(())
}

/// Writes `from` to `address` of process `pid`; the range must be writable by the process.
pub fn write_memory(pid: i32, address: u64, from: &[u8]) -> Result<()> {
    if ByCalls::found().write.is_err() {
        through_file(pid, address, from.len(), "write memory of", |file, done| {
            file.write_at(&from[done..], address + done as u64)
        })?;
        fault::hit(fault::point::PROCESS_VM_WRITEV);
        return Ok(());
    }
    let mut done = 0;
    while done < from.len() {
        let remote = [RemoteIoVec { base: address as usize + done, len: from.len() - done }];
        match process_vm_writev(Pid::from_raw(pid), &[IoSlice::new(&from[done..])], &remote) {
            Ok(0) => return Err(short(pid, "write memory at the end of", address + done as u64)),
            Ok(bytes) => done += bytes,
            Err(source) => return Err(failed(pid, "write memory of", address + done as u64, source)),
        }
    }
    fault::hit(fault::point::PROCESS_VM_WRITEV);
    Ok(())
}

/// Has `step` read or write some of `bytes` from or to `/proc/PID/mem` until all is done.
fn through_file(
    pid: i32,
    address: u64,
    bytes: usize,
    operation: &'static str,
    mut step: impl FnMut(&File, usize) -> io::Result<usize>,
) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let file = file.map_err(|source| failed_by(pid, operation, address, source))?;
    let mut done = 0;
    while done < bytes {
        match step(&file, done) {
            // The process has no memory any more.
            Ok(0) => return Err(Error::ProgramGone { pid }),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(failed_by(pid, operation, address + done as u64, source)),
        }
    }
    Ok(())
}

fn failed_by(pid: i32, operation: &'static str, address: u64, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::NotFound => Error::ProgramGone { pid },
        _ => Error::io(operation, place(pid, address), source),
    }
}

fn place(pid: i32, address: u64) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/mem at {address:#x}"))
}

fn failed(pid: i32, operation: &'static str, address: u64, source: Errno) -> Error {
    match source {
        Errno::ESRCH => Error::ProgramGone { pid },
        source => Error::io(operation, place(pid, address), source),
    }
}

fn short(pid: i32, operation: &'static str, address: u64) -> Error {
    Error::io(operation, place(pid, address), std::io::ErrorKind::UnexpectedEof)
}

/// `/proc/PID/mem`: reads and writes that ignore the protection of private mappings. For a traced process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: i32,
    file: File,
}

impl ProcessMemory {
    /// Opens the memory of `pid`.
    pub fn open(pid: i32) -> Result<ProcessMemory> {
        let path = PathBuf::from(format!("/proc/{pid}/mem"));
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(|source| Error::io("open", path, source))?;
        Ok(ProcessMemory { pid, file })
    }

    /// Another one of the same memory.
    pub fn try_clone(&self) -> Result<ProcessMemory> {
        let file = self.file.try_clone().map_err(|source| Error::io("duplicate", place(self.pid, 0), source))?;
        Ok(ProcessMemory { pid: self.pid, file })
    }

    /// Reads `into.len()` bytes at `address`, whatever the protection.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(into, address)
            .map_err(|source| Error::io("read memory of", place(self.pid, address), source))
    }

    /// Writes `from` at `address`, whatever the protection (a private mapping gets its own copy).
    pub fn write(&self, address: u64, from: &[u8]) -> Result<()> {
        self.file
            .write_all_at(from, address)
            .map_err(|source| Error::io("write memory of", place(self.pid, address), source))?;
        fault::hit(fault::point::PROC_MEM_WRITE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_process_reads_and_writes_as_the_calls_do() {
        let own = std::process::id() as i32;
        let mut word = *b"as it was";
        let address = word.as_mut_ptr() as u64;
        let mut seen = [0; 9];
        let read = |seen: &mut [u8]| {
            through_file(own, address, seen.len(), "read", |file, done| {
                file.read_at(&mut seen[done..], address + done as u64)
            })
        };
        read(&mut seen).unwrap();
        assert_eq!(&seen, b"as it was");
        let written =
            through_file(own, address, 2, "write", |file, done| file.write_at(&b"so"[done..], address + done as u64));
        written.unwrap();
        assert_eq!(std::hint::black_box(&mut word), b"so it was");
    }

    #[test]
    fn what_is_not_mapped_or_not_there_is_not_read() {
        let own = std::process::id() as i32;
        let read = |pid, address| through_file(pid, address, 1, "read", |file, _| file.read_at(&mut [0], address));
        assert!(matches!(read(own, 1), Err(Error::Io { .. })));
        assert!(matches!(read(1 << 23, 4096), Err(Error::ProgramGone { .. })));
    }

    #[test]
    fn both_calls_are_to_be_had_where_nothing_forbids_them() {
        assert!(is_read_by_call() && ByCalls::found().write.is_ok());
    }
}
