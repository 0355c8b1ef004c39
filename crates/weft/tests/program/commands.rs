//! The binary from outside: exit codes and what is printed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use crate::serving::{file, free_port, good, serve, text, weft};

#[test]
fn check_tells_what_a_good_file_serves() {
    let file = file(&good(4420));
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "weft.toml: fine",
        "nqn.2026-01.io.weft:cli  (any host)",
        "namespace 1  disk0, file ",
        "8MiB, blocks of 4096",
        "127.0.0.1:4420",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    // It only checks.
    assert!(!file.path.with_file_name("disk0.img").exists());
}

/// Where hosts reach it, and what they are told.
#[test]
fn check_tells_what_discovery_says() {
    let more = "advertise = \"2001:db8::1\"\n\
                [[listener]]\naddress = \"127.0.0.1:8009\"\ndiscovery_only = true\n\
                [[nvme.referral]]\naddress = \"nas\"\n[policy]";
    let file = file(&good(4420).replace("[policy]", more));
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for line in [
        "  on 127.0.0.1:4420 NVMe/TCP with discovery, told to hosts as [2001:db8::1]:4420\n",
        "  on 127.0.0.1:8009 NVMe/TCP, discovery only\n",
        "  discovery names nas:8009 too\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in:\n{shown}");
    }
}

/// A configuration with one volume in an iSCSI target.
fn iscsi(port: u16, target: &str) -> String {
    format!(
        "[[volume]]\nname = \"disk0\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:cli\"\nvolumes = [\"disk0\"]\n{target}\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"iscsi\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    )
}

/// Targets and the initiators that may use them, and no secret.
#[test]
fn check_tells_what_targets_there_are_and_no_secret() {
    let chap = "initiators = [\"iqn.2026-01.org.example:h\"]\nredirect = \"nas\"\n\
                chap = { user = \"alice\", secret_file = \"alice.secret\" }";
    let file = file(&iscsi(3260, chap));
    let secret = file.path.with_file_name("alice.secret");
    std::fs::write(&secret, "correct horse battery\n").expect("a file");
    let path = file.path.to_str().expect("UTF-8");
    let open = |mode| std::fs::set_permissions(&secret, PermissionsExt::from_mode(mode));
    open(0o644).expect("ours");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("{path}:10:40: `secret_file`")),
        "{told}"
    );
    assert!(told.contains("(mode 0644); `chmod 600` it"), "{told}");
    open(0o600).expect("ours");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "  iqn.2026-01.io.weft:cli  (1 initiator, CHAP)\n    LUN 0  disk0, ram, 8MiB, blocks of 4096, no state kept\n",
        "    initiators are sent to nas:3260\n",
        "  on 127.0.0.1:3260 iSCSI\n",
        "  note: iqn.2026-01.io.weft:cli: the CHAP secret of alice has 21 bytes",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    assert!(!shown.contains("horse") && !told.contains("horse"));
}

/// Which listeners of both protocols have one state.
#[test]
fn check_says_which_states_of_paths_change_together() {
    let shares = "allow_any_initiator = true\nsubsystem = \"nqn.2026-01.io.weft:cli\"\n\
                  [[iscsi.portal_group]]\ntag = 1\n\
                  listeners = [\"127.0.0.1:3260\", \"127.0.0.1:4420\"]\n\
                  [[iscsi.portal_group]]\ntag = 2\nlisteners = [\"127.0.0.2:3260\"]\n\
                  [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:cli\"\n\
                  allow_any_host = true\nvolumes = [\"disk0\"]\n\
                  [[listener]]\naddress = \"127.0.0.1:4420\"\n\
                  [[listener]]\naddress = \"127.0.0.2:3260\"\nprotocol = \"iscsi\"";
    let file = file(&iscsi(3260, shares));
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let (iqn, nqn) = ("iqn.2026-01.io.weft:cli", "nqn.2026-01.io.weft:cli");
    for line in [
        format!(
            "  paths: states of {iqn} by portal group 1 and of {nqn} by 127.0.0.1:4420 change \
             together\n"
        ),
        format!("  paths: states of {iqn} by portal group 2 change for initiators alone;"),
    ] {
        assert!(shown.contains(&line), "{line:?} is not in:\n{shown}");
    }
}

