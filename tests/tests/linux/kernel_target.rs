//! The kernel's own target in a guest, for weft's initiator on this machine.

use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{KERNEL_TARGET, script};
use interop::systems::FORKY;
use interop::weft::{NQN, free_address, perf};
use std::net::{SocketAddr, TcpStream};

/// What a load of [`KernelTarget::perf`] is without more words.
pub const LOAD: [&str; 2] = ["--rw=randwrite", "--size=4MiB"];

/// A guest whose script sets its target up in one way after the other.
pub struct KernelTarget {
    guest: Guest,
    address: SocketAddr,
    /// The script goes on where something connects.
    next: SocketAddr,
}

impl KernelTarget {
    /// `settings` and `pieces` of its script are those beside what each has; `ports` of the
    /// guest: of its target, and of the script that waits.
    pub fn start(
        name: &str,
        settings: &[(&str, &str)],
        pieces: &[&str],
        ports: [u16; 2],
    ) -> KernelTarget {
        let own = [
            ("ADDR", "10.0.2.15"),
            ("PORT", "4420"),
            ("NQN", NQN),
            ("HOST", HOST_NQN),
        ];
        let script = script(
            &[&own, settings].concat(),
            &[&[KERNEL_TARGET], pieces].concat(),
        );
        let (address, next) = (free_address(), free_address());
        let mut config = Config::new(name, &script);
        config.system = &FORKY;
        config.forwards = vec![(address.port(), ports[0]), (next.port(), ports[1])];
        KernelTarget {
            guest: Guest::start(&config).expect("a guest, as everything for it is there"),
            address,
            next,
        }
    }

    /// The script has come to a mark.
    pub fn until(self, mark: &str) -> KernelTarget {
        let guest = self.guest.until(mark);
        KernelTarget { guest, ..self }
    }

    /// What a verified load of a second comes to, by these words.
    pub fn perf(&self, words: &[&str]) -> Result<String, String> {
        let own = [
            "--hostnqn",
            HOST_NQN,
            "--verify",
            "--runtime=1s",
            "--ramp-time=0s",
        ];
        perf(self.address, &[&own, words].concat())
    }

    /// What the script has said.
    pub fn output(&self) -> String {
        self.guest.output()
    }

    /// Has the script go on.
    pub fn go_on(&self) {
        drop(TcpStream::connect(self.next).expect("the guest still runs"));
    }

    /// The script ends well.
    pub fn finish(self) {
        self.guest.finish().expect_success();
    }
}
