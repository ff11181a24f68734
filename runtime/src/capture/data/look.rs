//! What the kernel says of the pages that allocations lie on.

use ckpt_store::Depth;

use super::parts::Part;
use super::seen_pages::SeenPages;
use crate::capture::tracking::{Scanner, Tracker};
use crate::capture::unseen::Unseen;
use crate::error::Result;
use crate::proc::maps::Mapping;

/// Looks at all private mappings that `parts` lie in; both ascend.
///
/// # Errors
/// When the process cannot be looked at.
pub fn look(
    pid: i32,
    parts: &[Part],
    mappings: &[Mapping],
    tracker: Option<(&Tracker, &mut Unseen)>,
) -> Result<SeenPages> {
    let mut look = SeenPages::default();
    let Some((tracker, unseen)) = tracker else { return Ok(look) };
    let scanner = Scanner::open(pid)?;
    for mapping in mappings.iter().filter(|mapping| !mapping.shared && has_part(mapping, parts)) {
        let pages = mapping.pages();
        let census = unseen.look(Depth::Data, &scanner, tracker, mapping)?.census;
        look.present = look.present.union(&census.present.shifted(pages.start));
        if let Some(written) = census.written {
            look.written = look.written.union(&written.shifted(pages.start));
            look.watched.push(pages);
        }
    }
    Ok(look)
}

fn has_part(mapping: &Mapping, parts: &[Part]) -> bool {
    let first = parts.partition_point(|part| part.end() <= mapping.start);
    parts.get(first).is_some_and(|part| part.address < mapping.end)
}
