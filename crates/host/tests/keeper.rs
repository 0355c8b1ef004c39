//! What keeps a path, while there is no controller.
#![allow(missing_docs)]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host::{
    HostIdentity, Keeper, KeeperParams, KeptNamespace, NamespaceInfo, PathSignal, Settings,
};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver};

/// Longer than a test takes.
const DELAY: Duration = Duration::from_secs(3600);

#[test]
fn attempt_as_another_host_does_not_wait_for_the_pause_between_two() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let to = listener.local_addr().expect("bound");
    let attempts = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&attempts);
    std::thread::spawn(move || {
        // It is counted before its end is seen.
        for connection in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            drop(connection);
        }
    });
    let host = || HostIdentity::new(None).expect("random bytes");
    let params = KeeperParams {
        to,
        subnqn: "nqn.2026-01.org.example:there".to_owned(),
        host: host(),
        settings: Settings::default().into(),
        nsid: Some(1),
        queues: 1,
        kato_ms: 0,
        reconnect_delay: DELAY,
        reconnect_delay_max: DELAY,
        ctrl_loss_tmo: None,
    };
    let known = KeptNamespace {
        namespace: NamespaceInfo {
            nsid: 1,
            block_bytes: 512,
            block_count: 8,
            is_thin: false,
        },
        identifiers: Vec::new(),
    };
    let driver = || {
        let config = DriverConfig {
            sockets_max: 1,
            ..DriverConfig::default()
        };
        EpollDriver::new(&config, Pool::new(Budget::new(1 << 20))?)
    };
    let mut keeper = Keeper::expecting(params, Arc::new(PathSignal::default()), known, driver);
    for expected in 1..4 {
        for _ in 0..4 {
            assert_eq!(keeper.turn(), None);
        }
        assert_eq!(attempts.load(Ordering::Relaxed), expected);
        keeper.set_host(host());
    }
}
