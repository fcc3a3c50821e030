//! REST catalogs of Iceberg: which metadata file describes a table now, the keys that a catalog lends for it, and which tables a
//! namespace has.
//!
//! ```text
//! client id, secret ─► token ─┐
//!                             ▼
//! names of a table ─► GET v1/…/namespaces/…/tables/… ─► path of the metadata file, keys ─► a session that reads the table
//! ```
//!
//! Invariants
//!
//! - The token or secret of a role is sent to the URLs of the server's options alone: no answer leads elsewhere, and redirections are errors.
//! - What a catalog names is read as all paths in stores are: where the server's option `stores` allows it.
//! - Answers, requests and waits are bounded. No error has a part of a request or an answer but numbers and the name of an error.
//! - A kept answer is not used once the keys that the catalog lends in it have ended.
//!
//! Deliberately absent: other ways to log in than tokens and signatures (`signature.rs`), and all that changes a catalog.
//!
//! Source: the Iceberg REST Catalog API; RFC 6749, section 4.4.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use object_store::aws::AwsCredential;
use pystachio_plan::{
    CatalogOptions, CatalogSigning, Error, ErrorKind, Result, Secret, StoreCredentials, StoreName,
    StoreOptions, TableFormat, TableVersion, percent_decoded_bytes,
};
use pystachio_tables::store_path;
use reqwest::{
    Client, RequestBuilder, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::{
    StoreSession,
    client::{BACKOFF_MAX, BACKOFF_MIN, CONNECT_TIMEOUT, ClientKey, RETRIES_MAX, client_key},
    place::Place,
    signature::{self, SigningKeys},
};

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Tables of a namespace at most.
const TABLES_MAX: usize = 10_000;
/// How long a token is taken for valid that does not say it.
const TOKEN_AGE: Duration = Duration::from_secs(600);
/// How long before its end a token is renewed.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// How long before their end lent keys are asked for again.
const LENT_MARGIN: Duration = Duration::from_secs(60);
/// Bytes of an answer that has an error, of which its name is looked for.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The most letters of an error's name.
const ERROR_NAME_MAX: usize = 64;
/// What is between the names of namespaces, unless the catalog says otherwise.
const SEPARATOR: &str = "\u{1F}";
/// How catalogs say that they list views.
const VIEWS_ENDPOINT: &str = "GET /v1/{prefix}/namespaces/{namespace}/views";
/// What a token is asked for, unless the server's option says otherwise.
const SCOPE: &str = "catalog";

/// A catalog, as one user mapping may use it.
#[derive(Debug)]
pub struct RestCatalog {
    options: CatalogOptions,
    lends_keys: bool,
    timeout: Duration,
    client: Client,
    /// What the user mapping has: a token, or what one is given for.
    token: Option<Secret>,
    login: Option<(Secret, Secret)>,
    /// The token that was given, and until when it is valid.
    granted: Mutex<Option<(Secret, Instant)>>,
    /// What signs requests, where that is on.
    keys: Option<SigningKeys>,
    /// The server's region of stores.
    region: Option<String>,
    paths: OnceCell<CatalogPaths>,
    requests: Arc<Semaphore>,
}

/// A table as its catalog describes it.
#[derive(Clone, Debug)]
pub struct CatalogTable {
    /// The file that describes it now.
    pub metadata: PathBuf,
    /// By which it is read.
    pub session: StoreSession,
}

/// What a catalog answers about a table, and when it did.
pub(super) type KnownTable = (Instant, Arc<LoadedTable>);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LoadedTable {
    metadata_location: Option<String>,
    #[serde(default)]
    config: HashMap<String, Secret>,
    #[serde(default)]
    storage_credentials: Vec<LentKeys>,
}

#[derive(Debug, Deserialize)]
struct LentKeys {
    prefix: String,
    config: HashMap<String, Secret>,
}

/// How the paths of a catalog's answers are made, and how requests for them are signed.
#[derive(Debug, PartialEq, Eq)]
struct CatalogPaths {
    prefix: Vec<String>,
    separator: String,
    signing: CatalogSigning,
    /// Whether the catalog says that it lists views.
    has_views: bool,
}

/// Why a request has no answer.
#[derive(Debug)]
struct Failure {
    status: Option<u16>,
    reason: String,
    /// The same request may be answered later.
    may_pass: bool,
}

impl StoreSession {
    /// A table of the server's catalog, which a role reads. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` if the catalog has none of that name; `FilePermission` if it refuses the role, or lends no keys where the server's
    /// options say that it does; `NotSupported` for a table that is not in a store; `FileAccess`.
    pub(crate) fn catalog_table(&self, names: &[String], role: u32) -> Result<CatalogTable> {
        let (key, catalog) = self.rest_catalog(role)?;
        let options = self.options()?;
        let age = Duration::from_millis(options.listing_age_ms);
        let key = (key, names.to_vec());
        let is_current = |(at, loaded): &KnownTable| {
            at.elapsed() < age && (!catalog.lends_keys || loaded.lends_for(LENT_MARGIN))
        };
        let known = self.stores.catalog_tables.get(&key).filter(is_current);
        let loaded = match known {
            Some((_, loaded)) => loaded,
            None => {
                let (asked, names, at) = (catalog.clone(), names.to_vec(), Instant::now());
                let loaded = Arc::new(self.wait(async move { asked.table(&names).await })?);
                if !age.is_zero() {
                    self.stores.catalog_tables.insert(key, (at, loaded.clone()));
                }
                loaded
            }
        };
        let table = names.join(".");
        let location = loaded.metadata_location.as_deref().ok_or_else(|| {
            let message = format!("table \"{table}\" of the catalog was created, and not yet committed");
            Error::new(ErrorKind::FileNotFound, message)
        })?;
        let metadata = store_path(location).ok_or_else(|| {
            let message = format!("table \"{table}\" of the catalog is not in a store: \"{location}\"");
            Error::new(ErrorKind::NotSupported, message).with_hint(
                "Files of the server's host are read by the option path: set it to that of the metadata file, with the option format 'iceberg'.",
            )
        })?;
        let session = match catalog.lends_keys {
            false => self.clone(),
            true => {
                let (options, mapping) =
                    loaded.lent(location, options).ok_or_else(|| catalog.lends_nothing(&table))?;
                self.with_access(role, options, mapping)
            }
        };
        Ok(CatalogTable { metadata, session })
    }

    /// The tables of a namespace of the server's catalog. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::catalog_table`], of the namespace; `NotSupported` for too many.
    pub(super) fn catalog_tables(&self, namespace: &[String], role: u32) -> Result<Vec<StoreName>> {
        let (_, catalog) = self.rest_catalog(role)?;
        let namespace = namespace.to_vec();
        let names = self.wait(async move { catalog.tables(&namespace).await })?;
        let name =
            |name| StoreName { name, is_folder: true, format: TableFormat::Iceberg(TableVersion::Latest) };
        Ok(names.into_iter().map(name).collect())
    }

    pub(super) fn rest_catalog(&self, role: u32) -> Result<(ClientKey, Arc<RestCatalog>)> {
        let options = self.options()?;
        let catalog = options.catalog.as_ref();
        let catalog =
            catalog.ok_or_else(|| Error::internal("a table of a catalog on a server without one"))?;
        let mapping = self.access.mapping(role);
        let place = Place { scheme: "catalog".to_owned(), bucket: String::new(), key: String::new() };
        let key = client_key(&place, options, mapping);
        if let Some(known) = self.stores.catalogs.get(&key) {
            return Ok((key, known));
        }
        let made = Arc::new(RestCatalog::new(catalog, options, mapping, self.stores.requests.clone())?);
        self.stores.catalogs.insert(key, made.clone());
        Ok((key, made))
    }
}

impl RestCatalog {
    fn new(
        catalog: &CatalogOptions,
        options: &StoreOptions,
        mapping: &[(String, Secret)],
        requests: Arc<Semaphore>,
    ) -> Result<Self> {
        let secret =
            |name: &str| mapping.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let timeout = Duration::from_millis(options.timeout_ms);
        let client = Client::builder()
            .timeout(timeout)
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            // A redirection would have the token sent elsewhere.
            .redirect(redirect::Policy::none())
            .user_agent("pystachio")
            .build()
            .map_err(|_| Error::internal("no client for a catalog can be made"))?;
        Ok(Self {
            options: catalog.clone(),
            lends_keys: options.credentials == StoreCredentials::Catalog,
            timeout,
            client,
            token: secret("token"),
            login: secret("client_id").zip(secret("client_secret")),
            keys: SigningKeys::of(options, mapping),
            region: options.region.clone(),
            granted: Mutex::default(),
            paths: OnceCell::new(),
            requests,
        })
    }

    async fn table(&self, names: &[String]) -> Result<LoadedTable> {
        let what = format!("table \"{}\"", names.join("."));
        let (table, namespace) =
            names.split_last().ok_or_else(|| Error::internal("a table without a name"))?;
        let mut url = self.list_url(namespace, "tables").await?;
        self.extend(&mut url, [table.as_str()])?;
        self.ask(&what, &url).await
    }

    async fn tables(&self, namespace: &[String]) -> Result<Vec<String>> {
        self.named(namespace, "tables").await
    }

    /// The names of the views of a namespace. Catalogs that know no views have none.
    ///
    /// # Errors
    ///
    /// As of a list of tables.
    pub(super) async fn views(&self, namespace: &[String]) -> Result<Vec<String>> {
        match self.knows_views().await? {
            true => self.named(namespace, "views").await,
            false => Ok(Vec::new()),
        }
    }

    /// What the catalog answers about a view.
    ///
    /// # Errors
    ///
    /// As of a table.
    pub(super) async fn view<T: DeserializeOwned>(&self, namespace: &[String], name: &str) -> Result<T> {
        let what = format!("view \"{}\"", [namespace, &[name.to_owned()]].concat().join("."));
        let mut url = self.list_url(namespace, "views").await?;
        self.extend(&mut url, [name])?;
        self.ask(&what, &url).await
    }

    /// The names of the tables or views of a namespace.
    async fn named(&self, namespace: &[String], kind: &str) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Page {
            #[serde(default)]
            identifiers: Vec<Identifier>,
            next_page_token: Option<String>,
        }
        #[derive(Deserialize)]
        struct Identifier {
            name: String,
        }
        let what = format!("namespace \"{}\"", namespace.join("."));
        let url = self.list_url(namespace, kind).await?;
        let (mut found, mut page) = (Vec::new(), None::<String>);
        // A page may be empty, and not be the last one.
        for _ in 0..TABLES_MAX {
            let mut url = url.clone();
            if let Some(page) = &page {
                extend_query(&mut url, "pageToken", page);
            }
            let Page { identifiers, next_page_token } = self.ask(&what, &url).await?;
            found.extend(identifiers.into_iter().map(|identifier| identifier.name));
            page = next_page_token.filter(|next| !next.is_empty());
            if page.is_none() || found.len() > TABLES_MAX {
                break;
            }
        }
        if page.is_some() || found.len() > TABLES_MAX {
            let message = format!("{what} of the catalog has more than {TABLES_MAX} {kind}");
            return Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("CREATE FOREIGN TABLE with the option table for each of those that are wanted."));
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The URL of the tables or views of a namespace.
    async fn list_url(&self, namespace: &[String], kind: &str) -> Result<Url> {
        let paths = self.paths().await?;
        let mut url = self.url(&self.options.url)?;
        self.extend(&mut url, ["v1"])?;
        self.extend(&mut url, paths.prefix.iter().map(String::as_str))?;
        self.extend(&mut url, ["namespaces", namespace.join(&paths.separator).as_str(), kind])?;
        Ok(url)
    }

    async fn knows_views(&self) -> Result<bool> {
        Ok(self.paths().await?.has_views)
    }

    async fn paths(&self) -> Result<&CatalogPaths> {
        self.paths.get_or_try_init(|| self.read_paths()).await
    }

    async fn read_paths(&self) -> Result<CatalogPaths> {
        let mut url = self.url(&self.options.url)?;
        self.extend(&mut url, ["v1", "config"])?;
        if let Some(warehouse) = &self.options.warehouse {
            extend_query(&mut url, "warehouse", warehouse);
        }
        let config: CatalogConfig = self.ask("its configuration", &url).await?;
        Ok(config.paths(&self.options.signing))
    }

    fn url(&self, text: &str) -> Result<Url> {
        Url::parse(text).map_err(|_| self.invalid_url())
    }

    fn extend<'s>(&self, url: &mut Url, parts: impl IntoIterator<Item = &'s str>) -> Result<()> {
        if url.cannot_be_a_base() {
            return Err(self.invalid_url());
        }
        let mut path = url.path().trim_end_matches('/').to_owned();
        // These would lead up.
        for part in parts.into_iter().filter(|part| !matches!(*part, "." | "..")) {
            path.push('/');
            path.push_str(&signature::encode(part));
        }
        url.set_path(&path);
        Ok(())
    }

    /// How the next request is signed: before the catalog has said it, as the server's options say.
    fn signing(&self) -> &CatalogSigning {
        self.paths.get().map_or(&self.options.signing, |paths| &paths.signing)
    }

    /// What the catalog answers.
    async fn ask<T: DeserializeOwned>(&self, what: &str, url: &Url) -> Result<T> {
        let mut is_renewed = false;
        loop {
            let token = self.bearer(is_renewed).await?;
            let mut headers = HeaderMap::new();
            if self.lends_keys {
                headers.insert("x-iceberg-access-delegation", HeaderValue::from_static("vended-credentials"));
            }
            let signing = self.signing();
            let key = match (signing.is_on == Some(true), &self.keys) {
                (false, _) => None,
                (true, None) => return Err(self.no_keys(what)),
                (true, Some(keys)) => Some(keys.current().await.ok_or_else(|| self.no_keys(what))?),
            };
            if key.is_some() {
                headers.extend(
                    token
                        .as_ref()
                        .and_then(signature::other_authorization)
                        .map(|(name, value)| (HeaderName::from_static(name), value)),
                );
            }
            let request = || {
                let request = self.client.get(url.clone());
                match (&key, &token) {
                    // A signature is good for some minutes: each try has its own.
                    (Some(key), _) => request.headers(self.signed(url, headers.clone(), key)),
                    (None, Some(token)) => request.headers(headers.clone()).bearer_auth(token.reveal()),
                    (None, None) => request.headers(headers.clone()),
                }
            };
            match self.answer(request).await {
                Ok(answer) => return serde_json::from_slice(&answer).map_err(|_| self.not_of_protocol(what)),
                // It may have ended before its time.
                Err(Failure { status: Some(401 | 419), .. }) if self.login.is_some() && !is_renewed => {
                    is_renewed = true;
                }
                Err(failure) => return Err(self.failed(what, failure)),
            }
        }
    }

    fn signed(&self, url: &Url, headers: HeaderMap, key: &AwsCredential) -> HeaderMap {
        signature::sign(url, headers, key, self.signing(), self.region.as_deref())
    }

    /// The token to send, if the user mapping has one or is given one. `renewed`: not the one that is known.
    async fn bearer(&self, renewed: bool) -> Result<Option<Secret>> {
        #[derive(Deserialize)]
        struct Granted {
            access_token: Secret,
            expires_in: Option<f64>,
        }
        if let Some(token) = &self.token {
            return Ok(Some(token.clone()));
        }
        let Some((id, secret)) = &self.login else { return Ok(None) };
        // Who comes meanwhile waits for the same token.
        let mut granted = self.granted.lock().await;
        if let Some((token, until)) = granted.as_ref()
            && !renewed
            && Instant::now() < *until
        {
            return Ok(Some(token.clone()));
        }
        let url = match &self.options.token_url {
            Some(url) => self.url(url)?,
            None => {
                let mut url = self.url(&self.options.url)?;
                self.extend(&mut url, ["v1", "oauth", "tokens"])?;
                url
            }
        };
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", id.reveal()),
            ("client_secret", secret.reveal()),
            ("scope", self.options.scope.as_deref().unwrap_or(SCOPE)),
        ];
        let what = "a token";
        let answer = self.answer(|| self.client.post(url.clone()).form(&form)).await;
        let answer = answer.map_err(|failure| match failure.status {
            Some(400 | 401 | 403) => self.failed(what, Failure { status: Some(401), ..failure }),
            _ => self.failed(what, failure),
        })?;
        let Granted { access_token, expires_in } =
            serde_json::from_slice(&answer).map_err(|_| self.not_of_protocol(what))?;
        let age = expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let age = age.map_or(TOKEN_AGE, |age| age.min(Duration::from_secs(86_400)));
        *granted = Some((access_token.clone(), Instant::now() + age.saturating_sub(TOKEN_MARGIN)));
        Ok(Some(access_token))
    }

    /// The body of an answer that is no error; others are asked for again if they may pass.
    async fn answer(&self, request: impl Fn() -> RequestBuilder) -> std::result::Result<Vec<u8>, Failure> {
        let (begin, mut wait, mut tries) = (Instant::now(), BACKOFF_MIN, 0);
        loop {
            let failure = match self.answer_once(request()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !failure.may_pass || tries >= RETRIES_MAX || begin.elapsed() + wait >= self.timeout {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
            tries += 1;
            wait = BACKOFF_MAX.min(wait * 2);
        }
    }

    async fn answer_once(&self, request: RequestBuilder) -> std::result::Result<Vec<u8>, Failure> {
        let refused = |reason: &str| Failure { status: None, reason: reason.to_owned(), may_pass: false };
        let _permit = self.requests.acquire().await.map_err(|_| refused("requests have ended"))?;
        let mut response = request.send().await.map_err(|error| Failure::of(&error))?;
        let status = response.status();
        if !status.is_success() {
            let header = response.headers().get("x-amzn-errortype");
            let header = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let mut body = Vec::new();
            // An error without a name is one, too.
            while let Ok(Some(part)) = response.chunk().await
                && body.len() < ERROR_BYTES_MAX
            {
                body.extend_from_slice(&part);
            }
            let name = error_name(header.as_deref(), &body);
            return Err(Failure {
                status: Some(status.as_u16()),
                reason: match name {
                    Some(name) => format!("it answered {status} ({name})"),
                    None => format!("it answered {status}"),
                },
                may_pass: matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            });
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| Failure::of(&error))? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(refused("its answer is too long"));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    fn failed(&self, what: &str, failure: Failure) -> Error {
        let url = &self.options.url;
        match failure.status {
            Some(404) => {
                Error::new(ErrorKind::FileNotFound, format!("catalog \"{url}\" does not have {what}"))
                    .with_hint("Check the server options catalog and warehouse, and the name.")
            }
            Some(401 | 403 | 419) => {
                let message = format!("catalog \"{url}\" refuses {what} to the role: {}", failure.reason);
                let hint = match self.signing().is_on {
                    Some(true) => {
                        "Check access_key_id, secret_access_key and session_token of the user mapping, the server options signing_name and signing_region, and what the service allows the key."
                    }
                    _ => {
                        "Give the role a user mapping with the option token, or with client_id and client_secret, and let the catalog allow it the table. A service of AWS needs the server option sigv4_enabled."
                    }
                };
                Error::new(ErrorKind::FilePermission, message).with_hint(hint)
            }
            _ => {
                let message = format!("catalog \"{url}\" was asked for {what}: {}", failure.reason);
                Error::new(ErrorKind::FileAccess, message).with_hint(
                    "Run the query again. If the error stays, check the server options catalog and warehouse, and the service.",
                )
            }
        }
    }

    fn not_of_protocol(&self, what: &str) -> Error {
        let message = format!(
            "catalog \"{}\" was asked for {what}: its answer is none of a REST catalog",
            self.options.url
        );
        Error::new(ErrorKind::FileAccess, message)
            .with_hint("Set the server option catalog to the URL of a REST catalog of Iceberg, without /v1.")
    }

    fn invalid_url(&self) -> Error {
        let message = format!("catalog \"{}\" is no URL", self.options.url);
        Error::new(ErrorKind::InvalidArgument, message).with_hint("Check the server option catalog.")
    }

    fn no_keys(&self, what: &str) -> Error {
        let message =
            format!("no credentials for catalog \"{}\", of which the role asks for {what}", self.options.url);
        Error::new(ErrorKind::FilePermission, message).with_hint(
            "Requests to this catalog are signed: CREATE USER MAPPING for the role with the options access_key_id and secret_access_key.",
        )
    }

    fn lends_nothing(&self, table: &str) -> Error {
        let message = format!("catalog \"{}\" lends no keys of S3 for table \"{table}\"", self.options.url);
        Error::new(ErrorKind::FilePermission, message).with_hint(
            "Let the catalog lend some, or set the server option credentials to 'user_mapping' and give the role keys of the store.",
        )
    }
}

impl LoadedTable {
    /// Whether no key that is lent for the table ends within so long.
    fn lends_for(&self, margin: Duration) -> bool {
        let all = self.storage_credentials.iter().map(|keys| &keys.config).chain([&self.config]);
        let ends = all.filter_map(|config| config.get("s3.session-token-expires-at-ms"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + margin;
        ends.filter_map(|end| end.reveal().parse::<u128>().ok()).all(|end| end > now.as_millis())
    }

    /// The options of stores and the keys that the catalog lends for the table. What the server's options say counts first.
    fn lent(&self, location: &str, options: &StoreOptions) -> Option<(StoreOptions, Vec<(String, Secret)>)> {
        let fitting = self.storage_credentials.iter().filter(|keys| location.starts_with(&keys.prefix));
        let special = fitting.max_by_key(|keys| keys.prefix.len()).map(|keys| &keys.config);
        let value = |name: &str| special.and_then(|keys| keys.get(name)).or_else(|| self.config.get(name));
        let text = |name: &str| value(name).map(|value| value.reveal().to_owned());
        let mut mapping = vec![
            ("access_key_id".to_owned(), value("s3.access-key-id")?.clone()),
            ("secret_access_key".to_owned(), value("s3.secret-access-key")?.clone()),
        ];
        mapping.extend(value("s3.session-token").map(|token| ("session_token".to_owned(), token.clone())));
        let is_virtual_hosted = match &options.endpoint {
            Some(_) => options.is_virtual_hosted,
            None => text("s3.path-style-access").is_some_and(|is_path| is_path == "false"),
        };
        let region = || text("client.region").or_else(|| text("s3.region"));
        let options = StoreOptions {
            credentials: StoreCredentials::UserMapping,
            endpoint: options.endpoint.clone().or_else(|| text("s3.endpoint")),
            region: options.region.clone().or_else(region),
            is_virtual_hosted,
            ..options.clone()
        };
        Some((options, mapping))
    }
}

#[derive(Debug, Default, Deserialize)]
struct CatalogConfig {
    #[serde(default)]
    defaults: HashMap<String, Option<String>>,
    #[serde(default)]
    overrides: HashMap<String, Option<String>>,
    /// What it can be asked for.
    #[serde(default)]
    endpoints: Vec<String>,
}

impl CatalogConfig {
    /// How requests are made from now on, on a server with these options.
    fn paths(&self, own: &CatalogSigning) -> CatalogPaths {
        let value = |name: &str| self.overrides.get(name).or_else(|| self.defaults.get(name))?.as_deref();
        let prefix = value("prefix").unwrap_or_default();
        let separator = value("namespace-separator").map_or(SEPARATOR.to_owned(), decoded);
        CatalogPaths {
            prefix: prefix.split('/').filter(|part| !part.is_empty()).map(decoded).collect(),
            separator,
            signing: self.signing(own),
            has_views: match self.endpoints.is_empty() {
                // Catalogs that do not say what they can be asked for may say this.
                true => value("view-endpoints-supported") == Some("true"),
                false => self.endpoints.iter().any(|endpoint| endpoint == VIEWS_ENDPOINT),
            },
        }
    }

    /// How requests are signed: overrides count before the server's options, and defaults after them. An option that says
    /// that they are not signed counts most, so that a catalog has no role's key used that was not to be.
    fn signing(&self, own: &CatalogSigning) -> CatalogSigning {
        let pick = |property: &str, own: Option<&str>, is_valid: fn(&str) -> bool| {
            let of = |properties: &HashMap<String, Option<String>>| {
                properties.get(property).cloned().flatten().filter(|text| is_valid(text))
            };
            of(&self.overrides).or_else(|| own.map(str::to_owned)).or_else(|| of(&self.defaults))
        };
        let is_on = own.is_on.map(|is_on| if is_on { "true" } else { "false" });
        let is_boolean = |text: &str| ["true", "false"].contains(&text);
        let is_on = match own.is_on {
            Some(false) => Some(false),
            _ => pick("rest.sigv4-enabled", is_on, is_boolean).map(|text| text == "true"),
        };
        CatalogSigning {
            is_on,
            name: pick("rest.signing-name", own.name.as_deref(), CatalogSigning::is_name),
            region: pick("rest.signing-region", own.region.as_deref(), CatalogSigning::is_name),
        }
    }
}

/// A text of a catalog's configuration as it is without the encoding of URLs, in which catalogs send it.
fn decoded(text: &str) -> String {
    String::from_utf8(percent_decoded_bytes(text)).unwrap_or_else(|_| text.to_owned())
}

/// Adds a pair to a query. A blank has one encoding there, which signatures demand.
fn extend_query(url: &mut Url, name: &str, value: &str) {
    let pair = format!("{}={}", signature::encode(name), signature::encode(value));
    let query = url.query().map_or(pair.clone(), |query| format!("{query}&{pair}"));
    url.set_query(Some(&query));
}

/// The name that a service gives an error, if it is a word.
fn error_name(header: Option<&str>, body: &[u8]) -> Option<String> {
    let of_body = || {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let names = [&body["error"]["type"], &body["__type"], &body["error"]];
        names.into_iter().find_map(serde_json::Value::as_str).map(str::to_owned)
    };
    let name = header.map(str::to_owned).or_else(of_body)?;
    // As in com.amazon.coral.service#ExpiredTokenException:http://internal.amazon.com/…
    let name = name.split(':').next()?.rsplit('#').next()?;
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    ((1..=ERROR_NAME_MAX).contains(&name.len()) && name.chars().all(is_letter)).then(|| name.to_owned())
}

impl Failure {
    /// What is said of an error whose own words have a URL.
    fn of(error: &reqwest::Error) -> Self {
        let reason = if error.is_timeout() {
            "it did not answer in time"
        } else if error.is_connect() {
            "no connection to it"
        } else {
            "the connection was cut"
        };
        Self { status: None, reason: reason.to_owned(), may_pass: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> StoreOptions {
        StoreOptions {
            endpoint: None,
            region: None,
            is_virtual_hosted: false,
            credentials: StoreCredentials::Catalog,
            timeout_ms: 1000,
            listing_age_ms: 0,
            allowed: Vec::new(),
            catalog: None,
        }
    }

    #[test]
    fn paths_are_made_as_the_catalog_says() {
        let paths = |text: &str| {
            serde_json::from_str::<CatalogConfig>(text).unwrap().paths(&CatalogSigning::default())
        };
        let own = |prefix: &[&str], separator: &str| CatalogPaths {
            prefix: prefix.iter().map(|part| (*part).to_owned()).collect(),
            separator: separator.to_owned(),
            signing: CatalogSigning::default(),
            has_views: false,
        };
        assert_eq!(paths("{}"), own(&[], "\u{1F}"));
        let both = r#"{"defaults": {"prefix": "a", "x": null}, "overrides": {"prefix": "ws/b c"}}"#;
        assert_eq!(paths(both), own(&["ws", "b c"], "\u{1F}"));
        assert_eq!(paths(r#"{"defaults": {"namespace-separator": "%2E"}}"#), own(&[], "."));
        let of_aws = r#"{"overrides": {"prefix": "arn%3Aaws%3As3tables%3Ar%3A1%3Abucket%2Flake"}}"#;
        assert_eq!(paths(of_aws), own(&["arn:aws:s3tables:r:1:bucket/lake"], "\u{1F}"));
    }

    #[test]
    fn a_catalog_says_whether_it_has_views() {
        let has_views = |text: &str| {
            let config: CatalogConfig = serde_json::from_str(text).unwrap();
            config.paths(&CatalogSigning::default()).has_views
        };
        assert!(has_views(r#"{"endpoints": ["GET /v1/{prefix}/namespaces/{namespace}/views"]}"#));
        assert!(has_views(r#"{"defaults": {"view-endpoints-supported": "true"}}"#));
        assert!(!has_views("{}"));
        assert!(!has_views(
            r#"{"endpoints": ["GET /v1/{prefix}/namespaces"], "defaults": {"view-endpoints-supported": "true"}}"#
        ));
    }

    #[test]
    fn a_catalog_says_how_requests_are_signed_unless_the_server_forbids_it() {
        let config: CatalogConfig = serde_json::from_str(
            r#"{"defaults": {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1", "rest.signing-name": "a b"},
                "overrides": {"rest.signing-name": "glue"}}"#,
        )
        .unwrap();
        let own = |is_on, name: Option<&str>, region: Option<&str>| CatalogSigning {
            is_on,
            name: name.map(str::to_owned),
            region: region.map(str::to_owned),
        };
        let glue = own(Some(true), Some("glue"), Some("eu-west-1"));
        assert_eq!(config.signing(&CatalogSigning::default()), glue);
        let with_own = config.signing(&own(Some(true), Some("s3tables"), Some("us-west-2")));
        assert_eq!(with_own, own(Some(true), Some("glue"), Some("us-west-2")));
        assert_eq!(config.signing(&own(Some(false), None, None)).is_on, Some(false));
        // Names that are none are not taken.
        let wrong: CatalogConfig = serde_json::from_str(
            r#"{"overrides": {"rest.signing-name": "a/b", "rest.sigv4-enabled": "yes"}}"#,
        )
        .unwrap();
        assert_eq!(wrong.signing(&CatalogSigning::default()), CatalogSigning::default());
    }

    #[test]
    fn errors_have_the_name_that_a_service_gives_them_and_nothing_else() {
        let aws = "com.amazon.coral.service#ExpiredTokenException:http://internal/";
        assert_eq!(error_name(Some(aws), b"").as_deref(), Some("ExpiredTokenException"));
        for (body, name) in [
            (
                r#"{"error": {"type": "NotAuthorizedException", "message": "hush"}}"#,
                Some("NotAuthorizedException"),
            ),
            (r#"{"error": "invalid_client"}"#, Some("invalid_client")),
            (r#"{"__type": "a.b#AccessDeniedException"}"#, Some("AccessDeniedException")),
            (r#"{"error": {"type": "hush 1"}}"#, None),
            (r#"{"message": "hush"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(error_name(None, body.as_bytes()).as_deref(), name, "{body}");
        }
    }

    #[test]
    fn lent_keys_that_have_ended_are_not_kept() {
        let lends = |text: &str| serde_json::from_str::<LoadedTable>(text).unwrap().lends_for(LENT_MARGIN);
        assert!(lends("{}"));
        assert!(lends(r#"{"config": {"s3.session-token-expires-at-ms": "99999999999999"}}"#));
        assert!(!lends(r#"{"config": {"s3.session-token-expires-at-ms": "1700000000000"}}"#));
        assert!(!lends(
            r#"{"storage-credentials": [{"prefix": "s3", "config": {"s3.session-token-expires-at-ms": "1"}}]}"#
        ));
    }

    #[test]
    fn names_keep_to_their_part_of_the_url() {
        let catalog = CatalogOptions {
            url: "http://h/base/".to_owned(),
            warehouse: None,
            token_url: None,
            scope: None,
            signing: CatalogSigning::default(),
        };
        let requests = Arc::new(Semaphore::new(1));
        let catalog = RestCatalog::new(&catalog, &options(), &[], requests).unwrap();
        let mut url = catalog.url("http://h/base/").unwrap();
        catalog.extend(&mut url, ["v1", "a/../b?c#d%", "x\u{1F}y"]).unwrap();
        assert_eq!(url.as_str(), "http://h/base/v1/a%2F..%2Fb%3Fc%23d%25/x%1Fy");
    }

    #[test]
    fn keys_are_those_of_the_longest_prefix_and_are_not_shown() {
        let loaded: LoadedTable = serde_json::from_str(
            r#"{"metadata-location": "s3://lake/t/metadata/1.metadata.json", "metadata": {"x": 1},
                "config": {"s3.access-key-id": "a", "s3.secret-access-key": "hush", "s3.endpoint": "http://e", "client.region": "r"},
                "storage-credentials": [
                    {"prefix": "s3://lake/t", "config": {"s3.access-key-id": "b", "s3.secret-access-key": "hush2", "s3.session-token": "hush3"}},
                    {"prefix": "s3", "config": {"s3.access-key-id": "c"}}]}"#,
        )
        .unwrap();
        assert!(!format!("{loaded:?}").contains("hush"));
        let (lent, mapping) = loaded.lent("s3://lake/t/metadata/1.metadata.json", &options()).unwrap();
        let values: Vec<&str> = mapping.iter().map(|(_, value)| value.reveal()).collect();
        assert_eq!(values, ["b", "hush2", "hush3"]);
        assert_eq!((lent.endpoint.as_deref(), lent.region.as_deref()), (Some("http://e"), Some("r")));
        let own = StoreOptions { endpoint: Some("http://own".to_owned()), ..options() };
        let (lent, mapping) = loaded.lent("s3://other/t", &own).unwrap();
        assert_eq!((lent.endpoint.as_deref(), mapping[0].1.reveal()), (Some("http://own"), "c"));
        let none: LoadedTable = serde_json::from_str(r#"{"config": {"s3.access-key-id": "a"}}"#).unwrap();
        assert!(none.lent("s3://lake/t", &options()).is_none());
    }
}
