//! What the names in a store say about its packs, at one moment.

use std::collections::{HashMap, HashSet};

use crate::{
    Result,
    files::{Files, Kind, MANIFESTS, PackName},
    format::condemned,
};

/// Which packs there are, which count, and which are condemned.
pub(crate) struct Catalog {
    /// The packs of sealed and of retired attempts, in order.
    pub packs: Vec<PackName>,
    /// The packs that later attempts do not share from: up to which number an attempt may.
    pub condemned: HashMap<PackName, u64>,
}

impl Catalog {
    /// Reads the names. Manifests come first: the packs of every manifest seen are in place already. Packs come last:
    /// a list of condemned packs that is gone by now has been worked off, and its packs are gone too.
    pub fn read(files: &Files) -> Result<Self> {
        let names = files.list_kinds(MANIFESTS)?;
        let counted: HashSet<u64> =
            names.iter().filter(|(_, kind)| kind.makes_packs_count()).map(|(id, _)| *id).collect();
        let mut condemned = HashMap::new();
        for (highest, packs) in read_condemned(files, &names)? {
            for pack in packs {
                condemned.entry(pack).and_modify(|old: &mut u64| *old = highest.min(*old)).or_insert(highest);
            }
        }
        let mut packs = files.list_packs()?;
        packs.retain(|name| counted.contains(&name.attempt));
        Ok(Self { packs, condemned })
    }
}

/// The lists of condemned packs among the `names` of manifests, by their numbers.
///
/// A damaged list is passed by: whoever would remove the packs cannot read it either.
pub(crate) fn read_condemned(files: &Files, names: &[(u64, Kind)]) -> Result<Vec<(u64, Vec<PackName>)>> {
    let mut lists = Vec::new();
    for (id, _) in names.iter().filter(|(_, kind)| *kind == Kind::Condemned) {
        let Some(input) = files.open_if_there(&Kind::Condemned.name(*id))? else { continue };
        match condemned::read(&input) {
            Ok(packs) => lists.push((*id, packs)),
            Err(error) if error.is_corrupt() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lists)
}
