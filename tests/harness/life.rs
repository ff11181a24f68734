//! A running program: from its start or a restart to its end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};

use crate::boot::Ahead;
use crate::output::Output;
use crate::program::{Input, LINES_BEFORE_THE_SIGN, Program};
use crate::scene::{MARK, Scene};
use crate::{processes, product};

/// How long a restart may take until the program exists.
const RESTART_LIMIT: Duration = Duration::from_secs(120);

/// What a program's stdout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// A regular file, `stdout` in the life's directory.
    File,
    /// A pipe to the test.
    Pipe,
    /// A stream socket to the test.
    Socket,
    /// A terminal (raw, so that bytes arrive as written); stdin is the same terminal.
    Terminal,
    /// A terminal as a program finds it that starts in one: it controls the program's session, collects lines and echoes
    /// them, until the program wants something else.
    OrdinaryTerminal,
    /// A terminal that controls a session led by the child, so that ^C and ^Z mean signals.
    SessionTerminal,
}

/// How a program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// By itself: the reference.
    Plain,
    /// With `LD_PRELOAD=libckpt.so`.
    Preload,
    /// By `ckpt run` with these options.
    Run(Vec<String>),
    /// By a command that executes the one behind its own words.
    By(Vec<String>),
    /// With `LD_PRELOAD=libckpt.so`, in a time namespace whose clocks are so far ahead of the machine's; that of an
    /// ordinary user is in a user namespace.
    Ahead(Ahead),
}

/// A running program.
pub struct Life<'scene> {
    scene: &'scene Scene,
    /// The child of this test: the program, `ckpt run` or `ckpt restart`.
    pub child: Child,
    /// The program's pid as the test sees it.
    pub pid: i32,
    /// Its output.
    pub output: Output,
    /// Its working directory.
    pub directory: PathBuf,
    /// The master side of its terminal, for typing.
    pub terminal: Option<File>,
    /// The child's stderr.
    pub stderr: PathBuf,
    /// What `ckpt restart` or `ckpt run` have written to a stdout of their own, where the program has another.
    pub own_stdout: Option<PathBuf>,
    ended: Option<ExitStatus>,
    /// The program's pid is free, or somebody else's.
    is_killed: bool,
}

