//! A file of `keys`: the store's own key, encrypted by a key that opens the store.
//!
//! The key that encrypts is derived from the user's with a salt that is new in each file, so it encrypts once, and its nonce
//! can be zero.

use ring::aead::{Aad, Nonce};

use super::{
    key::{Key, KeyId},
    random,
    store_key::{KEY_BYTES, StoreKey, cipher, derived},
};
use crate::{
    Result,
    files::{Input, KEYS},
    format::{
        VERSION,
        fields::{Block, Fields, read_block},
    },
};

const MAGIC: &[u8; 8] = b"ckptkey\0";
const FILE_BYTES: usize = 144;
/// What is authenticated together with the encrypted key.
const HEAD_BYTES: usize = 88;
const SALT_BYTES: usize = 32;
const WRAPPED_BYTES: usize = KEY_BYTES + 16;

const INFO_ID: &[u8] = b"ckpt store 1: name of a key";
const INFO_WRAP: &[u8] = b"ckpt store 1: key of the store";

/// Which of a store's files belongs to a key.
pub(crate) fn id_of(key: &Key, store_id: &[u8; 16]) -> KeyId {
    KeyId(derived(store_id, key.bytes(), &[INFO_ID]))
}

/// The name of the file of a key, and that before its rename.
pub(crate) fn names_of(id: KeyId) -> (String, String) {
    (format!("{KEYS}/{id}.key"), format!("{KEYS}/{id}.new"))
}

/// The key of a name in `keys`, and whether the name is the one from before its rename.
pub(crate) fn parse(name: &str) -> Option<(KeyId, bool)> {
    let (id, end) = name.split_once('.')?;
    let is_new = match end {
        "key" => false,
        "new" => true,
        _ => return None,
    };
    Some((KeyId::from_text(id)?, is_new))
}

/// The file that lets `key` open the store with this number.
pub(crate) fn encode(
    store_key: &StoreKey,
    store_id: &[u8; 16],
    key: &Key,
    added_unix_s: u64,
) -> std::io::Result<[u8; FILE_BYTES]> {
    let salt: [u8; SALT_BYTES] = random()?;
    let head: Block<FILE_BYTES> = Block::new(MAGIC).u32(VERSION).u32(FILE_BYTES as u32).put(store_id);
    let head = head.put(&id_of(key, store_id).0).u64(added_unix_s).put(&salt);
    let mut wrapped = *store_key.bytes();
    let sealed = cipher(&derived(&salt, key.bytes(), &[INFO_WRAP])).seal_in_place_separate_tag(
        Nonce::assume_unique_for_key([0; 12]),
        Aad::from(head.so_far()),
        &mut wrapped,
    );
    let tag = sealed.map_err(|_| std::io::Error::other("the store's key cannot be encrypted"))?;
    Ok(head.put(&wrapped).put(tag.as_ref()).finish())
}

/// When the key of a file was added, in seconds since 1970.
pub(crate) fn read_added(input: &Input) -> Result<u64> {
    Ok(Fields(&block_of(input)?[48..]).u64())
}

/// The key of the store with this number, out of the file of `key`.
pub(crate) fn read(input: &Input, store_id: &[u8; 16], key: &Key) -> Result<StoreKey> {
    let block = block_of(input)?;
    let mut fields = Fields(&block[HEAD_BYTES - SALT_BYTES..]);
    let (salt, mut wrapped): ([u8; SALT_BYTES], [u8; WRAPPED_BYTES]) = (fields.take(), fields.take());
    let cipher = cipher(&derived(&salt, key.bytes(), &[INFO_WRAP]));
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let opened = cipher.open_in_place(nonce, Aad::from(&block[..HEAD_BYTES]), &mut wrapped);
    let store_key = opened.ok().and_then(|bytes| bytes.first_chunk().copied());
    let (what, expected) = ("the encrypted key of the store", "that of this store, by the key of the file's name");
    let store_key = store_key.ok_or_else(|| input.corrupt(HEAD_BYTES as u64, what, expected, "another"))?;
    Ok(StoreKey::new(store_key, store_id))
}

fn block_of(input: &Input) -> Result<Vec<u8>> {
    if input.length() != FILE_BYTES as u64 {
        let found = format!("{} bytes", input.length());
        return Err(input.corrupt(0, "the length of a key's file", format!("{FILE_BYTES} bytes"), found));
    }
    read_block(input, 0, FILE_BYTES, MAGIC)
}
