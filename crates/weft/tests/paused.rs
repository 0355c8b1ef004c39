//! A target that stood still, as on a machine that was paused.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use host::{Admin, HostIdentity, Settings};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver};

const NQN: &str = "nqn.2026-01.io.weft:paused";

struct Serving(Child);

impl Serving {
    fn start(address: SocketAddr) -> Serving {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("weft.toml");
        let text = format!(
            "[[volume]]\nname = \"a\"\nkind = \"null\"\nsize = \"1MiB\"\n\
             [nvme]\n[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"a\"\n\
             [[listener]]\naddress = \"{address}\"\n"
        );
        std::fs::write(&config, text).expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(["serve", "-c"])
            .arg(&config)
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

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hosts that did what they had to, while nobody listened, keep their controllers.
#[test]
fn what_came_meanwhile_is_heard_before_time_is_up() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let serving = Serving::start(address);
    let identity = HostIdentity {
        hostnqn: "nqn.2026-01.org.example:patient".into(),
        hostid: [1; 16],
    };
    let (connected, paused) = (Barrier::new(9), Barrier::new(9));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let pool = Pool::new(Budget::new(8 << 20)).expect("memory");
                let driver = EpollDriver::new(&DriverConfig::default(), pool).expect("a driver");
                let settings = Settings::default();
                let admin = Admin::connect(driver, address, NQN, &identity, settings, 1000);
                let mut admin = admin.expect("admitted");
                connected.wait();
                paused.wait();
                admin.keep_alive().expect("heard");
            });
        }
        connected.wait();
        // Their first second is over, and with it what they did in it.
        std::thread::sleep(Duration::from_millis(1300));
        serving.signal("-STOP");
        paused.wait();
        std::thread::sleep(Duration::from_millis(2500));
        serving.signal("-CONT");
    });
}