impl<'scene> Life<'scene> {
    /// Starts `program` in the folder `name` of the scene; its store is the folder `store` in there.
    pub fn start(scene: &'scene Scene, name: &str, program: &Program, launch: &Launch, stdout: Stdout) -> Life<'scene> {
        let directory = scene.folder(name);
        let mut command = launched(program, launch, &directory);
        command.env("CKPT_DIR", directory.join("store"));
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        let printed = File::create(directory.join("stdout")).expect("the life's folder is writable");
        let (output, terminal) = connect(&mut command, stdout, printed, directory.join("stdout"));
        for Input { file, content } in &program.inputs {
            std::fs::write(directory.join(file), content).expect("the life's folder is writable");
        }
        if let Some(file) = &program.stdin {
            command.stdin(File::open(directory.join(file)).expect("it is one of the inputs"));
        }
        let stderr = directory.join("stderr");
        let child = spawn(scene, &mut command, &directory, &stderr);
        let own = child.id().cast_signed();
        let mut life = Life {
            scene,
            child,
            pid: own,
            output,
            directory,
            terminal,
            stderr,
            own_stdout: None,
            ended: None,
            is_killed: false,
        };
        let executes_it = |pid: i32| processes::executable(pid).as_ref() == Some(&program.executable);
        match launch {
            Launch::Run(_) | Launch::Ahead(_) => life.pid = life.find_program(executes_it),
            // What that command executes has its pid, or is below it.
            Launch::By(_) => {
                let found = life.look_among(|own| [vec![own], processes::descendants(own)].concat(), executes_it);
                life.pid = found.unwrap_or_else(|| panic!("no program by {launch:?}: {}", life.errors()));
            }
            Launch::Plain | Launch::Preload => {}
        }
        life
    }

    /// Starts `program` under libckpt with its stdout in a file: the usual case.
    pub fn preloaded(scene: &'scene Scene, name: &str, program: &Program) -> Life<'scene> {
        Life::start(scene, name, program, &Launch::Preload, Stdout::File)
    }

    /// The same, killed right after a checkpoint that was taken when it had printed `lines` lines. However busy the machine is, it
    /// does not end before that: a victim, whose steps print a line or more, waits some steps later, unless it is told where.
    pub fn until_checkpoint(scene: &'scene Scene, name: &str, program: &Program, lines: usize) -> Life<'scene> {
        let taken = scene.path().join(format!("{name}-is-taken"));
        let mut patient = program.clone();
        if !patient.waits() {
            patient = patient.waiting(lines + LINES_BEFORE_THE_SIGN, &taken);
        }
        let mut life = Life::preloaded(scene, name, &patient);
        life.output.wait_for_lines(lines);
        crate::checkpoint(scene, life.pid);
        life.kill();
        std::fs::write(&taken, "").expect("a file in the scene");
        life
    }

    /// Waits until a descendant of the child is the wanted one, and gives its pid.
    pub fn find_program(&mut self, wanted: impl Fn(i32) -> bool) -> i32 {
        match self.look_for_program(wanted) {
            Some(pid) => pid,
            None => panic!("no program under {:?} ({:?}): {}", self.child, self.ended, self.errors()),
        }
    }

    /// The same; none when the child ends before.
    fn look_for_program(&mut self, wanted: impl Fn(i32) -> bool) -> Option<i32> {
        self.look_among(processes::descendants, wanted)
    }

    /// The same among those that `all` gives for the child.
    fn look_among(&mut self, all: impl Fn(i32) -> Vec<i32>, wanted: impl Fn(i32) -> bool) -> Option<i32> {
        let own = self.child.id().cast_signed();
        let mut found = None;
        let end = std::time::Instant::now() + RESTART_LIMIT;
        while found.is_none() && self.try_wait().is_none() && std::time::Instant::now() < end {
            found = all(own).into_iter().find(|&pid| wanted(pid));
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    }

    /// What the child has written to stderr.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for the end and gives the status.
    pub fn wait(&mut self) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        let status = self.child.wait().expect("it is our child");
        self.ended = Some(status);
        status
    }

    /// The status, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("it is our child");
        }
        self.ended
    }

    /// Kills the program, its descendants and those that have lost their parents with SIGKILL, and waits until their pids are free.
    pub fn kill(&mut self) {
        let pid = self.pid;
        let mut family = Vec::new();
        if self.ended.is_none() || pid != self.child.id().cast_signed() {
            family = processes::descendants(pid);
            self.kill_if_ours(pid);
        }
        family.iter().for_each(|&descendant| self.kill_if_ours(descendant));
        self.wait();
        for orphan in processes::orphans_in(&self.directory) {
            self.kill_if_ours(orphan);
            family.push(orphan);
        }
        let is_gone = |pid: i32| !Path::new(&format!("/proc/{pid}")).exists();
        let gone = || is_gone(pid) && family.iter().all(|&descendant| is_gone(descendant));
        processes::wait_until("the killed program's pid becomes free", RESTART_LIMIT, gone);
        self.is_killed = true;
    }

    fn kill_if_ours(&self, pid: i32) {
        if processes::belongs_to(pid, self.scene.path()) {
            processes::send(pid, Signal::SIGKILL);
        }
    }

    /// Types into the terminal.
    pub fn type_in(&mut self, text: &str) {
        let terminal = self.terminal.as_mut().expect("this life has a terminal");
        terminal.write_all(text.as_bytes()).expect("the terminal is open");
    }

    /// The store that the program writes to unless told otherwise.
    pub fn store(&self) -> crate::Store {
        crate::Store::at(self.directory.join("store"))
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        let child = self.child.id().cast_signed();
        if self.pid != child && !self.is_killed {
            self.kill_if_ours(self.pid);
        }
        if std::thread::panicking() {
            processes::orphans_in(&self.directory).into_iter().for_each(|orphan| self.kill_if_ours(orphan));
        }
        if self.try_wait().is_none() {
            if self.pid != child && !std::thread::panicking() {
                // `ckpt run` and `ckpt restart` end by themselves with their program.
                let mut left = 500;
                while self.try_wait().is_none() && left > 0 {
                    std::thread::sleep(Duration::from_millis(10));
                    left -= 1;
                }
            }
            if self.try_wait().is_none() {
                self.kill_if_ours(child);
                self.wait();
            }
        }
    }
}

/// A restart to be made.
#[derive(Clone, Debug)]
pub struct Restart {
    before: Vec<OsString>,
    store: PathBuf,
    options: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    stdout: Stdout,
}

/// Whether `ckpt restart` has ended as its program has, and not by a refusal or failure of its own.
fn is_a_programs(status: ExitStatus) -> bool {
    status.code().is_some_and(|code| !(121..=125).contains(&code))
}

impl Restart {
    /// Of the newest checkpoint in a store.
    pub fn of(store: impl AsRef<Path>) -> Restart {
        Restart {
            before: Vec::new(),
            store: store.as_ref().to_owned(),
            options: Vec::new(),
            environment: Vec::new(),
            stdout: Stdout::File,
        }
    }

