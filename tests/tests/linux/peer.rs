//! weft's own initiator against another target: the Linux kernel's, in a guest.
//! What weft's two sides agree on by a common mistake shows here.

use interop::child::{output, tied};
use interop::guest::{Config, Guest};
use interop::scripts::{KERNEL_TARGET, script};
use interop::weft::{NQN, binary, free_address, perf};
use needs::needs;
use std::net::TcpStream;

/// Serves until a connection arrives at the second port.
const SERVE: &str = "echo MARK listening\nnc -l -p 4421 </dev/null >/dev/null\n";

/// Verified loads: small and large, one queue and four, each way of digests,
/// each kind of reactor.
const LOADS: &[&str] = &[
    "--rw=randwrite --bs=4k --iodepth=32 --size=8MiB",
    "--rw=randrw --bs=512 --iodepth=8 --numjobs=4 --size=2MiB --hdr-digest",
    "--rw=write --bs=128k --iodepth=8 --size=32MiB --data-digest",
    "--rw=randrw --bs=64k --iodepth=16 --numjobs=2 --size=32MiB --hdr-digest --data-digest",
    "--rw=randrw --bs=20k --iodepth=4 --size=10MiB --io-backend=epoll",
    "--rw=write --bs=1m --iodepth=4 --size=16MiB --io-backend=epoll --data-digest",
];

#[needs(guest)]
#[test]
fn initiator_with_the_kernels_own_target() {
    let name = "peer-kernel-target";
    let (address, end) = (free_address(), free_address());
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "4420"), ("NQN", NQN)];
    let mut config = Config::new(name, &script(&settings, &[KERNEL_TARGET, SERVE]));
    config.forwards = vec![(address.port(), 4420), (end.port(), 4421)];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = guest.until("MARK listening");

    let mut discover = tied(binary());
    discover.args(["discover", &address.to_string()]);
    let said = output(&mut discover).unwrap_or_else(|e| panic!("discover: {e}"));
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(NQN), "{said}");

    for load in LOADS {
        let mut arguments: Vec<&str> = load.split(' ').collect();
        arguments.extend(["--verify", "--runtime=1s", "--ramp-time=0s"]);
        if let Err(e) = perf(address, &arguments) {
            panic!("{load}: {e}\n--- guest\n{}", guest.output());
        }
    }
    drop(TcpStream::connect(end).expect("the guest still runs"));
    guest.finish().expect_success();
}
