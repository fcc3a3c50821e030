//! Objects that are written: uploaded in parts, and visible when they are completed. And objects that are removed.
//!
//! ```text
//! file ──► parts, sent ──► complete ──► keep
//!             │               └──── dropped: the object is deleted, unless it has replaced another one
//!             └──── dropped: the upload is aborted
//! ```
//!
//! A file of one part is sent when it is completed.
//!
//! Invariants: an object is whole or not there. What is dropped is removed as far as the store answers: an upload that stays is the
//! store's to remove, by a rule for incomplete uploads.

use std::{
    collections::HashSet,
    fs::{self, File},
    future::Future,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use object_store::{
    Error as StoreError, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    Result as StoreResult, UploadPart, path::Path as Key,
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    StoreSession,
    client::ClientKey,
    object::{removal_failed, upload_failed},
    place::Place,
};
use crate::from_io;

/// Bytes of a part. Stores have at most 10,000 parts, so that of large files it is more.
const PART_BYTES: u64 = 8 << 20;
const PARTS_MAX: u64 = 9000;
/// Parts that are under way at once.
const PARTS_AT_ONCE: usize = 2;

/// Memory that an upload of a file takes.
pub fn upload_bytes(file_bytes: u64) -> u64 {
    part_bytes(file_bytes).min(file_bytes) * PARTS_AT_ONCE as u64
}

fn part_bytes(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(PARTS_MAX).max(PART_BYTES)
}

/// Whether an object may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// No other write has its name.
    Never,
    /// It is an error.
    Refused,
    /// It is replaced.
    Replaced,
}

/// An object that is uploaded.
pub struct Upload {
    session: StoreSession,
    client: Arc<dyn ObjectStore>,
    url: String,
    key: Key,
    existing: Existing,
    content: Content,
    state: UploadState,
}

/// What is sent.
enum Content {
    /// This file, when the object is completed.
    Whole(PathBuf),
    /// Parts, which are there.
    Parts(Parts),
    /// Nothing more.
    Sent,
}

/// Parts of an object. Dropped before they are completed, they are removed.
struct Parts {
    upload: Option<Box<dyn MultipartUpload>>,
    session: StoreSession,
    url: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UploadState {
    /// It is not visible.
    Open,
    /// The store was asked to complete it, and has not said that it did.
    Asked,
    /// It is visible.
    Complete,
    /// It stays.
    Kept,
}

impl StoreSession {
    /// Checks that an object can be written. Blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it exists and may not be replaced; `NotSupported` for a place that takes no objects; `FilePermission`,
    /// `FileAccess`.
    pub fn check_writable(&self, url: &str, existing: Existing) -> Result<()> {
        let place = Place::parse(url)?;
        if !place.is_listed() {
            let message = format!("nothing is written to \"{url}\": {} has no protocol for it", place.scheme);
            return Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("Write to s3://, gs:// or az://, or into a folder of the server's host."));
        }
        let (_, client) = self.client(&place, 0)?;
        match existing {
            Existing::Refused => self.check_absent(&client, &place.store_key(&place.key)?, url),
            Existing::Never | Existing::Replaced => Ok(()),
        }
    }

    fn check_absent(&self, client: &Arc<dyn ObjectStore>, key: &Key, url: &str) -> Result<()> {
        let (client, key, asked) = (client.clone(), key.clone(), url.to_owned());
        let found = self.wait(async move {
            match client.head(&key).await {
                Ok(_) => Ok(true),
                Err(StoreError::NotFound { .. }) => Ok(false),
                Err(error) => Err(upload_failed(&asked, &error)),
            }
        })?;
        if found { Err(already_exists(url)) } else { Ok(()) }
    }

    /// Uploads a file, which is needed until the object is completed if it is small, and is removed otherwise. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the file; `FilePermission`, `FileAccess` of the store.
    pub fn upload(&self, file: &Path, url: &str, existing: Existing) -> Result<Upload> {
        let place = Place::parse(url)?;
        let (_, client) = self.client(&place, 0)?;
        let key = place.store_key(&place.key)?;
        let file_bytes = fs::metadata(file).map_err(|error| from_io(file, "read", &error))?.len();
        let mut upload = Upload {
            session: self.clone(),
            client,
            url: url.to_owned(),
            key,
            existing,
            content: Content::Whole(file.to_owned()),
            state: UploadState::Open,
        };
        if file_bytes > PART_BYTES {
            upload.send_parts(file, part_bytes(file_bytes))?;
            fs::remove_file(file).map_err(|error| from_io(file, "remove", &error))?;
        }
        Ok(upload)
    }
}

