//! Snappy by several blocks a page: the bytes of one walk, whatever copies reach back to.

use bytemuck::Pod;

use super::{Random, memory};
use crate::{
    abi::{
        CompressedPage, PAGE_ALIGNMENT, PAGE_PADDING_BYTES, SNAPPY_PART_BYTES, SNAPPY_SECTION_BYTES,
        SnappyPage,
    },
    decode::decompression::SnappyParts,
    device::Buffer,
    operation::{Queue, Status},
};

const PART_BYTES: usize = SNAPPY_PART_BYTES as usize;

/// Elements of a stream.
#[derive(Clone, Copy, Debug)]
struct Elements {
    /// Of literals: these and as many again, at random.
    literal_bytes: u64,
    copy_bytes: u64,
    /// Percent.
    copies: u64,
    /// Bytes of literals are among so many.
    letters: u64,
    /// Elements and copies stay in their parts.
    in_parts: bool,
}

/// A stream of elements, and its output.
fn stream(random: &mut Random, elements: Elements, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut input, mut output) = (Vec::new(), Vec::with_capacity(bytes));
    let mut length = bytes as u64;
    while length >= 0x80 {
        input.push(length as u8 | 0x80);
        length >>= 7;
    }
    input.push(length as u8);
    while output.len() < bytes {
        let part = output.len() / PART_BYTES * PART_BYTES;
        let (first, end) =
            if elements.in_parts { (part, (part + PART_BYTES).min(bytes)) } else { (0, bytes) };
        let left = (end - output.len()) as u64;
        if output.len() > first && random.chance(elements.copies) {
            let length = (1 + random.below(elements.copy_bytes)).min(left).min(64);
            let distance = 1 + random.below((output.len() - first) as u64);
            match distance {
                0..2048 if (4..12).contains(&length) => {
                    input.push((distance >> 8 << 5 | (length - 4) << 2 | 1) as u8);
                    input.push(distance as u8);
                }
                0..65536 => {
                    input.push(((length - 1) << 2 | 2) as u8);
                    input.extend((distance as u16).to_le_bytes());
                }
                _ => {
                    input.push(((length - 1) << 2 | 3) as u8);
                    input.extend((distance as u32).to_le_bytes());
                }
            }
            (0..length).for_each(|_| output.push(output[output.len() - distance as usize]));
        } else {
            let length = (elements.literal_bytes + random.below(elements.literal_bytes + 1)).min(left).max(1);
            match length - 1 {
                less @ 0..60 => input.push((less << 2) as u8),
                less @ 60..256 => input.extend([60 << 2, less as u8]),
                less => {
                    input.push(62 << 2);
                    input.extend(&(less as u32).to_le_bytes()[..3]);
                }
            }
            let literal = (0..length).map(|_| b'a'.wrapping_add(random.below(elements.letters) as u8));
            let literal: Vec<u8> = literal.collect();
            input.extend(&literal);
            output.extend(literal);
        }
    }
    (input, output)
}

/// One walk over a stream. `None` if it is not Snappy of so many bytes.
fn walk(input: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut at = input.iter().position(|byte| *byte < 0x80)? + 1;
    let header = input[..at].iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    let mut output = Vec::new();
    while at < input.len() {
        let tag = input[at];
        let little = |first: usize, bytes: usize| -> Option<usize> {
            let bytes = input.get(first..first + bytes)?;
            Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
        };
        let size = usize::from(tag >> 2);
        let (header_bytes, length, distance) = match tag & 3 {
            0 if size < 60 => (1, size + 1, 0),
            0 => (size - 58, little(at + 1, size - 59)? + 1, 0),
            1 => (2, 4 + (size & 7), usize::from(tag >> 5) << 8 | little(at + 1, 1)?),
            2 => (3, size + 1, little(at + 1, 2)?),
            _ => (5, size + 1, little(at + 1, 4)?),
        };
        at += header_bytes;
        if tag & 3 == 0 {
            output.extend(input.get(at..at + length)?);
            at += length;
        } else {
            let first = output.len().checked_sub(distance).filter(|_| distance > 0)?;
            (first..first + length).for_each(|place| output.push(output[place]));
        }
        if output.len() > bytes {
            return None;
        }
    }
    (output.len() == bytes && header == bytes as u64).then_some(output)
}

