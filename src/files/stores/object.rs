//! One version of an object, and what a failed request says to the user.

use std::{error::Error as StandardError, path::PathBuf, sync::Arc};

use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore,
    client::{HttpError, HttpErrorKind},
    path::Path as Key,
};
use pystachio_plan::{Error, ErrorKind, system_reason};
use pystachio_tables::LogEntry;
use ring::digest::{Context, SHA256};

use super::{StoreSession, listing::log_entry, place::Place};
use crate::files::FileIdentity;

/// A version of an object, and the client that found it.
#[derive(Debug)]
pub struct FoundObject {
    /// `s3://bucket/key`.
    pub url: String,
    /// The identity of this version.
    pub identity: FileIdentity,
    pub(super) key: Key,
    pub(super) meta: ObjectMeta,
    pub(super) client: Arc<dyn ObjectStore>,
    pub(super) session: StoreSession,
}

impl FoundObject {
    /// The object that a store has listed; `None` if the store does not tell its version.
    pub(super) fn new(
        session: &StoreSession,
        place: &Place,
        client: &Arc<dyn ObjectStore>,
        url: String,
        meta: ObjectMeta,
    ) -> Option<Self> {
        let version = version(&meta)?;
        let mut digest = Context::new(&SHA256);
        for text in [session.endpoint(), &place.scheme, &place.bucket, meta.location.as_ref(), &version] {
            digest.update(&(text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        digest.update(&meta.size.to_le_bytes());
        let mut version = [0; 16];
        version.copy_from_slice(digest.finish().as_ref().get(..16)?);
        let identity = FileIdentity::of_object(version, meta.size);
        let (client, session, key) = (client.clone(), session.clone(), meta.location.clone());
        Some(Self { url, identity, key, meta, client, session })
    }

    /// What a list of its folder says of it.
    pub(crate) fn entry(&self) -> Option<LogEntry> {
        log_entry(&self.meta)
    }

    /// The URL as a path: tables' files are named by it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.url)
    }

    /// The entity tag, if it is a strong one: `If-Match` never accepts a weak one.
    pub(super) fn strong_tag(&self) -> Option<String> {
        let tag = self.meta.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))?;
        Some(if tag.starts_with('"') { tag.to_owned() } else { format!("\"{tag}\"") })
    }

    /// Whether an answer is about this version.
    pub(super) fn is_version_of(&self, answer: &ObjectMeta) -> bool {
        answer.size == self.meta.size && version(answer) == version(&self.meta)
    }

    /// The error of an object that has another version by now.
    pub(super) fn changed(&self) -> Error {
        let message = format!("file \"{}\" was changed while the query read it", self.url);
        Error::new(ErrorKind::FileAccess, message).with_hint("Run the query again.")
    }

    /// The error of a request for some of its bytes.
    pub(super) fn failed(&self, error: &StoreError) -> Error {
        let failure = Failure::of(error);
        match failure.status {
            // A shorter version has not all of the range.
            Some(304 | 412 | 416) => self.changed(),
            _ if failure.is_other_range => self.changed(),
            _ => failure.into_error(&self.url),
        }
    }
}

/// What tells versions of an object apart, beside their sizes. A list has no fractions of a second that an answer has.
fn version(meta: &ObjectMeta) -> Option<String> {
    match &meta.e_tag {
        Some(tag) => Some(tag.trim_start_matches("W/").trim_matches('"').to_owned()),
        None => Some(meta.last_modified.timestamp()).filter(|at| *at != 0).map(|at| at.to_string()),
    }
}

/// The error of a failed request, in words that have no part of the request.
pub(super) fn request_failed(url: &str, error: &StoreError) -> Error {
    Failure::of(error).into_error(url)
}

/// The error of a failed request to write an object.
pub(super) fn upload_failed(url: &str, error: &StoreError) -> Error {
    change_failed("write", url, error)
}

/// The error of a failed request to remove an object.
pub(super) fn removal_failed(url: &str, error: &StoreError) -> Error {
    change_failed("remove", url, error)
}

fn change_failed(action: &str, url: &str, error: &StoreError) -> Error {
    let failure = Failure::of(error);
    match failure.status {
        Some(401 | 403) => {
            Error::new(ErrorKind::FilePermission, format!("could not {action} \"{url}\": permission denied"))
                .with_hint(format!("Check the options of the user mapping, and whether the store allows its key to {action}."))
        }
        _ => Error::new(ErrorKind::FileAccess, format!("could not {action} \"{url}\": {}", failure.reason)).with_hint(
            "Run the transaction again. If the error stays, check the server option endpoint and the store.",
        ),
    }
}

