//! Hosts go elsewhere before maintenance.

use std::time::Instant;

use serde_json::Value;

use crate::admin::exchange;
use crate::connected::{HOST, INITIATOR, OTHER_HOST, Open};
use crate::reload::Load;
use crate::serving::{PATIENCE, text};
use crate::told::end_in_order;

impl Open {
    /// Waits until so many hosts read and write: before that they come and go.
    fn is_used_by(&self, hosts: usize) {
        self.list(&["get", "hosts"], "hosts", |list| {
            let uses = |host: &&Value| host["ios"].as_u64() > Some(0);
            list.iter().filter(uses).count() == hosts
        });
    }

    /// The answer of `GET` at the socket.
    fn get(&self, path: &str) -> String {
        let socket = self.file.path.with_file_name("admin.sock");
        let request = format!("GET {path} HTTP/1.1\r\nHost: weft\r\nConnection: close\r\n\r\n");
        exchange(&socket, request.as_bytes())
    }

    fn is_said_to_be_drained(&self, is_drained: bool) {
        let status = if is_drained { "503" } else { "200" };
        let ready = self.get("/readyz");
        assert!(ready.starts_with(&format!("HTTP/1.1 {status}")), "{ready}");
        assert!(self.get("/healthz").starts_with("HTTP/1.1 200"));
        let metrics = self.get("/metrics");
        let metric = format!("weft_drained {}\n", u8::from(is_drained));
        assert!(metrics.contains(&metric), "{metrics}");
        let shown = self.answer(&["status"]);
        assert_eq!(shown.contains("DRAINED"), is_drained, "{shown}");
        let drain = self.json(&["status"])["drained"].is_string();
        assert_eq!(drain, is_drained);
    }
}

#[test]
fn drain_says_whom_it_cuts_and_is_refused_without_disconnect() {
    let open = Open::start();
    assert_eq!(
        open.answer(&["drain", "--dry-run"]),
        "hosts: 0, none is cut\n"
    );
    let loads = [
        open.nvme_load(HOST, 1),
        open.iscsi_load(INITIATOR),
        open.nfs_load("file"),
    ];
    open.is_used_by(3);
    let shown = open.answer(&["drain", "--dry-run"]);
    for part in [
        &format!("! {HOST}: 1 path to "),
        &format!("! {INITIATOR}: 1 path to "),
        "goes on over NFS",
        "hosts: 3, cut where they have no other path: 2\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = open.answer(&["drain", "--dry-run", "--evict"]);
    assert!(
        shown.contains("loses its sessions") && shown.contains("path: 3\n"),
        "{shown}"
    );
    let told = open.refusal(&["drain"], 1);
    assert!(
        told.contains(HOST) && told.contains("--disconnect does it"),
        "{told}"
    );
    let told = open.refusal(&["drain", "--end", "--wait", "1"], 2);
    assert!(told.contains("cannot be used with"), "{told}");
    assert_eq!(
        open.answer(&["drain", "--end"]),
        "weft is not drained: there is nothing to end\n"
    );
    open.is_said_to_be_drained(false);
    loads.into_iter().for_each(Load::end);
    end_in_order(open.serving);
}

#[test]
fn drained_weft_says_who_is_left_and_lets_hosts_in_again_at_the_end() {
    let open = Open::start();
    let hosts = [open.nvme_load(HOST, 1), open.iscsi_load(INITIATOR)];
    let stays = open.nfs_load("file");
    open.is_used_by(3);

    let at_once = || {
        let ended = open.ask(&["drain", "--disconnect", "--wait", "0"]);
        (ended.status.code(), text(&ended.stdout))
    };
    let (mut code, mut shown) = at_once();
    for part in ["no host is let in any more\n", "\nleft:\n", "\nnfs "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The load may have done nothing in the moment between two looks, so it is asked again.
    let deadline = Instant::now() + PATIENCE;
    while code == Some(0) && shown.contains("quiet: no command is in flight\n") {
        assert!(Instant::now() < deadline, "{shown}");
        (code, shown) = at_once();
    }
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("NOT QUIET after 0 s"), "{shown}");
    open.is_said_to_be_drained(true);
    // They have no other path.
    drop(hosts);
    let refused = open.nvme_load(OTHER_HOST, 2);
    open.list(&["refusals"], "refusals", |list| {
        let reason = list.iter().map(|one| one["reason"].to_string());
        reason.collect::<String>().contains("weft is drained")
    });
    drop(refused);
    stays.end();

    let shown = open.answer(&["drain", "--disconnect"]);
    for part in [
        "quiet: no command is in flight\n",
        "\ngone: ",
        HOST,
        INITIATOR,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let drained = open.json(&["drain", "--disconnect"]);
    assert_eq!(drained["is_drained"], true);
    assert_eq!(
        drained["gone"].as_array().map(Vec::len),
        Some(3),
        "{drained:#}"
    );

    let shown = open.answer(&["drain", "--end"]);
    assert!(shown.contains("hosts are let in again"), "{shown}");
    open.is_said_to_be_drained(false);
    let back = open.nvme_load(OTHER_HOST, 2);
    open.connections(&["--host", OTHER_HOST], 2);
    back.end();
    let events = open.answer(&["events"]);
    assert!(
        events.contains("drained") && events.contains("drain-ended"),
        "{events}"
    );
    let audit = open.answer(&["audit"]);
    assert!(
        audit.contains("  drain\n") && audit.contains("  drain ended\n"),
        "{audit}"
    );
    end_in_order(open.serving);
}

fn is_drain(verb: &str) -> bool {
    verb.starts_with("drain")
}

#[test]
fn drain_takes_from_nfs_clients_what_they_have_when_it_is_asked_to() {
    let open = Open::start();
    let load = open.nfs_load("file");
    let clients = |count| {
        let arguments = ["get", "nfs-clients"];
        open.list(&arguments, "clients", |list| list.len() == count)
    };
    clients(1);
    let told = open.refusal(&["drain", "--evict"], 1);
    assert!(told.contains("loses its sessions"), "{told}");
    let shown = open.answer(&["drain", "--evict", "--disconnect"]);
    assert!(shown.contains("has lost its sessions"), "{shown}");
    clients(0);
    let records = || {
        let audit = open.json(&["audit"]);
        let records = audit["records"].as_array().expect("a list").iter();
        let drains = records.filter(|record| record["verb"].as_str().is_some_and(is_drain));
        drains.count()
    };
    assert_eq!(records(), 2, "the drain, and what was taken from clients");
    // Its connection is left, and goes by its address.
    let again = open.json(&["drain", "--evict", "--disconnect"]);
    assert_eq!(again["gone"].as_array().map(Vec::len), Some(0), "{again:#}");
    assert_eq!(again["left"].as_array().map(Vec::len), Some(1), "{again:#}");
    assert_eq!(records(), 2, "nothing was done again");
    drop(load);
    open.answer(&["drain", "--end"]);
    let back = open.nfs_load("again");
    clients(1);
    back.end();
    end_in_order(open.serving);
}
