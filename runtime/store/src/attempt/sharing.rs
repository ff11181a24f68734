//! What an attempt refers to instead of writing it.
//!
//! To share is what a store is for; to share less is how the cost of not doing so is measured. Whatever is chosen, the
//! checkpoint is one like any other: a page that is there several times is found in one of its places, by all.

/// What an attempt refers to instead of writing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// Everything in the store, and what it wrote itself.
    #[default]
    WithAll,
    /// Only what it wrote itself.
    WithItself,
    /// Page lists, of which a list's unchanged parts cost nothing. Each page that it is given it writes.
    OnlyLists,
    /// Nothing. Each page that it is given it writes, and page lists that the store has once more; only of these, what
    /// it wrote itself is not written twice.
    WithNothing,
}

impl Sharing {
    /// Whether a page is not written that other attempts have sealed.
    pub(super) fn finds_pages(self) -> bool {
        self == Self::WithAll
    }

    /// Whether a page is not written that the attempt itself has written.
    pub(super) fn finds_own_pages(self) -> bool {
        matches!(self, Self::WithAll | Self::WithItself)
    }

    /// Whether a node of a page list is not written that other attempts have sealed.
    pub(super) fn finds_nodes(self) -> bool {
        matches!(self, Self::WithAll | Self::OnlyLists)
    }
}
