//! What NFS clients may see, given what they asked for and what was answered.
//!
//! Content: each write leaves blocks that name it. Names: each client has a
//! directory of its own, so it knows how each operation on a name must end.
//! Locks, shares and delegations: a client that was given one has it until it begins to
//! give it back, as long as its last request is not older than the lease.

use reactor::Nanos;

use crate::checker::{Verdict, Violation};
use random::mix;

/// A count of beginnings and ends.
pub type Stamp = u64;
const NEVER: Stamp = u64::MAX;

/// Bytes of a block of content.
pub type ContentBlock = usize;

/// One WRITE.
#[derive(Clone, Debug)]
struct Write {
    client: usize,
    file: usize,
    blocks: std::ops::Range<ContentBlock>,
    begin: Stamp,
    /// It has taken effect by then, or never does.
    latest: Stamp,
    /// It has surely taken effect by then.
    sure: Stamp,
    is_durable: bool,
    /// The verifier that it was answered with, and when.
    answered: Option<(u64, Stamp)>,
    /// Some of its blocks may be there, and not others.
    is_torn: bool,
    /// With the file system that it was in.
    is_gone: bool,
}

/// What a client has of a file, in the way of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// A byte-range lock.
    Lock {
        /// First byte and last byte.
        first: u64,
        last: u64,
        is_exclusive: bool,
    },
    /// An OPEN with its share reservation.
    Share { access: u32, deny: u32 },
    /// A delegation, of writing or of reading.
    Delegation { writes: bool },
}

impl InTheWay {
    fn is_delegation(self) -> bool {
        matches!(self, InTheWay::Delegation { .. })
    }
}

/// A size of the file that may be delegated: each is larger than those before.
#[derive(Clone, Debug)]
struct FileSize {
    size: u64,
    client: usize,
    at: Stamp,
    /// The delegation by which its client alone has it.
    held_by: Option<usize>,
    /// When the server surely had it.
    flushed: Option<Stamp>,
}

/// Whether it is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Held,
    /// The server has started again, and the client may have it back.
    Awaits,
    Over,
}

#[derive(Clone, Debug)]
struct Hold {
    client: usize,
    file: usize,
    what: InTheWay,
    standing: Standing,
    /// When a client first asked for what a delegation is in the way of.
    wanted: Option<Nanos>,
}

/// What a model knows.
pub struct Model {
    stamp: Stamp,
    writes: Vec<Write>,
    /// Writes of each block of each file.
    blocks: Vec<Vec<Vec<usize>>>,
    holds: Vec<Hold>,
    sizes: Vec<FileSize>,
    /// When the server certainly had a request of each client last.
    heard: Vec<Nanos>,
    /// It was silent for longer than its lease.
    is_doubtful: Vec<bool>,
    lease: Nanos,
    grace: Nanos,
    grace_until: Nanos,
    survives: bool,
    splits: bool,
    /// Answers that were held against it.
    pub checked: u64,
}

fn conflicts(a: &InTheWay, b: &InTheWay) -> bool {
    match (*a, *b) {
        (
            InTheWay::Lock {
                first,
                last,
                is_exclusive,
            },
            InTheWay::Lock {
                first: first2,
                last: last2,
                is_exclusive: is_exclusive2,
            },
        ) => first <= last2 && first2 <= last && (is_exclusive || is_exclusive2),
        (
            InTheWay::Share { access, deny },
            InTheWay::Share {
                access: access2,
                deny: deny2,
            },
        ) => access & deny2 != 0 || access2 & deny != 0,
        (InTheWay::Share { access, .. }, InTheWay::Delegation { writes })
        | (InTheWay::Delegation { writes }, InTheWay::Share { access, .. }) => {
            writes || access & 2 != 0
        }
        (InTheWay::Delegation { writes }, InTheWay::Delegation { writes: other }) => {
            writes || other
        }
        _ => false,
    }
}

impl Model {
    /// Of clients without any answer yet.
    pub fn new(clients: usize, files: usize, blocks: usize, survives: bool) -> Model {
        Model {
            stamp: 1,
            writes: Vec::new(),
            blocks: vec![vec![Vec::new(); blocks]; files],
            holds: Vec::new(),
            sizes: Vec::new(),
            heard: vec![0; clients],
            is_doubtful: vec![false; clients],
            lease: 0,
            grace: 0,
            grace_until: 0,
            survives,
            splits: false,
            checked: 0,
        }
    }

