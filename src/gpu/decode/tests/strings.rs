//! Plain strings, which kernels find by guesses that they check: any bytes give what one walk gives.

use bytemuck::{Zeroable, bytes_of};
use parquet::basic::Type as PhysicalType;
use pystachio_plan::{DataType, ErrorKind};

use super::{
    Random, Value, column,
    handmade::{decode, page_v1, varint},
    memory,
};
use crate::{
    abi::{
        CHAIN_SECTION_BYTES, CHAIN_SECTION_PIECES, ChainPiece, ChainSection, EncodedPage, LocateStrings,
        PAGE_PADDING_BYTES, PageSection, PageState, StringPlace,
    },
    device::Kernel,
    operation::{Queue, Status},
};

/// Encoding of a page, and of its levels.
const PLAIN: u64 = 0;
const RUNS: u64 = 3;

/// A kind of strings: the length of the next one, and its bytes.
type Kind = (fn(&mut Random) -> u64, fn(&mut Random) -> u8);

const KINDS: [Kind; 9] = [
    (|random| 20 + random.below(81), letter),
    (|random| random.below(16), letter),
    (|_| 0, letter),
    // Most are empty.
    (|random| if random.chance(90) { 0 } else { random.below(900) }, letter),
    (|random| random.below(300), |random| random.next() as u8),
    // Longer than sections, and than what is guessed.
    (|random| if random.chance(99) { random.below(60) } else { random.below(100_000) }, letter),
    (|random| random.below(20_000), letter),
    // Bytes that look like lengths.
    (|random| random.below(200), |_| 0),
    (|random| random.below(40), |random| (random.below(2) * random.below(6)) as u8),
];

fn letter(random: &mut Random) -> u8 {
    b'a' + random.below(26) as u8
}

/// Plain strings of a kind, of some bytes in all.
fn strings_of(random: &mut Random, kind: usize, bytes: usize) -> Vec<u8> {
    let (length_of, byte_of) = KINDS[kind];
    let mut body = Vec::new();
    while body.len() < bytes {
        let length = length_of(random);
        body.extend((length as u32).to_le_bytes());
        body.extend((0..length).map(|_| byte_of(random)));
    }
    body
}

/// One walk over plain strings: where they are. An end that is not theirs is left out.
fn walk(body: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(length) = body.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if length > body.len() - at - 4 {
            break;
        }
        places.push(at + 4..at + 4 + length);
        at += 4 + length;
    }
    places
}

/// Damages strings.
fn damage(random: &mut Random, body: &mut Vec<u8>) {
    match random.below(4) {
        0 => body.truncate(random.below(body.len() as u64) as usize),
        1 => {
            let place = random.below(body.len() as u64) as usize;
            body[place] = random.next() as u8;
        }
        2 => {
            // A length that ends near the page's end, or beyond it.
            let places = walk(body);
            let place = random.pick(&places).start;
            let length = (body.len() - place) as u32 + random.below(9) as u32;
            body[place - 4..place].copy_from_slice(&length.wrapping_sub(4).to_le_bytes());
        }
        _ => {
            let bytes = random.below(3000);
            body.extend((0..bytes).map(|_| (random.below(2) * random.below(256)) as u8));
        }
    }
}

