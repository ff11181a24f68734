//! `ckpt agent`: serves one program. Started by libckpt.so and by other commands, not by people.

use clap::{Args, ValueEnum};

use crate::agent::{AgentOptions, Trigger, serve};
use crate::error::{Result, exit_code};

/// Serve one program until it ends (started by libckpt.so)
#[derive(Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    pid: i32,
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
    serve(AgentOptions { pid: arguments.pid, first_trigger: arguments.trigger.map(Trigger::from) })?;
    Ok(exit_code::DONE)
}
