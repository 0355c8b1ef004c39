//! What operations cost, in numbers that stay the same.

use super::*;
use mem::counters;

fn cost(mut work: impl FnMut()) -> (u64, u64) {
    // Once to warm up.
    work();
    let before = counters::here();
    work();
    let after = counters::here();
    (
        after.allocations - before.allocations,
        after.copied_bytes - before.copied_bytes,
    )
}

#[test]
fn payload_is_not_copied_and_nothing_allocated() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let data = vec![1; 1 << 20];
    user.write_buf(file, 0, &data).unwrap();
    user.write_buf(file, 1 << 20, &data).unwrap();
    let caller = user.caller();
    let lend = |offset, len| {
        let lent = fs.lend(&caller, file, offset, len);
        let (loan, _) = lent.expect("it lies in one run").unwrap();
        assert_eq!(loan.len(), len);
    };
    for (offset, len) in [(0, 4096), (1 << 20, 1 << 20), (12_345, 100_000)] {
        assert_eq!(cost(|| lend(offset, len)), (0, 0), "read of {len}");
    }
    let receive = |offset| {
        let mut loan = fs.borrow(offset, 1 << 20).expect("it pays");
        fs.commit(&caller, &mut loan, file, offset).unwrap();
    };
    for offset in [0, 1 << 20] {
        assert_eq!(cost(|| receive(offset)), (0, 0), "write at {offset}");
    }
    let write = |offset| {
        let written = fs.write_now(&caller, file, offset, &data[..4096]);
        written.unwrap().unwrap();
    };
    assert_eq!(cost(|| write(8192)), (0, 4096));
    assert_eq!(cost(|| write(10_000)), (0, 4096));
    // Beside the attributes.
    let small = user.file(top, b"small");
    let caller = user.caller();
    let write = || {
        let written = fs.write_now(&caller, small, 0, &data[..100]);
        written.unwrap().unwrap();
    };
    assert_eq!(cost(write).0, 0);
}

#[test]
fn lookup_attributes_open_and_close_allocate_nothing() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    let file = user.file(dir, b"f");
    let mut look = || {
        assert_eq!(user.lookup(dir, b"f"), Ok(file));
        assert_eq!(user.lookup(dir, b"g"), Err(Error::NoEnt));
        user.attr(file).unwrap();
        user.set(file, mode(0o600)).unwrap();
        user.open(file).unwrap();
        assert_eq!(user.run(FsOp::Close { file }), Ok(Output::Done));
        user.rename((dir, b"f"), (dir, b"f")).unwrap();
    };
    assert_eq!(cost(&mut look), (0, 0));
}
