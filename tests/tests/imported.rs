//! Configurations of other programs, imported, checked, served, and looked at by clients that
//! know nothing of weft: libiscsi's and libnfs's programs, and an NVMe host's discovery.

#![forbid(unsafe_code)]

use interop::child::output;
use interop::guest;
use interop::systems::RELEASE;
use interop::weft::{WeftProcess, binary, free_address};
use needs::needs;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// What is imported: a format, and a text in which `@PORT` and `@DIR` are filled in.
struct Source {
    format: &'static str,
    text: &'static str,
    /// The address that the import writes where the source names none.
    default: &'static str,
}

const TGT: Source = Source {
    format: "tgt",
    text: "<target iqn.2026-01.org.example:tgt>\n\
           backing-store @DIR/disk\nscsi_sn SERIAL-TGT\nvendor_id ACME\nproduct_id crate\n\
           incominguser alice what-alice-knows\n</target>\n",
    default: "0.0.0.0:3260",
};

const CTL: Source = Source {
    format: "ctl",
    text: "portal-group pg0 {\ndiscovery-auth-group no-authentication\nlisten 127.0.0.1:@PORT\n}\n\
           target iqn.2026-01.org.example:ctl {\nauth-group no-authentication\nportal-group pg0\n\
           lun 3 {\npath @DIR/disk\nserial SERIAL-CTL\noption vendor ACME\noption product crate\n}\n}\n",
    default: "",
};

