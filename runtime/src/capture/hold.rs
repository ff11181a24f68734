//! Holding a program's devices still, and having their memory shown: the agent's side of [`ckpt_wire::device`].

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ckpt_wire::Control;
use ckpt_wire::device::{
    self as wire, Answer, COMMAND_CLOSE, COMMAND_COPY, COMMAND_EXPORT, COMMAND_STAGE, COMMAND_UNSTAGE,
    COMMAND_VARIABLE, Command, HELD, HELD_CALL_GOES_ON, HELD_CAPTURE, HELD_ELSEWHERE, HELD_SUSPENDED,
    HELD_WORK_GOES_ON, Held,
};
use zerocopy::{FromZeros, IntoBytes};

use super::program::Program;
use super::stop;
use crate::descriptor::pidfd_getfd;
use crate::error::{Error, Result};
use crate::keeper::{self, Kept, Line, Listener, PATIENCE, command};
use crate::proc::{maps, task};
use crate::ptrace::{read_memory, write_memory};

/// How long the program's own work may take to end.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
/// How long the driver may take to load code, which it may have to compile for its device.
const LOADING_WITHIN: Duration = Duration::from_secs(60);
/// How long a keeper may take from the call of the driver that it comes with.
const KEEPER_COMES_WITHIN: Duration = Duration::from_millis(100);
/// How long to wait before a program is asked again that was capturing a stream.
const CAPTURES_TAKE: Duration = Duration::from_millis(10);
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// A program whose devices are held still. When this is dropped, they go on.
pub struct Hold<'a> {
    program: &'a Program,
    line: Line<'a>,
    /// An address in the driver that the program uses.
    driver: u64,
    /// How many devices it sees.
    devices: u32,
    waits: Duration,
    began: Instant,
}

/// A program that has been asked to hold its devices still.
pub struct Asked<'a> {
    program: &'a Program,
    kept: Kept<'a>,
    listener: Listener,
    request: u32,
    driver: u64,
    waits: Duration,
    began: Instant,
}

/// What a program says of its devices; nothing if it has never used a driver.
///
/// # Errors
/// When the program cannot be looked at.
pub fn look(pid: i32, control: &Control) -> Result<Option<wire::Hold>> {
    if control.hold == 0 {
        return Ok(None);
    }
    let mut hold = wire::Hold::new_zeroed();
    read_memory(pid, control.hold, hold.as_mut_bytes())?;
    Ok((hold.keeper != 0 || hold.contexts != 0).then_some(hold))
}

/// Whether there is a keeper in process `pid`, and not only in the one that this was forked from.
pub fn has_own_keeper(pid: i32, hold: &wire::Hold) -> bool {
    hold.keeper != 0 && Path::new(&format!("/proc/{pid}/task/{}", hold.keeper)).exists()
}

