//! Calling the `ckpt` command and reading its answer.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, setrlimit};

use crate::life::prepare;
use crate::product;
use crate::scene::Scene;

/// A call of `ckpt`.
pub struct Ckpt {
    command: Command,
}

/// What a call has answered.
#[derive(Debug)]
pub struct Answer {
    /// Exit code, 128 + n after a signal.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Ckpt {
    /// `ckpt ARGUMENTS` in the scene's directory.
    pub fn new<I: IntoIterator>(scene: &Scene, arguments: I) -> Ckpt
    where
        I::Item: Into<OsString>,
    {
        Ckpt::at(product::ckpt(), scene, arguments)
    }

    /// The same with a copy of it.
    pub fn at<I: IntoIterator>(executable: impl AsRef<Path>, scene: &Scene, arguments: I) -> Ckpt
    where
        I::Item: Into<OsString>,
    {
        let mut command = Command::new(executable.as_ref());
        command.args(arguments.into_iter().map(Into::into)).current_dir(scene.path()).stdin(Stdio::null());
        prepare(scene, &mut command);
        Ckpt { command }
    }

    /// With an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Ckpt {
        self.command.env(name, value.into());
        self
    }

    /// With an open file at this number, which it inherits.
    pub fn descriptor(mut self, number: i32, file: File) -> Ckpt {
        let lend = move || {
            // SAFETY: it takes numbers; whatever has the number is this process's alone.
            nix::errno::Errno::result(unsafe { libc::dup2(file.as_raw_fd(), number) }).map(drop)?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes one system call and neither allocates nor locks.
        unsafe { self.command.pre_exec(lend) };
        self
    }

    /// It may have so many bytes of address space.
    pub fn address_space(mut self, bytes: u64) -> Ckpt {
        let bind = move || Ok(setrlimit(Resource::RLIMIT_AS, bytes, bytes)?);
        // SAFETY: between fork and exec the closure makes one system call and neither allocates nor locks.
        unsafe { self.command.pre_exec(bind) };
        self
    }

    /// Calls it and waits.
    pub fn call(mut self) -> Answer {
        let output = self.command.output().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        Answer {
            code: crate::code_of(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    /// Asserts that it was successful.
    #[track_caller]
    pub fn succeeded(self) -> Answer {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn failed_with(self, code: i32) -> Answer {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// Asserts that stdout is one number, and gives it.
    #[track_caller]
    pub fn number(&self) -> u64 {
        let line = self.stdout.strip_suffix('\n').unwrap_or_else(|| panic!("stdout is not a line: {self:?}"));
        line.parse().unwrap_or_else(|error| panic!("stdout is not a number alone ({error}): {self:?}"))
    }
}

/// Takes a checkpoint with `ckpt checkpoint PID` and gives its id.
#[track_caller]
pub fn checkpoint(scene: &Scene, pid: i32) -> u64 {
    Ckpt::new(scene, ["checkpoint", &pid.to_string()]).call().succeeded().number()
}
