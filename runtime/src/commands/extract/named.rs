//! Which region a person means.

use ckpt_store::Store;

use crate::error::{Error, Result};
use crate::image::{Allocation, CapturedKind, FileContent, Image, Region};
use crate::stored_content::StoredContent;
use crate::stored_file::StoredFile;

/// Where content comes from.
pub struct Source<'a> {
    /// That of allocations and mappings.
    pub content: &'a StoredContent<'a>,
    /// That of files.
    pub store: &'a Store,
}

/// What a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// An allocation.
    Allocation(Allocation),
    /// A mapping: its first address, and its bytes.
    Mapping(u64, u64),
    /// A captured file.
    File(StoredFile),
}

impl Extent {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        match self {
            Extent::Allocation(allocation) => allocation.bytes,
            Extent::Mapping(_, bytes) => *bytes,
            Extent::File(file) => file.bytes(),
        }
    }

    /// Fills `to` with its bytes, from an offset on.
    ///
    /// # Errors
    /// The store's.
    pub fn read(&self, source: &Source<'_>, offset: u64, to: &mut [u8]) -> Result<()> {
        match (self, source.content) {
            (Extent::File(file), _) => file.read(source.store, offset, to),
            (Extent::Allocation(allocation), content) => content.read(allocation, offset, to),
            (Extent::Mapping(address, _), StoredContent::Full(memory, _)) => memory.read(address + offset, to),
            (Extent::Mapping(address, _), StoredContent::Data(_)) => {
                Err(Error::Usage(format!("{address:#x}: a checkpoint of data has no mappings")))
            }
        }
    }
}

/// What `name` means in this image: the id of an allocation, m and the id of a mapping, f and the id of a
/// captured file, or an address with 0x.
///
/// # Errors
/// When there is none, or its content is not in the checkpoint.
pub fn find(image: &Image, content: &StoredContent<'_>, store: &Store, name: &str) -> Result<Extent> {
    if let Some(content) = file(image, name) {
        return Ok(Extent::File(StoredFile::of(content, store)?));
    }
    let found = named(image.allocations(), regions_of(image), name)?;
    if let Extent::Allocation(allocation) = &found
        && let Some(why) = content.why_missing(allocation)
    {
        let advice = "`ckpt show --json` says of each allocation whether its content is there";
        return Err(Error::unsupported(format!("--region {name}"), why, advice));
    }
    Ok(found)
}

fn file<'a>(image: &'a Image, name: &str) -> Option<&'a FileContent> {
    let Image::Job(image) = image else { return None };
    let objects = &image.objects;
    let index: usize = name.strip_prefix('f')?.parse().ok()?;
    let unlinked = || objects.unlinked_files.get(index - objects.captured_files.len()).map(|file| &file.content);
    match objects.captured_files.get(index) {
        Some(file) => match &file.kind {
            CapturedKind::Regular { content, .. } => Some(content),
            CapturedKind::Directory | CapturedKind::SymbolicLink { .. } => None,
        },
        None => unlinked(),
    }
}

fn regions_of(image: &Image) -> &[Region] {
    match image {
        Image::Job(image) => &image.root().regions,
        Image::Data(_) => &[],
    }
}

fn named(allocations: &[Allocation], regions: &[Region], name: &str) -> Result<Extent> {
    let none = || {
        let message = format!("--region {name}: the checkpoint has no such region; ckpt show --json lists them");
        Error::Usage(message)
    };
    let allocation = |found: &Allocation| Extent::Allocation(*found);
    let mapping = |region: &Region| Extent::Mapping(region.address, region.bytes);
    if let Some(address) = name.strip_prefix("0x") {
        let address = u64::from_str_radix(address, 16).map_err(|_| none())?;
        let of_mapping = || regions.iter().find(|region| region.address == address).map(mapping);
        let of_allocation = allocations.iter().find(|allocation| allocation.address == address).map(allocation);
        return of_allocation.or_else(of_mapping).ok_or_else(none);
    }
    if let Some(index) = name.strip_prefix('m') {
        let index: usize = index.parse().map_err(|_| none())?;
        return regions.get(index).map(mapping).ok_or_else(none);
    }
    let id: u64 = name.parse().map_err(|_| none())?;
    allocations.iter().find(|allocation| allocation.id == id).map(allocation).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_store::{PageList, Store};

    use crate::error::exit_code;
    use crate::image::{Advice, AllocationKind, Backing};

    fn region(address: u64, bytes: u64) -> Region {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
        let start = ckpt_store::AttemptStart { job, name, trigger, processes: 1, ..Default::default() };
        let pages = store.begin(start).unwrap().write_page_list(&PageList::new()).unwrap();
        Region {
            address,
            bytes,
            protection: 3,
            backing: Backing::Anonymous,
            advice: Advice::default(),
            name: Vec::new(),
            pages,
            own_pages: Vec::new(),
            follows: None,
            guards: Vec::new(),
            pending: None,
            in_differences: false,
        }
    }

    #[test]
    fn ids_and_addresses_name_allocations_and_mappings() {
        let (address, bytes) = (0x7000, 0x3000);
        let regions = [region(0x1000, 0x1000), region(address, bytes)];
        let allocation = |id, address, kind| Allocation { id, address, bytes: 99, call_site: 0, kind };
        let allocations = [
            allocation(1, address + 16, AllocationKind::Heap),
            allocation(7, address, AllocationKind::Heap),
            allocation(8, 0x30_0000, AllocationKind::Cuda(1, 0)),
        ];
        let find = |name: &str| named(&allocations, &regions, name);
        let found = |name: &str| find(name).unwrap();
        assert_eq!(found("1"), Extent::Allocation(allocations[0]));
        assert_eq!(found(&format!("{:#x}", address + 16)), Extent::Allocation(allocations[0]));
        let here = format!("{address:#x}");
        assert_eq!(found(&here), Extent::Allocation(allocations[1]), "an allocation goes before a mapping");
        assert_eq!(found("m1"), Extent::Mapping(address, bytes));
        assert_eq!(found("0x1000"), Extent::Mapping(0x1000, 0x1000));
        assert_eq!(found("8").bytes(), 99);
        for name in ["2", "m99", "0x1", "x", "m", "0x", "-1", ""] {
            assert_eq!(find(name).unwrap_err().exit_code(), exit_code::USAGE, "{name}");
        }
    }
}
