//! What the half-built processes do by themselves, before they are driven from outside.
//!
//! An ancestor opens all files of the job, makes those that have no parent in it, and ends; each makes its own children before
//! it gives the files the numbers that they have in it, so what several processes have open is one open file again.
//!
//! Everything here is a property of the process that survives the exchange of its memory: descriptors, session,
//! working directory, signal actions (addresses are just numbers). It runs in a fork of the restarter, made without
//! the C library's knowledge, so it does not allocate, log, take a lock or panic: the plan holds all the room it
//! needs, and what goes wrong is told in sixteen bytes, which the restarter turns into words.
//!
//! All signals are blocked from before the fork, so nothing can run a handler in between.

mod calls;
mod descendants;
mod descriptors;
mod report;
mod turns;

use std::ffi::CString;
use std::os::fd::RawFd;

use nix::errno::Errno;

use super::ascending::{self, Ids};
use super::open_files::OpenFiles;
use super::outside::{Outlet, Outside};
use super::sockets::Sockets;
use crate::image::{Birth, Births, Born, JobImage, LostLeader, Objects, OpenFile, ProcessImage, Role, Way};
use crate::restore::mapping_plan::MappingPlan;
use calls::KernelAction;
pub use calls::{clone_with_any_id, end_with, leave, own_pid};
use report::{At, Failed};
pub use report::{REPORT_BYTES, Report, Step, Verdict};
pub use turns::HAS_OTHER_ID;
use turns::Turns;

/// Signals, 1 to 64.
const SIGNALS: usize = 64;
/// Numbers beyond those of the plan that are needed at one time (a file being opened).
const SPARE_NUMBERS: i32 = 16;

/// What the children are told, and room for what they find out. Each has a copy.
pub struct Plan<'a> {
    objects: &'a Objects,
    members: Vec<Member<'a>>,
    lost_leaders: &'a [LostLeader],
    /// Who makes whom.
    births: Births,
    /// All ids of the job, ascending.
    ids: Vec<i32>,
    /// Which of the members this process is; the first one in the ancestor.
    own: usize,
    /// Who will trace all of them.
    restarter: i32,
    /// The restarter's end of the channel, to be closed.
    parent_end: RawFd,
    /// Descriptors to keep; number `i` is moved to `base + i`. First the channel, then the standard streams.
    kept: Vec<RawFd>,
    /// Place in `kept` of the first master of a pseudo-terminal.
    first_master: i32,
    /// Which of the files for the mappings is which of the job's unlinked files.
    unlinked: &'a [usize],
    /// Which of them is which of the job's files, being an io_uring instance.
    rings: &'a [(usize, usize)],
    sockets: &'a Sockets,
    /// Place in `kept` of the first of them.
    first_socket: i32,
    opened: &'a OpenFiles,
    /// Place in `kept` of the first of those.
    first_opened: i32,
    /// Above every number of the program and every number in `kept`.
    base: RawFd,
    files: descriptors::Workspace,
    /// The end of a pipe by which the process that is born next is to say that it uses their common table no more; -1 if it has
    /// one for itself.
    word: RawFd,
    /// Whether the restarter hands over descriptors when all processes are there.
    is_handed_descriptors: bool,
    /// Whose turn it is to make the next id, where ids cannot be chosen.
    turns: Option<Turns>,
    /// Whether this process makes its threads itself then, and how many it has made.
    makes_threads: bool,
    threads_made: usize,
    /// Processes that make orphans and end, for this process to reap. There is room for all.
    makers: Vec<i32>,
}

/// What one process is told.
struct Member<'a> {
    image: &'a ProcessImage,
    /// What descriptors lead to that led outside.
    outlets: &'a [Option<Outlet>],
    role: Role,
    oom_score_adj: String,
    actions: Vec<KernelAction>,
    may_use_tiles: bool,
    /// Names of its children that have ended.
    ended_names: Vec<CString>,
}

impl<'a> Member<'a> {
    fn new(job: &'a JobImage, index: usize, outside: &'a Outside) -> crate::error::Result<Member<'a>> {
        let image = &job.processes[index];
        let mut actions = vec![KernelAction::default(); SIGNALS];
        for action in &image.signal_actions {
            if let Some(slot) = actions.get_mut(action.signal as usize - 1) {
                *slot = KernelAction::from(action);
            }
        }
        let ended = image.family.ended_children.iter();
        Ok(Member {
            image,
            outlets: &outside.outlets[index],
            role: if index == 0 { outside.role } else { image.family.role(image.pid) },
            oom_score_adj: image.oom_score_adj.to_string(),
            actions,
            may_use_tiles: super::tiles::may_be_used(image),
            ended_names: ended.map(|ended| super::paths::c_path(&ended.name)).collect::<crate::error::Result<_>>()?,
        })
    }
}

/// Places in `kept`.
pub const CHANNEL: i32 = 0;
/// The first standard stream in `kept`.
pub const STANDARD: i32 = 1;
/// The first of the files for the mappings in `kept`.
pub const FILES: i32 = STANDARD + 3;

