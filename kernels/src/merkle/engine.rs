//! Finding differences on the CPU, on all cores.

use std::ops::Range;

use super::{
    Body, Error, Head, Live, Memory, Method, Result, Shift, Shortage, Sink, Source, accepted,
    bound::Room,
    check_chunk_bytes,
    forest::{Forest, RegionShape, Tree},
    found::{Found, Previous, found},
    history::History,
    joined::{Written, joined, unjoined},
    pieces::Pieces,
    survey::{LISTED_BYTES, Survey, Surveyor, may_have_changed},
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
        let forest = self.forest(checkpoint, regions.iter().map(|region| (region.id, region.bytes.len() as u64)))?;
        let memories = regions.iter().map(|region| &region.bytes as &dyn Memory).collect();
        let chunk_bytes = self.chunk_bytes;
        let survey = |_: &Room<'_>, previous: Option<&mut Previous>| {
            let found = found(checkpoint, chunk_bytes, &forest, regions, previous.as_deref());
            Ok(Survey { whole: Vec::new(), found })
        };
        self.take(checkpoint, method, &forest, memories, survey, sink)
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
        let forest = self.forest(checkpoint, regions.iter().map(|live| (live.id, live.memory.bytes())))?;
        let memories = regions.iter().map(|live| live.memory).collect();
        let chunk_bytes = self.chunk_bytes;
        let survey = |room: &Room<'_>, previous: Option<&mut Previous>| {
            let list_bytes = room.allowed / LISTS;
            Surveyor { checkpoint, chunk_bytes, forest: &forest, regions, list_bytes }.survey(previous)
        };
        self.take(checkpoint, method, &forest, memories, survey, sink)
    }

    /// The bytes of regions that [`Engine::difference_of`] would read at most, for each region: its shape comes with where it
    /// may have changed. For who has to copy them first. `None` if that could be all of a region.
    pub fn would_read(&self, method: Method, regions: &[(RegionShape, &[Range<u64>])]) -> Option<Vec<Vec<Range<u64>>>> {
        let next = self.last.map_or(0, |last| last.saturating_add(1));
        let forest = self.forest(next, regions.iter().map(|(shape, _)| (shape.id, shape.bytes))).ok()?;
        let previous = self.previous.as_ref()?;
        let allowed = self.bound.unwrap_or(u64::MAX);
        let room = Room { asked: method, allowed, forest: &forest, seen: 0 };
        let mut listed = usize::try_from(allowed / LISTS).unwrap_or(usize::MAX) / LISTED_BYTES;
        let mut all = Vec::with_capacity(regions.len());
        for (tree, (shape, changed)) in forest.trees.iter().zip(regions) {
            let known = previous.of(shape.id)?;
            let runs = may_have_changed(tree, Some(changed), known.len());
            listed = listed.checked_sub(runs.iter().map(ExactSizeIterator::len).sum())?;
            all.push(runs.into_iter().map(|run| tree.bytes_of_chunks(run)).collect());
        }
        (room.best(0) != Method::Full).then_some(all)
    }

    /// The trees over regions with these ids and so many bytes, if they can be a checkpoint's.
    fn forest(&self, checkpoint: u32, regions: impl Iterator<Item = (u64, u64)>) -> Result<Forest> {
        accepted(self.chunk_bytes, self.last, checkpoint, regions.map(|(id, bytes)| RegionShape { id, bytes }))
    }

    /// Takes a checkpoint of which `survey` finds what has changed, unless all is to be stored.
    fn take(
        &mut self,
        checkpoint: u32,
        method: Method,
        forest: &Forest,
        memories: Vec<&dyn Memory>,
        survey: impl FnOnce(&Room<'_>, Option<&mut Previous>) -> Result<Survey>,
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        let (room, forgotten) = self.room(method, forest);
        let Survey { whole, mut found } = match room.best(0) {
            Method::Full => Survey::default(),
            _ => survey(&room, self.previous.as_mut())?,
        };
        let (method, shortage) = (room.best(found.len()), room.shortage(found.len(), forgotten));
        let whole_chunks: usize = whole.iter().map(|(_, digests)| digests.len()).sum();
        if method >= Method::List && room.holds(method, found.len() + whole_chunks) {
            for (at, digests) in &whole {
                self.history.learn(checkpoint, forest.trees[*at].chunk_nodes().start, digests);
            }
        }
        let mut pieces = Pieces::of(memories);
        let roots = whole.iter().filter_map(|(at, _)| root(checkpoint, &forest.trees[*at]));
        let body = self.body(checkpoint, method, forest, &mut found, roots.collect(), &mut pieces);
        let head = self.send(checkpoint, method, forest, body, &pieces, sink)?;
        self.last = Some(checkpoint);
        // After Full nobody has looked at the chunks: at the next checkpoint none is known to be as before.
        let before = self.previous.take().filter(|_| method != Method::Full);
        self.previous = (method != Method::Full).then(|| {
            let mut before = before.unwrap_or_else(|| Previous::nothing(checkpoint));
            whole.into_iter().for_each(|(at, digests)| before.learn(forest.trees[at].region.id, digests));
            Previous::new(checkpoint, forest, before, &found)
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
        forest: &Forest,
        body: Body,
        pieces: &Pieces<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Head> {
        let previous = self.previous.as_ref().map(|previous| previous.checkpoint).filter(|_| method != Method::Full);
        let (chunk_bytes, data_bytes) = (self.chunk_bytes, pieces.bytes());
        let regions = forest.trees.iter().map(|tree| tree.region).collect();
        let head = Head { checkpoint, previous, chunk_bytes, regions, body, data_bytes };
        if let Err(source) = sink.head(&head).and_then(|()| pieces.send(sink)) {
            self.history.retain(|seen| seen < checkpoint);
            return Err(Error::Sink { checkpoint, source });
        }
        Ok(head)
    }

    /// What is stored of the chunks found, and of regions that are stored whole, and which bytes those are.
    fn body(
        &mut self,
        checkpoint: u32,
        method: Method,
        forest: &Forest,
        found: &mut [Found],
        roots: Vec<Written>,
        pieces: &mut Pieces<'_>,
    ) -> Body {
        if method == Method::Full {
            (0..).zip(&forest.trees).for_each(|(at, tree)| pieces.push(at, 0..tree.region.bytes));
            return Body::Full;
        }
        let mut written = self.written(checkpoint, method, forest, found);
        if !roots.is_empty() {
            written.extend(roots);
            written.sort_unstable_by_key(|written| written.chunk);
        }
        match method {
            Method::Basic => changed(&written, forest, pieces),
            _ => nodes(checkpoint, &written, forest, pieces),
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
