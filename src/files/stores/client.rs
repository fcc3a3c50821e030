//! Connections to stores, by place, options and credentials.
//!
//! Invariant: a request is signed by the user mapping of the asking role, by nothing, or, where the server's options say so, by what the
//! environment has. A role without a mapping is an error, never the environment.

use std::{sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, HeaderMap, HeaderValue, ObjectStore, RetryConfig,
    aws::AmazonS3Builder,
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::GoogleCloudStorageBuilder,
    http::HttpBuilder,
};
use pystachio_plan::{Error, ErrorKind, Result, Secret, StoreCredentials, StoreOptions};
use ring::digest::{Context, SHA256};

use super::{StoreSession, place::Place};

/// Tries of a request after the first one.
pub(super) const RETRIES_MAX: usize = 4;
/// The first wait between tries, and the longest.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a connection may take to be made.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections to one host that stay open between requests.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// A digest of what a client is made of, the credentials included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey([u8; 32]);

/// A client of a store, and the digest of what it is made of.
pub type KeyedClient = (ClientKey, Arc<dyn ObjectStore>);

impl StoreSession {
    /// The client for a place, with the credentials of a role.
    ///
    /// # Errors
    ///
    /// `FilePermission` if the role has no credentials for it; `InvalidArgument` for options that make no client.
    pub(super) fn client(&self, place: &Place, role: u32) -> Result<KeyedClient> {
        let options = self.options()?;
        let mapping = match options.credentials {
            StoreCredentials::UserMapping => self.access.mapping(role),
            _ => &[],
        };
        let key = client_key(place, options, mapping);
        if let Some(client) = self.stores.clients.get(&key) {
            return Ok((key, client));
        }
        let client = build(place, options, mapping)?;
        self.stores.clients.insert(key, client.clone());
        Ok((key, client))
    }

    /// The options of the server.
    pub(super) fn options(&self) -> Result<&StoreOptions> {
        let options = self.access.options.as_ref();
        options.ok_or_else(|| Error::internal("a request without the options of its stores"))
    }

    /// What tells this server's stores from those of the same name elsewhere.
    pub(super) fn endpoint(&self) -> &str {
        self.access.options.as_ref().and_then(|options| options.endpoint.as_deref()).unwrap_or_default()
    }
}

