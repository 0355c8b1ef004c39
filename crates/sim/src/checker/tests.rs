//! Histories that must pass, and ones that must not.

use super::*;

const WRITE: OpKind = OpKind::Write { durable: false };
const FUA: OpKind = OpKind::Write { durable: true };
const CAW: OpKind = OpKind::CompareAndWrite { durable: false };

struct Story(Checker);

impl Story {
    fn new() -> Story {
        let mut checker = Checker::new();
        checker.add_volume(Promise {
            blocks: 8,
            block_sectors: 2,
            atomic_blocks: 4,
        });
        Story(checker)
    }

    fn begin(&mut self, kind: OpKind, first: u64, blocks: u64) -> Value {
        self.0.begin(CheckedOp::new(kind, 0, 0, first, blocks))
    }

    fn done(&mut self, value: Value) -> Verdict {
        self.0.succeeded(value, &[])
    }

    fn write(&mut self, kind: OpKind, first: u64, blocks: u64) -> Value {
        let value = self.begin(kind, first, blocks);
        self.done(value).unwrap();
        value
    }

    fn read(&mut self, first: u64, values: &[Value]) -> Verdict {
        let read = self.begin(OpKind::Read, first, values.len() as u64);
        self.0.succeeded(read, &whole(values))
    }

    fn swap(&mut self, first: u64, expected: &[Value]) -> Value {
        let mut op = CheckedOp::new(CAW, 0, 0, first, expected.len() as u64);
        op.expected = expected.to_vec();
        self.0.begin(op)
    }

    fn cut(&mut self) {
        self.0.killed().unwrap();
        self.0.power_cut(0).unwrap();
    }
}

#[test]
fn the_last_write_is_read_and_no_older_one() {
    let mut s = Story::new();
    assert!(s.read(0, &[ZEROS]).is_ok());
    let a = s.write(WRITE, 0, 1);
    assert!(s.read(0, &[a]).is_ok());
    let b = s.write(WRITE, 0, 1);
    assert!(s.read(0, &[b]).is_ok());
    assert!(s.read(0, &[a]).is_err());
}

#[test]
fn zeros_after_a_write_are_found() {
    let mut s = Story::new();
    s.write(WRITE, 0, 1);
    assert!(s.read(0, &[ZEROS]).is_err());
    let mut s = Story::new();
    s.write(WRITE, 0, 1);
    s.write(OpKind::Zero { durable: false }, 0, 1);
    assert!(s.read(0, &[ZEROS]).is_ok());
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    s.write(OpKind::Trim, 0, 1);
    assert!(s.read(0, &[a]).is_ok(), "a trim may do nothing");
    assert!(s.read(0, &[ZEROS]).is_err(), "but not later");
}

#[test]
fn writes_at_the_same_time_have_one_order() {
    let mut s = Story::new();
    let (a, b) = (s.begin(WRITE, 0, 1), s.begin(WRITE, 0, 1));
    s.done(a).unwrap();
    s.done(b).unwrap();
    assert!(s.read(0, &[a]).is_ok());
    assert!(s.read(0, &[b]).is_err());
}

#[test]
fn a_read_beside_a_write_sees_either_but_never_goes_back() {
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    assert!(s.read(0, &[ZEROS]).is_ok());
    assert!(s.read(0, &[a]).is_ok());
    assert!(s.read(0, &[ZEROS]).is_err());
}

#[test]
fn an_unknown_write_may_come_late_until_it_has_ended() {
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    let b = s.write(WRITE, 0, 1);
    assert!(s.read(0, &[b]).is_ok());
    assert!(s.read(0, &[a]).is_ok(), "still open");
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    s.0.ended(a).unwrap();
    s.write(WRITE, 0, 1);
    assert!(s.read(0, &[a]).is_err());
}

#[test]
fn a_refused_write_is_never_seen() {
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    s.0.refused(a).unwrap();
    assert!(s.read(0, &[a]).is_err());
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    s.read(0, &[a]).unwrap();
    assert!(s.0.refused(a).is_err());
}

#[test]
fn bytes_of_another_place_or_no_write_are_found() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    assert!(s.read(1, &[a]).is_err(), "of another place");
    for seen in [SeenBlock::Garbage, SeenBlock::Torn(vec![ZEROS, a])] {
        let read = s.begin(OpKind::Read, 0, 1);
        assert!(s.0.succeeded(read, &[seen]).is_err());
    }
}

#[test]
fn an_atomic_write_is_whole_to_an_atomic_read() {
    for blocks in [2, 4, 5] {
        let mut s = Story::new();
        let a = s.begin(WRITE, 0, blocks);
        let verdict = s.read(0, &[ZEROS, a]);
        assert_eq!(verdict.is_err(), blocks <= 4, "{blocks} blocks");
    }
    // Two that overlap in both blocks, half of each.
    let mut s = Story::new();
    let (a, b) = (s.begin(WRITE, 0, 2), s.begin(WRITE, 0, 2));
    assert!(s.read(0, &[a, b]).is_err());
    // A later one over a part is no tear; an earlier one is.
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 2);
    let b = s.write(WRITE, 0, 1);
    assert!(s.read(0, &[b, a]).is_ok());
    let mut s = Story::new();
    let b = s.write(WRITE, 0, 1);
    let a = s.begin(WRITE, 0, 2);
    assert!(s.read(0, &[b, a]).is_err());
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 2);
    s.0.media_error(0, 1, 1);
    assert!(s.read(0, &[ZEROS, a]).is_ok(), "the disk failed it");
}

