//! What can be read from an extended state in the XSAVE format.
//!
//! Bytes 0..512 are the legacy area, 512..576 the header, whose first word says which components differ from their
//! initial value. The rest has one fixed place per component, which the kind of processor decides.

/// Bytes of the legacy area, in front of the header.
const LEGACY_BYTES: usize = 512;
/// AMX tile data.
pub const TILE_DATA: u32 = 18;
/// Components that a program's code relies on for as long as it lives once it has found them: AVX and AVX-512.
const CHOSEN_AT_START: u64 = 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7;
/// Components whose place is the same on every processor: x87, SSE and AVX.
pub const FIXED_PLACE: u64 = 0b111;

/// Components that `state` holds in other than their initial value.
pub fn used_components(state: &[u8]) -> u64 {
    let Some(word) = state.get(LEGACY_BYTES..LEGACY_BYTES + 8) else { return FIXED_PLACE >> 1 };
    word.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

/// Whether `state` holds live AMX tiles.
pub fn uses_tiles(state: &[u8]) -> bool {
    used_components(state) & 1 << TILE_DATA != 0
}

/// Of the components enabled at the capture, those that the host must have although no register holds them now:
/// a C library picks its memcpy by them once, at the start.
pub fn relied_upon(xcr0: u64) -> u64 {
    xcr0 & CHOSEN_AT_START
}

/// Names of components, for people.
pub fn names(components: u64) -> String {
    const NAMES: [(u64, &str); 8] = [
        (0b11, "x87/SSE"),
        (1 << 2, "AVX"),
        (0b11 << 3, "MPX"),
        (0b111 << 5, "AVX-512"),
        (1 << 9, "protection keys"),
        (0b11 << 11, "shadow stacks"),
        (0b11 << 17, "AMX"),
        (1 << 19, "APX"),
    ];
    let known: Vec<&str> = NAMES.iter().filter(|(bits, _)| components & bits != 0).map(|&(_, name)| name).collect();
    if known.is_empty() { format!("state components {components:#x}") } else { known.join(", ") }
}

/// `state` for a host whose area has `host_bytes`: shorter areas end in components that are not used, and
/// components that the host does not have are not used either (the preflight checked it).
pub fn fitted(state: &[u8], host_bytes: usize) -> Vec<u8> {
    let mut fitted = state.to_vec();
    fitted.resize(host_bytes, 0);
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_with(components: u64) -> Vec<u8> {
        let mut state = vec![0; 2696];
        state[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&components.to_le_bytes());
        state
    }

    #[test]
    fn the_header_names_the_components_in_use() {
        assert_eq!(used_components(&state_with(0xe7)), 0xe7);
        assert!(uses_tiles(&state_with(1 << 18)) && !uses_tiles(&state_with(1 << 17)));
        assert_eq!(used_components(&[0; 512]), 0b11);
    }

    #[test]
    fn a_component_is_named_once_for_people() {
        assert_eq!(names(0b111 << 5), "AVX-512");
        assert_eq!(names(1 << 2 | 1 << 18), "AVX, AMX");
        assert_eq!(names(1 << 40), "state components 0x10000000000");
    }

    #[test]
    fn a_state_takes_the_length_of_the_host() {
        assert_eq!(fitted(&state_with(7), 4096).len(), 4096);
        assert_eq!(fitted(&state_with(7), 832).len(), 832);
    }
}
