//! weft's own initiator and client of files by RDMA against the Linux kernel's target and
//! server in a guest, on soft iWARP. What weft's two sides agree on by a common mistake shows
//! here.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use interop::child::{output, tied};
use interop::guest::{Config, Guest};
use interop::relay::relay;
use interop::scripts::{KERNEL_TARGET, KNFSD, RDMA, RDMA_SERVE_NFS, script};
use interop::systems::SIW;
use interop::weft::{NQN, binary, free_address, perf_url};
use needs::needs;

/// Serves until a connection arrives at the second port.
const SERVE: &str = "echo MARK served\nnc -l -p 2050 </dev/null >/dev/null\n";

/// A guest that serves by RDMA.
struct Peer {
    guest: Guest,
    address: SocketAddr,
    next: SocketAddr,
}

impl Peer {
    /// `module`: which soft iWARP it has; `port`: where it serves.
    fn start(name: &str, module: &str, port: u16, pieces: &[&str]) -> Peer {
        let settings = [
            ("ADDR", "10.0.2.15"),
            ("PORT", if port == 4420 { "4420" } else { "2049" }),
            ("NQN", NQN),
            ("SIW", module),
            ("SECURITY", "sec=sys"),
        ];
        let (behind, next) = (free_address(), free_address());
        let mut config = Config::new(name, &script(&settings, &[&[RDMA], pieces].concat()));
        config.system = &SIW;
        config.forwards = vec![(behind.port(), port), (next.port(), 2050)];
        // A busy machine is no reason to fail.
        config.limit = Duration::from_secs(900);
        let guest = Guest::start(&config).expect("a guest, as everything for it is there");
        Peer {
            guest: guest.until("MARK served"),
            address: relay(behind),
            next,
        }
    }

    fn discover(&self, scheme: &str) -> String {
        let mut discover = tied(binary());
        discover.arg("discover");
        discover.arg(format!("{scheme}://{}", self.address));
        let said = output(&mut discover);
        let said = said.unwrap_or_else(|e| panic!("{e}\n--- guest\n{}", self.guest.output()));
        String::from_utf8_lossy(&said).into_owned()
    }

    /// A load of a second, whose data is checked but where it has none.
    fn load(&self, url: &str, words: &str) {
        let words = format!("{words} --runtime=1s --ramp-time=0s");
        let words: Vec<&str> = words.split(' ').collect();
        if let Err(e) = perf_url(url, &words) {
            panic!("{words:?}: {e}\n--- guest\n{}", self.guest.output());
        }
    }

    fn finish(self) {
        drop(TcpStream::connect(self.next).expect("the guest still runs"));
        self.guest.finish().expect_success();
    }
}

/// Small and large, one queue and four, with data in capsules and without.
const NVME_LOADS: &[&str] = &[
    "--rw=randwrite --bs=4k --iodepth=32 --size=8MiB --verify",
    "--rw=randrw --bs=512 --iodepth=8 --numjobs=4 --size=2MiB --verify -G",
    "--rw=write --bs=128k --iodepth=8 --size=32MiB --verify",
    "--rw=randrw --bs=64k --iodepth=16 --numjobs=2 --size=32MiB --verify -G",
    // With fewer entries the kernel's queue has no room for a read of so much, and waits for it.
    "--rw=write --bs=1m --iodepth=16 --size=32MiB --io-backend=epoll --verify",
];

fn initiator(name: &str, module: &str) {
    let peer = Peer::start(name, module, 4420, &[KERNEL_TARGET, SERVE]);
    let said = peer.discover("rdma");
    assert!(said.contains(NQN) && said.contains("rdma"), "{said}");
    let url = format!("rdma://{}/{NQN}", peer.address);
    NVME_LOADS.iter().for_each(|load| peer.load(&url, load));
    peer.finish();
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn initiator_with_the_kernels_own_target_by_rdma() {
    initiator("rdma-kernel-target", "siw");
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn initiator_with_a_stricter_kernels_target_by_rdma() {
    initiator("rdma-kernel-target-strict", "siw_strict");
}

const FILE_LOADS: &[&str] = &[
    "--rw=randwrite --bs=4k --iodepth=32 --size=8MiB --verify",
    "--rw=randrw --bs=5001 --iodepth=8 --numjobs=4 --size=2MiB --verify -G",
    "--rw=randrw --bs=128k --iodepth=8 --size=32MiB --verify",
    // The most that a kernel with so little memory takes.
    "--rw=write --bs=128k --iodepth=4 --numjobs=2 --size=16MiB --verify -G",
];

const NAME_LOADS: &[&str] = &[
    "--rw=create --iodepth=8 --numjobs=2",
    "--rw=getattr --iodepth=32 --nrfiles=10",
    // Answers that no Send holds.
    "--rw=readdir --nrfiles=600 --iodepth=4",
];

fn client(name: &str, module: &str) {
    let peer = Peer::start(name, module, 20049, &[KNFSD, RDMA_SERVE_NFS]);
    let url = |path: &str| format!("nfs+rdma://{}/{path}", peer.address);
    FILE_LOADS
        .iter()
        .for_each(|load| peer.load(&url("file"), load));
    NAME_LOADS.iter().for_each(|load| peer.load(&url(""), load));
    let said = peer.discover("nfs+rdma");
    assert!(said.contains("/file"), "{said}");
    peer.finish();
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn client_loads_the_kernels_own_server_by_rdma() {
    client("rdma-kernel-server", "siw");
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn client_loads_a_stricter_kernels_server_by_rdma() {
    client("rdma-kernel-server-strict", "siw_strict");
}
