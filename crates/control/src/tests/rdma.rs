//! How hosts connect by RDMA at a listener.

use auth::HostPsk;
use auth::psk::{Psk, PskHash};
use nvmf::HostTerms;
use nvmf::rdma::CrcPolicy;
use nvmf::transport::Transports;
use server::nfs::{Xprtsec, XprtsecModes};
use server::{Config, RdmaSpec};

use super::*;

fn listener(more: &str) -> String {
    file(SIZE, "", ANY, &format!("{LOCAL}\n{more}"), "")
}

#[test]
fn listener_takes_rdma_beside_tcp_or_alone() {
    let rdma = |more: &str| read(&listener(more)).expect(more).listeners[0].rdma;
    assert_eq!(rdma(""), RdmaSpec::default());
    assert_eq!(rdma("rdma = false"), RdmaSpec::default());
    assert_eq!(rdma("rdma = true").transports, Transports::Both);
    assert_eq!(rdma("rdma = \"only\"").transports, Transports::Rdma);
    let all = "rdma = true\nmpa_crc = \"off\"\nfpdu_bytes_max = \"8KiB\"\nrdma_reads_max = 16";
    let expected = RdmaSpec {
        transports: Transports::Both,
        crc: CrcPolicy::Off,
        fpdu_bytes_max: 8192,
        reads_max: 16,
    };
    assert_eq!(rdma(all), expected);
}

#[test]
fn mistakes_of_rdma_are_told_where_they_are() {
    // The listener's address is in line 14.
    for (more, at, parts) in [
        (
            "rdma = \"maybe\"",
            "15:8",
            ["true, false or \"only\"", "\"maybe\""],
        ),
        ("rdma = 1", "15:8", ["true, false or \"only\"", "number"]),
        (
            "rdma = true\nmpa_crc = \"on\"",
            "16:11",
            ["`mpa_crc`", "\"require\""],
        ),
        (
            "rdma = true\nfpdu_bytes_max = 255",
            "16:18",
            ["from 256B", "64KiB"],
        ),
        (
            "rdma = true\nrdma_reads_max = 0",
            "16:18",
            ["from 1", "1024"],
        ),
        ("mpa_crc = \"off\"", "15:11", ["`mpa_crc`", "`rdma = true`"]),
        (
            "tls = \"required\"\nrdma = true",
            "16:8",
            ["`tls = \"required\"`", "TLS"],
        ),
    ] {
        expect(&listener(more), at, &parts);
    }
}

#[test]
fn host_and_export_of_tls_alone_behind_listeners_of_rdma_alone_are_noted() {
    const HOST: &str = "nqn.2026-01.org.example:secret";
    let told = |config: &Config| {
        let all = notes(config).into_iter();
        all.filter(|note| note.contains("takes RDMA alone"))
            .collect::<Vec<_>>()
    };
    let mut config = default_config();
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(9));
    let psks = vec![HostPsk {
        key: psk,
        until: None,
    }];
    let terms = HostTerms {
        psks,
        ..HostTerms::new(HOST)
    };
    config.subsystems[0].terms.push(terms);
    config.exports[0].rules[0].xprtsec = XprtsecModes::new(&[Xprtsec::Tls]);
    for transports in [Transports::Tcp, Transports::Both] {
        for listener in &mut config.listeners {
            listener.rdma.transports = transports;
        }
        assert_eq!(told(&config), [] as [&str; 0]);
    }
    for listener in &mut config.listeners {
        listener.rdma.transports = Transports::Rdma;
    }
    let closed = told(&config);
    assert_eq!(closed.len(), 2, "{closed:?}");
    assert!(closed[0].contains(HOST) && closed[1].contains(&config.exports[0].path));
    assert!(closed.iter().all(|note| note.contains("`rdma = true`")));
    config.subsystems[0].terms.clear();
    config.exports[0].rules[0].xprtsec = XprtsecModes::ALL;
    assert_eq!(told(&config), [] as [&str; 0]);
}

#[test]
fn terms_of_rdma_that_is_off_are_noted() {
    let noted = |more: &str| {
        let config = read(&listener(more)).expect(more);
        let all = notes(&config).into_iter();
        all.filter(|note| note.contains("RDMA is off")).count()
    };
    for (more, count) in [
        ("rdma = false\nmpa_crc = \"off\"", 1),
        ("rdma = false\nrdma_reads_max = 3", 1),
        ("rdma = true\nmpa_crc = \"off\"", 0),
        ("rdma = false", 0),
        ("", 0),
    ] {
        assert_eq!(noted(more), count, "{more}");
    }
}
