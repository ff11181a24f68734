//! What names network interfaces in the state of a socket of packets (`packet(7)`): its address and its memberships.

/// Bytes of `struct sockaddr_ll`; the kernel gives fewer where a hardware address is shorter.
pub const ADDRESS_BYTES: usize = 20;
/// `PACKET_ADD_MEMBERSHIP`.
pub const MEMBERSHIP: i32 = 1;
/// `PACKET_COPY_THRESH`.
pub const COPY_THRESHOLD: i32 = 7;
/// Where the interface's number is in an address, and in what adds a membership.
const IN_ADDRESS: usize = 4;
const IN_MEMBERSHIP: usize = 0;

/// The number of the interface in an address; 0 for all.
pub fn interface_of_name(name: &[u8]) -> u32 {
    name.get(IN_ADDRESS..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u32::from_ne_bytes(*number))
}

/// Changes the number of an interface in an address.
pub fn renumber_name(name: &mut [u8], change: impl Fn(u32) -> u32) {
    renumber(name, IN_ADDRESS, change);
}

/// Changes the number of an interface in what adds a membership.
pub fn renumber_membership(value: &mut [u8], change: impl Fn(u32) -> u32) {
    renumber(value, IN_MEMBERSHIP, change);
}

fn renumber(bytes: &mut [u8], at: usize, change: impl Fn(u32) -> u32) {
    if let Some(number) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *number = change(u32::from_ne_bytes(*number)).to_ne_bytes();
    }
}
