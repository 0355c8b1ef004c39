//! A snapshot on its way to another machine, as a stream of bytes. `docs/snapshots.md` has
//! the layout. Numbers are little-endian.
//!
//! Each record ends with the CRC32C of all of the stream that came before that, but for the
//! checksums: a CRC that goes over itself forgets what was before. So a record that is missing,
//! twice there or at another place is found as one that is damaged is.

use std::io::{self, Read, Write};

use crc_fast::{CrcAlgorithm, Digest};
use uuid::Uuid;

use super::{NAME_BYTES_MAX, check_name};
use crate::Range;
use crate::problem::remedy;
use crate::spec::SIZE_MAX_BYTES;
use crate::unreadable::RANGES_MAX;

const MAGIC: &[u8; 8] = b"weftsnap";
const VERSION: u32 = 1;
/// With its checksum.
pub(super) const HEADER_BYTES: usize = 156;
/// Of a record, without data and checksum.
const HEAD_BYTES: usize = 24;
const SUM_BYTES: usize = 4;
/// Data of a record at most.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;

const UNREADABLE: u32 = 1;
const DATA: u32 = 2;
const ZEROS: u32 = 3;
const END: u32 = 4;

/// What a stream is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The volume that the snapshot was sent of.
    pub volume: Uuid,
    /// The snapshot; it has this wherever it is received.
    pub snapshot: Uuid,
    /// The stream holds what has changed since this snapshot; `None`: all.
    pub since: Option<Uuid>,
    /// What the volume had.
    pub size_bytes: u64,
    /// Bytes of a logical block of it.
    pub block_bytes: u32,
    /// When the snapshot was made.
    pub taken_unix_ms: u64,
    /// The stream holds nothing before this byte.
    pub from: u64,
    /// How the snapshot is called.
    pub name: String,
}

/// What comes behind the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRecord<'b> {
    /// A range is marked as unreadable.
    Unreadable(Range),
    /// Bytes from the first one on.
    Data(u64, &'b [u8]),
    /// A range holds zeros.
    Zeros(Range),
}

/// Why a stream cannot be taken, as in "the stream ...".
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It is something else.
    #[error("is none of a snapshot: it does not begin as one that `weft snapshot send` writes")]
    Foreign,
    /// It is of another weft.
    #[error("has the format {0}, and this weft takes {VERSION}: use a weft that knows both")]
    Version(u32),
    /// There is less of it than there was.
    #[error("ends before its end, at its byte {0}")]
    Truncated(u64),
    /// It is not what was sent.
    #[error("is damaged: the checksum at its byte {0} does not match")]
    Damaged(u64),
    /// Its checksums are right, and it makes no sense: what.
    #[error("is not as weft makes it: {1}, before its byte {0}")]
    Wrong(u64, &'static str),
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// What it brings has no place here.
    #[error("brings what cannot be written: {0}{remedy}", remedy = remedy(.0))]
    Write(io::Error),
}

fn new_sum() -> Digest {
    Digest::new(CrcAlgorithm::Crc32Iscsi)
}

fn sum_of(sum: &Digest) -> [u8; SUM_BYTES] {
    (sum.finalize() as u32).to_le_bytes()
}

/// A number at a place of bytes that has it.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let part = bytes[at..].first_chunk::<N>();
    *part.expect("the bytes are longer")
}

impl StreamHeader {
    /// Its bytes, with their checksum.
    pub(super) fn render(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.block_bytes.to_le_bytes());
        for uuid in [self.volume, self.snapshot, self.since.unwrap_or_default()] {
            bytes.extend(uuid.into_bytes());
        }
        for number in [self.size_bytes, self.taken_unix_ms, self.from] {
            bytes.extend(number.to_le_bytes());
        }
        let mut name = [0; NAME_BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes.extend(name);
        let mut sum = new_sum();
        sum.update(&bytes);
        bytes.extend(sum_of(&sum));
        bytes
    }

