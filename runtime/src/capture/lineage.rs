//! What is remembered between two checkpoints of one job.

use std::collections::HashMap;
use std::os::fd::AsFd;

use ckpt_store::Attempt;
use ckpt_wire::{Confinement, Control};

use super::ahead::Costs;
use super::data::remembered::Remembered;
use super::devices::known::Known;
use super::guest::Guest;
use super::kin::Acquaintance;
use super::plan::Base;
use super::program::Program;
use super::reuse::Reuse;
use super::threads::Captured;
use super::tracking::Tracker;
use super::tree::{Options as TreeOptions, Series};
use super::unseen::Unseen;
use super::waiting_calls::WaitingCalls;
use super::{files, lazy_memory};
use crate::error::Result;
use crate::mapped_files::{MappedFiles, StoredFiles};
use crate::proc::task;
use crate::ptrace::Stopped;

/// What is remembered between two checkpoints of one job.
#[derive(Default)]
pub struct Lineage {
    pub(super) processes: ProcessLineages,
    /// Files that are in the last sealed checkpoint.
    pub(super) files: files::Known,
    /// Memory of the first process that is stored finer than a page.
    pub(super) series: Option<Series>,
    /// What checkpoints of data alone remember.
    pub(super) data: Remembered,
    /// Bytes that copies of pages may take, which are made before a stop.
    pub(super) copies_bytes: u64,
    /// How much of the last checkpoint the next one may build on.
    pub(super) reuse: Reuse,
    /// Memory that comes after a restart has come.
    pub(super) memory_is_there: bool,
    /// What is known of devices.
    pub(super) devices: Known,
    /// Files whose pages can be stored behind the seal of the checkpoint that is being taken.
    pub(super) mapped: MappedFiles,
    /// The checkpoint that is sealed without these.
    pub(super) unstored: Option<Unstored>,
}

/// A checkpoint that is sealed, and lacks pages of files.
#[derive(Debug)]
pub struct Unstored {
    /// Its number.
    pub id: u64,
    /// What is to write them: it was begun before the seal.
    pub completion: Attempt,
    /// The files that have them.
    pub files: MappedFiles,
}

/// What is remembered of each process.
#[derive(Default)]
pub struct ProcessLineages {
    /// What confined the job's first process when it began, by its own record: that of another may be forged.
    pub(super) confinement: Option<Confinement>,
    /// Which other processes are of the job, and which are not.
    pub(super) kin: Acquaintance,
    /// Full checkpoints read all of their memory.
    pub(super) are_read_whole: bool,
    pub(super) first: ProcessLineage,
    /// The others by their pids, and which programs they were.
    pub(super) others: HashMap<i32, (Identity, ProcessLineage)>,
}

/// When a process has begun, and the random number of the libckpt.so in it: another one after an exec.
type Identity = (u64, u64);

/// What is remembered of one process.
#[derive(Default)]
pub struct ProcessLineage {
    /// What the last sealed checkpoint holds of its memory, as far as the next one may build on it.
    pub(super) base: Base,
    pub(super) tracker: Option<Tracker>,
    pub(super) tracking_was_tried: bool,
    pub(super) unseen: Unseen,
    /// The calls that its threads were stopped in.
    pub(super) calls: WaitingCalls,
    /// What it takes to make its memory hold still.
    pub(super) costs: Costs,
}

impl Lineage {
    /// Waits until all memory of a program is there that was restarted lazily. Only once: no later life has this lineage. In its
    /// first life, whoever handles its page faults is none of ours, and there is nothing to wait for.
    pub(super) fn wait_for_memory(&mut self, program: &Program, control: &Control) {
        if !std::mem::replace(&mut self.memory_is_there, true) && control.generation > 0 {
            lazy_memory::wait_until_there(program.pid);
        }
    }

    /// The threads of the first process were stopped before, in these calls.
    pub fn knowing(mut self, calls: WaitingCalls) -> Lineage {
        self.processes.first.calls = calls;
        self
    }

    /// Who is of the job is known from before.
    pub fn acquainted(mut self, kin: Acquaintance) -> Lineage {
        self.acquaint(kin);
        self
    }

    /// The same.
    pub fn acquaint(&mut self, kin: Acquaintance) {
        self.processes.kin = kin;
    }

    /// What is known of who is of the job, for another lineage.
    pub fn take_acquaintance(&mut self) -> Acquaintance {
        std::mem::take(&mut self.processes.kin)
    }