/// The digest of what a client of a place is made of.
pub(super) fn client_key(place: &Place, options: &StoreOptions, mapping: &[(String, Secret)]) -> ClientKey {
    let mut digest = Context::new(&SHA256);
    let mut add = |text: &str| {
        digest.update(&(text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    };
    add(&place.scheme);
    add(&place.bucket);
    // The list's age is no part of the connection, nor is what may be read by it.
    add(&format!("{:?}", StoreOptions { listing_age_ms: 0, allowed: Vec::new(), ..options.clone() }));
    for (name, value) in mapping {
        add(name);
        add(value.reveal());
    }
    let mut key = [0; 32];
    key.copy_from_slice(digest.finish().as_ref());
    ClientKey(key)
}

fn build(
    place: &Place,
    options: &StoreOptions,
    mapping: &[(String, Secret)],
) -> Result<Arc<dyn ObjectStore>> {
    let secret =
        |name: &str| mapping.iter().find(|(known, _)| known == name).map(|(_, value)| value.reveal());
    let client = client_options(options);
    let retry = retry(options);
    let is_anonymous = options.credentials == StoreCredentials::Anonymous;
    let is_of_environment = options.credentials == StoreCredentials::Environment;
    let refused = |_| invalid(place);
    Ok(match place.scheme.as_str() {
        "s3" => {
            let mut builder =
                if is_of_environment { AmazonS3Builder::from_env() } else { AmazonS3Builder::new() };
            builder = match (secret("access_key_id"), secret("secret_access_key")) {
                (Some(id), Some(key)) => builder.with_access_key_id(id).with_secret_access_key(key),
                _ if is_anonymous => builder.with_skip_signature(true),
                _ if is_of_environment => builder,
                _ => return Err(no_credentials(place)),
            };
            if let Some(token) = secret("session_token") {
                builder = builder.with_token(token);
            }
            if let Some(region) = &options.region {
                builder = builder.with_region(region);
            }
            if let Some(endpoint) = &options.endpoint {
                builder = builder.with_endpoint(match options.is_virtual_hosted {
                    true => with_bucket(endpoint, &place.bucket),
                    false => endpoint.clone(),
                });
            }
            let builder = builder
                .with_bucket_name(&place.bucket)
                .with_virtual_hosted_style_request(options.is_virtual_hosted)
                .with_client_options(client)
                .with_retry(retry);
            Arc::new(builder.build().map_err(refused)?)
        }
        "gs" => {
            let mut builder = match is_of_environment {
                true => GoogleCloudStorageBuilder::from_env(),
                false => GoogleCloudStorageBuilder::new(),
            };
            builder = match secret("service_account_key") {
                Some(key) => builder.with_service_account_key(key),
                None if is_anonymous => builder.with_skip_signature(true),
                None if is_of_environment => builder,
                None => return Err(no_credentials(place)),
            };
            if let Some(endpoint) = &options.endpoint {
                builder = builder.with_base_url(endpoint);
            }
            let builder =
                builder.with_bucket_name(&place.bucket).with_client_options(client).with_retry(retry);
            Arc::new(builder.build().map_err(refused)?)
        }
        "az" => {
            let mut builder = match is_of_environment {
                true => MicrosoftAzureBuilder::from_env(),
                false => MicrosoftAzureBuilder::new(),
            };
            let account = secret("account_name").map(str::to_owned);
            // Without a mapping the host's name has it.
            let account =
                account.or_else(|| options.endpoint.as_deref().filter(|_| is_anonymous).and_then(account_of));
            builder = match account {
                Some(account) => builder.with_account(account),
                None if is_of_environment => builder,
                None if is_anonymous => return Err(invalid(place)),
                None => return Err(no_credentials(place)),
            };
            builder = match (secret("account_key"), secret("sas_token")) {
                (Some(key), _) => builder.with_access_key(key),
                (None, Some(token)) => builder.with_config(AzureConfigKey::SasKey, token),
                _ if is_anonymous => builder.with_skip_signature(true),
                _ if is_of_environment => builder,
                _ => return Err(no_credentials(place)),
            };
            if let Some(endpoint) = &options.endpoint {
                builder = builder.with_endpoint(endpoint.clone());
            }
            let builder =
                builder.with_container_name(&place.bucket).with_client_options(client).with_retry(retry);
            Arc::new(builder.build().map_err(refused)?)
        }
        _ => {
            let client = match secret("bearer_token") {
                None => client,
                Some(token) => {
                    let mut value =
                        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| invalid(place))?;
                    value.set_sensitive(true);
                    let mut headers = HeaderMap::new();
                    headers.insert("authorization", value);
                    client.with_default_headers(headers)
                }
            };
            let url = format!("{}://{}", place.scheme, place.bucket);
            let client = client.with_allow_http(place.scheme == "http");
            let builder = HttpBuilder::new().with_url(url).with_client_options(client).with_retry(retry);
            Arc::new(builder.build().map_err(refused)?)
        }
    })
}

pub(super) fn client_options(options: &StoreOptions) -> ClientOptions {
    let is_plain = options.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new()
        .with_allow_http(is_plain)
        .with_timeout(Duration::from_millis(options.timeout_ms))
        .with_connect_timeout(CONNECT_TIMEOUT.min(Duration::from_millis(options.timeout_ms)))
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
}

pub(super) fn retry(options: &StoreOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: BACKOFF_MIN, max_backoff: BACKOFF_MAX, base: 2.0 },
        max_retries: RETRIES_MAX,
        retry_timeout: Duration::from_millis(options.timeout_ms),
    }
}

/// The endpoint of a bucket whose name is part of the host's.
fn with_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => endpoint.to_owned(),
    }
}

