//! What calls cost, in counts that stay the same, and in time.

use super::*;

const TOO_BIG: nfsstat4 = nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE;

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

/// The data of an answer that a slot keeps becomes bytes of it. They are copied once, and take no
/// more than is counted for the session. That of an answer which is too long to be kept is not
/// copied.
#[test]
fn kept_answer_copies_its_data_once_and_one_too_long_to_be_kept_copies_none() {
    const KEPT: u32 = 256 << 10;
    /// What a connection keeps of buffers for the next call.
    const BESIDE: i64 = 16 << 10;
    let mut settings = NfsdSettings::default();
    settings.server.fore.cached_bytes_max = KEPT;
    let exports = Exports::new(vec![export("/", 1, rule())], Time::default()).unwrap();
    let mut server = NfsdDouble::new(Nfsd::new(settings, 1, [], exports, 0), 64 << 20);
    let conn = server.connect(([127, 0, 0, 1], 800).into());
    let mut world = World { server, conn };
    let handle = world.file("f", &pattern(1 << 20));
    let mut session = world.session(2 << 20, KEPT);
    let read = |len| Ops::default().fh(&handle).read(0, len);
    world.sequence(&mut session, false, &read(1 << 20));
    let lent = world.server.pool().lent();
    let held = counters::here().held_bytes;
    let fits = KEPT - 512;
    for (len, keeps, status, copied, kept) in [
        (1 << 20, true, TOO_BIG, 0, 0),
        (KEPT, true, TOO_BIG, 0, 0),
        (fits - 100, true, NFS4_OK, fits - 100, KEPT),
        // The place in the slot is used again.
        (fits, true, NFS4_OK, fits, KEPT),
        (1 << 20, false, NFS4_OK, 0, 0),
    ] {
        let read_plus = Ops::default().fh(&handle).read_plus(0, len);
        for read in [read(len), read_plus] {
            session.sequenceid += 1;
            let before = counters::here().copied_bytes;
            let answer = world.sequence_again(&session, keeps, &read);
            let now = counters::here();
            let what = format!("{len} bytes, kept: {keeps}");
            assert_eq!(answer.status, status, "{what}");
            assert_eq!(now.copied_bytes - before, u64::from(copied), "{what}");
            drop(answer);
            let grown = counters::here().held_bytes - held;
            assert!(grown <= i64::from(kept) + BESIDE, "{what}: {grown} bytes");
            assert_eq!(world.server.pool().lent(), lent, "{what}: memory goes back");
        }
    }
}
