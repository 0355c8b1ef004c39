//! The console in a browser.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::Command;

use interop::browser::Browser;
use interop::guest::new_log_dir;
use interop::weft::{WeftProcess, binary, free_address};
use needs::needs;

/// Names as long as they may be, and with what HTML would take for its own.
fn config(address: SocketAddr, admin: SocketAddr) -> String {
    let iscsi = free_address();
    let long = "x".repeat(190);
    format!(
        r#"
[admin]
socket = "admin.sock"
listen = "{admin}"
state = "state"

[[volume]]
name = "disk"
kind = "ram"
size = "64MiB"

[[volume]]
name = "other"
kind = "null"
size = "1TiB"

[[nvme.subsystem]]
nqn = "nqn.2026-01.org.example:interop"
volumes = ["disk"]
allow_any_host = true

[[nvme.subsystem]]
nqn = "nqn.2026-01.org.example:{long}"
volumes = ["other"]
hosts = ["nqn.2026-01.org.example:<script>alert(1)</script>"]

[[iscsi.target]]
name = "iqn.2026-01.org.example:interop"
volumes = ["disk"]
allow_any_initiator = true

[[listener]]
protocol = "nvme-tcp"
address = "{address}"

[[listener]]
protocol = "iscsi"
address = "{iscsi}"
"#
    )
}

#[needs(browser)]
#[test]
fn every_page_is_right_in_a_browser_wide_and_narrow_light_and_dark() {
    let browser = Browser::prepare().expect("a browser");
    let (address, admin) = (free_address(), free_address());
    let target = WeftProcess::serve("console", &config(address, admin), address);
    let pictures = new_log_dir("console").expect("a folder");
    let pictures_name = pictures.display().to_string();
    let load = std::thread::spawn(move || {
        interop::weft::perf(address, &["--rw=randread", "--runtime=30s", "--rate=100"])
    });
    // It is in no list: it is refused, and let in later.
    let closed = format!("nqn.2026-01.org.example:{}", "x".repeat(190));
    let mut refused = Command::new(binary());
    refused
        .args(["perf", "--traddr", "127.0.0.1", "--runtime=1s", "--rw=read"])
        .args(["--nqn", &closed, "--trsvcid", &address.port().to_string()]);
    assert!(!refused.output().expect("it runs").status.success());
    let hosts_connect = address.to_string();
    let printed = target.run(&["login", "--role", "operator"]);
    let login = printed.lines().next().expect("an address");
    let arguments = [login, &pictures_name, &hosts_connect];
    let ran = browser.run("pages.mjs", &arguments);
    let printed = ran.unwrap_or_else(|why| panic!("{why}; pictures: {pictures_name}"));
    assert_eq!(printed.trim(), "pages: 26, looks: 4");
    let kept = std::fs::read_dir(&pictures).expect("ours").count();
    // Those of the story, too.
    assert_eq!(kept, 26 * 4 + 5, "{pictures_name}");
    load.join()
        .expect("no panic")
        .expect("every read is answered");
    target.expect_orderly_end();
}
