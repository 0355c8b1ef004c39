//! What a file holds: a few bytes beside its attributes, or chunks of a thin
//! volume, where every read and write in a chunk is one run.
//!
//! Nothing here takes a lock but that on addresses: the caller has the object
//! locked, to change it or to look at it. So everything is one step to others.
//! Behind the end of a file there are only zeros.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use ::mem::{BUF_BYTES_MAX, BufRange, Loan};

use crate::frames::{FRAME_BYTES, Frames, FramesRefused, spend_look};
use machine::work;

use super::addresses::{Addresses, ORDER_MAX, UNIT_SHIFT, Unit};
use super::node::{Body, Node};
use super::space::Space;
use crate::fs::Error;
use crate::fs::quota::{Charged, Quotas};

const FRAME: u64 = FRAME_BYTES as u64;
/// Files up to this size lie beside their attributes: half a frame, which they
/// would waste.
pub(super) const INLINE_BYTES_MAX: u64 = FRAME / 2;
/// The least room that such a file takes; more comes in powers of two.
const INLINE_BYTES_MIN: usize = 64;
/// Bytes of a file at most.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 50;
/// Addresses count for their table's words: 8 bytes for a frame.
const ADDRESS_SHIFT: u32 = FRAME.trailing_zeros() - 3;

impl From<FramesRefused> for Error {
    fn from(refused: FramesRefused) -> Error {
        match refused {
            FramesRefused::Busy => Error::Delay,
            FramesRefused::OutOfRange | FramesRefused::Miscompare { .. } => {
                unreachable!("files lie inside the volume and compare nothing")
            }
        }
    }
}

/// A run of addresses of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Which of the file's, see [`chunk_at`].
    index: u32,
    unit: Unit,
    /// How many of its frames are there.
    frames: u32,
}

pub(super) enum Content {
    /// Room for the content; zeros behind it.
    Inline(Box<[u8]>),
    /// Ordered; where there is none the file reads as zeros.
    Chunks(Vec<Chunk>),
}

impl Content {
    pub(super) fn empty() -> Content {
        Content::Inline(Box::default())
    }

    fn chunks(&self) -> &[Chunk] {
        match self {
            Content::Inline(_) => &[],
            Content::Chunks(chunks) => chunks,
        }
    }
}

impl Chunk {
    #[inline]
    fn base(self) -> u64 {
        u64::from(self.unit) << UNIT_SHIFT
    }

    /// Its first byte in the file.
    fn start(self) -> u64 {
        chunk_start(self.index)
    }

    /// Bytes of the file that may lie in it.
    pub(super) fn len(self) -> u64 {
        1 << (UNIT_SHIFT + order_of(self.index))
    }

    /// Whether there is no hole in it.
    fn is_full(self) -> bool {
        u64::from(self.frames) == self.len() / FRAME
    }

    /// The part of a range of the file that lies in it, which is not empty: from
    /// where in it, and to where.
    fn part(self, offset: u64, end: u64) -> (u64, u64) {
        let from = offset.saturating_sub(self.start());
        (from, self.len().min(end - self.start()))
    }

    /// What its addresses count for.
    fn address_bytes(self) -> u64 {
        self.len() >> ADDRESS_SHIFT
    }
}

/// Which chunk of a file a byte lies in: the first has one unit, each of the
/// next as many as all before it, up to the largest.
#[inline]
fn chunk_at(offset: u64) -> u32 {
    let unit = offset >> UNIT_SHIFT;
    match unit {
        0 => 0,
        _ if unit >> ORDER_MAX == 0 => unit.ilog2() + 1,
        _ => ORDER_MAX + (unit >> ORDER_MAX) as u32,
    }
}

#[inline]
fn chunk_start(index: u32) -> u64 {
    let units = match index {
        0 => 0,
        _ if index <= ORDER_MAX => 1 << (index - 1),
        _ => u64::from(index - ORDER_MAX) << ORDER_MAX,
    };
    units << UNIT_SHIFT
}

#[inline]
fn order_of(index: u32) -> u32 {
    index.saturating_sub(1).min(ORDER_MAX)
}

