//! Which contexts may use memory of which others, on another device.
//!
//! `cuCtxEnablePeerAccess` lets a context use all that is allocated in another one, then and later. What is mapped must be
//! made accessible to the other device, piece by piece: those that are there when access is enabled, and each new one.

use core::ffi::c_int;

use super::calls::{self, NO_ACCESS, PEER_ACCESS_UNSUPPORTED, READ_AND_WRITE};
use super::pieces::Piece;
use super::table::with;
use crate::hooks::cuda::driver::{CuResult, Handle, SUCCESS};

/// Pairs of contexts that there can be.
const PAIRS_MAX: usize = 1024;

/// A context on a device may use the memory of another context.
#[derive(Clone, Copy)]
struct Pair {
    user: Handle,
    device: c_int,
    owner: Handle,
}

/// All pairs.
pub struct Peers {
    pairs: [Option<Pair>; PAIRS_MAX],
}

impl Peers {
    /// None yet.
    pub const fn new() -> Self {
        Self { pairs: [None; PAIRS_MAX] }
    }

    fn add(&mut self, pair: Pair) -> bool {
        let free = self.pairs.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(pair)).is_some()
    }

    fn remove_where(&mut self, is_gone: impl Fn(&Pair) -> bool) {
        for place in &mut self.pairs {
            if place.as_ref().is_some_and(&is_gone) {
                *place = None;
            }
        }
    }

    fn may_use(&self, device: c_int, owner: Handle) -> bool {
        self.pairs.iter().flatten().any(|pair| pair.device == device && pair.owner == owner)
    }

    /// The first device from `from` on that may use the memory of a context.
    fn device_from(&self, from: c_int, owner: Handle) -> Option<c_int> {
        let all = self.pairs.iter().flatten().filter(|pair| pair.owner == owner && pair.device >= from);
        all.map(|pair| pair.device).min()
    }

    /// A context has ended.
    pub fn forget(&mut self, context: Handle) {
        self.remove_where(|pair| pair.user == context || pair.owner == context);
    }
}

/// The current context may now use the memory of `owner`. If a piece cannot be made accessible, `undo` is what takes the
/// right back, and the program is told that the devices are not peers.
pub fn enabled(owner: Handle, undo: impl FnOnce() -> CuResult) -> CuResult {
    let (Ok(user), Ok(device)) = (calls::current_context(), calls::current_device()) else { return SUCCESS };
    let added = with(|table| table.peers.add(Pair { user, device, owner }));
    if added && set_all(owner, device, READ_AND_WRITE).is_ok() {
        return SUCCESS;
    }
    disabled(owner);
    let _ = undo();
    PEER_ACCESS_UNSUPPORTED
}

/// The current context may no longer do so.
pub fn disabled(owner: Handle) {
    let (Ok(user), Ok(device)) = (calls::current_context(), calls::current_device()) else { return };
    let is_last = with(|table| {
        table.peers.remove_where(|pair| pair.user == user && pair.owner == owner);
        !table.peers.may_use(device, owner)
    });
    if is_last {
        let _ = set_all(owner, device, NO_ACCESS);
    }
}

/// A new piece is to be used by those who may use its context's memory.
pub fn let_in(piece: &Piece) -> Result<(), CuResult> {
    let mut from = 0;
    while let Some(device) = with(|table| table.peers.device_from(from, piece.context)) {
        calls::set_access(piece.address, piece.bytes, device, READ_AND_WRITE)?;
        from = device + 1;
    }
    Ok(())
}

/// The first error is what counts. A piece that goes meanwhile needs no access.
fn set_all(owner: Handle, device: c_int, flags: c_int) -> Result<(), CuResult> {
    let mut from = 0;
    while let Some((address, bytes)) = with(|table| table.piece_from(from, owner).map(|piece| piece.range())) {
        let result = calls::set_access(address, bytes, device, flags);
        if result.is_err() && with(|table| table.piece_at(address).is_some()) {
            return result;
        }
        from = address + bytes as u64;
    }
    Ok(())
}