    /// How long clients may be silent, and may reclaim.
    pub fn set_times(&mut self, lease: Nanos, grace: Nanos) {
        (self.lease, self.grace) = (lease, grace);
    }

    /// Until a write is answered, some of its blocks may be seen without the others, and it
    /// may fail.
    pub fn set_splits(&mut self, splits: bool) {
        self.splits = splits;
    }

    /// One more beginning or end.
    pub fn stamp(&mut self) -> Stamp {
        self.stamp += 1;
        self.stamp
    }

    /// A client's request that was sent at `at` was executed, which it knows now.
    pub fn note_executed(&mut self, client: usize, at: Nanos, now: Nanos) {
        if now >= self.heard[client] + self.lease {
            // It may have been given up in between.
            self.is_doubtful[client] = true;
            for hold in self.holds.iter_mut().filter(|hold| hold.client == client) {
                if hold.standing == Standing::Held {
                    hold.standing = Standing::Over;
                }
            }
        }
        self.heard[client] = self.heard[client].max(at);
    }

    /// A client introduces itself.
    pub fn introduced(&mut self, client: usize, now: Nanos) {
        self.heard[client] = now;
        self.is_doubtful[client] = false;
    }

    /// Whether what a client has may be gone.
    pub fn is_doubtful(&self, client: usize, now: Nanos) -> bool {
        self.is_doubtful[client] || !self.has_lease(client, now)
    }

    fn has_lease(&self, client: usize, now: Nanos) -> bool {
        now < self.heard[client] + self.lease
    }

    /// A write is sent that was not executed so far.
    pub fn sent(&mut self, value: u32) {
        let now = self.stamp();
        let write = &mut self.writes[value as usize - 1];
        (write.begin, write.latest, write.sure) = (now, NEVER, NEVER);
        write.is_torn = self.splits;
    }

    /// A write that will be sent: its value.
    pub fn write(
        &mut self,
        client: usize,
        file: usize,
        blocks: std::ops::Range<ContentBlock>,
    ) -> u32 {
        let begin = self.stamp();
        let number = self.writes.len();
        for block in blocks.clone() {
            self.blocks[file][block].push(number);
        }
        self.writes.push(Write {
            client,
            file,
            blocks,
            begin,
            latest: NEVER,
            sure: NEVER,
            is_durable: false,
            answered: None,
            is_torn: self.splits,
            is_gone: false,
        });
        number as u32 + 1
    }

    /// It was executed, which was answered with this verifier.
    pub fn written(&mut self, value: u32, is_stable: bool, verifier: u64) {
        let now = self.stamp();
        let write = &mut self.writes[value as usize - 1];
        write.latest = write.latest.min(now);
        write.sure = write.sure.min(now);
        write.is_durable |= is_stable;
        write.answered = Some((verifier, now));
        self.checked += 1;
    }

    /// It was refused: some of it may be there all the same, or was.
    pub fn failed(&mut self, value: u32) {
        let now = self.stamp();
        let write = &mut self.writes[value as usize - 1];
        write.latest = write.latest.min(now);
        write.is_torn = true;
        self.checked += 1;
    }

    /// It was executed as far as its first `count` blocks.
    pub fn shortened(&mut self, value: u32, count: usize) {
        let number = value as usize - 1;
        let write = &mut self.writes[number];
        let end = write.blocks.start + count;
        for block in end..write.blocks.end {
            self.blocks[write.file][block].retain(|&other| other != number);
        }
        write.blocks.end = end;
    }

    /// It was executed, and more is not known: where writes fail it may have been refused,
    /// or have come short.
    pub fn forgotten(&mut self, value: u32) {
        let now = self.stamp();
        let write = &mut self.writes[value as usize - 1];
        write.latest = write.latest.min(now);
        match self.splits {
            true => write.is_torn = true,
            false => write.sure = write.sure.min(now),
        }
    }

    /// A COMMIT that began then was answered with this verifier: what of the
    /// client's writes must be written again.
    pub fn committed(
        &mut self,
        client: usize,
        file: usize,
        begin: Stamp,
        verifier: u64,
    ) -> Vec<std::ops::Range<ContentBlock>> {
        self.checked += 1;
        let mut again = Vec::new();
        for write in &mut self.writes {
            let Some((of, at)) = write.answered else {
                continue;
            };
            if write.file != file || write.is_durable || write.is_gone || at >= begin {
                continue;
            }
            if of == verifier {
                // Also what a restart has made doubtful meanwhile: it is promised.
                write.is_durable = true;
                write.sure = write.sure.min(at);
            } else if write.client == client {
                write.answered = None;
                again.push(write.blocks.clone());
            }
        }
        again
    }

