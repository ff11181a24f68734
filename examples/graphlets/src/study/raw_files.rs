//! States as files of their bytes, for programs that compress them otherwise.
//!
//! In the folder, GRAPH-ORDER.states.csv has a line for each checkpoint of each series: what the graph is, how many
//! checkpoints the series has, and the file of the state. Series share states, so a file may be named more than once.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use zerocopy::IntoBytes;

use super::{Error, Result, Subject, states::States};

const COLUMNS: &str = "graph,order,vertices,edges,checkpoints,file";

/// Writes the states of a graph for series of so many checkpoints.
///
/// # Errors
/// [`Error::State`], which names what cannot be written.
pub fn write(folder: &Path, subject: &Subject<'_>, numbers: &BTreeSet<u32>, states: &States) -> Result<()> {
    let failed = |path: &Path| {
        let path: PathBuf = path.into();
        move |source| Error::State { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let graph = format!("{}-{}", subject.family.name(), subject.order);
    let file_after = |roots: u32| format!("{graph}-{roots}.raw");
    for (roots, state) in states.all() {
        let path = folder.join(file_after(roots));
        fs::write(&path, state.as_bytes()).map_err(failed(&path))?;
    }
    let line = |number: u32, roots| format!("{subject},{number},{}\n", file_after(roots));
    let lines = numbers.iter().flat_map(|number| states.pauses(*number).map(|roots| line(*number, roots)));
    let path = folder.join(format!("{graph}.states.csv"));
    fs::write(&path, format!("{COLUMNS}\n{}", lines.collect::<String>())).map_err(failed(&path))
}
