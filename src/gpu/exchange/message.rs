//! The control blocks of ranks at the beginning of a round: one a rank, as long as it has something
//! to report.
//!
//! ```text
//! head     magic u32 │ version u16 │ rank u16 │ ranks u16 │ flags u16 │ exchanges u16 │ aborts u16
//!          generation u64 │ block_bytes_max u64 │ round u64
//! exchange query u64 │ exchange u32 │ flags u16 │ first sender u16 │ room u64 │ announced u64
//!          for each rank: count of blocks for it u8, then the bytes of each u64
//! abort    query u64 │ kind u16 │ reason's bytes u16 │ reason
//! ```
//!
//! Numbers are little-endian. A rank checks received bytes like any bytes from outside: invalid
//! ones are an error that names the sender, and claimed sizes reserve no memory.
//!
//! Invariants: exchanges are in the order of their keys, each once. What decodes was encoded by the same version, for the same
//! round of the same generation.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{BLOCK_ALIGNMENT, ExchangeId, ExchangeKey, QueryId, Rank};

/// Exchanges of one query: a plan of 36 joins has about a hundred, those of keys among them.
pub const EXCHANGES_OF_QUERY_MAX: usize = 256;
/// Exchanges that are open at once, in all queries: as many as four queries may have. A device has memory for four queries of more than 16
/// exchanges, or for 64 exchanges of smaller ones; others that are open are about to end.
pub const EXCHANGES_MAX: usize = 4 * EXCHANGES_OF_QUERY_MAX;
/// Blocks that one rank sends to another in one round and exchange. Producers make blocks about as
/// large as rounds, so there are more than a few only if they are small.
pub(super) const BLOCKS_A_DESTINATION_MAX: usize = 8;
/// Blocks that one rank offers in one round, of all exchanges and to all ranks: 8 KiB of a control
/// block. Further blocks wait.
pub(super) const BLOCKS_A_ROUND_MAX: usize = 1024;
/// Queries that one rank reports as given up in one round; others follow in the next one.
pub(super) const ABORTS_A_ROUND_MAX: usize = 8;
/// Bytes of a reason; longer ones are cut.
const REASON_BYTES_MAX: usize = 512;
/// Ranks at most, as of a server's options: tables of all blocks grow with the square of their number.
pub const RANKS_MAX: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"PXR\n");
const VERSION: u16 = 3;
const HEAD_BYTES: usize = 16 + 24;
const EXCHANGE_BYTES: usize = 32;
const ABORT_BYTES: usize = 12;

const IS_LEAVING: u16 = 1;
const IS_ENDED: u16 = 1;
const IS_CLOSED: u16 = 2;
const IS_ANNOUNCED: u16 = 4;

/// The common properties of all ranks of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlShape {
    /// The generation of the communicator: one built after a failure has a higher number.
    pub(super) generation: u64,
    pub(super) rank_count: usize,
    /// The largest block of any rank, and the smallest inbox.
    pub(super) block_bytes_max: u64,
}

/// The report of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlBlock {
    /// It takes part in no further round.
    pub(super) is_leaving: bool,
    /// Exchanges that are open there, by key.
    pub(super) exchanges: Vec<ExchangeEntry>,
    pub(super) aborts: Vec<AbortEntry>,
}

/// An exchange on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExchangeEntry {
    pub(super) key: ExchangeKey,
    /// All of its blocks have been sent.
    pub(super) is_ended: bool,
    /// It wants no more blocks.
    pub(super) is_closed: bool,
    /// The sender whose blocks are taken first.
    pub(super) first_sender: Rank,
    /// The longest free range of its inbox.
    pub(super) room_bytes: u64,
    /// Its announced number.
    pub(super) announced: Option<u64>,
    /// For each rank the bytes of the next blocks for it.
    pub(super) blocks: Vec<Vec<u64>>,
}

/// The reason why a rank gives up a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum AbortKind {
    /// It failed there.
    Failed = 0,
    /// It is no longer wanted.
    Cancelled = 1,
}

/// A query that a rank gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbortEntry {
    pub(super) query: QueryId,
    pub(super) kind: AbortKind,
    pub(super) reason: String,
}

