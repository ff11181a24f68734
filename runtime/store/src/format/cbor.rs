//! Rows and other records of few and growing fields, in CBOR: old readers pass by fields that they do not know.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Result, StoreError, files::Input};

/// Encodes a record of at most `max` bytes.
pub(crate) fn encode(what: &'static str, record: &impl Serialize, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if ciborium::into_writer(record, &mut bytes).is_err() || bytes.len() as u64 > max {
        return Err(StoreError::TooLarge { what, found: bytes.len() as u64, max });
    }
    Ok(bytes)
}

/// Decodes a record whose checksum has been checked; it lies at `offset` of `input`.
pub(crate) fn decode<T: DeserializeOwned>(input: &Input, offset: u64, what: &'static str, bytes: &[u8]) -> Result<T> {
    ciborium::from_reader(bytes).map_err(|error| input.corrupt(offset, what, "a record", error.to_string()))
}
