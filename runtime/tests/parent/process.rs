//! A process under test: killed at the end, and every wait for it bounded.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::scratch;

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What `work` returns; panics if that takes too long.
pub fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("{what} took too long"))
}

/// Lines of an output as they come.
pub struct Lines(Receiver<String>);

impl Lines {
    pub fn of(source: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(source).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Lines(receiver)
    }

    pub fn next(&self) -> String {
        self.0.recv_timeout(TIMEOUT).expect("a line in time")
    }

    /// The lines that are left when the output ends.
    pub fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.0.recv_timeout(TIMEOUT).ok()).collect()
    }
}

/// `ckpt run -- PROGRAM...` in a process group of its own, as a shell starts a job.
pub struct Running {
    child: Child,
    pub input: Option<ChildStdin>,
    pub lines: Lines,
}

impl Running {
    pub fn start(program: &[&str]) -> Running {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(scratch::path("ckpt"));
        command.args(["run", "--"]).args(program).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Running { input: child.stdin.take(), lines, child }
    }

    /// Starts `tell_signals` and gives its pid too.
    pub fn tell_signals(arguments: &[&str]) -> (Running, Pid) {
        let victim = scratch::path("tell_signals");
        let program: Vec<&str> = [victim.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        let running = Running::start(&program);
        let ready = running.lines.next();
        (running, Pid::from_raw(ready.strip_prefix("ready ").unwrap().parse().unwrap()))
    }

    /// The pid of `ckpt run`.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The next change of status of `ckpt run`.
    pub fn next_status(&self) -> WaitStatus {
        let pid = self.pid();
        in_time("a change of status", move || {
            waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED)).unwrap()
        })
    }

    /// The exit status of `ckpt run`.
    pub fn exit_status(&self) -> i32 {
        match self.next_status() {
            WaitStatus::Exited(_, status) => status,
            other => panic!("{other:?} instead of an exit"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group, that is, the program too. Nothing happens if all is over already.
        let _ = nix::sys::signal::killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.try_wait();
    }
}
