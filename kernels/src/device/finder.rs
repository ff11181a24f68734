//! What of a checkpoint's regions is to be written down, as the kernels find it.
//!
//! Kernels are queued one behind the other; the host waits for how much has changed, because the history must have room, and
//! for how much there is of what. Where memory runs short, simpler methods take the place of the one that is wanted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    amounts::Amounts,
    context::Context,
    engine::Region,
    error::Result,
    history::History,
    kernels::{Grain, Kernels},
    layout::{
        self, AMOUNT_BYTES, Amount, DIGEST_BYTES, SKETCH_REGISTERS, TILE_CHUNKS, TILE_WORDS, Totals, bytes_of,
        bytes_of_mut,
    },
    memory::Buffer,
    pass::Pass,
    short::Short,
    sketch,
    stream::{Event, Stream},
};
use crate::merkle::{Method, forest::Forest};

/// What is kept from checkpoint to checkpoint, and what finding takes besides.
pub struct Finder {
    context: Arc<Context>,
    kernels: Kernels,
    stream: Arc<Stream>,
    chunk_bytes: u32,
    /// Of the chunks of each region, by its id.
    digests: HashMap<u64, Digests>,
    /// The checkpoint of which these are, if that is known.
    previous: Option<u32>,
    history: History,
    work: Work,
    before_hash: Event,
    after_hash: Event,
}

/// Digests of a region's chunks.
struct Digests {
    buffer: Buffer,
    /// How many were there at the last checkpoint.
    chunks: u32,
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

impl Finder {
    /// For chunks of so many bytes.
    pub fn new(context: &Arc<Context>, chunk_bytes: u32) -> Result<Self> {
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
            context: context.clone(),
            stream: Arc::new(Stream::new(context)?),
            chunk_bytes,
            digests: HashMap::new(),
            previous: None,
            history: History::new(context),
            work,
            before_hash: Event::new(context)?,
            after_hash: Event::new(context)?,
        })
    }

    /// The stream that everything here is queued in.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The checkpoint from which the next one differs.
    pub fn previous(&self) -> Option<u32> {
        self.previous
    }

    /// Entries that the history uses.
    pub fn history_len(&self) -> u64 {
        self.history.used()
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to.
    pub fn forget(&mut self, stays: impl Fn(u32) -> bool) -> Result<()> {
        self.history.retain(stays, &self.kernels, &self.work.sketch, &self.stream)
    }

    /// Forgets what the chunks were.
    pub fn forget_chunks(&mut self) {
        self.previous = None;
    }

    /// Forgets what the chunks were, and gives their digests' memory back.
    pub fn drop_chunks(&mut self) {
        self.previous = None;
        self.digests.clear();
    }

    /// Lets nothing refer to a checkpoint that was not taken.
    pub fn undo(&mut self, checkpoint: u32) {
        // What is queued may still use what comes next, unless the device is broken, and then nothing comes.
        drop(self.stream.wait());
        self.previous = None;
        // A history that cannot be told is gone.
        drop(self.history.forget(&[checkpoint], &self.kernels, &self.work.sketch, &self.stream));
    }

    /// A checkpoint has been taken.
    pub fn remember(&mut self, checkpoint: u32, method: Method, pass: &Pass) {
        self.previous = Some(checkpoint);
        if method > Method::Basic {
            self.history.note(checkpoint);
        }
        let ids: HashSet<u64> = pass.forest.trees.iter().map(|tree| tree.region.id).collect();
        self.digests.retain(|id, _| ids.contains(id));
        for tree in &pass.forest.trees {
            if let Some(digests) = self.digests.get_mut(&tree.region.id) {
                digests.chunks = tree.chunks();
            }
        }
    }

    /// Seconds for the digests of all chunks.
    pub fn hash_s(&self, pass: &Pass) -> Result<f64> {
        match pass.parameter.tile_count {
            0 => Ok(0.0),
            _ => self.after_hash.seconds_since(&self.before_hash),
        }
    }

    /// The bits of the chunks that are not as they were, by tiles.
    pub fn changed(&self, pass: &Pass) -> Result<Vec<u32>> {
        let mut words = vec![0; pass.words() as usize];
        self.stream.read(&self.work.bits, bytes_of_mut(&mut words))?;
        Ok(words)
    }

    /// Nothing, if everything is to be stored without a look at it. A history that takes the room of the chunks' digests is
    /// forgotten: without these, everything would be stored with every checkpoint.
    pub fn prepare_or_forget(
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
            self.history.clear();
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
    pub fn find(&mut self, pass: &mut Pass, wanted: Method, short: &mut Short) -> Result<Method> {
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
                let number = [pass.parameter.number];
                self.history.forget(&number, &self.kernels, &self.work.sketch, &self.stream)?;
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
    pub fn amounts(&self, pass: &Pass) -> Result<Amounts> {
        let mut of_tiles = vec![Amount::default(); pass.parameter.tile_count as usize];
        self.stream.read(&self.work.amounts, bytes_of_mut(&mut of_tiles))?;
        let amounts = Amounts::new(of_tiles);
        self.stream.write(&self.work.amounts, bytes_of(amounts.of_tiles()))?;
        Ok(amounts)
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
