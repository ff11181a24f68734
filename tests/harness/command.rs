//! Calling the `ckpt` command and reading its answer.

use std::ffi::OsString;
use std::process::{Command, Stdio};

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
        let mut command = Command::new(product::ckpt());
        command.args(arguments.into_iter().map(Into::into)).current_dir(scene.path()).stdin(Stdio::null());
        prepare(scene, &mut command);
        Ckpt { command }
    }

    /// With an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Ckpt {
        self.command.env(name, value.into());
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
