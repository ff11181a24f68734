//! A shell with job control at a terminal of its own, and somebody who types there.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::termios::{Termios, tcgetattr};

use crate::life::{Launch, Life, Stdout};
use crate::program::Program;
use crate::scene::Scene;
use crate::{processes, product};

const LIMIT: Duration = Duration::from_secs(20);

/// A person's place.
pub struct Desk<'scene> {
    scene: &'scene Scene,
    /// The shell.
    pub shell: Life<'scene>,
    /// The program that is run there.
    executable: PathBuf,
    commands: usize,
}

impl<'scene> Desk<'scene> {
    /// A terminal of `rows` and `columns` with bash. Its commands find `$CKPT`, `$STORE`, `$LIBRARY` and `$PROGRAM`, of
    /// which the last two make a first life.
    pub fn new(scene: &'scene Scene, name: &str, program: &Program, (rows, columns): (u16, u16)) -> Desk<'scene> {
        let ready = scene.path().join(format!("{name}-may-begin"));
        let begin = "until [ -e \"$READY\" ]; do sleep 0.01; done; stty sane; exec bash --norc --noprofile -i 2>&1";
        let mut shell = Program::at("/bin/bash").argument("-c").argument(begin).variable("READY", &ready);
        let mut words = vec![program.executable.clone().into_os_string()];
        words.extend(program.arguments.iter().cloned());
        for (name, value) in [
            ("CKPT", product::ckpt().into_os_string()),
            ("LIBRARY", product::library().into_os_string()),
            ("STORE", scene.path().join("store").into_os_string()),
            ("PROGRAM", words.join(&OsString::from(" "))),
            ("PS1", "$ ".into()),
            ("TERM", "dumb".into()),
            ("HISTFILE", "".into()),
            ("HOME", scene.path().into()),
        ] {
            shell = shell.variable(name, value);
        }
        let shell = Life::start(scene, name, &shell, &Launch::Plain, Stdout::SessionTerminal);
        let mut desk = Desk { scene, shell, executable: program.executable.clone(), commands: 0 };
        desk.resize(rows, columns);
        File::create(ready).expect("the scene is writable");
        desk.command("true");
        desk
    }

    /// Types a command.
    pub fn enter(&mut self, command: &str) {
        self.shell.type_in(&format!("{command}\n"));
    }

    /// Types a command, waits until the shell has carried it out, and gives its status.
    pub fn command(&mut self, command: &str) -> i32 {
        self.enter(command);
        self.status()
    }

    /// The status of what has just ended, or stopped; waits for it.
    pub fn status(&mut self) -> i32 {
        self.commands += 1;
        let mark = format!("status {} is ", self.commands);
        // Apart, so that the echo of what is typed is not the answer.
        self.enter(&format!("echo \"status {} is\" $?", self.commands));
        self.shell.output.wait_for_line(&mark);
        let text = self.shell.output.text();
        let line = text.lines().find(|line| line.starts_with(&mark)).expect("just seen");
        line[mark.len()..].trim().parse().expect("a status is a number")
    }

    /// Starts the first life of the program in the foreground, and gives its pid. `around` is the rest of the command,
    /// as in `{} | cat`.
    pub fn start(&mut self, around: &str) -> i32 {
        self.enter(&around.replace("{}", "LD_PRELOAD=$LIBRARY CKPT_DIR=$STORE $PROGRAM"));
        self.program()
    }

    /// Restarts the program in the foreground, and gives its pid; `around` is the rest of the command.
    pub fn restart(&mut self, around: &str) -> i32 {
        self.enter(&around.replace("{}", "$CKPT restart $STORE"));
        self.program()
    }

    /// The program, when it runs.
    fn program(&mut self) -> i32 {
        let executable = self.executable.clone();
        self.shell.find_program(|pid| {
            let is_whole = processes::status_field(pid, "TracerPid").is_some_and(|tracer| tracer == "0");
            is_whole && processes::executable(pid).as_ref() == Some(&executable)
        })
    }

    /// Takes a checkpoint of the program and kills it.
    pub fn checkpoint_and_kill(&self, pid: i32) {
        crate::checkpoint(self.scene, pid);
        self.kill(pid);
    }

    /// Kills the program.
    pub fn kill(&self, pid: i32) {
        processes::send(pid, Signal::SIGKILL);
        processes::wait_until("it is gone", LIMIT, || !PathBuf::from(format!("/proc/{pid}")).exists());
    }

    /// Gives the terminal another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize from `size`.
        let answer = unsafe { libc::ioctl(self.terminal().as_raw_fd(), libc::TIOCSWINSZ, &size) };
        nix::errno::Errno::result(answer).expect("a terminal has a size");
    }

    /// The modes of the terminal, as a job of the shell finds them.
    pub fn modes_for_jobs(&mut self) -> String {
        let file = self.scene.path().join("modes");
        let status = self.command(&format!("stty -g > {}", file.display()));
        assert_eq!(status, 0, "{}", self.shell.output.text());
        std::fs::read_to_string(file).expect("stty has written it")
    }

    /// The modes of the terminal at this moment.
    pub fn modes(&self) -> Termios {
        tcgetattr(self.terminal()).expect("it is a terminal")
    }

    fn terminal(&self) -> &File {
        self.shell.terminal.as_ref().expect("a desk has a terminal")
    }

    /// Leaves.
    pub fn leave(mut self) {
        self.enter("exit 0");
        self.shell.wait();
    }
}