    /// That of these bytes.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<StreamHeader, StreamError> {
        if !bytes.starts_with(MAGIC) {
            return Err(StreamError::Foreign);
        }
        let version = u32::from_le_bytes(number(bytes, 8));
        if version != VERSION {
            return Err(StreamError::Version(version));
        }
        let (said, sum) = bytes.split_at(HEADER_BYTES - SUM_BYTES);
        let mut own = new_sum();
        own.update(said);
        if sum_of(&own) != sum {
            return Err(StreamError::Damaged(said.len() as u64));
        }
        let uuid = |at| Uuid::from_bytes(number(bytes, at));
        let long = |at| u64::from_le_bytes(number(bytes, at));
        let name = said[88..].split(|byte| *byte == 0).next();
        let name = String::from_utf8(name.unwrap_or_default().to_vec());
        let header = StreamHeader {
            block_bytes: u32::from_le_bytes(number(bytes, 12)),
            volume: uuid(16),
            snapshot: uuid(32),
            since: Some(uuid(48)).filter(|uuid| !uuid.is_nil()),
            size_bytes: long(64),
            taken_unix_ms: long(72),
            from: long(80),
            name: name.unwrap_or_default(),
        };
        let is_right = check_name(&header.name).is_ok()
            // That stands for none.
            && !header.snapshot.is_nil()
            && (1..=SIZE_MAX_BYTES).contains(&header.size_bytes)
            && header.from <= header.size_bytes
            && header.block_bytes > 0
            && header
                .size_bytes
                .is_multiple_of(u64::from(header.block_bytes))
            && header.render() == bytes;
        match is_right {
            true => Ok(header),
            false => Err(StreamError::Wrong(HEADER_BYTES as u64, "its header")),
        }
    }
}

/// Writes a stream.
pub struct StreamWriter<W> {
    out: W,
    sum: Digest,
    records: u64,
    data_bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(mut out: W, header: &StreamHeader) -> io::Result<StreamWriter<W>> {
        let bytes = header.render();
        let mut sum = new_sum();
        sum.update(&bytes[..HEADER_BYTES - SUM_BYTES]);
        out.write_all(&bytes)?;
        Ok(StreamWriter {
            out,
            sum,
            records: 0,
            data_bytes: 0,
            buffer: Vec::new(),
        })
    }

    /// Tells that a range is marked: before all data.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn unreadable(&mut self, range: Range) -> io::Result<()> {
        self.put(UNREADABLE, (range.offset, range.len), 0, |_| Ok(()))
    }

    /// Tells of zeros, behind what was told before.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn zeros(&mut self, range: Range) -> io::Result<()> {
        self.put(ZEROS, (range.offset, range.len), 0, |_| Ok(()))
    }

    /// Tells of at most `DATA_BYTES_MAX` bytes, which `fill` puts in their place.
    ///
    /// # Errors
    /// Those of `fill`, or it cannot be written.
    pub fn data(
        &mut self,
        range: Range,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.data_bytes += range.len;
        let len = range.len as usize;
        self.put(DATA, (range.offset, range.len), len, fill)
    }

    /// Ends it: without that it counts for nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(mut self) -> io::Result<()> {
        let counts = (self.records, self.data_bytes);
        self.put(END, counts, 0, |_| Ok(()))?;
        self.out.flush()
    }

    fn put(
        &mut self,
        kind: u32,
        (offset, len): (u64, u64),
        data: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend(u64::from(kind).to_le_bytes());
        self.buffer.extend(offset.to_le_bytes());
        self.buffer.extend(len.to_le_bytes());
        self.buffer.resize(HEAD_BYTES + data, 0);
        fill(&mut self.buffer[HEAD_BYTES..])?;
        self.sum.update(&self.buffer);
        self.buffer.extend(sum_of(&self.sum));
        self.records += 1;
        self.out.write_all(&self.buffer)
    }
}

/// Reads a stream, and trusts nothing of it.
pub struct StreamReader<R> {
    input: R,
    header: StreamHeader,
    sum: Digest,
    records: u64,
    data_bytes: u64,
    /// Bytes of the stream that were read.
    at: u64,
    /// Where the last range that was told ends, of marks and of what is held.
    reached: u64,
    marks: usize,
    holds: bool,
    buffer: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// Reads its beginning.
    ///
    /// # Errors
    /// It is no stream of this format.
    pub fn new(mut input: R) -> Result<StreamReader<R>, StreamError> {
        let mut bytes = [0; HEADER_BYTES];
        let read = read_up_to(&mut input, &mut bytes)?;
        if read < HEADER_BYTES {
            let begins = MAGIC.iter().zip(&bytes[..read]).all(|(a, b)| a == b);
            return Err(match begins && read > 0 {
                true => StreamError::Truncated(read as u64),
                false => StreamError::Foreign,
            });
        }
        let header = StreamHeader::parse(&bytes)?;
        let mut sum = new_sum();
        sum.update(&bytes[..HEADER_BYTES - SUM_BYTES]);
        Ok(StreamReader {
            input,
            header,
            sum,
            records: 0,
            data_bytes: 0,
            at: HEADER_BYTES as u64,
            reached: 0,
            marks: 0,
            holds: false,
            buffer: Vec::new(),
        })
    }

