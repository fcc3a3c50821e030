//! Which encoding and which codec a column gets, from the sizes that its sample had with each.
//!
//! A form's score is its bytes times a weight in percent, the greater the more work a byte is for the kernels:
//! of two forms with about the same size the one that decodes faster is taken. The weights are a byte's way over the
//! bus and its decoding as the benchmark's step `calibrate` measured them on an H200, rounded. They follow from what the
//! kernels of `kernels/parquet` do:
//!
//! | | values that are not strings | strings |
//! |---|---|---|
//! | PLAIN | all threads at once | one thread walks from length to length, the others wait |
//! | dictionary | runs are found once; then every warp lists and expands some on its own | the same |
//! | BYTE_STREAM_SPLIT | all at once, as many reads a value as it has bytes | |
//! | DELTA_BINARY_PACKED | found once by a walk over headers; then every warp unpacks and adds up some on its own | |
//! | DELTA_LENGTH_BYTE_ARRAY | | the same for the lengths |
//! | RLE (booleans) | as a dictionary | |

use parquet::basic::{Compression, Encoding, Type as PhysicalType};

use super::Codecs;

/// What compression must save, in percent of the best form without it. Decompressing writes every page once
/// more and reads it again, and is the slowest step there is: below this, reading more is the faster way.
pub(crate) const SAVING_PERCENT_MIN: u64 = 25;

/// How a column's pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnForm {
    /// Whether values go to a dictionary while it has room.
    pub(crate) has_dictionary: bool,
    /// The encoding of pages without a dictionary.
    pub(crate) encoding: Encoding,
    pub(crate) compression: Compression,
}

/// A form and what a sample took with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) form: ColumnForm,
    pub(crate) bytes: u64,
    /// Before compression.
    pub(crate) uncompressed_bytes: u64,
}

/// What was chosen for a column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnChoice {
    pub(crate) form: ColumnForm,
    /// Bytes that a row of the sample took, rounded up.
    pub(crate) row_bytes: u64,
    /// Before compression.
    pub(crate) uncompressed_row_bytes: u64,
    /// In words.
    pub(crate) reason: String,
}

/// The codecs that are tried where one may be chosen. Both are decoded by a kernel, in the same way.
pub(crate) const CODECS: [Compression; 2] = [Compression::SNAPPY, Compression::LZ4_RAW];

/// The encodings of a type's pages that are tried, besides a dictionary.
pub(crate) fn encodings(physical: PhysicalType) -> &'static [Encoding] {
    match physical {
        PhysicalType::BOOLEAN => &[Encoding::PLAIN, Encoding::RLE],
        PhysicalType::INT32 | PhysicalType::INT64 => {
            &[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT]
        }
        PhysicalType::FLOAT | PhysicalType::DOUBLE | PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]
        }
        PhysicalType::BYTE_ARRAY => &[Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY],
        PhysicalType::INT96 => &[Encoding::PLAIN],
    }
}

/// Whether a dictionary is tried.
pub(crate) fn may_have_dictionary(physical: PhysicalType) -> bool {
    physical != PhysicalType::BOOLEAN
}

/// The best encoding without a dictionary, by the codec that was tried first.
pub(crate) fn best_encoding(physical: PhysicalType, trials: &[Trial]) -> Encoding {
    let first = trials.first().map(|trial| trial.form.compression);
    let bare =
        trials.iter().filter(|trial| !trial.form.has_dictionary && Some(trial.form.compression) == first);
    bare.min_by_key(|trial| score(physical, trial)).map_or(Encoding::PLAIN, |trial| trial.form.encoding)
}

