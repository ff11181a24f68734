//! Holding a program's devices still, and having their memory shown: the agent's side of [`ckpt_wire::device`].

use std::ffi::OsStr;
use std::fs;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckpt_wire::Control;
use ckpt_wire::device::{
    self as wire, Answer, COMMAND_CLOSE, COMMAND_COPY, COMMAND_EXPORT, COMMAND_IDENTIFY, COMMAND_OPEN, COMMAND_STAGE,
    COMMAND_UNSTAGE, COMMAND_VARIABLE, Command, HELD, HELD_CALL_GOES_ON, HELD_CAPTURE, HELD_WORK_GOES_ON, Held,
    SOCKET_BYTES,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen, recv, send,
    socket,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::capture::Program;
use crate::descriptor::{self, pidfd_getfd};
use crate::error::{Error, Result};
use crate::proc::maps;
use crate::ptrace::{Options, Running, read_memory, write_memory};

/// How long the program's own work may take to end.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
/// How long the keeper may take for anything else.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the driver may take to load code, which it may have to compile for its device.
const LOADING_WITHIN: Duration = Duration::from_secs(60);
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// A program whose devices are held still. When this is dropped, they go on.
pub struct Hold<'a> {
    program: &'a Program,
    line: OwnedFd,
    /// An address in the driver that the program uses.
    driver: u64,
    began: Instant,
}

/// A socket's name, which goes with this.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = fs::remove_file(&self.0);
    }
}