/// A range cut where chunks end: which chunk, from where in it, how many
/// bytes.
#[inline]
fn spans(offset: u64, len: u64) -> impl Iterator<Item = (u32, u64, u64)> {
    let (mut at, end) = (offset, offset + len);
    std::iter::from_fn(move || {
        let index = chunk_at(at);
        let start = chunk_start(index);
        let to = end.min(start + (1 << (UNIT_SHIFT + order_of(index))));
        let span = (index, at - start, to - at);
        (at < end).then(|| {
            at = to;
            span
        })
    })
}

#[inline]
fn find(chunks: &[Chunk], index: u32) -> Option<Chunk> {
    // Without holes in between they stand where they belong.
    match chunks.get(index as usize) {
        Some(&chunk) if chunk.index == index => Some(chunk),
        _ => {
            let found = chunks.binary_search_by_key(&index, |chunk| chunk.index);
            found.ok().map(|at| chunks[at])
        }
    }
}

/// Frames that a range touches.
#[inline]
fn frames_of(offset: u64, len: u64) -> u64 {
    match len {
        0 => 0,
        _ => (offset + len).div_ceil(FRAME) - offset / FRAME,
    }
}

fn inline_room(len: u64) -> usize {
    match len as usize {
        0 => 0,
        len => len.next_power_of_two().max(INLINE_BYTES_MIN),
    }
}

