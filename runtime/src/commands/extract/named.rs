//! Which region a person means.

use crate::error::{Error, Result};
use crate::image::{Allocation, AllocationKind, Region};

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What `name` means among these: the id of an allocation, m and the id of a mapping, or an address with 0x.
///
/// # Errors
/// When there is none, or its content is not in the checkpoint.
pub fn find(allocations: &[Allocation], regions: &[Region], name: &str) -> Result<Extent> {
    let none = || {
        let message = format!("--region {name}: the checkpoint has no such region; ckpt show --json lists them");
        Error::Usage(message)
    };
    let allocation = |allocation: &Allocation| match allocation.kind {
        AllocationKind::Heap => Ok(Extent { address: allocation.address, bytes: allocation.bytes }),
        AllocationKind::Cuda(..) => Err(Error::unsupported(
            format!("--region {name}, memory of the CUDA driver"),
            "its content is not in a checkpoint of this kind",
            "extract memory of the host",
        )),
    };
    let mapping = |region: &Region| Extent { address: region.address, bytes: region.bytes };
    if let Some(address) = name.strip_prefix("0x") {
        let address = u64::from_str_radix(address, 16).map_err(|_| none())?;
        return match allocations.iter().find(|allocation| allocation.address == address) {
            Some(found) => allocation(found),
            None => regions.iter().find(|region| region.address == address).map(mapping).ok_or_else(none),
        };
    }
    if let Some(index) = name.strip_prefix('m') {
        let index: usize = index.parse().map_err(|_| none())?;
        return regions.get(index).map(mapping).ok_or_else(none);
    }
    let id: u64 = name.parse().map_err(|_| none())?;
    allocations.iter().find(|allocation| allocation.id == id).ok_or_else(none).and_then(allocation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_store::{PageList, Store};

    use crate::error::exit_code;
    use crate::image::{Advice, Backing};

    fn region(address: u64, bytes: u64) -> Region {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
        let start = ckpt_store::AttemptStart { job, name, trigger, started_unix_ms: 0, processes: 1 };
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
        let find = |name: &str| find(&allocations, &regions, name);
        let found = |name: &str| find(name).unwrap();
        assert_eq!(found("1"), Extent { address: address + 16, bytes: 99 });
        assert_eq!(found(&format!("{:#x}", address + 16)), Extent { address: address + 16, bytes: 99 });
        assert_eq!(
            found(&format!("{address:#x}")),
            Extent { address, bytes: 99 },
            "an allocation goes before a mapping"
        );
        assert_eq!(found("m1"), Extent { address, bytes });
        assert_eq!(found("0x1000"), Extent { address: 0x1000, bytes: 0x1000 });
        for name in ["2", "m99", "0x1", "x", "m", "0x", "-1", ""] {
            assert_eq!(find(name).unwrap_err().exit_code(), exit_code::USAGE, "{name}");
        }
        assert_eq!(find("8").unwrap_err().exit_code(), exit_code::UNSUPPORTED);
    }
}
