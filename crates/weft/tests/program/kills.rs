//! weft that is killed again and again under writes: what was durable is there, and every block
//! holds something that was written to it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use host::{Admin, Caller, Error, HostIdentity, Payload, Settings};
use mem::{Budget, Pool};
use needs::needs;
use random::{Random, mix};
use reactor::{DriverConfig, EpollDriver};
use serde_json::Value;
use testkit::Mounted;
use wire::nvme::{Sqe, io};

use crate::serving::{File, file, free_port, serve, text};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:kills";
const BLOCK: usize = 4096;
/// Of each volume.
const BLOCKS: usize = 256;
/// Blocks of a command at most.
const TOGETHER: usize = 8;
/// Volumes, by their namespaces.
const VOLUMES: [&str; 4] = ["plain", "checked", "secret", "mirror"];
/// Of each volume; no two write to one block.
const WRITERS: usize = 2;
/// Snapshots that stay while another one is made.
const SNAPSHOTS: usize = 2;
/// FUA (NVM Command Set 1.0, section 3.2.6).
const FUA: u32 = 1 << 30;

/// How often weft is killed: `WEFT_KILLS`, or a few times.
fn kills() -> u64 {
    let asked = std::env::var("WEFT_KILLS");
    asked.map_or(10, |asked| asked.parse().expect("WEFT_KILLS is a number"))
}

/// What is known of the blocks of a volume: each write has a number, and they grow.
struct Ledger {
    /// The last one that was begun, of each block.
    begun: Vec<AtomicU64>,
    /// The last one that was answered.
    answered: Vec<AtomicU64>,
    /// The last one that was answered and is durable.
    durable: Vec<AtomicU64>,
}

impl Ledger {
    fn new() -> Ledger {
        let none = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        Ledger {
            begun: none(),
            answered: none(),
            durable: none(),
        }
    }
}

fn numbers(of: &[AtomicU64]) -> Vec<u64> {
    of.iter().map(|one| one.load(Ordering::SeqCst)).collect()
}

/// What a write puts into a block.
fn content(nsid: usize, block: usize, number: u64) -> Vec<u8> {
    let seed = mix(number ^ mix((nsid * BLOCKS + block) as u64));
    let words = (1..BLOCK as u64 / 8).map(|word| mix(seed ^ word));
    let all = [number].into_iter().chain(words);
    all.flat_map(u64::to_le_bytes).collect()
}

/// The write whose content a block holds; 0 where nothing was written.
fn number_of(bytes: &[u8], (nsid, block): (usize, usize)) -> u64 {
    let number = u64::from_le_bytes(*bytes.first_chunk().expect("a block"));
    let expected = match number {
        0 => vec![0; BLOCK],
        number => content(nsid, block, number),
    };
    let place = VOLUMES[nsid - 1];
    assert!(
        bytes == expected,
        "block {block} of {place} holds what nothing wrote, or a mixture"
    );
    number
}

/// A host with an I/O queue.
struct Host {
    _admin: Admin<EpollDriver>,
    queue: Caller<EpollDriver>,
}

impl Host {
    fn connect(to: SocketAddr, number: u8) -> Result<Host, Error> {
        let driver = || {
            let pool = Pool::new(Budget::new(8 << 20)).expect("memory");
            EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
        };
        let identity = HostIdentity {
            hostnqn: format!("nqn.2026-01.org.example:host{number}"),
            hostid: [number; 16],
            psk: None,
            dhchap: None,
            concatenates: false,
        };
        let settings = Settings::default();
        let mut admin = Admin::connect(driver(), to, NQN, &identity, settings, 0)?;
        admin.set_queue_count(1)?;
        let ids = (admin.cntlid(), 16);
        let queue = Caller::io(driver(), to, NQN, &identity, settings, ids)?;
        Ok(Host {
            _admin: admin,
            queue,
        })
    }

    fn command(
        &mut self,
        opcode: u8,
        (nsid, block, blocks): (usize, usize, usize),
        flags: u32,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = (nsid as u32).into();
        sqe.cdw10 = (block as u32).into();
        sqe.cdw12 = (blocks.saturating_sub(1) as u32 | flags).into();
        self.queue.command("I/O", &sqe, payload).map(drop)
    }
}

