//! Views of a REST catalog of Iceberg: their names, and the texts of their current versions.
//!
//! Invariants: views and their texts are bounded in number and length. A catalog without views is one that has none. What is wrong with one
//! view is the error of that view alone.
//!
//! Deliberately absent: any look at a text. The extension says which of them it makes a view of.
//!
//! Source: the Iceberg REST Catalog API; the Iceberg View Spec.

use pystachio_plan::{CatalogView, Error, ErrorKind, Result, ViewTexts};
use serde::Deserialize;

use super::{StoreSession, rest_catalog::RestCatalog};

/// The most bytes of a view's text.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The most texts of a view, each in its dialect.
const TEXTS_MAX: usize = 64;

impl StoreSession {
    /// The views of a namespace of the server's catalog, by their names; with their texts if these are wanted. Blocks.
    ///
    /// # Errors
    ///
    /// Those of asking the catalog; `NotSupported` for too many.
    pub fn catalog_views(
        &self,
        namespace: &[String],
        role: u32,
        wants_texts: bool,
    ) -> Result<Vec<CatalogView>> {
        let (_, catalog) = self.rest_catalog(role)?;
        let namespace = namespace.to_vec();
        self.wait(async move {
            let mut views = Vec::new();
            for name in catalog.views(&namespace).await? {
                let texts = match wants_texts {
                    true => catalog.view_texts(&namespace, &name).await,
                    false => Ok(ViewTexts::default()),
                };
                views.push(CatalogView { name, texts });
            }
            Ok(views)
        })
    }
}

#[derive(Deserialize)]
struct LoadedView {
    metadata: ViewMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ViewMetadata {
    current_version_id: i64,
    #[serde(default)]
    versions: Vec<ViewVersion>,
    #[serde(default)]
    schemas: Vec<ViewSchema>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ViewSchema {
    schema_id: Option<i64>,
    #[serde(default)]
    fields: Vec<ViewField>,
}

#[derive(Deserialize)]
struct ViewField {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ViewVersion {
    version_id: i64,
    schema_id: Option<i64>,
    #[serde(default)]
    representations: Vec<Representation>,
    default_catalog: Option<String>,
    #[serde(default)]
    default_namespace: Vec<String>,
}

#[derive(Deserialize)]
struct Representation {
    #[serde(rename = "type")]
    kind: String,
    sql: Option<String>,
    dialect: Option<String>,
}

impl RestCatalog {
    /// The texts of a view's current version.
    async fn view_texts(&self, namespace: &[String], name: &str) -> Result<ViewTexts> {
        let loaded: LoadedView = self.view(namespace, name).await?;
        loaded.texts(name)
    }
}

impl LoadedView {
    fn texts(self, name: &str) -> Result<ViewTexts> {
        let ViewMetadata { current_version_id: current, versions, schemas } = self.metadata;
        let mut versions = versions.into_iter();
        let version = versions.find(|version| version.version_id == current).ok_or_else(|| {
            let message =
                format!("the catalog describes view \"{name}\" without its current version, {current}");
            Error::new(ErrorKind::FileAccess, message).with_hint("Have the view replaced by its own tools.")
        })?;
        let schema = schemas
            .into_iter()
            .find(|schema| schema.schema_id == version.schema_id && schema.schema_id.is_some());
        let columns = schema.map_or(Vec::new(), |schema| schema.fields);
        let mut texts = Vec::new();
        // Representations of other kinds are none that SQL could be made of.
        for representation in version.representations.into_iter().filter(|text| text.kind == "sql") {
            let (Some(text), Some(dialect)) = (representation.sql, representation.dialect) else { continue };
            if text.len() > TEXT_BYTES_MAX || texts.len() == TEXTS_MAX {
                let message = format!(
                    "view \"{name}\" has more than {TEXTS_MAX} texts, or one of more than {TEXT_BYTES_MAX} bytes"
                );
                return Err(Error::new(ErrorKind::NotSupported, message)
                    .with_hint("CREATE VIEW with a text of your own."));
            }
            texts.push((dialect.to_lowercase(), text));
        }
        Ok(ViewTexts {
            catalog: version.default_catalog,
            namespace: Some(version.default_namespace).filter(|names| !names.is_empty()),
            columns: columns.into_iter().map(|field| field.name).collect(),
            texts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(versions: &str) -> Result<ViewTexts> {
        let text = format!(
            r#"{{"metadata": {{"current-version-id": 2, "versions": [{versions}],
                "schemas": [{{"schema-id": 3, "type": "struct", "fields": [{{"id": 1, "name": "N"}}]}}]}}}}"#
        );
        serde_json::from_str::<LoadedView>(&text).unwrap().texts("v")
    }

    #[test]
    fn texts_are_those_of_the_current_version() {
        let found = texts(
            r#"{"version-id": 1, "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}]},
               {"version-id": 2, "schema-id": 3, "default-catalog": "main", "default-namespace": ["sales", "eu"], "representations": [
                   {"type": "sql", "sql": "SELECT 2", "dialect": "Spark"}, {"type": "plan"},
                   {"type": "sql", "sql": "SELECT 3", "dialect": "postgresql"}, {"type": "sql", "dialect": "trino"}]}"#,
        )
        .unwrap();
        assert_eq!(found.catalog.as_deref(), Some("main"));
        assert_eq!(found.columns, ["N"]);
        assert_eq!(found.namespace, Some(vec!["sales".to_owned(), "eu".to_owned()]));
        let expected = [("spark", "SELECT 2"), ("postgresql", "SELECT 3")];
        assert_eq!(found.texts, expected.map(|(dialect, text)| (dialect.to_owned(), text.to_owned())));
        let bare = texts(r#"{"version-id": 2}"#).unwrap();
        assert_eq!(bare, ViewTexts::default());
    }

    #[test]
    fn views_that_are_no_views_are_errors() {
        assert_eq!(texts(r#"{"version-id": 1}"#).unwrap_err().kind, ErrorKind::FileAccess);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let long = format!(
            r#"{{"version-id": 2, "representations": [{{"type": "sql", "sql": "{long}", "dialect": "spark"}}]}}"#
        );
        assert_eq!(texts(&long).unwrap_err().kind, ErrorKind::NotSupported);
    }
}