impl Hold<'_> {
    /// Holds the devices of `program`, which answers at a socket of this name; none if it has no context on any.
    ///
    /// # Errors
    /// When it cannot be asked; when its work does not end in time, or cannot be waited for.
    pub fn begin<'a>(program: &'a Program, control: &Control, name: &Path) -> Result<Option<Hold<'a>>> {
        if control.hold == 0 {
            return Ok(None);
        }
        let mut hold = wire::Hold::new_zeroed();
        read_memory(program.pid, control.hold, hold.as_mut_bytes())?;
        if hold.keeper == 0 {
            return Ok(None);
        }
        let driver = hold.driver;
        let began = Instant::now();
        let (listener, name) = listen_at(name)?;
        let request = hold.request.wrapping_add(1);
        ask(program.pid, control.hold, &name.0, request)?;
        wake(hold.keeper)?;
        let line = accept(&listener, program)?;
        let hold = Hold { program, line, driver, began };
        let held: Held = hold.receive(QUIET_WITHIN + PATIENCE)?;
        match held.outcome {
            HELD if held.request == request => Ok(Some(hold)),
            _ => Err(not_held(program.pid, &held)),
        }
    }

    /// The file of the driver that the program uses.
    ///
    /// # Errors
    /// When no file is mapped where it is.
    pub fn driver(&self) -> Result<PathBuf> {
        file_of(self.program.pid, self.driver)
    }

    /// How the driver names a device in every process.
    ///
    /// # Errors
    /// The driver's.
    pub fn identify(&self, device: i32) -> Result<[u8; 16]> {
        let answer = self.command("naming a device", Command { device, ..command(COMMAND_IDENTIFY) })?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(answer.values.as_bytes());
        Ok(uuid)
    }

    /// The physical memory that is mapped at an address of the program's.
    ///
    /// # Errors
    /// When it cannot be had by another process.
    pub fn export(&self, address: u64) -> Result<OwnedFd> {
        let answer = self.command("exporting device memory", Command { address, ..command(COMMAND_EXPORT) })?;
        let fetched = pidfd_getfd(self.program.pidfd.as_fd(), answer.values[0] as i32);
        self.command("closing a descriptor", command(COMMAND_CLOSE))?;
        fetched
    }

    /// New memory on a device, for copies: its address and bytes in the program. None when the device has no room for it.
    ///
    /// # Errors
    /// When the driver refuses for another reason.
    pub fn stage(&self, device: i32, bytes: u64) -> Result<Option<(u64, u64)>> {
        let answer = self.exchange(Command { device, bytes, ..command(COMMAND_STAGE) })?;
        match answer.error {
            OUT_OF_MEMORY => Ok(None),
            _ => self.good("making room for a copy on a device", answer).map(|it| Some((it.values[0], it.values[1]))),
        }
    }

    /// Gives memory for copies back.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn unstage(&self, address: u64) -> Result<()> {
        self.command("giving back room for a copy", Command { address, ..command(COMMAND_UNSTAGE) }).map(drop)
    }

    /// Copies memory that the driver knows to memory on a device.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn copy(&self, device: i32, from: u64, to: u64, bytes: u64) -> Result<()> {
        let wanted = Command { device, address: from, to, bytes, ..command(COMMAND_COPY) };
        self.command("copying memory on a device", wanted).map(drop)
    }

    /// Has a variable of loaded code recorded, whose name is at an address of the program's: in how many contexts it is, and
    /// in how many of them it was not recorded yet; or the driver's error.
    ///
    /// # Errors
    /// When the program cannot be asked.
    pub fn record_variable(&self, code: u64, name: u64) -> Result<std::result::Result<[u64; 2], i32>> {
        self.send(Command { address: name, to: code, ..command(COMMAND_VARIABLE) })?;
        let answer: Answer = self.receive(LOADING_WITHIN)?;
        Ok(if answer.error == 0 { Ok(answer.values) } else { Err(answer.error) })
    }

    /// Lets the devices go on, and says how long they were held.
    ///
    /// # Errors
    /// When they were not held until now: what was read may have changed meanwhile.
    pub fn open(self) -> Result<Duration> {
        self.command("letting the devices go on", command(COMMAND_OPEN))?;
        Ok(self.began.elapsed())
    }

    fn command(&self, purpose: &str, wanted: Command) -> Result<Answer> {
        self.exchange(wanted).and_then(|answer| self.good(purpose, answer))
    }

    fn good(&self, purpose: &str, answer: Answer) -> Result<Answer> {
        if answer.error == 0 {
            return Ok(answer);
        }
        let why = match answer.error {
            error if error < 0 => format!("the kernel says {}", Errno::from_raw(-error)),
            error => format!("the CUDA driver says error {error}"),
        };
        Err(Error::environment(
            format!("{purpose} in process {}", self.program.pid),
            why,
            "the program runs on; try again",
        ))
    }

    fn exchange(&self, wanted: Command) -> Result<Answer> {
        self.send(wanted)?;
        self.receive(PATIENCE)
    }

    fn send(&self, wanted: Command) -> Result<()> {
        let sent = send(self.line.as_raw_fd(), wanted.as_bytes(), MsgFlags::MSG_NOSIGNAL);
        sent.map(drop).map_err(|error| self.ended(error))
    }

    fn receive<T: FromZeros + FromBytes + IntoBytes>(&self, within: Duration) -> Result<T> {
        let mut message = T::new_zeroed();
        wait_to_read(self.line.as_fd(), within, self.program)?;
        let received = recv(self.line.as_raw_fd(), message.as_mut_bytes(), MsgFlags::empty());
        match received.map_err(|error| self.ended(error))? {
            bytes if bytes == size_of::<T>() => Ok(message),
            _ => Err(self.ended(Errno::ECONNRESET)),
        }
    }

    fn ended(&self, error: Errno) -> Error {
        Error::io("talk to the keeper of", format!("process {}", self.program.pid), error)
    }
}

fn command(what: u32) -> Command {
    Command { what, ..Command::new_zeroed() }
}

/// The file that is mapped at an address in the driver.
fn file_of(pid: i32, address: u64) -> Result<PathBuf> {
    let mappings = maps::outline(pid)?;
    let found = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
    found
        .filter(|mapping| mapping.inode != 0)
        .map(|mapping| PathBuf::from(OsStr::from_bytes(&mapping.name)))
        .ok_or_else(|| {
            Error::environment(
                format!("finding the CUDA driver of process {pid}"),
                format!("no file is mapped at {address:#x}"),
                "the program runs on; report this",
            )
        })
}

