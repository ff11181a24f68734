//! Finding differences on the CPU, on all cores.

use super::{
    Body, Error, Head, Live, Memory, Method, Result, Shift, Shortage, Sink, Source,
    bound::Room,
    check_chunk_bytes, check_ids, check_order,
    forest::{Forest, RegionShape, Tree},
    found::{Found, Previous, found},
    history::History,
    joined::{Written, joined, unjoined},
    pieces::Pieces,
    survey::{Survey, Surveyor},
};

/// Of the bound on what is held, so much may be taken besides, by lists, while regions are read in pieces.
const LISTS: u64 = 3;

/// A region's bytes as they are now.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Stays with the region when it moves or changes its length.
    pub id: u64,
    /// All of it.
    pub bytes: &'a [u8],
}

/// Finds what each checkpoint of a lineage adds to it.
#[derive(Clone)]
pub struct Engine {
    chunk_bytes: u32,
    /// Bytes that history and digests may take.
    bound: Option<u64>,
    last: Option<u32>,
    history: History,
    /// What the chunks were at the last checkpoint, if that is known.
    previous: Option<Previous>,
}

/// A checkpoint that has been taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What the sink was told.
    pub head: Head,
    /// The method that was used.
    pub method: Method,
    /// Why it is not the one asked for, or what had to be forgotten.
    pub shortage: Option<Shortage>,
}

impl Engine {
    /// For chunks of so many bytes. Digests that are held from one checkpoint to the next take at most `bound` bytes; with less
    /// than a method could need, a checkpoint is taken by a lesser one.
    ///
    /// # Errors
    /// [`Error::ChunkBytes`] for fewer than 32, more than 65,536, or no multiple of 4.
    pub fn new(chunk_bytes: u32, bound: Option<u64>) -> Result<Self> {
        check_chunk_bytes(chunk_bytes)?;
        Ok(Self { chunk_bytes, bound, last: None, history: History::default(), previous: None })
    }

    /// How many digests the history holds.
    pub fn history_len(&self) -> usize {
        self.history.len()
    }

