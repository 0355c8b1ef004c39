//! NBD over TLS: by certificates and by pre-shared keys.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use interop::certificates;
use interop::weft::free_address;
use needs::needs;

use crate::{Served, image, weft_volume};

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
name = "named"
volume = "disk"
clients = ["DNS:client.example.org"]
[[nbd_export]]
name = "open"
volume = "disk"
allow_any_client = true
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
    // weft learns of it by the client's alert, perhaps when that has ended.
    let mut looks = (0..1000).map(|_| {
        thread::sleep(Duration::from_millis(10));
        secured.refusals()
    });
    assert!(looks.any(|told| told.contains("TLS refused")));
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
fn disk_image_goes_by_an_export_and_a_listener_that_want_no_tls() {
    let secured = Secured::new("volume-image-tls", "auto");
    let served = &secured.served;
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    for arguments in [["import", "disk", &there], ["export", "disk", &back]] {
        let (is_done, said) = weft_volume(served, &arguments);
        assert!(is_done, "{arguments:?}: {said}");
    }
    assert!(fs::read(&back).expect("what came back") == bytes);
    for (remove, why) in [
        (
            format!("listener={}", secured.offered),
            "weft listens for no NBD without TLS",
        ),
        ("nbd_export=open".to_owned(), "for clients without TLS"),
    ] {
        let (kind, name) = remove.split_once('=').expect("both");
        served.target.run(&["rm", kind, name, "--disconnect"]);
        let (is_done, said) = weft_volume(served, &["import", "disk", &there]);
        assert!(!is_done && said.contains(why), "{said}");
    }
    secured.served.target.expect_orderly_end();
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

/// Two exports of one volume: for the client whose key is called alice, and for bob's.
fn config_with_keys(address: SocketAddr, folder: &Path, of_certificates: &str) -> String {
    let folder = folder.display();
    format!(
        r#"
[[volume]]
name = "disk"
kind = "ram"
size = "64MiB"
[nbd.tls]
psk_file = "{folder}/clients.psk"
{of_certificates}
[[nbd_export]]
name = "hers"
volume = "disk"
clients = ["PSK:alice"]
[[nbd_export]]
name = "his"
volume = "disk"
clients = ["PSK:bob"]
[[listener]]
address = "{address}"
protocol = "nbd"
tls = "required"
[admin]
socket = "admin.sock"
"#
    )
}

/// Clients with keys: alice, one with another key of that name, and one that has none.
fn with_keys(name: &str, of_certificates: impl Fn(&Path) -> String) -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        fs::write(&path, text).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    };
    let line = |name: &str, byte: &str| format!("{name}:{}\n", byte.repeat(32));
    write("clients.psk", line("alice", "a1") + &line("bob", "b2"));
    for (client, name, byte) in [
        ("alice", "alice", "a1"),
        ("forged", "alice", "b2"),
        ("carol", "carol", "a1"),
    ] {
        write(&format!("{client}/keys.psk"), line(name, byte));
    }
    let address = free_address();
    let certificates = of_certificates(folder.path());
    let config = config_with_keys(address, folder.path(), &certificates);
    Served::by(name, &config, address, folder)
}

/// libnbd's way to an export by a client's key.
fn url_by_key(served: &Served, client: &str, export: &str) -> String {
    let (user, at) = (client.replace("forged", "alice"), served.address);
    let keys = served.path(&format!("{client}/keys.psk"));
    format!("nbds://{user}@{at}/{export}?tls-psk-file={keys}")
}

#[needs(guest)]
#[test]
fn libnbd_and_qemu_are_known_by_their_keys() {
    let served = with_keys("nbd-psk", |_| String::new());
    let listed = served.run("nbdinfo", &["--list", &url_by_key(&served, "alice", "")]);
    assert!(
        listed.contains("with TLS") && listed.contains("export=\"hers\""),
        "{listed}"
    );
    assert!(!listed.contains("his"), "{listed}");
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    let url = url_by_key(&served, "alice", "hers");
    served.run("nbdcopy", &["--flush", &there, &url]);
    served.run("nbdcopy", &[&url, &back]);
    assert!(fs::read(&back).expect("what came back") == bytes);
    let (keys, port) = (served.path("alice"), served.address.port());
    let credentials = format!("tls-creds-psk,id=tls,endpoint=client,username=alice,dir={keys}");
    let disk = format!("driver=nbd,host=127.0.0.1,port={port},export=hers,tls-creds=tls");
    let of_disk = ["--object", &credentials, "--image-opts", &disk];
    let info = served.run("qemu-img", &[&["info"], &of_disk[..]].concat());
    assert!(info.contains("64 MiB"), "{info}");
    for (client, alert, why) in [
        (
            "forged",
            "decrypt",
            "the key of the TLS identity \"alice\" is another",
        ),
        (
            "carol",
            "PSK",
            "the client's name has no key in `psk_file`, \"carol\"",
        ),
    ] {
        let said = served.fail("nbdinfo", &[&url_by_key(&served, client, "hers")]);
        assert!(said.contains("gnutls_handshake"), "{alert}: {said}");
        let told = served.target.run(&["refusals"]);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(why), "{client}: {told}");
    }
    served.target.expect_orderly_end();
}

#[needs(guest, program("openssl"))]
#[test]
fn certificates_and_keys_are_taken_at_one_listener() {
    let served = with_keys("nbd-psk-or-certificate", |folder| {
        certificates::make_here(folder).expect("certificates");
        let unshown = folder.join("unshown");
        fs::create_dir(&unshown).expect("a folder");
        fs::copy(folder.join("ca.pem"), unshown.join("ca-cert.pem")).expect("there");
        let at = folder.display();
        format!("certificate = \"{at}/cert.pem\"\nkey = \"{at}/key.pem\"")
    });
    let by_key = url_by_key(&served, "alice", "hers");
    let size = served.run("nbdinfo", &["--size", &by_key]);
    assert_eq!(size.trim(), "67108864");
    let by_certificate = format!(
        "nbds://{}/?tls-certificates={}",
        served.address,
        served.path("unshown")
    );
    let listed = served.run("nbdinfo", &["--list", &by_certificate]);
    assert!(!listed.contains("export="), "{listed}");
    served.target.expect_orderly_end();
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
