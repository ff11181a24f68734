//! `ckpt agent`: serves one program. Started by libckpt.so and by other commands, not by people.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::agent::{
    AgentOptions, Trigger,
    news::{self, News},
    serve,
};
use crate::core_dumps;
use crate::error::{Error, Result, exit_code};

/// Serve one program until it ends (started by libckpt.so)
#[derive(Args)]
pub struct Arguments {
    /// The program
    #[arg(long, required_unless_present = "pid_from_stdin")]
    pid: Option<i32>,
    /// Read the pid of a program that is about to start from standard input
    #[arg(long, conflicts_with_all = ["pid", "trigger"])]
    pid_from_stdin: bool,
    /// The store, whatever the program says
    #[arg(long, conflicts_with = "pid_from_stdin")]
    dir: Option<PathBuf>,
    /// Take a checkpoint at once, for this reason
    #[arg(long, value_enum)]
    trigger: Option<FirstTrigger>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FirstTrigger {
    Signal,
    Interval,
    Api,
}

impl From<FirstTrigger> for Trigger {
    fn from(trigger: FirstTrigger) -> Trigger {
        match trigger {
            FirstTrigger::Signal => Trigger::Signal,
            FirstTrigger::Interval => Trigger::Interval,
            FirstTrigger::Api => Trigger::Api,
        }
    }
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid();
    let first_trigger = arguments.trigger.map(Trigger::from);
    match arguments.pid {
        Some(pid) => serve(AgentOptions { pid, first_trigger, is_starting: false, dir: arguments.dir.clone() })?,
        None => {
            let Some(pid) = announced_pid()? else { return Ok(exit_code::DONE) };
            news::begin();
            serve(AgentOptions { pid, first_trigger, is_starting: true, dir: None }).inspect_err(|error| {
                // A program that has ended at once needs none.
                if !matches!(error, Error::ProgramGone { .. }) {
                    news::tell(&News::Failed { message: error.to_string() });
                }
            })?;
        }
    }
    Ok(exit_code::DONE)
}

/// The number on the first line of standard input; `None` if whoever would have sent it gave up.
fn announced_pid() -> Result<Option<i32>> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|source| Error::io("read", "standard input", source))?;
    Ok(line.trim().parse().ok())
}