impl<'a> Plan<'a> {
    /// A plan for all processes of `job`. `kept` begins with the channel and the three standard streams; what follows is for
    /// the mappings, then the sockets, then files with paths, and then the masters of the job's pseudo-terminals.
    pub fn new(
        job: &'a JobImage,
        outside: &'a Outside,
        parent_end: RawFd,
        kept: Vec<RawFd>,
        (mappings, opened, sockets): (&'a MappingPlan, &'a OpenFiles, &'a Sockets),
        by: Ids,
    ) -> crate::error::Result<Plan<'a>> {
        let mut births = births_of(job, outside)?;
        let turns = match by {
            Ids::Chosen => None,
            Ids::Reached { search } => {
                let order = ascending::order(job, &mut births)?;
                ascending::check_ahead(&order.ids, search)?;
                Some(Turns::new(order, search)?)
            }
        };
        let members = (0..job.processes.len()).map(|index| Member::new(job, index, outside));
        let mut ids: Vec<i32> = job.ids().collect();
        ids.sort_unstable();
        Ok(Plan {
            objects: &job.objects,
            members: members.collect::<crate::error::Result<_>>()?,
            lost_leaders: &job.lost_leaders,
            births,
            ids,
            own: 0,
            restarter: std::process::id() as i32,
            parent_end,
            base: base(job, &kept),
            first_master: (kept.len() - job.objects.pseudo_terminals.len()) as i32,
            kept,
            unlinked: &mappings.unlinked,
            rings: &mappings.rings,
            sockets,
            first_socket: FILES + mappings.files.len() as i32,
            opened,
            first_opened: FILES + (mappings.files.len() + sockets.numbers().len()) as i32,
            files: descriptors::Workspace::new(job),
            word: -1,
            is_handed_descriptors: job.objects.files.iter().any(OpenFile::is_handed_over),
            makers: Vec::with_capacity(turns.as_ref().map_or(0, Turns::makers)),
            turns,
            makes_threads: false,
            threads_made: 0,
        })
    }

    /// Whose turn it is to make the next id, where ids cannot be chosen.
    pub fn turns(&self) -> Option<&Turns> {
        self.turns.as_ref()
    }

    /// Whether the ancestor would make the first process and no other, which then needs no ancestor.
    pub fn has_the_first_alone(&self) -> bool {
        self.births.of_ancestor == [Birth { born: Born::Member(0), way: Way::Sibling }]
    }

    /// Has this process, which becomes the first of the job, make those threads that come before all other ids of the job, and then the
    /// kernel look for the next id at a free one, for the process that is to trace all of them.
    ///
    /// # Errors
    /// `ENOTUNIQ` when no id is free before those of other processes; and as of [`Turns::reach`].
    pub fn leave_room_for_tracer(&mut self) -> nix::Result<()> {
        let tids: Vec<i32> = self.members[0].image.threads.iter().map(|thread| thread.tid).collect();
        let Some(turns) = &self.turns else { return Ok(()) };
        let free = turns.free_behind(&tids).ok_or(Errno::ENOTUNIQ)?;
        self.makes_threads = true;
        descendants::make_threads(self, -1, free).map_err(Failed::errno)?;
        self.turns.as_ref().map_or(Ok(()), |turns| turns.reach(free))
    }

    /// Another process will trace all of them.
    pub fn set_restarter(&mut self, pid: i32) {
        self.restarter = pid;
    }

    /// The number that place `place` of `kept` has in the children.
    pub fn number_of(&self, place: i32) -> RawFd {
        self.base + place
    }

    /// The number of the master of a pseudo-terminal of the job.
    pub fn master(&self, terminal: usize) -> RawFd {
        self.number_of(self.first_master + terminal as i32)
    }

    /// The number of the file that is `place` of those with paths.
    fn opened_number(&self, place: usize) -> RawFd {
        self.number_of(self.first_opened + place as i32)
    }

    fn kept_end(&self) -> RawFd {
        self.base + self.kept.len() as i32
    }

    /// What this process is told.
    fn own(&self) -> &Member<'a> {
        &self.members[self.own]
    }
}

fn births_of(job: &JobImage, outside: &Outside) -> crate::error::Result<Births> {
    job.births(outside.role == Role::SessionLeader).map_err(|unborn| {
        let what = format!("process {}", job.processes[unborn].pid);
        let why = "it cannot have its parent and its session when the first process leads none";
        crate::error::Error::unsupported(what, why, "restart it away from a terminal, with --detach")
    })
}

/// The first number for what is kept: above those of all processes and above where the kept ones come from, so that
/// moving one never lands on another.
fn base(job: &JobImage, kept: &[RawFd]) -> RawFd {
    let descriptors = job.processes.iter().flat_map(|process| &process.descriptors);
    let used = descriptors.map(|descriptor| descriptor.number);
    used.chain(kept.iter().copied()).max().unwrap_or(2).saturating_add(1)
}

/// The ancestor's life: waits for the word to start, opens the files, makes processes and ends. Does not return, nor do those
/// that it makes: they work, report, and wait to be stopped. The C calling convention turns a panic into an abort instead of
/// a second copy of the restarter.
#[allow(improper_ctypes_definitions, reason = "called from Rust only")]
pub extern "C" fn run(plan: &mut Plan) -> ! {
    run_as(plan, descendants::make_all)
}

