//! A control group of a test's own, with a limit of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;

use crate::{Program, processes};

/// Where version 1 is mounted, and version 2; and what the file of the limit is called.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

const A_WHILE: Duration = Duration::from_secs(10);

/// It goes with its last process.
#[derive(Debug)]
pub struct ControlGroup {
    directory: PathBuf,
    limit: &'static str,
}

impl ControlGroup {
    /// With so many bytes for those that are taken into it; none where we may not make one.
    pub fn with_memory(bytes: u64) -> Option<ControlGroup> {
        let name = format!("ckpt-test-{}", std::process::id());
        let (directory, limit) = PLACES.map(|(place, limit)| (Path::new(place).join(&name), limit)).into_iter().find(
            |(directory, limit)| {
                geteuid().is_root() && fs::create_dir(directory).is_ok() && {
                    let has_memory = directory.join(limit).exists();
                    if !has_memory {
                        let _ = fs::remove_dir(directory);
                    }
                    has_memory
                }
            },
        )?;
        let group = ControlGroup { directory, limit };
        group.allow(bytes);
        Some(group)
    }

    /// From now on so many bytes, as soon as those that are in it have no more.
    pub fn allow(&self, bytes: u64) {
        processes::wait_until("the limit is set", A_WHILE, || {
            fs::write(self.directory.join(self.limit), bytes.to_string()).is_ok()
        });
    }

    /// Has it executed in here from the beginning.
    pub fn around(&self, program: &Program) -> Program {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.directory.display());
        let inside = Program::installed("sh").argument("-c").argument(enter).argument(&program.executable);
        let inside = program.arguments.iter().fold(inside, Program::argument);
        program.environment.iter().fold(inside, |inside, (name, value)| inside.variable(name, value))
    }

    /// What the process has already is counted where it was.
    pub fn take_in(&self, pid: i32) {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).expect("a process that lives");
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        processes::wait_until("nobody is in the control group", A_WHILE, || fs::remove_dir(&self.directory).is_ok());
    }
}
