//! The filler: brings pages that are waited for at once, and all others one window after the other.

use std::ops::Range as Span;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};

use ckpt_store::{PAGE_BYTES, PageKey, Store, on_own_threads};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::link::{Link, Word};
use super::pages::Pages;
use super::plan::{Plan, Range};
use super::space::Space;
use super::userfaultfd::Userfaultfd;
use crate::error::{Error, Result};
use crate::image::JobImage;
use crate::proc::task;
use crate::restore::lazy::unfinished::{Unfinished, end_all, leave};

/// Pages brought one after the other by all cores: 8 MiB. A page that is waited for comes behind them at worst.
const WINDOW_PAGES: usize = 2048;
/// Pages brought for one that is waited for: 64 KiB.
const FAULT_PAGES: u64 = 16;

/// The life of the filler. It ends with 0 when nothing is missing any more.
pub fn live(job: &JobImage, plan: Plan, store: &Store, restarter: Link, guard: Link) -> ! {
    let filler = match Filler::of(plan, store) {
        Ok(filler) => Arc::new(filler),
        Err(error) => refuse(&restarter, &error.to_string()),
    };
    let background = filler.clone();
    let windows = std::thread::Builder::new().spawn(move || background.bring_all());
    if let Err(error) = windows {
        refuse(&restarter, &error.to_string());
    }
    let mut programs = Vec::new();
    // What is waited for is not to wait for threads that bring windows: one thread of its own.
    let served = on_own_threads(1, || {
        filler.has_threads.wait();
        if let Some(error) = filler.outcome().take() {
            refuse(&restarter, &error.to_string());
        }
        if let Err(why) = taken_ids(job) {
            refuse(&restarter, &why);
        }
        if restarter.say(&Word::Ready, &[]).is_err() {
            leave(0)
        }
        filler.serve(&mut programs, Some(restarter), &guard)
    });
    let Err(error) = served.map_err(Error::from).flatten() else { leave(0) };
    if let Some(program) = programs.first() {
        crate::say!("process {} is ended, because its memory cannot be brought: {error}", program.pid);
    }
    end_all(&programs);
    leave(1)
}

fn refuse(restarter: &Link, why: &str) -> ! {
    // Nobody there to hear it needs no answer.
    let _ = restarter.say(&Word::Refused(why.to_owned()), &[]);
    leave(0)
}

/// Refuses if a thread of this process has an id that the job needs.
fn taken_ids(job: &JobImage) -> std::result::Result<(), String> {
    let own = task::threads(std::process::id() as i32).map_err(|error| error.to_string())?;
    match own.iter().find(|own| job.ids().any(|id| id == **own)) {
        Some(id) => Err(format!("the id {id} of the job was in use")),
        None => Ok(()),
    }
}

struct Filler {
    store: Store,
    ranges: Vec<Range>,
    /// All memory in the order in which it is brought: range, and pages of it.
    windows: Vec<(usize, Span<usize>)>,
    spaces: Mutex<Vec<Arc<Space>>>,
    /// There is another space, or there will be none any more.
    changed: Condvar,
    is_complete: AtomicBool,
    /// Passed by both when the threads that bring windows are there.
    has_threads: Barrier,
    /// Readable when `bring_all` has ended.
    ended: EventFd,
    outcome: Mutex<Option<Error>>,
}

