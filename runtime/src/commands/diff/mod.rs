//! `ckpt diff`: what changed between two checkpoints, by region.
//!
//! Of regions page lists are compared and no page is read: two pages are the same when their keys are. Regions are matched
//! by the addresses they cover, since that is what the program's pointers mean. Allocations are matched by their numbers,
//! and what may have changed of them is read.

mod allocations;
mod regions;
mod text;
mod view;

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use super::store_owner::read_as_owner;
use super::{default_store, print, print_json, which_checkpoint};
use crate::error::{Error, Result, exit_code};
use crate::image::Image;
use crate::stored_content::StoredContent;
use crate::{audit, core_dumps, location, mapped_files};
use view::DiffView;

/// Show what changed from one checkpoint to another, by region
#[derive(Args)]
#[command(override_usage = "ckpt diff [OPTIONS] [DIR] A B")]
#[command(after_help = "\
A page has changed, or was added where all was zero or nothing was mapped, or is gone, zero or not mapped
now. A region is changed (pages, protection or what is mapped), resized (it covers other addresses: grown,
shrunk, split or joined), only in A, only in B, or the same. Regions that were stored by --method tree are
not compared, and their pages are not counted. Large allocations of the heap are compared byte by byte, wherever
they lie and however they are stored; they are matched by their numbers, which only checkpoints of one job share.
Checkpoints of data (--data) have allocations alone, those of GPUs too; one may be compared with a full one.

Examples:
  ckpt diff ckpt-store 1 2
  ckpt diff ckpt-store 1 2 --all       unchanged regions too
  ckpt diff ckpt-store 1 2 --json | jq .totals.pages_changed

The exit code is 0 whether or not something differs.")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX [default: $CKPT_DIR or ./ckpt-store]; the checkpoint to start from; the
    /// checkpoint to compare with it, which may be older, or another job's
    #[arg(required = true, num_args = 2..=3, value_name = "[DIR] A B")]
    place: Vec<OsString>,
    /// Show the regions that are the same, too
    #[arg(long)]
    all: bool,
    /// One JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, ids) = default_store::with_checkpoints(&arguments.place, 2)?;
    let [a, b] = ids[..] else { return Err(Error::Usage("name two checkpoints to compare".to_owned())) };
    audit::of_store("diff", &dir, |record| {
        record.number("checkpoint", a).number("with", b);
        read_as_owner(&dir, || diff(arguments, &dir, (a, b)))
    })
}

fn diff(arguments: &Arguments, dir: &Path, (a, b): (u64, u64)) -> Result<u8> {
    let store = location::open(dir)?;
    let attempts = store.attempts()?;
    let sealed = |id| {
        let id = which_checkpoint::select(dir, &attempts, Some(id), None)?;
        mapped_files::settle(&store, id)?;
        let manifest = store.manifest(id)?;
        let image = Image::of(&manifest)?;
        Ok::<_, crate::error::Error>((manifest.row, image))
    };
    let (a, b) = (sealed(a)?, sealed(b)?);
    let regions = match (&a.1, &b.1) {
        (Image::Job(a), Image::Job(b)) => {
            let (a, b) = (a.root(), b.root());
            let same_differences = a.differences == b.differences;
            regions::compare(&a.regions, &b.regions, same_differences, &|list| Ok(store.page_list(list)?))?
        }
        // Of data there are no regions to compare.
        _ => Vec::new(),
    };
    let contents = (StoredContent::of(&a.1, &store)?, StoredContent::of(&b.1, &store)?);
    let allocations = match a.0.job == b.0.job {
        true => allocations::compare((a.1.allocations(), &contents.0), (b.1.allocations(), &contents.1))?,
        false => Vec::new(),
    };
    let view = DiffView::new((&a.0, &a.1), (&b.0, &b.1), &regions, &allocations, arguments.all);
    if arguments.json {
        print_json(&view)?
    } else {
        print(&text::render(&view))?
    }
    Ok(exit_code::DONE)
}