impl StoreSession {
    /// Removes objects. Returns those that may still be there, and why. Blocks.
    ///
    /// # Errors
    ///
    /// Those of paths, and of options that make no client.
    pub fn remove(&self, urls: &[String]) -> Result<Vec<(String, Error)>> {
        // One client for each bucket, which asks for many at once where the store knows that.
        type Bucket = (ClientKey, Arc<dyn ObjectStore>, Vec<(Key, String)>);
        let mut buckets: Vec<Bucket> = Vec::new();
        for url in urls {
            let place = Place::parse(url)?;
            let (client_key, client) = self.client(&place, 0)?;
            let key = place.store_key(&place.key)?;
            match buckets.iter_mut().find(|(known, ..)| *known == client_key) {
                Some((.., keys)) => keys.push((key, url.clone())),
                None => buckets.push((client_key, client, vec![(key, url.clone())])),
            }
        }
        let removed = self.wait(async move {
            let mut failed = Vec::new();
            for (_, client, keys) in buckets {
                let paths = stream::iter(keys.iter().map(|(key, _)| Ok(key.clone())).collect::<Vec<_>>());
                // Answers come in the order of the paths; one is the answer for all of a request that fails.
                let answers: Vec<StoreResult<Key>> = client.delete_stream(paths.boxed()).collect().await;
                let gone: HashSet<&str> =
                    answers.iter().filter_map(|answer| answer.as_ref().ok()).map(Key::as_ref).collect();
                let mut reasons = answers.iter().filter_map(|answer| match answer {
                    Err(StoreError::NotFound { .. }) | Ok(_) => None,
                    Err(error) => Some(error),
                });
                let reason = reasons.next();
                for (key, url) in &keys {
                    if let Some(reason) = reason.filter(|_| !gone.contains(key.as_ref())) {
                        failed.push((url.clone(), removal_failed(url, reason)));
                    }
                }
            }
            Ok(failed)
        });
        self.forget_listings();
        removed
    }
}

impl Upload {
    fn send_parts(&mut self, path: &Path, part_bytes: u64) -> Result<()> {
        let (client, key, session) = (self.client.clone(), self.key.clone(), self.session.clone());
        let mut file = File::open(path).map_err(|error| from_io(path, "read", &error))?;
        let (path, url) = (path.to_owned(), self.url.clone());
        let sent = async move {
            let begun = client.put_multipart(&key).await;
            let upload = begun.map_err(|error| upload_failed(&url, &error))?;
            let mut parts = Parts { upload: Some(upload), session, url: url.clone() };
            let mut sending = FuturesUnordered::new();
            let mut failure = None;
            while failure.is_none() {
                let mut part = Vec::new();
                match (&mut file).take(part_bytes).read_to_end(&mut part) {
                    Ok(0) => break,
                    Ok(_) => sending.extend(parts.send(PutPayload::from(part))),
                    Err(error) => failure = Some(from_io(&path, "read", &error)),
                }
                if sending.len() >= PARTS_AT_ONCE
                    && let Some(Err(error)) = sending.next().await
                {
                    failure = Some(upload_failed(&url, &error));
                }
            }
            while let Some(sent) = sending.next().await {
                if let Err(error) = sent {
                    failure.get_or_insert_with(|| upload_failed(&url, &error));
                }
            }
            match failure {
                None => Ok(parts),
                Some(failure) => Err(failure),
            }
        };
        self.content = Content::Parts(self.session.wait(sent)?);
        Ok(())
    }

    /// Makes the object visible. Blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if another one has its name by now, and may not be replaced; `FilePermission`, `FileAccess` of the store: then
    /// the object may be there nevertheless.
    pub fn complete(&mut self) -> Result<()> {
        // Not all stores know a condition for it.
        if self.existing == Existing::Refused {
            self.session.check_absent(&self.client, &self.key, &self.url)?;
        }
        self.state = UploadState::Asked;
        match std::mem::replace(&mut self.content, Content::Sent) {
            Content::Sent => return Err(Error::internal("an object is completed twice")),
            Content::Parts(mut parts) => self.ask(async move { parts.complete().await })?,
            Content::Whole(path) => {
                let content = fs::read(&path).map_err(|error| from_io(&path, "read", &error))?;
                let mode = match self.existing {
                    Existing::Refused => PutMode::Create,
                    Existing::Never | Existing::Replaced => PutMode::Overwrite,
                };
                let (client, key) = (self.client.clone(), self.key.clone());
                self.ask(async move {
                    client.put_opts(&key, PutPayload::from(content), PutOptions::from(mode)).await.map(drop)
                })?;
            }
        }
        self.state = UploadState::Complete;
        self.session.forget_listings();
        Ok(())
    }

    fn ask(&self, request: impl Future<Output = StoreResult<()>> + Send + 'static) -> Result<()> {
        let url = self.url.clone();
        self.session.wait(async move {
            match request.await {
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    Err(already_exists(&url))
                }
                done => done.map_err(|error| upload_failed(&url, &error)),
            }
        })
    }

    /// Leaves the object as it is.
    pub fn keep(mut self) {
        self.state = UploadState::Kept;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let is_ours = match self.state {
            UploadState::Open => false,
            // Whether it is there is not known: it goes if no other object can have the name.
            UploadState::Asked => self.existing == Existing::Never,
            UploadState::Complete => self.existing != Existing::Replaced,
            UploadState::Kept => false,
        };
        if !is_ours {
            return;
        }
        let (client, key, url, session) =
            (self.client.clone(), self.key.clone(), self.url.clone(), self.session.clone());
        self.session.in_background(async move {
            if let Err(error) = client.delete(&key).await {
                tracing::warn!(error = %removal_failed(&url, &error), "an object is not deleted");
            }
            session.forget_listings();
        });
    }
}

impl Parts {
    fn send(&mut self, part: PutPayload) -> Option<UploadPart> {
        self.upload.as_mut().map(|upload| upload.put_part(part))
    }

    async fn complete(&mut self) -> StoreResult<()> {
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
        }
        self.upload = None;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let url = self.url.clone();
        self.session.in_background(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(error = %upload_failed(&url, &error), "an upload is not aborted");
            }
        });
    }
}

fn already_exists(url: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("file \"{url}\" already exists"))
        .with_hint("Pass overwrite => true to replace it, or choose another name.")
}