/// What is known of a failed request, without what could be secret.
struct Failure {
    /// The answer's status.
    status: Option<u16>,
    /// The answer has other bytes than those that were asked for.
    is_other_range: bool,
    reason: String,
}

impl Failure {
    fn of(error: &StoreError) -> Self {
        // The library's types are private, and its texts quote requests and answers: known parts are taken out.
        let (mut text, mut innermost, mut kind) = (String::new(), None, None);
        let mut cause: Option<&(dyn StandardError + 'static)> = Some(error);
        while let Some(current) = cause {
            text.push_str(&current.to_string());
            text.push('\n');
            if let Some(failure) = current.downcast_ref::<HttpError>() {
                kind = Some(failure.kind());
            }
            if let Some(failure) = current.downcast_ref::<std::io::Error>() {
                innermost = Some(system_reason(failure)).filter(|reason| !reason.contains("://"));
            }
            cause = current.source();
        }
        let status = text.split("status code: ").nth(1).map(|rest| {
            rest.chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || " -'".contains(*letter))
                .collect::<String>()
        });
        let code = text.split("<Code>").nth(1).and_then(|rest| rest.split("</Code>").next());
        let code =
            code.filter(|code| code.len() < 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric()));
        let what = match (&status, kind) {
            (Some(status), _) => format!("the store answered {}", status.trim()),
            _ if ["Received non-partial response", "Range request not supported"]
                .iter()
                .any(|words| text.contains(words)) =>
            {
                "the server does not serve parts of files".to_owned()
            }
            (None, Some(HttpErrorKind::Connect)) => "no connection to the store".to_owned(),
            (None, Some(HttpErrorKind::Timeout)) => "the store did not answer in time".to_owned(),
            (None, Some(HttpErrorKind::Interrupted)) => "the connection to the store was cut".to_owned(),
            (None, _) => "the request failed".to_owned(),
        };
        let reason = match (&status, code, innermost) {
            (Some(_), Some(code), _) => format!("{what} ({code})"),
            (None, _, Some(innermost)) => format!("{what}: {innermost}"),
            _ => what,
        };
        Self {
            status: status.as_ref().and_then(|status| status.get(..3)?.parse().ok()),
            is_other_range: text.contains("Requested ") && text.contains(", got "),
            reason,
        }
    }

    fn into_error(self, url: &str) -> Error {
        match self.status {
            Some(404) => Error::new(ErrorKind::FileNotFound, format!("file \"{url}\" does not exist")),
            Some(401 | 403) => {
                Error::new(ErrorKind::FilePermission, format!("could not read \"{url}\": permission denied"))
                    .with_hint("Check the options of the user mapping, and what the store allows its key.")
            }
            _ => {
                let message = format!("could not read \"{url}\": {}", self.reason);
                Error::new(ErrorKind::FileAccess, message).with_hint(
                    "Run the query again. If the error stays, check the server option endpoint and the store.",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(text: &str) -> Error {
        let error = StoreError::Generic { store: "S3", source: text.to_owned().into() };
        request_failed("s3://lake/t", &error)
    }

    #[test]
    fn errors_say_what_the_store_answered_and_nothing_of_the_request() {
        let answered = failed(
            "Error performing GET https://h/t?sig=hush in 3s - Server returned non-2xx status code: 503 Service Unavailable: \
             <Error><Code>SlowDown</Code><AWSAccessKeyId>hush</AWSAccessKeyId></Error>",
        );
        assert_eq!(answered.kind, ErrorKind::FileAccess);
        assert_eq!(
            answered.message,
            "could not read \"s3://lake/t\": the store answered 503 Service Unavailable (SlowDown)"
        );
        for (status, kind) in [
            ("404 Not Found", ErrorKind::FileNotFound),
            ("403 Forbidden", ErrorKind::FilePermission),
            ("401 Unauthorized", ErrorKind::FilePermission),
            ("500 Internal Server Error", ErrorKind::FileAccess),
        ] {
            let error =
                failed(&format!("GET https://h/?sig=hush - status code: {status}: <Code>hush hush</Code>"));
            assert_eq!(error.kind, kind, "{status}");
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        }
        assert_eq!(
            failed("https://h/?sig=hush").message,
            "could not read \"s3://lake/t\": the request failed"
        );
    }
}
