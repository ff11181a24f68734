//! Where a store is: a directory, or a URL. The one place that turns what a person typed into a store.
//!
//! Checkpoints are taken into directories alone: the program stands still for the time of a few calls, and an agent needs
//! locks, a socket and a log beside the store. A URL (`s3://BUCKET/PREFIX`) is for commands that copy and read.
//! `file:///DIR` is the directory. A directory whose name looks like a URL is written with `./` in front.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_store::{Store, StoreOptions};

use crate::error::{Error, Result};
use crate::store_key;

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A directory of this host's file systems.
    Directory(PathBuf),
    /// Something else that the store has a back end for.
    Url(String),
}

impl Location {
    /// What `text` names.
    ///
    /// # Errors
    /// [`Error::Usage`] for a URL that is none of ours.
    pub fn of(text: &Path) -> Result<Location> {
        let Some((scheme, rest)) = url_parts(text.as_os_str()) else {
            return Ok(Location::Directory(text.to_owned()));
        };
        match scheme {
            "file" if rest.starts_with(b"/") && !rest.contains(&b'%') => {
                Ok(Location::Directory(PathBuf::from(OsStr::from_bytes(rest))))
            }
            "file" => Err(usage(text, "a file URL is file:///DIR, without %XX; or give the path itself")),
            "s3" => Ok(Location::Url(text.to_string_lossy().into_owned())),
            _ => Err(usage(text, "a store is a directory, file:///DIR or s3://BUCKET/PREFIX")),
        }
    }

    /// Opens the store that is there, by the key that CKPT_KEY names if it is encrypted.
    pub fn open(&self, options: &StoreOptions) -> Result<Store> {
        let options = StoreOptions { key: store_key::of_environment()?, ..*options };
        match self {
            Location::Directory(dir) => Ok(Store::open_with(dir, &options)?),
            Location::Url(url) => open_url(url, &options),
        }
    }

    /// Opens the store that is there, or makes one, encrypted where CKPT_KEY names a key.
    pub fn create_or_open_by_environment(&self, options: &StoreOptions) -> Result<Store> {
        self.create_or_open(&StoreOptions { key: store_key::of_environment()?, ..*options })
    }

    /// Opens the store that is there, or makes one, by the key of `options`.
    pub fn create_or_open(&self, options: &StoreOptions) -> Result<Store> {
        match self {
            Location::Directory(dir) => Ok(Store::create_or_open_with(dir, options)?),
            Location::Url(url) => create_or_open_url(url, options),
        }
    }

    /// The directory, for what needs one.
    ///
    /// # Errors
    /// [`Error::Usage`] for a URL, with what to do instead.
    pub fn into_directory(self) -> Result<PathBuf> {
        match self {
            Location::Directory(dir) => Ok(dir),
            Location::Url(url) => Err(no_directory(&url)),
        }
    }
}

/// Opens the store that `text` names.
pub fn open(text: &Path) -> Result<Store> {
    Location::of(text)?.open(&StoreOptions::default())
}

/// Refuses a path that libckpt.so made absolute from a URL (`/home/x/s3://bucket`).
pub fn refuse_url_in(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let Some(at) = bytes.windows(3).position(|three| three == b"://") else { return Ok(()) };
    let start = bytes[..at].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    Err(no_directory(&String::from_utf8_lossy(&bytes[start..])))
}

fn no_directory(url: &str) -> Error {
    usage(
        Path::new(url),
        "checkpoints are taken into a local directory; set CKPT_DIR or --dir to one, and bring them to the bucket with \
         `ckpt copy DIR URL`",
    )
}

fn usage(text: &Path, why: &str) -> Error {
    Error::Usage(format!("{}: {why}", text.display()))
}

/// The scheme and what follows `://`.
fn url_parts(text: &OsStr) -> Option<(&str, &[u8])> {
    let bytes = text.as_bytes();
    let at = bytes.windows(3).position(|three| three == b"://")?;
    let scheme = str::from_utf8(&bytes[..at]).ok()?;
    let is_scheme =
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, &bytes[at + 3..]))
}

#[cfg(feature = "object-store")]
fn open_url(url: &str, options: &StoreOptions) -> Result<Store> {
    Ok(Store::open_on(bucket(url)?, options)?)
}