const SPDK: Source = Source {
    format: "spdk",
    text: r#"{"subsystems": [
        {"subsystem": "bdev", "config": [
            {"method": "bdev_malloc_create", "params": {"name": "m0", "num_blocks": 16384,
             "block_size": 512, "uuid": "0b1c7c52-8d0e-4d0c-9c9f-5d5b1d1f0a01"}}]},
        {"subsystem": "nvmf", "config": [
            {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
            {"method": "nvmf_create_subsystem", "params": {
             "nqn": "nqn.2026-01.org.example:spdk", "allow_any_host": true,
             "serial_number": "SERIAL-SPDK"}},
            {"method": "nvmf_subsystem_add_ns", "params": {
             "nqn": "nqn.2026-01.org.example:spdk", "namespace": {"nsid": 5, "bdev_name": "m0"}}},
            {"method": "nvmf_subsystem_add_listener", "params": {
             "nqn": "nqn.2026-01.org.example:spdk", "listen_address": {"trtype": "TCP",
             "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "@PORT"}}}]}]}"#,
    default: "",
};

const EXPORTS: Source = Source {
    format: "exports",
    text: "@DIR/files 127.0.0.0/8(rw,sync,no_subtree_check,insecure)\n",
    default: "127.0.0.1:2049",
};

const GANESHA: Source = Source {
    format: "ganesha",
    text: "NFS_CORE_PARAM { NFS_Port = @PORT; Bind_addr = 127.0.0.1; }\n\
           EXPORT {\nExport_Id = 1;\nPath = @DIR/files;\nPseudo = /kept;\nProtocols = 4;\n\
           Access_Type = RO;\nSquash = root_squash;\nSecType = sys;\nFSAL { Name = VFS; }\n}\n",
    default: "",
};

/// Imports and checks a source, and serves what came of it beside its files in `folder`.
fn serve(source: &Source, folder: &Path) -> WeftProcess {
    let address = free_address();
    let text = source.text.replace("@PORT", &address.port().to_string());
    let text = text.replace("@DIR", &folder.display().to_string());
    let file = folder.join("source");
    fs::write(&file, text).expect("a file");
    let weft = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.current_dir(folder).args(arguments);
        output(&mut command).unwrap_or_else(|e| panic!("{}: {e}", source.format))
    };
    let document = weft(&["import", source.format, "source", "--secrets", "."]);
    let document = String::from_utf8(document).expect("UTF-8");
    let secrets = format!("secret_file = \"{}/", folder.display());
    let mut document = document
        .replace("secret_file = \"", &secrets)
        .replace("/var/lib/weft/nfs", "state");
    if !source.default.is_empty() {
        assert!(document.contains(source.default), "{document}");
        document = document.replace(source.default, &address.to_string());
    }
    document += "[admin]\nsocket = \"off\"\nlisten = \"off\"\n";
    let checked = folder.join("weft.toml");
    fs::write(&checked, &document).expect("a file");
    weft(&["check", "weft.toml"]);
    WeftProcess::serve(&format!("imported-{}", source.format), &document, address)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = fs::File::create(folder.path().join("disk")).expect("a disk");
    disk.set_len(8 << 20).expect("a size");
    fs::create_dir(folder.path().join("files")).expect("a folder");
    fs::write(folder.path().join("files/kept"), "what was there").expect("a file");
    folder
}

/// What a program of the packages prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let (sysroot, _) =
        guest::prepare(&RELEASE).expect("packages, as everything for a guest is there");
    let mut command = sysroot.command(&format!("usr/bin/{program}"));
    let said = output(command.args(arguments));
    let said = said.unwrap_or_else(|e| panic!("{program} {arguments:?}: {e}"));
    String::from_utf8_lossy(&said).into_owned()
}

fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word} in: {said}");
    }
}

/// An initiator sees a unit by the names that the source has given it.
fn initiator_sees(address: SocketAddr, login: &str, name: &str, serial: &str) {
    let url = format!("iscsi://{login}{address}/{name}");
    says(&run("iscsi-inq", &[&url]), &["ACME", "crate"]);
    says(
        &run("iscsi-inq", &["-e", "1", "-c", "128", &url]),
        &[serial],
    );
}

#[needs(guest)]
#[test]
fn targets_of_tgt_and_of_ctld_are_served_to_libiscsi() {
    let folder = folder();
    let target = serve(&TGT, folder.path());
    let tgt = "iqn.2026-01.org.example:tgt/1";
    let login = "alice%what-alice-knows@";
    initiator_sees(target.address(), login, tgt, "SERIAL-TGT");
    target.expect_orderly_end();

    let target = serve(&CTL, folder.path());
    let portal = format!("iscsi://{}", target.address());
    let listed = run("iscsi-ls", &["-s", &portal]);
    says(&listed, &["iqn.2026-01.org.example:ctl", "Lun:3"]);
    let ctl = "iqn.2026-01.org.example:ctl/3";
    initiator_sees(target.address(), "", ctl, "SERIAL-CTL");
    target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn exports_of_linux_and_of_ganesha_are_served_to_libnfs() {
    let folder = folder();
    let files = folder.path().join("files").display().to_string();
    for (source, path, versions) in [
        (&EXPORTS, files.as_str(), &[3, 4][..]),
        (&GANESHA, "/kept", &[4]),
    ] {
        let target = serve(source, folder.path());
        let port = target.address().port();
        for version in versions {
            let query = format!("?version={version}&nfsport={port}&mountport={port}");
            let url = format!("nfs://127.0.0.1{path}{query}");
            says(&run("nfs-ls", &[&url]), &["kept"]);
            let url = format!("nfs://127.0.0.1{path}/kept{query}");
            says(&run("nfs-cat", &[&url]), &["what was there"]);
        }
        target.expect_orderly_end();
    }
}

#[test]
fn subsystem_of_spdk_is_served_to_a_host() {
    let folder = folder();
    let target = serve(&SPDK, folder.path());
    let (address, nqn) = (target.address(), "nqn.2026-01.org.example:spdk");
    let mut discover = Command::new(binary());
    let said = output(discover.args(["discover", &address.to_string()]));
    says(
        &String::from_utf8_lossy(&said.expect("a discovery")),
        &[nqn],
    );
    let url = format!("nvme-tcp://{address}/{nqn}?nsid=5");
    let load = ["--rw=randrw", "--bs=4k", "--size=4MiB", "--verify"];
    let mut perf = Command::new(binary());
    perf.arg("perf").arg(url).args(load);
    let said = output(perf.args(["--runtime=1s", "--ramp-time=0s"]));
    says(
        &String::from_utf8_lossy(&said.expect("a load")),
        &["0 wrong"],
    );
    target.expect_orderly_end();
}
