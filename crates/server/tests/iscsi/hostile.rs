//! Bad input: malformed PDUs, FPDUs, commands and logins from seeds, against a target
//! that serves another initiator meanwhile. That one must not notice, and memory
//! must stay under its ceiling.
//!
//! `WEFT_HOSTILE=1000000 cargo test --release -p server --test iscsi hostile`
//! runs a million; a plain test a part of that.

mod rdma;

use needs::each_driver;
use nvmf::transport::Transports;
use random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use reactor::Choice;
use server::{IscsiTargetSpec, Limits, LunSpec, Running};
use wire::iscsi::{BHS_LEN, flags, opcode, padded};

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, config, pattern, portal, ram, stop};

const EVIL: &str = "iqn.2026-01.io.weft:attacked";
/// Ceiling of the target's buffers.
const MEMORY_MAX: u64 = 48 << 20;
/// Bad PDUs on a driver, unless `WEFT_HOSTILE` says otherwise.
const USUAL: u64 = 40_000;
/// The other initiator must get on in each part of so many.
const PARTS: u64 = 10;

/// What all threads see.
struct Field {
    address: SocketAddr,
    /// Bad PDUs that were sent to connections that took them, and how many are
    /// wanted.
    sent: AtomicU64,
    wanted: u64,
    /// Commands that the other initiator has completed.
    served: AtomicU64,
    is_over: AtomicBool,
}

fn serve(backend: Choice, transports: Transports) -> Running {
    let mut config = config(backend, Limits::default(), MEMORY_MAX);
    for listener in &mut config.listeners {
        listener.rdma.transports = transports;
    }
    config.volumes.push(ram("attacked", 64));
    let mut evil = IscsiTargetSpec::new(EVIL);
    evil.luns = vec![LunSpec::new(0, "attacked")];
    config.iscsi_targets.push(evil);
    server::start(config).expect("starts")
}

/// The other initiator: writes and reads back.
fn use_it(field: &Field) {
    let client = Client::login(field.address, &InitiatorPort::new(1)).expect("in");
    let mut client = client.calm(&[0]);
    let mut n = 0u64;
    while !field.is_over.load(Ordering::Relaxed) {
        let data = pattern(n as u8, BLOCK);
        let lba = n % 4096;
        assert!(
            client.command_out(0, &write_16(lba, 1), &data).is_good(),
            "write {n}"
        );
        let read = client.command(0, &read_16(lba, 1), BLOCK as u32);
        assert!(read.is_good() && read.data == data, "read {n}");
        field.served.fetch_add(2, Ordering::Relaxed);
        n += 1;
    }
}

/// A command descriptor block with some of everything wrong.
fn bad_cdb(random: &mut Random) -> [u8; 16] {
    const OPCODES: [u32; 28] = [
        0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x1a, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x35, 0x41, 0x42,
        0x55, 0x5e, 0x5f, 0x83, 0x84, 0x88, 0x89, 0x8a, 0x8b, 0x93, 0x9e, 0xa0, 0xa3,
    ];
    let mut cdb = [0; 16];
    for byte in &mut cdb[1..] {
        *byte = random.pick::<u32>(&[0, 0, 0, 0, 0, 1, 8, 63, 255]) as u8;
    }
    cdb[0] = match random.one_in(10) {
        true => random.below(256) as u8,
        false => random.pick::<u32>(&OPCODES) as u8,
    };
    cdb
}

