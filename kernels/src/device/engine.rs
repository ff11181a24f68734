//! Finding differences on a GPU.
//!
//! What comes out is what the engine for the CPU finds, byte for byte, unless memory runs short: then it says which method it
//! fell back to. Kernels are queued one behind the other; the host waits three times in a checkpoint: for how much has
//! changed (the history must have room), for how much there is of what, and for the bytes.
//!
//! Digests of chunks are compared and replaced in one pass, so a checkpoint that fails has spoilt those of the one before:
//! the next one then differs from none, and still finds all that was seen before.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use super::{
    amounts::Amounts,
    context::{Buffer, Context, Event, Stream},
    entries::Collected,
    error::{Error, Result},
    history::History,
    kernels::{Grain, Kernels},
    layout::{
        self, AMOUNT_BYTES, Amount, DIGEST_BYTES, FIRST_BYTES, SKETCH_REGISTERS, TILE_CHUNKS, TILE_WORDS, Totals,
        bytes_of, bytes_of_mut,
    },
    ring::Ring,
    sketch,
};
use crate::merkle::{self, Body, Head, Lineage, Method, Mismatch, RegionShape, Shortage, Sink, Taken, forest::Forest};

/// Bytes that leave the device at a time, unless said otherwise.
pub const SLOT_BYTES: usize = 16 << 20;
/// The least: a slot must have room for the entries of a tile.
pub const SLOT_BYTES_MIN: usize = 16 << 10;

/// A region of device memory, which nobody writes while a checkpoint is taken.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Stays with the region when it moves or changes its length.
    pub id: u64,
    /// Where it is.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Finds what each checkpoint of a lineage adds to it.
pub struct Engine {
    context: Arc<Context>,
    kernels: Kernels,
    stream: Arc<Stream>,
    chunk_bytes: u32,
    last: Option<u32>,
    /// The checkpoint whose digests are known.
    previous: Option<u32>,
    /// Of the chunks of each region, by its id.
    digests: HashMap<u64, Digests>,
    history: History,
    /// Checkpoints that the history knows.
    seen: Vec<u32>,
    work: Work,
    ring: Ring,
    before_hash: Event,
    after_hash: Event,
    times: Times,
}

/// Digests of a region's chunks.
struct Digests {
    buffer: Buffer,
    /// How many were there at the last checkpoint.
    chunks: u32,
}

/// How long the parts of a checkpoint took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Times {
    /// The digests of all chunks, on the device.
    pub hash_s: f64,
    /// Until it is known how much is written down and stored, the digests included.
    pub find_s: f64,
    /// Until all entries are on the host.
    pub entries_s: f64,
    /// Until the sink has all data.
    pub data_s: f64,
}

/// Memory that is needed while a checkpoint is taken.
struct Work {
    regions: Buffer,
    /// Four bits for each chunk: changed, stored, first, shifted.
    bits: Buffer,
    labels: Buffer,
    inner: Buffer,
    amounts: Buffer,
    totals: Buffer,
    sketch: Buffer,
}

/// What there was no memory for.
struct Short {
    asked: Method,
    needed: u64,
    forgotten: usize,
}

impl Short {
    /// Notes how many bytes are missing, or passes the error on.
    fn missing(&mut self, error: Error, context: &Context) -> Result<()> {
        let bytes = error.missing_bytes().ok_or(error)?;
        self.needed = self.needed.max(context.used_bytes() + bytes);
        Ok(())
    }

    fn shortage(&self, context: &Context) -> Option<Shortage> {
        let Self { asked, needed, forgotten } = *self;
        let allowed = context.bytes_max().unwrap_or(context.used_bytes());
        (needed > 0).then_some(Shortage { asked, needed, allowed, forgotten })
    }
}

/// A checkpoint that is being taken.
struct Pass {
    forest: Forest,
    parameter: layout::Checkpoint,
    regions: Vec<layout::Region>,
}

impl Pass {
    fn words(&self) -> u64 {
        u64::from(self.parameter.tile_count) * TILE_WORDS
    }

    fn inner_nodes(&self) -> u64 {
        let chunks: u64 = self.regions.iter().map(|region| u64::from(region.chunks)).sum();
        self.forest.nodes() - chunks
    }
}