#[cfg(feature = "object-store")]
fn create_or_open_url(url: &str, options: &StoreOptions) -> Result<Store> {
    Ok(Store::create_or_open_on(bucket(url)?, options)?)
}

#[cfg(feature = "object-store")]
fn bucket(url: &str) -> Result<std::sync::Arc<ckpt_store::backend::object::Object>> {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| weaknesses(|name| std::env::var(name).ok()).iter().for_each(|line| crate::say!("{line}")));
    Ok(std::sync::Arc::new(ckpt_store::backend::object::Object::open_url(url, None)?))
}

/// What the environment asks for that lets others read or change what goes to a bucket and comes from it.
#[cfg(any(test, feature = "object-store"))]
fn weaknesses(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_on = |name: &str| {
        variable(name).is_some_and(|value| !["", "0", "false", "no", "off"].contains(&&*value.to_lowercase()))
    };
    let mut found = Vec::new();
    let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let plain =
        endpoints.into_iter().find(|name| variable(name).is_some_and(|url| url.to_lowercase().starts_with("http://")));
    if let Some(name) = plain {
        found.push(format!(
            "{name} is an address without TLS: whoever is on the way to it can read and change checkpoints; use https, or \
             an encrypted store (`ckpt key --help`)"
        ));
    } else if is_on("AWS_ALLOW_HTTP") {
        found.push("AWS_ALLOW_HTTP is set: without TLS others can read and change checkpoints; unset it".into());
    }
    if is_on("AWS_ALLOW_INVALID_CERTIFICATES") {
        let name = "AWS_ALLOW_INVALID_CERTIFICATES";
        found.push(format!(
            "{name} is set: anybody on the way can be the server, and read and change checkpoints; unset it"
        ));
    }
    found
}

#[cfg(not(feature = "object-store"))]
fn open_url(url: &str, _options: &StoreOptions) -> Result<Store> {
    let advice = "build it with `cargo build --release --features object-store`";
    Err(Error::environment(format!("cannot open {url}"), "this ckpt was built without object stores", advice))
}

#[cfg(not(feature = "object-store"))]
fn create_or_open_url(url: &str, options: &StoreOptions) -> Result<Store> {
    open_url(url, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_directories_and_urls_are_told_from_them() {
        for (text, path) in
            [("a", "a"), ("/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("./s3://a", "./s3://a"), ("://", "://")]
        {
            assert_eq!(Location::of(Path::new(text)).unwrap(), Location::Directory(path.into()), "{text}");
        }
        assert_eq!(Location::of(Path::new("s3://b/p")).unwrap(), Location::Url("s3://b/p".into()));
        for text in ["gs://b/p", "http://b/p", "file://host/p", "file:///a%20b"] {
            assert!(matches!(Location::of(Path::new(text)), Err(Error::Usage(_))), "{text}");
        }
    }

    #[test]
    fn variables_that_take_protection_away_are_named() {
        let of = |set: &[(&str, &str)]| {
            weaknesses(|name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[]).is_empty());
        assert!(of(&[("AWS_ENDPOINT_URL", "https://minio"), ("AWS_ALLOW_HTTP", "false")]).is_empty());
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "http://minio:9000"),
            ("AWS_ENDPOINT_URL_S3", "HTTP://minio"),
            ("AWS_ENDPOINT", "http://minio"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ALLOW_INVALID_CERTIFICATES", "1"),
        ] {
            let said = of(&[(name, value)]);
            assert!(said.len() == 1 && said[0].starts_with(name), "{name}: {said:?}");
        }
        assert_eq!(of(&[("AWS_ALLOW_HTTP", "true"), ("AWS_ALLOW_INVALID_CERTIFICATES", "true")]).len(), 2);
    }

    #[test]
    fn a_url_where_a_directory_is_needed_is_refused_by_name_with_what_to_do() {
        let refused = Location::of(Path::new("s3://b/p")).unwrap().into_directory().unwrap_err().to_string();
        assert!(refused.starts_with("s3://b/p: ") && refused.contains("local directory"), "{refused}");
        let absolute = refuse_url_in(Path::new("/home/x/s3://b/p")).unwrap_err().to_string();
        assert!(absolute.starts_with("s3://b/p: "), "{absolute}");
        refuse_url_in(Path::new("/home/x:/y//z")).unwrap();
    }
}