/// What a page of Snappy is decompressed to, whether it was indexed, and whether parts of it could not be decompressed
/// by themselves. `None`: it was reported.
fn decompress(input: &[u8], bytes: usize, skipped: usize) -> (Option<Vec<u8>>, bool, bool) {
    let memory = memory();
    let queue = Queue::new(&memory).unwrap();
    let padded = [&vec![0xff; skipped], input, &[0xff; PAGE_PADDING_BYTES as usize]].concat();
    let source = queue.upload(&padded).unwrap();
    let target = queue.allocate_filled::<u8>((bytes as u64).next_multiple_of(PAGE_ALIGNMENT), 0xee).unwrap();
    let task = CompressedPage {
        source: source.address() + skipped as u64,
        target: target.address(),
        source_bytes: input.len() as u32,
        target_bytes: bytes as u32,
        page: 0,
        reserved: 0,
    };
    let status = queue.zeros::<Status>(1).unwrap();
    let pages = SnappyParts::plan(&[task]).launch(&queue, status.address()).unwrap();
    fn first<T: Pod>(queue: &Queue, buffer: &Buffer) -> T {
        queue.download(buffer, 1).unwrap()[0]
    }
    let page: SnappyPage = first(&queue, &pages);
    let mut output: Vec<u8> = queue.download(&target, target.bytes() as usize).unwrap();
    assert!(output[bytes..].iter().all(|byte| *byte == 0), "what follows the page is not cleared");
    output.truncate(bytes);
    let is_sound = first::<[u32; 4]>(&queue, &status)[0] == 0;
    (is_sound.then_some(output), page.is_indexed != 0, page.has_faults != 0)
}

const KINDS: [Elements; 5] = [
    // Like text.
    Elements { literal_bytes: 4, copy_bytes: 20, copies: 60, letters: 26, in_parts: true },
    Elements { literal_bytes: 1, copy_bytes: 64, copies: 95, letters: 200, in_parts: true },
    // Like numbers.
    Elements { literal_bytes: 30, copy_bytes: 8, copies: 40, letters: 256, in_parts: true },
    // Literals longer than parts of the index, and than pieces.
    Elements { literal_bytes: 50_000, copy_bytes: 64, copies: 30, letters: 256, in_parts: true },
    Elements { literal_bytes: 700, copy_bytes: 10, copies: 50, letters: 4, in_parts: true },
];

#[test]
fn parts_of_a_page_are_decompressed_by_themselves() {
    let mut random = Random::new(41);
    for (kind, elements) in KINDS.into_iter().enumerate() {
        for bytes in [PART_BYTES + 1, 3 * PART_BYTES, 300_000] {
            let (input, output) = stream(&mut random, elements, bytes);
            assert_eq!(walk(&input, bytes).as_ref(), Some(&output), "the test's own walk");
            let (found, is_indexed, has_faults) = decompress(&input, bytes, random.below(4) as usize);
            assert!(found.as_ref() == Some(&output), "kind {kind}, {bytes} bytes");
            assert_eq!((is_indexed, has_faults), (true, false), "kind {kind}, {bytes} bytes");
        }
    }
}

#[test]
fn copies_from_other_parts_take_one_block() {
    let mut random = Random::new(42);
    for (kind, elements) in KINDS.into_iter().enumerate() {
        let elements = Elements { in_parts: false, ..elements };
        let (input, output) = stream(&mut random, elements, 200_000);
        let (found, _, has_faults) = decompress(&input, output.len(), random.below(4) as usize);
        assert!(found.as_ref() == Some(&output), "kind {kind}");
        assert!(has_faults, "kind {kind}: parts did not need one another");
    }
}

#[test]
fn damaged_pages_are_those_of_one_walk() {
    let mut random = Random::new(43);
    let (mut sound, mut corrupt) = (0, 0);
    for round in 0..120 {
        let elements = Elements { in_parts: round % 4 > 0, ..KINDS[round % KINDS.len()] };
        let bytes = PART_BYTES + random.below(80_000) as usize;
        let (mut input, output) = stream(&mut random, elements, bytes);
        let mut said_bytes = output.len();
        match random.below(5) {
            0 => input.truncate(random.below(input.len() as u64) as usize),
            1 => input.extend((0..1 + random.below(9)).map(|_| random.next() as u8).collect::<Vec<_>>()),
            2 => said_bytes = said_bytes + random.below(200) as usize - 100,
            _ => {
                for _ in 0..1 + random.below(3) {
                    let place = random.below(input.len() as u64) as usize;
                    input[place] = random.next() as u8;
                }
            }
        }
        let expected = walk(&input, said_bytes);
        let (found, ..) = decompress(&input, said_bytes, random.below(4) as usize);
        assert!(found == expected, "round {round}");
        if expected.is_some() { sound += 1 } else { corrupt += 1 }
    }
    assert!(sound > 10 && corrupt > 30, "{sound} sound pages, {corrupt} corrupt ones");
}

#[test]
fn many_pages_take_a_block_each() {
    let mut random = Random::new(44);
    let (input, output) = stream(&mut random, KINDS[0], PART_BYTES + 9);
    let task = |source: u64| CompressedPage {
        source,
        source_bytes: input.len() as u32,
        target_bytes: output.len() as u32,
        ..CompressedPage::default()
    };
    let blocks = |count: u64| {
        let tasks: Vec<CompressedPage> = (0..count).map(|page| task(page * 100_000)).collect();
        let plan = SnappyParts::plan(&tasks);
        (plan.sections.len(), plan.parts.len())
    };
    assert_eq!(blocks(3), (3 * input.len().div_ceil(SNAPPY_SECTION_BYTES as usize), 6));
    assert_eq!(blocks(5000), (0, 5000));
}