/// The same of the first process where no ancestor makes it.
#[allow(improper_ctypes_definitions, reason = "called from Rust only")]
pub extern "C" fn run_first(plan: &mut Plan) -> ! {
    run_as(plan, |plan, channel| descendants::begin_first(plan, channel))
}

fn run_as(plan: &mut Plan, live: impl FnOnce(&mut Plan, RawFd) -> Result<(), Failed>) -> ! {
    calls::close(plan.parent_end);
    if !calls::wait_for_byte(plan.kept[0]) {
        calls::exit();
    }
    let mut channel = plan.kept[0];
    let made = move_descriptors(plan).and_then(|()| {
        channel = plan.number_of(CHANNEL);
        descriptors::make(plan)?;
        live(plan, channel)
    });
    if let Err(failed) = made {
        calls::send(channel, &Report::failed(plan.own, failed).to_bytes());
        calls::exit();
    }
    calls::leave(0)
}

/// The life of a process of the job, from where it has its place in a session.
fn live(plan: &mut Plan, channel: RawFd, word: RawFd, begun: Result<(), Failed>) -> ! {
    calls::allow_tracer(plan.restarter);
    let prepared = begun.and_then(|()| match plan.own().image.family.shares_descriptors {
        true => prepare_beside_parent(plan, channel, word),
        false => prepare(plan, channel),
    });
    let report = match prepared {
        Ok(()) => Report::done(plan.own),
        Err(failed) => Report::failed(plan.own, failed),
    };
    calls::send(channel, &report.to_bytes());
    // The restarter stops this process here. If the other end is closed before, it is gone, and so are we.
    calls::wait_for_hangup(channel);
    calls::exit()
}

fn prepare(plan: &mut Plan, channel: RawFd) -> Result<(), Failed> {
    descriptors::take_control(plan)?;
    descendants::make(plan, channel)?;
    let image = plan.own().image;
    calls::umask(image.umask);
    calls::take_ordinary_personality();
    descriptors::give_numbers(plan)?;
    if plan.is_handed_descriptors {
        calls::send(channel, &Report::ready(plan.own).to_bytes());
        descriptors::receive(plan)?;
    }
    enter_directory(plan)?;
    descriptors::complete(plan)?;
    settle(plan.own())
}

/// The same of one that has its descriptors in common with its parent, which gives them their numbers when it has heard the word.
/// Until then the parent does nothing.
fn prepare_beside_parent(plan: &mut Plan, channel: RawFd, word: RawFd) -> Result<(), Failed> {
    descriptors::take_control(plan)?;
    descendants::make(plan, channel)?;
    calls::umask(plan.own().image.umask);
    calls::take_ordinary_personality();
    enter_directory(plan)?;
    settle(plan.own())?;
    calls::write_all(word, b"w").at(Step::Child, 0)?;
    if plan.is_handed_descriptors {
        calls::send(channel, &Report::ready(plan.own).to_bytes());
        // Its parent has got them as well: these go with the packet.
        calls::wait_for_byte(channel);
    }
    Ok(())
}

fn enter_directory(plan: &Plan) -> Result<(), Failed> {
    let directory = plan.opened.place_of_directory(plan.own).map(|place| plan.opened_number(place));
    calls::enter(directory.unwrap_or(-1)).at(Step::WorkingDirectory, 0)
}

fn settle(own: &Member<'_>) -> Result<(), Failed> {
    let image = own.image;
    calls::write_file(c"/proc/self/oom_score_adj", own.oom_score_adj.as_bytes()).at(Step::OomScore, 0)?;
    if image.no_new_privs {
        calls::set_no_new_privs().at(Step::NoNewPrivs, 0)?;
    }
    if own.may_use_tiles {
        calls::request_tiles().at(Step::Tiles, 0)?;
    }
    set_signal_actions(&own.actions)
}

/// Leaves open exactly what is kept, at its new numbers.
fn move_descriptors(plan: &Plan) -> Result<(), Failed> {
    let needed = plan.kept_end() + plan.files.numbers_needed() as i32 + SPARE_NUMBERS;
    calls::allow_descriptors(needed as u64).at(Step::DescriptorLimit, needed as u32)?;
    for (place, &number) in plan.kept.iter().enumerate() {
        calls::duplicate_to(number, plan.number_of(place as i32), true).at(Step::Keep, place as u32)?;
    }
    calls::close_range(0, plan.base as u32 - 1).at(Step::Keep, 0)?;
    calls::close_range(plan.kept_end() as u32, u32::MAX).at(Step::Keep, 0)
}

fn take_role(role: Role) -> Result<(), Errno> {
    match role {
        Role::SessionLeader => calls::lead_session(),
        Role::GroupLeader => calls::lead_group(),
        Role::Member => Ok(()),
    }
}

fn set_signal_actions(actions: &[KernelAction]) -> Result<(), Failed> {
    for (signal, action) in (1..).zip(actions) {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            calls::set_action(signal, action).at(Step::SignalAction, signal as u32)?;
        }
    }
    Ok(())
}
