//! NBD over TLS: by certificates.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use interop::certificates;
use interop::weft::free_address;
use needs::needs;

use crate::{Served, image};

/// Two exports of one volume: for any client, and for the client that shows its certificate. TLS is
/// required at `address`, and offered at `offered`.
fn config(address: SocketAddr, offered: SocketAddr, io: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"
[policy]
io = "{io}"
[[volume]]
name = "disk"
kind = "ram"
size = "64MiB"
[nbd.tls]
certificate = "{folder}/cert.pem"
key = "{folder}/key.pem"
client_ca = "{folder}/ca.pem"
[[nbd_export]]
name = "open"
volume = "disk"
allow_any_client = true
[[nbd_export]]
name = "named"
volume = "disk"
clients = ["DNS:client.example.org"]
[[listener]]
address = "{address}"
protocol = "nbd"
tls = "required"
[[listener]]
address = "{offered}"
protocol = "nbd"
[admin]
socket = "admin.sock"
"#
    )
}

/// Clients over TLS: one that shows a certificate, one that shows none, and one that trusts another
/// authority, each with a folder of its files.
struct Secured {
    served: Served,
    offered: SocketAddr,
}

impl Secured {
    fn new(name: &str, io: &str) -> Secured {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        certificates::make_here(at).expect("certificates");
        let file_of = |client: &str, from: &str, to: &str| {
            fs::create_dir_all(at.join(client)).expect("a folder");
            fs::copy(at.join(from), at.join(client).join(to)).expect("it is there");
        };
        for (client, authority) in [("shown", "ca"), ("unshown", "ca"), ("wrong", "other")] {
            file_of(client, &format!("{authority}.pem"), "ca-cert.pem");
        }
        file_of("shown", "client.pem", "client-cert.pem");
        file_of("shown", "client.key", "client-key.pem");
        let (address, offered) = (free_address(), free_address());
        let config = config(address, offered, io, at);
        Secured {
            served: Served::by(name, &config, address, folder),
            offered,
        }
    }

    /// libnbd's way to an export for one of the clients.
    fn url(&self, client: &str, export: &str) -> String {
        let files = self.served.path(client);
        let address = self.served.address;
        format!("nbds://{address}/{export}?tls-certificates={files}")
    }

    /// QEMU's.
    fn qemu(&self, client: &str, export: &str) -> [String; 2] {
        let (files, address) = (self.served.path(client), self.served.address);
        let port = address.port();
        [
            format!("tls-creds-x509,id=tls,endpoint=client,dir={files}"),
            format!("driver=nbd,host=127.0.0.1,port={port},export={export},tls-creds=tls"),
        ]
    }

    /// What weft says of those that it has refused, on one line.
    fn refusals(&self) -> String {
        let told = self.served.target.run(&["refusals"]);
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

fn libnbd(io: &str) {
    let secured = Secured::new("libnbd-tls", io);
    let served = &secured.served;
    for (client, names) in [("shown", &["named", "open"][..]), ("unshown", &["open"])] {
        let listed = served.run("nbdinfo", &["--list", &secured.url(client, "")]);
        assert!(listed.contains("with TLS"), "{listed}");
        for name in ["named", "open"] {
            let is_told = listed.contains(&format!("export=\"{name}\""));
            assert_eq!(is_told, names.contains(&name), "{client}: {listed}");
        }
    }
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    let url = secured.url("shown", "named");
    served.run("nbdcopy", &["--flush", &there, &url]);
    served.run("nbdcopy", &[&url, &back]);
    assert!(fs::read(&back).expect("what came back") == bytes);
    let said = served.fail("nbdinfo", &[&secured.url("unshown", "named")]);
    assert!(said.contains("No such file or directory"), "{said}");
    let told = secured.refusals();
    assert!(
        told.contains("asked named why there is no such export"),
        "{told}"
    );
    let said = served.fail("nbdinfo", &[&secured.url("wrong", "open")]);
    assert!(said.contains("certificate verification"), "{said}");
    let told = secured.refusals();
    assert!(told.contains("TLS refused"), "{told}");
    secured.served.target.expect_orderly_end();
}

#[needs(guest, program("openssl"))]
#[test]
fn libnbd_copies_over_tls_what_its_certificate_is_for_over_epoll() {
    libnbd("epoll");
}

#[needs(guest, program("openssl"), io_uring)]
#[test]
fn libnbd_copies_over_tls_what_its_certificate_is_for_over_io_uring() {
    libnbd("io_uring");
}

#[needs(guest, program("openssl"))]
#[test]
fn qemu_converts_compares_and_writes_over_tls() {
    let secured = Secured::new("qemu-nbd-tls", "auto");
    let served = &secured.served;
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    let [credentials, disk] = &secured.qemu("shown", "named");
    let object = ["--object", credentials];
    let of_disk = [&object[..], &["--image-opts", disk]].concat();
    let to_disk = ["-n", "--target-image-opts", "-f", "raw", &there, disk];
    served.run("qemu-img", &[&["convert"], &object[..], &to_disk].concat());
    let info = served.run("qemu-img", &[&["info"], &of_disk[..]].concat());
    assert!(info.contains("64 MiB"), "{info}");
    let from_disk = ["convert", "-O", "raw"];
    let convert = [&from_disk, &of_disk[..], &[&back]].concat();
    served.run("qemu-img", &convert);
    assert!(fs::read(&back).expect("what came back") == bytes);
    let steps = [
        "-c",
        "write -P 7 1M 3M",
        "-c",
        "flush",
        "-c",
        "read -P 7 1M 3M",
    ];
    let said = served.run("qemu-io", &[&object[..], &steps, &of_disk[2..]].concat());
    assert!(
        said.contains("3 MiB, 1 ops") && !said.contains("failed"),
        "{said}"
    );
    for (client, export, why) in [
        ("unshown", "named", "there is no such export"),
        ("wrong", "open", "hasn't got a known issuer"),
    ] {
        let [credentials, disk] = &secured.qemu(client, export);
        let info = ["info", "--object", credentials, "--image-opts", disk];
        let said = served.fail("qemu-img", &info);
        assert!(said.contains(why), "{client}: {said}");
    }
    secured.served.target.expect_orderly_end();
}

#[needs(guest, program("openssl"))]
#[test]
fn client_in_the_clear_is_told_that_tls_is_required_and_is_served_where_it_is_offered() {
    let secured = Secured::new("clear-nbd-tls", "auto");
    let served = &secured.served;
    let clear = served.url("open");
    let said = served.fail("nbdinfo", &["--size", &clear]);
    assert!(
        said.contains("server requires TLS encryption first"),
        "{said}"
    );
    let said = served.fail("qemu-img", &["info", &clear]);
    for words in [
        "TLS negotiation required",
        "TLS is required: begin with STARTTLS",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let offered = secured.offered;
    for url in [
        format!("nbd://{offered}/open"),
        secured
            .url("unshown", "open")
            .replace(&served.address.to_string(), &offered.to_string()),
    ] {
        assert_eq!(served.run("nbdinfo", &["--size", &url]).trim(), "67108864");
    }
    secured.served.target.expect_orderly_end();
}