impl Engine {
    /// For chunks of so many bytes, which leave the device `slot_bytes` at a time.
    ///
    /// # Errors
    /// For a length of chunks that no engine takes, and when the device has not even memory for the ring.
    ///
    /// # Panics
    /// For slots of less than [`SLOT_BYTES_MIN`] or no multiple of 16.
    pub fn new(context: &Arc<Context>, chunk_bytes: u32, slot_bytes: usize) -> Result<Self> {
        assert!(slot_bytes >= SLOT_BYTES_MIN && slot_bytes.is_multiple_of(16), "slots of {slot_bytes} bytes");
        merkle::check_chunk_bytes(chunk_bytes)?;
        let _entered = context.enter()?;
        let stream = Arc::new(Stream::new(context)?);
        let ring = Ring::new(context, &stream, slot_bytes)?;
        let buffer = |bytes| Buffer::new(context, bytes);
        let work = Work {
            regions: buffer(0)?,
            bits: buffer(0)?,
            labels: buffer(0)?,
            inner: buffer(0)?,
            amounts: buffer(0)?,
            totals: buffer(size_of::<Totals>() as u64)?,
            sketch: buffer(SKETCH_REGISTERS as u64 * 4)?,
        };
        Ok(Self {
            kernels: Kernels::load(context)?,
            history: History::new(context),
            context: context.clone(),
            stream,
            chunk_bytes,
            last: None,
            previous: None,
            digests: HashMap::new(),
            seen: Vec::new(),
            work,
            ring,
            before_hash: Event::new(context)?,
            after_hash: Event::new(context)?,
            times: Times::default(),
        })
    }

