//! Opening a URL: which service, which bucket, which prefix; credentials and the rest come from the environment.
//!
//! The variables are those of the AWS command line (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
//! AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP and the others of `AmazonS3Builder::from_env`). One listing is asked for
//! right away, so that a bucket that is not there, a wrong key and a server that does not answer are told here, by URL.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists},
};

use super::Object;
use crate::{Result, StoreError};

/// One request takes 30 seconds at most (the crate's own limit), and is not repeated after this.
const RETRY_LIMIT: Duration = Duration::from_secs(20);
const RETRIES: usize = 5;

impl Object {
    /// The store at `s3://BUCKET` or `s3://BUCKET/PREFIX`; its locks and holds last for `lease` after their process.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] with the URL when the service does not let us list it, or does not answer.
    pub fn open_url(url: &str, lease: Option<Duration>) -> Result<Self> {
        Self::open_s3(AmazonS3Builder::from_env(), url, lease)
    }

    /// [`Object::open_url`] with choices of the caller's instead of the environment's.
    ///
    /// # Errors
    ///
    /// Those of [`Object::open_url`].
    pub fn open_s3(service: AmazonS3Builder, url: &str, lease: Option<Duration>) -> Result<Self> {
        let io = |source| StoreError::Io { path: PathBuf::from(url), operation: "open", source };
        let (bucket, prefix) = bucket_and_prefix(url).ok_or_else(|| StoreError::Unsuitable {
            path: url.into(),
            why: "a URL is s3://BUCKET or s3://BUCKET/PREFIX, and no other service is known".into(),
        })?;
        // Fails when another provider is installed, which does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_LIMIT, ..RetryConfig::default() };
        let mut service = service.with_bucket_name(bucket).with_retry(retry);
        if service.get_config_value(&AmazonS3ConfigKey::CopyIfNotExists).is_none() {
            service = service.with_copy_if_not_exists(S3CopyIfNotExists::Multipart);
        }
        let store = service.build().map_err(|error| io(super::to_io(error)))?;
        let opened = Self::on(Arc::new(store), url, prefix, lease).map_err(io)?;
        opened.0.list("").map_err(io)?;
        Ok(opened)
    }
}

fn bucket_and_prefix(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    (!bucket.is_empty()).then_some((bucket, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_and_perhaps_a_prefix() {
        assert_eq!(bucket_and_prefix("s3://b"), Some(("b", "")));
        assert_eq!(bucket_and_prefix("s3://b/a/c"), Some(("b", "a/c")));
        for other in ["s3://", "s3:///x", "gs://b/x", "/b", "b"] {
            assert_eq!(bucket_and_prefix(other), None, "{other}");
        }
    }
}