/// What is written to a file.
pub(super) enum WriteData<'a> {
    Bytes(&'a [u8]),
    Range(BufRange),
    /// Frames that were borrowed for the offset in question.
    Borrowed(&'a mut Loan),
    /// What another file, or another part of it, lends.
    Pinned(&'a Loan),
}

impl WriteData<'_> {
    pub(super) fn len(&self) -> u64 {
        match self {
            WriteData::Bytes(bytes) => bytes.len() as u64,
            WriteData::Range(range) => range.len().into(),
            WriteData::Borrowed(loan) => loan.len().into(),
            WriteData::Pinned(loan) => loan.len().into(),
        }
    }

    /// Copies `dst.len()` bytes from `at` on.
    fn copy_to(&self, at: u64, dst: &mut [u8]) {
        let at = at as u32;
        match self {
            WriteData::Bytes(bytes) => {
                dst.copy_from_slice(&bytes[at as usize..at as usize + dst.len()]);
            }
            WriteData::Range(range) => ::mem::copy_out(range.slice(at, dst.len() as u32), dst),
            WriteData::Borrowed(loan) => copy_parts(loan, at, dst),
            WriteData::Pinned(loan) => copy_parts(loan, at, dst),
        }
    }
}

fn copy_parts(loan: &Loan, at: u32, dst: &mut [u8]) {
    let mut to = 0;
    for part in loan.parts(at, dst.len() as u32) {
        let end = to + part.len() as usize;
        ::mem::copy_out(part, &mut dst[to..end]);
        to = end;
    }
}

/// Where contents lie, and how much room there is.
pub(super) struct Store {
    pub(super) frames: Frames,
    pub(super) space: Space,
    pub(super) quotas: Quotas,
    addresses: Mutex<Addresses>,
}

impl Store {
    pub(super) fn new(frames: Frames, bytes: u64) -> Store {
        let addresses = Addresses::new(frames.size_bytes());
        Store {
            frames,
            space: Space::new(bytes),
            quotas: Quotas::default(),
            addresses: Mutex::new(addresses),
        }
    }

    /// Takes room that counts for quotas; all or nothing.
    #[inline]
    pub(super) fn take(&self, of: &Charged, n: u64) -> Result<(), Error> {
        self.quotas.take(of, n, 0)?;
        let taken = self.space.take(n);
        if taken.is_err() {
            self.quotas.give(of, n, 0);
        }
        taken
    }

    #[inline]
    pub(super) fn give(&self, of: &Charged, n: u64) {
        self.quotas.give(of, n, 0);
        self.space.give(n);
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        let addresses = self.addresses.lock();
        addresses.expect("nothing panics under this lock")
    }

    /// The address of a byte of a file; that of a hole if it has none.
    #[inline]
    fn address(&self, chunks: &[Chunk], index: u32, within: u64) -> u64 {
        find(chunks, index).map_or(0, Chunk::base) + within
    }

    /// The chunks of which a part lies in a range: from which to which.
    fn touched(chunks: &[Chunk], offset: u64, end: u64) -> Range<usize> {
        let first = chunks.partition_point(|chunk| chunk.start() + chunk.len() <= offset);
        first..chunks.partition_point(|chunk| chunk.start() < end)
    }

    /// Calls `each` with the parts of a range that lie in chunks, in order.
    fn each_chunk(
        chunks: &[Chunk],
        offset: u64,
        end: u64,
        mut each: impl FnMut(Chunk, u64, u64) -> bool,
    ) {
        for &chunk in &chunks[Store::touched(chunks, offset, end)] {
            let (from, to) = chunk.part(offset, end);
            if !each(chunk, from, to) {
                return;
            }
        }
    }

    /// Calls `each` with parts of a chunk's range that are alike: from where to
    /// where in it, and whether there is data. Until it says no.
    fn each_extent(
        &self,
        chunk: Chunk,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, u64, bool) -> bool,
    ) -> bool {
        let mut at = from;
        while at < to {
            let (is_data, end) = self.frames.extent(chunk.base() + at, chunk.base() + to);
            let end = end - chunk.base();
            if !each(at, end, is_data) {
                return false;
            }
            at = end;
        }
        true
    }

    /// Looks which frames of a chunk's range are there; how many.
    fn look(&self, chunk: Chunk, from: u64, to: u64) -> u64 {
        let mut count = 0;
        self.each_extent(chunk, from, to, |from, to, is_data| {
            count += if is_data {
                frames_of(from, to - from)
            } else {
                0
            };
            true
        });
        count
    }

    /// The same without a look where that is known.
    #[inline]
    fn present_in(&self, chunk: Chunk, from: u64, to: u64) -> u64 {
        match chunk.frames {
            0 => 0,
            _ if chunk.is_full() => frames_of(from, to - from),
            frames if (from, to) == (0, chunk.len()) => frames.into(),
            _ => self.look(chunk, from, to),
        }
    }

    /// Frames that a range touches and that are there.
    fn present(&self, chunks: &[Chunk], offset: u64, end: u64) -> u64 {
        let touched = &chunks[Store::touched(chunks, offset, end)];
        spend_look(touched.len() as u64);
        let present = touched.iter().map(|&chunk| {
            let (from, to) = chunk.part(offset, end);
            self.present_in(chunk, from, to)
        });
        present.sum()
    }

    /// Frames that a write there would take.
    pub(super) fn missing(&self, node: &Node, offset: u64, end: u64) -> u64 {
        let Body::File(content) = &node.body else {
            return 0;
        };
        frames_of(offset, end - offset) - self.present(content.chunks(), offset, end)
    }

    /// Adds the chunks that a range needs.
    fn add_chunks(&self, chunks: &mut Vec<Chunk>, offset: u64, len: u64) -> Result<(), Error> {
        for (index, ..) in spans(offset, len) {
            if find(chunks, index).is_some() {
                continue;
            }
            let added = self.add_chunk(chunks, index);
            if added.is_err() {
                self.drop_empty(chunks, offset, offset + len);
                return added;
            }
        }
        Ok(())
    }

    fn add_chunk(&self, chunks: &mut Vec<Chunk>, index: u32) -> Result<(), Error> {
        let mut chunk = Chunk {
            index,
            unit: 0,
            frames: 0,
        };
        self.space.take(chunk.address_bytes())?;
        let Some(unit) = self.addresses().take(order_of(index)) else {
            self.space.give(chunk.address_bytes());
            return Err(Error::NoSpc);
        };
        chunk.unit = unit;
        let at = chunks.partition_point(|chunk| chunk.index < index);
        chunks.insert(at, chunk);
        Ok(())
    }

    /// Takes the addresses of a chunk back, which is all holes.
    fn free_chunk(&self, chunk: Chunk) {
        self.addresses().give(chunk.unit, order_of(chunk.index));
        self.space.give(chunk.address_bytes());
    }

    /// Gives chunks of a range back that hold nothing.
    fn drop_empty(&self, chunks: &mut Vec<Chunk>, offset: u64, end: u64) {
        let touched = Store::touched(chunks, offset, end);
        for chunk in chunks.extract_if(touched, |chunk| chunk.frames == 0) {
            self.free_chunk(chunk);
        }
    }

    /// Runs `write`, which gives every frame of a range that is missing its
    /// content, once there is room for them.
    #[inline]
    fn with_room(
        &self,
        node: &mut Node,
        offset: u64,
        len: u64,
        write: impl FnOnce(&[Chunk]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Body::File(Content::Chunks(chunks)) = &mut node.body else {
            unreachable!("the caller has seen to chunks");
        };
        let end = offset + len;
        let present = self.present(chunks, offset, end);
        let missing = frames_of(offset, len) - present;
        if missing == 0 {
            return write(chunks);
        }
        self.take(&node.charged, missing * FRAME)?;
        if let Err(error) = self.add_chunks(chunks, offset, len) {
            self.give(&node.charged, missing * FRAME);
            return Err(error);
        }
        let touched = Store::touched(chunks, offset, end);
        for chunk in &mut chunks[touched.clone()] {
            let (from, to) = chunk.part(offset, end);
            chunk.frames += (frames_of(from, to - from) - self.present_in(*chunk, from, to)) as u32;
        }
        let result = write(chunks);
        let mut added = missing;
        if result.is_err() {
            for chunk in &mut chunks[touched] {
                chunk.frames = self.look(*chunk, 0, chunk.len()) as u32;
            }
            added = self.present(chunks, offset, end) - present;
        }
        node.attr.used_bytes += added * FRAME;
        self.give(&node.charged, (missing - added) * FRAME);
        if result.is_err() {
            self.drop_empty(chunks, offset, end);
        }
        result
    }

    /// Writes to a file, which grows to hold it. All, or nothing but for
    /// [`Error::Delay`] where it lies in several chunks.
    #[inline]
    pub(super) fn write(
        &self,
        node: &mut Node,
        offset: u64,
        data: WriteData<'_>,
    ) -> Result<(), Error> {
        let len = data.len();
        work::spend_bytes(len);
        let end = offset.checked_add(len).ok_or(Error::FBig)?;
        if end > FILE_BYTES_MAX {
            return Err(Error::FBig);
        }
        if let Body::File(Content::Inline(_)) = &node.body {
            if end <= INLINE_BYTES_MAX {
                self.grow_inline(node, end)?;
                let bytes = inline(node);
                data.copy_to(0, &mut bytes[offset as usize..end as usize]);
                node.attr.size = node.attr.size.max(end);
                return Ok(());
            }
            self.spill(node)?;
        }
        let written = self.with_room(node, offset, len, |chunks| {
            self.write_frames(chunks, offset, data)
        });
        if written.is_ok() {
            node.attr.size = node.attr.size.max(end);
        }
        written
    }

    #[inline]
    fn write_frames(
        &self,
        chunks: &[Chunk],
        offset: u64,
        data: WriteData<'_>,
    ) -> Result<(), Error> {
        let len = data.len();
        let mut spans = spans(offset, len);
        let (index, within, first) = spans.next().unwrap_or((0, 0, 0));
        let address = self.address(chunks, index, within);
        if first == len && len <= BUF_BYTES_MAX.into() {
            match data {
                WriteData::Bytes(bytes) => return Ok(self.frames.write(address, bytes)?),
                WriteData::Borrowed(loan) => return Ok(self.frames.commit_at(loan, address)?),
                WriteData::Range(_) | WriteData::Pinned(_) => {}
            }
        }
        let mut done = 0;
        for (index, within, span) in self::spans(offset, len) {
            self.copy_in(self.address(chunks, index, within), &data, done, span)?;
            done += span;
        }
        Ok(())
    }

    /// Copies `len` bytes of `data` from `from` on to an address.
    fn copy_in(
        &self,
        address: u64,
        data: &WriteData<'_>,
        from: u64,
        len: u64,
    ) -> Result<(), Error> {
        let mut at = address;
        let mut put = |range: BufRange| -> Result<(), Error> {
            let mut done = 0;
            while done < range.len() {
                let step = (range.len() - done).min(BUF_BYTES_MAX);
                self.frames.write_from(at, range.slice(done, step))?;
                (at, done) = (at + u64::from(step), done + step);
            }
            Ok(())
        };
        let (from, len) = (from as u32, len as u32);
        match data {
            WriteData::Bytes(bytes) => {
                let part = &bytes[from as usize..(from + len) as usize];
                for bytes in part.chunks(BUF_BYTES_MAX as usize) {
                    self.frames.write(at, bytes)?;
                    at += bytes.len() as u64;
                }
                Ok(())
            }
            WriteData::Range(range) => put(range.slice(from, len)),
            WriteData::Borrowed(loan) => loan.parts(from, len).try_for_each(put),
            WriteData::Pinned(loan) => loan.parts(from, len).try_for_each(put),
        }
    }

    /// Room beside the attributes for `len` bytes; there never is less.
    fn grow_inline(&self, node: &mut Node, len: u64) -> Result<(), Error> {
        let old = inline(node).len();
        let room = inline_room(len);
        if room <= old {
            return Ok(());
        }
        self.take(&node.charged, (room - old) as u64)?;
        let mut bytes = vec![0; room].into_boxed_slice();
        bytes[..old].copy_from_slice(inline(node));
        node.attr.used_bytes = room as u64;
        node.body = Body::File(Content::Inline(bytes));
        Ok(())
    }

    /// Moves what lies beside the attributes into a chunk.
    fn spill(&self, node: &mut Node) -> Result<(), Error> {
        let size = node.attr.size;
        let old = std::mem::replace(&mut node.body, Body::File(Content::Chunks(Vec::new())));
        let Body::File(Content::Inline(bytes)) = old else {
            unreachable!("the caller has seen that it lies there");
        };
        let used = std::mem::take(&mut node.attr.used_bytes);
        // It does not count twice meanwhile.
        self.quotas.give(&node.charged, used, 0);
        let moved = match size {
            0 => Ok(()),
            _ => self.with_room(node, 0, size, |chunks| {
                let address = self.address(chunks, 0, 0);
                Ok(self.frames.write(address, &bytes[..size as usize])?)
            }),
        };
        match moved {
            Ok(()) => self.space.give(used),
            Err(_) => {
                self.quotas.force(&node.charged, used, 0);
                node.attr.used_bytes = used;
                node.body = Body::File(Content::Inline(bytes));
            }
        }
        moved
    }

    /// Copies `buf.len()` bytes from `offset`, which the file has.
    pub(super) fn read(&self, content: &Content, offset: u64, buf: BufRange) -> Result<(), Error> {
        work::spend_bytes(buf.len().into());
        let chunks = match content {
            Content::Inline(bytes) => {
                let offset = offset as usize;
                ::mem::copy_in(buf, &bytes[offset..offset + buf.len() as usize]);
                return Ok(());
            }
            Content::Chunks(chunks) => chunks,
        };
        let mut done = 0;
        for (index, within, span) in spans(offset, buf.len().into()) {
            let address = self.address(chunks, index, within);
            let end = done + span as u32;
            while done < end {
                let step = (end - done).min(BUF_BYTES_MAX);
                let at = address + (span - u64::from(end - done));
                self.frames.read(at, buf.slice(done, step))?;
                done += step;
            }
        }
        Ok(())
    }

    /// Lends `len` bytes from `offset`, which the file has, if they lie in one
    /// run.
    #[inline]
    pub(super) fn lend(&self, content: &Content, offset: u64, len: u32) -> Option<Loan> {
        let Content::Chunks(chunks) = content else {
            return None;
        };
        let (index, within, span) = spans(offset, len.into()).next().unwrap_or((0, 0, 0));
        if span < u64::from(len) {
            return None;
        }
        self.frames.pin(self.address(chunks, index, within), len)
    }

    /// Lends some of `len` bytes from `offset`, which the file has in chunks.
    pub(super) fn lend_some(
        &self,
        node: &Node,
        offset: u64,
        len: u64,
    ) -> Result<(u64, Loan), Error> {
        let Body::File(content) = &node.body else {
            return Err(node.no_file());
        };
        let (index, within, span) = spans(offset, len).next().unwrap_or((0, 0, 0));
        let len = span.min(BUF_BYTES_MAX.into());
        let address = self.address(content.chunks(), index, within);
        let loan = self.frames.pin(address, len as u32);
        loan.map(|loan| (len, loan)).ok_or(Error::Delay)
    }

    /// Changes the size; chunks that are left over are the caller's. Nothing
    /// happens on an error.
    pub(super) fn resize(&self, node: &mut Node, size: u64) -> Result<Vec<Chunk>, Error> {
        if size > FILE_BYTES_MAX {
            return Err(Error::FBig);
        }
        let old = node.attr.size;
        match &mut node.body {
            Body::File(Content::Inline(_)) if size > INLINE_BYTES_MAX => self.spill(node)?,
            Body::File(Content::Inline(_)) if size > old => self.grow_inline(node, size)?,
            Body::File(Content::Inline(bytes)) => {
                bytes[size as usize..old as usize].fill(0);
                if size == 0 {
                    self.give(&node.charged, bytes.len() as u64);
                    *bytes = Box::default();
                    node.attr.used_bytes = 0;
                }
            }
            Body::File(Content::Chunks(_)) if size < old => {
                let left = self.cut(node, size)?;
                node.attr.size = size;
                return Ok(left);
            }
            _ => {}
        }
        node.attr.size = size;
        Ok(Vec::new())
    }

    fn cut(&self, node: &mut Node, size: u64) -> Result<Vec<Chunk>, Error> {
        if size == 0 {
            return Ok(self.detach(node));
        }
        let end = node.attr.size;
        let Body::File(Content::Chunks(chunks)) = &mut node.body else {
            unreachable!("the caller has seen that it lies there");
        };
        // The chunk that the end then lies in is cleared, and those behind it
        // are taken away whole.
        let kept = chunks.partition_point(|chunk| chunk.start() < size);
        if let Some(chunk) = chunks[..kept].last_mut() {
            let to = end.min(chunk.start() + chunk.len()).next_multiple_of(FRAME);
            if size < to {
                let (from, to) = (size - chunk.start(), to - chunk.start());
                let (freed, made) = self.make_hole(chunk, from, to);
                node.attr.used_bytes -= freed;
                self.quotas.give(&node.charged, freed, 0);
                made?;
            }
        }
        let left = chunks.split_off(kept);
        let cut = self.present(&left, size, end) * FRAME;
        node.attr.used_bytes -= cut;
        self.quotas.give(&node.charged, cut, 0);
        self.drop_empty(chunks, size, end);
        Ok(left)
    }

    /// Makes a hole in a chunk, the room of which, as far as that goes, is
    /// given back: so many bytes, which no file is to be charged for.
    fn make_hole(&self, chunk: &mut Chunk, from: u64, to: u64) -> (u64, Result<(), Error>) {
        let before = self.present_in(*chunk, from, to);
        let made = self.frames.discard(chunk.base() + from, to - from);
        let freed_frames = before - self.look(*chunk, from, to);
        chunk.frames -= freed_frames as u32;
        let freed = freed_frames * FRAME;
        self.space.give(freed);
        (freed, made.map_err(Error::from))
    }

    /// Takes all content away; the chunks are the caller's.
    pub(super) fn detach(&self, node: &mut Node) -> Vec<Chunk> {
        let Body::File(content) = &mut node.body else {
            return Vec::new();
        };
        let used = std::mem::take(&mut node.attr.used_bytes);
        self.quotas.give(&node.charged, used, 0);
        match std::mem::replace(content, Content::empty()) {
            Content::Inline(bytes) => {
                self.space.give(bytes.len() as u64);
                Vec::new()
            }
            Content::Chunks(chunks) => chunks,
        }
    }

    /// Makes holes in a range of a file, which lies before its end, up to
    /// `step` bytes of them; where it goes on.
    pub(super) fn clear(
        &self,
        node: &mut Node,
        offset: u64,
        end: u64,
        step: u64,
    ) -> Result<u64, Error> {
        let end = end.min(node.attr.size);
        if offset >= end {
            return Ok(u64::MAX);
        }
        let chunks = match &mut node.body {
            Body::File(Content::Chunks(chunks)) => chunks,
            _ => {
                inline(node)[offset as usize..end as usize].fill(0);
                return Ok(u64::MAX);
            }
        };
        let touched = Store::touched(chunks, offset, end);
        let Some(chunk) = chunks[touched].first_mut() else {
            return Ok(u64::MAX);
        };
        let (from, to) = chunk.part(offset, end);
        // What lies behind the end of the file in its last frame is zeros, so
        // that the whole frame can go.
        let is_end = chunk.start() + to == node.attr.size;
        let to_frame = if is_end {
            to.next_multiple_of(FRAME)
        } else {
            to
        };
        let to = to_frame.min((from + 1).next_multiple_of(step));
        let (freed, made) = self.make_hole(chunk, from, to);
        node.attr.used_bytes -= freed;
        self.quotas.give(&node.charged, freed, 0);
        made?;
        let (start, at) = (chunk.start(), chunk.start() + to);
        self.drop_empty(chunks, start, at);
        Ok(at)
    }

    /// Gives holes of a range frames that hold zeros. The file reads as before.
    pub(super) fn fill(&self, node: &mut Node, offset: u64, len: u64) -> Result<(), Error> {
        if let Body::File(Content::Inline(_)) = &node.body {
            if offset + len <= INLINE_BYTES_MAX {
                return self.grow_inline(node, offset + len);
            }
            self.spill(node)?;
        }
        self.with_room(node, offset, len, |chunks| {
            let mut result = Ok(());
            Store::each_chunk(chunks, offset, offset + len, |chunk, from, to| {
                self.each_extent(chunk, from, to, |from, to, is_data| {
                    if !is_data && result.is_ok() {
                        result = self.zero(chunk.base() + from, to - from);
                    }
                    result.is_ok()
                })
            });
            result
        })
    }

    fn zero(&self, address: u64, len: u64) -> Result<(), Error> {
        work::spend_bytes(len);
        let mut done = 0;
        while done < len {
            let step = (len - done).min(BUF_BYTES_MAX.into());
            self.frames.zero(address + done, step as u32)?;
            done += step;
        }
        Ok(())
    }

    /// Where data, or a hole, begins at or behind `offset`, which lies before
    /// the end; that end where there is none.
    pub(super) fn seek(&self, node: &Node, offset: u64, is_data: bool) -> u64 {
        self.seek_until(node, offset, node.attr.size, is_data)
    }

    /// The same, as far as `size`, which is no more than the file's.
    pub(super) fn seek_until(&self, node: &Node, offset: u64, size: u64, is_data: bool) -> u64 {
        let Body::File(Content::Chunks(chunks)) = &node.body else {
            return if is_data { offset } else { size };
        };
        // Everything before this is of the other kind.
        let mut at = offset;
        let (mut found, mut looked) = (None, 0);
        Store::each_chunk(chunks, offset, size, |chunk, from, to| {
            looked += 1;
            if !is_data && chunk.start() + from > at {
                found = Some(at);
                return false;
            }
            let is_known = !is_data && chunk.is_full();
            let goes_on = is_known
                || self.each_extent(chunk, from, to, |from, _, there| {
                    if there == is_data {
                        found = Some(chunk.start() + from);
                    }
                    there != is_data
                });
            at = chunk.start() + to;
            goes_on
        });
        spend_look(looked);
        match found {
            Some(found) => found,
            None if is_data => size,
            None => at,
        }
    }

    /// Gives up to `step` bytes of chunks back that no file has any more;
    /// whether that were all. Those that are left stay in the list.
    pub(super) fn free(&self, chunks: &mut Vec<Chunk>, at: &mut u64, step: u64) -> bool {
        let mut left = step;
        while left > 0 {
            let Some(chunk) = chunks.last_mut() else {
                return true;
            };
            let to = chunk.len().min(*at + left);
            if self.make_hole(chunk, *at, to).1.is_err() {
                // A writer that was late holds a frame for a moment.
                return false;
            }
            left -= to - *at;
            *at = to;
            if *at == chunk.len() {
                self.free_chunk(*chunk);
                chunks.pop();
                *at = 0;
            }
        }
        chunks.is_empty()
    }
}

fn inline(node: &mut Node) -> &mut [u8] {
    match &mut node.body {
        Body::File(Content::Inline(bytes)) => bytes,
        _ => unreachable!("the caller has seen that it lies there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::addresses::CHUNK_BYTES_MAX;

    #[test]
    fn chunks_follow_each_other_without_gaps() {
        let mut end = 0;
        for index in 0..40 {
            let len = 1 << (UNIT_SHIFT + order_of(index));
            assert_eq!(chunk_start(index), end, "{index}");
            end += len;
            assert_eq!(chunk_at(end - 1), index);
            assert_eq!(chunk_at(end), index + 1);
            assert!(len <= CHUNK_BYTES_MAX);
        }
        assert_eq!(1 << (UNIT_SHIFT + order_of(6)), CHUNK_BYTES_MAX);
        assert!(u32::try_from(FILE_BYTES_MAX / CHUNK_BYTES_MAX).is_ok());
        let cut: Vec<_> = spans((1 << 20) - 5, (1 << 20) + 10).collect();
        assert_eq!(cut, [(0, (1 << 20) - 5, 5), (1, 0, 1 << 20), (2, 0, 5)]);
        assert_eq!(spans(5, 0).count(), 0);
    }
}
