//! Generations of the document, and what keeps them, from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use needs::needs;

use crate::admin::{Admin, connect, with_listener, with_socket};
use crate::serving::{Serving, file, free_port, good, serve_by, text, weft};
use crate::told::{end_in_order, is_served};

#[test]
fn history_lists_what_was_served_and_rollback_serves_it_again() {
    let admin = Admin::start();
    let first = fs::read_to_string(&admin.file.path).expect("there");
    let new = free_port();
    let second = with_socket(&with_listener(&good(admin.port), new));
    let path = admin.file.path.with_file_name("second.toml");
    fs::write(&path, format!("# By hand.\n{second}")).expect("room");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(admin.ask(&["apply", "-c", path]).status.code(), Some(0));
    let shown = text(&admin.ask(&["history"]).stdout);
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["GENERATION", "TIME", "UID", "CHANGES", "VERB"]);
    let of = |n: usize| (lines[n][0], lines[n][4], lines[n][3]);
    assert_eq!(
        (of(1), of(2)),
        (("1", "start", "0"), ("2", "apply", "1")),
        "{shown}"
    );
    assert_eq!(text(&admin.ask(&["history", "1"]).stdout), first);
    // What is served loads to the very same.
    let dump = admin.ask(&["dump"]).stdout;
    assert_eq!(dump, fs::read(&admin.file.path).expect("there"));
    assert_eq!(text(&dump), format!("# By hand.\n{second}"));
    let copy = admin.file.path.with_file_name("dump.toml");
    fs::write(&copy, &dump).expect("room");
    let output = admin.ask(&["diff", "-c", copy.to_str().expect("UTF-8")]);
    assert_eq!(text(&output.stdout), "nothing to do\n");
    let output = admin.ask(&["rollback", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("! listener 127.0.0.1:{new}")),
        "{told}"
    );
    let output = admin.ask(&["rollback", "1", "--disconnect", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(is_served(&connect(new).expect("it listens")));
    let output = admin.ask(&["rollback", "1", "--disconnect"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(connect(new).is_err());
    assert_eq!(fs::read_to_string(&admin.file.path).expect("there"), first);
    assert_eq!(admin.status()["document"]["generation"], 3);
    let output = admin.ask(&["rollback", "9"]);
    let told = text(&output.stderr);
    assert!(told.contains("there is no generation 9"), "{told}");
    end_in_order(admin.serving);
}

#[test]
fn change_of_a_generation_that_is_served_no_more_is_a_conflict() {
    let admin = Admin::start();
    let config = b"GET /v1/config HTTP/1.1\r\nHost: weft\r\n\r\n";
    let answer = admin.exchange(config);
    assert!(answer.contains("etag: \"1\"\r\n"), "{answer}");
    assert!(
        answer.contains("content-type: application/toml\r\n"),
        "{answer}"
    );
    let other = admin.other_file(&with_listener(&good(admin.port), free_port()));
    let apply = ["apply", "-c", &other, "--if-generation", "1"];
    let output = admin.ask(&apply);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = admin.ask(&apply);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("generation 2 is served"), "{told}");
    let body = fs::read(&other).expect("there");
    let answer = admin.send("PUT /v1/config", "If-Match: \"1\"\r\n", &body);
    for part in [
        "HTTP/1.1 409 ",
        "application/problem+json",
        ":generation-conflict\"",
        "\"generation\":2",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    for tags in ["\"2\"", "\"7\", \"2\"", "*"] {
        let answer = admin.send("PUT /v1/config", &format!("If-Match: {tags}\r\n"), &body);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{tags}: {answer}");
        assert!(answer.contains("etag: \"2\"\r\n"), "{answer}");
    }
    // What weft gave matches to the letter (RFC 9110, section 8.8.3.2).
    for tags in ["\"02\"", "\"+2\""] {
        let answer = admin.send("PUT /v1/config", &format!("If-Match: {tags}\r\n"), &body);
        assert!(answer.starts_with("HTTP/1.1 409 "), "{tags}: {answer}");
    }
    end_in_order(admin.serving);
}

#[test]
fn edit_by_hand_is_not_overwritten_and_the_refusal_says_what_to_do() {
    let admin = Admin::start();
    let other = admin.other_file(&with_listener(&good(admin.port), free_port()));
    let edited = format!("{}# Edited.\n", with_socket(&good(admin.port)));
    fs::write(&admin.file.path, &edited).expect("ours");
    let output = admin.ask(&["apply", "-c", &other]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    let path = admin.file.path.to_str().expect("UTF-8");
    assert!(
        told.contains(&format!("`weft apply -c {path}` or SIGHUP")),
        "{told}"
    );
    assert_eq!(fs::read_to_string(path).expect("there"), edited);
    for file in [path, &other] {
        let output = admin.ask(&["apply", "-c", file]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    end_in_order(admin.serving);
}

#[test]
fn text_of_another_folder_has_its_paths_made_absolute() {
    let admin = Admin::start();
    let folder = admin.file.path.parent().expect("a folder");
    let below = folder.join("below");
    fs::create_dir(&below).expect("a folder");
    let text_of = |before: &str| {
        let mut moved = with_socket(&with_listener(&good(admin.port), free_port()));
        for name in ["disk0.img", "admin.sock", "state\""] {
            moved = moved.replace(&format!("\"{name}"), &format!("\"{before}/{name}"));
        }
        format!("# Moved.\n{moved}")
    };
    let path = below.join("weft.toml");
    let apply = ["apply", "-c", path.to_str().expect("UTF-8")];
    // Another path to the same file is another one.
    fs::write(&path, text_of("..")).expect("room");
    let output = admin.ask(&apply);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    // What is served lies where it did.
    let absolute = text_of(folder.to_str().expect("UTF-8"));
    fs::write(&path, &absolute).expect("room");
    let output = admin.ask(&apply);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        fs::read_to_string(&admin.file.path).expect("there"),
        absolute
    );
    // A new volume's path is.
    let disk = "\n[[volume]]\nname = \"disk1\"\nkind = \"file\"\npath = \"disk1.img\"\n\
                size = \"1MiB\"\n";
    fs::write(&path, absolute + disk).expect("room");
    let output = admin.ask(&apply);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(below.join("disk1.img").exists());
    let now = fs::read_to_string(&admin.file.path).expect("there");
    let line = format!("path = \"{}/disk1.img\"", below.display());
    assert!(now.contains(&line), "{now}");
    end_in_order(admin.serving);
}

/// A target in a mount namespace of its own, after a script that mounts.
fn serve_mounted(script: &str, config: &Path) -> Serving {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec"]);
    command.arg(format!("{script}\nexec \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_weft"));
    serve_by(command, config, Stdio::piped())
}

#[needs(mount, mount_namespace)]
#[test]
fn full_disk_of_the_state_refuses_the_change_and_costs_no_io() {
    let port = free_port();
    let file = file(&with_socket(&good(port)));
    let state = file.path.with_file_name("state");
    fs::create_dir(&state).expect("a folder");
    let state = state.display();
    let script = format!(
        "mount -t tmpfs -o size=64k none {state}\nhead -c 64k /dev/zero > {state}/full || true"
    );
    let admin = Admin::of(serve_mounted(&script, &file.path), file, port);
    let before = fs::read(&admin.file.path).expect("there");
    let other = admin.other_file(&with_listener(&good(port), free_port()));
    let url = format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:cli");
    let load = [
        "--runtime",
        "1s",
        "--ramp-time",
        "0",
        "--rw",
        "randrw",
        "--verify",
    ];
    let perf = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["perf", &url])
        .args(load)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weft starts");
    for _ in 0..10 {
        let output = admin.ask(&["apply", "-c", &other]);
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains("No space left on device"), "{told}");
    }
    let output = perf.wait_with_output().expect("our child");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read(&admin.file.path).expect("there"), before);
    let answer = admin.send("PUT /v1/config", "", &fs::read(&other).expect("there"));
    assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
    assert_eq!(admin.status()["document"]["generation"], 1);
    end_in_order(admin.serving);
}

#[needs(mount, mount_namespace)]
#[test]
fn file_that_cannot_be_replaced_leaves_changes_to_the_generations() {
    let port = free_port();
    let file = file(&with_socket(&good(port)));
    let script = format!("mount --bind {0} {0}", file.path.display());
    let path = file.path.clone();
    let first = fs::read_to_string(&path).expect("there");
    let admin = Admin::of(serve_mounted(&script, &path), file, port);
    let new = free_port();
    let other = admin.other_file(&with_listener(&good(port), new));
    let output = admin.ask(&["apply", "-c", &other]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        told.contains("generation 2; changes are kept in "),
        "{told}"
    );
    assert!(told.contains("it is mounted by itself"), "{told}");
    assert_eq!(fs::read_to_string(&path).expect("there"), first);
    let Admin { serving, file, .. } = admin;
    end_in_order(serving);
    // The next start serves it, and says so.
    let mut serving = serve_mounted(&script, &path);
    serving.log_line("generation 2, ");
    assert!(
        serving.shown.contains("note: generation 2, "),
        "{}",
        serving.shown
    );
    assert!(is_served(&connect(new).expect("it listens")));
    // SIGHUP reads a file that says what it said.
    serving.signal("HUP");
    serving.log_line("changes=0");
    assert!(is_served(&connect(new).expect("it listens")));
    end_in_order(serving);
    // Until somebody edits the file.
    fs::write(&path, format!("{first}# Edited.\n")).expect("ours");
    let admin = Admin::of(serve_mounted(&script, &path), file, port);
    assert!(
        admin
            .serving
            .shown
            .contains("has changed since generation 2")
    );
    assert!(connect(new).is_err());
    assert_eq!(admin.status()["document"]["generation"], 3);
    end_in_order(admin.serving);
}

#[test]
fn configuration_from_a_pipe_is_served_and_not_changed() {
    let port = free_port();
    let file = file(&with_socket(&good(port)));
    let folder = file.path.parent().expect("a folder").to_owned();
    let mut command = Command::new("sh");
    // The paths in it are absolute: a pipe lies in no folder.
    let script = format!(
        "sed 's#\"disk0.img#\"{0}/disk0.img#; s#\"admin#\"{0}/admin#; s#\"state#\"{0}/state#' {1} | \
         \"$0\" serve -c /dev/stdin",
        folder.display(),
        file.path.display()
    );
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weft")]);
    let serving = serve_by(command, Path::new("unused"), Stdio::piped());
    let socket = folder.join("admin.sock");
    let socket = socket.to_str().expect("UTF-8");
    let other = folder.join("other.toml");
    fs::write(&other, with_socket(&good(port)).replace("8MiB", "9MiB")).expect("room");
    let other = other.to_str().expect("UTF-8");
    let status = weft(&["status", "--at", socket]);
    let told = text(&status.stdout);
    assert!(
        told.contains("changes cannot be kept: the configuration came from a pipe"),
        "{told}"
    );
    let pid = status_pid(socket);
    let output = weft(&["apply", "-c", other, "--at", socket]);
    assert_ne!(output.status.code(), Some(0));
    let end = Command::new("kill").arg(pid.to_string()).status();
    assert!(end.expect("it is there").success());
    assert_eq!(serving.end().0, Some(0));
}

fn status_pid(socket: &str) -> u64 {
    let output = weft(&["status", "--json", "--at", socket]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pid"].as_u64().expect("a number")
}

#[test]
fn audit_lists_changes_and_refusals_and_verify_finds_what_was_altered() {
    let admin = Admin::start();
    let other = admin.other_file(&with_listener(&good(admin.port), free_port()));
    assert_eq!(admin.ask(&["apply", "-c", &other]).status.code(), Some(0));
    assert_eq!(admin.ask(&["rollback", "1"]).status.code(), Some(1));
    let shown = text(&admin.ask(&["audit"]).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[1].contains(" made ") && lines[1].ends_with(" apply"),
        "{shown}"
    );
    assert!(
        lines[2].contains(" disturbs ") && lines[2].ends_with(" rollback to 1"),
        "{shown}"
    );
    let verified = admin.ask(&["audit", "verify"]);
    let told = text(&verified.stdout);
    assert_eq!(verified.status.code(), Some(0), "{told}");
    let path = told.split(": 2 records").next().expect("a path");
    let records = fs::read_to_string(path).expect("there");
    fs::write(path, records.replace("apply", "reply")).expect("ours");
    let verified = admin.ask(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(1));
    let told = text(&verified.stdout);
    assert!(
        told.contains("line 2, record 2: a record before it was changed"),
        "{told}"
    );
    end_in_order(admin.serving);
}
