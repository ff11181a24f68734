//! The surroundings of one test: a directory, a time limit, and nothing left behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::processes;

/// Environment variable that marks every process of a scene.
pub const MARK: &str = "CKPT_TESTS_SCENE";

/// How long agents and parents may take to end after their program.
const FAREWELL_LIMIT: Duration = Duration::from_secs(10);

/// One test's directory and watchdog. Dropped last, it fails the test if a process of the test still lives.
pub struct Scene {
    directory: TempDir,
    path: PathBuf,
    _over: Sender<()>,
    watchdog: Option<JoinHandle<()>>,
}

impl Scene {
    /// A scene of at most three minutes. Most are over in two seconds; of a virtual machine whose processors are taken away,
    /// programs whose threads wait for each other by spinning need twenty times as long.
    pub fn new() -> Scene {
        Scene::of_at_most(Duration::from_secs(180))
    }

    /// A scene with a time limit of its own.
    pub fn of_at_most(limit: Duration) -> Scene {
        let directory = tempfile::Builder::new().prefix("ckpt-test-").tempdir().expect("a temporary directory");
        let path = directory.path().canonicalize().expect("it exists");
        let (over, watched) = mpsc::channel::<()>();
        let guarded = path.clone();
        let name = test_name();
        let watchdog = std::thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                end_by_force(&name, &guarded, limit, &watched);
            }
        });
        Scene { directory, path, _over: over, watchdog: Some(watchdog) }
    }

    /// The scene's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in the scene, made if it is not there.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).expect("a folder in the scene");
        path
    }

    /// Keeps the directory for a person to look at, when the test fails and `CKPT_TESTS_KEEP` is set.
    fn keep_if_asked(&mut self) {
        if std::thread::panicking() && std::env::var_os("CKPT_TESTS_KEEP").is_some() {
            self.directory.disable_cleanup(true);
            eprintln!("kept {}", self.path.display());
        }
    }
}

impl Default for Scene {
    fn default() -> Self {
        Scene::new()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.keep_if_asked();
        let patience = if std::thread::panicking() { Duration::ZERO } else { FAREWELL_LIMIT };
        let left = wait_for_the_end_of_all(&self.path, patience);
        for &(pid, _) in &left {
            processes::send(pid, Signal::SIGKILL);
        }
        // The watchdog ends when the sender does.
        self._over = mpsc::channel().0;
        if let Some(watchdog) = self.watchdog.take() {
            let _ = watchdog.join();
        }
        if !left.is_empty() && !std::thread::panicking() {
            panic!("processes that outlived their program: {left:?}");
        }
    }
}

/// Waits until no process of the scene lives; what still does after `patience` is returned with its arguments.
fn wait_for_the_end_of_all(scene: &Path, patience: Duration) -> Vec<(i32, Vec<String>)> {
    let end = Instant::now() + patience;
    loop {
        let left = processes::of_scene(scene);
        if left.is_empty() || Instant::now() >= end {
            return left.into_iter().map(|pid| (pid, processes::arguments(pid))).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills what the test waits for, so that it fails by itself; ends the test process if that does not help.
fn end_by_force(name: &str, scene: &Path, limit: Duration, over: &mpsc::Receiver<()>) {
    let report = |pid: &i32| format!("{pid} {:?} {:?}", processes::thread_states(*pid), processes::arguments(*pid));
    let alive: Vec<String> = processes::of_scene(scene).iter().map(report).collect();
    eprintln!("TIME-OUT: {name} took more than {limit:?}; alive: {alive:#?}");
    for _ in 0..100 {
        for pid in processes::of_scene(scene) {
            processes::send(pid, Signal::SIGKILL);
        }
        if over.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
    eprintln!("TIME-OUT: {name} does not end");
    std::process::abort();
}

/// Says visibly that the running test cannot show anything here. `scripts/test` counts and prints these lines.
pub fn skip(reason: &str) {
    let name = test_name();
    eprintln!("SKIPPED {name}: {reason}");
    if let Some(path) = std::env::var_os("CKPT_TESTS_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{name}: {reason}")).expect("the list of skipped tests");
    }
}

/// Name of the running test: that of its thread, or the one that a runner of single tests has asked for.
pub(crate) fn test_name() -> String {
    let thread = std::thread::current().name().unwrap_or("main").to_owned();
    let asked_for = || std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if thread == "main" { asked_for().unwrap_or(thread) } else { thread }
}
