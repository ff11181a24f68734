//! `ckpt run` as a job of a shell at a terminal.

use std::fs::File;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ttyname};

use crate::process::Lines;
use crate::scratch;

const CONTROL_C: &str = "\x03";
const CONTROL_Z: &str = "\x1a";

/// A shell with a job, and the person in front of it.
struct Session {
    shell: Child,
    commands: ChildStdin,
    keyboard: File,
    screen: Lines,
    /// What becomes of the job.
    told: Lines,
    /// Ends with the session, where it is known.
    program: Option<Pid>,
}

impl Session {
    fn start(program: &[&str]) -> Session {
        let terminal = openpty(None, None).unwrap();
        let name = ttyname(&terminal.slave).unwrap();
        let mut command = Command::new(scratch::path("job_shell"));
        command.arg(name).arg(scratch::path("ckpt")).args(["run", "--"]).args(program);
        let mut shell = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let keyboard = File::from(terminal.master);
        Session {
            commands: shell.stdin.take().unwrap(),
            told: Lines::of(shell.stderr.take().unwrap()),
            screen: Lines::of(keyboard.try_clone().unwrap()),
            keyboard,
            shell,
            program: None,
        }
    }

    /// Starts `tell_signals`, gives its pid too.
    fn tell_signals(arguments: &[&str]) -> (Session, Pid) {
        let victim = scratch::path("tell_signals");
        let program: Vec<&str> = [victim.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        let mut session = Session::start(&program);
        let pid = Pid::from_raw(session.line_after("ready ").parse().unwrap());
        session.program = Some(pid);
        (session, pid)
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// The rest of the next line of the screen that contains `mark`; echoed keys may be in front of it.
    fn line_after(&self, mark: &str) -> String {
        loop {
            if let Some((_, rest)) = self.screen.next().split_once(mark) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn continue_job(&mut self) {
        self.commands.write_all(b"f").unwrap();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(program) = self.program {
            let _ = kill(program, Signal::SIGKILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn control_c_reaches_the_program_once() {
    let (mut session, program) = Session::tell_signals(&[]);
    session.press(CONTROL_C);
    assert_eq!(session.line_after("signal "), format!("2 code {} value 0", libc::SI_KERNEL));
    kill(program, Signal::SIGTERM).unwrap();
    assert_eq!(session.line_after("signal "), "15 code 0 value 0", "a second SIGINT would come first");
    assert_eq!(session.told.next(), "exited 9 foreground kept");
}

#[test]
fn control_z_stops_the_job_and_the_shell_continues_it() {
    let (mut session, program) = Session::tell_signals(&[]);
    for _ in 0..3 {
        session.press(CONTROL_Z);
        assert_eq!(session.told.next(), format!("stopped {} foreground kept", libc::SIGTSTP));
        session.continue_job();
        session.line_after("signal 18 ");
    }
    kill(program, Signal::SIGTERM).unwrap();
    assert_eq!(session.told.next(), "exited 9 foreground kept");
}

#[test]
fn a_program_in_its_own_group_gets_the_terminal_when_the_job_has_it() {
    // It reads from the terminal without being its foreground and is stopped for that; so is the job, and when
    // the shell brings that to the foreground, the program gets the terminal.
    let (mut session, program) = Session::tell_signals(&["leader", "reader"]);
    assert_eq!(session.told.next(), format!("stopped {} foreground kept", libc::SIGTTIN));
    session.continue_job();
    session.press("hello\n");
    assert_eq!(session.line_after("read "), "6 hello");
    assert!(session.line_after("signal ").starts_with("18 "), "the continuation");
    session.press(CONTROL_C);
    assert_eq!(session.line_after("signal "), format!("2 code {} value 0", libc::SI_KERNEL));
    session.press(CONTROL_Z);
    assert_eq!(session.told.next(), format!("stopped {} foreground kept", libc::SIGTSTP), "the terminal is back");
    session.continue_job();
    assert!(session.line_after("signal ").starts_with("18 "));
    kill(program, Signal::SIGTERM).unwrap();
    assert_eq!(session.told.next(), "exited 9 foreground kept");
}

#[test]
fn a_program_in_its_own_group_without_the_terminal_gets_its_signals_through_us() {
    let (mut session, program) = Session::tell_signals(&["leader"]);
    session.press(CONTROL_C);
    assert_eq!(session.line_after("signal "), "2 code 0 value 0");
    kill(program, Signal::SIGTERM).unwrap();
    assert_eq!(session.told.next(), "exited 9 foreground kept");
}

#[test]
fn a_killed_program_leaves_the_terminal_as_it_was() {
    let session = Session::start(&["sh", "-c", "stty -echo -icanon; echo raw; kill -KILL $$"]);
    session.line_after("raw");
    assert_eq!(session.told.next(), "exited 137 foreground kept");
    let modes = nix::sys::termios::tcgetattr(&session.keyboard).unwrap();
    let usual = nix::sys::termios::LocalFlags::ECHO | nix::sys::termios::LocalFlags::ICANON;
    assert!(modes.local_flags.contains(usual));
}
