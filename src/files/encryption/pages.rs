//! An encrypted column chunk as a plain one, page by page, in the place of the encrypted pages.
//!
//! ```text
//! encrypted  │length│nonce│header│tag│length│nonce│body│tag│
//! plain      │header with a field of zeros, so long │body  │
//! ```
//!
//! Invariant: a plain page has as many bytes as the encrypted one, so that the next one begins where it did.
//!
//! Source: Parquet's Encryption.md, section 5.2; parquet.thrift, `PageHeader`. Writers differ in whether a page's length in its header is the
//! encrypted one (Arrow) or the plain one (DuckDB); the length before the body is the same in both.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use flate2::Crc;
use pystachio_plan::Error;

use super::{
    ChunkPlace, EncryptedLayout, Module,
    cipher::{LENGTH_BYTES, ModuleCipher, NONCE_BYTES, TAG_BYTES},
    footer::{number, set},
};
use crate::compact_protocol::{
    BINARY_CODE, CompactWalk, INTEGER_CODE, RawField, encode_signed, encode_structure,
};

/// Fields of `PageHeader`.
const COMPRESSED_BYTES: i64 = 3;
const CHECKSUM: i64 = 4;
/// A number that the format does not use: the next field's can be told from it by a step of less than 16.
const PADDING: i64 = 15;
/// The longest header that is taken for one, encrypted.
const HEADER_BYTES_MAX: u64 = (1 << 20) + (NONCE_BYTES + TAG_BYTES) as u64;

/// Why a chunk can't be decrypted.
#[derive(Debug)]
pub(super) enum PageError {
    /// Reading or writing failed.
    Io(io::Error),
    /// A page, by its number, and what is wrong with it.
    Page(usize, &'static str),
    /// The request was cancelled.
    Stopped(Error),
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

const WRONG: &str =
    "it can't be decrypted: its bytes were changed, or the key is not the one that it was encrypted with";
const CUT: &str = "a page ends after its column chunk";

/// The pages of a chunk, one after the other.
pub(super) struct ChunkPages<'a> {
    pub(super) layout: &'a EncryptedLayout,
    pub(super) cipher: &'a ModuleCipher,
    pub(super) place: ChunkPlace,
    /// Whether the first page should be a dictionary.
    pub(super) has_dictionary: bool,
    /// Where the chunk begins and ends in the file.
    pub(super) range: Range<u64>,
}

impl ChunkPages<'_> {
    /// Decrypts all pages from one file into another, at the same places. `poll` is called before each page.
    pub(super) fn decrypt(
        &self,
        source: &File,
        target: &File,
        poll: &dyn Fn() -> pystachio_plan::Result<()>,
    ) -> Result<(), PageError> {
        let (mut position, mut page, mut data_pages) = (self.range.start, 0, 0_i16);
        let mut module = Vec::new();
        while position < self.range.end {
            poll().map_err(PageError::Stopped)?;
            let start = position;
            let wrong = |reason| PageError::Page(page, reason);
            let header_bytes = self.length_at(source, position).map_err(|e| at_page(e, page))?;
            if header_bytes > HEADER_BYTES_MAX {
                return Err(wrong("its header is too long"));
            }
            self.read(source, &mut position, header_bytes, &mut module)?;
            let header = std::mem::take(&mut module);
            let (is_dictionary, header) =
                self.open_header(header, page == 0, data_pages).ok_or_else(|| wrong(WRONG))?;
            let body_bytes = self.length_at(source, position).map_err(|e| at_page(e, page))?;
            self.read(source, &mut position, body_bytes, &mut module)?;
            let mut fields = CompactWalk { rest: &header }.raw_fields(0).map_err(wrong)?;
            if self.layout.is_ctr
                && let Some(checksum) = number(&fields, CHECKSUM).map_err(wrong)?
            {
                let mut sum = Crc::new();
                sum.update(&(body_bytes as u32).to_le_bytes());
                sum.update(&module);
                if i64::from(sum.sum().cast_signed()) != checksum {
                    return Err(wrong("its checksum is wrong"));
                }
            }
            let body = match (self.layout.is_ctr, is_dictionary) {
                (true, _) => self.cipher.open_unchecked(&mut module),
                (false, true) => self.cipher.open(&self.aad(Module::DictionaryPage, None), &mut module),
                (false, false) => {
                    self.cipher.open(&self.aad(Module::DataPage, Some(data_pages)), &mut module)
                }
            };
            let body = body.ok_or_else(|| wrong(WRONG))?;
            if !is_dictionary {
                data_pages =
                    data_pages.checked_add(1).ok_or_else(|| wrong("its chunk has too many pages"))?;
            }
            // It is of the encrypted page.
            fields.retain(|field| field.number != CHECKSUM);
            set(&mut fields, COMPRESSED_BYTES, INTEGER_CODE, encode_signed(body.len() as i64));
            let plain_bytes = (position - start) as usize - body.len();
            let header = padded(fields, plain_bytes).ok_or_else(|| wrong("its header is too long"))?;
            target.write_all_at(&header, start)?;
            target.write_all_at(body, start + header.len() as u64)?;
            page += 1;
        }
        Ok(())
    }