#[test]
fn serve_says_how_initiators_connect() {
    let port = free_port();
    let file = file(&iscsi(port, "allow_any_initiator = true"));
    let serving = serve(&file.path);
    let iqn = "iqn.2026-01.io.weft:cli";
    for part in [
        format!("  {iqn}  (any initiator)\n"),
        format!("iscsiadm -m discovery -t sendtargets -p 127.0.0.1:{port}\n"),
        format!("iscsiadm -m node -T {iqn} -p 127.0.0.1:{port} --login\n"),
        format!("qemu-img info iscsi://127.0.0.1:{port}/{iqn}/0\n"),
        format!("weft discover iscsi://127.0.0.1:{port}\n"),
        format!("weft perf iscsi://127.0.0.1:{port}/{iqn}/0 --rw"),
    ] {
        let shown = &serving.shown;
        assert!(shown.contains(&part), "{part:?} is not in:\n{shown}");
    }
    let portal = format!("iscsi://127.0.0.1:{port}");
    let output = weft(&["discover", &portal]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(iqn));
    assert!(!serving.shown.contains("nvme"), "{}", serving.shown);
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
}

/// One that proves itself with what is in a file is let in, and the target
/// proves itself to it; no secret is shown on either side.
#[test]
fn secrets_are_proved_and_never_shown() {
    let port = free_port();
    let chap = "allow_any_initiator = true\n\
                chap = { user = \"alice\", secret_file = \"alice.secret\" }\n\
                mutual_chap = { user = \"weft\", secret_file = \"weft.secret\" }";
    let file = file(&iscsi(port, chap));
    let secret = |name: &str, text: &str| {
        let path = file.path.with_file_name(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
        path.to_str().expect("UTF-8").to_owned()
    };
    let alice = secret("alice.secret", "correct horse\n");
    let own = secret("weft.secret", "battery staple\n");
    let wrong = secret("wrong.secret", "incorrect horse\n");
    let serving = serve(&file.path);
    assert!(serving.shown.contains("it wants CHAP"), "{}", serving.shown);
    let url = format!("iscsi://127.0.0.1:{port}/iqn.2026-01.io.weft:cli/0");
    let perf = |secret: &str, mutual: &str| {
        let run = ["--rw", "randread", "--runtime", "100ms", "--ramp-time", "0"];
        let proof = ["--chap-user", "alice", "--chap-secret-file", secret];
        let mut arguments = vec!["perf", &url, "--mutual-secret-file", mutual];
        arguments.extend(run);
        arguments.extend(proof);
        let output = weft(&arguments);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(
            !shown.contains("horse") && !shown.contains("staple"),
            "{shown}"
        );
        (output.status.code(), shown)
    };
    let (code, shown) = perf(&alice, &own);
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = perf(&wrong, &own);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("Authentication failure"), "{shown}");
    let (code, shown) = perf(&alice, &wrong);
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("the target does not know the secret"),
        "{shown}"
    );
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(
        !rest.contains("horse") && !rest.contains("staple"),
        "{rest}"
    );
    let refusals = rest.lines().find(|line| line.starts_with("refusals"));
    let refusals = refusals.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(refusals, Some("1"), "the login with a wrong secret: {rest}");
}

