//! weft's own client of NFS proves its user by Kerberos: MIT's KDC, tickets of `kinit`, and weft.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use interop::child::output;
use interop::kdc::Realm;
use interop::weft::{WeftProcess, binary, free_address};
use needs::needs;

/// What is exported, and the only flavor that each export takes.
const EXPORTS: [&str; 3] = ["krb5", "krb5i", "krb5p"];

/// A realm, weft with a key in it, and a user with a ticket.
struct World {
    realm: Realm,
    target: WeftProcess,
    address: SocketAddr,
    tickets: PathBuf,
}

impl World {
    fn start(name: &str) -> World {
        let realm = Realm::start("").expect("a KDC, as everything for it is there");
        // A user that every machine has, so that weft knows it.
        for (principal, keytab) in [("nfs/localhost", "weft.keytab"), ("root", "root.keytab")] {
            realm.add(principal).expect("a principal");
            realm.add_keys(principal, keytab).expect("its keys");
        }
        let keytab = realm.folder().join("root.keytab");
        let tickets = realm.get_tickets("root@TEST", &keytab, "tickets", &[]);
        let address = free_address();
        let config = config(address, &realm.folder().join("weft.keytab"));
        World {
            target: WeftProcess::serve(name, &config, address),
            tickets: tickets.expect("tickets"),
            realm,
            address,
        }
    }

    /// `weft` for the user whose tickets are in a file.
    fn weft(&self, tickets: &Path, words: &[&str]) -> Command {
        let mut weft = Command::new(binary());
        weft.args(words)
            .env("KRB5_CONFIG", self.realm.folder().join("krb5.conf"))
            .env("KRB5CCNAME", tickets);
        weft
    }

    fn url(&self, path: &str) -> String {
        format!("nfs://localhost:{}/{path}", self.address.port())
    }

    /// What `weft` says that is refused.
    fn refusal(&self, tickets: &Path, words: &[&str]) -> String {
        match output(&mut self.weft(tickets, words)) {
            Ok(said) => panic!("{words:?}: {}", String::from_utf8_lossy(&said)),
            Err(said) => said,
        }
    }
}

fn config(address: SocketAddr, keytab: &Path) -> String {
    let mut config = format!(
        "[nfs]\nlease_ms = 1000\ngrace_ms = 1000\n\
         [nfs.kerberos]\nkeytab = \"{}\"\ndomain = \"test\"\nrealm = \"TEST\"\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [admin]\nsocket = \"admin.sock\"\nlisten = \"off\"\n",
        keytab.display()
    );
    for flavor in EXPORTS {
        config += &format!(
            "[[file_system]]\nname = \"{flavor}\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
             [[export]]\npath = \"/{flavor}\"\nfile_system = \"{flavor}\"\n\
             allow_any_client = true\nsquash = \"none\"\nsecurity = [\"{flavor}\"]\n"
        );
    }
    config
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn loads_by_each_service_read_what_they_have_written() {
    let world = World::start("nfs-client");
    for flavor in EXPORTS {
        let url = world.url(flavor);
        for load in [
            &["--rw=randrw", "--bs=4k", "--verify"][..],
            &["--rw=randrw", "--bs=256k", "--verify", "--iodepth=4"],
            &["--rw=create", "--bs=8k"],
        ] {
            let mut words = vec!["perf", &url, "--sec", flavor, "--numjobs=2"];
            words.extend(["--runtime=1s", "--ramp-time=0s"]);
            words.extend(load);
            if load[0] == "--rw=randrw" {
                words.push("--size=8MiB");
            }
            let said = output(&mut world.weft(&world.tickets, &words));
            let said = said.unwrap_or_else(|why| panic!("{words:?}: {why}"));
            let said = String::from_utf8_lossy(&said).into_owned();
            let is_checked = load.contains(&"--verify");
            assert!(!is_checked || said.contains("0 wrong"), "{words:?}: {said}");
        }
        let list = ["discover", &url, "--sec", flavor];
        output(&mut world.weft(&world.tickets, &list)).expect("a list of names");
    }
    world.target.expect_orderly_end();
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn refusals_name_the_remedy() {
    let world = World::start("nfs-client-refused");
    let (url, none) = (world.url("krb5i"), world.realm.folder().join("none"));
    for command in ["perf", "discover"] {
        // By the user's own word, or by a service that is not the export's.
        for more in [&[][..], &["--sec=sys"], &["--sec=krb5p"]] {
            let words = [&[command, url.as_str()], more].concat();
            let said = world.refusal(&world.tickets, &words);
            let remedy = "/krb5i takes krb5i: say --sec krb5i, with a ticket by `kinit`";
            assert!(said.contains(remedy), "{words:?}: {said}");
        }
        let said = world.refusal(&none, &[command, &url, "--sec=krb5i"]);
        assert!(
            said.contains("Kerberos: this user has no tickets, `kinit` gets them: "),
            "{said}"
        );
        let number = format!("nfs://{}/krb5i", world.address);
        let said = world.refusal(&world.tickets, &[command, &number, "--sec=krb5i"]);
        assert!(said.contains("KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN"), "{said}");
    }
    world.target.expect_orderly_end();
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn server_without_kerberos_is_said_to_be_that() {
    let world = World::start("nfs-client-without");
    let address = free_address();
    let config = format!(
        "[[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [[file_system]]\nname = \"f\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
         [[export]]\npath = \"/f\"\nfile_system = \"f\"\nallow_any_client = true\n\
         [admin]\nsocket = \"off\"\nlisten = \"off\"\n"
    );
    let other = WeftProcess::serve("nfs-client-none", &config, address);
    let url = format!("nfs://localhost:{}/f", address.port());
    let said = world.refusal(&world.tickets, &["discover", &url, "--sec=krb5"]);
    assert!(
        said.contains("makes no security context (RPCSEC_GSS)"),
        "{said}"
    );
    other.expect_orderly_end();
    world.target.expect_orderly_end();
}
