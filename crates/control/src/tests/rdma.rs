//! How hosts connect by RDMA at a listener.

use nvmf::rdma::CrcPolicy;
use nvmf::transport::Transports;
use server::RdmaSpec;

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
        ("rdma = 1", "15:8", ["`rdma` takes", "number"]),
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
        (
            "protocol = \"iscsi\"\nrdma = true",
            "16:8",
            ["`rdma` is for NVMe and NFS", ""],
        ),
    ] {
        let text = match more.contains("iscsi") {
            // The subsystem is reached at another.
            true => listener(more) + "[[listener]]\naddress = \"127.0.0.1:4421\"\n",
            false => listener(more),
        };
        expect(&text, at, &parts);
    }
}
