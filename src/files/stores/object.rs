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

use super::{StoreSession, client::credential_options, listing::log_entry, place::Place};
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

/// The error of a failed request for a list, of which a store that has the bucket says at most that it is empty.
pub(super) fn list_failed(url: &str, place: &Place, error: &StoreError) -> Error {
    let failure = Failure::of(error);
    match (failure.status, failure.cause) {
        (Some(404), Cause::Other) => {
            let what = if place.scheme == "az" { "container" } else { "bucket" };
            let message = format!(
                "{what} \"{}\" does not exist, or is not at the server's endpoint: \"{url}\"",
                place.bucket
            );
            Error::new(ErrorKind::FileNotFound, format!("{message}: {}", failure.reason))
                .with_hint("Check the path, and the server option endpoint.")
        }
        _ => failure.into_error(url),
    }
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
    let hint = match failure.cause {
        Cause::Credentials => failure.hint(url),
        _ if failure.is_refused() => {
            let options = credential_options(url);
            format!("Check {options} in the user mapping, and whether the store allows the key to {action}.")
        }
        Cause::Region | Cause::Foreign => failure.hint(url),
        Cause::Other => {
            "Run the transaction again. If the error stays, check the server option endpoint and the store."
                .to_owned()
        }
    };
    Error::new(failure.kind(), failure.message(action, url)).with_hint(hint)
}

/// What a failed request comes from, where more than its status is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// No token was given for the credentials.
    Credentials,
    /// The bucket is in another region than that of the signature.
    Region,
    /// The answer is not of the store's protocol.
    Foreign,
    Other,
}

/// What is known of a failed request, without what could be secret.
struct Failure {
    /// The answer's status.
    status: Option<u16>,
    /// The answer has other bytes than those that were asked for.
    is_other_range: bool,
    cause: Cause,
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
        let is_of_token = text.contains("performing token request");
        let code = match is_of_token {
            true => between(&text, "\"error\":", ",").map(|code| code.trim().trim_end_matches('}')),
            false => between(&text, "<Code>", "</Code>"),
        };
        let is_code = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let code = code
            .map(|code| code.trim().trim_matches('"'))
            .filter(|code| (1..64).contains(&code.len()) && code.chars().all(is_code));
        let server = if is_of_token { "the service of tokens" } else { "the store" };
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        let is_redirected = has(&["redirect without LOCATION"]);
        let is_foreign = has(&["Got invalid list response", "Got invalid multipart response"]);
        let what = match (&status, kind) {
            (Some(status), _) => format!("{server} answered {}", status.trim()),
            _ if has(&["Received non-partial response", "Range request not supported"]) => {
                "the server does not serve parts of files".to_owned()
            }
            _ if is_redirected => "the store answered that the bucket is elsewhere".to_owned(),
            _ if is_foreign => "the answer is not that of such a store".to_owned(),
            (None, Some(HttpErrorKind::Connect)) => format!("no connection to {server}"),
            (None, Some(HttpErrorKind::Timeout)) => format!("{server} did not answer in time"),
            (None, Some(HttpErrorKind::Interrupted)) => format!("the connection to {server} was cut"),
            (None, _) => format!("the request to {server} failed"),
        };
        let is_elsewhere = ["PermanentRedirect", "AuthorizationHeaderMalformed"];
        let cause = match code {
            _ if is_of_token => Cause::Credentials,
            Some(code) if is_elsewhere.contains(&code) => Cause::Region,
            _ if is_redirected => Cause::Region,
            _ if is_foreign => Cause::Foreign,
            _ => Cause::Other,
        };
        let reason = match (&status, code, innermost) {
            (Some(_), Some(code), _) => format!("{what} ({code})"),
            (None, _, Some(innermost)) => format!("{what}: {innermost}"),
            _ => what,
        };
        Self {
            status: status.as_ref().and_then(|status| status.get(..3)?.parse().ok()),
            is_other_range: text.contains("Requested ") && text.contains(", got "),
            cause,
            reason,
        }
    }

    /// Whether the store does not allow it.
    fn is_refused(&self) -> bool {
        matches!(self.status, Some(401 | 403))
    }

    fn kind(&self) -> ErrorKind {
        match (self.cause, self.status) {
            (Cause::Credentials, Some(400 | 401 | 403)) => ErrorKind::FilePermission,
            (Cause::Credentials, _) => ErrorKind::FileAccess,
            _ if self.is_refused() => ErrorKind::FilePermission,
            _ => ErrorKind::FileAccess,
        }
    }

    fn message(&self, action: &str, url: &str) -> String {
        let denied = if self.is_refused() { "permission denied: " } else { "" };
        match self.cause {
            Cause::Credentials => format!("no token to {action} \"{url}\": {}", self.reason),
            _ => format!("could not {action} \"{url}\": {denied}{}", self.reason),
        }
    }

    fn hint(&self, url: &str) -> String {
        let options = credential_options(url);
        match self.cause {
            Cause::Credentials => format!("Check {options} in the user mapping, and the service of tokens."),
            _ if self.is_refused() => {
                format!("Check {options} in the user mapping, and what the store allows the key.")
            }
            Cause::Region => "Set the server option region to that of the bucket.".to_owned(),
            Cause::Foreign => "Set the server option endpoint to the URL of the store.".to_owned(),
            Cause::Other => {
                "Run the query again. If the error stays, check the server option endpoint and the store."
                    .to_owned()
            }
        }
    }

    fn into_error(self, url: &str) -> Error {
        if self.status == Some(404) && self.cause == Cause::Other {
            return Error::new(ErrorKind::FileNotFound, format!("file \"{url}\" does not exist"));
        }
        Error::new(self.kind(), self.message("read", url)).with_hint(self.hint(url))
    }
}

