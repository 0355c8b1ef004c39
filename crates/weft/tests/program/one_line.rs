//! What is served without a file, by options.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::serving::{Serving, end_of, serve_as, text, weft};
use crate::told::end_in_order;

/// A loopback address whose usual ports no other test has.
const ADDRESS: &str = "127.0.0.77";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command
        .arg("serve")
        .args(arguments)
        .current_dir(folder)
        .env("RUNTIME_DIRECTORY", folder)
        .env("STATE_DIRECTORY", folder.join("state"));
    command
}

fn serve(folder: &Path, arguments: &[&str]) -> Serving {
    serve_as(command(folder, arguments), Stdio::piped())
}

fn ask(folder: &Path, arguments: &[&str]) -> Output {
    let socket = folder.join("admin.sock");
    let socket = socket.to_str().expect("UTF-8");
    weft(&[arguments, &["--at", socket]].concat())
}

/// One after another: they have the usual ports.
#[test]
fn options_serve_volumes_and_folders_and_are_a_configuration_that_can_be_saved() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    fs::create_dir(folder.join("share")).expect("room");
    fs::write(folder.join("disk.img"), vec![0; 1 << 20]).expect("room");
    let options = [
        "--ram",
        "8MiB",
        "--ram",
        "fast=4MiB",
        "--file",
        "disk.img",
        "--export",
        "share",
        "--listen",
        ADDRESS,
    ];
    let serving = serve(folder, &options);
    for part in [
        "namespace 1  ram, ram, 8MiB",
        "namespace 2  fast, ram, 4MiB",
        "namespace 3  disk.img, file",
        "(any host)",
        "/share  (any client)",
        "on 127.0.0.77:4420 NVMe/TCP",
        "on 127.0.0.77:3260 iSCSI",
        "on 127.0.0.77:2049 NFS",
        "nvme connect -t tcp -a 127.0.0.77",
        "127.0.0.77:/share /mnt",
    ] {
        assert!(serving.shown.contains(part), "{part}: {}", serving.shown);
    }
    let found = weft(&["discover", &format!("{ADDRESS}:4420")]);
    let nqn = text(&found.stdout);
    let nqn = nqn
        .split_whitespace()
        .find(|word| word.contains(":default-"));
    let nqn = nqn.expect("a subsystem");
    for url in [
        format!("nvme-tcp://{ADDRESS}/{nqn}?nsid=3"),
        format!("iscsi://{ADDRESS}/{}/1", nqn.replacen("nqn.", "iqn.", 1)),
        format!("nfs://{ADDRESS}/share/new"),
    ] {
        let used = weft(&[
            "perf",
            &url,
            "--rw",
            "write",
            "--size",
            "1MiB",
            "--runtime",
            "1s",
        ]);
        assert_eq!(used.status.code(), Some(0), "{url}: {}", text(&used.stderr));
    }
    assert!(folder.join("share/new").exists());

    let status = text(&ask(folder, &["status"]).stdout);
    assert!(
        status.contains("serves        the options of the command line, since"),
        "{status}"
    );

    // A change stays with this command line, and another has none of it.
    let added = ask(folder, &["add", "volume", "more", "kind=ram", "size=1MiB"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    let dumped = text(&ask(folder, &["dump"]).stdout);
    assert!(dumped.contains("name = \"more\""), "{dumped}");
    end_in_order(serving);
    let again = serve(folder, &options);
    assert!(
        again.shown.contains("note: generation 2"),
        "{}",
        again.shown
    );
    assert_eq!(text(&ask(folder, &["dump"]).stdout), dumped);
    end_in_order(again);
    let other = serve(folder, &["--ram", "1MiB", "--listen", ADDRESS]);
    assert!(!text(&ask(folder, &["dump"]).stdout).contains("more"));
    end_in_order(other);

    // It is a file like any other.
    let saved = folder.join("saved.toml");
    fs::write(&saved, &dumped).expect("room");
    let checked = weft(&["check", saved.to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));

    let taken = TcpListener::bind((ADDRESS, 3260)).expect("free");
    let refused = end_of(&mut command(
        folder,
        &["--ram", "1MiB", "--listen", ADDRESS],
    ));
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(
        told.contains("127.0.0.77:3260") && told.contains("another program"),
        "{told}"
    );
    drop(taken);
    let nowhere = end_of(&mut command(
        folder,
        &["--ram", "1MiB", "--listen", "192.0.2.1"],
    ));
    let told = text(&nowhere.stderr);
    assert!(told.contains("this machine has no such address"), "{told}");
}

#[test]
fn option_that_cannot_be_served_is_told_with_a_remedy() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    fs::write(folder.join("weft.toml"), "").expect("room");
    for (arguments, part) in [
        (&["--ram", "0"][..], "--ram 10GiB"),
        (&["--ram", "lots"], "lots"),
        (&["--file", "none.img"], "truncate -s 10GiB none.img"),
        (&["--file", "."], "--export"),
        (&["--export", "none"], "mkdir none"),
        (&["--export", "weft.toml"], "--file"),
        (&["--ram", "1MiB", "--listen", "storage"], "0.0.0.0"),
        (&["--listen", "0.0.0.0"], "--ram"),
        (&["-c", "weft.toml", "--ram", "1MiB"], "cannot be used with"),
        (
            &["--ram", "a=1MiB", "--ram", "a=1MiB"],
            "weft serve: --ram a=1MiB: a volume \"a\" is there already, of --ram a=1MiB\n",
        ),
    ] {
        let refused = end_of(&mut command(folder, arguments));
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(part), "{arguments:?}: {part}: {told}");
    }
}
