//! How long calls take.

use super::world::*;
use wire::nfs4::*;
use wire::rpc::RecordMark;
use wire::xdr::List;

use nfs_argop4 as arg;

/// Calls that come at once, so that what a turn costs counts little.
const BATCH: u32 = 32;

/// What this thread has run for, whatever else the machine does.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// `cargo test --release -p nfsd --test state -- --ignored --nocapture`: how long
/// calls in a session take, from bytes received to bytes to be sent, the copies of
/// a socket's stand-in among it; their number instead of 320,000 is in `CALLS`.
#[test]
#[ignore = "a measurement"]
fn how_long_calls_take() {
    let calls = std::env::var("CALLS").map_or(320_000, |calls| calls.parse().unwrap());
    let mut world = World::new();
    let mut client = world.client("a", 2);
    let (stateid, handle) = world.create(&mut client, "o", "f");
    let data = vec![1; 4096];
    for block in 0..16 {
        world.run(&mut client, at(&handle).write(stateid, block * 4096, &data));
    }
    let read = arg::OP_READ(READ4args {
        stateid,
        offset: 8192,
        count: 4096,
    });
    let attributes = [1 << FATTR4_SIZE | 1 << FATTR4_CHANGE, 0];
    let attr_request = List::Of(&attributes);
    let getattr = arg::OP_GETATTR(GETATTR4args { attr_request });
    for (what, ops) in [
        ("nothing", Ops::default()),
        ("GETATTR", at(&handle).op(getattr)),
        ("READ", at(&handle).op(read)),
        ("WRITE", at(&handle).write(stateid, 8192, &data)),
    ] {
        let mut bytes = Vec::new();
        let mut sequences = Vec::new();
        for _ in 0..BATCH {
            let all = world.sequenced(&client, &ops);
            let record = world.record(client.minor, &all);
            let mark = RecordMark {
                is_last: true,
                len: record.len() as u32,
            };
            bytes.extend(mark.encode());
            let session = |part: &[u8]| part == client.session;
            let at = record.windows(16).position(session).unwrap() + 16;
            sequences.push(bytes.len() + at);
            bytes.extend(record);
        }
        let mut sent = Vec::with_capacity(1 << 20);
        let begin = cpu_nanos();
        for _ in 0..calls / BATCH {
            for at in &sequences {
                client.sequence += 1;
                bytes[*at..at + 4].copy_from_slice(&client.sequence.to_be_bytes());
            }
            sent.clear();
            world.server.receive(client.conn, &bytes);
            world.server.sent_to(client.conn, &mut sent);
        }
        let each = (cpu_nanos() - begin) / u64::from(calls);
        println!(
            "{what}: {each} ns, {} bytes sent",
            sent.len() / BATCH as usize
        );
    }
}
