//! `scripts/ckpt-run-until-done` with a program under it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::life::spawn;
use crate::output::Output;
use crate::{Program, Scene, Store, code_of, processes, product};

/// How long a program may take to appear.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The script.
pub fn script() -> PathBuf {
    product::repository().join("scripts/ckpt-run-until-done")
}

/// A job: what is called, again and again, until it is done.
#[derive(Clone)]
pub struct Job<'scene> {
    scene: &'scene Scene,
    /// Where it runs; `stdout` in there is the program's, in all lives.
    pub directory: PathBuf,
    /// The program.
    pub program: Program,
    /// What the script is started by.
    before: Vec<String>,
    options: Vec<String>,
    name: String,
}

/// A call of the script that has not ended yet.
pub struct Call {
    /// The script, or what it was started by.
    pub child: Child,
    executable: PathBuf,
    stderr: PathBuf,
    log: PathBuf,
    /// Bytes of the log that earlier calls have written.
    logged_before: usize,
    /// What the program prints, in this and all other lives.
    pub output: Output,
}

impl<'scene> Job<'scene> {
    /// `program` in the folder `job` of the scene; its store is the folder `store` in there.
    pub fn new(scene: &'scene Scene, program: &Program) -> Job<'scene> {
        let directory = scene.folder("job");
        let name = program.executable.file_name().expect("a file").to_string_lossy().into_owned();
        Job { scene, directory, program: program.clone(), before: Vec::new(), options: Vec::new(), name }
    }

    /// With further options.
    pub fn options(mut self, options: &[&str]) -> Job<'scene> {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// With a name of its own.
    pub fn named(mut self, name: &str) -> Job<'scene> {
        name.clone_into(&mut self.name);
        self.options(&["--name", name])
    }

    /// Started by another program.
    pub fn under(mut self, before: &[&str]) -> Job<'scene> {
        self.before = before.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Its store.
    pub fn store(&self) -> Store {
        Store::at(self.directory.join("store"))
    }

    /// What the script remembers of it.
    pub fn state(&self, file: &str) -> PathBuf {
        self.directory.join("store.until-done").join(&self.name).join(file)
    }

    /// The program's pid, as ckpt has written it down.
    pub fn noted_pid(&self) -> i32 {
        let text = fs::read_to_string(self.state("process")).expect("a pid file");
        text.lines().next().and_then(|line| line.parse().ok()).expect("a pid in its first line")
    }

    /// Calls the script.
    pub fn call(&self) -> Call {
        let script = script().to_string_lossy().into_owned();
        let words: Vec<&str> = self.before.iter().map(String::as_str).chain([script.as_str()]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&self.options).arg("--").arg(&self.program.executable);
        command.args(&self.program.arguments);
        command.env("CKPT", product::ckpt()).env("CKPT_DIR", self.store().path());
        command.envs(self.program.environment.iter().map(|(name, value)| (name, value)));
        let stdout = self.directory.join("stdout");
        command.stdin(std::process::Stdio::null());
        command.stdout(File::options().create(true).append(true).open(&stdout).expect("the job's folder is writable"));
        // Signals to the group that a test makes here are for the script and what is in its group.
        command.process_group(0);
        let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stderr = self.scene.folder("messages").join(number.to_string());
        let log = self.state("log");
        let logged_before = fs::read(&log).map_or(0, |text| text.len());
        let child = spawn(self.scene, &mut command, &self.directory, &stderr);
        let executable = self.program.executable.clone();
        Call { child, executable, stderr, log, logged_before, output: Output::File(stdout) }
    }

    /// Calls the script, and waits for its end: its exit code and messages.
    pub fn run(&self) -> (i32, String) {
        let mut call = self.call();
        let code = call.wait();
        (code, call.messages())
    }
}

static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

impl Call {
    /// Waits until the program runs, and gives its pid.
    #[track_caller]
    pub fn program(&mut self) -> i32 {
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(pid) = self.running_program() {
                return pid;
            }
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none() && Instant::now() < end, "no program ({ended:?}): {}", self.messages());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The program, if it runs and is not just being rebuilt.
    pub fn running_program(&self) -> Option<i32> {
        let complete = |pid: i32| processes::status_field(pid, "TracerPid").as_deref() == Some("0");
        let is_it = |pid: i32| processes::executable(pid).as_ref() == Some(&self.executable);
        let found = processes::descendants(self.pid()).into_iter().find(|&pid| is_it(pid))?;
        (complete(found) && processes::is_alive(found)).then_some(found)
    }

    /// Pid of the script, or of what it was started by.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a signal to the script.
    pub fn signal(&self, signal: Signal) {
        processes::send(self.pid(), signal);
    }

    /// Waits until a message says `what`.
    #[track_caller]
    pub fn wait_for_message(&self, what: &str) {
        processes::wait_until(&format!("a message with '{what}' in: {}", self.messages()), START_LIMIT, || {
            self.messages().contains(what)
        });
    }

    /// What it has written to its log so far.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.get(self.logged_before..).unwrap_or_default().to_owned()
    }

    /// What it and its program have said so far. stderr is the program's too, so a restart cuts it back.
    pub fn messages(&self) -> String {
        self.log() + &fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for its end and gives its exit code, 128 + n after a signal.
    pub fn wait(&mut self) -> i32 {
        code_of(self.child.wait().expect("it is our child"))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.child.try_wait().expect("it is our child").is_none() {
            // The scene ends what this leaves behind.
            processes::send(self.pid(), Signal::SIGKILL);
            let _ = self.child.wait();
            assert!(std::thread::panicking(), "a test has left a job running: {}", self.messages());
        }
    }
}
