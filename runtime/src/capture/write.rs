//! Writing a snapshot: page contents, page lists and regions, while the program runs on.

use ckpt_store::{Attempt, PAGE_BYTES, Store};

use super::files;
use super::page_set::PageSet;
use super::pages::{self, PageSource};
use super::plan::{Base, Known, Plan};
use super::snapshot::{Part, Snapshot, Still, place};
use super::tree::Series;
use super::{Event, LastSealed};
use crate::error::Result;
use crate::host;
use crate::image::{Backing, IMAGE_VERSION, JobImage, PageRange, Region};
use crate::ptrace::read_memory;

/// A snapshot whose pages are in the store.
#[derive(Debug)]
pub struct Written {
    /// The complete image.
    pub image: JobImage,
    /// What the next checkpoint builds on.
    pub base: LastSealed,
    /// Bytes of all pages that are not zero.
    pub memory_bytes: u64,
    /// The program, if it has been stopped all the time.
    pub still: Still,
}

/// Writes all pages of `snapshot` into `attempt`.
pub fn write(
    snapshot: Snapshot,
    series: Option<&mut Series>,
    store: &Store,
    attempt: &mut Attempt,
    events: &mut dyn FnMut(Event),
) -> Result<Written> {
    let Snapshot { mut image, mut objects, parts, files, still } = snapshot;
    let holder = still.holder();
    let source = PageSource::open(holder)?;
    let page_bytes = PAGE_BYTES as u64;
    let mut total_bytes = parts.iter().map(|part| part.plan.read.len()).sum::<u64>() * page_bytes;
    total_bytes += files.bytes_to_read();
    let mut done_bytes = 0;
    let mut base = Base::new();
    let mut memory_bytes = 0;
    if let Some(series) = series {
        let mappings: Vec<_> = parts.iter().filter(|part| part.finer).map(|part| (&part.draft, &part.census)).collect();
        let pages_bytes = total_bytes;
        image.differences = series.store(&mappings, &source, store, attempt, &mut |done, of| {
            (done_bytes, total_bytes) = (done, pages_bytes + of);
            events(Event::Writing { done_bytes, total_bytes });
        })?;
    }
    for Part { draft, census, plan: Plan { mut list, read }, finer, held } in parts {
        match held {
            Some(held) => {
                pages::store_held(&held, &read, attempt, &mut list)?;
                done_bytes += held.len() as u64;
            }
            None => pages::store_from(&source, &place(&draft), &read, attempt, &mut list, &mut |bytes| {
                done_bytes += bytes;
                events(Event::Writing { done_bytes, total_bytes });
            })?,
        }
        memory_bytes += if finer { census.present.len() } else { list.page_count() } * page_bytes;
        let own = match draft.backing {
            Backing::PrivateFile(_) => census.own.clone(),
            _ => PageSet::default(),
        };
        image.regions.push(Region {
            address: draft.mapping.start,
            bytes: draft.mapping.bytes(),
            protection: draft.mapping.protection,
            backing: draft.backing,
            advice: draft.advice,
            name: draft.mapping.name,
            pages: attempt.write_page_list(&list)?,
            own_pages: own.ranges().map(|run| PageRange { first: run.start, count: run.end - run.start }).collect(),
            in_differences: finer,
        });
        if finer {
            continue; // where it is stored as pages the next time, nothing is known of it
        }
        let file = draft.file.map(|stamp| (stamp, draft.mapping.offset));
        base.insert(
            draft.mapping.start,
            Known { list, pages: (draft.mapping.end - draft.mapping.start) / page_bytes, own: census.own, file },
        );
    }
    let files = files::store(files, attempt, &mut objects, &mut |bytes| {
        done_bytes += bytes;
        events(Event::Writing { done_bytes: done_bytes.min(total_bytes), total_bytes });
    })?;
    // A page that cannot be read counts as behind the end of its file, which is true unless its process was killed.
    read_memory(holder, image.control, &mut [0; 8])?;
    let image = JobImage { version: IMAGE_VERSION, host: host::this(), objects, processes: vec![image] };
    Ok(Written { image, base: LastSealed { memory: base, files }, memory_bytes, still })
}