fn listen_at(name: &Path) -> Result<(OwnedFd, Name)> {
    let failed = |error: Errno| Error::io("listen at", name, error);
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
    let _ = fs::remove_file(name);
    bind(listener.as_raw_fd(), &UnixAddr::new(name).map_err(failed)?).map_err(failed)?;
    let name_of_it = Name(name.to_owned());
    listen(&listener, Backlog::new(1).map_err(failed)?).map_err(failed)?;
    Ok((listener, name_of_it))
}

/// Writes the request; its number last.
fn ask(pid: i32, hold: u64, name: &Path, request: u32) -> Result<()> {
    let mut socket = [0; SOCKET_BYTES];
    let bytes = name.as_os_str().as_bytes();
    // One byte less than there are: it ends with a zero. `UnixAddr` has refused what is longer.
    let length = bytes.len().min(SOCKET_BYTES - 1);
    socket[..length].copy_from_slice(&bytes[..length]);
    let at = |offset: usize| hold + offset as u64;
    let within_ms = QUIET_WITHIN.as_millis() as u32;
    write_memory(pid, at(offset_of!(wire::Hold, quiet_within_ms)), within_ms.as_bytes())?;
    write_memory(pid, at(offset_of!(wire::Hold, socket)), &socket)?;
    write_memory(pid, at(offset_of!(wire::Hold, request)), request.as_bytes())
}

/// Interrupts the keeper's sleep, which it begins again only if there is no new request.
fn wake(keeper: i32) -> Result<()> {
    let running = Running::seize(keeper, Options::PROGRAM)?;
    running.interrupt()?;
    running.wait_for_trap(Instant::now() + PATIENCE)?.detach()
}

fn accept(listener: &OwnedFd, program: &Program) -> Result<OwnedFd> {
    let failed = |error: Errno| Error::io("accept a connection of", format!("process {}", program.pid), error);
    wait_to_read(listener.as_fd(), PATIENCE, program)?;
    let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).map_err(failed)?;
    let line = descriptor::made(accepted).map_err(failed)?;
    let peer = getsockopt(&line, PeerCredentials).map_err(failed)?;
    // 0: it is in a namespace of its own, and cannot be told from others of its user.
    if peer.pid() != program.pid && peer.pid() != 0 {
        return Err(failed(Errno::EPERM));
    }
    Ok(line)
}

fn wait_to_read(socket: BorrowedFd<'_>, within: Duration, program: &Program) -> Result<()> {
    let deadline = Instant::now() + within;
    loop {
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let timeout = PollTimeout::try_from(left_ms.min(i32::MAX as u128) as i32).unwrap_or(PollTimeout::MAX);
        let ended = program.pidfd.as_fd();
        let mut events = [PollFd::new(socket, PollFlags::POLLIN), PollFd::new(ended, PollFlags::POLLIN)];
        match poll(&mut events, timeout) {
            Ok(0) => break Err(Error::io("wait for", "the keeper", Errno::ETIMEDOUT)),
            Ok(_) if events[0].any() == Some(true) => break Ok(()),
            Ok(_) => break Err(Error::ProgramGone { pid: program.pid }),
            Err(Errno::EINTR) => {}
            Err(error) => break Err(Error::io("wait for", "the keeper", error)),
        }
    }
}

fn not_held(pid: i32, held: &Held) -> Error {
    let (why, advice) = match held.outcome {
        HELD_CALL_GOES_ON => ("a call of the CUDA driver did not end in time".to_owned(), "try again"),
        HELD_WORK_GOES_ON => ("its work on a device did not end in time".to_owned(), "try again between two kernels"),
        HELD_CAPTURE => ("it is just capturing a stream".to_owned(), "try again in a moment"),
        _ => (format!("the CUDA driver says error {}", held.error), "see whether the program's own calls fail, too"),
    };
    Error::environment(format!("holding the devices of process {pid}"), why, advice)
}
