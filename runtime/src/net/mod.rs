//! Sockets, as capture reads them and restore makes them: addresses, options and the calls that neither std nor nix has.

mod address;
mod calls;
mod interfaces;
mod options;
pub mod packet;
mod peek;
mod repair;
mod tcp;

pub use address::Address;
pub use calls::{
    bind, connect, duplicate, filter, name, new, number_option, option, pair, peer_name, set_filter, set_option,
    shut_down, unsent_bytes,
};
pub use interfaces::{can_be_had, interfaces};
pub use options::{Defaults, IP_LOCAL_PORT_RANGE, SO_BUF_LOCK, Time, time_of};
pub use peek::{FILES_MAX, Look, beginning, bytes_sent_before, peek};
pub use repair::{Queues, in_flight};
pub use tcp::{TcpInfo, TcpState};