    /// What it is of.
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// The next record; `None` where the stream is whole.
    ///
    /// # Errors
    /// It is not what was sent: all that was told before is.
    pub fn next_record(&mut self) -> Result<Option<StreamRecord<'_>>, StreamError> {
        self.buffer.resize(HEAD_BYTES, 0);
        self.fill(0)?;
        let long = |at| u64::from_le_bytes(number(&self.buffer, at));
        let (kind, offset, len) = (long(0), long(8), long(16));
        let kind = u32::try_from(kind).unwrap_or_default();
        let data = match kind {
            DATA if len > DATA_BYTES_MAX as u64 => return Err(self.wrong("a record is too long")),
            DATA => len as usize,
            UNREADABLE | ZEROS | END => 0,
            _ => return Err(self.wrong("a record is of no kind")),
        };
        self.buffer.resize(HEAD_BYTES + data + SUM_BYTES, 0);
        self.fill(HEAD_BYTES)?;
        let (said, sum) = self.buffer.split_at(HEAD_BYTES + data);
        self.sum.update(said);
        if sum_of(&self.sum) != sum {
            return Err(StreamError::Damaged(self.at - SUM_BYTES as u64));
        }
        if kind == END {
            return self.expect_end((offset, len)).map(|()| None);
        }
        self.expect_in_order(kind, Range { offset, len })?;
        self.records += 1;
        self.data_bytes += data as u64;
        let range = Range { offset, len };
        Ok(Some(match kind {
            UNREADABLE => StreamRecord::Unreadable(range),
            ZEROS => StreamRecord::Zeros(range),
            _ => StreamRecord::Data(offset, &self.buffer[HEAD_BYTES..HEAD_BYTES + data]),
        }))
    }

    fn wrong(&self, what: &'static str) -> StreamError {
        StreamError::Wrong(self.at, what)
    }

    /// Reads what the buffer has room for from `from` on.
    fn fill(&mut self, from: usize) -> Result<(), StreamError> {
        let read = read_up_to(&mut self.input, &mut self.buffer[from..])?;
        self.at += read as u64;
        match read == self.buffer.len() - from {
            true => Ok(()),
            false => Err(StreamError::Truncated(self.at)),
        }
    }

    fn expect_in_order(&mut self, kind: u32, range: Range) -> Result<(), StreamError> {
        let is_mark = kind == UNREADABLE;
        if is_mark {
            self.marks += 1;
        } else if !self.holds {
            self.holds = true;
            self.reached = self.header.from;
        }
        let end = range.offset.checked_add(range.len);
        match end {
            _ if is_mark && (self.holds || self.marks > RANGES_MAX) => {
                Err(self.wrong("a mark too many"))
            }
            Some(end) if range.offset >= self.reached && end <= self.header.size_bytes => {
                if range.len == 0 {
                    return Err(self.wrong("a record of nothing"));
                }
                self.reached = end;
                Ok(())
            }
            _ => Err(self.wrong("a record is not in its order, or beyond the volume's end")),
        }
    }

    fn expect_end(&mut self, counts: (u64, u64)) -> Result<(), StreamError> {
        if counts != (self.records, self.data_bytes) {
            return Err(self.wrong("the counts at its end do not match"));
        }
        match read_up_to(&mut self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(self.wrong("there is more behind its end")),
        }
    }
}

