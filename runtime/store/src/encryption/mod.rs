//! Encrypted and authenticated stores: what a back end keeps says nothing but lengths, times and numbers to whoever has no
//! key, and bytes that were not written under that name by somebody with a key are refused.
//!
//! The whole of it is a back end around another one ([`Encrypted`]): packs, manifests, rows and lists of condemned packs are
//! cut into frames ([`frames`]), and each frame is encrypted and authenticated by AES-256-GCM, with a key that the file alone
//! has ([`store_key`]). What lies inside is a store like any other, so all that reads and writes stores stays as it is.
//!
//! The store's own key is random and never leaves a process in the clear. In the store it is kept once for each [`Key`] that
//! opens it, encrypted by that ([`key_file`]).

mod decrypting;
mod encrypted;
mod encrypting;
mod encryptor;
mod frames;
mod key;
pub(crate) mod key_file;
pub(crate) mod store_key;

pub(crate) use encrypted::Encrypted;
pub(crate) use encryptor::Encryptor;
pub use key::{Key, KeyId};

/// Draws random bytes.
///
/// # Errors
///
/// The system has none to give.
fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == N { Ok(bytes) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}