    /// Of checkpoint `id`.
    pub fn id(self, id: u64) -> Restart {
        self.option("--id").option(&id.to_string())
    }

    /// With one more option.
    pub fn option(mut self, option: &str) -> Restart {
        self.options.push(option.into());
        self
    }

    /// By a command that executes the one behind its own words.
    pub fn by(mut self, command: &[&str]) -> Restart {
        self.before = command.iter().map(Into::into).collect();
        self
    }

    /// With an environment variable for `ckpt restart`.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Restart {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// With this stdout of `ckpt restart`, which becomes the program's where that had none in a file.
    pub fn stdout(mut self, stdout: Stdout) -> Restart {
        self.stdout = stdout;
        self
    }

    /// Restarts, and waits until the program runs. `pid` is the program's, `directory` where it worked.
    ///
    /// On a busy machine a program may have come to its end before it is seen: then its life is over, and its output tells.
    ///
    /// Where ids wrap around within seconds, because other tests make threads all the time, somebody may have one of the
    /// program's for a moment. Then it is tried again, as a person would.
    pub fn begin<'scene>(&self, scene: &'scene Scene, directory: &Path, pid: i32) -> Life<'scene> {
        let end = std::time::Instant::now() + RESTART_LIMIT;
        loop {
            let mut life = self.spawn(scene, directory);
            let own = |found| processes::pid_in_its_namespace(found) == Some(pid) && is_complete(found);
            match life.look_for_program(own) {
                Some(found) => {
                    life.pid = found;
                    return life;
                }
                None if life.ended.is_some_and(is_a_programs) => {
                    life.pid = pid;
                    return life;
                }
                None => {
                    let errors = life.errors();
                    let taken = errors.contains("is in use") && std::time::Instant::now() < end;
                    assert!(taken, "no program after a restart ({:?}): {errors}", life.ended);
                }
            }
        }
    }

    /// Restarts without waiting for anything. The life's pid is that of `ckpt restart`.
    pub fn spawn<'scene>(&self, scene: &'scene Scene, directory: &Path) -> Life<'scene> {
        let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = scene.folder(&format!("restart-{number}"));
        let ckpt = OsString::from(product::ckpt());
        let words: Vec<&OsString> = self.before.iter().chain([&ckpt]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("restart").arg(&self.store).args(&self.options);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let own = folder.join("stdout");
        let printed = File::create(&own).expect("the scene is writable");
        let (output, terminal) = connect(&mut command, self.stdout, printed, directory.join("stdout"));
        let stderr = folder.join("stderr");
        let child = spawn(scene, &mut command, &folder, &stderr);
        let own_stdout = (self.stdout == Stdout::File).then_some(own);
        let pid = child.id().cast_signed();
        let directory = directory.to_owned();
        Life { scene, child, pid, output, directory, terminal, stderr, own_stdout, ended: None, is_killed: false }
    }
}

/// Whether a process is no longer one that `ckpt restart` is building.
fn is_complete(pid: i32) -> bool {
    let is_traced = processes::status_field(pid, "TracerPid").is_none_or(|tracer| tracer != "0");
    !is_traced && processes::executable(pid).is_some_and(|path| path != product::ckpt())
}

