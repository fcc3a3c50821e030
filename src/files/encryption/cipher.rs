//! The ciphers of the format: AES-GCM, and AES-CTR for pages.
//!
//! A module is a nonce of 12 bytes, the text, and with AES-GCM a tag of 16 bytes. In the file its length is before it, in four bytes.
//!
//! Source: Parquet's Encryption.md, section 4. Keys of 192 bits have a slower implementation, since ring has none.

use std::fmt;

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::{AeadInPlace, AesGcm, KeyInit, aes::cipher::consts::U12};
use ctr::{
    Ctr128BE,
    cipher::{KeyIvInit, StreamCipher},
};
use pystachio_plan::FileKey;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes of a module before its text, without the length.
pub(super) const NONCE_BYTES: usize = 12;
/// Bytes of a module behind its text, with AES-GCM.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of a module's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// A key, ready for modules.
pub(super) struct ModuleCipher {
    gcm: Gcm,
    key: FileKey,
}

enum Gcm {
    Ring(Box<LessSafeKey>),
    Bits192(Box<AesGcm<Aes192, U12>>),
}

impl fmt::Debug for ModuleCipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<secret>")
    }
}

impl ModuleCipher {
    pub(super) fn new(key: &FileKey) -> Option<Self> {
        let bytes = key.reveal();
        let ring = |algorithm| {
            UnboundKey::new(algorithm, bytes).ok().map(LessSafeKey::new).map(Box::new).map(Gcm::Ring)
        };
        let gcm = match bytes.len() {
            16 => ring(&AES_128_GCM),
            32 => ring(&AES_256_GCM),
            _ => AesGcm::new_from_slice(bytes).ok().map(Box::new).map(Gcm::Bits192),
        };
        Some(Self { gcm: gcm?, key: key.clone() })
    }

    /// The text of a module of AES-GCM, in its place; `None` if key, text or `aad` are others than when it was written.
    pub(super) fn open<'m>(&self, aad: &[u8], module: &'m mut [u8]) -> Option<&'m mut [u8]> {
        let (nonce, sealed) = module.split_first_chunk_mut::<NONCE_BYTES>()?;
        match &self.gcm {
            Gcm::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_in_place(nonce, Aad::from(aad), sealed).ok()
            }
            Gcm::Bits192(key) => {
                let (text, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>()?;
                key.decrypt_in_place_detached((&*nonce).into(), aad, text, (&*tag).into()).ok()?;
                Some(text)
            }
        }
    }

    /// The text of a module of AES-CTR, in its place, whatever it is.
    pub(super) fn open_unchecked<'m>(&self, module: &'m mut [u8]) -> Option<&'m mut [u8]> {
        let (nonce, text) = module.split_first_chunk_mut::<NONCE_BYTES>()?;
        let mut start = [0; 16];
        start[..NONCE_BYTES].copy_from_slice(nonce);
        start[15] = 1;
        match self.key.reveal() {
            key if key.len() == 16 => {
                Ctr128BE::<Aes128>::new_from_slices(key, &start).ok()?.apply_keystream(text);
            }
            key if key.len() == 24 => {
                Ctr128BE::<Aes192>::new_from_slices(key, &start).ok()?.apply_keystream(text);
            }
            key => Ctr128BE::<Aes256>::new_from_slices(key, &start).ok()?.apply_keystream(text),
        }
        Some(text)
    }

    /// The tag of a text that is signed and not encrypted.
    pub(super) fn sign(&self, nonce: [u8; NONCE_BYTES], aad: &[u8], text: &[u8]) -> Option<[u8; TAG_BYTES]> {
        let mut copy = text.to_vec();
        match &self.gcm {
            Gcm::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut copy).ok()?;
                tag.as_ref().try_into().ok()
            }
            Gcm::Bits192(key) => {
                Some(key.encrypt_in_place_detached((&nonce).into(), aad, &mut copy).ok()?.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(bytes: usize) -> ModuleCipher {
        ModuleCipher::new(&FileKey::new((0..bytes as u8).collect()).unwrap()).unwrap()
    }

    /// A module as a writer makes it.
    fn sealed(cipher: &ModuleCipher, aad: &[u8], text: &[u8]) -> Vec<u8> {
        let nonce = [7; NONCE_BYTES];
        let mut copy = text.to_vec();
        let tag = match &cipher.gcm {
            Gcm::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut copy).unwrap().as_ref().to_vec()
            }
            Gcm::Bits192(key) => {
                key.encrypt_in_place_detached((&nonce).into(), aad, &mut copy).unwrap().to_vec()
            }
        };
        [&nonce[..], &copy, &tag].concat()
    }

    #[test]
    fn modules_open_with_their_key_text_and_aad_alone() {
        for key_bytes in [16, 24, 32] {
            let cipher = cipher(key_bytes);
            let module = sealed(&cipher, b"aad", b"some text");
            assert_eq!(cipher.open(b"aad", &mut module.clone()).unwrap(), b"some text");
            assert!(cipher.open(b"other", &mut module.clone()).is_none());
            for place in 0..module.len() {
                let mut changed = module.clone();
                changed[place] ^= 1;
                assert!(cipher.open(b"aad", &mut changed).is_none(), "{key_bytes} {place}");
            }
            for end in 0..module.len() {
                assert!(cipher.open(b"aad", &mut module[..end].to_vec()).is_none(), "{key_bytes} {end}");
            }
            let tag: [u8; TAG_BYTES] = module[module.len() - TAG_BYTES..].try_into().unwrap();
            assert_eq!(cipher.sign([7; NONCE_BYTES], b"aad", b"some text"), Some(tag));
        }
    }

    #[test]
    fn counters_are_those_of_the_standard() {
        // Blocks of zeros become what the block cipher makes of the counters, which test cases of the GCM specification tell for a key
        // and a nonce of zeros.
        let cipher = ModuleCipher::new(&FileKey::new(vec![0; 16]).unwrap()).unwrap();
        let mut module = vec![0; NONCE_BYTES + 32];
        let text = cipher.open_unchecked(&mut module).unwrap();
        // Test case 2: the ciphertext is that of the counter 2.
        let second =
            [0x03, 0x88, 0xda, 0xce, 0x60, 0xb6, 0xa3, 0x92, 0xf3, 0x28, 0xc2, 0xb9, 0x71, 0xb2, 0xfe, 0x78];
        assert_eq!(&text[16..], second);
        // Test case 1: the tag is that of the counter 1.
        let first =
            [0x58, 0xe2, 0xfc, 0xce, 0xfa, 0x7e, 0x30, 0x61, 0x36, 0x7f, 0x1d, 0x57, 0xa4, 0xe7, 0x45, 0x5a];
        assert_eq!(&text[..16], first);
        assert!(cipher.open_unchecked(&mut [0; 11]).is_none());
    }
}
