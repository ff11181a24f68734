//! The store's own key, and the keys that are derived from it: one for each file, and one that proves the header.
//!
//! HKDF-SHA256 with the store's number as salt. What a key is for is its `info`, so no two purposes have the same one.

use std::fmt;

use ring::{
    aead::{AES_256_GCM, LessSafeKey, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    hmac,
};

use super::{frames::FileHead, random};
use crate::files::{Kind, PackName};

/// Bytes of a key of AES-256, of HMAC-SHA256, and of the store's own.
pub(super) const KEY_BYTES: usize = 32;

const INFO_FILE: &[u8] = b"ckpt store 1: file";
const INFO_HEADER: &[u8] = b"ckpt store 1: header";

/// A length that HKDF is asked for.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-SHA256 of `secret`.
pub(super) fn derived<const N: usize>(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> [u8; N] {
    expanded(&Salt::new(HKDF_SHA256, salt).extract(secret), info)
}

fn expanded<const N: usize>(secret: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    // Fails for lengths above 8160 bytes alone.
    secret.expand(info, Bytes(N)).and_then(|found| found.fill(&mut key)).expect("a key is short");
    key
}

/// A key of AES-256-GCM.
pub(super) fn cipher(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("256 bits"))
}

/// The key of one store.
#[derive(Clone)]
pub(crate) struct StoreKey {
    key: [u8; KEY_BYTES],
    extracted: Prk,
}

impl StoreKey {
    /// The key `key` of the store with this number.
    pub fn new(key: [u8; KEY_BYTES], store_id: &[u8; 16]) -> Self {
        Self { key, extracted: Salt::new(HKDF_SHA256, store_id).extract(&key) }
    }

    /// A new key for the store with this number.
    pub fn random(store_id: &[u8; 16]) -> std::io::Result<Self> {
        Ok(Self::new(random()?, store_id))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// The key of the file that is, or is to be, `name`.
    pub(super) fn of_file(&self, name: &str, head: &FileHead) -> LessSafeKey {
        cipher(&expanded(&self.extracted, &[INFO_FILE, head.bytes(), identity(name).as_bytes()]))
    }

    /// What proves that the header's first bytes are this store's.
    pub fn prove_header(&self, bytes: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &expanded::<KEY_BYTES>(&self.extracted, &[INFO_HEADER]));
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&key, bytes).as_ref());
        tag
    }

    /// Whether `tag` is what [`StoreKey::prove_header`] gives for these bytes.
    pub fn proves_header(&self, bytes: &[u8], tag: &[u8; 32]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &expanded::<KEY_BYTES>(&self.extracted, &[INFO_HEADER]));
        hmac::verify(&key, bytes, tag).is_ok()
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(..)")
    }
}

/// What a file is for ever, whatever it is renamed to on its way: a manifest that is written, sealed and retired is one
/// file, and the row of an attempt that has failed is another than that which it began with.
fn identity(name: &str) -> String {
    let Some((dir, rest)) = name.split_once('/') else { return name.into() };
    let what = match Kind::parse(dir, rest) {
        Some((_, Kind::Manifest | Kind::ManifestNew | Kind::Retired)) => "manifest",
        Some((_, Kind::Condemned | Kind::Condemning)) => "condemned",
        Some((_, Kind::RowNew | Kind::Writing)) => "row",
        Some((_, Kind::Failing | Kind::Failed)) => "final row",
        None if PackName::parse(rest).is_some() => return name.into(),
        None => return name.into(),
    };
    let id = rest.split('.').next().unwrap_or_default();
    format!("{what} {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_identity_when_it_is_renamed_on_its_way_and_has_no_other_files() {
        for (one, other) in [
            ("manifests/0000000003.new", "manifests/0000000003.manifest"),
            ("manifests/0000000003.manifest", "manifests/0000000003.retired"),
            ("manifests/0000000003.condemning", "manifests/0000000003.condemned"),
            ("attempts/0000000003.new", "attempts/0000000003.writing"),
            ("attempts/0000000003.failing", "attempts/0000000003.failed"),
        ] {
            assert_eq!(identity(one), identity(other), "{one}");
        }
        let apart = [
            "manifests/0000000003.manifest",
            "manifests/0000000004.manifest",
            "manifests/0000000003.condemned",
            "attempts/0000000003.writing",
            "attempts/0000000003.failed",
            "packs/0000000003-0000.pack",
            "packs/0000000003-0001.pack",
            "packs/0000000004-0000.pack",
            "other",
        ];
        let identities: std::collections::HashSet<String> = apart.iter().map(|name| identity(name)).collect();
        assert_eq!(identities.len(), apart.len());
    }

    #[test]
    fn hkdf_gives_what_rfc_5869_says() {
        let (secret, salt) = ([0x0b; 22], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let info = [0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9];
        let hex = derived::<42>(&salt, &secret, &[&info]).map(|byte| format!("{byte:02x}")).concat();
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(hex, expected);
    }
}
