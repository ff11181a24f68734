//! An object store's answers as the errors that the store knows.

use std::{error::Error as _, io};

use object_store::Error;

/// Keeps the server's words, its URL among them.
pub(super) fn to_io(error: Error) -> io::Error {
    let words = in_words(&error);
    let kind = match &error {
        // A bucket that is not there is no missing file: it must not read as an empty store.
        _ if words.contains("NoSuchBucket") => io::ErrorKind::Other,
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, words)
}

/// The error and what it says of its causes that it has not said already, on one line.
fn in_words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a conditional write was refused because the object is not what it was.
pub(super) fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotModified { .. })
}