#[test]
fn plain_strings_of_any_bytes_are_those_of_one_walk() {
    let mut random = Random::new(31);
    let (mut sound, mut corrupt) = (0, 0);
    for round in 0..180 {
        let kind = round % KINDS.len();
        let bytes = [300, 30_000, 33_000, 200_000][round / KINDS.len() % 4] + random.below(1000) as usize;
        let mut body = strings_of(&mut random, kind, bytes);
        let written = walk(&body).len();
        if round % 3 == 0 {
            damage(&mut random, &mut body);
        }
        let places = walk(&body);
        // Bytes may follow the last string.
        let rows = if random.chance(20) { 1 + random.below(written as u64) as usize } else { written };
        let is_optional = random.chance(50);
        let mut page = Vec::new();
        if is_optional {
            let mut run = Vec::new();
            varint(&mut run, (rows as u64) << 1);
            run.push(1);
            page.extend((run.len() as u32).to_le_bytes());
            page.extend(run);
        }
        page.extend(&body);
        let pages = [page_v1(rows, PLAIN, RUNS, &page)];
        let decoded =
            decode(PhysicalType::BYTE_ARRAY, is_optional, &pages, &column("v", DataType::Bytea), rows);
        if places.len() < rows {
            assert_eq!(decoded.unwrap_err().kind, ErrorKind::FileCorrupt, "round {round}");
            corrupt += 1;
            continue;
        }
        let decoded = decoded.unwrap();
        for (row, place) in places[..rows].iter().enumerate() {
            let expected = Some(Value::Bytes(body[place.clone()].to_vec()));
            assert_eq!(decoded[row], expected, "round {round}, row {row} of {rows}");
        }
        sound += 1;
    }
    assert!(sound > 100 && corrupt > 10, "{sound} sound pages, {corrupt} corrupt ones");
}

/// What is found in sections of a page, and the places of its strings.
fn locate(body: &[u8], rows: usize) -> (Vec<ChainSection>, Vec<StringPlace>) {
    let memory = memory();
    let queue = Queue::new(&memory).unwrap();
    let mut padded = body.to_vec();
    padded.resize(body.len() + PAGE_PADDING_BYTES as usize, 0);
    let values = queue.upload(&padded).unwrap();
    let scratch = queue.allocate::<StringPlace>(rows as u64).unwrap();
    let page = EncodedPage {
        values: values.address(),
        values_bytes: body.len() as u32,
        row_count: rows as u32,
        scratch: scratch.address(),
        ..EncodedPage::zeroed()
    };
    let state = PageState { value_count: rows as u32, dense: 1, ..PageState::zeroed() };
    let count = (body.len() as u64).div_ceil(CHAIN_SECTION_BYTES);
    let list: Vec<PageSection> = (0..count as u32)
        .map(|number| PageSection { page: 0, number, count: count as u32, first: 0 })
        .collect();
    let [pages, states, list] = [bytes_of(&page), bytes_of(&state), bytemuck::cast_slice(&list)]
        .map(|bytes| queue.upload(bytes).unwrap());
    let sections = queue.allocate::<ChainSection>(count).unwrap();
    let pieces = queue.allocate::<ChainPiece>(count * CHAIN_SECTION_PIECES).unwrap();
    let status = queue.zeros::<Status>(1).unwrap();
    let arguments = LocateStrings {
        pages: pages.address(),
        states: states.address(),
        list: list.address(),
        sections: sections.address(),
        pieces: pieces.address(),
        status: status.address(),
    };
    for kernel in [Kernel::LocateStrings, Kernel::WritePlaces] {
        queue.launch_moving(kernel, count as u32, &arguments, || 0).unwrap();
    }
    (queue.download(&sections, count as usize).unwrap(), queue.download(&scratch, rows).unwrap())
}

#[test]
fn sections_of_text_are_guessed_right_and_zeros_are_walked_over() {
    let mut random = Random::new(32);
    let has_places = |sections: &[ChainSection]| {
        sections.iter().filter(|section| section.weight_before != u32::MAX).count()
    };
    for kind in 0..KINDS.len() {
        let body = strings_of(&mut random, kind, 400_000);
        let places = walk(&body);
        let (sections, found) = locate(&body, places.len());
        let expected: Vec<StringPlace> = places
            .iter()
            .map(|place| StringPlace { offset: place.start as u32, length: place.len() as u32 })
            .collect();
        assert_eq!(found, expected, "kind {kind}");
        match kind {
            0 | 1 | 4 => assert_eq!(has_places(&sections), sections.len(), "kind {kind}"),
            3 => assert!(has_places(&sections) > sections.len() / 2, "kind {kind}"),
            7 => assert!(has_places(&sections) < sections.len() / 2, "kind {kind}"),
            _ => {}
        }
    }
}
