//! Named places right after every operation that changes a file system: where a test may kill the process.
//!
//! `set_hook` gives the process one function that is called with the name of each point as it is passed. The names are
//! constants made by one macro together with the list, `point` takes nothing but such a constant, and a constant that
//! no code passes is a compiler warning: so the list and the calls cannot diverge.

use std::sync::OnceLock;

static HOOK: OnceLock<fn(&'static str)> = OnceLock::new();

/// A place in the order of writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point(&'static str);

/// Installs the process-wide hook. The first one stays.
pub fn set_hook(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}

/// Tells the hook that the operation named by `point` has just been done.
#[inline]
pub(crate) fn point(point: Point) {
    if let Some(hook) = HOOK.get() {
        hook(point.0);
    }
}

macro_rules! fault_points {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(crate) const $constant: Point = Point($name);)*
        /// Every fault point, in the order in which a store that is created, written to and sealed passes them first.
        pub const FAULT_POINTS: &[&str] = &[$($name),*];
    };
}

fault_points! {
    DIRECTORY_CREATE = "store.directory.create";
    HEADER_CREATE = "store.header.create";
    HEADER_WRITE = "store.header.write";
    HEADER_SYNC = "store.header.sync";
    HEADER_RENAME = "store.header.rename";
    ROOT_SYNC = "store.root.sync";
    LEFTOVER_REMOVE = "store.leftover.remove";
    ROW_CREATE = "store.row.create";
    ROW_WRITE = "store.row.write";
    ROW_RENAME = "store.row.rename";
    PACK_CREATE = "store.pack.create";
    PACK_WRITE = "store.pack.write";
    PACK_SYNC = "store.pack.sync";
    PACKS_SYNC = "store.packs.sync";
    NAMES_SYNC = "store.names.sync";
    MANIFEST_CREATE = "store.manifest.create";
    MANIFEST_WRITE = "store.manifest.write";
    MANIFEST_SYNC = "store.manifest.sync";
    MANIFEST_RENAME = "store.manifest.rename";
    MANIFESTS_SYNC = "store.manifests.sync";
    ROW_REMOVE = "store.row.remove";
    PACK_REMOVE = "store.pack.remove";
    FAILED_CREATE = "store.failed.create";
    FAILED_WRITE = "store.failed.write";
    FAILED_SYNC = "store.failed.sync";
    FAILED_RENAME = "store.failed.rename";
    ROWS_SYNC = "store.rows.sync";
    RETIRED_RENAME = "store.retired.rename";
    FAILED_REMOVE = "store.failed.remove";
    CONDEMNED_CREATE = "store.condemned.create";
    CONDEMNED_WRITE = "store.condemned.write";
    CONDEMNED_SYNC = "store.condemned.sync";
    CONDEMNED_RENAME = "store.condemned.rename";
    CONDEMNED_REMOVE = "store.condemned.remove";
    RETIRED_REMOVE = "store.retired.remove";
}

#[cfg(test)]
mod tests {
    use super::FAULT_POINTS;

    #[test]
    fn no_two_fault_points_share_a_name() {
        let names: std::collections::HashSet<_> = FAULT_POINTS.iter().collect();
        assert_eq!(names.len(), FAULT_POINTS.len());
    }
}