    /// How long the parts of the last checkpoint took.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Entries that the history uses, those of forgotten digests too.
    pub fn history_len(&self) -> u64 {
        self.history.used()
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to: their differences may be removed when none that
    /// stays needs them.
    ///
    /// # Errors
    /// When the device fails; then nothing that was to be forgotten is ever referred to.
    pub fn forget(&mut self, stays: impl Fn(u32) -> bool) -> Result<()> {
        let context = self.context.clone();
        let _entered = context.enter()?;
        let gone: Vec<u32> = self.seen.iter().copied().filter(|seen| !stays(*seen)).collect();
        self.seen.retain(|seen| stays(*seen));
        self.history.forget(&gone, &self.kernels, &self.stream).inspect_err(|_| self.history_is_lost())
    }

    /// Forgets a checkpoint and all after it, as if they had never been taken: for who could not make the difference of one
    /// durable. The next one may have its number. It differs from none, since what was there before is not known any more.
    ///
    /// # Errors
    /// As [`Self::forget`].
    pub fn abandon(&mut self, checkpoint: u32) -> Result<()> {
        if self.last.is_some_and(|last| last >= checkpoint) {
            self.last = checkpoint.checked_sub(1);
            self.previous = None;
            self.forget(|seen| seen < checkpoint)?;
        }
        Ok(())
    }

    fn history_is_lost(&mut self) {
        self.history.clear();
        self.seen.clear();
    }

    /// Finds what checkpoint `checkpoint` of these regions adds, and hands it to `sink`.
    ///
    /// # Errors
    /// When a number or an id is taken, there are too many chunks, the device or the sink fails. Then the checkpoint has not
    /// been taken.
    ///
    /// # Safety
    /// Each region is device memory, or managed or pinned memory that the device can read; nobody writes it or frees it
    /// before this returns.
    pub unsafe fn difference(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: &[Region],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        let shapes: Vec<_> = regions.iter().map(|region| RegionShape { id: region.id, bytes: region.bytes }).collect();
        merkle::check_order(self.last, checkpoint)?;
        merkle::check_ids(&shapes)?;
        let forest = Forest::new(self.chunk_bytes, shapes.iter().copied())?;
        let context = self.context.clone();
        let _entered = context.enter()?;
        let taken = self.take(checkpoint, method, forest, regions, sink);
        match taken {
            Ok(_) => self.last = Some(checkpoint),
            Err(_) => self.undo(checkpoint),
        }
        taken
    }

    /// Nothing refers to a checkpoint that was not taken.
    fn undo(&mut self, checkpoint: u32) {
        // What it was given may still use what comes next, unless the device is broken, and then nothing comes.
        drop(self.stream.wait());
        self.previous = None;
        self.seen.retain(|seen| *seen != checkpoint);
        let forgotten = self.history.forget(&[checkpoint], &self.kernels, &self.stream);
        forgotten.unwrap_or_else(|_| self.history_is_lost());
    }

    fn take(
        &mut self,
        checkpoint: u32,
        wanted: Method,
        forest: Forest,
        regions: &[Region],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        let mut head = Head {
            checkpoint,
            previous: None,
            chunk_bytes: self.chunk_bytes,
            regions: forest.trees.iter().map(|tree| tree.region).collect(),
            body: Body::Full,
            data_bytes: regions.iter().map(|region| region.bytes).sum(),
        };
        let mut short = Short { asked: wanted, needed: 0, forgotten: 0 };
        let Some(mut pass) = self.prepare_or_forget(checkpoint, wanted, forest, regions, &mut short)? else {
            self.previous = None;
            self.digests.clear();
            let begun = Instant::now();
            self.send_regions(&head, regions, sink)?;
            self.times = Times { data_s: begun.elapsed().as_secs_f64(), ..Times::default() };
            return Ok(Taken { head, method: Method::Full, shortage: short.shortage(&self.context) });
        };
        let begun = Instant::now();
        let method = self.find(&mut pass, wanted, &mut short)?;
        let amounts = self.amounts(&pass)?;
        self.times = Times { find_s: begun.elapsed().as_secs_f64(), ..Times::default() };
        if pass.parameter.tile_count > 0 {
            self.times.hash_s = self.after_hash.seconds_since(&self.before_hash)?;
        }
        head.previous = self.previous;
        head.body = self.body(&pass, method, &amounts)?;
        self.times.entries_s = begun.elapsed().as_secs_f64() - self.times.find_s;
        head.data_bytes = amounts.total().bytes;
        self.send_stored(&pass, &head, &amounts, sink)?;
        self.times.data_s = begun.elapsed().as_secs_f64() - self.times.find_s - self.times.entries_s;
        self.remember(checkpoint, method, &pass);
        Ok(Taken { head, method, shortage: short.shortage(&self.context) })
    }

    /// Nothing, if everything is to be stored without a look at it. A history that takes the room of the chunks' digests is
    /// forgotten: without these, everything would be stored with every checkpoint.
    fn prepare_or_forget(
        &mut self,
        checkpoint: u32,
        wanted: Method,
        forest: Forest,
        regions: &[Region],
        short: &mut Short,
    ) -> Result<Option<Pass>> {
        if wanted == Method::Full {
            return Ok(None);
        }
        loop {
            match self.prepare(checkpoint, &forest, regions) {
                Ok((parameter, regions)) => return Ok(Some(Pass { forest, parameter, regions })),
                Err(error) => short.missing(error, &self.context)?,
            }
            if self.history.used() == 0 {
                return Ok(None);
            }
            short.forgotten += self.history.used() as usize;
            self.history_is_lost();
        }
    }

    /// Memory for what every method but Full needs.
    fn prepare(
        &mut self,
        checkpoint: u32,
        forest: &Forest,
        regions: &[Region],
    ) -> Result<(layout::Checkpoint, Vec<layout::Region>)> {
        let mut tiles = 0;
        let mut described = Vec::with_capacity(regions.len());
        for (tree, region) in forest.trees.iter().zip(regions) {
            let (digests, known) = self.digests_of(region.id, tree.chunks())?;
            described.push(layout::Region {
                bytes: region.address,
                length: region.bytes,
                digests,
                inner: 0,
                chunks: tree.chunks(),
                known,
                first_node: tree.chunk_nodes().start,
                first_tile: tiles,
            });
            tiles += tree.chunks().div_ceil(TILE_CHUNKS);
        }
        // What has no chunks has no tiles either, and nothing is to be found in it.
        described.retain(|region| region.chunks > 0);
        let words = u64::from(tiles) * TILE_WORDS;
        let work = &mut self.work;
        grow(&self.context, &mut work.regions, (described.len() * size_of::<layout::Region>()) as u64)?;
        grow(&self.context, &mut work.bits, words * 16)?;
        grow(&self.context, &mut work.amounts, u64::from(tiles) * AMOUNT_BYTES)?;
        let bits = |number: u64| work.bits.address() + number * words * 4;
        let parameter = layout::Checkpoint {
            regions: work.regions.address(),
            region_count: described.len() as u32,
            tile_count: tiles,
            chunk_bytes: self.chunk_bytes,
            number: checkpoint,
            method: layout::Method::Basic,
            changed: bits(0),
            stored: bits(1),
            firsts: bits(2),
            shifts: bits(3),
            labels: 0,
            amounts: work.amounts.address(),
            totals: work.totals.address(),
            sketch: work.sketch.address(),
            history: layout::History::default(),
        };
        Ok((parameter, described))
    }

    /// The digests of a region's chunks, and how many of them are those of the checkpoint before.
    fn digests_of(&mut self, id: u64, chunks: u32) -> Result<(u64, u32)> {
        let bytes = u64::from(chunks) * DIGEST_BYTES;
        let is_known = self.previous.is_some();
        let known = self.digests.get(&id).filter(|_| is_known).map_or(0, |digests| digests.chunks.min(chunks));
        if let Some(digests) = self.digests.get(&id).filter(|digests| digests.buffer.bytes() >= bytes) {
            return Ok((digests.buffer.address(), known));
        }
        let buffer = Buffer::new(&self.context, bytes)?;
        if let Some(old) = self.digests.get(&id) {
            self.stream.copy(&buffer, &old.buffer, u64::from(known) * DIGEST_BYTES)?;
            self.stream.wait()?;
        }
        let address = buffer.address();
        self.digests.insert(id, Digests { buffer, chunks: known });
        Ok((address, known))
    }

    /// Labels all nodes by the method that is wanted, or by the best for which there is memory: says which.
    fn find(&mut self, pass: &mut Pass, wanted: Method, short: &mut Short) -> Result<Method> {
        if pass.parameter.tile_count == 0 {
            return Ok(wanted);
        }
        self.stream.write(&self.work.regions, bytes_of(&pass.regions))?;
        self.write_totals(0)?;
        // The bits of chunks that are not there must be zero.
        self.stream.fill(&self.work.bits, 0, pass.words() * 16)?;
        self.stream.fill(&self.work.sketch, 0, self.work.sketch.bytes())?;
        let mut grains: Vec<_> =
            pass.regions.iter().map(|region| Grain::of(region.bytes, pass.parameter.chunk_bytes)).collect();
        grains.sort_unstable();
        grains.dedup();
        self.stream.record(&self.before_hash)?;
        // SAFETY: all is as long as it says and stays; the regions are the caller's.
        unsafe { self.kernels.hash(&pass.parameter, &grains, &self.stream)? };
        self.stream.record(&self.after_hash)?;
        let mut method = wanted;
        if method > Method::Basic {
            // SAFETY: as above.
            unsafe { self.kernels.sketch(&pass.parameter, &self.stream)? };
            let changed = u64::from(self.totals()?.changed);
            let mut registers = vec![0_u32; SKETCH_REGISTERS];
            self.stream.read(&self.work.sketch, bytes_of_mut(&mut registers))?;
            let different = ((sketch::different(&registers) * 1.05) as u64 + 64).min(changed);
            while method > Method::Basic && !self.label(pass, method, different, short)? {
                method = if method == Method::Tree { Method::List } else { Method::Basic };
            }
        }
        pass.parameter.method = method_for_kernels(method);
        // SAFETY: as above.
        unsafe { self.kernels.mark_topmost(&pass.parameter, &self.stream)? };
        Ok(method)
    }

    /// Says whether there was memory for this method.
    fn label(&mut self, pass: &mut Pass, method: Method, different: u64, short: &mut Short) -> Result<bool> {
        let mut room = match method {
            // Over first occurrences there are fewer nodes than chunks, but for one at the end of each level. Over others
            // there may be more; seldom are.
            Method::Tree => 2 * different + 32 * pass.regions.len() as u64,
            _ => different,
        };
        loop {
            if let Err(error) = self.make_room(pass, method, room) {
                short.missing(error, &self.context)?;
                // Digests that have been inserted on the way lead to chunks that will not be stored as such.
                self.history.forget(&[pass.parameter.number], &self.kernels, &self.stream)?;
                return Ok(false);
            }
            pass.parameter.history = self.history.parameter(&self.work.totals);
            pass.parameter.labels = self.work.labels.address();
            pass.parameter.method = method_for_kernels(method);
            self.write_totals(self.history.used_of_last())?;
            self.stream.fill(&self.work.labels, 0, pass.forest.nodes())?;
            // SAFETY: all is as long as it says and stays; the regions are the caller's.
            unsafe { self.kernels.label(&pass.parameter, method == Method::Tree, &self.stream)? };
            let totals = self.totals()?;
            self.history.set_used_of_last(u64::from(totals.used));
            if totals.overflow == 0 {
                return Ok(true);
            }
            // There are more than that. What has its place keeps it.
            room = 2 * room + 1024;
        }
    }

    fn make_room(&mut self, pass: &mut Pass, method: Method, room: u64) -> Result<()> {
        if method != Method::Tree {
            self.work.inner = Buffer::new(&self.context, 0)?;
        }
        grow(&self.context, &mut self.work.labels, pass.forest.nodes())?;
        if method == Method::Tree {
            grow(&self.context, &mut self.work.inner, pass.inner_nodes() * DIGEST_BYTES)?;
            let mut inner = self.work.inner.address();
            let mut trees = pass.forest.trees.iter().filter(|tree| tree.chunks() > 0);
            for (region, tree) in pass.regions.iter_mut().zip(&mut trees) {
                region.inner = inner;
                inner += u64::from(tree.node_count() - tree.chunks()) * DIGEST_BYTES;
            }
            self.stream.write(&self.work.regions, bytes_of(&pass.regions))?;
        }
        self.history.reserve(room, &self.kernels, &self.work.totals, &self.stream)
    }

    fn write_totals(&self, used: u64) -> Result<()> {
        let totals = Totals { used: used as u32, ..Totals::default() };
        self.stream.write(&self.work.totals, bytes_of(&[totals]))
    }

    fn totals(&self) -> Result<Totals> {
        let mut totals = [Totals::default()];
        self.stream.read(&self.work.totals, bytes_of_mut(&mut totals))?;
        Ok(totals[0])
    }

    /// How much there is in which tile. The device knows it too when this returns.
    fn amounts(&self, pass: &Pass) -> Result<Amounts> {
        let mut of_tiles = vec![Amount::default(); pass.parameter.tile_count as usize];
        self.stream.read(&self.work.amounts, bytes_of_mut(&mut of_tiles))?;
        let amounts = Amounts::new(of_tiles);
        self.stream.write(&self.work.amounts, bytes_of(amounts.of_tiles()))?;
        Ok(amounts)
    }

    fn body(&mut self, pass: &Pass, method: Method, amounts: &Amounts) -> Result<Body> {
        if method <= Method::Basic {
            let mut words = vec![0_u32; pass.words() as usize];
            self.stream.read(&self.work.bits, bytes_of_mut(&mut words))?;
            return Ok(super::entries::changed(&pass.regions, &words));
        }
        let mut collected = Collected::new(amounts.total());
        let Self { ring, kernels, stream, .. } = self;
        let gather = |entries: &super::amounts::Entries, slot| {
            let window = layout::EntryWindow {
                first_tile: entries.tiles.start,
                firsts_before: entries.before.firsts,
                shifts_before: entries.before.shifts,
                firsts: slot,
                shifts: slot + u64::from(entries.firsts) * FIRST_BYTES,
            };
            // SAFETY: the window was made for a slot; the rest is as in `find`.
            unsafe { kernels.write_entries(&pass.parameter, &window, entries.tiles.len() as u32, stream)? };
            Ok((slot, entries.bytes() as usize))
        };
        let take = |entries: &super::amounts::Entries, bytes: &[u8]| {
            collected.add(entries.firsts, bytes);
            Ok(())
        };
        // SAFETY: what is gathered is in the slot.
        unsafe { ring.send(amounts.entries(ring.slot_bytes()), gather, take)? };
        Ok(collected.into_body())
    }

    fn send_stored(&mut self, pass: &Pass, head: &Head, amounts: &Amounts, sink: &mut dyn Sink) -> Result<()> {
        let failed = Error::sink(head.checkpoint);
        sink.head(head).map_err(&failed)?;
        let Self { ring, kernels, stream, .. } = self;
        let gather = |data: &super::amounts::Data, slot| {
            let window = layout::Window {
                from: data.bytes.start,
                to: data.bytes.end,
                bytes: slot,
                first_tile: data.tiles.start,
                unused: 0,
            };
            // SAFETY: the window is as long as a slot; the rest is as in `find`.
            unsafe { kernels.gather(&pass.parameter, &window, data.tiles.len() as u32, stream)? };
            Ok((slot, (data.bytes.end - data.bytes.start) as usize))
        };
        let take = |_: &super::amounts::Data, bytes: &[u8]| sink.data(bytes).map_err(&failed);
        // SAFETY: what is gathered is in the slot.
        unsafe { ring.send(amounts.data(ring.slot_bytes()), gather, take) }
    }

    /// Sends all bytes as they are.
    fn send_regions(&mut self, head: &Head, regions: &[Region], sink: &mut dyn Sink) -> Result<()> {
        let failed = Error::sink(head.checkpoint);
        sink.head(head).map_err(&failed)?;
        self.send_all(regions, |_, _, bytes| sink.data(bytes).map_err(&failed))
    }

    /// Compares regions with what a lineage would restore, as [`Lineage::mismatch`] does. All of them leave the device.
    ///
    /// # Errors
    /// When there is no such checkpoint, or the device fails.
    ///
    /// # Safety
    /// As of [`Self::difference`].
    pub unsafe fn mismatch(
        &mut self,
        lineage: &Lineage,
        checkpoint: u32,
        regions: &[Region],
    ) -> Result<Option<Mismatch>> {
        let context = self.context.clone();
        let _entered = context.enter()?;
        let (mut expected, mut first) = (Vec::new(), None);
        self.send_all(regions, |region, offset, bytes| {
            expected.resize(bytes.len(), 0);
            lineage.restore_part(checkpoint, region.id, offset, &mut expected)?;
            if first.is_none() && expected != bytes {
                let at = expected.iter().zip(bytes).position(|(expected, byte)| expected != byte).unwrap_or(0);
                first = Some(Mismatch { region: region.id, offset: offset + at as u64 });
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Sends all bytes of regions through the ring: `take` gets them with their region and their offset there.
    fn send_all(&mut self, regions: &[Region], mut take: impl FnMut(&Region, u64, &[u8]) -> Result<()>) -> Result<()> {
        let slot_bytes = self.ring.slot_bytes();
        let pieces = regions.iter().flat_map(|region| {
            let offsets = (0..region.bytes).step_by(slot_bytes);
            offsets.map(|offset| (*region, offset, (region.bytes - offset).min(slot_bytes as u64) as usize))
        });
        let gather = |(region, offset, bytes): &(Region, u64, usize), _| Ok((region.address + offset, *bytes));
        let take = |(region, offset, _): &(Region, u64, usize), bytes: &[u8]| take(region, *offset, bytes);
        // SAFETY: the regions are the caller's.
        unsafe { self.ring.send(pieces, gather, take) }
    }

    fn remember(&mut self, checkpoint: u32, method: Method, pass: &Pass) {
        self.previous = Some(checkpoint);
        if method > Method::Basic {
            self.seen.push(checkpoint);
        }
        let ids: HashSet<u64> = pass.forest.trees.iter().map(|tree| tree.region.id).collect();
        self.digests.retain(|id, _| ids.contains(id));
        for tree in &pass.forest.trees {
            if let Some(digests) = self.digests.get_mut(&tree.region.id) {
                digests.chunks = tree.chunks();
            }
        }
    }
}

/// What the kernels call a method. Full is none of theirs.
fn method_for_kernels(method: Method) -> layout::Method {
    match method {
        Method::Tree => layout::Method::Tree,
        Method::List => layout::Method::List,
        Method::Full | Method::Basic => layout::Method::Basic,
    }
}

/// Makes a buffer as long at least. Its content is lost.
fn grow(context: &Arc<Context>, buffer: &mut Buffer, bytes: u64) -> Result<()> {
    if buffer.bytes() < bytes {
        *buffer = Buffer::new(context, 0)?;
        *buffer = Buffer::new(context, bytes)?;
    }
    Ok(())
}