#[test]
fn flushed_and_durable_writes_survive_the_power() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    s.cut();
    assert!(s.read(0, &[ZEROS]).is_ok(), "never flushed");
    assert!(s.read(0, &[a]).is_err(), "it cannot come back");

    let mut s = Story::new();
    s.write(WRITE, 0, 1);
    s.write(OpKind::Flush, 0, 0);
    s.cut();
    assert!(s.read(0, &[ZEROS]).is_err());

    let mut s = Story::new();
    let a = s.write(FUA, 0, 1);
    let b = s.write(WRITE, 0, 1);
    s.cut();
    s.cut();
    assert!(s.read(0, &[b]).is_ok(), "newer than what is durable");
    assert!(s.read(0, &[a]).is_err());

    // A flush that began before the write was done promises nothing of it.
    let mut s = Story::new();
    let (a, flush) = (s.begin(WRITE, 0, 1), s.begin(OpKind::Flush, 0, 0));
    s.done(a).unwrap();
    s.done(flush).unwrap();
    s.cut();
    assert!(s.read(0, &[ZEROS]).is_ok());
}

#[test]
fn a_block_may_tear_with_the_power_only_where_it_was_not_durable() {
    let mut s = Story::new();
    let a = s.write(FUA, 0, 1);
    let b = s.begin(WRITE, 0, 1);
    s.cut();
    let torn = [SeenBlock::Torn(vec![a, b])];
    let read = s.begin(OpKind::Read, 0, 1);
    assert!(s.0.succeeded(read, &torn).is_ok());
    assert!(s.read(0, &[a]).is_err(), "it stays as it was found");

    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    let b = s.write(FUA, 0, 1);
    s.cut();
    let torn = [SeenBlock::Torn(vec![a, b])];
    let read = s.begin(OpKind::Read, 0, 1);
    assert!(s.0.succeeded(read, &torn).is_err());
}

#[test]
fn a_killed_process_keeps_what_it_acknowledged() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    s.0.killed().unwrap();
    assert!(s.read(0, &[ZEROS]).is_err());
    assert!(s.read(0, &[a]).is_ok());
    let mut s = Story::new();
    s.write(FUA, 0, 1);
    s.0.forgotten(0).unwrap();
    assert!(s.read(0, &[ZEROS]).is_ok(), "memory forgets");
}

#[test]
fn one_value_is_swapped_once() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 2);
    let (b, c) = (s.swap(0, &[a, a]), s.swap(0, &[a, a]));
    assert!(s.done(b).is_ok());
    assert!(s.done(c).is_err());
}

#[test]
fn nothing_comes_between_a_compare_and_its_write() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    let swap = s.swap(0, &[a]);
    let b = s.begin(WRITE, 0, 1);
    assert!(s.read(0, &[a]).is_ok());
    assert!(s.read(0, &[b]).is_ok());
    assert!(s.read(0, &[swap]).is_ok());
    assert!(s.done(swap).is_err());
}

#[test]
fn a_compare_fails_only_over_something_else() {
    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    s.read(0, &[a]).unwrap();
    let swap = s.swap(0, &[a]);
    s.0.miscompared(swap).unwrap();
    s.read(0, &[a]).unwrap();
    assert!(s.0.finish().is_err());

    let mut s = Story::new();
    let a = s.write(WRITE, 0, 1);
    let swap = s.swap(0, &[a]);
    let b = s.begin(WRITE, 0, 1);
    s.0.miscompared(swap).unwrap();
    s.read(0, &[b]).unwrap();
    assert!(s.0.finish().is_ok());
}

#[test]
fn a_barred_host_writes_nothing_late() {
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    s.0.forbid_writes(0, 0);
    assert!(s.read(0, &[ZEROS]).is_ok());
    assert!(s.read(0, &[a]).is_err());
    let mut s = Story::new();
    let a = s.begin(WRITE, 0, 1);
    s.0.forbid_writes(0, 0);
    assert!(s.read(0, &[ZEROS]).is_ok());
    assert!(s.done(a).is_err());
}

/// An answer may come later than the shrink that takes away what it speaks of.
#[test]
fn a_read_that_has_met_what_a_shrink_takes_may_say_so() {
    let mut s = Story::new();
    s.0.damaged(0, 6);
    s.write(OpKind::Spoil, 5, 1);
    let damaged = s.begin(OpKind::Read, 6, 2);
    let spoiled = s.begin(OpKind::Read, 5, 1);
    let neither = s.begin(OpKind::Read, 4, 1);
    s.0.resized(0, 8, 4);
    assert!(s.0.may_be_damaged(damaged) && !s.0.may_be_spoiled(damaged));
    assert!(s.0.may_be_spoiled(spoiled) && !s.0.may_be_damaged(spoiled));
    assert!(!s.0.may_be_damaged(neither) && !s.0.may_be_spoiled(neither));
    let later = s.begin(OpKind::Read, 5, 1);
    assert!(!s.0.may_be_spoiled(later));
}
