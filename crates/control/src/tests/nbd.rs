//! NBD exports of a file.

use std::fs::Permissions;

use server::{Change, NbdClientName, NbdExportSpec, Protocol};

use super::*;

/// A file that exports the volume "a" over NBD, with more in the export.
fn file(export: &str) -> String {
    format!(
        "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = \"1MiB\"\n\
         [[nbd_export]]\n{export}\n\
         [[listener]]\naddress = \"127.0.0.1:10809\"\nprotocol = \"nbd\"\n"
    )
}

const ANY: &str = "volume = \"a\"\nallow_any_client = true";

#[test]
fn export_is_called_as_its_volume_and_needs_no_other_protocol() {
    let config = read(&file(ANY)).unwrap();
    assert_eq!(config.listeners[0].protocol, Protocol::Nbd);
    let wanted = NbdExportSpec {
        name: "a".into(),
        volume: "a".into(),
        description: String::new(),
        is_read_only: false,
        clients: None,
    };
    assert_eq!(config.nbd_exports, [wanted]);
}

#[test]
fn every_key_of_an_export_arrives() {
    let text = file(
        "name = \"b\"\nvolume = \"a\"\ndescription = \"of tests\"\nread_only = true\n\
         clients = [\"192.0.2.0/24\", \"2001:db8::1\"]",
    );
    let config = read(&text).unwrap();
    let export = &config.nbd_exports[0];
    assert_eq!((&*export.name, &*export.volume), ("b", "a"));
    assert_eq!(export.description, "of tests");
    assert!(export.is_read_only);
    let clients = export.clients.as_ref().expect("not any");
    for (address, is_in) in [
        ("192.0.2.7", true),
        ("192.0.3.7", false),
        ("2001:db8::1", true),
        ("2001:db8::2", false),
    ] {
        let address = address.parse().expect("an address");
        let found = clients.iter().any(|name| name.has_address(address));
        assert_eq!(found, is_in, "{address}");
    }
}

#[test]
fn mistakes_of_exports_are_told_where_they_are() {
    for (export, part) in [
        ("allow_any_client = true", "volume"),
        (
            "volume = \"b\"\nallow_any_client = true",
            "there is no volume \"b\"",
        ),
        ("volume = \"a\"", "no client could connect"),
        (
            "volume = \"a\"\nclients = [\"::1\"]\nallow_any_client = true",
            "contradict",
        ),
        ("volume = \"a\"\nclients = [\"here\"]", "here"),
        ("volume = \"a\"\nclients = []", "names no client"),
        (
            "name = \"a b\"\nvolume = \"a\"\nallow_any_client = true",
            "an NBD export's name",
        ),
        (
            "volume = \"a\"\nallow_any_client = true\n[[nbd_export]]\nvolume = \"a\"\n\
             allow_any_client = true",
            "is there already",
        ),
    ] {
        let problems = read(&file(export)).expect_err(export);
        let told = problems.iter().any(|problem| problem.text.contains(part));
        assert!(told, "{export}: {problems:?}");
    }
    let text = file(ANY).replace("\"nbd\"", "\"nfs\"");
    let problems = read(&text).expect_err("no listener");
    assert!(problems[0].text.contains("no NBD export could be reached"));
    for rdma in ["true", "\"only\""] {
        let problems = read(&format!("{}rdma = {rdma}\n", file(ANY))).expect_err(rdma);
        assert!(
            problems[0].text.contains("NBD goes over TCP alone"),
            "{problems:?}"
        );
    }
    let long = file(&format!("{ANY}\ndescription = \"{}\"", "d".repeat(257)));
    let problems = read(&long).expect_err("too long");
    let line = long
        .lines()
        .position(|line| line.starts_with("description"));
    assert_eq!(Some(problems[0].line - 1), line);
}

/// A file whose clients speak TLS by the certificate among the test data of `tls`.
fn with_tls(folder: &Path, of_tls: &str, clients: &str) -> String {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
    for name in ["server.pem", "server.key", "ca.pem"] {
        let to = folder.join(name);
        std::fs::copy(testdata.join(name), &to).expect("test data");
        std::fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("ours");
    }
    let at = folder.display();
    let export = format!("volume = \"a\"\nclients = [{clients}]");
    format!(
        "{}tls = \"required\"\n[nbd.tls]\ncertificate = \"{at}/server.pem\"\n\
         key = \"{at}/server.key\"\n{of_tls}",
        file(&export)
    )
}

#[test]
fn tls_is_required_where_there_is_a_certificate_and_clients_are_named_by_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = format!("client_ca = \"{}/ca.pem\"\n", folder.path().display());
    let named = "\"192.0.2.0/24\", \"DNS:VM1.example.org\"";
    let config = read(&with_tls(folder.path(), &ca, named)).unwrap();
    assert!(config.listeners[0].requires_tls);
    let tls = config.nbd_tls.as_ref().expect("it is there");
    let files = tls.certificates.as_ref().expect("they are there");
    assert_eq!(files.client_ca, Some(folder.path().join("ca.pem")));
    let clients = config.nbd_exports[0].clients.as_ref().expect("not any");
    let name = NbdClientName::Certificate("DNS:vm1.example.org".into());
    assert_eq!(clients[1], name);
    assert!(
        !crate::notes(&config)
            .iter()
            .any(|note| note.contains("client_ca"))
    );
    let unjudged = read(&with_tls(folder.path(), "", named)).unwrap();
    let notes = crate::notes(&unjudged);
    let told = |note: &String| note.contains("\"a\": \"DNS:vm1.example.org\" lets no client in");
    assert!(notes.iter().any(told), "{notes:?}");
    let of_pattern = with_tls(folder.path(), &ca, "\"DNS:*.example.org\"");
    let notes = crate::notes(&read(&of_pattern).unwrap());
    let told = |note: &String| note.contains("\"a\": \"DNS:*.example.org\" is no pattern");
    assert!(notes.iter().any(told), "{notes:?}");
    assert_eq!(
        crate::plan::at_restart(&config, &unjudged),
        ["[nbd.tls] changes at the next start"]
    );
    let later = crate::plan::until_restart(unjudged, &config);
    assert_eq!(later.nbd_tls, config.nbd_tls);
}

