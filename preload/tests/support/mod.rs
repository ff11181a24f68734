//! What the tests share: the library under test, victims compiled from C, and waiting with a limit.
#![allow(dead_code, reason = "each test target uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

/// Longest wait for anything; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The libckpt.so of the same target directory. Fails when it is missing or older than its sources.
pub fn library() -> PathBuf {
    const BUILD: &str = "build it with: cargo build --release -p ckpt-preload";
    let exe = std::env::current_exe().unwrap();
    let target = exe.ancestors().nth(3).unwrap();
    let library = match std::env::var_os("CKPT_TEST_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => target.join("release/libckpt.so"),
    };
    let built = modified(&library).unwrap_or_else(|| panic!("{} is missing; {BUILD}", library.display()));
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let fresh = modified(&source).is_some_and(|changed| changed <= built);
        assert!(fresh, "{} is newer than {}; {BUILD}", source.display(), library.display());
    }
    library
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Compiles `victims/NAME.c` into `directory`.
pub fn compile(directory: &Path, name: &str) -> PathBuf {
    compile_with("cc", &format!("{name}.c"), &directory.join(name), &[])
}

/// Compiles `victims/SOURCE` to `program`, with more options.
pub fn compile_with(compiler: &str, source: &str, program: &Path, options: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(source);
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let warnings = ["-Wall", "-Wno-deprecated-declarations", "-Wno-use-after-free"];
    let mut command = Command::new(compiler);
    command.args(warnings).args(["-O1", "-pthread", "-D_GNU_SOURCE", include]).args(options);
    command.arg("-o").arg(program).arg(path).arg("-ldl");
    let status = command.status().unwrap_or_else(|error| panic!("a compiler named {compiler}: {error}"));
    assert!(status.success(), "{source} does not compile");
    program.to_owned()
}

/// `program` with libckpt.so and no variable of ours from outside.
pub fn preloaded(program: &Path) -> Command {
    let mut command = plain(program);
    command.env("LD_PRELOAD", library());
    command
}

/// `program` without libckpt.so.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CKPT_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD");
    command
}

/// A running victim. Killed, and reaped, when dropped.
pub struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Victim {
    /// Starts it with its input and output in our hands.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { stdin: child.stdin.take(), child, lines }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The next line of its output.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line of the victim's output")
    }

    /// Whether its output has ended and nothing holds it open, waiting for that.
    pub fn output_ends(&self) -> bool {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(Disconnected) => return true,
                Err(Timeout) => return false,
            }
        }
    }

    pub fn write(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the pid is of our child, which has not been reaped.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Whether it has ended, without waiting.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        until("the victim to end", || self.ended())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks `probe` until it has an answer.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `command` to its end and returns what it wrote to its standard output.
pub fn output(command: &mut Command) -> String {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let status = until("a command to end", || child.try_wait().unwrap());
    let text = reader.join().unwrap().unwrap();
    assert!(status.success(), "{command:?}: {status}, output: {text}");
    text
}

/// A field of `/proc/PID/status`.
pub fn status_field(pid: i32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}