/// The account of a service of Azure: the first part of its host's name.
fn account_of(endpoint: &str) -> Option<String> {
    let (_, host) = endpoint.split_once("://")?;
    host.split_once('.').map(|(account, _)| account.to_owned())
}

/// The options of user mappings that have the credentials for a URL.
pub(super) fn credential_options(url: &str) -> &'static str {
    match url.split("://").next() {
        Some("s3") => "access_key_id and secret_access_key",
        Some("gs") => "service_account_key",
        Some("az") => "account_name, and account_key or sas_token",
        _ => "bearer_token",
    }
}

fn no_credentials(place: &Place) -> Error {
    let message = format!("no credentials for \"{}\"", place.url(""));
    let names = credential_options(&place.url(""));
    Error::new(ErrorKind::FilePermission, message).with_hint(format!(
        "CREATE USER MAPPING for the role with the options {names}, or set the server option credentials to 'anonymous'."
    ))
}

/// What the library refuses may quote a secret: its words are not passed on.
fn invalid(place: &Place) -> Error {
    let url = place.url("");
    let message = format!("the options of the server and the user mapping make no client for \"{url}\"");
    let form = match place.scheme.as_str() {
        "gs" => ": service_account_key is the JSON of a service account, with its private key",
        "az" => {
            ": account_key is in base64, sas_token a query, and of an anonymous server endpoint names the account"
        }
        _ => "",
    };
    Error::new(ErrorKind::InvalidArgument, message).with_hint(format!(
        "Check the server option endpoint, and {} in the user mapping{form}.",
        credential_options(&url)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> StoreOptions {
        StoreOptions {
            endpoint: Some("http://127.0.0.1:9".to_owned()),
            region: None,
            is_virtual_hosted: false,
            credentials: StoreCredentials::UserMapping,
            timeout_ms: 1000,
            listing_age_ms: 0,
            allowed: Vec::new(),
            catalog: None,
        }
    }

    fn mapping(options: &[(&str, &str)]) -> Vec<(String, Secret)> {
        options.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect()
    }

    #[test]
    fn clients_differ_by_who_asks() {
        let place = Place::parse("s3://lake/a").unwrap();
        let of = |secret: &str| client_key(&place, &options(), &mapping(&[("secret_access_key", secret)]));
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), client_key(&Place::parse("s3://lake2/a").unwrap(), &options(), &mapping(&[])));
    }

    #[test]
    fn nobody_is_served_without_credentials() {
        for path in ["s3://lake/a", "gs://lake/a", "az://lake/a"] {
            let error = build(&Place::parse(path).unwrap(), &options(), &[]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::FilePermission, "{path}");
        }
        let half = mapping(&[("access_key_id", "id")]);
        assert!(build(&Place::parse("s3://lake/a").unwrap(), &options(), &half).is_err());
        let whole = mapping(&[("access_key_id", "id"), ("secret_access_key", "hush")]);
        let client = build(&Place::parse("s3://lake/a").unwrap(), &options(), &whole).unwrap();
        assert!(!client.to_string().contains("hush"));
    }

    #[test]
    fn anonymous_requests_need_no_mapping() {
        let endpoint = Some("https://account.blob.example.org".to_owned());
        let open = StoreOptions { credentials: StoreCredentials::Anonymous, endpoint, ..options() };
        for path in ["s3://lake/a", "gs://lake/a", "az://lake/a", "https://h/a"] {
            assert!(build(&Place::parse(path).unwrap(), &open, &[]).is_ok(), "{path}");
        }
        assert_eq!(account_of("https://account.blob.example.org").as_deref(), Some("account"));
    }

    #[test]
    fn a_wrong_secret_is_not_quoted() {
        let place = Place::parse("gs://lake/a").unwrap();
        let error = build(&place, &options(), &mapping(&[("service_account_key", "{hush")])).unwrap_err();
        assert!(!format!("{error:?}").contains("hush"));
    }
}