#[test]
fn keys_alone_are_enough_for_tls_and_clients_are_named_by_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("clients.psk");
    let write = |text: &str| {
        std::fs::write(&path, text).expect("room");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    };
    write(&format!("alice:{}\n", "0a".repeat(32)));
    let clients = "volume = \"a\"\nclients = [\"PSK:alice\"]";
    let text = format!(
        "{}tls = \"required\"\n[nbd.tls]\npsk_file = \"{}\"\n",
        file(clients),
        path.display()
    );
    let config = read(&text).unwrap();
    let tls = config.nbd_tls.as_ref().expect("it is there");
    assert_eq!(tls.certificates, None);
    assert_eq!(tls.psk_file, Some(path.clone().into()));
    let name = NbdClientName::Key("PSK:alice".into());
    assert_eq!(config.nbd_exports[0].clients, Some(vec![name]));
    let lets_none = |config| {
        let notes = crate::notes(config);
        let is_told =
            |note: &String| note.contains("lets no client in: [nbd.tls] has no `psk_file`");
        notes.iter().any(is_told)
    };
    assert!(!lets_none(&config));
    assert!(lets_none(
        &read(&text.replace("PSK:alice", "PSK:bob")).unwrap()
    ));
    for (from, to, why) in [
        ("PSK:alice", "PSK:", "behind `PSK:` stands a name"),
        (
            "psk_file",
            "client_ca = \"a.pem\"\npsk_file",
            "`certificate`",
        ),
    ] {
        let problems = read(&text.replace(from, to)).expect_err(why);
        let told = problems.iter().any(|problem| problem.text.contains(why));
        assert!(told, "{why}: {problems:?}");
    }
    write("alice:00");
    let problems = read(&text).expect_err("too short");
    let why = "`psk_file`: ";
    assert!(problems[0].text.starts_with(why), "{problems:?}");
}

#[test]
fn mistakes_of_tls_are_told_where_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = with_tls(folder.path(), "", "\"::1\"");
    let of_nfs = whole.replace("protocol = \"nbd\"", "protocol = \"nfs\"");
    let without = whole.split("[nbd.tls]").next().expect("all of it");
    for (text, part) in [
        (without.to_owned(), "`tls` wants [nbd.tls]"),
        (of_nfs, "`tls` is for NVMe/TCP and NBD"),
        (whole.replace("server.key", "ca.pem"), "`key`"),
        (
            whole.replace("\"::1\"", "\"DNS:\""),
            "`clients` takes a subject alternative name",
        ),
        (format!("{without}[nbd]\n"), "[nbd.tls]"),
    ] {
        let problems = read(&text).expect_err(part);
        let told = problems.iter().any(|problem| problem.text.contains(part));
        assert!(told, "{part}: {problems:?}");
    }
}

#[test]
fn exports_change_while_their_clients_are_connected() {
    let before = read(&file(ANY)).unwrap();
    let fixed = read(&file(&format!("{ANY}\nread_only = true"))).unwrap();
    let planned = crate::plan(&before, &fixed).unwrap();
    assert_eq!(planned.len(), 1);
    let set = Change::SetNbdExport(fixed.nbd_exports[0].clone());
    assert_eq!((&planned[0].change, planned[0].disturbs), (&set, true));
    let back = crate::plan(&fixed, &before).unwrap();
    assert!(!back[0].disturbs, "clients may do more");
    let other = read(&file(&format!("name = \"b\"\n{ANY}"))).unwrap();
    let planned = crate::plan(&before, &other).unwrap();
    let changes: Vec<_> = planned.iter().map(|step| &step.change).collect();
    let remove = Change::RemoveNbdExport { name: "a".into() };
    let add = Change::AddNbdExport(other.nbd_exports[0].clone());
    assert_eq!(changes, [&remove, &add]);
}

#[test]
fn clients_of_a_volume_that_grows_are_told_as_far_as_their_protocol_has_words() {
    let subsystem = "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\nallow_any_host = \
                     true\nvolumes = [\"a\"]\n[[listener]]\naddress = \"127.0.0.1:4420\"\n";
    let target = "[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:a\"\nallow_any_initiator = \
                  true\nvolumes = [\"a\"]\n[[listener]]\naddress = \"127.0.0.1:3260\"\n\
                  protocol = \"iscsi\"\n";
    for (more, told) in [
        ("", "2MiB: its NBD clients see it when they connect again"),
        (
            subsystem,
            "2MiB: its hosts are told, and NBD clients see it when",
        ),
        (
            target,
            "2MiB: its hosts are told, and NBD clients see it when",
        ),
    ] {
        let before = format!("{}{more}", file(ANY));
        let after = before.replace("\"1MiB\"", "\"2MiB\"");
        let planned = crate::plan(&read(&before).unwrap(), &read(&after).unwrap()).unwrap();
        assert!(planned[0].text.contains(told), "{}", planned[0].text);
    }
}