#[test]
fn check_and_serve_refuse_a_bad_file_with_its_place() {
    let file = file(&good(4420).replace("size = ", "sise = "));
    let path = file.path.to_str().expect("UTF-8");
    for command in ["check", "serve"] {
        let output = weft(&[command, "-c", path]);
        assert_eq!(output.status.code(), Some(2));
        let shown = text(&output.stderr);
        assert!(
            shown.contains(&format!("{path}:5:1: unknown key `sise`")),
            "{shown}"
        );
        assert!(shown.contains("did you mean `size`?"), "{shown}");
        let excerpt = "\n  5 | sise = \"8MiB\"\n    | ^\n";
        assert!(shown.ends_with(excerpt), "{shown}");
    }
    let named = weft(&["check", path]);
    assert_eq!(named.stderr, weft(&["check", "-c", path]).stderr);
    assert_eq!(weft(&["check", path, "-c", path]).status.code(), Some(2));
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    let output = weft(&["serv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("serve"));
    assert_eq!(weft(&["check"]).status.code(), Some(2));
    assert_eq!(
        weft(&["check", "-c", "no/such.toml"]).status.code(),
        Some(2)
    );
    let version = weft(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(text(&version.stdout).starts_with("weft "));
}

#[test]
fn serve_says_how_to_connect_and_ends_in_order() {
    for signal in ["TERM", "INT"] {
        let port = free_port();
        let file = file(&good(port));
        let serving = serve(&file.path);
        for part in [
            format!("nvme discover -t tcp -a 127.0.0.1 -s {port}\n"),
            format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n nqn.2026-01.io.weft:cli\n"),
            format!("weft discover 127.0.0.1:{port}\n"),
            format!("weft perf nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:cli --rw"),
        ] {
            assert!(
                serving.shown.contains(&part),
                "{part:?} is not in:\n{}",
                serving.shown
            );
        }
        let driver = ["io_uring", "epoll"];
        assert!(driver.iter().any(|driver| serving.shown.contains(driver)));
        // Connections that say nothing do not hold it up.
        let idle: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens"))
            .collect();
        serving.signal(signal);
        let (code, rest) = serving.end();
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.contains("stopping"), "{rest}");
        assert!(rest.contains("syscalls"), "{rest}");
        for mut stream in idle {
            let mut byte = [0];
            let left = stream.read(&mut byte);
            assert!(
                !matches!(left, Ok(1)),
                "nothing was asked, so nothing is answered"
            );
        }
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn every_listener_is_served_and_its_own_initiator_reaches_it() {
    let (one, two) = (free_port(), free_port());
    let ipv6 = TcpListener::bind("[::1]:0").and_then(|listener| listener.local_addr());
    let mut text_ = good(one).replace("kind = \"file\"\npath = \"disk0.img\"", "kind = \"ram\"");
    let mut addresses = vec![format!("127.0.0.1:{one}"), format!("127.0.0.1:{two}")];
    // A machine without IPv6 is a machine too.
    addresses.extend(ipv6.map(|address| address.to_string()));
    for address in &addresses[1..] {
        text_ += &format!("[[listener]]\naddress = \"{address}\"\n");
    }
    let file = file(&text_);
    let serving = serve(&file.path);
    for address in &addresses {
        assert!(serving.shown.contains(address), "{}", serving.shown);
        let output = weft(&["discover", address]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(shown.contains("nqn.2026-01.io.weft:cli"), "{shown}");
    }
    let url = format!("nvme-tcp://{}/nqn.2026-01.io.weft:cli", addresses[1]);
    let output = weft(&[
        "perf",
        &url,
        "--rw",
        "randrw",
        "--size",
        "1m",
        "--runtime",
        "200ms",
        "--ramp-time",
        "0",
        "--verify",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with('{'));
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let file = file(&good(address.port()));
    let output = weft(&["serve", "-c", file.path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(shown.contains(&address.to_string()), "{shown}");
    assert!(shown.contains("configure another port"), "{shown}");
}

#[test]
fn a_volume_that_cannot_be_opened_is_named() {
    let file = file(&good(free_port()).replace("disk0.img", "no/such/folder/disk0.img"));
    let output = weft(&["serve", "-c", file.path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(
        shown.contains("disk0") && shown.contains("no/such/folder"),
        "{shown}"
    );
}

/// Files and nothing else: what `check` tells of them, what `serve` says to type,
/// and what a start leaves for the next one.
#[test]
fn files_are_served_by_the_commands_that_it_prints() {
    let port = free_port();
    let config = format!(
        "[nfs]\nstate = \"st\"\n\
         [[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"4MiB\"\n\
         [[file_system]]\nname = \"d\"\nkind = \"dir\"\npath = \"share\"\n\
         [[export]]\npath = \"/m\"\nfile_system = \"m\"\nallow_any_client = true\n\
         [[export]]\npath = \"/d\"\nfile_system = \"d\"\nclients = [\"127.0.0.1\"]\n\
         read_only = true\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    );
    let file = file(&config);
    let share = file.path.with_file_name("share");
    let bad = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&bad.stderr);
    assert_eq!(bad.status.code(), Some(1), "{told}");
    let missing = format!(
        "file system \"d\": cannot serve the directory {}",
        share.display()
    );
    assert!(
        told.contains(&missing) && told.contains("mkdir -p"),
        "{told}"
    );
    std::fs::create_dir(&share).expect("a folder of ours");
    let good = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    for part in [
        "  /m  (any client)\n    files of m, mem, at most 4MiB\n",
        "  /d  (1 host or network, read only)\n    files of d, dir ",
        " NFS 4.2, 4.1, 4.0 and 3\n",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
    // It only checks.
    assert!(!file.path.with_file_name("st").exists());

    let serving = serve(&file.path);
    for part in [
        format!("mount -t nfs4 -o vers=4.2,proto=tcp,nconnect=4,port={port} 127.0.0.1:/m /mnt"),
        format!("-o vers=3,proto=tcp,nolock,port={port},mountport={port},mountproto=tcp"),
        format!("'nfs://127.0.0.1/m?version=4&nfsport={port}'"),
    ] {
        assert!(
            serving.shown.contains(&part),
            "{part:?} is not in:\n{}",
            serving.shown
        );
    }
    let url = format!("nfs://127.0.0.1:{port}/m");
    let listed = weft(&["discover", &url]);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    serving.signal("TERM");
    let (code, rest) = serving.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("NFS calls"), "{rest}");
    let records = file.path.with_file_name("st").join("nfs-clients");
    assert!(
        std::fs::read_to_string(records)
            .expect("records")
            .starts_with("weft-nfs-clients 2\n")
    );
}

/// A peer that connects and sends nonsense again and again does not fill the log.
#[test]
fn flood_of_hostile_connections_writes_few_lines_and_is_counted() {
    const EACH: usize = 300;
    let ports: [u16; 3] = std::array::from_fn(|_| free_port());
    let listeners: String = (ports.iter().zip(["nvme-tcp", "iscsi", "nfs"]))
        .map(|(port, protocol)| {
            format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n")
        })
        .collect();
    let files = "[[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"4MiB\"\n\
                 [[export]]\npath = \"/m\"\nfile_system = \"m\"\nallow_any_client = true\n";
    let file = file(&format!(
        "{files}{listeners}[policy]\nmemory_max = \"1GiB\"\n"
    ));
    let serving = serve(&file.path);
    let mut command = [0; 48];
    command[0] = 0x01;
    let nonsense: [&[u8]; 3] = [&[0xff; 128], &command, &[0xff; 64]];
    for (port, bytes) in ports.into_iter().zip(nonsense) {
        for _ in 0..EACH {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            stream.write_all(bytes).expect("sent");
            // Closed, with or without a word.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    serving.signal("TERM");
    let (code, rest, log) = serving.end_and_log();
    assert_eq!(code, Some(0), "{rest}");
    let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
    assert!((3..=12).contains(&warnings), "{warnings} lines:\n{log}");
    let told: usize = (log.lines())
        .filter_map(|line| {
            line.split("count=")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum();
    assert!(told >= 3 * EACH - warnings, "{told} are told again:\n{log}");
    let refusals = rest.lines().find(|line| line.starts_with("refusals"));
    let refusals = refusals.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    assert!(refusals.is_some_and(|n: usize| n >= 3 * EACH), "{rest}");
}

/// What a start would fail at, here and now, is found before: a file that is all
/// right by itself is not enough.
#[test]
fn check_tells_what_a_start_would_miss() {
    let volumes = "[[volume]]\nname = \"sdx\"\nkind = \"block\"\npath = \"/dev/not-there\"\n\
                   [[volume]]\nname = \"far\"\nkind = \"file\"\npath = \"no/far.img\"\nsize = \"8MiB\"\n\
                   [[volume]]\nname = \"kept\"\nkind = \"ram\"\nsize = \"8MiB\"\nstate = \"none/kept\"\n\
                   [[volume]]\nname = \"small\"\nkind = \"file\"\npath = \"small.img\"\nsize = \"8MiB\"\n\
                   [[nvme.subsystem]]";
    let file = file(&good(free_port()).replacen("[[nvme.subsystem]]", volumes, 1));
    let path = file.path.to_str().expect("UTF-8");
    std::fs::write(file.path.with_file_name("small.img"), "of another").expect("a file");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    for part in [
        "volume 'sdx': cannot find /dev/not-there",
        "volume 'far': the folder ",
        "volume 'kept': the folder ",
        "'mkdir -p'",
        "volume 'small': ",
        "weft did not make the file",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
    assert!(!told.contains("disk0"), "{told}");
    // Without them the rest is served, and that is told loudly.
    let degraded = std::fs::read_to_string(&file.path).expect("ours");
    let degraded = degraded.replace("[policy]", "[policy]\nstart = \"degraded\"");
    let degraded = degraded.replace(
        "volume = \"disk0\"\n",
        "volume = \"disk0\"\n\
        [[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"sdx\"\n",
    );
    std::fs::write(&file.path, degraded).expect("ours");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("  note: volume 'sdx': cannot find"), "{told}");
    assert!(told.contains("    namespace 1  disk0"), "{told}");
    assert!(!told.contains("    namespace 2"), "{told}");
    let serving = serve(&file.path);
    let told = "  NOT SERVED: volume 'sdx': cannot find /dev/not-there";
    assert!(serving.shown.contains(told), "{}", serving.shown);
    assert_eq!(serving.shown.matches("NOT SERVED").count(), 4);
    assert!(
        serving.shown.contains("    namespace 1  disk0"),
        "{}",
        serving.shown
    );
    assert!(
        !serving.shown.contains("    namespace 2"),
        "{}",
        serving.shown
    );
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// Files in memory, a directory, and where NFS keeps what it must know.
fn files_of_two_kinds(port: u16, size: &str) -> String {
    format!(
        "[nfs]\nstate = \"st\"\n\
         [[file_system]]\nname = \"d\"\nkind = \"dir\"\npath = \"share\"\nstate = \"own\"\n\
         [[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"{size}\"\n\
         [[export]]\npath = \"/d\"\nfile_system = \"d\"\nallow_any_client = true\n\
         [[export]]\npath = \"/m\"\nfile_system = \"m\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    )
}

#[test]
fn missing_directory_takes_away_itself_alone_where_start_is_degraded() {
    let file = file(&(files_of_two_kinds(free_port(), "4MiB") + "start = \"degraded\"\n"));
    let path = file.path.to_str().expect("UTF-8");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let note = "  note: file system \"d\": cannot serve the directory ";
    assert!(
        text(&output.stdout).contains(note),
        "{}",
        text(&output.stdout)
    );
    let serving = serve(&file.path);
    let shown = &serving.shown;
    assert!(
        shown.contains("  NOT SERVED: file system \"d\": "),
        "{shown}"
    );
    assert!(shown.contains("  /m  (any client)"), "{shown}");
    assert!(!shown.contains("  /d  "), "{shown}");
    assert!(
        shown.contains(":/m /mnt") && !shown.contains(":/d /mnt"),
        "{shown}"
    );
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn check_tells_of_files_what_a_start_would_fail_at() {
    let file = file(&files_of_two_kinds(free_port(), "16TiB"));
    let at = |name: &str| file.path.with_file_name(name);
    std::fs::create_dir(at("share")).expect("a folder of ours");
    std::fs::create_dir(at("own")).expect("a folder of ours");
    std::fs::write(at("own").join("objects"), "no table").expect("a folder of ours");
    std::fs::write(at("st"), "no folder").expect("a folder of ours");
    let check = || {
        let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, told) = check();
    assert_eq!(code, Some(1));
    for part in [
        "file system \"d\": cannot serve the directory ",
        "/own is damaged",
        "file system \"m\": a size of 17592186044416 bytes does not fit in ",
        "/st what NFS must know after a restart: ",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
    std::fs::remove_file(at("st")).expect("ours");
    std::fs::create_dir(at("st")).expect("a folder of ours");
    std::fs::write(at("st").join("nfs-clients"), "no records").expect("a folder of ours");
    let (code, told) = check();
    assert_eq!(code, Some(1));
    assert!(
        told.contains("/st what NFS must know after a restart: "),
        "{told}"
    );
    // It has only looked.
    let kept = |name: &str| std::fs::read_dir(at(name)).expect("a folder").count();
    assert_eq!((kept("own"), kept("st")), (1, 1));
}

/// Also what the process has that is to be started again: told, but no mistake.
#[test]
fn check_tells_what_is_in_use_now() {
    let port = free_port();
    let file = file(&good(port));
    let path = file.path.to_str().expect("UTF-8");
    let serving = serve(&file.path);
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        format!("  note: cannot listen on 127.0.0.1:{port}: "),
        format!(
            "disk0.img is already served by process {}",
            serving.child.id()
        ),
    ] {
        assert!(shown.contains(&part), "{part:?} is not in:\n{shown}");
    }
    let elsewhere = good(port).replace("127.0.0.1", "192.0.2.1");
    std::fs::write(&file.path, elsewhere).expect("ours");
    let output = weft(&["check", "-c", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no such address"));
}