impl Filler {
    fn of(plan: Plan, store: &Store) -> Result<Filler> {
        let ranges = plan.ranges;
        let spans =
            |pages: usize| (0..pages).step_by(WINDOW_PAGES).map(move |first| first..pages.min(first + WINDOW_PAGES));
        let windows = ranges.iter().enumerate();
        let windows = windows.flat_map(|(number, range)| spans(range.pages()).map(move |span| (number, span)));
        let windows: Vec<_> = windows.collect();
        let ended = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)
            .map_err(|source| Error::io("make", "an eventfd", source))?;
        Ok(Filler {
            windows,
            store: store.clone(),
            ranges,
            spaces: Mutex::default(),
            changed: Condvar::new(),
            is_complete: AtomicBool::new(false),
            has_threads: Barrier::new(2),
            ended,
            outcome: Mutex::default(),
        })
    }

    fn spaces(&self) -> MutexGuard<'_, Vec<Arc<Space>>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Error>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages of a window.
    fn keys_of(&self, window: usize) -> Vec<PageKey> {
        let (range, span) = &self.windows[window];
        self.ranges[*range].keys(span.clone())
    }

    /// Brings everything to every space, and says so.
    fn bring_all(&self) {
        let brought = on_own_threads(0, || {
            // What a page lies in stays readable when it is removed meanwhile. A page that is nowhere is found out here.
            let held = self.store.hold_packs_of(self.windows.len(), |window| self.keys_of(window));
            let can_begin = held.is_ok();
            *self.outcome() = held.err().map(Error::from);
            self.has_threads.wait();
            if can_begin { self.try_bring_all() } else { Ok(()) }
        });
        // Without threads there is nothing to be served, and nobody has been told that there is.
        let Ok(brought) = brought else { leave(0) };
        if let Err(error) = brought {
            *self.outcome() = Some(error);
        }
        // Of a counter that nobody has added to before it cannot fail.
        let _ = self.ended.write(1);
    }

    fn try_bring_all(&self) -> Result<()> {
        while let Some(space) = self.next_unfinished() {
            let (range, span) = &self.windows[space.done()];
            if space.done() + 1 < self.windows.len() {
                self.store.will_be_read(&self.keys_of(space.done() + 1));
            }
            self.store.take_pages(&self.keys_of(space.done()), &|first, content: &[u8]| {
                space.put(*range, span.start + first, content)
            })?;
            space.count();
        }
        Ok(())
    }

    /// A space that misses something; waits for one. `None` when there is none, and will be none.
    fn next_unfinished(&self) -> Option<Arc<Space>> {
        let mut spaces = self.spaces();
        loop {
            let misses = |space: &&Arc<Space>| !space.is_gone() && space.done() < self.windows.len();
            if let Some(space) = spaces.iter().find(misses) {
                return Some(space.clone());
            }
            if self.is_complete.load(Ordering::SeqCst) {
                return None;
            }
            spaces = self.changed.wait(spaces).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers whoever waits, until everything has been brought. `programs` gets those whose memory that is.
    fn serve(&self, programs: &mut Vec<Unfinished>, mut restarter: Option<Link>, guard: &Link) -> Result<()> {
        loop {
            let spaces: Vec<_> = self.spaces().iter().filter(|space| !space.is_gone()).cloned().collect();
            let mut waits =
                vec![PollFd::new(guard.as_fd(), PollFlags::POLLIN), PollFd::new(self.ended.as_fd(), PollFlags::POLLIN)];
            waits.extend(spaces.iter().map(|space| PollFd::new(space.as_fd(), PollFlags::POLLIN)));
            waits.extend(restarter.iter().map(|link| PollFd::new(link.as_fd(), PollFlags::POLLIN)));
            match poll(&mut waits, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(source) => return Err(Error::io("wait for", "faults", source)),
            }
            let spoke: Vec<bool> = waits.iter().map(|wait| wait.any().unwrap_or(true)).collect();
            drop(waits);
            if spoke[0] {
                return Err(Error::io("hold", "memory that is missing: its guard has been ended", Errno::EOWNERDEAD));
            }
            if spoke[1] {
                return match self.outcome().take() {
                    Some(error) => Err(error),
                    None => Ok(()),
                };
            }
            for (space, _) in spaces.iter().zip(&spoke[2..]).filter(|(_, spoke)| **spoke) {
                self.answer(space, guard)?;
            }
            if spoke.get(2 + spaces.len()) == Some(&true) {
                self.listen(programs, &mut restarter)?;
            }
        }
    }

    /// What the restarter says. When it has gone before all was said, there is no program.
    fn listen(&self, programs: &mut Vec<Unfinished>, restarter: &mut Option<Link>) -> Result<()> {
        let Some(link) = restarter else { return Ok(()) };
        match link.listen()? {
            Some((Word::Process { number, pid }, descriptors)) => {
                let none = |_| Error::io("take over", "a userfaultfd", Errno::EBADMSG);
                let [userfaultfd, pidfd] = <[OwnedFd; 2]>::try_from(descriptors).map_err(none)?;
                let mut pages = Pages::default();
                for (range, at) in self.ranges.iter().enumerate().filter(|(_, range)| range.process == number) {
                    pages.add(at.address, at.bytes(), range);
                }
                programs.push(Unfinished { pid, pidfd });
                self.add(Space::new(Userfaultfd::of(userfaultfd), pages, 0));
            }
            Some((Word::Complete, _)) => {
                *restarter = None;
                let _spaces = self.spaces();
                self.is_complete.store(true, Ordering::SeqCst);
                self.changed.notify_all();
            }
            Some(_) => {}
            None => leave(0),
        }
        Ok(())
    }

    fn add(&self, space: Space) {
        self.spaces().push(Arc::new(space));
        self.changed.notify_all();
    }

    /// Takes note of what `space` tells, and brings what is waited for.
    fn answer(&self, space: &Space, guard: &Link) -> Result<()> {
        let (faults, copies) = space.take_note()?;
        for copy in copies {
            guard.say(&Word::Copy, &[copy.as_fd()])?;
            self.add(copy);
        }
        for address in faults {
            let Some(piece) = space.around(address, FAULT_PAGES) else {
                space.put_zeros(address)?;
                space.wake(address)?;
                continue;
            };
            let pages = ((piece.span.end - piece.span.start) / PAGE_BYTES as u64) as usize;
            let mut content = vec![0; pages * PAGE_BYTES];
            let keys = self.ranges[piece.range].keys(piece.first..piece.first + pages);
            self.store.read_pages(&keys, &mut content)?;
            space.put(piece.range, piece.first, &content)?;
            space.wake(address)?;
        }
        Ok(())
    }
}
