//! `ckpt extract`: the bytes of a mapping, an allocation or a captured file, out of a checkpoint.

mod named;
mod npy;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::progress_bar::{Progress, Unit};
use super::{default_store, which_checkpoint};
use crate::differences::WINDOW_BYTES;
use crate::error::{Error, Result, exit_code};
use crate::image::Image;
use crate::outlet::Unfinished;
use crate::stored_content::StoredContent;
use crate::{audit, core_dumps, location, mapped_files};
use named::{Extent, Source};

/// Write the content of a region of a checkpoint (a mapping, an allocation, a captured file) to a file
#[derive(Args)]
#[command(override_usage = "ckpt extract [OPTIONS] --region <R> --output <FILE> [DIR] N")]
#[command(after_help = "\
R is an id or an address as `ckpt show --json` prints it: 17 is an allocation, m4 a mapping, f2 a file whose
content was captured, 0x7f1c2e000010 the allocation that begins there, or else the mapping.

Examples:
  ckpt extract ckpt-store 3 --region 17 -o grid.bin
  ckpt extract ckpt-store 3 --region 0x7f1c2e000010 -o grid.npy --dtype f8    for numpy.load
  ckpt extract ckpt-store 3 --region f2 -o log.txt
  ckpt extract ckpt-store 3 --region m4 -o - | xxd | less")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX [default: $CKPT_DIR or ./ckpt-store], and the checkpoint
    #[arg(required = true, num_args = 1..=2, value_name = "[DIR] N")]
    place: Vec<OsString>,
    /// The region
    #[arg(long, value_name = "R")]
    region: String,
    /// Where to: a file, which is replaced if it is there, or - for standard output; NAME.npy is written as an array
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Type of the elements of a .npy file: u1, i4, f4, f8 ...
    #[arg(long, default_value = "u1")]
    dtype: String,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, ids) = default_store::with_checkpoints(&arguments.place, 1)?;
    audit::of_store("extract", &dir, |record| {
        record.number("checkpoint", ids[0]).text("region", &arguments.region);
        extract(arguments, &dir, ids[0])
    })
}

fn extract(arguments: &Arguments, dir: &Path, id: u64) -> Result<u8> {
    let store = location::open(dir)?;
    let id = which_checkpoint::select(dir, &store.attempts()?, Some(id), None)?;
    mapped_files::settle(&store, id)?;
    let image = Image::of(&store.manifest(id)?)?;
    let content = StoredContent::of(&image, &store)?;
    let extent = named::find(&image, &content, &store, &arguments.region)?;
    let is_array = arguments.output.extension().is_some_and(|extension| extension == "npy");
    let head = if is_array { npy::head(&arguments.dtype, extent.bytes())? } else { Vec::new() };
    let source = Source { content: &content, store: &store };
    if arguments.output == Path::new("-") {
        write(&mut std::io::stdout().lock(), &head, &extent, &source, &arguments.output)?;
    } else {
        write_file(&arguments.output, &head, &extent, &source)?;
    }
    Ok(exit_code::DONE)
}

/// Writes a file that is there whole or not at all, and for its owner alone.
fn write_file(path: &Path, head: &[u8], extent: &Extent, source: &Source<'_>) -> Result<()> {
    let unfinished = Unfinished::create(path, ".ckpt-partial").map_err(|source| Error::io("create", path, source))?;
    let file = &unfinished.file;
    write(&mut BufWriter::new(file), head, extent, source, path)?;
    file.sync_all().map_err(|source| Error::io("sync", path, source))?;
    unfinished.publish().map_err(|source| Error::io("rename to", path, source))
}

fn write(to: &mut dyn Write, head: &[u8], extent: &Extent, source: &Source<'_>, path: &Path) -> Result<()> {
    let failed = |source| Error::io("write", path, source);
    let mut bar = Progress::start();
    let mut window = vec![0; WINDOW_BYTES];
    to.write_all(head).map_err(failed)?;
    let mut done = 0;
    while done < extent.bytes() {
        let part = &mut window[..(extent.bytes() - done).min(WINDOW_BYTES as u64) as usize];
        extent.read(source, done, part)?;
        to.write_all(part).map_err(failed)?;
        done += part.len() as u64;
        bar.update("extracting", done, extent.bytes(), Unit::Bytes);
    }
    bar.end();
    to.flush().map_err(failed)
}
