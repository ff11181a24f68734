//! The command line of `ckpt restart`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::copy_wish::{self, CopyWish};
use super::{addresses, stdio};
use crate::commands::default_store;
use crate::commands::interval::{check_interval, parse_time};
use crate::commands::on_term::check_on_term;
use crate::restore::ClockWish;

/// Variable for the command of `--on-restart`.
pub const ENV_ON_RESTART: &str = "CKPT_ON_RESTART";

/// Option of the command that root starts as the owner of a store.
pub const AS_OWNER: &str = "as-owner";
/// Option of the command that is the first process of a pid namespace.
pub const FIRST_PROCESS: &str = "first-process";

/// Bring a program back from its newest checkpoint
#[derive(Args)]
#[command(after_help = "\
The program's terminals and pipes become the standard input, output and error of this command; regular
files are opened again; --stdio chooses otherwise (a file that is called inherit is ./inherit, one that is
made is its owner's alone). The exit status is the program's own, or 128 + the number of the signal that ended
it; failures of ckpt itself are 121 (failed), 122 (usage), 123 (corrupt), 124 (not supported),
125 (environment).

A program whose pid somebody else has by now, or whose user may not choose pids, goes on in a pid namespace of
its own, where its pid is what it was; outside it has another one. A line on standard error says so. In a container
that may do neither, ckpt makes processes until the next id is the program's: restart there as the first process.

CLOCK_MONOTONIC and CLOCK_BOOTTIME of the program go on with the time that has passed, also when the machine has
been booted meanwhile or is another one: then the program gets a time namespace. Where that is forbidden they
jump, and a line on standard error says so; --clocks chooses otherwise.

With --copy the program is another job than the one of the checkpoint, and as many copies run at once as are made. Nothing is
written to the store; ckpt_copy_id() in the program says which copy it is. --on-restart runs a command where the program
is, as its user, when it is complete and has not run yet, with CKPT_COPY, CKPT_PID, CKPT_JOB and CKPT_GENERATION in its
environment; if that fails, so does the restart.

With --detach the program belongs to nobody and this command ends at once. Standard output is then for the
pid alone: what the program writes to a terminal or a pipe goes to standard error, and it reads nothing
from a terminal.

Examples:
  ckpt restart ckpt-store
  ckpt restart ckpt-store --id 3
  ckpt restart ckpt-store --job heat
  ckpt restart ckpt-store --map /home/me/run=/scratch/run
  ckpt restart ckpt-store --map-address 10.1.0.2=10.2.0.7
  nohup ckpt restart ckpt-store --stdio heat.log &
  ckpt restart s3://bucket/heat --dir /scratch/heat
  ckpt restart warm --copy --stdio inherit      one of many programs that begin with the same memory
  ckpt restart warm --copy=web-1 --dir /scratch/web-1 --on-restart 'register $CKPT_COPY'
  ckpt restart ckpt-store --namespace never     with its own pids everywhere, or not at all
  pid=$(ckpt restart ckpt-store --detach)")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", default_value_os_t = default_store::dir())]
    pub dir: PathBuf,
    /// The directory for the program's next checkpoints [default: the store, if it is a directory, or $CKPT_DIR]
    #[arg(long = "dir", value_name = "NEXT_DIR")]
    pub next_dir: Option<PathBuf>,
    /// Make a copy: another job, by this id (1 to 64 of A-Z a-z 0-9 . _ -) or a random one, of which nothing is written to
    /// the store. Its checkpoints go to --dir or $CKPT_DIR; without, none can be taken of it
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = copy_wish::RANDOM,
          value_parser = copy_wish::check_copy, conflicts_with = "end_leftovers")]
    pub copy: Option<CopyWish>,
    /// Run a shell command where the program is, as its user, when it is complete and before it runs on; if that fails, so
    /// does the restart [default: $CKPT_ON_RESTART]
    #[arg(long, value_name = "CMD")]
    pub on_restart: Option<OsString>,
    /// How long that command may take: 500ms, 30s, 10m
    #[arg(long, value_name = "T", default_value = "60s", value_parser = parse_time)]
    pub on_restart_timeout: Duration,
    /// The checkpoint [default: the newest sealed one]
    #[arg(long)]
    pub id: Option<u64>,
    /// The job, by id or name, where the store holds several
    #[arg(long)]
    pub job: Option<String>,
    /// Leave the program alone once it runs, and print its pid
    #[arg(long)]
    pub detach: bool,
    /// Restart even if files have changed that were not captured
    #[arg(long)]
    pub force: bool,
    /// End what is left of the job's last life, whose first process has ended
    #[arg(long)]
    pub end_leftovers: bool,
    /// OLD=NEW: what was in directory OLD is in NEW now; may be given several times. Paths that the program itself
    /// remembers stay as they are
    #[arg(long = "map", value_name = "OLD=NEW", value_parser = parse_pair)]
    pub maps: Vec<(PathBuf, PathBuf)>,
    /// OLD=NEW: sockets that had the internet address OLD get NEW, which this host has; may be given several times [default:
    /// where the host of the checkpoint had one address, and this one has one, that]
    #[arg(long = "map-address", value_name = "OLD=NEW", value_parser = addresses::parse_addresses)]
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// inherit: 0, 1 and 2 become those of this command, also where they were files. FILE: what the program writes to a
    /// terminal, pipe or socket is appended to FILE, and it reads nothing there
    #[arg(long, value_name = "inherit|FILE", value_parser = stdio::check_stdio)]
    pub stdio: Option<stdio::Choice>,
    /// As root: restart from a store that belongs to another user, as that user, who decides what runs
    #[arg(long)]
    pub trust_owner: bool,
    /// We are the owner of the store, started by root (from `ckpt restart` to itself)
    #[arg(long = AS_OWNER, hide = true)]
    pub as_owner: bool,
    /// Whether the program gets a pid namespace of its own
    #[arg(long, value_enum, default_value_t = Namespace::Auto)]
    pub namespace: Namespace,
    /// Whether the program's monotonic clocks go on after a reboot, and on another host
    #[arg(long, value_enum, default_value_t = Clocks::Auto)]
    pub clocks: Clocks,
    /// We are the first process of such a namespace (from `ckpt restart` to itself)
    #[arg(long = FIRST_PROCESS, hide = true)]
    pub first_process: Option<RawFd>,
    /// Time between automatic checkpoints: 500ms, 30s, 10m, 2h; a bare number is seconds; 0 is none [default: as before]
    #[arg(long, value_parser = check_interval)]
    pub interval: Option<String>,
    /// Let the program run before its memory is there: what it touches comes at once, all else meanwhile
    #[arg(long)]
    pub lazy: bool,
    /// SIGTERM to this command has a last checkpoint taken and the program ended at it, within a time (25s, 2m) or, with 1,
    /// within 60 s; the exit status is then 85. Otherwise the program gets the SIGTERM [default: $CKPT_ON_TERM or 0]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = check_on_term, conflicts_with = "detach")]
    pub on_term: Option<String>,
    /// Write the program's pid to this file, before it runs on; a second line has its start time and the boot
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
}

/// When the program gets a pid namespace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Namespace {
    /// When it cannot have its pids otherwise
    Auto,
    /// Never: restart with its own pids, or not at all
    Never,
    /// In any case
    Always,
}

/// Whether the program's clocks go on where those of the machine do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clocks {
    /// Where that is allowed
    Auto,
    /// In any case: restart so, or not at all
    Continue,
    /// No: they jump to those of this command
    Leave,
}

impl From<Clocks> for ClockWish {
    fn from(wish: Clocks) -> ClockWish {
        match wish {
            Clocks::Auto => ClockWish::Auto,
            Clocks::Continue => ClockWish::Continue,
            Clocks::Leave => ClockWish::Leave,
        }
    }
}

fn parse_pair(text: &str) -> std::result::Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("write OLD=NEW, two directories".to_owned()),
    }
}