/// Reads until there is no more, or no room; how much.
fn read_up_to(input: &mut impl Read, mut room: &mut [u8]) -> io::Result<usize> {
    let all = room.len();
    while !room.is_empty() {
        match input.read(room) {
            Ok(0) => break,
            Ok(read) => room = &mut room[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all - room.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> StreamHeader {
        StreamHeader {
            volume: Uuid::from_u128(1),
            snapshot: Uuid::from_u128(2),
            since: Some(Uuid::from_u128(3)),
            size_bytes: 1 << 20,
            block_bytes: 512,
            taken_unix_ms: 1_800_000_000_000,
            from: 4096,
            name: "x".repeat(NAME_BYTES_MAX),
        }
    }

    fn range(offset: u64, len: u64) -> Range {
        Range { offset, len }
    }

    /// A stream with each kind of record, and where each of its parts ends.
    fn stream() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut stream = StreamWriter::new(&mut bytes, &header()).unwrap();
        stream.unreadable(range(0, 512)).unwrap();
        stream.unreadable(range(1024, 512)).unwrap();
        stream
            .data(range(4096, 100), |room| {
                room.fill(7);
                Ok(())
            })
            .unwrap();
        stream.zeros(range(8192, 1 << 19)).unwrap();
        stream.end().unwrap();
        let with_sum = HEAD_BYTES + SUM_BYTES;
        let lens = [
            HEADER_BYTES,
            with_sum,
            with_sum,
            with_sum + 100,
            with_sum,
            with_sum,
        ];
        let ends = lens.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        (bytes, ends.collect())
    }

    /// What a stream tells before its end, or what is wrong with it.
    fn told(bytes: &[u8]) -> Result<usize, (usize, StreamError)> {
        let mut stream = StreamReader::new(bytes).map_err(|why| (0, why))?;
        assert_eq!(*stream.header(), header());
        let mut count = 0;
        loop {
            match stream.next_record() {
                Ok(None) => return Ok(count),
                Ok(Some(_)) => count += 1,
                Err(why) => return Err((count, why)),
            }
        }
    }

    #[test]
    fn stream_tells_what_was_written() {
        let (bytes, ends) = stream();
        assert_eq!(bytes.len(), *ends.last().unwrap());
        let mut stream = StreamReader::new(&*bytes).unwrap();
        let data = [7; 100];
        for record in [
            StreamRecord::Unreadable(range(0, 512)),
            StreamRecord::Unreadable(range(1024, 512)),
            StreamRecord::Data(4096, &data),
            StreamRecord::Zeros(range(8192, 1 << 19)),
        ] {
            assert_eq!(stream.next_record().unwrap(), Some(record));
        }
        assert_eq!(stream.next_record().unwrap(), None);
    }

    #[test]
    fn stream_with_a_bit_flipped_anywhere_is_refused_and_what_came_before_is_told() {
        let (bytes, ends) = stream();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (count, why) = told(&flipped).expect_err("it is damaged");
            let part = ends.iter().filter(|end| **end <= bit / 8).count();
            assert_eq!(count, part.saturating_sub(1), "bit {bit}: {why}");
        }
    }

    #[test]
    fn stream_that_is_cut_anywhere_is_refused() {
        let (bytes, _) = stream();
        for len in 0..bytes.len() {
            let (_, why) = told(&bytes[..len]).expect_err("it is not whole");
            match len {
                0 => assert!(matches!(why, StreamError::Foreign), "{why}"),
                _ => assert!(matches!(why, StreamError::Truncated(_)), "{len}: {why}"),
            }
        }
        let (_, why) = told(&[&*bytes, b"x"].concat()).expect_err("there is more");
        assert!(matches!(why, StreamError::Wrong(..)), "{why}");
    }

    #[test]
    fn stream_whose_records_are_missing_twice_or_moved_is_refused() {
        let (bytes, ends) = stream();
        let part = |at: usize| &bytes[ends[at - 1]..ends[at]];
        let head = &bytes[..ends[0]];
        for order in [
            &[2, 3, 4, 5][..],
            &[1, 2, 4, 5],
            &[1, 2, 3, 5],
            &[1, 1, 2, 3, 4, 5],
            &[1, 2, 4, 3, 5],
            &[5],
        ] {
            let moved = order.iter().flat_map(|at| part(*at).iter().copied());
            let moved: Vec<u8> = head.iter().copied().chain(moved).collect();
            let (_, why) = told(&moved).expect_err("not what was sent");
            assert!(matches!(why, StreamError::Damaged(_)), "{order:?}: {why}");
        }
    }

    /// Its checksums are right.
    #[test]
    fn stream_that_makes_no_sense_is_refused() {
        type Deed = fn(&mut StreamWriter<&mut Vec<u8>>) -> io::Result<()>;
        let cases: [(&str, Deed); 6] = [
            ("before its start", |to| to.zeros(range(0, 4096))),
            ("beyond its end", |to| to.zeros(range(4096, 1 << 20))),
            ("without end", |to| to.zeros(range(8192, u64::MAX))),
            ("of nothing", |to| to.zeros(range(8192, 0))),
            ("twice", |to| {
                to.zeros(range(8192, 4096))?;
                to.zeros(range(8192, 4096))
            }),
            ("a late mark", |to| {
                to.zeros(range(8192, 4096))?;
                to.unreadable(range(16384, 512))
            }),
        ];
        for (what, deed) in cases {
            let mut bytes = Vec::new();
            let mut stream = StreamWriter::new(&mut bytes, &header()).unwrap();
            deed(&mut stream).unwrap();
            stream.end().unwrap();
            let (_, why) = told(&bytes).expect_err(what);
            assert!(matches!(why, StreamError::Wrong(..)), "{what}: {why}");
        }
        let none = |header: StreamHeader| {
            let why = StreamReader::new(&*header.render()).map(|_| ());
            assert!(matches!(why, Err(StreamError::Wrong(..))), "{why:?}");
        };
        for size_bytes in [0, SIZE_MAX_BYTES + 512, u64::MAX - 511] {
            let from = 0;
            none(StreamHeader {
                size_bytes,
                from,
                ..header()
            });
        }
        // As what a stream is since it would mean nothing.
        let snapshot = Uuid::nil();
        none(StreamHeader {
            snapshot,
            ..header()
        });
        let mut newer = stream().0;
        newer[8] = 2;
        let (_, why) = told(&newer).expect_err("of another version");
        assert!(matches!(why, StreamError::Version(2)), "{why}");
    }
}
