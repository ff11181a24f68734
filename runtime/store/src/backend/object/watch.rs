//! Watching the leases of others: alive when one has changed under our eyes, dead when it has not for its whole time.
//!
//! Time is this process's own monotonic clock, and it runs from one answer to the asking of the next question, so a slow
//! answer makes us wait longer and never shorter. Every lease that a listing shows is noted, so that a process which
//! asks for many waits for all of them at once.

use std::{
    collections::HashMap,
    io, thread,
    time::{Duration, Instant},
};

use object_store::{ObjectStoreExt, PutMode};

use super::{
    Connection, LEASES,
    lease::{self, State},
    locked,
};

/// How often a lease is looked at in its time.
const LOOKS: u32 = 20;

/// What this process has seen of the leases of others, by the name of what they are for.
#[derive(Default)]
pub(super) struct Watch(HashMap<String, Seen>);

struct Seen {
    e_tag: String,
    /// When the answer came that first showed this version.
    since: Instant,
    /// When it was seen to have changed.
    changed: Option<Instant>,
}

#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Alive,
    Dead,
    Unsure,
}

impl Watch {
    fn note(&mut self, name: &str, e_tag: &str) {
        let now = Instant::now();
        match self.0.get_mut(name) {
            Some(seen) if seen.e_tag == e_tag => {}
            Some(seen) => *seen = Seen { e_tag: e_tag.into(), since: now, changed: Some(now) },
            None => drop(self.0.insert(name.into(), Seen { e_tag: e_tag.into(), since: now, changed: None })),
        }
    }

    /// Of a lease that was just noted by a question asked at `asked`.
    fn verdict(&self, name: &str, asked: Instant, lease: Duration) -> Verdict {
        let Some(seen) = self.0.get(name) else { return Verdict::Unsure };
        if asked.saturating_duration_since(seen.since) >= lease {
            return Verdict::Dead;
        }
        if seen.changed.is_some_and(|changed| asked.saturating_duration_since(changed) < lease) {
            return Verdict::Alive;
        }
        Verdict::Unsure
    }

    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl Connection {
    /// On what condition the lock `name` may be taken now; `None` while somebody has it.
    pub(super) fn way_to_take(&self, name: &str) -> io::Result<Option<PutMode>> {
        let asked = Instant::now();
        let Some((record, version)) = lease::look_now(self, &self.path(name))? else {
            return Ok(Some(PutMode::Create));
        };
        if record.state != State::Held {
            return Ok(Some(PutMode::Update(version)));
        }
        let mut watch = locked(&self.watch);
        watch.note(name, version.e_tag.as_deref().unwrap_or_default());
        let verdict = watch.verdict(name, asked, Duration::from_millis(record.lease_ms));
        Ok((verdict == Verdict::Dead).then_some(PutMode::Update(version)))
    }

    /// Whether the holder of `name` lives. Takes up to a lease time, and breaks the lease of a dead one.
    pub(super) fn watch_until_sure(&self, name: &str) -> io::Result<bool> {
        let path = self.lease_path(name);
        loop {
            let asked = Instant::now();
            let Some((record, version)) = lease::look_now(self, &path)? else {
                // Not held. A name that is not there at all is an error.
                return self.wait(self.store.head(&self.path(name))).map(|_| false);
            };
            let (lease, e_tag) = (Duration::from_millis(record.lease_ms), version.e_tag.unwrap_or_default());
            let verdict = {
                let mut watch = locked(&self.watch);
                watch.note(name, &e_tag);
                watch.verdict(name, asked, lease)
            };
            match verdict {
                _ if record.state != State::Held => return Ok(false),
                Verdict::Alive => return Ok(true),
                Verdict::Dead if self.wait(lease::break_dead(&*self.store, &path, &e_tag))? => return Ok(false),
                Verdict::Dead | Verdict::Unsure => {
                    thread::sleep(lease / LOOKS);
                    self.note_all_beside(name)?;
                }
            }
        }
    }

    fn note_all_beside(&self, name: &str) -> io::Result<()> {
        let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
        let found = self.list(&format!("{LEASES}/{dir}"))?;
        let mut watch = locked(&self.watch);
        for (last, e_tag) in found {
            let name = if dir.is_empty() { last } else { format!("{dir}/{last}") };
            watch.note(&name, e_tag.as_deref().unwrap_or_default());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);

    #[test]
    fn a_lease_is_dead_only_after_it_was_seen_unchanged_for_its_whole_time() {
        let mut watch = Watch::default();
        let before = Instant::now();
        watch.note("a", "1");
        assert_eq!(watch.verdict("a", before, LEASE), Verdict::Unsure);
        assert_eq!(watch.verdict("a", Instant::now() + LEASE / 2, LEASE), Verdict::Unsure);
        assert_eq!(watch.verdict("a", Instant::now() + LEASE, LEASE), Verdict::Dead);
    }

    #[test]
    fn a_lease_that_changed_is_alive_and_its_time_begins_again() {
        let mut watch = Watch::default();
        watch.note("a", "1");
        watch.note("a", "2");
        let later = Instant::now();
        assert_eq!(watch.verdict("a", later, LEASE), Verdict::Alive);
        watch.note("a", "2");
        assert_eq!(watch.verdict("a", later + LEASE, LEASE), Verdict::Dead);
    }
}
