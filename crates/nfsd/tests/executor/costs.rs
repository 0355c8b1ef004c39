//! What calls cost, in counts that stay the same, and in time.

use super::*;

/// What the same call costs when everything is warm: allocations, and bytes
/// copied. The driver itself copies what it receives straight into place.
fn cost(world: &mut World, ops: &Ops) -> (u64, u64) {
    let record = ops.record(0);
    let mark = RecordMark {
        is_last: true,
        len: record.len() as u32,
    };
    let bytes = [&mark.encode()[..], &record].concat();
    let mut sent = Vec::with_capacity(4 << 20);
    let mut counts = counters::here();
    for _ in 0..4 {
        sent.clear();
        counts = counters::here();
        world.server.receive(world.conn, &bytes);
        world.server.sent_to(world.conn, &mut sent);
    }
    let now = counters::here();
    assert_eq!(Answer::new(sent.split_off(4)).status, NFS4_OK);
    (
        now.allocations - counts.allocations,
        now.copied_bytes - counts.copied_bytes,
    )
}

#[test]
fn small_calls_allocate_nothing() {
    let mut world = World::new();
    let handle = world.file("f", &pattern(1 << 20));
    let fh = || Ops::default().fh(&handle);
    let access = ACCESS4args { access: 0x2d };
    for (what, ops) in [
        ("GETATTR", fh().getattr(STAT)),
        ("ACCESS", fh().op(arg::OP_ACCESS(access)).getattr(STAT)),
        (
            "LOOKUP",
            Ops::root().lookup("f").op(arg::OP_GETFH).getattr(STAT),
        ),
    ] {
        assert_eq!(cost(&mut world, &ops), (0, 0), "{what}");
    }
}

#[test]
fn payload_is_not_copied_and_nothing_allocated() {
    let mut world = World::new();
    let handle = world.file("f", &pattern(2 << 20));
    let fh = || Ops::default().fh(&handle);
    for len in [4096, 65_536, 1 << 20] {
        let read = fh().read(len.into(), len).getattr(STAT);
        assert_eq!(cost(&mut world, &read), (0, 0), "READ of {len}");
        if len < 1 << 20 {
            let read = fh().read(12_288, len).read(0, len);
            assert_eq!(cost(&mut world, &read), (0, 0), "two READs of {len}");
        }
        // Parts of frames, and of runs of them, are the file system's to join.
        let write = fh().write(1 << 20, &pattern(len as usize)).getattr(STAT);
        let (allocations, copied) = cost(&mut world, &write);
        assert_eq!(allocations, 0, "WRITE of {len}");
        assert!(copied <= len.into(), "WRITE of {len} copies {copied}");
    }
}
