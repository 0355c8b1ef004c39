//! What NFS must know after a restart, where the configuration says nothing of that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use needs::needs;
use testkit::free_port;

use crate::serving::{serve, serve_by};

const CONFIG: &str = "
[admin]
socket = \"off\"
[[file_system]]
name = \"files\"
kind = \"dir\"
path = \"share\"
state = \"handles\"
[[export]]
path = \"/files\"
file_system = \"files\"
allow_any_client = true
[[listener]]
address = \"127.0.0.1:PORT\"
protocol = \"nfs\"
";
const LOST: &str = "NFS clients lose the locks";

fn config(folder: &Path, text: &str) -> PathBuf {
    fs::create_dir_all(folder.join("share")).expect("room");
    let config = folder.join("weft.toml");
    let text = text.replace("PORT", &free_port().to_string());
    fs::write(&config, text).expect("room");
    config
}

/// The folders that documents have for NFS.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let documents = fs::read_dir(folder.join("state/documents"));
    let documents = documents
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path());
    let folders = documents.map(|document| document.join("nfs"));
    folders.filter(|folder| folder.exists()).collect()
}

#[test]
fn nfs_state_has_a_private_folder_of_its_own_by_default() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let serving = serve(&config(folder, CONFIG));
    assert!(!serving.shown.contains(LOST), "{}", serving.shown);
    let [of_nfs] = &folders(folder)[..] else {
        panic!("{:?}", folders(folder));
    };
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(of_nfs), 0o700);
    assert!(of_nfs.join("nfs-clients").exists());
    // Another of the same document has files of its own, and says what it lacks.
    let other = CONFIG
        .replace("\"handles\"", "\"others\"")
        .replace("\"share\"", "\"shared\"");
    fs::create_dir(folder.join("shared")).expect("room");
    let second = serve(&config(folder, &other));
    let told = [LOST, "another weft uses this folder", "`state` of [nfs]"];
    for part in told {
        assert!(second.shown.contains(part), "{part}: {}", second.shown);
    }
}

#[test]
fn nfs_state_that_cannot_be_written_is_told_and_weft_serves() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let config = config(folder, CONFIG);
    fs::write(folder.join("state"), "no folder").expect("room");
    let serving = serve(&config);
    assert!(serving.shown.contains(LOST), "{}", serving.shown);
}

/// It was made when it could be, and the disk is read-only since.
#[needs(mount_namespace)]
#[test]
fn nfs_state_that_cannot_be_written_any_more_is_told_and_weft_serves() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let config = config(folder, CONFIG);
    // As the same user both times, who may give files to no other.
    let run = |before: &str, at: &Path| {
        let script = format!("{before} shift && exec \"$@\"");
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", &script, "sh"])
            .arg(at)
            .arg(env!("CARGO_BIN_EXE_weft"));
        serve_by(command, &config, Stdio::piped())
    };
    drop(run("", folder));
    let [of_nfs] = &folders(folder)[..] else {
        panic!("{:?}", folders(folder));
    };
    let kept = fs::read(of_nfs.join("nfs-clients")).expect("it is there");
    let read_only = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" &&";
    let serving = run(read_only, of_nfs);
    for part in [LOST, &*of_nfs.display().to_string(), "Read-only"] {
        assert!(serving.shown.contains(part), "{part}: {}", serving.shown);
    }
    assert_eq!(
        fs::read(of_nfs.join("nfs-clients")).expect("it is there"),
        kept
    );
}

#[test]
fn nothing_is_kept_by_default_of_clients_whose_files_do_not_outlive_weft() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let of_dir = "kind = \"dir\"\npath = \"share\"\nstate = \"handles\"";
    let of_mem = "kind = \"mem\"\nsize = \"1MiB\"";
    let config = config(folder, &CONFIG.replace(of_dir, of_mem));
    let serving = serve(&config);
    assert!(!serving.shown.contains(LOST), "{}", serving.shown);
    assert_eq!(folders(folder), Vec::<PathBuf>::new());
}

#[test]
fn dir_that_comes_where_nothing_is_kept_of_clients_is_told() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let of_dir = "kind = \"dir\"\npath = \"share\"\nstate = \"handles\"";
    let of_mem = "kind = \"mem\"\nsize = \"1MiB\"";
    let config = config(folder, &CONFIG.replace(of_dir, of_mem));
    let mut serving = serve(&config);
    let text = fs::read_to_string(&config).expect("it is there");
    let added = format!("{text}[[file_system]]\nname = \"later\"\n{of_dir}\n");
    fs::write(&config, added).expect("room");
    serving.signal("HUP");
    let line = serving.log_line(LOST);
    assert!(line.contains("later"), "{line}");
}