    /// A block was read between these two moments.
    pub fn read(
        &mut self,
        (file, block): (usize, ContentBlock),
        bytes: &[u8],
        (begin, end): (Stamp, Stamp),
    ) -> Verdict {
        self.checked += 1;
        let value = value_of(file, block, bytes);
        let wrong = |what: String| {
            let text = format!("file {file}, block {block}: a read sees {what}");
            Err(Violation(text))
        };
        let Some(value) = value else {
            return wrong("bytes that were never written there".into());
        };
        let latest = match value {
            0 => 0,
            value => match self.writes.get(value as usize - 1) {
                Some(write) if write.is_gone => {
                    return wrong(format!("write {value}, which is not there: {write:?}"));
                }
                Some(write) if write.begin < end => write.latest,
                _ => return wrong(format!("write {value} before it began")),
            },
        };
        for &other in &self.blocks[file][block] {
            let write = &self.writes[other];
            if write.sure < begin && write.begin > latest && other + 1 != value as usize {
                let was = (value as usize).checked_sub(1).map(|at| &self.writes[at]);
                return wrong(format!(
                    "write {value} of NFS ({was:?}) behind write {}: {write:?}",
                    other + 1
                ));
            }
        }
        if let Some(at) = (value as usize).checked_sub(1) {
            let write = &mut self.writes[at];
            // Of one that is seen in part, other blocks may come later.
            if !write.is_torn {
                write.latest = write.latest.min(end);
                write.sure = write.sure.min(end);
            }
        }
        Ok(())
    }

    /// The target's process has ended.
    pub fn crash(&mut self, now: Nanos) {
        let stamp = self.stamp();
        for write in &mut self.writes {
            if !self.survives {
                write.is_gone = true;
                continue;
            }
            write.latest = write.latest.min(stamp);
            if !write.is_durable {
                (write.sure, write.is_torn) = (NEVER, true);
            }
        }
        if !self.survives {
            self.blocks.iter_mut().flatten().for_each(Vec::clear);
        }
        self.sizes.clear();
        for at in 0..self.holds.len() {
            let may_reclaim = match self.holds[at].standing {
                Standing::Held => self.has_lease(self.holds[at].client, now),
                Standing::Awaits => now < self.grace_until,
                Standing::Over => false,
            };
            let hold = &mut self.holds[at];
            let lasts = self.survives && !hold.what.is_delegation();
            hold.standing = match may_reclaim && lasts {
                true => Standing::Awaits,
                false => Standing::Over,
            };
        }
    }

    /// It is there again.
    pub fn start(&mut self, now: Nanos) {
        self.grace_until = now + self.grace;
    }

    /// A client is about to ask for this.
    pub fn note_request(&mut self, client: usize, file: usize, what: &InTheWay, now: Nanos) {
        for hold in &mut self.holds {
            let is_in_way = hold.client != client
                && hold.file == file
                && hold.what.is_delegation()
                && conflicts(&hold.what, what);
            if is_in_way {
                hold.wanted.get_or_insert(now);
            }
        }
    }

    /// Whether the server must still know it.
    fn is_had(&self, hold: &Hold, now: Nanos) -> bool {
        let revoked = |by: Nanos| now >= by + self.lease / 2;
        match hold.standing {
            Standing::Held => self.has_lease(hold.client, now) && !hold.wanted.is_some_and(revoked),
            Standing::Awaits => now < self.grace_until,
            Standing::Over => false,
        }
    }

    fn check(&self, at: usize, now: Nanos) -> Verdict {
        let this = &self.holds[at];
        for (other, hold) in self.holds.iter().enumerate() {
            if other == at || hold.file != this.file || !conflicts(&hold.what, &this.what) {
                continue;
            }
            // A client is not in its own delegation's way.
            let is_own = hold.client == this.client;
            if is_own && (hold.what.is_delegation() || this.what.is_delegation()) {
                continue;
            }
            if self.is_had(hold, now) {
                let text = format!("{this:?} was granted against {hold:?}");
                return Err(Violation(text));
            }
        }
        Ok(())
    }

