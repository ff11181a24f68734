//! An agent that holds the devices of a program still: the other side of runtime/wire/src/device.rs, as small as it can be.

use std::io::{IoSlice, IoSliceMut};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use ckpt_wire::Control;
use ckpt_wire::device::{Answer, COMMAND_EXPORT, COMMAND_OPEN, Command, HELD, Held, Hold, SOCKET_BYTES};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv, send, socket,
};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::{Life, Scene};

/// How long anything of the program's may take to come, in milliseconds.
const PATIENCE: u16 = 30_000;

/// Reads memory of a process.
pub fn read(pid: i32, address: u64, to: &mut [u8]) {
    let from = RemoteIoVec { base: address as usize, len: to.len() };
    let length = to.len();
    let read = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(to)], &[from]);
    assert_eq!(read, Ok(length), "{length} bytes at {address:#x} of {pid}");
}

/// A value in a process.
fn value<T: FromZeros + FromBytes + IntoBytes>(pid: i32, address: u64) -> T {
    let mut value = T::new_zeroed();
    read(pid, address, value.as_mut_bytes());
    value
}

fn write(pid: i32, address: u64, bytes: &[u8]) {
    let to = RemoteIoVec { base: address as usize, len: bytes.len() };
    assert_eq!(process_vm_writev(Pid::from_raw(pid), &[IoSlice::new(bytes)], &[to]), Ok(bytes.len()));
}

/// An address that a program has printed as `WHAT HEX`.
pub fn printed(life: &Life<'_>, what: &str) -> u64 {
    life.output.wait_for_line(what);
    let text = life.output.text();
    let line = text.lines().find_map(|line| line.strip_prefix(what)).expect("it is there");
    u64::from_str_radix(line.trim(), 16).expect("an address in hexadecimal")
}

/// An agent with a socket that a program can reach.
pub struct Holder {
    pid: i32,
    hold: u64,
    path: PathBuf,
    listener: OwnedFd,
    requests: u32,
}

impl Holder {
    /// For a program that has printed `control ADDRESS`.
    pub fn of(scene: &Scene, life: &Life<'_>) -> Holder {
        let control: Control = value(life.pid, printed(life, "control"));
        let path = scene.path().join(format!("holder-{}", life.pid));
        let listener =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("a new path");
        listen(&listener, Backlog::new(1).expect("a number")).expect("a socket to listen at");
        Holder { pid: life.pid, hold: control.hold, path, listener, requests: 0 }
    }

    /// What the program says.
    pub fn hold(&self) -> Hold {
        value(self.pid, self.hold)
    }

    /// Asks for a hold, which is to be quiet within so many milliseconds.
    pub fn ask(&mut self, within_ms: u32) {
        self.requests += 1;
        let mut hold = self.hold();
        assert_ne!(hold.keeper, 0, "the program has no keeper");
        hold.quiet_within_ms = within_ms;
        hold.socket = [0; SOCKET_BYTES];
        let path = self.path.as_os_str().as_encoded_bytes();
        hold.socket[..path.len()].copy_from_slice(path);
        let at = |offset: usize| self.hold + offset as u64;
        write(self.pid, at(offset_of!(Hold, quiet_within_ms)), hold.quiet_within_ms.as_bytes());
        write(self.pid, at(offset_of!(Hold, socket)), &hold.socket);
        write(self.pid, at(offset_of!(Hold, request)), self.requests.as_bytes());
        wake(Pid::from_raw(hold.keeper));
    }

    /// The connection that a program makes when it is asked.
    pub fn accept(&self) -> Line {
        wait_to_read(&self.listener);
        let fd = accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).expect("a connection");
        // SAFETY: accept4 has just made it, and nobody else has it.
        Line { socket: unsafe { OwnedFd::from_raw_fd(fd) } }
    }

    /// Holds the program's devices.
    pub fn begin(&mut self) -> Line {
        self.ask(20_000);
        let line = self.accept();
        let held = line.held();
        assert_eq!((held.request, held.outcome, held.error), (self.requests, HELD, 0), "{held:?}");
        line
    }

    /// What comes of it if it is asked.
    pub fn outcome(&mut self, within_ms: u32) -> u32 {
        self.ask(within_ms);
        let held = self.accept().held();
        assert_eq!(held.request, self.requests);
        held.outcome
    }
}

/// Interrupts the sleep of a thread, as nobody in its program can see.
fn wake(thread: Pid) {
    ptrace::seize(thread, ptrace::Options::empty()).expect("a thread that nobody traces");
    ptrace::interrupt(thread).expect("it is traced");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
    ptrace::detach(thread, None).expect("it has stopped");
}

/// A connection with a program whose devices are held, or are to be.
pub struct Line {
    /// Its socket; if that is closed, so is the hold.
    pub socket: OwnedFd,
}

impl Line {
    /// The keeper's first word.
    pub fn held(&self) -> Held {
        self.receive()
    }

    /// Has something done.
    pub fn carry_out(&self, command: Command) -> Answer {
        self.send(command);
        self.receive()
    }

    /// Wants something done.
    pub fn send(&self, command: Command) {
        let sent = send(self.socket.as_raw_fd(), command.as_bytes(), MsgFlags::MSG_NOSIGNAL);
        assert_eq!(sent, Ok(size_of::<Command>()));
    }

    /// Has something done, and it succeeds.
    pub fn get(&self, what: u32, address: u64, to: u64, bytes: u64) -> [u64; 2] {
        let answer = self.carry_out(Command { what, device: 0, address, to, bytes });
        assert_eq!(answer.error, 0, "command {what}");
        answer.values
    }

    /// Ends the hold, and waits until the gate is open.
    pub fn open(self) {
        self.get(COMMAND_OPEN, 0, 0, 0);
        assert!(self.has_ended(), "after the last answer there is one more");
    }

    /// Whether the program has hung up, waiting for that or a message.
    pub fn has_ended(&self) -> bool {
        wait_to_read(&self.socket);
        recv(self.socket.as_raw_fd(), &mut [0; 64], MsgFlags::empty()) == Ok(0)
    }

    /// Memory that the program has mapped, as a descriptor of ours.
    pub fn export(&self, pid: i32, address: u64) -> OwnedFd {
        let [theirs, _] = self.get(COMMAND_EXPORT, address, 0, 0);
        // SAFETY: two calls that take numbers and give descriptors, which are wrapped at once.
        let ours = unsafe {
            let pidfd = OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32);
            libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), theirs, 0) as i32
        };
        assert!(ours >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: as above.
        unsafe { OwnedFd::from_raw_fd(ours) }
    }

    fn receive<T: FromZeros + FromBytes + IntoBytes>(&self) -> T {
        let mut message = T::new_zeroed();
        wait_to_read(&self.socket);
        let received = recv(self.socket.as_raw_fd(), message.as_mut_bytes(), MsgFlags::empty());
        assert_eq!(received, Ok(size_of::<T>()), "a message of the keeper's");
        message
    }
}

fn wait_to_read(socket: &OwnedFd) {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, PollTimeout::from(PATIENCE)), Ok(1), "nothing comes from the program");
}
