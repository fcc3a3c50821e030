//! The file that describes a table: its schemas, snapshots and partition specs.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use pystachio_plan::{Error, ErrorKind, Result, TableVersion};
use serde::Deserialize;
use serde_json::Value as Json;

use super::corrupt;

/// Versions of the format that are known.
const FORMAT_VERSIONS: std::ops::RangeInclusive<i64> = 1..=3;
/// The id of the snapshot of a table that has none.
pub(super) const NO_SNAPSHOT: i64 = -1;
/// The id of the first partition field, where fields have no ids.
const PARTITION_FIELD_ID_MIN: i64 = 1000;
/// The property with the names of columns in files without ids.
const NAME_MAPPING: &str = "schema.name-mapping.default";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TableMetadata {
    format_version: i64,
    pub(super) location: String,
    schema: Option<Json>,
    schemas: Option<Vec<Json>>,
    current_schema_id: Option<i64>,
    partition_spec: Option<Vec<PartitionField>>,
    partition_specs: Option<Vec<PartitionSpec>>,
    properties: Option<HashMap<String, String>>,
    current_snapshot_id: Option<i64>,
    snapshots: Option<Vec<Snapshot>>,
    snapshot_log: Option<Vec<LoggedSnapshot>>,
    refs: Option<HashMap<String, Reference>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Snapshot {
    pub(super) snapshot_id: i64,
    parent_snapshot_id: Option<i64>,
    timestamp_ms: i64,
    pub(super) manifest_list: Option<String>,
    /// As version 1 may have them in place of a list.
    pub(super) manifests: Option<Vec<String>>,
    schema_id: Option<i64>,
    key_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct LoggedSnapshot {
    snapshot_id: i64,
    timestamp_ms: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Reference {
    snapshot_id: i64,
    #[serde(rename = "type")]
    kind: String,
}

/// How files are divided.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PartitionSpec {
    spec_id: i64,
    pub(super) fields: Vec<PartitionField>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PartitionField {
    /// Absent where a transform has several.
    pub(super) source_id: Option<i64>,
    pub(super) field_id: Option<i64>,
    pub(super) name: String,
    pub(super) transform: String,
}

/// What is read of a table: a snapshot, if it has one, under one of its schemas.
pub(super) struct Chosen<'m> {
    pub(super) snapshot: Option<&'m Snapshot>,
    pub(super) schema_id: i64,
}

impl TableMetadata {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Version {
            format_version: i64,
        }
        let invalid = |error: serde_json::Error| corrupt(path, &error.to_string());
        // A later version may have anything else.
        let Version { format_version } = serde_json::from_slice(bytes).map_err(invalid)?;
        if !FORMAT_VERSIONS.contains(&format_version) {
            let message = format!(
                "\"{}\" describes an Iceberg table of version {format_version} of the format, of which 1 to 3 are read",
                path.display()
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let mut metadata: Self = serde_json::from_slice(bytes).map_err(invalid)?;
        let specs = metadata.partition_specs.get_or_insert_default();
        if specs.is_empty() {
            let fields = metadata.partition_spec.take().unwrap_or_default();
            specs.push(PartitionSpec { spec_id: 0, fields });
        }
        for spec in specs {
            for (place, field) in spec.fields.iter_mut().enumerate() {
                field.field_id.get_or_insert(PARTITION_FIELD_ID_MIN + place as i64);
            }
        }
        Ok(metadata)
    }

    /// Whether snapshots and files have sequence numbers.
    pub(super) fn has_sequence_numbers(&self) -> bool {
        self.format_version > 1
    }

    pub(super) fn schemas(&self) -> impl DoubleEndedIterator<Item = &Json> {
        self.schema.iter().chain(self.schemas.iter().flatten())
    }

    pub(super) fn schema(&self, id: i64) -> Option<&Json> {
        let has_id = |schema: &&Json| schema.get("schema-id").and_then(Json::as_i64).unwrap_or(0) == id;
        self.schemas().rev().find(has_id)
    }

    pub(super) fn spec(&self, id: i64) -> Option<&PartitionSpec> {
        self.partition_specs.iter().flatten().find(|spec| spec.spec_id == id)
    }

    /// The names of columns in files without ids.
    pub(super) fn name_mapping(&self) -> Option<Json> {
        let text = self.properties.as_ref()?.get(NAME_MAPPING)?;
        serde_json::from_str(text).ok()
    }

    /// What a version means.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for one that the table does not have (any more).
    pub(super) fn choose(&self, table: &Path, version: &TableVersion) -> Result<Chosen<'_>> {
        let current = self.current_schema();
        let of_snapshot = |snapshot: &Snapshot| snapshot.schema_id.unwrap_or(current);
        let chosen = match version {
            TableVersion::Latest => Chosen { snapshot: self.current(table)?, schema_id: current },
            TableVersion::Number(id) => {
                let snapshot = self.snapshot(table, *id)?;
                Chosen { snapshot: Some(snapshot), schema_id: of_snapshot(snapshot) }
            }
            TableVersion::Snapshot { snapshot: NO_SNAPSHOT, schema } => {
                Chosen { snapshot: None, schema_id: *schema }
            }
            TableVersion::Snapshot { snapshot, schema } => {
                Chosen { snapshot: Some(self.snapshot(table, *snapshot)?), schema_id: *schema }
            }
            TableVersion::AsOf(time_us) => {
                let snapshot = self.snapshot(table, self.id_at(table, *time_us)?)?;
                Chosen { snapshot: Some(snapshot), schema_id: of_snapshot(snapshot) }
            }
            TableVersion::Named(name) => {
                let reference = self.refs.as_ref().and_then(|refs| refs.get(name));
                let reference = reference.ok_or_else(|| self.no_reference(table, name))?;
                let snapshot = self.snapshot(table, reference.snapshot_id)?;
                // A branch goes on with the table's schema; a tag does not.
                let schema_id = if reference.kind == "branch" { current } else { of_snapshot(snapshot) };
                Chosen { snapshot: Some(snapshot), schema_id }
            }
        };
        if let Some(Snapshot { snapshot_id, key_id: Some(_), .. }) = chosen.snapshot {
            let message =
                format!("snapshot {snapshot_id} of Iceberg table \"{}\" is encrypted", table.display());
            return Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("Copy the table into one that is not encrypted."));
        }
        Ok(chosen)
    }

    fn current_schema(&self) -> i64 {
        let own = || self.schema.as_ref()?.get("schema-id")?.as_i64();
        self.current_schema_id.or_else(own).unwrap_or(0)
    }

    fn current(&self, table: &Path) -> Result<Option<&Snapshot>> {
        match self.current_snapshot_id {
            None | Some(NO_SNAPSHOT) => Ok(None),
            Some(id) => self.snapshot(table, id).map(Some),
        }
    }

    fn known_snapshot(&self, id: i64) -> Option<&Snapshot> {
        self.snapshots.iter().flatten().find(|snapshot| snapshot.snapshot_id == id)
    }

    fn snapshot(&self, table: &Path, id: i64) -> Result<&Snapshot> {
        self.known_snapshot(id).ok_or_else(|| {
            let message = format!("Iceberg table \"{}\" has no snapshot {id}", table.display());
            let ids: Vec<String> =
                self.history().iter().rev().take(5).map(|(id, _)| id.to_string()).collect();
            let hint = match ids.is_empty() {
                true => "The table has no snapshots.".to_owned(),
                false => format!("Its last snapshots are {}. Others may have been expired.", ids.join(", ")),
            };
            Error::new(ErrorKind::InvalidArgument, message).with_hint(hint)
        })
    }

    fn no_reference(&self, table: &Path, name: &str) -> Error {
        let message = format!("Iceberg table \"{}\" has no branch or tag \"{name}\"", table.display());
        let mut known: Vec<&str> = self.refs.iter().flatten().map(|(name, _)| name.as_str()).collect();
        known.sort_unstable();
        let hint = match known.is_empty() {
            true => "Set the option \"version\" to the number of a snapshot.".to_owned(),
            false => format!("It has \"{}\".", known.join("\", \"")),
        };
        Error::new(ErrorKind::InvalidArgument, message).with_hint(hint)
    }

    /// The snapshots that were the current one, each with the time since when, the first one first.
    fn history(&self) -> Vec<(i64, i64)> {
        let logged: Vec<(i64, i64)> =
            self.snapshot_log.iter().flatten().map(|entry| (entry.snapshot_id, entry.timestamp_ms)).collect();
        if !logged.is_empty() {
            return logged;
        }
        let (mut ancestors, mut seen) = (Vec::new(), HashSet::new());
        let mut next = self.current_snapshot_id;
        while let Some(snapshot) = next.filter(|id| seen.insert(*id)).and_then(|id| self.known_snapshot(id)) {
            ancestors.push((snapshot.snapshot_id, snapshot.timestamp_ms));
            next = snapshot.parent_snapshot_id;
        }
        ancestors.reverse();
        ancestors
    }

    /// The snapshot that was the current one at a time.
    fn id_at(&self, table: &Path, time_us: i64) -> Result<i64> {
        let is_before = |time_ms: i64| time_ms.saturating_mul(1000) <= time_us;
        let last = self.history().into_iter().rfind(|(_, time_ms)| is_before(*time_ms));
        last.map(|(id, _)| id).ok_or_else(|| {
            let message =
                format!("Iceberg table \"{}\" has no snapshot of that time or before", table.display());
            Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("Set the option \"timestamp\" to a later time, or the option \"version\".")
        })
    }
}