impl ControlBlock {
    /// The report of an exchange, if it is open there.
    pub(super) fn exchange(&self, key: ExchangeKey) -> Option<&ExchangeEntry> {
        let place = self.exchanges.binary_search_by_key(&key, |entry| entry.key).ok()?;
        self.exchanges.get(place)
    }
}

impl ControlShape {
    /// The largest control block in bytes.
    pub(super) const fn bytes_max(&self) -> usize {
        HEAD_BYTES
            + EXCHANGES_MAX * (EXCHANGE_BYTES + self.rank_count)
            + BLOCKS_A_ROUND_MAX * 8
            + ABORTS_A_ROUND_MAX * (ABORT_BYTES + REASON_BYTES_MAX)
    }

    /// A block as bytes.
    ///
    /// # Panics
    ///
    /// If it has more than a round has room for.
    pub(super) fn encode(&self, from: Rank, round: u64, block: &ControlBlock) -> Vec<u8> {
        let ControlBlock { is_leaving, exchanges, aborts } = block;
        assert!(
            exchanges.len() <= EXCHANGES_MAX && aborts.len() <= ABORTS_A_ROUND_MAX,
            "entries of a control block"
        );
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(from.0.to_le_bytes());
        bytes.extend((self.rank_count as u16).to_le_bytes());
        bytes.extend(if *is_leaving { IS_LEAVING } else { 0 }.to_le_bytes());
        bytes.extend((exchanges.len() as u16).to_le_bytes());
        bytes.extend((aborts.len() as u16).to_le_bytes());
        for number in [self.generation, self.block_bytes_max, round] {
            bytes.extend(number.to_le_bytes());
        }
        for entry in exchanges {
            let flags = if entry.is_ended { IS_ENDED } else { 0 }
                | if entry.is_closed { IS_CLOSED } else { 0 }
                | if entry.announced.is_some() { IS_ANNOUNCED } else { 0 };
            bytes.extend(entry.key.query.0.to_le_bytes());
            bytes.extend(entry.key.exchange.0.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(entry.first_sender.0.to_le_bytes());
            bytes.extend(entry.room_bytes.to_le_bytes());
            bytes.extend(entry.announced.unwrap_or(0).to_le_bytes());
            assert_eq!(entry.blocks.len(), self.rank_count, "destinations of an exchange");
            for blocks in &entry.blocks {
                assert!(blocks.len() <= BLOCKS_A_DESTINATION_MAX, "blocks of a destination");
                bytes.push(blocks.len() as u8);
                bytes.extend(blocks.iter().flat_map(|block| block.to_le_bytes()));
            }
        }
        for AbortEntry { query, kind, reason } in aborts {
            let reason = cut(reason, REASON_BYTES_MAX);
            bytes.extend(query.0.to_le_bytes());
            bytes.extend((*kind as u16).to_le_bytes());
            bytes.extend((reason.len() as u16).to_le_bytes());
            bytes.extend(reason.as_bytes());
        }
        assert!(bytes.len() <= self.bytes_max(), "bytes of a control block");
        bytes
    }

    /// Decodes the report of a rank.
    ///
    /// # Errors
    ///
    /// `Protocol`, naming the rank, for bytes that this version does not encode.
    pub(super) fn decode(&self, from: Rank, round: u64, bytes: &[u8]) -> Result<ControlBlock> {
        self.read(from, round, bytes).map_err(|what| {
            Error::new(ErrorKind::Protocol, format!("rank {from} sent a control block that is wrong: {what}"))
        })
    }

    fn read(&self, from: Rank, round: u64, bytes: &[u8]) -> DecodeResult<ControlBlock> {
        within("bytes", bytes.len(), self.bytes_max())?;
        let mut reader = Reader { bytes };
        expect("magic", u64::from(reader.u32()?), u64::from(MAGIC))?;
        expect("version", u64::from(reader.u16()?), u64::from(VERSION))?;
        expect("rank", u64::from(reader.u16()?), u64::from(from.0))?;
        expect("ranks", u64::from(reader.u16()?), self.rank_count as u64)?;
        let is_leaving = flags(reader.u16()?, IS_LEAVING)? != 0;
        let exchange_count = within("exchanges", usize::from(reader.u16()?), EXCHANGES_MAX)?;
        let abort_count = within("aborts", usize::from(reader.u16()?), ABORTS_A_ROUND_MAX)?;
        expect("generation", reader.u64()?, self.generation)?;
        expect("block_bytes_max", reader.u64()?, self.block_bytes_max)?;
        expect("round", reader.u64()?, round)?;
        let mut exchanges: Vec<ExchangeEntry> = Vec::with_capacity(exchange_count);
        for _ in 0..exchange_count {
            let entry = self.read_exchange(&mut reader)?;
            if exchanges.last().is_some_and(|last| last.key >= entry.key) {
                return Err(format!("{} is out of order", entry.key));
            }
            exchanges.push(entry);
        }
        let aborts = (0..abort_count).map(|_| read_abort(&mut reader)).collect::<DecodeResult<_>>()?;
        if !reader.bytes.is_empty() {
            return Err(format!("there is more behind its entries: bytes={}", reader.bytes.len()));
        }
        Ok(ControlBlock { is_leaving, exchanges, aborts })
    }

    fn read_exchange(&self, reader: &mut Reader) -> DecodeResult<ExchangeEntry> {
        let key = ExchangeKey { query: QueryId(reader.u64()?), exchange: ExchangeId(reader.u32()?) };
        let flags = flags(reader.u16()?, IS_ENDED | IS_CLOSED | IS_ANNOUNCED)?;
        let first_sender = Rank(reader.u16()?);
        within("first sender", usize::from(first_sender.0), self.rank_count - 1)?;
        let room_bytes = reader.u64()?;
        let announced = match (flags & IS_ANNOUNCED != 0, reader.u64()?) {
            (true, number) => Some(number),
            (false, 0) => None,
            (false, number) => return Err(format!("a number that it does not announce: {number}")),
        };
        let mut blocks = Vec::with_capacity(self.rank_count);
        for _ in 0..self.rank_count {
            let count = within("blocks", usize::from(reader.u8()?), BLOCKS_A_DESTINATION_MAX)?;
            blocks.push((0..count).map(|_| self.read_block_bytes(reader)).collect::<DecodeResult<_>>()?);
        }
        Ok(ExchangeEntry {
            key,
            is_ended: flags & IS_ENDED != 0,
            is_closed: flags & IS_CLOSED != 0,
            first_sender,
            room_bytes,
            announced,
            blocks,
        })
    }

    fn read_block_bytes(&self, reader: &mut Reader) -> DecodeResult<u64> {
        let bytes = reader.u64()?;
        match bytes > 0 && bytes <= self.block_bytes_max && bytes.is_multiple_of(BLOCK_ALIGNMENT) {
            true => Ok(bytes),
            false => Err(format!("a block of {bytes} bytes, block_bytes_max={}", self.block_bytes_max)),
        }
    }
}

fn read_abort(reader: &mut Reader) -> DecodeResult<AbortEntry> {
    let query = QueryId(reader.u64()?);
    let kind = match reader.u16()? {
        0 => AbortKind::Failed,
        1 => AbortKind::Cancelled,
        kind => return Err(format!("no such kind of abort: {kind}")),
    };
    let bytes = within("reason's bytes", usize::from(reader.u16()?), REASON_BYTES_MAX)?;
    let reason = String::from_utf8_lossy(reader.take(bytes)?).into_owned();
    Ok(AbortEntry { query, kind, reason })
}

/// The decoded value, or its fault.
type DecodeResult<T> = std::result::Result<T, String>;

fn expect(name: &str, value: u64, expected: u64) -> DecodeResult<()> {
    match value == expected {
        true => Ok(()),
        false => Err(format!("{name} is {value} instead of {expected}")),
    }
}

fn within(name: &str, value: usize, most: usize) -> DecodeResult<usize> {
    match value <= most {
        true => Ok(value),
        false => Err(format!("{name} exceeds its limit: {value}, limit {most}")),
    }
}

fn flags(value: u16, known: u16) -> DecodeResult<u16> {
    match value & !known {
        0 => Ok(value),
        unknown => Err(format!("unknown flags: {unknown:#x}")),
    }
}

/// The longest prefix of a text of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> DecodeResult<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or("it ends within an entry")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> DecodeResult<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "it ends within a number".into())
    }

    fn u8(&mut self) -> DecodeResult<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> DecodeResult<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> DecodeResult<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> DecodeResult<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::tests::Numbers;

    const SHAPE: ControlShape = ControlShape { generation: 3, rank_count: 3, block_bytes_max: 1 << 20 };

    fn block() -> ControlBlock {
        let entry = |query, exchange| ExchangeEntry {
            key: ExchangeKey { query: QueryId(query), exchange: ExchangeId(exchange) },
            is_ended: exchange == 1,
            is_closed: exchange == 2,
            first_sender: Rank(2),
            room_bytes: 777,
            announced: (exchange > 0).then_some(u64::from(exchange)),
            blocks: vec![vec![64, 1 << 20], Vec::new(), vec![128; BLOCKS_A_DESTINATION_MAX]],
        };
        let abort = |kind, reason: &str| AbortEntry { query: QueryId(9), kind, reason: reason.to_owned() };
        ControlBlock {
            is_leaving: false,
            exchanges: vec![entry(5, 1), entry(5, 2), entry(7, 0)],
            aborts: vec![abort(AbortKind::Failed, "division by zero"), abort(AbortKind::Cancelled, "")],
        }
    }

    #[test]
    fn a_block_comes_back_as_it_was() {
        for block in [block(), ControlBlock { is_leaving: true, ..ControlBlock::default() }] {
            let bytes = SHAPE.encode(Rank(1), 17, &block);
            assert_eq!(SHAPE.decode(Rank(1), 17, &bytes), Ok(block));
        }
    }

    #[test]
    fn long_reasons_are_cut_between_letters() {
        let reason = "ä".repeat(REASON_BYTES_MAX);
        let abort = AbortEntry { query: QueryId(1), kind: AbortKind::Failed, reason };
        let block = ControlBlock { aborts: vec![abort; ABORTS_A_ROUND_MAX], ..ControlBlock::default() };
        let bytes = SHAPE.encode(Rank(0), 0, &block);
        let read = SHAPE.decode(Rank(0), 0, &bytes).unwrap();
        assert_eq!(read.aborts[7].reason, "ä".repeat(REASON_BYTES_MAX / 2));
    }

    #[test]
    fn what_is_of_another_rank_round_or_generation_is_refused() {
        let bytes = SHAPE.encode(Rank(1), 17, &block());
        for (shape, rank, round) in [
            (SHAPE, 2, 17),
            (SHAPE, 1, 16),
            (ControlShape { generation: 4, ..SHAPE }, 1, 17),
            (ControlShape { block_bytes_max: 1 << 21, ..SHAPE }, 1, 17),
            (ControlShape { rank_count: 4, ..SHAPE }, 1, 17),
        ] {
            let error = shape.decode(Rank(rank), round, &bytes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol);
            assert!(error.message.starts_with(&format!("rank {rank} sent a control block")), "{error}");
        }
    }

    #[test]
    fn bytes_at_random_are_refused_or_mean_something_that_encodes_to_them() {
        let seed = 0x5eed;
        let mut numbers = Numbers::new(seed);
        let whole = SHAPE.encode(Rank(1), 17, &block());
        let (mut refused, mut taken) = (0, 0);
        for attempt in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + numbers.below(3) {
                let place = numbers.below(whole.len() as u64) as usize;
                bytes[place] = numbers.below(256) as u8;
            }
            match SHAPE.decode(Rank(1), 17, &bytes) {
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Protocol, "seed {seed}, attempt {attempt}");
                    refused += 1;
                }
                Ok(read) => {
                    // A reason that is not UTF-8 changes; everything else is as encoded.
                    let again = SHAPE.encode(Rank(1), 17, &read);
                    assert!(
                        again == bytes || read.aborts != block().aborts,
                        "seed {seed}, attempt {attempt}"
                    );
                    taken += 1;
                }
            }
        }
        assert!(refused > 5000 && taken > 1000, "{refused} {taken}");
        for length in [0, 3, HEAD_BYTES, whole.len() - 1] {
            assert!(SHAPE.decode(Rank(1), 17, &whole[..length]).is_err());
        }
    }
}