    /// The length before a module.
    fn length_at(&self, source: &File, position: u64) -> Result<u64, PageError> {
        let mut length = [0; LENGTH_BYTES];
        if position + LENGTH_BYTES as u64 > self.range.end {
            return Err(PageError::Page(0, CUT));
        }
        source.read_exact_at(&mut length, position)?;
        let bytes = u64::from(u32::from_le_bytes(length));
        match position + LENGTH_BYTES as u64 + bytes <= self.range.end {
            true => Ok(bytes),
            false => Err(PageError::Page(0, CUT)),
        }
    }

    /// Reads a module behind its length, and moves behind it.
    fn read(&self, source: &File, position: &mut u64, bytes: u64, module: &mut Vec<u8>) -> io::Result<()> {
        module.resize(bytes as usize, 0);
        source.read_exact_at(module, *position + LENGTH_BYTES as u64)?;
        *position += LENGTH_BYTES as u64 + bytes;
        Ok(())
    }

    /// A page's header, and whether it is that of a dictionary. Where modules have no AAD, the header itself says it; the body's AAD is none
    /// too.
    fn open_header(&self, module: Vec<u8>, is_first: bool, data_page: i16) -> Option<(bool, Vec<u8>)> {
        let open = |kind, data_page| {
            let mut module = module.clone();
            let text = self.cipher.open(&self.aad(kind, data_page), &mut module)?;
            Some(text.to_vec())
        };
        let dictionary = || open(Module::DictionaryPageHeader, None).map(|header| (true, header));
        let data = || open(Module::DataPageHeader, Some(data_page)).map(|header| (false, header));
        match (is_first, self.has_dictionary) {
            (true, true) => dictionary().or_else(data),
            // Some footers do not tell of dictionaries.
            (true, false) => data().or_else(dictionary),
            (false, _) => data(),
        }
    }

    fn aad(&self, module: Module, data_page: Option<i16>) -> Vec<u8> {
        self.layout.aad.of(module, Some(self.place), data_page)
    }
}

fn at_page(error: PageError, page: usize) -> PageError {
    match error {
        PageError::Page(_, reason) => PageError::Page(page, reason),
        other => other,
    }
}

/// A header of so many bytes; `None` if it does not become so long.
fn padded(mut fields: Vec<RawField<'_>>, bytes: usize) -> Option<Vec<u8>> {
    /// Where the length of the padding has one byte.
    const SHORT_MAX: usize = 127;
    fields.retain(|field| field.number < PADDING);
    let plain = encode_structure(&fields).len();
    // A byte for the field and one or two for its length.
    let missing = bytes.checked_sub(plain + 2)?;
    let zeros = match missing {
        0..=SHORT_MAX => [vec![missing as u8], vec![0; missing]].concat(),
        // Its length has two bytes, of which one may say nothing.
        _ => {
            let zeros = missing - 1;
            [vec![zeros as u8 | 0x80, u8::try_from(zeros >> 7).ok()?], vec![0; zeros]].concat()
        }
    };
    set(&mut fields, PADDING, BINARY_CODE, zeros);
    let header = encode_structure(&fields);
    (header.len() == bytes).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageHeader, PageKind};

    #[test]
    fn headers_are_as_long_as_they_must_be_and_say_the_same() {
        // A data page of 7 values.
        let header = [0x15, 0, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0];
        let fields = || CompactWalk { rest: &header }.raw_fields(0).unwrap();
        let (expected, _) = PageHeader::parse(&header).unwrap();
        assert!(matches!(expected.kind, PageKind::DataV1 { value_count: 7, .. }));
        for bytes in 0..header.len() + 400 {
            match padded(fields(), bytes) {
                None => assert!(bytes < header.len() + 2, "{bytes}"),
                Some(longer) => {
                    assert_eq!((longer.len(), PageHeader::parse(&longer)), (bytes, Ok((expected, bytes))));
                }
            }
        }
    }
}