/// Writes to a part of a volume until weft is gone; how many writes were answered.
fn write_until_gone(
    to: SocketAddr,
    (nsid, writer): (usize, usize),
    ledger: &Ledger,
    (mut random, next): (Random, &AtomicU64),
) -> u64 {
    let Ok(mut host) = Host::connect(to, (nsid * WRITERS + writer) as u8) else {
        return 0;
    };
    let (first, count) = (writer * (BLOCKS / WRITERS), BLOCKS / WRITERS);
    let (mut unflushed, mut answered) = (Vec::new(), 0);
    loop {
        let blocks = random.between(1, TOGETHER as u64) as usize;
        let at = first + random.below((count - blocks + 1) as u64) as usize;
        let number = next.fetch_add(1, Ordering::SeqCst);
        let flags = if random.percent(30) { FUA } else { 0 };
        let all = at..at + blocks;
        let set = |of: &[AtomicU64]| {
            of[all.clone()]
                .iter()
                .for_each(|one| one.store(number, Ordering::SeqCst));
        };
        let bytes: Vec<u8> = all
            .clone()
            .flat_map(|block| content(nsid, block, number))
            .collect();
        set(&ledger.begun);
        let place = (nsid, at, blocks);
        if host
            .command(io::WRITE, place, flags, Payload::Out(&bytes))
            .is_err()
        {
            return answered;
        }
        answered += 1;
        set(&ledger.answered);
        match flags {
            FUA => set(&ledger.durable),
            _ => unflushed.extend(all.clone().map(|block| (block, number))),
        }
        if random.percent(10) {
            if host
                .command(io::FLUSH, (nsid, 0, 0), 0, Payload::None)
                .is_err()
            {
                return answered;
            }
            for (block, number) in unflushed.drain(..) {
                ledger.durable[block].fetch_max(number, Ordering::SeqCst);
            }
        }
    }
}

/// Reads all, twice: legs of a mirror hold the same. How many answered writes that were not
/// durable are lost.
fn expect_all_written(to: SocketAddr, ledgers: &[Ledger], round: u64) -> u64 {
    let mut host = Host::connect(to, 99).expect("it serves");
    let mut lost = 0;
    for (nsid, ledger) in (1..).zip(ledgers) {
        for _ in 0..2 {
            for at in (0..BLOCKS).step_by(TOGETHER) {
                let mut bytes = vec![0; TOGETHER * BLOCK];
                let read = host.command(io::READ, (nsid, at, TOGETHER), 0, Payload::In(&mut bytes));
                let volume = VOLUMES[nsid - 1];
                read.unwrap_or_else(|why| panic!("round {round}: {volume}, block {at}: {why}"));
                for (block, bytes) in (at..).zip(bytes.chunks_exact(BLOCK)) {
                    let holds = number_of(bytes, (nsid, block));
                    let [begun, answered, durable] =
                        [&ledger.begun, &ledger.answered, &ledger.durable]
                            .map(|of| of[block].swap(holds, Ordering::SeqCst));
                    assert!(
                        (durable..=begun).contains(&holds),
                        "round {round}: {volume}, block {block} holds write {holds}, not {durable} \
                         (durable) to {begun} (begun)"
                    );
                    lost += u64::from(holds < answered);
                }
            }
        }
    }
    lost
}

/// What is served and killed.
struct Killed {
    file: File,
    to: SocketAddr,
    mounted: Mounted,
    _folder: tempfile::TempDir,
}

impl Killed {
    fn new() -> Killed {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Mounted::made_by("mkfs.xfs", folder.path());
        let port = free_port();
        let at = mounted.path().display();
        let key = mounted.path().join("key");
        fs::write(&key, "5a".repeat(32)).expect("room");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
        let volume = |name: &str, more: &str| {
            let size = BLOCKS * BLOCK;
            format!(
                "[[volume]]\nname = \"{name}\"\nkind = \"file\"\npath = \"{at}/{name}\"\n\
                 size = {size}\n{more}"
            )
        };
        let file = file(&format!(
            "{}{}{}{}{}[[volume]]\nname = \"mirror\"\nkind = \"mirror\"\nof = [\"left\", \"right\"]\n\
             state = \"{at}/mirror.state\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = {VOLUMES:?}\nallow_any_host = true\n\
             [[listener]]\naddress = \"127.0.0.1:{port}\"\n\
             [policy]\nmemory_max = \"1GiB\"\n[admin]\nsocket = \"admin.sock\"\n",
            volume("plain", ""),
            volume("checked", "checksum = true\n"),
            volume("secret", &format!("key_file = \"{}\"\n", key.display())),
            volume("left", ""),
            volume("right", ""),
        ));
        Killed {
            file,
            to: SocketAddr::from(([127, 0, 0, 1], port)),
            mounted,
            _folder: folder,
        }
    }

