//! What checkpoints of the counters cost: by method, by length of chunks, and by how many are taken.
//!
//! A graph is counted once. The array is copied wherever a checkpoint of any series is due, and all series are made from
//! these copies, so that they see the same bytes. What is timed is finding a difference and copying what is to be stored
//! into memory that is there already; on a device, where each state is before the clock starts, that copy is the transfer to the
//! host. Of every series the checkpoint in
//! the middle and the last one are restored and compared.

mod compressed;
mod deduplicated;
mod error;
mod finder;
mod on_device;
mod raw_files;
mod series;
mod states;

use std::{collections::BTreeSet, fmt, io::Write, path::PathBuf};

use ckpt_kernels::merkle::Method;

pub use error::{Error, Result};
pub use series::{Cost, Series};

use crate::{families::Family, graph::Graph, machinery::Machinery};
use compressed::Codec;
use states::States;

/// What to study.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A series for each of these lengths, in bytes, ...
    pub chunks: Vec<u32>,
    /// ... of so many checkpoints.
    pub checkpoints: u32,
    /// And a series for each of these numbers of checkpoints, ...
    pub frequencies: Vec<u32>,
    /// ... with each of these lengths.
    pub frequency_chunks: Vec<u32>,
    /// How often each series is made; the best time of each checkpoint counts.
    pub repeats: u32,
    /// What counts, and what finds differences.
    pub machinery: Machinery,
    /// A folder into which all states are written, for who compresses them otherwise.
    pub states: Option<PathBuf>,
}

/// A graph with what tables call it.
pub struct Subject<'a> {
    /// Where it is from.
    pub family: Family,
    /// How its vertices are ordered.
    pub order: &'a str,
    /// Itself.
    pub graph: &'a Graph,
}

/// The first columns of a table.
impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edges = self.graph.all_neighbours().len() / 2;
        write!(formatter, "{},{},{},{edges}", self.family.name(), self.order, self.graph.vertices())
    }
}

/// The first line of a table.
pub const COLUMNS: &str = "graph,order,vertices,edges,chunk_bytes,checkpoints,method,original_bytes,data_bytes,\
    metadata_bytes,ratio,seconds,gb_per_s,ratio_with_first,gb_per_s_with_first,peak";

impl Plan {
    /// Writes the lines about one graph.
    ///
    /// # Errors
    /// [`Error::Differs`] when a checkpoint was not restored as it was; when a length of chunks is none; of a device; of `table`.
    pub fn study(&self, subject: &Subject<'_>, table: &mut impl Write) -> Result<()> {
        let numbers: BTreeSet<u32> = self.frequencies.iter().copied().chain([self.checkpoints]).collect();
        let states = States::count(&self.machinery, subject.graph, &numbers)?;
        if let Some(folder) = &self.states {
            raw_files::write(folder, subject, &numbers, &states)?;
        }
        for checkpoints in numbers {
            let states = states.of(checkpoints);
            line(table, subject, None, "full", &self.deduplicated(Method::Full, None, &states)?)?;
            for codec in Codec::EVERY {
                line(table, subject, None, codec.name(), &self.compressed(codec, &states)?)?;
            }
            for chunk in self.chunks_for(checkpoints) {
                for (name, method) in [("basic", Method::Basic), ("list", Method::List), ("tree", Method::Tree)] {
                    let series = self.deduplicated(method, Some(chunk), &states)?;
                    line(table, subject, Some(chunk), name, &series)?;
                }
            }
        }
        Ok(())
    }

    fn deduplicated(&self, method: Method, chunk: Option<u32>, states: &[&[u32]]) -> Result<Series> {
        let first = deduplicated::series(&self.machinery, method, chunk, states)?;
        let again = || deduplicated::again(&self.machinery, method, chunk, states);
        (1..self.repeats).try_fold(first, |best, _| Ok(best.with_best_times(&again()?)))
    }

    fn compressed(&self, codec: Codec, states: &[&[u32]]) -> Result<Series> {
        let first = compressed::series(codec, states)?;
        (1..self.repeats).try_fold(first, |best, _| Ok(best.with_best_times(&compressed::series(codec, states)?)))
    }

    fn chunks_for(&self, checkpoints: u32) -> BTreeSet<u32> {
        let all = Some(&self.chunks).filter(|_| checkpoints == self.checkpoints);
        let some = Some(&self.frequency_chunks).filter(|_| self.frequencies.contains(&checkpoints));
        all.into_iter().chain(some).flatten().copied().collect()
    }
}

fn line(
    table: &mut impl Write,
    subject: &Subject<'_>,
    chunk: Option<u32>,
    method: &str,
    series: &Series,
) -> Result<()> {
    let (later, all) = (series.later(), series.all());
    let chunk = chunk.map_or_else(String::new, |bytes| bytes.to_string());
    let peak = series.peak().map_or_else(String::new, |peak| format!("{peak:.3}"));
    write!(table, "{subject},{chunk},{},{method},", series.checkpoints())?;
    write!(table, "{},{},{},", later.original_bytes, later.data_bytes, later.metadata_bytes)?;
    write!(table, "{:.3},{:.6},{:.3},", later.ratio(), later.seconds, later.gigabytes_per_second())?;
    writeln!(table, "{:.3},{:.3},{peak}", all.ratio(), all.gigabytes_per_second())?;
    table.flush()?;
    Ok(())
}
