//! Compressing and decompressing text returns the text.

use super::*;
use crate::operation::{ByteRange, CompressedText, DecompressRange, compressed_bytes_min};

const PIECE_BYTES: usize = 65536;

/// A compressed text with its parts one after another.
fn laid_out(queue: &Queue, text: &CompressedText) -> Vec<u8> {
    let memory = queue.allocate_filled::<u8>(text.bytes() + 1, 0xa5).unwrap();
    let copies: Vec<ByteRange> = text.copies(memory.address()).collect();
    queue.copy_ranges(&copies).unwrap();
    let bytes: Vec<u8> = queue.download(&memory, text.bytes() as usize + 1).unwrap();
    assert_eq!(bytes.last(), Some(&0xa5));
    let ends = text.ends();
    ends.iter().chain(&bytes[ends.len()..bytes.len() - 1]).copied().collect()
}

/// Decompresses a text of so many bytes, and checks that nothing is written beside it.
fn decompressed(queue: &Queue, compressed: &[u8], text_bytes: usize) -> Result<Vec<u8>> {
    let source = queue.upload(compressed)?;
    let target = queue.allocate_filled::<u8>(text_bytes as u64 + 2, 0xa5)?;
    let range = DecompressRange {
        source: source.address(),
        source_bytes: compressed.len() as u64,
        target: target.address() + 1,
        bytes: text_bytes as u64,
    };
    let outcome = queue.decompress_texts(&[range]);
    let bytes: Vec<u8> = queue.download(&target, text_bytes + 2)?;
    assert_eq!((bytes[0], bytes[text_bytes + 1]), (0xa5, 0xa5));
    outcome.map(|()| bytes[1..=text_bytes].to_vec())
}

/// An LZ4 block by plain loops, with the format's rules about its end.
fn plain_block(block: &[u8]) -> Vec<u8> {
    let (mut at, mut text) = (0, Vec::new());
    let length = |at: &mut usize, token: usize| {
        let mut length = token;
        let mut is_going_on = token == 15;
        while is_going_on {
            *at += 1;
            length += usize::from(block[*at - 1]);
            is_going_on = block[*at - 1] == 255;
        }
        length
    };
    let mut last_copy = 0;
    loop {
        let token = usize::from(block[at]);
        at += 1;
        let literal_bytes = length(&mut at, token >> 4);
        text.extend_from_slice(&block[at..at + literal_bytes]);
        at += literal_bytes;
        if at == block.len() {
            assert!(literal_bytes >= 5 || last_copy == 0, "the last bytes are literal");
            assert!(last_copy == 0 || text.len() - last_copy >= 12, "no copy begins among the last bytes");
            return text;
        }
        let distance = usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
        at += 2;
        last_copy = text.len();
        let copy_bytes = 4 + length(&mut at, token & 15);
        assert!(distance > 0 && distance <= text.len(), "a copy from {distance} before {}", text.len());
        (0..copy_bytes).for_each(|_| text.push(text[text.len() - distance]));
    }
}

/// Decompresses by plain loops.
fn plain_text(compressed: &[u8], text_bytes: usize) -> Vec<u8> {
    let (ends, pieces) = compressed.split_at(compressed_bytes_min(text_bytes as u64) as usize);
    let ends = ends.chunks(4).map(|end| u32::from_le_bytes(end.try_into().unwrap()) as usize);
    let (mut start, mut text) = (0, Vec::new());
    for end in ends {
        let piece_bytes = PIECE_BYTES.min(text_bytes - text.len());
        match end - start == piece_bytes {
            true => text.extend_from_slice(&pieces[start..end]),
            false => text.extend(plain_block(&pieces[start..end])),
        }
        start = end;
    }
    text
}

