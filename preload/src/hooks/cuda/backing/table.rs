//! Which pieces there are, and which allocations lie in them.
//!
//! Everything here is done under the lock, and nothing here calls the driver.

use core::sync::atomic::AtomicI32;

use super::ipc::Origin;
use super::nodes::Nodes;
use super::peers::Peers;
use super::pieces::Piece;
use super::places::{Places, UNIT_BYTES};
use super::shown::Shown;
use crate::hooks::cuda::driver::Handle;
use crate::hooks::cuda::index::Index;
use crate::hooks::cuda::lock::Lock;
use crate::shared::Shared;

/// An allocation that libckpt.so has backed, or opened for the program.
#[derive(Clone, Copy)]
pub struct Backed {
    pub address: u64,
    /// Bytes that the program asked for.
    pub bytes: usize,
    /// No other allocation of the program has it, the driver's own included: these count from 1.
    pub id: u64,
    /// As the program has set it (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
    pub sync_memops: bool,
    /// Of another process's memory: whose.
    pub origin: Option<Origin>,
    /// How often that was opened.
    pub opened: u32,
    piece: *mut Piece,
}

/// Ids of allocations are above this, out of the reach of the driver's.
const FIRST_ID: u64 = 1 << 62;

/// What lies at an address.
pub enum Found {
    /// Nothing of ours.
    Nothing,
    /// A piece, but no allocation.
    Unused,
    /// An allocation, and the piece that it is in.
    Allocation(Backed, Piece),
}

/// All there is.
pub struct Table {
    pieces: Index<Piece>,
    allocations: Index<Backed>,
    slabs: *mut Piece,
    last_id: u64,
    /// Who may use whose.
    pub peers: Peers,
    shown: Shown,
    piece_nodes: Nodes<Piece>,
    places_nodes: Nodes<Places>,
    allocation_nodes: Nodes<Backed>,
}

static TABLE: Shared<Table> = Shared::new(Table {
    pieces: Index::new(),
    allocations: Index::new(),
    slabs: core::ptr::null_mut(),
    last_id: 0,
    peers: Peers::new(),
    shown: Shown::new(),
    piece_nodes: Nodes::new(),
    places_nodes: Nodes::new(),
    allocation_nodes: Nodes::new(),
});
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Looks or changes something, alone.
pub fn with<T>(look: impl FnOnce(&mut Table) -> T) -> T {
    let _lock = Lock::of(&OWNER);
    // SAFETY: the lock is ours.
    look(unsafe { &mut *TABLE.get() })
}