static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

fn launched(program: &Program, launch: &Launch, directory: &Path) -> Command {
    let mut command = match launch {
        Launch::Plain => Command::new(&program.executable),
        Launch::Preload => {
            let mut command = Command::new(&program.executable);
            command.env("LD_PRELOAD", product::library());
            command
        }
        Launch::Run(options) => {
            let mut command = Command::new(product::ckpt());
            command.arg("run").args(options).arg("--").arg(&program.executable);
            command
        }
        Launch::By(words) => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&program.executable);
            command
        }
        Launch::Ahead(Ahead { monotonic, boottime }) => {
            let mut command = Command::new("unshare");
            if !nix::unistd::geteuid().is_root() {
                command.args(["--user", "--map-current-user"]);
            }
            command.args(["--time", "--fork", &format!("--monotonic={monotonic}"), &format!("--boottime={boottime}")]);
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(product::library());
            // For the program alone.
            command.arg("env").arg(preload).arg(&program.executable);
            command
        }
    };
    command.args(&program.arguments).current_dir(directory);
    command
}

/// Connects stdin and stdout; returns where the output arrives, and the terminal if there is one.
fn connect(command: &mut Command, stdout: Stdout, printed: File, read_at: PathBuf) -> (Output, Option<File>) {
    command.stdin(Stdio::null());
    match stdout {
        Stdout::File => {
            command.stdout(printed);
            (Output::File(read_at), None)
        }
        Stdout::Pipe => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            command.stdout(writer);
            (Output::read_from(File::from(OwnedFd::from(reader))), None)
        }
        Stdout::Socket => {
            let (reader, writer) = std::os::unix::net::UnixStream::pair().expect("two sockets");
            command.stdout(OwnedFd::from(writer));
            (Output::read_from(File::from(OwnedFd::from(reader))), None)
        }
        Stdout::Terminal | Stdout::OrdinaryTerminal | Stdout::SessionTerminal => {
            let pair = openpty(None, None).expect("a terminal");
            let mut settings = tcgetattr(&pair.slave).expect("it is a terminal");
            if stdout != Stdout::OrdinaryTerminal {
                cfmakeraw(&mut settings);
            }
            if stdout == Stdout::SessionTerminal {
                settings.local_flags.insert(LocalFlags::ISIG);
            }
            if stdout != Stdout::Terminal {
                lead_a_session(command);
            }
            tcsetattr(&pair.slave, SetArg::TCSANOW, &settings).expect("it is a terminal");
            command.stdin(pair.slave.try_clone().expect("a descriptor"));
            command.stdout(pair.slave);
            let master = File::from(pair.master);
            let reader = master.try_clone().expect("a descriptor");
            (Output::read_from(reader), Some(master))
        }
    }
}

/// Makes the child the leader of a session that the terminal at its descriptor 0 controls.
fn lead_a_session(command: &mut Command) {
    let lead = || {
        nix::unistd::setsid()?;
        // SAFETY: TIOCSCTTY takes an integer and touches no memory; descriptor 0 is the terminal.
        let answer = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        nix::errno::Errno::result(answer)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and neither allocates nor locks.
    unsafe { command.pre_exec(lead) };
}

/// Starts a process of the scene with descriptors 0, 1 and 2 alone.
pub(crate) fn spawn(scene: &Scene, command: &mut Command, directory: &Path, stderr: &Path) -> Child {
    command.stderr(File::create(stderr).expect("the folder is writable"));
    command.current_dir(directory);
    prepare(scene, command);
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Marks a process of the scene and keeps the test's descriptors from it.
pub fn prepare(scene: &Scene, command: &mut Command) {
    command.env(MARK, scene.path());
    // Fault points are closed to what sudo starts, and sudo may have started the tests.
    for name in ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"] {
        command.env_remove(name);
    }
    let close_all = || {
        // SAFETY: the call only marks descriptors of this process to be closed by exec.
        let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
        nix::errno::Errno::result(answer)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor locks.
    unsafe { command.pre_exec(close_all) };
}

/// An exit status as a shell says it: the code, or 128 + the signal.
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