    /// Does something to snapshots of the first volume; its output, if it was done.
    fn snapshot(&self, arguments: &[&str]) -> Option<String> {
        let socket = self.file.path.with_file_name("admin.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command
            .arg("snapshot")
            .args(arguments)
            .arg("--at")
            .arg(socket);
        let output = command.output().expect("weft starts");
        output.status.success().then(|| text(&output.stdout))
    }

    fn content_of(&self, snapshot: &str) -> Vec<u8> {
        let folder = self.mounted.path().join("plain.snapshots");
        fs::read(folder.join(snapshot).join("data")).expect("it is there")
    }

    /// Makes and removes snapshots of the first volume until weft is gone. Each is of one
    /// instant between the beginning and the end of its command.
    fn snapshots_until_gone(
        &self,
        round: u64,
        ledger: &Ledger,
        mut there: BTreeMap<String, Vec<u8>>,
    ) -> BTreeMap<String, Vec<u8>> {
        for number in 0.. {
            let name = format!("s{round:04}-{number:04}");
            let least = numbers(&ledger.answered);
            if self.snapshot(&["create", &name, "plain"]).is_none() {
                break;
            }
            let most = numbers(&ledger.begun);
            let bytes = self.content_of(&name);
            for (block, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
                let holds = number_of(bytes, (1, block));
                let may_hold = least[block]..=most[block];
                assert!(
                    may_hold.contains(&holds),
                    "{name}: block {block}: {holds} of {may_hold:?}"
                );
            }
            there.insert(name, bytes);
            if there.len() > SNAPSHOTS {
                let (oldest, _) = there.pop_first().expect("there are some");
                if self.snapshot(&["rm", &oldest, "plain"]).is_none() {
                    break;
                }
            }
        }
        there
    }

    /// Those that were told to be made are there and hold what they held; others go.
    fn expect_snapshots(&self, there: &BTreeMap<String, Vec<u8>>) {
        let listed = self
            .snapshot(&["list", "plain", "--json"])
            .expect("it answers");
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let listed = listed["snapshots"].as_array().expect("a list");
        let mut names = Vec::new();
        for one in listed {
            assert!(one["damage"].is_null(), "{one}");
            names.push(one["name"].as_str().expect("text"));
        }
        for (name, bytes) in there {
            assert!(names.contains(&&**name), "{name} is not in {names:?}");
            assert!(
                self.content_of(name) == *bytes,
                "{name} holds something else"
            );
        }
        for other in names.iter().filter(|name| !there.contains_key(**name)) {
            self.snapshot(&["rm", other, "plain"]).expect("it is there");
        }
    }
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn volumes_hold_what_was_durable_however_often_weft_is_killed() {
    const SEED: u64 = 1;
    let mut random = Random::new(SEED);
    let killed = Killed::new();
    let ledgers: Vec<_> = VOLUMES.iter().map(|_| Ledger::new()).collect();
    let next = AtomicU64::new(1);
    let (mut answered, mut lost, mut made) = (0, 0, 0);
    let mut there = BTreeMap::new();
    let mut serving = serve(&killed.file.path);
    for round in 0..kills() {
        thread::scope(|scope| {
            let mut writers = Vec::new();
            for (nsid, ledger) in (1..).zip(&ledgers) {
                for writer in 0..WRITERS {
                    let of = (Random::new(random.next_u64()), &next);
                    let write = move || write_until_gone(killed.to, (nsid, writer), ledger, of);
                    writers.push(scope.spawn(write));
                }
            }
            let before = std::mem::take(&mut there);
            let makes = || killed.snapshots_until_gone(round, &ledgers[0], before);
            let snapshots = scope.spawn(makes);
            thread::sleep(Duration::from_micros(random.below(200_000)));
            serving.child.kill().expect("our child");
            for writer in writers {
                answered += writer.join().expect("a writer");
            }
            there = snapshots.join().expect("its snapshots are right");
        });
        drop(serving);
        serving = serve(&killed.file.path);
        lost += expect_all_written(killed.to, &ledgers, round);
        killed.expect_snapshots(&there);
        made += there
            .keys()
            .filter(|name| name.starts_with(&format!("s{round:04}")))
            .count();
    }
    println!(
        "seed {SEED}: {} kills, {answered} writes answered, {made} snapshots of the last moment; \
         {lost} answered blocks that were not durable are lost",
        kills()
    );
    assert!(answered > 0);
    end_in_order(serving);
}