/// A PDU in the full feature phase with something wrong, and whether it goes on.
fn bad_pdu(random: &mut Random, cmd_sn: &mut u32, itt: &mut u32) -> Vec<u8> {
    let mut bhs = [0; BHS_LEN];
    let opcode = match random.below(12) {
        0 => opcode::NOP_OUT,
        1 => opcode::TASK_MANAGEMENT_REQUEST,
        2 => opcode::DATA_OUT,
        3 => opcode::TEXT_REQUEST,
        4 => opcode::SNACK,
        5 if random.one_in(20) => random.pick::<u32>(&[3, 6, 0x1f, 0x3f, 0x21]) as u8,
        _ => opcode::SCSI_COMMAND,
    };
    let is_immediate = opcode != opcode::SCSI_COMMAND || random.one_in(8);
    bhs[0] = opcode | if is_immediate { 0x40 } else { 0 };
    bhs[1] = random.pick::<u32>(&[
        0x81, 0xc1, 0xa1, 0xa1, 0xc1, 0x80, 0x82, 0xe1, 0x21, 0x83, 0x85,
    ]) as u8;
    if opcode == opcode::TASK_MANAGEMENT_REQUEST {
        // Not those that would end the sessions of all attackers.
        bhs[1] = flags::FINAL | random.pick::<u32>(&[1, 1, 2, 4, 5, 6, 3, 8, 9, 14]) as u8;
    }
    bhs[8] = random.pick::<u32>(&[0, 0, 0, 0, 0x40, 0xc1]) as u8;
    bhs[9] = random.pick::<u32>(&[0, 0, 0, 0, 1, 5]) as u8;
    *itt = itt.wrapping_add(1);
    let own = if random.one_in(30) {
        itt.wrapping_sub(random.below(5) as u32)
    } else {
        *itt
    };
    bhs[16..20].copy_from_slice(&own.to_be_bytes());
    let len = random.pick::<u32>(&[0, 0, 0, 16, 24, 512, 4096, 4096, 8192]);
    let edtl = random.pick::<u32>(&[len, len, 0, 512, 4096, 8192, 65_536, 1 << 24, u32::MAX]);
    bhs[20..24].copy_from_slice(&edtl.to_be_bytes());
    if opcode == opcode::NOP_OUT || opcode == opcode::TEXT_REQUEST {
        bhs[1] = flags::FINAL;
        bhs[20..24].fill(0xff);
    }
    let sn = if random.one_in(400) {
        cmd_sn.wrapping_add(random.below(40) as u32)
    } else {
        *cmd_sn
    };
    bhs[24..28].copy_from_slice(&sn.to_be_bytes());
    if !is_immediate {
        *cmd_sn = cmd_sn.wrapping_add(1);
    }
    bhs[32..48].copy_from_slice(&bad_cdb(random));
    if random.one_in(300) {
        bhs[4] = random.below(4) as u8;
    }
    let len = if opcode == opcode::SCSI_COMMAND && bhs[1] & 0x20 == 0 {
        0
    } else {
        len
    };
    bhs[5..8].copy_from_slice(&len.to_be_bytes()[1..]);
    let mut bytes = bhs.to_vec();
    bytes.resize(BHS_LEN + padded(len) as usize, random.below(256) as u8);
    if random.one_in(500) {
        let at = random.below(BHS_LEN as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// A login whose text is not what it should be.
fn bad_login(field: &Field, random: &mut Random) {
    const TEXTS: [&str; 9] = [
        "HeaderDigest=Maybe",
        "MaxRecvDataSegmentLength=0",
        "MaxBurstLength=99999999999999999999",
        "=",
        "NoValue",
        "AuthMethod=CHAP,None",
        "MaxConnections=70000",
        "TargetName=iqn.2026-01.io.weft:attacked",
        "X-weft-\u{1}=\u{7f}",
    ];
    let mut initiator = InitiatorPort::new(random.below(200) as u8);
    initiator.target = Some(EVIL.into());
    let mut client = Client::open(field.address);
    let text: String = (0..random.below(6))
        .map(|_| TEXTS[random.below(TEXTS.len() as u64) as usize].to_owned() + "\0")
        .collect();
    initiator.keys = vec![("X-weft", text)];
    client.send_login(&initiator);
    field.sent.fetch_add(1, Ordering::Relaxed);
    let _ = client
        .stream
        .set_read_timeout(Some(Duration::from_millis(50)));
    let _ = client.stream.read(&mut [0; 4096]);
}

/// A session that sends what no initiator may, until one of its PDUs ends it or
/// it has had enough.
fn attack(field: &Field, random: &mut Random, initiator: &InitiatorPort) {
    let Ok(client) = std::panic::catch_unwind(|| Client::login(field.address, initiator)) else {
        return;
    };
    let Ok(mut client) = client else { return };
    let timeout = Some(Duration::from_millis(2));
    client.stream.set_read_timeout(timeout).expect("a socket");
    let (mut cmd_sn, mut itt) = (initiator.cmd_sn, 1);
    for _ in 0..24 {
        let mut burst = Vec::new();
        let count = 16 + random.below(48);
        for _ in 0..count {
            burst.extend(bad_pdu(random, &mut cmd_sn, &mut itt));
        }
        if client.stream.write_all(&burst).is_err() {
            return;
        }
        field.sent.fetch_add(count, Ordering::Relaxed);
        if has_ended(&mut client.stream, random) {
            return;
        }
    }
}

/// Takes what has come; some take nothing of what they asked for. Whether it was the end.
fn has_ended(stream: &mut TcpStream, random: &mut Random) -> bool {
    let mut answers = vec![0; 256 << 10];
    while !random.one_in(10) {
        match stream.read(&mut answers) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
    false
}

/// What attacks once, as this initiator.
type AttackOnce = fn(&Field, &mut Random, &InitiatorPort);

#[each_driver]
fn bad_input_does_not_disturb_another_initiator(backend: Choice) {
    let running = serve(backend, Transports::Tcp);
    undisturbed_by(&running, |field, random, initiator| {
        match random.one_in(10) {
            true => bad_login(field, random),
            false => attack(field, random, initiator),
        }
    });
    stop(running);
}

#[each_driver]
fn bad_fpdus_do_not_disturb_another_initiator(backend: Choice) {
    let running = serve(backend, Transports::Both);
    undisturbed_by(&running, rdma::attack);
    let terminates = running.metrics().terminates;
    let is_ours = |of: &str, sender: &str| (of, sender) == ("iser", "weft");
    let kinds = terminates
        .iter()
        .filter(|(of, (sender, ..))| is_ours(of, sender));
    assert!(kinds.count() > 1, "{terminates:?}");
    stop(running);
}

fn undisturbed_by(running: &Running, attack: AttackOnce) {
    let wanted = std::env::var("WEFT_HOSTILE").map_or(USUAL, |n| n.parse().expect("a number"));
    let field = Field {
        address: portal(running),
        sent: AtomicU64::new(0),
        wanted,
        served: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| use_it(&field));
        for seed in 0..3 {
            let field = &field;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut initiator = InitiatorPort::new(100 + seed as u8);
                initiator.target = Some(EVIL.into());
                while field.sent.load(Ordering::Relaxed) < field.wanted {
                    attack(field, &mut random, &initiator);
                }
            });
        }
        let mut served = 0;
        for part in 1..=PARTS {
            while field.sent.load(Ordering::Relaxed) < wanted * part / PARTS {
                std::thread::sleep(Duration::from_millis(2));
            }
            let now = field.served.load(Ordering::Relaxed);
            assert!(
                now > served,
                "part {part}: the other initiator stands still"
            );
            served = now;
            let pool = crate::report::report(running).pool_bytes;
            assert!(pool <= MEMORY_MAX, "part {part}: {pool} bytes of buffers");
        }
        field.is_over.store(true, Ordering::Relaxed);
    });
    let (sent, served) = (field.sent.into_inner(), field.served.into_inner());
    println!(
        "{}: {sent} bad PDUs; the other did {served} I/Os",
        running.backend()
    );
    // The attacked target serves an initiator that keeps to the protocol.
    let mut initiator = InitiatorPort::new(1);
    initiator.target = Some(EVIL.into());
    let mut client = Client::login(portal(running), &initiator)
        .expect("in")
        .calm(&[0]);
    assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
}
