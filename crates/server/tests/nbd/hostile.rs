//! Bad input: options and requests with something wrong from seeds, against a target that serves
//! another client meanwhile. That one must not notice.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use needs::each_driver;
use random::Random;
use reactor::Choice;
use wire::nbd::{OPTION_MAGIC, nbd_magic, request_type as request};

use crate::client::{Client, Form, Outcome};
use crate::content::pattern;
use crate::disks::BLOCK;
use crate::running::stop;
use crate::{config, portal};

/// Bad connections on a driver, unless `WEFT_HOSTILE` says otherwise.
const USUAL: u64 = 1500;

fn bad_option(random: &mut Random) -> Vec<u8> {
    let magic = match random.one_in(40) {
        true => random.next_u64(),
        false => OPTION_MAGIC,
    };
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend((random.below(14) as u32).to_be_bytes());
    let len = random.pick(&[0u32, 0, 1, 6, 9, 12, 40, 5000, 20_000]);
    let told = match random.one_in(30) {
        true => random.next_u32(),
        false => len,
    };
    bytes.extend(told.to_be_bytes());
    bytes.extend((0..len).map(|_| random.pick(&[0u8, 0, 0, 1, 4, b'r', b'a', b'm', 0xff])));
    bytes
}

fn bad_request(random: &mut Random, form: Form) -> Vec<u8> {
    let magic = match (random.one_in(100), form) {
        (true, _) => random.next_u32(),
        (false, Form::Extended) => nbd_magic::EXTENDED_REQUEST,
        (false, _) => nbd_magic::REQUEST,
    };
    let kind = random.pick(&[0u16, 0, 1, 1, 1, 3, 4, 5, 6, 7, 8, 77]);
    let flags = random.pick(&[0u16, 0, 0, 1, 2, 4, 8, 16, 32, 33, 0x8000]);
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(random.below(4).to_be_bytes());
    let offset = random.pick(&[0u64, 0, 1, 4096, 1 << 18, (1 << 18) - 4096, u64::MAX]);
    bytes.extend(offset.to_be_bytes());
    let len = random.pick(&[0u32, 1, 4096, 4096, 8192, 1 << 16, 1 << 20, 33 << 20]);
    match form {
        Form::Extended => bytes.extend(u64::from(len).to_be_bytes()),
        _ => bytes.extend(len.to_be_bytes()),
    }
    let has_payload = match form {
        Form::Extended => flags & 32 != 0,
        _ => kind == request::WRITE,
    };
    if has_payload && len <= 1 << 20 {
        bytes.resize(bytes.len() + len as usize, 7);
    }
    bytes
}

fn attack(address: SocketAddr, random: &mut Random) {
    let form = random.pick(&[Form::Simple, Form::Structured, Form::Extended]);
    let mut client = Client::greeted(address, form);
    let is_in = random.one_in(2);
    if is_in {
        client.go("other");
    }
    let timeout = Some(Duration::from_millis(2));
    client.stream.set_read_timeout(timeout).expect("a socket");
    for _ in 0..random.below(24) {
        let bytes = match is_in {
            true => bad_request(random, form),
            false => bad_option(random),
        };
        client.put(&bytes);
    }
    // Some take nothing of what they asked for.
    if random.one_in(2) {
        let _ = client.stream.read(&mut [0; 4096]);
    }
}

#[each_driver]
fn bad_input_does_not_disturb_another_client(backend: Choice) {
    let running = server::start(config(backend)).expect("starts");
    let (address, is_over, sent) = (portal(&running), AtomicBool::new(false), AtomicU64::new(0));
    let wanted = std::env::var("WEFT_HOSTILE").map_or(USUAL, |n| n.parse().expect("a number"));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (sent, is_over) = (&sent, &is_over);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while sent.fetch_add(1, Ordering::Relaxed) < wanted {
                    attack(address, &mut random);
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let mut client = Client::open(address, Form::Structured, "ram");
        let mut round = 0u64;
        while !is_over.load(Ordering::Relaxed) {
            let (data, at) = (pattern(round as u8, BLOCK), round % 4096 * BLOCK as u64);
            assert_eq!(client.write(0, at, &data), Outcome::Done(vec![]), "{round}");
            let read = client.request(request::READ, 0, at, BLOCK as u64);
            assert!(read == Outcome::Done(data), "{round}");
            round += 1;
        }
        assert!(round > 0);
    });
    stop(running);
}