/// Chooses one of a column's trials, of which there is one at least.
pub(crate) fn choose(
    physical: PhysicalType,
    trials: &[Trial],
    codecs: Codecs,
    sample_rows: u64,
) -> Option<ColumnChoice> {
    let best = |is_wanted: &dyn Fn(Compression) -> bool| {
        let wanted = trials.iter().filter(|trial| is_wanted(trial.form.compression));
        wanted.min_by_key(|trial| score(physical, trial)).copied()
    };
    let bare = best(&|codec| codec == Compression::UNCOMPRESSED);
    let (chosen, saving) = match (codecs, bare) {
        (Codecs::WherePays, Some(bare)) => {
            let packed = best(&|codec| codec != Compression::UNCOMPRESSED).unwrap_or(bare);
            let most = score(physical, &bare) * u128::from(100 - SAVING_PERCENT_MIN);
            let pays = score(physical, &packed) * 100 < most;
            let saved = 100 - percent(packed.bytes.min(bare.bytes), bare.bytes);
            let verb = if pays { "saves" } else { "would save" };
            let saving = format!("{} {verb} {saved} %", packed.form.compression_name());
            (if pays { packed } else { bare }, saving)
        }
        (Codecs::Always(codec), _) => {
            let chosen = best(&|compression| compression == codec)?;
            (chosen, format!("{} as asked", chosen.form.compression_name()))
        }
        (Codecs::WherePays, None) => return None,
    };
    let reason =
        if sample_rows == 0 { "no rows to try".to_owned() } else { reason(trials, &chosen, &saving) };
    let of_row = |bytes: u64| bytes.div_ceil(sample_rows.max(1));
    Some(ColumnChoice {
        form: chosen.form,
        row_bytes: of_row(chosen.bytes),
        uncompressed_row_bytes: of_row(chosen.uncompressed_bytes),
        reason,
    })
}

impl ColumnForm {
    /// As the format has it.
    pub(crate) fn compression_name(&self) -> String {
        let name = self.compression.to_string();
        name.split('(').next().unwrap_or_default().to_owned()
    }

    /// As the format has it.
    pub(crate) fn encoding_name(&self) -> String {
        if self.has_dictionary { Encoding::RLE_DICTIONARY.to_string() } else { self.encoding.to_string() }
    }
}

fn score(physical: PhysicalType, trial: &Trial) -> u128 {
    u128::from(trial.bytes) * u128::from(weight(physical, &trial.form))
}

/// What a byte costs to decode, in percent of the cheapest.
fn weight(physical: PhysicalType, form: &ColumnForm) -> u64 {
    let is_text = physical == PhysicalType::BYTE_ARRAY;
    match form.encoding {
        _ if form.has_dictionary && is_text => 130,
        _ if form.has_dictionary => 110,
        Encoding::PLAIN if is_text => 130,
        Encoding::PLAIN | Encoding::BYTE_STREAM_SPLIT | Encoding::DELTA_LENGTH_BYTE_ARRAY => 100,
        Encoding::DELTA_BINARY_PACKED => 105,
        Encoding::DELTA_BYTE_ARRAY => 340,
        _ => 130,
    }
}

/// What the chosen form and others took, in percent of PLAIN, and what the codec does.
fn reason(trials: &[Trial], chosen: &Trial, saving: &str) -> String {
    let of_codec =
        |compression: Compression| trials.iter().filter(move |trial| trial.form.compression == compression);
    let plain = of_codec(chosen.form.compression)
        .find(|trial| !trial.form.has_dictionary && trial.form.encoding == Encoding::PLAIN);
    let Some(plain) = plain else { return saving.to_owned() };
    let mut others: Vec<String> = of_codec(chosen.form.compression)
        .filter(|trial| trial.form.has_dictionary || trial.form.encoding != Encoding::PLAIN)
        .map(|trial| format!("{} {} %", trial.form.encoding_name(), percent(trial.bytes, plain.bytes)))
        .collect();
    if others.is_empty() {
        return saving.to_owned();
    }
    others.sort();
    format!("{} of PLAIN; {saving}", others.join(", "))
}

