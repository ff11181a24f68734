//! What descriptors lead to that led outside the job: terminals, and pipes and sockets on 0, 1 and 2.
//!
//! They become the restarter's own standard streams, each number its own: in a shell 0, 1 and 2 are usually one open
//! file description, and after a restart into a pipe they must not all be the restarter's input. `--stdio` chooses
//! otherwise. Pipes above 2 lead nowhere. All of it is decided here, before the process is made; [`super::child`] carries it out.

mod ignored_signals;
mod inherited;
mod lost_pipes;
mod outlets;
mod streams;
mod terminal;

pub use outlets::Outlet;
pub use terminal::Regained;

use std::fs::File;
use std::sync::Arc;

use crate::error::Result;
use crate::image::{JobImage, Role};
use crate::proc::task::FIRST_PROCESS;
use streams::Streams;

/// What becomes of the program's standard streams (`--stdio`).
#[derive(Clone, Debug, Default)]
pub enum Stdio {
    /// What led outside becomes the restarter's streams; files are opened again.
    #[default]
    Outside,
    /// 0, 1 and 2 become the restarter's streams, also where they were files.
    Inherit,
    /// What led outside is written to this file, and nothing is read.
    File(Arc<File>),
}

impl Stdio {
    /// Makes `job` one of a program that was started as this restart is: its own streams where that is wanted, and
    /// signals ignored that the restarter was told to ignore.
    pub fn apply_to(&self, job: &mut JobImage) {
        if matches!(self, Stdio::Inherit) {
            inherited::inherit(job);
        }
        job.processes.iter_mut().for_each(ignored_signals::keep);
    }

    /// Says what of `job` led outside and leads nowhere now.
    pub fn name_lost(job: &JobImage) {
        lost_pipes::name(job);
    }
}

/// What is to be done in each process.
#[derive(Debug)]
pub struct Outside {
    streams: Streams,
    /// By process and place in `ProcessImage::descriptors`; none for those that lead to something of the job.
    pub outlets: Vec<Vec<Option<Outlet>>>,
    /// What the program regains of its terminal.
    pub regained: Regained,
    /// The place that its first process takes in a session. A program that led the session of its terminal takes part in the
    /// restarter's, which is the terminal's by now: as the leader of a session it would have none, and ^C, ^Z and
    /// `/dev/tty` would be lost to it.
    pub role: Role,
}

impl Outside {
    /// For a restart of `job` by this process.
    pub fn of(job: &JobImage, stdio: &Stdio) -> Result<Outside> {
        let streams = match stdio {
            Stdio::Outside | Stdio::Inherit => Streams::of_the_restarter()?,
            Stdio::File(file) => Streams::to_file(Arc::clone(file))?,
        };
        let outlets: Vec<_> =
            job.processes.iter().map(|process| outlets::of(process, &job.objects, &streams)).collect();
        let image = job.root();
        let regained = Regained::by(image, &streams, &outlets[0]);
        let keeps_its_terminal = regained.controls && image.terminal.as_ref().is_some_and(|it| it.controlling);
        let role = match image.family.role(image.pid) {
            // We become it, and lead ours.
            Role::SessionLeader if image.pid == FIRST_PROCESS && leads_session() => Role::Member,
            Role::SessionLeader if keeps_its_terminal => Role::GroupLeader,
            role => role,
        };
        Ok(Outside { streams, outlets, regained, role })
    }

    /// The numbers in this process of the three streams.
    pub fn numbers(&self) -> [i32; 3] {
        self.streams.numbers
    }
}

/// Whether this process leads its session.
fn leads_session() -> bool {
    nix::unistd::getsid(None).is_ok_and(|session| session == nix::unistd::getpid())
}
