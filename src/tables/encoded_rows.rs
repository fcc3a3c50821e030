//! Rows of a file as bytes: the form that deletion vectors of Delta Lake and of Iceberg have in common.
//!
//! ```text
//! in a file  size (4, big-endian) │ vector │ CRC-32 (4, big-endian)
//! vector     magic number (4) │ count of bitmaps (8) │ for each: upper 32 bits of its rows (4) │ Roaring bitmap
//! ```

use roaring::RoaringBitmap;

/// What a file has around a vector.
pub(crate) const FRAME_BYTES: u64 = 8;
/// The first bytes of a vector.
const MAGIC: u32 = 1_681_511_377;

/// The vector of a frame that has nothing else.
///
/// # Errors
///
/// What is wrong with it, in words.
pub(crate) fn unframed(framed: &[u8]) -> Result<&[u8], String> {
    let mut rest = framed;
    let size = take::<4>(&mut rest).map(u32::from_be_bytes).ok_or("it is too short")?;
    let (vector, checksum) = rest.split_last_chunk::<4>().ok_or("it is too short")?;
    if u64::from(size) != vector.len() as u64 {
        return Err(format!("its file says {size} bytes, and its table {}", vector.len()));
    }
    match u32::from_be_bytes(*checksum) == crc32(vector) {
        true => Ok(vector),
        false => Err("its checksum is wrong".to_owned()),
    }
}

/// The rows of a vector.
///
/// # Errors
///
/// What is wrong with it, in words.
pub(crate) fn decode(bytes: &[u8]) -> Result<RoaringBitmap, String> {
    let mut rest = bytes;
    let magic = take::<4>(&mut rest).map(u32::from_le_bytes);
    if magic != Some(MAGIC) {
        return Err("it does not begin as one".to_owned());
    }
    let count = take::<8>(&mut rest).map(u64::from_le_bytes).ok_or("it is too short")?;
    let mut rows = RoaringBitmap::new();
    for _ in 0..count {
        let upper = take::<4>(&mut rest).map(u32::from_le_bytes).ok_or("it is too short")?;
        let bitmap = RoaringBitmap::deserialize_from(&mut rest).map_err(|error| error.to_string())?;
        match (upper, bitmap.is_empty()) {
            (_, true) => {}
            (0, false) => rows |= bitmap,
            (_, false) => return Err("it has rows beyond the 4,294,967,296th".to_owned()),
        }
    }
    Ok(rows)
}

fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk::<COUNT>()?;
    *bytes = rest;
    Some(*first)
}

/// CRC-32 of ISO-HDLC, as of zip and PNG.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let of_byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1)))
    };
    !bytes.iter().fold(u32::MAX, of_byte)
}