/// Texts of many kinds, and whether they become shorter.
fn texts(bytes: usize) -> Vec<(Vec<u8>, bool)> {
    let mut numbers = Numbers(SEED ^ bytes as u64);
    let words = ["carefully ", "quick ", "even ", "deposits ", "sleep ", "furiously ", "blå ", "requests "];
    let mut of_words = Vec::new();
    while of_words.len() < bytes {
        of_words.extend_from_slice(words[numbers.next(8) as usize].as_bytes());
    }
    of_words.truncate(bytes);
    let noise: Vec<u8> = (0..bytes).map(|_| numbers.next(256) as u8).collect();
    // The same after a long way, so that distances are as long as they can be.
    let far: Vec<u8> = noise.iter().cycle().take(bytes / 2).chain(&noise).copied().take(bytes).collect();
    // Literals and copies that are each as long as extensions of some bytes.
    let mixed: Vec<u8> =
        (0..bytes).map(|place| if place / 700 % 2 == 0 { noise[place] } else { b'x' }).collect();
    let is_long = bytes > 100;
    vec![
        (of_words, bytes > 1000),
        (vec![b'a'; bytes], is_long),
        (b"ab".iter().cycle().take(bytes).copied().collect(), is_long),
        (noise, false),
        (far, false),
        (mixed, bytes > 2000),
    ]
}

#[test]
fn texts_of_many_kinds_become_shorter_where_they_can_and_come_back() {
    let queue = queue();
    for bytes in [1, 4, 12, 13, 31, 32, 33, 300, 5000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 200_000]
    {
        let texts = texts(bytes);
        let buffers: Vec<_> =
            texts.iter().map(|(text, _)| queue.upload(text).unwrap().slice(0, bytes as u64)).collect();
        let compressed = queue.compress_texts(&buffers).unwrap();
        for (place, ((text, is_shorter), compressed)) in texts.iter().zip(&compressed).enumerate() {
            let name = format!("text {place} of {bytes} bytes");
            let laid_out = laid_out(&queue, compressed);
            assert_eq!(laid_out.len() as u64, compressed.bytes(), "{name}");
            assert!(!is_shorter || laid_out.len() * 8 < bytes * 7, "{name}: {}", laid_out.len());
            assert!(laid_out.len() as u64 <= bytes as u64 + compressed_bytes_min(bytes as u64), "{name}");
            assert!(plain_text(&laid_out, bytes) == *text, "{name}, by plain loops");
            assert!(decompressed(&queue, &laid_out, bytes).unwrap() == *text, "{name}");
        }
    }
}

#[test]
fn more_texts_than_a_launch_takes_are_each_their_own() {
    let queue = queue();
    let text = |number: usize| format!("{} ", number * 1_000_003).repeat(number % 50);
    let texts: Vec<String> = (0..150).map(text).collect();
    let upload = |text: &String| match text.len() as u64 {
        0 => queue.allocate::<u8>(0).unwrap(),
        bytes => queue.upload(text.as_bytes()).unwrap().slice(0, bytes),
    };
    let buffers: Vec<_> = texts.iter().map(upload).collect();
    let compressed = queue.compress_texts(&buffers).unwrap();
    for (text, compressed) in texts.iter().zip(&compressed) {
        let laid_out = laid_out(&queue, compressed);
        assert_eq!(plain_text(&laid_out, text.len()), text.as_bytes());
        assert!(text.is_empty() || decompressed(&queue, &laid_out, text.len()).unwrap() == text.as_bytes());
    }
}

#[test]
fn what_is_no_compressed_text_is_an_error_and_writes_nothing_beside_it() {
    let queue = queue();
    let seed = SEED ^ 0x174;
    let mut numbers = Numbers(seed);
    let (text, _) = texts(70_000).swap_remove(0);
    let buffer = queue.upload(&text).unwrap().slice(0, 70_000);
    let compressed = queue.compress_texts(&[buffer]).unwrap().remove(0);
    let whole = laid_out(&queue, &compressed);
    let mut refused = 0;
    for attempt in 0..200 {
        let mut bytes = whole.clone();
        // Among the ends of pieces too.
        let below = if attempt % 2 == 0 { 8 } else { bytes.len() as u64 };
        for _ in 0..1 + numbers.next(3) {
            bytes[numbers.next(below) as usize] = numbers.next(256) as u8;
        }
        match decompressed(&queue, &bytes, 70_000) {
            Ok(_) => (),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Protocol, "seed {seed}, attempt {attempt}");
                refused += 1;
            }
        }
    }
    // Another literal, or another distance, is another text.
    assert!((50..200).contains(&refused), "{refused} refused");
    // More or fewer bytes of text than there are.
    for text_bytes in [1, 69_999, 70_001, 131_072] {
        let error = decompressed(&queue, &whole, text_bytes).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{text_bytes}");
    }
    // The ends of the pieces, without pieces.
    assert!(decompressed(&queue, &whole[..8], 70_000).is_err());
}
