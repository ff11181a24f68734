//! Every way in which the runtime fails, and the exit code of each.
//!
//! Policy: a message is one line that says what failed, where, why and what to do about it. A variant exists for
//! each thing that a caller treats differently; the rest is [`Error::Io`] with its operation and place. A failure
//! never decides what happens to the program: it runs on whatever we return.

use std::io;
use std::path::PathBuf;

use ckpt_kernels::merkle;
use ckpt_store::StoreError;
use nix::errno::Errno;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// A ptrace request failed.
    #[error("{request} on thread {tid}: {source}")]
    Ptrace {
        /// The request's fault-point name.
        request: &'static str,
        /// Thread it was meant for.
        tid: i32,
        /// The kernel's answer.
        source: Errno,
    },

    /// A thread disappeared while it was being worked on.
    #[error("thread {tid} ended meanwhile")]
    ThreadGone {
        /// The thread.
        tid: i32,
    },

    /// The program ended before its checkpoint was complete.
    #[error("process {pid} does not exist, or ended meanwhile")]
    ProgramGone {
        /// The program.
        pid: i32,
    },

    /// A thread did not stop in time.
    #[error("thread {tid} did not stop within {timeout_ms} ms ({why}); the program runs on; try again")]
    StopTimeout {
        /// The thread.
        tid: i32,
        /// How long it was given.
        timeout_ms: u64,
        /// What it was doing.
        why: String,
    },

    /// Somebody else traces the program.
    #[error(
        "stopping process {pid}: process {tracer} is tracing it (a debugger, strace, or another checkpoint); end that first"
    )]
    Traced {
        /// The program.
        pid: i32,
        /// The thread that traces it.
        tracer: i32,
    },

    /// A system call that was made inside the program or the rebuilt process failed.
    #[error("{call} inside process {pid} ({purpose}): {source}")]
    RemoteCall {
        /// The process.
        pid: i32,
        /// Name of the system call.
        call: &'static str,
        /// What it was for.
        purpose: String,
        /// The kernel's answer.
        source: Errno,
    },

    /// A thread did not make a system call that it was told to make.
    #[error(
        "thread {tid} was to make system call {number} for us, but {instead}; the program has written over libckpt.so's \
         code or data, and cannot be checkpointed"
    )]
    Overwritten {
        /// The thread.
        tid: i32,
        /// Number of the system call.
        number: i64,
        /// The thing that it did.
        instead: String,
    },

    /// The program holds state that is not supported.
    #[error("{what} is not supported: {why}; {advice}")]
    Unsupported {
        /// The thing, by name and number.
        what: String,
        /// Why it cannot be captured or restored.
        why: String,
        /// What the user can do.
        advice: String,
    },

    /// Something is between two processes where it cannot be captured; a moment later it will have arrived.
    #[error("{what} is not supported: {why}; {advice}")]
    Unsettled {
        /// Where it is, by name and number.
        what: String,
        /// What is underway.
        why: String,
        /// What the user can do if it stays so.
        advice: String,
    },

    /// The host or the user's rights do not allow it.
    #[error("{what}: {why}; {advice}")]
    Environment {
        /// What was attempted.
        what: String,
        /// Why it is impossible here.
        why: String,
        /// What the user can do.
        advice: String,
    },

    /// The program cannot have its old ids where we are. In a pid namespace of its own it could.
    #[error("{what}: {why}; {advice}")]
    IdsNotToBeHad {
        /// What was attempted.
        what: String,
        /// Why it is impossible here.
        why: String,
        /// What the user can do.
        advice: String,
    },

    /// The first process of the program's pid namespace answered with an error of its own.
    #[error("{message}")]
    Inside {
        /// Its message.
        message: String,
        /// Its exit code.
        exit_code: u8,
    },

    /// A device refused or failed.
    #[error(transparent)]
    Device(#[from] ckpt_kernels::device::Error),

    /// libckpt.so was not found in the program.
    #[error("process {pid} does not have libckpt.so loaded; start it with LD_PRELOAD=libckpt.so or `ckpt run`")]
    NotPreloaded {
        /// The process.
        pid: i32,
    },

    /// A checkpoint's state record could not be understood.
    #[error("checkpoint {id}: the process state is damaged or from an unknown version: {why}")]
    BadImage {
        /// The checkpoint.
        id: u64,
        /// What is wrong with it.
        why: String,
    },

    /// Device code that the program loads could not be understood.
    #[error(
        "device code: {code}, byte {offset}: {why}; without it the variables are not known that the program has on \
         the device"
    )]
    DeviceCode {
        /// What the code is, and where in its image.
        code: String,
        /// Where in the code.
        offset: u64,
        /// What is wrong.
        why: String,
    },

    /// A difference finer than pages could not be found, or what is stored of one cannot be used.
    #[error("memory stored by --method tree: {0}")]
    Difference(#[from] merkle::Error),

    /// The command line asks for something that does not make sense.
    #[error("{0}")]
    Usage(String),

    /// The agent answered with an error of its own.
    #[error("{message}")]
    Agent {
        /// Its message.
        message: String,
        /// Its exit code.
        exit_code: u8,
    },

    /// An operation on a file, a socket or /proc failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Exit codes of the command line.
pub mod exit_code {
    /// Done.
    pub const DONE: u8 = 0;
    /// Failed.
    pub const FAILED: u8 = 1;
    /// The command line was wrong.
    pub const USAGE: u8 = 2;
    /// The checkpoint is corrupt.
    pub const CORRUPT: u8 = 3;
    /// The program holds state that is not supported.
    pub const UNSUPPORTED: u8 = 4;
    /// Permission, kernel or disk.
    pub const ENVIRONMENT: u8 = 5;
    /// Under `run` and `restart`: SIGTERM has ended the program at a checkpoint, or before a restart was complete. Batch systems
    /// take it for "run me again".
    pub const SAVED: u8 = 85;
    /// Under `run` and `restart` our own codes are these plus this, so that the program's own pass through.
    pub const OFFSET_BESIDE_PROGRAM: u8 = 120;
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Error {
        Error::Io { operation, path: path.into(), source: source.into() }
    }

    /// An [`Error::Unsettled`].
    pub fn unsettled(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Unsettled { what: what.into(), why: why.into(), advice: advice.into() }
    }

    /// An [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Unsupported { what: what.into(), why: why.into(), advice: advice.into() }
    }

    /// An [`Error::Environment`].
    pub fn environment(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Environment { what: what.into(), why: why.into(), advice: advice.into() }
    }

    /// An [`Error::IdsNotToBeHad`].
    pub fn ids_not_to_be_had(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::IdsNotToBeHad { what: what.into(), why: why.into(), advice: advice.into() }
    }

    /// What failed and why, without what to do about it where that is a part of its own.
    pub fn reason(&self) -> String {
        match self {
            Error::IdsNotToBeHad { what, why, .. } | Error::Environment { what, why, .. } => format!("{what}: {why}"),
            other => other.to_string(),
        }
    }

    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Store(StoreError::Corrupt { .. }) | Error::BadImage { .. } => exit_code::CORRUPT,
            Error::Difference(merkle::Error::Corrupt { .. } | merkle::Error::NoSuchRegion { .. }) => exit_code::CORRUPT,
            Error::Store(
                StoreError::Io { .. }
                | StoreError::CannotCreate { .. }
                | StoreError::NoRoom { .. }
                | StoreError::ForeignOwner { .. }
                | StoreError::KeyNeeded { .. }
                | StoreError::WrongKey { .. }
                | StoreError::NotEncrypted { .. }
                | StoreError::Unsuitable { .. },
            ) => exit_code::ENVIRONMENT,
            Error::Unsupported { .. }
            | Error::Unsettled { .. }
            | Error::Overwritten { .. }
            | Error::DeviceCode { .. }
            | Error::Store(StoreError::NotReclaimable { .. }) => exit_code::UNSUPPORTED,
            Error::Environment { .. }
            | Error::IdsNotToBeHad { .. }
            | Error::NotPreloaded { .. }
            | Error::Traced { .. } => exit_code::ENVIRONMENT,
            Error::Ptrace { source: Errno::EPERM, .. } => exit_code::ENVIRONMENT,
            Error::Usage(_) => exit_code::USAGE,
            Error::Agent { exit_code, .. } | Error::Inside { exit_code, .. } => *exit_code,
            _ => exit_code::FAILED,
        }
    }
}