    /// A client was given this: its number.
    pub fn granted(
        &mut self,
        client: usize,
        file: usize,
        what: InTheWay,
        now: Nanos,
    ) -> Result<usize, Violation> {
        self.checked += 1;
        self.holds.push(Hold {
            client,
            file,
            what,
            standing: Standing::Held,
            wanted: None,
        });
        let at = self.holds.len() - 1;
        self.check(at, now)?;
        Ok(at)
    }

    /// A client begins to give back a lock behind this byte.
    pub fn note_unlock_begun(&mut self, hold: usize, to: u64) {
        if let InTheWay::Lock { last, .. } = &mut self.holds[hold].what {
            *last = to;
        }
    }

    /// A client begins to give it back.
    pub fn released(&mut self, hold: usize) {
        self.holds[hold].standing = Standing::Over;
    }

    /// It has it back.
    pub fn reclaimed(&mut self, hold: usize, now: Nanos) -> Verdict {
        self.checked += 1;
        self.holds[hold].standing = Standing::Held;
        self.check(hold, now)
    }

    /// The server says that it has it no more.
    pub fn lost(&mut self, hold: usize, now: Nanos, why: &str) -> Verdict {
        let it = &self.holds[hold];
        let is_had = match it.standing {
            Standing::Held => self.has_lease(it.client, now),
            Standing::Awaits => now < self.grace_until,
            Standing::Over => false,
        };
        if is_had && !it.what.is_delegation() {
            return Err(Violation(format!("{it:?} is lost: {why}")));
        }
        self.holds[hold].standing = Standing::Over;
        Ok(())
    }

    /// A client makes the delegated file this long, by the delegation alone.
    pub fn grown(&mut self, client: usize, hold: usize, size: u64) {
        let at = self.stamp();
        self.sizes.push(FileSize {
            size,
            client,
            at,
            held_by: Some(hold),
            flushed: None,
        });
    }

    /// The server has what a client has made of the file by a delegation.
    pub fn flushed(&mut self, hold: usize) {
        let now = self.stamp();
        for size in (self.sizes.iter_mut()).filter(|size| size.held_by == Some(hold)) {
            (size.held_by, size.flushed) = (None, Some(now));
        }
    }

    /// A client has seen this size of the file, and asked at `begin`.
    pub fn sized(&mut self, client: usize, size: u64, begin: Stamp, now: Nanos) -> Verdict {
        self.checked += 1;
        let is_sure = |it: &&FileSize| match (it.flushed, it.held_by) {
            (Some(at), _) => at < begin,
            // What it has itself by a delegation it does not ask for.
            (None, Some(hold)) => {
                it.at < begin && it.client != client && self.is_had(&self.holds[hold], now)
            }
            (None, None) => false,
        };
        match self.sizes.iter().filter(is_sure).find(|it| it.size > size) {
            Some(newer) => Err(Violation(format!(
                "the size {size} is seen behind {newer:?}"
            ))),
            None => Ok(()),
        }
    }

    /// A client has forgotten all that it had.
    pub fn forgets(&mut self, client: usize) {
        let its = self.holds.iter_mut().filter(|hold| hold.client == client);
        its.for_each(|hold| hold.standing = Standing::Over);
    }
}

/// What a write leaves in a block.
pub fn fill(value: u32, file: usize, block: ContentBlock, to: &mut [u8]) {
    let seed = u64::from(value) << 32 | (file as u64) << 16 | block as u64;
    for (at, word) in to.chunks_mut(8).enumerate() {
        let bits = match at {
            0 => u64::from(value) << 32 | u64::from(!value),
            at => mix(seed ^ (at as u64) << 50),
        };
        word.copy_from_slice(&bits.to_be_bytes()[..word.len()]);
    }
}

/// The write that a block is of, 0 for zeros; `None` if it is of none.
fn value_of(file: usize, block: ContentBlock, bytes: &[u8]) -> Option<u32> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let value = u32::from_be_bytes(bytes.first_chunk().copied()?);
    let mut expected = vec![0; bytes.len()];
    fill(value, file, block, &mut expected);
    (value > 0 && expected == bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_whose_answer_is_forgotten_is_there_unless_it_may_have_failed() {
        for (may_fail, verdict) in [(false, false), (true, true)] {
            let mut model = Model::new(1, 1, 2, true);
            model.set_splits(may_fail);
            let value = model.write(0, 0, 0..2);
            model.sent(value);
            model.forgotten(value);
            let begin = model.stamp();
            let end = model.stamp();
            let zeros = model.read((0, 1), &[0; 16], (begin, end));
            assert_eq!(zeros.is_ok(), verdict, "{zeros:?}");
        }
    }
}
