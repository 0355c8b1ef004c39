//! Reservations that outlive a target killed at any point.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::{Admin, Caller, Error, HostIdentity, Payload, Settings};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver};
use wire::nvme::reservation::{EDS, IEKEY, action};
use wire::nvme::{Sqe, Status, io};

const NQN: &str = "nqn.2026-01.io.weft:kill";

/// Times that the target is killed.
const KILLS: u64 = 5;

/// CPTPL: persist through power loss.
const PERSIST: u32 = 3 << 30;

/// A target that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Serving {
    fn start(config: &Path) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(["serve", "-c"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("weft starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut shown = String::new();
        while !shown.contains("ends it in order") {
            let read = out.read_line(&mut shown).expect("text");
            assert_ne!(read, 0, "weft ended early: {shown}");
        }
        Serving(child)
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn driver() -> EpollDriver {
    let pool = Pool::new(Budget::new(8 << 20)).expect("memory");
    EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
}

/// A host with an I/O queue.
struct Host {
    hostid: [u8; 16],
    _admin: Admin<EpollDriver>,
    queue: Caller<EpollDriver>,
}

impl Host {
    fn connect(to: SocketAddr, number: u8) -> Host {
        let identity = HostIdentity {
            hostnqn: format!("nqn.2026-01.org.example:host{number}"),
            hostid: [number; 16],
            psk: None,
            dhchap: None,
            concatenates: false,
        };
        let settings = Settings::default();
        let mut admin = Admin::connect(driver(), to, NQN, &identity, settings, 0).expect("admin");
        admin.set_queue_count(1).expect("a queue");
        let ids = (admin.cntlid(), 16);
        let queue = Caller::io(driver(), to, NQN, &identity, settings, ids).expect("a queue");
        Host {
            hostid: identity.hostid,
            _admin: admin,
            queue,
        }
    }

    fn command(&mut self, opcode: u8, cdw: [u32; 2], payload: Payload<'_>) -> Result<(), Error> {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = 1.into();
        sqe.cdw10 = cdw[0].into();
        sqe.cdw11 = cdw[1].into();
        self.queue.command("I/O", &sqe, payload).map(|_| ())
    }

    /// Registers with a key, whatever the one so far.
    fn register(&mut self, key: u64) -> Result<(), Error> {
        let cdw10 = u32::from(action::REPLACE) | IEKEY | PERSIST;
        let keys = (u128::from(key) << 64).to_le_bytes();
        self.command(io::RESERVATION_REGISTER, [cdw10, 0], Payload::Out(&keys))
    }

    /// Generation, type, and key of each registrant.
    fn report(&mut self) -> (u32, u8, Vec<([u8; 16], u64)>) {
        let mut bytes = [0; 64 * 3];
        let dwords = bytes.len() as u32 / 4 - 1;
        self.command(
            io::RESERVATION_REPORT,
            [dwords, EDS],
            Payload::In(&mut bytes),
        )
        .expect("a report");
        assert_eq!(bytes[9], 1, "it persists");
        let count = usize::from(u16::from_le_bytes([bytes[5], bytes[6]]));
        let registrants = bytes[64..].chunks_exact(64).take(count).map(|entry| {
            (
                entry[16..32].try_into().expect("16 bytes"),
                u64::from_le_bytes(entry[8..16].try_into().expect("8 bytes")),
            )
        });
        let generation = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
        (generation, bytes[4], registrants.collect())
    }

    fn read(&mut self) -> Result<(), Error> {
        let mut block = [0; 4096];
        self.command(io::READ, [0, 0], Payload::In(&mut block))
    }
}

fn is_conflict(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Refused { status, .. })
        if status.code() == Status::RESERVATION_CONFLICT)
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], testkit::free_port()))
}

/// A configuration with one file volume, `disk0.img`.
fn configure(folder: &Path, to: SocketAddr) -> PathBuf {
    let config = folder.join("weft.toml");
    let text = format!(
        "[[volume]]\nname = \"disk0\"\nkind = \"file\"\npath = \"disk0.img\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"disk0\"\n\
         [[listener]]\naddress = \"{to}\"\n\
         [policy]\nmemory_max = \"1GiB\"\n\
         [admin]\nsocket = \"off\"\n"
    );
    std::fs::write(&config, text).expect("a file");
    config
}

#[test]
fn a_damaged_state_file_keeps_the_target_from_starting_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = configure(folder.path(), free_address());
    let state = folder.path().join("disk0.img.weft");
    std::fs::write(&state, "weft-state 1 00000000\n{}").expect("a file");
    let serve = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["serve", "-c"])
        .arg(&config)
        .output()
        .expect("weft starts");
    assert!(!serve.status.success());
    let shown = String::from_utf8_lossy(&serve.stderr);
    let path = state.to_str().expect("UTF-8");
    for part in ["volume 'disk0'", path, "is damaged", "move it away"] {
        assert!(shown.contains(part), "{part:?} is not in: {shown}");
    }
}

#[test]
fn reservations_answered_before_a_kill_are_there_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = free_address();
    let config = configure(folder.path(), to);
    let mut serving = Serving::start(&config);
    let mut holder = Host::connect(to, 1);
    holder.register(1).expect("registered");
    // Exclusive Access.
    let keys = 1u128.to_le_bytes();
    holder
        .command(io::RESERVATION_ACQUIRE, [2 << 8, 0], Payload::Out(&keys))
        .expect("acquired");
    let mut known = 1;
    for kill in 1..=KILLS {
        let (generation, rtype, registrants) = holder.report();
        assert_eq!((rtype, registrants), (2, vec![(holder.hostid, known)]));
        // The target dies while key after key is registered.
        let writer = std::thread::spawn(move || {
            let mut host = Host::connect(to, 1);
            let mut answered = known;
            while host.register(answered + 1).is_ok() {
                answered += 1;
            }
            answered
        });
        while holder.report().0 < generation + 3 * kill as u32 {}
        serving.kill();
        let answered = writer.join().expect("the writer");
        assert!(answered >= known + 2, "some were answered");

        serving = Serving::start(&config);
        let mut other = Host::connect(to, 2);
        assert!(is_conflict(other.read()), "from the first command on");
        holder = Host::connect(to, 1);
        holder.read().expect("the holder's right");
        let (now, rtype, registrants) = holder.report();
        let [(hostid, key)] = registrants[..] else {
            panic!("{registrants:?}");
        };
        assert_eq!((rtype, hostid), (2, holder.hostid));
        // The last one may have been on its way.
        assert!(
            key == answered || key == answered + 1,
            "{key} after {answered}"
        );
        assert_eq!(u64::from(now) - u64::from(generation), key - known);
        known = key;
    }
    assert!(folder.path().join("disk0.img.weft").exists());
}