/// What a program says of its devices, if it has a keeper, which comes right behind its first call of the driver.
///
/// # Errors
/// As of [`look`].
pub fn look_for_keeper(pid: i32, control: &Control) -> Result<Option<wire::Hold>> {
    let deadline = Instant::now() + KEEPER_COMES_WITHIN;
    loop {
        match look(pid, control)? {
            None => return Ok(None),
            Some(hold) if has_own_keeper(pid, &hold) => return Ok(Some(hold)),
            // That of the process that this was forked from, which has only begun to use the driver.
            Some(hold) if hold.keeper != 0 && hold.contexts == 0 => return Ok(None),
            Some(_) if Instant::now() >= deadline => return Ok(None),
            Some(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Holds devices between two captures of streams, which are over in a moment, or fails as the last attempt to.
///
/// # Errors
/// Those of `hold`.
pub fn between_captures<T>(mut hold: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + QUIET_WITHIN;
    loop {
        match hold() {
            Err(Error::Unsettled { .. }) if Instant::now() < deadline => thread::sleep(CAPTURES_TAKE),
            outcome => return outcome,
        }
    }
}

impl<'a> Asked<'a> {
    /// Asks the keeper of `program`, who answers at a socket of this name; nobody if it has no context of its own on any device.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn ask(program: &'a Program, control: &Control, name: PathBuf) -> Result<Option<Asked<'a>>> {
        let Some(hold) = look_for_keeper(program.pid, control)? else { return Ok(None) };
        if task::is_job_stopped(program.pid) {
            return Err(is_stopped(program.pid));
        }
        let began = Instant::now();
        let listener = Listener::at(name)?;
        let request = hold.request.wrapping_add(1);
        for (offset, bytes) in listener.request(request, QUIET_WITHIN) {
            write_memory(program.pid, control.hold + offset as u64, &bytes)?;
        }
        wake(program.pid, hold.keeper)?;
        let kept = Kept { pid: program.pid, pidfd: program.pidfd.as_fd(), may_be_stopped: false };
        let waits = Duration::from_millis(hold.wait_ms.into());
        Ok(Some(Asked { program, kept, listener, request, driver: hold.driver, waits, began }))
    }

    /// Waits until the devices are quiet. If they were suspended, by an agent that has died, they are given back first.
    ///
    /// # Errors
    /// When the program's work does not end in time, or cannot be waited for.
    pub fn wait(self) -> Result<(Hold<'a>, Listener)> {
        let Asked { program, kept, listener, request, driver, waits, began } = self;
        let (line, held) = listener.accept(kept, QUIET_WITHIN + PATIENCE)?;
        if held.request != request {
            return Err(not_held(program.pid, &held));
        }
        match held.outcome {
            HELD | HELD_ELSEWHERE => {}
            HELD_SUSPENDED => {
                line.begin_to_resume(0, 0, false)?;
                if let Err((error, _)) = line.resumed()? {
                    return Err(Error::environment(
                        format!("giving process {} the devices back that an agent that has died took", program.pid),
                        keeper::why(error),
                        "the program waits for them and tries again by itself",
                    ));
                }
            }
            _ => return Err(not_held(program.pid, &held)),
        }
        Ok((Hold { program, line, driver, devices: held.devices, waits, began }, listener))
    }
}

impl<'a> Hold<'a> {
    /// Holds the devices of `program`, which answers at a socket of this name; none if it has no context on any.
    ///
    /// # Errors
    /// When it cannot be asked; when its work does not end in time, or cannot be waited for.
    pub fn begin(program: &'a Program, control: &Control, name: &Path) -> Result<Option<Hold<'a>>> {
        let held = between_captures(|| {
            let asked = Asked::ask(program, control, name.to_owned())?;
            asked.map(Asked::wait).transpose()
        })?;
        let pid = program.pid;
        let Some(held) = held else { return Ok(None) };
        match held {
            (Hold { devices: 0, .. }, _) => Err(Error::environment(
                format!("holding the devices of process {pid}"),
                "they are not there: the program, or somebody else, has had its CUDA driver checkpoint it",
                "try again when it has been restored",
            )),
            (hold, _) => Ok(Some(hold)),
        }
    }

    /// The line to its keeper, which holds them as long as that is there, and since when.
    pub fn into_line(self) -> (Line<'a>, Instant) {
        (self.line, self.began)
    }

    /// The program's pid.
    pub fn pid(&self) -> i32 {
        self.program.pid
    }

    /// How many devices the program sees; they are numbered from 0.
    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// How long the program waits for devices that it cannot have back.
    pub fn waits(&self) -> Duration {
        self.waits
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
        self.line.identify(device)
    }

    /// The physical memory that is mapped at an address of the program's.
    ///
    /// # Errors
    /// When it cannot be had by another process.
    pub fn export(&self, address: u64) -> Result<OwnedFd> {
        let answer = self.line.exchange(Command { address, ..command(COMMAND_EXPORT) })?;
        if answer.error == OUT_OF_MEMORY {
            return Err(Error::environment(
                format!("exporting device memory in process {}", self.program.pid),
                "its device has no room for a copy of the allocation, which since the last checkpoint needs one",
                "free memory on the device, and try again; with CKPT_DEVICE_BACKING=native the driver moves it to the host",
            ));
        }
        let answer = self.line.good("exporting device memory", answer)?;
        let fetched = pidfd_getfd(self.program.pidfd.as_fd(), answer.values[0] as i32);
        self.command("closing a descriptor", command(COMMAND_CLOSE))?;
        fetched
    }

    /// New memory on a device, for copies: its address and bytes in the program. None when the device has no room for it.
    ///
    /// # Errors
    /// When the driver refuses for another reason.
    pub fn stage(&self, device: i32, bytes: u64) -> Result<Option<(u64, u64)>> {
        let answer = self.line.exchange(Command { device, bytes, ..command(COMMAND_STAGE) })?;
        if answer.error == OUT_OF_MEMORY {
            return Ok(None);
        }
        let answer = self.line.good("making room for a copy on a device", answer)?;
        Ok(Some((answer.values[0], answer.values[1])))
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
        self.line.send(Command { address: name, to: code, ..command(COMMAND_VARIABLE) })?;
        let answer = self.line.receive(LOADING_WITHIN)?;
        Ok(if answer.error == 0 { Ok(answer.values) } else { Err(answer.error) })
    }

    /// Lets the devices go on, and says how long they were held.
    ///
    /// # Errors
    /// When they were not held until now: what was read may have changed meanwhile.
    pub fn open(self) -> Result<Duration> {
        self.line.open()?;
        Ok(self.began.elapsed())
    }

    fn command(&self, purpose: &str, wanted: Command) -> Result<Answer> {
        self.line.exchange(wanted).and_then(|answer| self.line.good(purpose, answer))
    }
}

/// The file that is mapped at an address in the driver.
pub fn file_of(pid: i32, address: u64) -> Result<PathBuf> {
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

/// Says that a process cannot be captured while it is stopped: its keeper could not give the devices back.
pub fn is_stopped(pid: i32) -> Error {
    Error::unsupported(
        format!("a checkpoint of process {pid} while it is stopped (SIGSTOP, Ctrl-Z)"),
        "it uses a CUDA device, and a thread of its own has to ask the driver",
        "let it go on first (SIGCONT)",
    )
}

/// Interrupts the sleep of the keeper of `pid`, which it begins again only if there is no new request.
///
/// # Errors
/// When it may not be traced, or has ended.
pub fn wake(pid: i32, keeper: i32) -> Result<()> {
    stop::interrupt(pid, keeper)
}

fn not_held(pid: i32, held: &Held) -> Error {
    let what = format!("holding the devices of process {pid}");
    let (why, advice) = match held.outcome {
        HELD_CALL_GOES_ON => ("a call of the CUDA driver did not end in time".to_owned(), "try again"),
        HELD_WORK_GOES_ON => ("its work on a device did not end in time".to_owned(), "try again between two kernels"),
        HELD_CAPTURE => return Error::unsettled(what, "it is capturing a stream", "try again when it has ended that"),
        _ => (format!("the CUDA driver says error {}", held.error), "see whether the program's own calls fail, too"),
    };
    Error::environment(what, why, advice)
}
