//! A process that has the threads of a program stand still (`ckpt stand-still`): whatever becomes of who has asked for it, they go on
//! only when the program's memory is where it should be.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::{Error, Result};
use crate::fault;

/// The hidden command.
pub const COMMAND: &str = "stand-still";
/// What it is told: to stop the threads, and to let them go. It says the same when that is done.
pub const STOP: u8 = b's';
/// See [`STOP`].
pub const GO: u8 = b'g';

/// The process. When this is dropped, threads go on, and it ends.
#[derive(Debug)]
pub struct Stillness {
    pid: i32,
    child: Child,
    /// Closed first: that ends it.
    wishes: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Drop for Stillness {
    fn drop(&mut self) {
        self.wishes = None;
        let _ = self.child.wait();
    }
}

impl Stillness {
    /// Starts one for process `pid`, whose threads go on until [`Stillness::stop`].
    ///
    /// # Errors
    /// When that cannot be.
    pub fn of(pid: i32) -> Result<Stillness> {
        let mut child = Command::new("/proc/self/exe")
            .args([COMMAND, &pid.to_string()])
            .env_remove("LD_PRELOAD")
            .env_remove(fault::KILL)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(pid, error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (wishes @ Some(_), Some(answers)) => Ok(Stillness { pid, child, wishes, answers }),
            _ => Err(failed(pid, std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Stops all threads of the program but those of its keeper.
    ///
    /// # Errors
    /// When they cannot be stopped: then they go on, and so they do when that process has died.
    pub fn stop(&mut self) -> Result<()> {
        self.ask(STOP)
    }

    /// Lets them go on, in the calls in which they were waiting, for what was left of their time.
    ///
    /// # Errors
    /// When that process has died, which is as good.
    pub fn go(&mut self) -> Result<()> {
        self.ask(GO)
    }

    fn ask(&mut self, wish: u8) -> Result<()> {
        let asked = self.wishes.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&[wish]));
        let mut done = [0];
        match asked.and_then(|()| self.answers.read_exact(&mut done)) {
            Ok(()) if done == [wish] => Ok(()),
            _ => Err(self.why()),
        }
    }

    /// What it has said before it ended.
    fn why(&mut self) -> Error {
        self.wishes = None;
        let mut said = String::new();
        // It ends: less than a pipe holds.
        let _ = self.child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
        let why = said.trim().trim_start_matches("ckpt: ").to_owned();
        let why = if why.is_empty() { "the process that does it has ended".to_owned() } else { why };
        Error::environment(format!("stopping the threads of process {}", self.pid), why, "it goes on; try again")
    }
}

fn failed(pid: i32, source: std::io::Error) -> Error {
    Error::io("start", format!("a process that has process {pid} stand still"), source)
}