/// What lies at an address.
pub fn find(address: u64) -> Found {
    with(|table| table.find(address))
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

impl Table {
    /// Nothing is there any more, and no memory is given back: a child of fork has its parent's.
    pub fn forget_all(&mut self) {
        self.pieces = Index::new();
        self.allocations = Index::new();
        self.slabs = core::ptr::null_mut();
        self.shown.forget_all();
    }

    fn find(&mut self, address: u64) -> Found {
        let Some((_, piece)) = self.pieces.last_to(address) else { return Found::Nothing };
        // SAFETY: what is in the index is live.
        let piece = unsafe { *piece };
        if !piece.has(address) {
            return Found::Nothing;
        }
        match self.allocations.last_to(address) {
            // SAFETY: as above.
            Some((start, found)) if address - start < unsafe { (*found).bytes } as u64 => {
                // SAFETY: as above.
                Found::Allocation(unsafe { *found }, piece)
            }
            _ => Found::Unused,
        }
    }

    /// An allocation in a slab of a context that has room: its address.
    pub fn add_to_slab(&mut self, bytes: usize, context: Handle) -> Option<u64> {
        let mut next = self.slabs;
        // SAFETY: what is in the list is live, and changed under the lock only.
        while let Some(slab) = unsafe { next.as_mut() } {
            let is_open = slab.context == context && !slab.is_ending;
            // SAFETY: a slab's places are live as long as it is.
            let places = unsafe { slab.places.as_mut() }?;
            if is_open && let Some(unit) = places.take(units(bytes)) {
                let address = slab.address + (unit * UNIT_BYTES) as u64;
                if self.add_allocation(address, bytes, next, None) {
                    return Some(address);
                }
                places.give_back(unit, units(bytes));
                return None;
            }
            next = slab.next;
        }
        None
    }

    /// A new slab, and an allocation at its start.
    pub fn add_slab(&mut self, mut piece: Piece, bytes: usize) -> bool {
        let mut places = Places::new();
        let _ = places.take(units(bytes));
        let Some(node) = self.places_nodes.put(places) else { return false };
        piece.places = node;
        let is_added = self.add(piece, piece.address, bytes, None);
        if !is_added {
            self.forget(&piece);
        }
        is_added
    }

    /// A new piece with one allocation. If it is another process's memory, `origin` says whose, and it is not shown to the
    /// agent.
    pub fn add(&mut self, mut piece: Piece, address: u64, bytes: usize, origin: Option<Origin>) -> bool {
        if origin.is_none() {
            let Some(entry) = self.shown.show(piece.address, piece.bytes as u64, piece.device) else { return false };
            piece.entry = entry;
        }
        let Some(node) = self.put_piece(piece) else {
            // SAFETY: just shown.
            unsafe { self.hide(piece.entry) };
            return false;
        };
        if !self.add_allocation(address, bytes, node, origin) {
            self.take_piece(node);
            return false;
        }
        true
    }

    fn put_piece(&mut self, mut piece: Piece) -> Option<*mut Piece> {
        piece.next = self.slabs;
        let node = self.piece_nodes.put(piece)?;
        if !self.pieces.insert(piece.address, node) {
            return None;
        }
        if !piece.places.is_null() {
            self.slabs = node;
        }
        Some(node)
    }

    /// Takes a piece out of everything, but not its allocations.
    fn take_piece(&mut self, node: *mut Piece) -> Piece {
        // SAFETY: the caller has it from the index: it is live, and behind this nobody knows it any more.
        let piece = unsafe { self.piece_nodes.take(node) };
        self.pieces.remove(piece.address);
        let mut link = &raw mut self.slabs;
        // SAFETY: the list's nodes are live; the node's own link has been copied.
        unsafe {
            while !(*link).is_null() {
                if *link == node {
                    *link = piece.next;
                } else {
                    link = &raw mut (**link).next;
                }
            }
        }
        // SAFETY: the piece's own, which no longer has a place.
        unsafe { self.hide(piece.entry) };
        Piece { entry: core::ptr::null_mut(), ..piece }
    }

    /// # Safety
    /// The entry must be null, or that of a piece that is gone.
    unsafe fn hide(&mut self, entry: *mut ckpt_wire::device::Piece) {
        if !entry.is_null() {
            // SAFETY: the caller's word.
            unsafe { self.shown.hide(entry) };
        }
    }

    fn add_allocation(&mut self, address: u64, bytes: usize, piece: *mut Piece, origin: Option<Origin>) -> bool {
        self.last_id += 1;
        let backed =
            Backed { address, bytes, id: FIRST_ID + self.last_id, sync_memops: false, origin, opened: 1, piece };
        let Some(node) = self.allocation_nodes.put(backed) else { return false };
        self.allocations.insert(address, node)
    }

    fn take_allocation(&mut self, address: u64) -> Option<Backed> {
        let node = self.allocations.remove(address)?;
        // SAFETY: what was in the index is live, and nobody knows it any more.
        Some(unsafe { self.allocation_nodes.take(node) })
    }

    /// Takes the allocation out that begins at `address`, and its piece if that was all in it: the caller ends that, or puts
    /// both back.
    pub fn remove(&mut self, address: u64) -> Option<(Backed, Option<Piece>)> {
        let backed = self.take_allocation(address)?;
        // SAFETY: an allocation's piece is live.
        let (start, places) = unsafe { ((*backed.piece).address, (*backed.piece).places) };
        // SAFETY: as above, and a slab's places.
        if let Some(places) = unsafe { places.as_mut() }
            && !places.has_only(units(backed.bytes))
        {
            places.give_back((address - start) as usize / UNIT_BYTES, units(backed.bytes));
            return Some((backed, None));
        }
        Some((backed, Some(self.take_piece(backed.piece))))
    }

    /// A piece that was taken out has been ended.
    pub fn forget(&mut self, piece: &Piece) {
        if !piece.places.is_null() {
            // SAFETY: nobody but the piece had it.
            unsafe { self.places_nodes.take(piece.places) };
        }
    }

    /// Puts back what could not be ended.
    pub fn put_back(&mut self, backed: &Backed, piece: Piece) {
        if self.add(piece, backed.address, backed.bytes, backed.origin) {
            self.change(backed.address, |again| {
                *again = Backed { piece: again.piece, ..*backed };
            });
        }
    }

    /// Changes what is known of the allocation at `address`.
    pub fn change(&mut self, address: u64, change: impl FnOnce(&mut Backed)) {
        if let Some((found, node)) = self.allocations.last_to(address)
            && found == address
        {
            // SAFETY: what is in the index is live.
            change(unsafe { &mut *node });
        }
    }

    /// The allocation that was opened in a context from there.
    pub fn opened(&mut self, origin: &Origin, context: Handle) -> Option<&mut Backed> {
        let mut next = self.allocations.first_from(0);
        while let Some((address, node)) = next {
            // SAFETY: what is in the index is live, and its piece.
            let found = unsafe { &mut *node };
            // SAFETY: as above.
            if found.origin.as_ref() == Some(origin) && unsafe { (*found.piece).context } == context {
                return Some(found);
            }
            next = self.allocations.first_from(address + 1);
        }
        None
    }

    /// The first piece from `address` on that is in a context.
    pub fn piece_from(&mut self, address: u64, context: Handle) -> Option<&mut Piece> {
        let mut next = self.pieces.first_from(address);
        while let Some((address, node)) = next {
            // SAFETY: what is in the index is live.
            let piece = unsafe { &mut *node };
            if piece.context == context {
                return Some(piece);
            }
            next = self.pieces.first_from(address + 1);
        }
        None
    }

    /// The first piece from `address` on, in whatever context.
    pub fn any_piece_from(&mut self, address: u64) -> Option<&mut Piece> {
        let (_, node) = self.pieces.first_from(address)?;
        // SAFETY: what is in the index is live.
        Some(unsafe { &mut *node })
    }

    /// The piece that an address lies in.
    pub fn piece_at(&mut self, address: u64) -> Option<&mut Piece> {
        let (_, node) = self.pieces.last_to(address)?;
        // SAFETY: what is in the index is live.
        Some(unsafe { &mut *node }).filter(|piece| piece.has(address))
    }

    /// Takes a piece out whose context has ended, and all its allocations.
    pub fn take_ended(&mut self, context: Handle) -> Option<Piece> {
        let mut from = 0;
        loop {
            let piece = self.piece_from(from, context)?;
            let (start, bytes) = piece.range();
            if !piece.is_ending {
                from = start + bytes as u64;
                continue;
            }
            let node: *mut Piece = piece;
            while let Some((address, _)) = self.allocations.first_from(start)
                && address - start < bytes as u64
            {
                self.take_allocation(address);
            }
            return Some(self.take_piece(node));
        }
    }
}
