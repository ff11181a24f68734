//! The `ckpt` command: reads the command line, runs one command and turns its outcome into an exit code.

use std::process::ExitCode;

use ckpt_runtime::commands::{
    agent, checkpoint, copy, devices, diff, doctor, extract, fault_points, flatten, keep_memory, key, list, prune, ps,
    restart, rm, run, saved, show, stand_still, status_beside_program, verify,
};
use ckpt_runtime::error::{Result, exit_code};
use ckpt_runtime::{fault, logging, parent, units};
use clap::{ArgAction, Parser, Subcommand};
use nix::sys::signal::{SigHandler, Signal, signal};

#[used]
// SAFETY (of the section): an array of pointers to C functions, called once each before `main`.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = parent::note_dispositions_at_start;

/// Checkpoints running programs and restarts them exactly where they were.
#[derive(Parser)]
#[command(name = "ckpt", version, after_help = EXAMPLES)]
struct CommandLine {
    /// Log more to standard error, or to the file that CKPT_LOG names (-v, -vv, -vvv)
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ckpt run -- python3 train.py     start a program that can be checkpointed
  ckpt checkpoint 4711             take a checkpoint of it; it runs on
  ckpt ps                          see the programs that run
  ckpt list                        see the checkpoints in ./ckpt-store
  ckpt diff 1 2                    see what changed between two of them
  ckpt extract 2 --region 17 -o grid.npy    take the content of an allocation out
  ckpt restart                     bring the program back after it has ended
  ckpt verify                      prove that they are whole
  ckpt rm 1                        drop one of them
  ckpt saved                       see what a restart has replaced in files
  ckpt doctor                      see what works on this host

Exit codes: 0 done, 1 failed, 2 usage, 3 checkpoint corrupt, 4 state not supported, 5 environment;
under run and restart 121 to 125, because there the program's own status passes through.";

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Checkpoint(checkpoint::Arguments),
    Restart(restart::Arguments),
    Ps(ps::Arguments),
    List(list::Arguments),
    Show(show::Arguments),
    Diff(diff::Arguments),
    Extract(extract::Arguments),
    Verify(verify::Arguments),
    Copy(copy::Arguments),
    Prune(prune::Arguments),
    Rm(rm::Arguments),
    Saved(saved::Arguments),
    Flatten(flatten::Arguments),
    Key(key::Arguments),
    Doctor(doctor::Arguments),
    #[command(hide = true)]
    Agent(agent::Arguments),
    #[command(hide = true)]
    Devices(devices::Arguments),
    #[command(hide = true)]
    KeepMemory(keep_memory::Arguments),
    #[command(hide = true)]
    StandStill(stand_still::Arguments),
    #[command(hide = true)]
    FaultPoints,
}

impl Command {
    /// Whether the program's own exit status passes through.
    fn is_beside_program(&self) -> bool {
        matches!(self, Command::Run(_) | Command::Restart(_))
    }

    fn execute(&self) -> Result<u8> {
        match self {
            Command::Run(arguments) => run::execute(arguments),
            Command::Checkpoint(arguments) => checkpoint::execute(arguments),
            Command::Restart(arguments) => restart::execute(arguments),
            Command::Ps(arguments) => ps::execute(arguments),
            Command::List(arguments) => list::execute(arguments),
            Command::Show(arguments) => show::execute(arguments),
            Command::Diff(arguments) => diff::execute(arguments),
            Command::Extract(arguments) => extract::execute(arguments),
            Command::Verify(arguments) => verify::execute(arguments),
            Command::Copy(arguments) => copy::execute(arguments),
            Command::Prune(arguments) => prune::execute(arguments),
            Command::Rm(arguments) => rm::execute(arguments),
            Command::Saved(arguments) => saved::execute(arguments),
            Command::Flatten(arguments) => flatten::execute(arguments),
            Command::Key(arguments) => key::execute(arguments),
            Command::Doctor(arguments) => doctor::execute(arguments),
            Command::Agent(arguments) => agent::execute(arguments),
            Command::Devices(arguments) => devices::execute(arguments),
            Command::KeepMemory(arguments) => keep_memory::execute(arguments),
            Command::StandStill(arguments) => stand_still::execute(arguments),
            Command::FaultPoints => fault_points::execute(),
        }
    }
}

fn main() -> ExitCode {
    fault::arm_from_environment();
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return misread(error),
    };
    match line.command {
        Command::Agent(_) => say_that_a_file_is_too_large(),
        _ => end_quietly_when_nobody_reads(),
    }
    logging::start(line.verbose);
    let outcome = line.command.execute();
    log::logger().flush();
    ExitCode::from(outcome.unwrap_or_else(|error| {
        ckpt_runtime::say!("{error}");
        if line.command.is_beside_program() { status_beside_program(error.exit_code()) } else { error.exit_code() }
    }))
}

/// An agent that may not write such a file (`ulimit -f`) is told so by an error, and does not end by SIGXFSZ.
fn say_that_a_file_is_too_large() {
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// `ckpt list | head` ends like any other program, by SIGPIPE, which the Rust runtime has ignored.
fn end_quietly_when_nobody_reads() {
    // SAFETY: the default action runs no code of ours.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

/// Help was asked for, or the command line makes no sense.
fn misread(error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(exit_code::DONE);
    }
    // It repeats what was typed, and a shell types the names of files, too.
    let shown = std::env::args_os().map(|argument| units::printable(&argument.to_string_lossy()));
    let _ = CommandLine::try_parse_from(shown).err().unwrap_or(error).print();
    // There is no parsed command; our options in front of it take no values.
    let command = std::env::args_os().skip(1).find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    let beside_program = command.is_some_and(|command| command == "run" || command == "restart");
    ExitCode::from(if beside_program { status_beside_program(exit_code::USAGE) } else { exit_code::USAGE })
}