/// The part of a text between two others.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.split(begin).nth(1)?.split(end).next()
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
            "could not read \"s3://lake/t\": the request to the store failed"
        );
    }

    #[test]
    fn errors_name_the_option_that_helps() {
        let of = |url: &str, text: &str| {
            let error = StoreError::Generic { store: "any", source: text.to_owned().into() };
            request_failed(url, &error)
        };
        for (url, text, kind, message, option) in [
            (
                "gs://lake/t",
                r#"Error performing token request: Server returned non-2xx status code: 400 Bad Request: {"error":"invalid_grant","error_description":"hush"}"#,
                ErrorKind::FilePermission,
                "no token to read \"gs://lake/t\": the service of tokens answered 400 Bad Request (invalid_grant)",
                "service_account_key",
            ),
            (
                "s3://lake/t",
                "status code: 403 Forbidden: <Code>InvalidAccessKeyId</Code><Key>hush</Key>",
                ErrorKind::FilePermission,
                "could not read \"s3://lake/t\": permission denied: the store answered 403 Forbidden (InvalidAccessKeyId)",
                "secret_access_key",
            ),
            (
                "az://lake/t",
                "status code: 403 Forbidden: <Code>AuthenticationFailed</Code>",
                ErrorKind::FilePermission,
                "could not read \"az://lake/t\": permission denied: the store answered 403 Forbidden (AuthenticationFailed)",
                "account_key",
            ),
            (
                "https://h/t",
                "status code: 401 Unauthorized",
                ErrorKind::FilePermission,
                "could not read \"https://h/t\": permission denied: the store answered 401 Unauthorized",
                "bearer_token",
            ),
            (
                "s3://lake/t",
                "status code: 400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>",
                ErrorKind::FileAccess,
                "could not read \"s3://lake/t\": the store answered 400 Bad Request (AuthorizationHeaderMalformed)",
                "region",
            ),
            (
                "s3://lake/t",
                "Received redirect without LOCATION, this normally indicates an incorrectly configured region",
                ErrorKind::FileAccess,
                "could not read \"s3://lake/t\": the store answered that the bucket is elsewhere",
                "region",
            ),
            (
                "s3://lake/t",
                "Got invalid list response: hush",
                ErrorKind::FileAccess,
                "could not read \"s3://lake/t\": the answer is not that of such a store",
                "endpoint",
            ),
        ] {
            let error = of(url, text);
            assert_eq!((error.kind, error.message.as_str()), (kind, message));
            assert!(error.hint.as_ref().unwrap().contains(option), "{error:?}");
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        }
        let missing = StoreError::Generic { store: "GCS", source: "status code: 404 Not Found".into() };
        let error = list_failed("gs://none/t", &Place::parse("gs://none/t").unwrap(), &missing);
        assert_eq!(error.kind, ErrorKind::FileNotFound);
        assert!(error.message.contains("bucket \"none\"") && error.message.contains("gs://none/t"));
    }
}