    /// Bytes that digests take from one checkpoint to the next.
    pub fn held_bytes(&self) -> u64 {
        self.history.bytes() + self.previous.as_ref().map_or(0, Previous::bytes)
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to: their differences may be removed when none that
    /// stays needs them.
    pub fn forget(&mut self, stays: impl Fn(u32) -> bool) {
        self.history.retain(stays);
    }

    /// Forgets a checkpoint and all after it, as if they had never been taken: for who could not make the difference of one
    /// durable. The next one may have its number. It differs from none, since what was there before is not known any more.
    pub fn abandon(&mut self, checkpoint: u32) {
        if self.last.is_some_and(|last| last >= checkpoint) {
            self.last = checkpoint.checked_sub(1);
            self.previous = None;
            self.history.retain(|seen| seen < checkpoint);
        }
    }

    /// Finds what checkpoint `checkpoint` of these regions adds, and hands it to `sink`.
    ///
    /// # Errors
    /// When a number or an id is taken, there are too many chunks, or the sink fails. Then the checkpoint has not been taken,
    /// and the next one will differ from the one before. (What was forgotten for want of room stays forgotten.)
    pub fn difference(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: &[Region<'_>],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        check_order(self.last, checkpoint)?;
        let shapes: Vec<_> =
            regions.iter().map(|region| RegionShape { id: region.id, bytes: region.bytes.len() as u64 }).collect();
        check_ids(&shapes)?;
        let forest = Forest::new(self.chunk_bytes, shapes.iter().copied())?;
        let (room, forgotten) = self.room(method, &forest);
        let mut found = match room.best(0) {
            Method::Full => Vec::new(),
            _ => found(checkpoint, self.chunk_bytes, &forest, regions, self.previous.as_ref()),
        };
        let (method, shortage) = (room.best(found.len()), room.shortage(found.len(), forgotten));
        let mut pieces = Pieces::of(regions.iter().map(|region| &region.bytes as &dyn Memory).collect());
        let body = self.body(checkpoint, method, &forest, &mut found, &mut pieces);
        let head = self.send(checkpoint, method, shapes, body, &pieces, sink)?;
        self.last = Some(checkpoint);
        // After Full nobody has looked at the chunks: at the next checkpoint none is known to be as before.
        let before = self.previous.take().filter(|_| method != Method::Full);
        self.previous = (method != Method::Full).then(|| Previous::new(checkpoint, &forest, before, &found));
        Ok(Taken { head, method, shortage })
    }

    /// [`Engine::difference`] of regions that are read in pieces, and of which only what may have changed is read. Those that
    /// the last checkpoint did not have are stored whole, as are those of which more has changed than a third of the bound
    /// could list.
    ///
    /// # Errors
    /// As of [`Engine::difference`], and when a region cannot be read.
    pub fn difference_of(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: &[Live<'_>],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        check_order(self.last, checkpoint)?;
        let shapes: Vec<_> =
            regions.iter().map(|live| RegionShape { id: live.id, bytes: live.memory.bytes() }).collect();
        check_ids(&shapes)?;
        let forest = Forest::new(self.chunk_bytes, shapes.iter().copied())?;
        let (room, forgotten) = self.room(method, &forest);
        let list_bytes = room.allowed / LISTS;
        let surveyor = Surveyor { checkpoint, chunk_bytes: self.chunk_bytes, forest: &forest, regions, list_bytes };
        let Survey { whole, mut found } = match room.best(0) {
            Method::Full => Survey::default(),
            _ => surveyor.survey(self.previous.as_mut())?,
        };
        let (method, shortage) = (room.best(found.len()), room.shortage(found.len(), forgotten));
        let whole_chunks: usize = whole.iter().map(|(_, digests)| digests.len()).sum();
        if method >= Method::List && room.holds(method, found.len() + whole_chunks) {
            for (at, digests) in &whole {
                self.history.learn(checkpoint, forest.trees[*at].chunk_nodes().start, digests);
            }
        }
        let mut pieces = Pieces::of(regions.iter().map(|live| live.memory).collect());
        let trees = whole.iter().map(|(at, _)| *at);
        let body = match method {
            Method::Full => self.body(checkpoint, method, &forest, &mut [], &mut pieces),
            _ => {
                let mut written = self.written(checkpoint, method, &forest, &mut found);
                written.extend(trees.filter_map(|at| root(checkpoint, &forest.trees[at])));
                written.sort_unstable_by_key(|written| written.chunk);
                match method {
                    Method::Basic => changed(&written, &forest, &mut pieces),
                    _ => nodes(checkpoint, &written, &forest, &mut pieces),
                }
            }
        };
        let head = self.send(checkpoint, method, shapes, body, &pieces, sink)?;
        self.last = Some(checkpoint);
        let before = self.previous.take().filter(|_| method != Method::Full);
        self.previous = (method != Method::Full).then(|| {
            let mut before = before.unwrap_or_else(|| Previous::nothing(checkpoint));
            whole.into_iter().for_each(|(at, digests)| before.learn(forest.trees[at].region.id, digests));
            Previous::new(checkpoint, &forest, Some(before), &found)
        });
        Ok(Taken { head, method, shortage })
    }

    /// How much room there is, and how many digests of the history have been forgotten to make some.
    fn room<'a>(&mut self, method: Method, forest: &'a Forest) -> (Room<'a>, usize) {
        let allowed = self.bound.unwrap_or(u64::MAX);
        let mut room = Room { asked: method, allowed, forest, seen: self.history.len() };
        let forgotten = if room.is_taken_by_history() { std::mem::take(&mut self.history).len() } else { 0 };
        room.seen -= forgotten;
        (room, forgotten)
    }

    /// Hands all of a difference to the sink, and gives back its head.
    fn send(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: Vec<RegionShape>,
        body: Body,
        pieces: &Pieces<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Head> {
        let previous = self.previous.as_ref().map(|previous| previous.checkpoint).filter(|_| method != Method::Full);
        let (chunk_bytes, data_bytes) = (self.chunk_bytes, pieces.bytes());
        let head = Head { checkpoint, previous, chunk_bytes, regions, body, data_bytes };
        if let Err(source) = sink.head(&head).and_then(|()| pieces.send(sink)) {
            self.history.retain(|seen| seen < checkpoint);
            return Err(Error::Sink { checkpoint, source });
        }
        Ok(head)
    }

    /// What is stored of the chunks found, and which bytes those are.
    fn body(
        &mut self,
        checkpoint: u32,
        method: Method,
        forest: &Forest,
        found: &mut [Found],
        pieces: &mut Pieces<'_>,
    ) -> Body {
        match method {
            Method::Full => {
                (0..).zip(&forest.trees).for_each(|(at, tree)| pieces.push(at, 0..tree.region.bytes));
                Body::Full
            }
            Method::Basic => changed(&self.written(checkpoint, method, forest, found), forest, pieces),
            Method::List | Method::Tree => {
                nodes(checkpoint, &self.written(checkpoint, method, forest, found), forest, pieces)
            }
        }
    }

    /// What is to be said of the chunks found, by a method other than Full.
    fn written(&mut self, checkpoint: u32, method: Method, forest: &Forest, found: &mut [Found]) -> Vec<Written> {
        if method == Method::Basic {
            return unjoined(checkpoint, forest, found);
        }
        self.history.claim(found);
        match method {
            Method::Tree => joined(checkpoint, forest, &mut self.history, found),
            _ => unjoined(checkpoint, forest, found),
        }
    }
}

/// A region that is stored whole.
fn root(checkpoint: u32, tree: &Tree) -> Option<Written> {
    let level = tree.level_count().checked_sub(1)?;
    let node = tree.level(level).start;
    Some(Written { chunk: tree.first_chunk(), node, level: level as u8, source: Source { checkpoint, node } })
}

/// A bit for each chunk found, and for all chunks of regions that are stored whole.
fn changed(found: &[Written], forest: &Forest, pieces: &mut Pieces<'_>) -> Body {
    let mut bits = vec![0_u64; forest.chunks().div_ceil(64) as usize];
    for written in found {
        for chunk in pieces.push_node(forest, written) {
            bits[chunk as usize / 64] |= 1 << (chunk % 64);
        }
    }
    Body::Changed(bits)
}

/// First occurrences, and references to others.
fn nodes(checkpoint: u32, written: &[Written], forest: &Forest, pieces: &mut Pieces<'_>) -> Body {
    let (mut firsts, mut shifts) = (Vec::new(), Vec::new());
    for written in written {
        let Written { node, source, .. } = *written;
        if source == (Source { checkpoint, node }) {
            firsts.push(node);
            pieces.push_node(forest, written);
        } else {
            shifts.push(Shift { node, source });
        }
    }
    shifts.sort_by_key(|shift| shift.source.checkpoint);
    Body::Nodes { firsts, shifts }
}
