//! Starting and ending the process that does nothing but have descriptors of device memory (`ckpt keep-memory`), while nobody
//! else has that memory: whatever becomes of the agent meanwhile, the program's own keeper fetches it from there.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::capture::program::Program;
use crate::error::{Error, Result};

/// The hidden command.
const COMMAND: &str = "keep-memory";
/// What it prints when its descriptors can be fetched.
const READY: &[u8] = b"ready\n";

/// The process, and descriptors of the same memory for another one, should it die. It ends with this, unless it is needed.
#[derive(Debug)]
pub struct MemoryKeeper {
    child: Child,
    memory: Vec<OwnedFd>,
    /// Address of the program's [`ckpt_wire::device::Hold`].
    hold: u64,
    is_needed: bool,
}

impl Drop for MemoryKeeper {
    fn drop(&mut self) {
        if !self.is_needed {
            // One that has been asked to end already is as good.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl MemoryKeeper {
    /// Starts one for a program that shares with us at this address what it has on devices.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn start(program: &Program, hold: u64, memory: Vec<OwnedFd>) -> Result<MemoryKeeper> {
        Ok(MemoryKeeper { child: spawn(program, hold, &memory)?, memory, hold, is_needed: false })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// What numbers its descriptors have.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.memory.iter().map(|memory| memory.as_raw_fd() as u32)
    }

    /// Starts another one if it is dead. Whether it was.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn revive(&mut self, program: &Program) -> Result<bool> {
        let is_dead = !matches!(self.child.try_wait(), Ok(None));
        if is_dead {
            self.child = spawn(program, self.hold, &self.memory)?;
        }
        Ok(is_dead)
    }

    /// From now on it is not to end before the program, or before that has its memory again.
    pub fn is_needed(&mut self) {
        self.is_needed = true;
    }

    /// The program has its memory.
    pub fn end(mut self) {
        self.is_needed = false;
    }
}

fn spawn(program: &Program, hold: u64, memory: &[OwnedFd]) -> Result<Child> {
    let failed = |source: std::io::Error| Error::io("start", "a process that keeps device memory", source);
    let until = program.pidfd.try_clone().map_err(failed)?;
    let pass_on = |flags: FdFlag| memory.iter().try_for_each(|one| fcntl(one, FcntlArg::F_SETFD(flags)).map(drop));
    let child = pass_on(FdFlag::empty()).map_err(std::io::Error::from).and_then(|()| {
        Command::new("/proc/self/exe")
            .args([COMMAND.to_owned(), format!("--pid={}", program.pid), format!("--hold={hold}")])
            .env_remove("LD_PRELOAD")
            .process_group(0)
            .stdin(Stdio::from(until))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    });
    let kept_back = pass_on(FdFlag::FD_CLOEXEC);
    let mut child = child.map_err(failed)?;
    kept_back.map_err(|error| failed(error.into()))?;
    let mut said = [0; READY.len()];
    // The pipe stays open: as long as it is, we are there.
    let is_ready = child.stdout.as_mut().is_some_and(|pipe| pipe.read_exact(&mut said).is_ok() && said == READY);
    if is_ready {
        return Ok(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(failed(std::io::ErrorKind::BrokenPipe.into()))
}