    /// Copies of pages that are made before a stop may take so many bytes; without this there are none.
    pub fn copying_ahead(mut self, bytes: u64) -> Lineage {
        self.copies_bytes = bytes;
        self
    }

    /// A checkpoint has been sealed: what the next one may build on of the memory of each process, the first one first, and of
    /// files. Of processes that are not in it nothing is remembered.
    pub(super) fn sealed(&mut self, processes: impl Iterator<Item = (i32, Base)>, files: files::Known) {
        self.processes.sealed(processes);
        self.files = files;
        if let Some(series) = &mut self.series {
            series.sealed();
        }
        self.devices.sealed();
    }

    /// The last checkpoint, if it is sealed without pages of files. Its taker is to store them, by [`crate::mapped_files::complete`].
    pub fn take_unstored(&mut self) -> Option<Unstored> {
        self.unstored.take()
    }

    /// So much of files has been stored meanwhile: the next checkpoint can build on it.
    pub fn know_stored(&mut self, files: &StoredFiles) {
        self.processes.all().flat_map(|known| known.base.values_mut()).for_each(|known| known.know_stored(files));
    }

    /// From the next checkpoint on, large memory is stored finer than a page, or not.
    ///
    /// # Errors
    /// For a length of chunks that there cannot be.
    pub fn store_finer(&mut self, tree: Option<TreeOptions>) -> Result<()> {
        self.series = tree.map(Series::new).transpose()?;
        Ok(())
    }

    /// From the next full checkpoint on, so much is made of those before it.
    pub fn reuse(&mut self, reuse: Reuse) {
        self.reuse = reuse;
        self.processes.are_read_whole = !reuse.keeps_unchanged;
        if !reuse.keeps_unchanged {
            self.processes.all().for_each(ProcessLineage::end_tracking);
        }
    }

    /// A full checkpoint is going to be taken: forgets what it is not to build on.
    pub(super) fn begin(&mut self) {
        if !self.reuse.keeps_unchanged {
            self.processes.all().for_each(|known| known.base = Base::default());
            self.files = files::Known::default();
            self.devices.forget();
        }
    }
}

impl ProcessLineages {
    /// What is remembered of process `pid`; nothing if it is, or executes, another program by now.
    pub(super) fn of(&mut self, pid: i32, control: &Control, is_first: bool) -> &mut ProcessLineage {
        if is_first {
            return &mut self.first;
        }
        let now = (task::start_time(pid).unwrap_or_default(), control.job);
        let (then, known) = self.others.entry(pid).or_default();
        if *then != now {
            (*then, *known) = (now, ProcessLineage::default());
        }
        known
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut ProcessLineage> {
        std::iter::once(&mut self.first).chain(self.others.values_mut().map(|(_, known)| known))
    }

    /// What is remembered of process `pid`, if anything is. It may be another process by now, or execute another program.
    pub(super) fn known(&mut self, pid: i32, root: i32) -> Option<&mut ProcessLineage> {
        if pid == root { Some(&mut self.first) } else { self.others.get_mut(&pid).map(|(_, known)| known) }
    }

    pub(super) fn sealed(&mut self, mut processes: impl Iterator<Item = (i32, Base)>) {
        if let Some((_, base)) = processes.next() {
            self.first.base = base;
        }
        let mut bases: HashMap<i32, Base> = processes.collect();
        self.others.retain(|pid, (_, known)| match bases.remove(pid) {
            Some(base) => {
                known.base = base;
                true
            }
            None => false,
        });
    }
}

impl ProcessLineage {
    /// Has the kernel note from now on what the program writes, if it can. Only once in a lineage; `main` is the main thread,
    /// which goes on by `way`.
    pub(super) fn begin_tracking(
        &mut self,
        program: &Program,
        control: &Control,
        main: &mut Stopped,
        way: &Captured,
    ) -> Result<()> {
        if !std::mem::replace(&mut self.tracking_was_tried, true) {
            let mut guest = Guest::enter(program.pid, main, control, way.home, &way.reissued)?;
            self.tracker = Tracker::create(&mut guest, control, program.pidfd.as_fd())?;
            guest.leave()?;
        }
        Ok(())
    }

    /// Has the kernel note no longer what the program writes, which costs the program something, and forgets what it has
    /// noted. It can be begun again.
    pub(super) fn end_tracking(&mut self) {
        (self.tracker, self.tracking_was_tried, self.unseen) = (None, false, Unseen::default());
    }
}