fn percent(part: u64, whole: u64) -> u64 {
    let percent = (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(encoding: Encoding, compression: Compression, bytes: u64) -> Trial {
        let form = ColumnForm { has_dictionary: false, encoding, compression };
        Trial { form, bytes, uncompressed_bytes: 1000 }
    }

    fn dictionary(compression: Compression, bytes: u64) -> Trial {
        let form = ColumnForm { has_dictionary: true, encoding: Encoding::PLAIN, compression };
        Trial { form, bytes, uncompressed_bytes: 1000 }
    }

    const NONE: Compression = Compression::UNCOMPRESSED;
    const SNAPPY: Compression = Compression::SNAPPY;

    fn chosen(physical: PhysicalType, trials: &[Trial]) -> ColumnForm {
        choose(physical, trials, Codecs::WherePays, 1000).unwrap().form
    }

    #[test]
    fn of_about_equal_sizes_the_faster_one_is_taken() {
        let near = [trial(Encoding::PLAIN, NONE, 1000), trial(Encoding::DELTA_BINARY_PACKED, NONE, 970)];
        assert_eq!(chosen(PhysicalType::INT64, &near).encoding, Encoding::PLAIN);
        let far = [trial(Encoding::PLAIN, NONE, 1000), trial(Encoding::DELTA_BINARY_PACKED, NONE, 800)];
        assert_eq!(chosen(PhysicalType::INT64, &far).encoding, Encoding::DELTA_BINARY_PACKED);
        // Strings are found one after another in PLAIN pages.
        let text = [
            trial(Encoding::PLAIN, NONE, 1000),
            trial(Encoding::DELTA_LENGTH_BYTE_ARRAY, NONE, 1100),
            dictionary(NONE, 1150),
        ];
        assert_eq!(chosen(PhysicalType::BYTE_ARRAY, &text).encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY);
    }

    #[test]
    fn compression_is_taken_only_where_it_saves_a_quarter() {
        let sizes = |packed| [trial(Encoding::PLAIN, NONE, 1000), trial(Encoding::PLAIN, SNAPPY, packed)];
        assert_eq!(chosen(PhysicalType::DOUBLE, &sizes(760)).compression, NONE);
        assert_eq!(chosen(PhysicalType::DOUBLE, &sizes(750)).compression, NONE);
        assert_eq!(chosen(PhysicalType::DOUBLE, &sizes(740)).compression, SNAPPY);
        // What a dictionary already has done is not the codec's merit.
        let trials = [&sizes(300)[..], &[dictionary(NONE, 310)]].concat();
        assert_eq!(chosen(PhysicalType::DOUBLE, &trials), dictionary(NONE, 0).form);
    }

    #[test]
    fn a_codec_can_make_another_encoding_the_best() {
        let trials = [
            trial(Encoding::PLAIN, NONE, 1000),
            trial(Encoding::BYTE_STREAM_SPLIT, NONE, 1000),
            trial(Encoding::PLAIN, SNAPPY, 900),
            trial(Encoding::BYTE_STREAM_SPLIT, SNAPPY, 400),
        ];
        let choice = choose(PhysicalType::DOUBLE, &trials, Codecs::WherePays, 1000).unwrap();
        assert_eq!((choice.form.encoding, choice.form.compression), (Encoding::BYTE_STREAM_SPLIT, SNAPPY));
        assert_eq!(choice.reason, "BYTE_STREAM_SPLIT 44 % of PLAIN; SNAPPY saves 60 %");
        assert_eq!((choice.row_bytes, choice.uncompressed_row_bytes), (1, 1));
        let always = choose(PhysicalType::DOUBLE, &trials, Codecs::Always(NONE), 1000).unwrap();
        assert_eq!((always.form.encoding, always.form.compression), (Encoding::PLAIN, NONE));
    }

    #[test]
    fn a_column_without_rows_is_plain() {
        let trials =
            [trial(Encoding::PLAIN, NONE, 0), dictionary(NONE, 0), trial(Encoding::PLAIN, SNAPPY, 0)];
        let choice = choose(PhysicalType::INT32, &trials, Codecs::WherePays, 0).unwrap();
        assert_eq!(choice.form, trials[0].form);
        assert_eq!((choice.row_bytes, choice.reason.as_str()), (0, "no rows to try"));
    }
}
