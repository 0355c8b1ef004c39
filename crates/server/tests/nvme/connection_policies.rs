//! What the kernel is told to do with connections.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use auth::Network;
use needs::each_driver;
use reactor::{Choice, SocketOptions};
use rustix::net::{getpeername, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use server::{Change, Config, ConnectionPolicy, Limits};

use crate::common::{Host, config, stop};

/// The target's end of a connection: the target is this process.
fn accepted(client: &TcpStream) -> OwnedFd {
    let peer = client.local_addr().expect("it is connected");
    let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("of this process");
    let numbers = std::fs::read_dir("/proc/self/fd").expect("procfs");
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut sockets =
        numbers.filter_map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok());
    let is_it = |socket: &OwnedFd| {
        let found = getpeername(socket).ok().flatten();
        found.and_then(|found| SocketAddr::try_from(found).ok()) == Some(peer)
    };
    sockets.find(is_it).expect("it is accepted")
}

fn policy(name: &str, options: SocketOptions) -> ConnectionPolicy {
    ConnectionPolicy {
        name: name.to_owned(),
        options,
        ..ConnectionPolicy::default()
    }
}

/// A congestion control that connections over loopback do not have by themselves, if there is one.
fn other_congestion_control() -> String {
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = allowed.expect("procfs");
    let other = allowed.split_whitespace().find(|name| *name != "reno");
    other.unwrap_or("reno").to_owned()
}

#[each_driver]
fn first_policy_about_a_connection_holds_for_it_and_a_change_for_those_that_come(backend: Choice) {
    let control = other_congestion_control();
    let first = ConnectionPolicy {
        networks: vec![Network::new([127, 0, 0, 0].into(), 8).expect("a network")],
        listeners: vec![0],
        ..policy(
            "near",
            SocketOptions {
                send_buffer_bytes: Some(64 << 10),
                dscp: Some(46),
                congestion_control: Some(control.clone()),
                ..SocketOptions::default()
            },
        )
    };
    // The kernel knows no such, and the connection goes on.
    let all = policy(
        "all",
        SocketOptions {
            dscp: Some(8),
            congestion_control: Some("none_such".to_owned()),
            ..SocketOptions::default()
        },
    );
    let config = Config {
        connection_policies: vec![first, all.clone()],
        ..config(backend, Limits::default(), 64 << 20)
    };
    let running = server::start(config).expect("starts");
    let [v4, v6] = [0, 1].map(|at| running.addresses()[at]);
    let connect = |to| Host::at(to).pair();
    let dscp = |stream: &TcpStream| sockopt::ip_tos(accepted(stream)).expect("of TCP") >> 2;
    let near = connect(v4);
    let own = accepted(&near.0.stream);
    assert_eq!(sockopt::ip_tos(&own), Ok(46 << 2));
    assert_eq!(sockopt::tcp_congestion(&own), Ok(control));
    assert_eq!(sockopt::socket_send_buffer_size(&own), Ok(128 << 10));
    let (far, mut io) = connect(v6);
    let its = accepted(&far.stream);
    assert_eq!(sockopt::ipv6_tclass(&its), Ok(8 << 2));
    assert_ne!(sockopt::tcp_congestion(&its).as_deref(), Ok("none_such"));
    assert!(io.write(1, 0, 7).is_success());
    let set = |policies| {
        running
            .change(Change::SetConnectionPolicies(policies))
            .expect("set")
    };
    set(vec![all]);
    assert_eq!(dscp(&near.0.stream), 46, "it stays");
    assert_eq!(dscp(&connect(v4).1.stream), 8);
    set(Vec::new());
    assert_eq!(dscp(&connect(v4).1.stream), 0);
    stop(running);
}
