//! The last checkpoint: what SIGTERM asks `ckpt run` and `ckpt restart` for, where that is wanted.
//!
//! Whoever stops a container, a pod or a service sends SIGTERM to the process that it knows, and SIGKILL some time later. Then
//! this command has `ckpt checkpoint --kill` taken, by a process beside us, because the loop that follows the program goes on
//! meanwhile. The program ends exactly at the checkpoint, and our exit code says so.
//!
//! If there is no checkpoint, the program gets the SIGTERM, late: when all tries have failed, when the time is over, or at
//! the second SIGTERM. A checkpoint that is sealed after that counts all the same, because the program has ended at it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use crate::error::{Result, exit_code};

/// How often it is tried: a program that has only just begun, or has something on its way, can be saved a moment later.
const TRIES_MAX: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// How long whoever has asked for the checkpoint may be busy with the answer when the program has ended at it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The last checkpoint of a program.
#[derive(Debug)]
pub struct LastCheckpoint {
    within: Duration,
    deadline: Option<Instant>,
    tries: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It is not asked for.
    NotAskedFor,
    /// This process is asking for it.
    Asked(Child),
    /// It has failed, and is tried again at that moment.
    Failed(Instant),
    /// The program has got the SIGTERM. It may still come, if the process is there.
    GivenUp(Option<Child>),
}

impl LastCheckpoint {
    /// One that is to be sealed within this time.
    pub fn within(within: Duration) -> LastCheckpoint {
        LastCheckpoint { within, deadline: None, tries: 0, state: State::NotAskedFor }
    }

    /// Asks for it, because a SIGTERM has come for program `pid`. With a second one it is given up, and the program gets that.
    pub fn ask(&mut self, pid: i32) {
        match self.state {
            State::NotAskedFor => {
                self.deadline = Some(Instant::now() + self.within);
                self.try_once(pid);
            }
            _ => self.give_up(pid, "SIGTERM has come once more"),
        }
    }

    /// Looks how far it is, and says how long that can wait.
    pub fn look(&mut self, pid: i32) -> Option<Duration> {
        let ended = match &mut self.state {
            State::Asked(asking) => asking.try_wait(),
            State::Failed(again) if Instant::now() >= *again => {
                self.try_once(pid);
                Ok(None)
            }
            State::Failed(_) => Ok(None),
            State::NotAskedFor | State::GivenUp(_) => return None,
        };
        match ended {
            Ok(None) => {}
            // The program's end is about to be seen.
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(_)) | Err(_) if self.tries >= TRIES_MAX => self.give_up(pid, "it has failed"),
            Ok(Some(_)) | Err(_) => self.state = State::Failed(Instant::now() + PAUSE),
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.give_up(pid, &format!("it is not sealed within {} s", self.within.as_secs_f32()));
        }
        let next = match self.state {
            State::Asked(_) => self.deadline,
            State::Failed(again) => Some(again),
            State::NotAskedFor | State::GivenUp(_) => None,
        };
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// The process that asks, whose status is taken here.
    pub fn asking(&self) -> Option<i32> {
        match &self.state {
            State::Asked(asking) | State::GivenUp(Some(asking)) => Some(asking.id() as i32),
            _ => None,
        }
    }

    /// The number of the checkpoint at which the program, which SIGKILL has ended, has ended.
    pub fn ended_at(&mut self) -> Option<u64> {
        let (State::Asked(asking) | State::GivenUp(Some(asking))) = &mut self.state else { return None };
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let status = loop {
            match asking.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Ok(status) => break status?,
                Err(_) => return None,
            }
        };
        let mut answer = String::new();
        asking.stdout.take()?.read_to_string(&mut answer).ok()?;
        answer.trim().parse().ok().filter(|_| status.success())
    }

    fn try_once(&mut self, pid: i32) {
        self.tries += 1;
        match asking(pid) {
            Ok(child) => self.state = State::Asked(child),
            Err(error) => self.give_up(pid, &error.to_string()),
        }
    }

    fn give_up(&mut self, pid: i32, why: &str) {
        let before = std::mem::replace(&mut self.state, State::GivenUp(None));
        match before {
            State::GivenUp(asking) => self.state = State::GivenUp(asking),
            State::Asked(asking) => {
                self.state = State::GivenUp(Some(asking));
                crate::say!("no last checkpoint: {why}; the program gets the SIGTERM");
            }
            _ => crate::say!("no last checkpoint: {why}; the program gets the SIGTERM"),
        }
        // It may have ended meanwhile, which the loop is about to see.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// What this command ends with when its program has ended at its last checkpoint.
pub fn saved_at(id: u64) -> Result<u8> {
    crate::say!("SIGTERM: the program has ended at checkpoint {id}; run the command again to go on from there");
    Ok(exit_code::SAVED)
}

/// Starts the process that asks. It says itself why the checkpoint fails.
fn asking(pid: i32) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ckpt").args(["checkpoint", "--kill", "--at-term", &pid.to_string()]);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::piped());
    // A signal to our group or from our terminal is not for it.
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    command.spawn()
}
