//! Signatures of AWS (version 4) on requests to catalogs, as Glue and S3 Tables demand.
//!
//! Invariants
//!
//! - A request is signed by the keys of the user mapping of the asking role, or, where the server's options say so, by what the environment has.
//! - A signature covers the host, the path, the query and all headers of a request but those that proxies change: it is good for nothing else.
//! - A path is encoded as strictly as signatures demand, so that the service has one way to read it.
//!
//! Source: AWS, "Create a signed AWS API request"; the properties `rest.sigv4-enabled`, `rest.signing-name` and `rest.signing-region` of Iceberg.

use std::{fmt, fmt::Write as _, sync::Arc};

use object_store::{
    StaticCredentialProvider,
    aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential, AwsCredentialProvider},
    client::{HttpRequest, HttpRequestBody},
};
use pystachio_plan::{CatalogSigning, Secret, StoreCredentials, StoreOptions};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderValue},
};

use super::client::{client_options, retry};

/// The region that is meant where nothing names one.
const REGION: &str = "us-east-1";
/// What a service is called that has no name, as in Iceberg's other clients.
const SERVICE: &str = "execute-api";
/// Where a token goes whose place the signature takes.
const OTHER_AUTHORIZATION: &str = "original-authorization";

/// The keys that sign.
#[derive(Clone)]
pub(super) struct SigningKeys(AwsCredentialProvider);

impl fmt::Debug for SigningKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKeys")
    }
}

impl SigningKeys {
    /// The keys that a user mapping has, or the environment where the options say so; none if there are none.
    pub(super) fn of(options: &StoreOptions, mapping: &[(String, Secret)]) -> Option<Self> {
        if options.credentials == StoreCredentials::Environment {
            // Only the keys of this client are used: the bucket is never asked for.
            let store = AmazonS3Builder::from_env()
                .with_bucket_name("none")
                .with_client_options(client_options(options))
                .with_retry(retry(options))
                .build()
                .ok()?;
            return Some(Self(store.credentials().clone()));
        }
        let secret =
            |name: &str| mapping.iter().find(|(known, _)| known == name).map(|(_, value)| value.reveal());
        let key = AwsCredential {
            key_id: secret("access_key_id")?.to_owned(),
            secret_key: secret("secret_access_key")?.to_owned(),
            token: secret("session_token").map(str::to_owned),
        };
        Some(Self(Arc::new(StaticCredentialProvider::new(key))))
    }

    /// The key that signs now; none if the environment has none, or it is no text of a header.
    pub(super) async fn current(&self) -> Option<Arc<AwsCredential>> {
        let key = self.0.get_credential().await.ok()?;
        let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_text(&key.key_id) && key.token.as_deref().is_none_or(is_text)).then_some(key)
    }
}

/// Signs a GET with these headers, and adds the signature to them.
pub(super) fn sign(
    url: &Url,
    headers: HeaderMap,
    key: &AwsCredential,
    signing: &CatalogSigning,
    options_region: Option<&str>,
) -> HeaderMap {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    // All URLs of this kind have one; a signature of another one is refused.
    *request.uri_mut() = url.as_str().parse().unwrap_or_default();
    *request.headers_mut() = headers;
    let region = signing.region.as_deref().or(options_region).unwrap_or(REGION);
    let service = signing.name.as_deref().unwrap_or(SERVICE);
    AwsAuthorizer::new(key, service, region).authorize(&mut request, None);
    std::mem::take(request.headers_mut())
}

/// The header that has a token beside a signature.
pub(super) fn other_authorization(token: &Secret) -> Option<(&'static str, HeaderValue)> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal())).ok()?;
    value.set_sensitive(true);
    Some((OTHER_AUTHORIZATION, value))
}

/// A part of a path, or of a query, in which all is encoded that could have a meaning.
pub(super) fn encode(part: &str) -> String {
    part.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // A String takes all that is written.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(options: &[(&str, &str)]) -> Vec<(String, Secret)> {
        options.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect()
    }

    fn options() -> StoreOptions {
        StoreOptions {
            endpoint: None,
            region: None,
            is_virtual_hosted: false,
            credentials: StoreCredentials::UserMapping,
            timeout_ms: 1000,
            listing_age_ms: 0,
            allowed: Vec::new(),
            catalog: None,
        }
    }

    async fn current(pairs: &[(&str, &str)]) -> Option<Arc<AwsCredential>> {
        SigningKeys::of(&options(), &mapping(pairs))?.current().await
    }

    #[tokio::test]
    async fn keys_are_those_of_the_mapping_alone() {
        assert!(current(&[]).await.is_none());
        assert!(current(&[("access_key_id", "a")]).await.is_none());
        let whole = current(&[("access_key_id", "a"), ("secret_access_key", "hush"), ("session_token", "t")]);
        let whole = whole.await.unwrap();
        assert_eq!((whole.key_id.as_str(), whole.token.as_deref()), ("a", Some("t")));
        for wrong in ["", "a\nb", "é"] {
            assert!(current(&[("access_key_id", wrong), ("secret_access_key", "s")]).await.is_none());
        }
        let keys = SigningKeys::of(
            &options(),
            &mapping(&[("access_key_id", "hush"), ("secret_access_key", "hush")]),
        );
        assert!(!format!("{keys:?}").contains("hush"));
    }

    #[test]
    fn a_signature_names_service_and_region_and_covers_all_headers() {
        let key = AwsCredential { key_id: "id".to_owned(), secret_key: "s".to_owned(), token: None };
        let url = Url::parse("https://h.example.org/v1/config?warehouse=a%2Fb").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-iceberg-access-delegation", HeaderValue::from_static("vended-credentials"));
        let authorization = |signing: &CatalogSigning, region| {
            let signed = sign(&url, headers.clone(), &key, signing, region);
            signed["authorization"].to_str().unwrap().to_owned()
        };
        let glue = CatalogSigning { name: Some("glue".to_owned()), ..CatalogSigning::default() };
        let signed = authorization(&glue, Some("eu-central-1"));
        assert!(signed.contains("/eu-central-1/glue/aws4_request"), "{signed}");
        let covered =
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-iceberg-access-delegation, Signature=";
        assert!(signed.contains(covered), "{signed}");
        let own = CatalogSigning { region: Some("us-west-2".to_owned()), ..CatalogSigning::default() };
        assert!(authorization(&own, Some("eu-central-1")).contains("/us-west-2/execute-api/aws4_request"));
        assert!(authorization(&CatalogSigning::default(), None).contains("/us-east-1/execute-api/"));
    }

    #[test]
    fn parts_keep_to_their_place() {
        assert_eq!(encode("a/b:c d%\u{1F}é~-._"), "a%2Fb%3Ac%20d%25%1F%C3%A9~-._");
    }
}
