//! Whose memory holds still while it is written: a clone, the stopped program, or nobody, because it has been copied.

use std::time::Instant;

use super::ahead::Copies;
use super::pages::PageSource;
use super::request::Event;
use super::twin::Twin;
use crate::error::Result;
use crate::ptrace::Stopped;

/// What holds still while its memory is written.
#[derive(Debug)]
pub enum Still {
    /// A clone, while the program runs.
    Twin(Box<Twin>),
    /// The program itself, since the moment given.
    Program(Vec<Stopped>, Instant),
    /// Nobody: what is to be read of it has been copied, and the program runs.
    Copied(Copies),
}

impl Still {
    /// The process whose memory holds still, if there is one.
    pub fn holder(&self) -> Option<i32> {
        match self {
            Still::Twin(twin) => Some(twin.pid()),
            // The main thread is the first; its tid is the pid.
            Still::Program(threads, _) => threads.first().map(Stopped::tid),
            Still::Copied(_) => None,
        }
    }

    /// Its memory, if there is one.
    pub fn source(&self) -> Result<Option<PageSource>> {
        match self {
            Still::Twin(twin) => PageSource::open_clone(twin.pid()).map(Some),
            Still::Program(..) | Still::Copied(_) => self.holder().map(PageSource::open).transpose(),
        }
    }

    /// The program's threads, if it stands still itself.
    pub fn stopped(&self) -> Option<&[Stopped]> {
        match self {
            Still::Program(threads, _) if !threads.is_empty() => Some(threads),
            _ => None,
        }
    }

    /// Whether the program itself stands still.
    pub fn is_stopped(&self) -> bool {
        self.stopped().is_some()
    }

    /// Lets the program run on if it is still stopped.
    pub fn resume(&mut self, id: u64, events: &mut dyn FnMut(Event)) -> Result<()> {
        resume(std::slice::from_mut(self), id, events)
    }
}

/// Lets all processes run on that are still stopped.
pub fn resume(all: &mut [Still], id: u64, events: &mut dyn FnMut(Event)) -> Result<()> {
    let mut began = None;
    for still in all {
        if let Still::Program(threads, since) = still {
            for thread in threads.drain(..) {
                began = Some(*since);
                thread.detach_if_alive()?;
            }
        }
    }
    if let Some(began) = began {
        events(Event::Resumed { stop_ms: began.elapsed().as_secs_f64() * 1e3, id });
    }
    Ok(())
}
