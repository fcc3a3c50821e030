//! Techniques of the GPU engine that a developer can switch off, to measure what each is worth. The results are the same.
//!
//! Each costs a branch for a query, a scan or an exchange, and no code of its own in the paths that rows take.

use crate::{DeviceSettings, Error, ErrorKind, Result};

/// What switches a technique off.
type SwitchOff = fn(&mut DeviceSettings);

/// By the names that the setting `pystachio.gpu_disable` has.
const TECHNIQUES: [(&str, SwitchOff); 16] = [
    ("cache", |settings| settings.cache = false),
    ("concurrent_builds", |settings| settings.concurrent_builds = false),
    ("dictionary_codes", |settings| settings.dictionary_codes = false),
    ("exchange_broadcast_choice", |settings| settings.exchange.broadcast_choice = false),
    ("exchange_filters", |settings| settings.exchange.filters = false),
    ("exchange_gathering", |settings| settings.exchange.gathering = false),
    ("exchange_groups", |settings| settings.exchange.groups_max = 1),
    ("exchange_heavy_keys", |settings| settings.exchange.heavy_keys = false),
    ("exchange_overlap", |settings| settings.exchange.overlap = false),
    ("exchange_senders", |settings| settings.exchange.senders_max = 1),
    ("nvcomp", |settings| settings.nvcomp = false),
    ("page_skipping", |settings| settings.page_skipping = false),
    ("reader_combining", |settings| settings.reader_combining = false),
    ("regulation", |settings| settings.regulation = false),
    ("runtime_filters", |settings| settings.runtime_filters = false),
    ("segments", |settings| settings.segments = false),
];

/// The names of all techniques that can be switched off.
pub fn technique_names() -> impl Iterator<Item = &'static str> {
    TECHNIQUES.iter().map(|(name, _)| *name)
}

impl DeviceSettings {
    /// The same without the techniques of a list of names, which commas separate.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a name of none, with all names in the hint.
    pub fn without(mut self, names: &str) -> Result<Self> {
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let technique = TECHNIQUES.iter().find(|(known, _)| *known == name);
            let (_, switch_off) = technique.ok_or_else(|| unknown(name))?;
            switch_off(&mut self);
        }
        Ok(self)
    }
}

fn unknown(name: &str) -> Error {
    let known: Vec<&str> = technique_names().collect();
    Error::new(ErrorKind::NotSupported, format!("no technique has the name \"{name}\""))
        .with_hint(format!("Name some of: {}.", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_switches_off_what_it_names() {
        let all = DeviceSettings::default();
        assert_eq!(all.without(" , "), Ok(all));
        let without = all.without("cache, exchange_heavy_keys,exchange_groups").unwrap();
        let exchange = crate::ExchangeSettings { heavy_keys: false, groups_max: 1, ..all.exchange };
        assert_eq!(without, DeviceSettings { cache: false, exchange, ..all });
        for name in technique_names() {
            assert_ne!(all.without(name).unwrap(), all, "{name}");
        }
    }

    #[test]
    fn a_name_of_no_technique_is_refused_with_those_that_there_are() {
        let error = DeviceSettings::default().without("cache, pool").unwrap_err();
        assert_eq!(error.message, "no technique has the name \"pool\"");
        let hint = error.hint.unwrap();
        assert!(
            hint.starts_with("Name some of: cache, concurrent_builds, ") && hint.ends_with("segments."),
            "{hint}"
        );
    }
}
