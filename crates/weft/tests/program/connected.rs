//! Who is connected, as an administrator asks for it.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::reload::Load;
use crate::serving::{File, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:seen";
const IQN: &str = "iqn.2026-01.io.weft:seen";
pub const HOST: &str = "nqn.2026-01.org.example:first";
pub const OTHER_HOST: &str = "nqn.2026-01.org.example:second";
pub const INITIATOR: &str = "iqn.2026-01.org.example:first";

/// How long something may take until it is told.
const PATIENCE: Duration = Duration::from_secs(30);

/// A target of all protocols with a socket.
pub struct Open {
    pub serving: Serving,
    pub file: File,
    pub nvme: u16,
    pub iscsi: u16,
    pub nfs: u16,
}

impl Open {
    pub fn start() -> Open {
        Open::start_for("allow_any_host = true\n")
    }

    /// With these lines of the subsystem, which say the hosts that may connect.
    fn start_for(hosts: &str) -> Open {
        Open::start_with(hosts, "")
    }

    /// The same, and with these lines of the listener for NVMe.
    fn start_with(hosts: &str, listener: &str) -> Open {
        let (nvme, iscsi, nfs) = (free_port(), free_port(), free_port());
        let file = file(&format!(
            "[[volume]]\nname = \"disk{{0..3}}\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"disk0\", \"disk2\"]\n{hosts}\
             [[iscsi.target]]\nname = \"{IQN}\"\nvolumes = [\"disk1\"]\n\
             allow_any_initiator = true\n\
             [[file_system]]\nname = \"m0\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
             [[export]]\npath = \"/m0\"\nfile_system = \"m0\"\nallow_any_client = true\n\
             [[listener]]\naddress = \"127.0.0.1:{nvme}\"\n{listener}\
             [[listener]]\naddress = \"127.0.0.1:{iscsi}\"\nprotocol = \"iscsi\"\n\
             [[listener]]\naddress = \"127.0.0.1:{nfs}\"\nprotocol = \"nfs\"\n\
             [policy]\nmemory_max = \"1GiB\"\n[admin]\nsocket = \"admin.sock\"\n"
        ));
        Open {
            serving: serve(&file.path),
            file,
            nvme,
            iscsi,
            nfs,
        }
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.file.path.with_file_name("admin.sock");
        let socket = socket.to_str().expect("UTF-8");
        weft(&[arguments, &["--at", socket]].concat())
    }

    pub fn answer(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What is refused.
    pub fn refusal(&self, arguments: &[&str], code: i32) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stdout));
        text(&output.stderr)
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let answer = self.answer(&[arguments, &["--json"]].concat());
        serde_json::from_str(&answer).expect("JSON")
    }

    /// A list, when it is as it is awaited.
    pub fn list(
        &self,
        arguments: &[&str],
        member: &str,
        is_awaited: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.json(arguments);
            let list = answer[member].as_array().expect("a list");
            if is_awaited(list) {
                return list.clone();
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {answer:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// At least so many, all of which have identified themselves.
    pub fn connections(&self, more: &[&str], count: usize) -> Vec<Value> {
        let arguments = [&["get", "connections"], more].concat();
        self.list(&arguments, "connections", |list| {
            list.len() >= count && list.iter().all(|one| one["state"] != "handshake")
        })
    }

    pub fn nvme_load(&self, host: &str, nsid: u32) -> Load {
        let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid={nsid}", self.nvme);
        Load::start_as(&url, &["--hostnqn", host])
    }

    pub fn iscsi_load(&self, initiator: &str) -> Load {
        let url = format!("iscsi://127.0.0.1:{}/{IQN}/0", self.iscsi);
        Load::start_as(&url, &["--initiator", initiator])
    }

    pub fn nfs_load(&self, name: &str) -> Load {
        Load::start(&format!("nfs://127.0.0.1:{}/m0/{name}", self.nfs))
    }
}

/// An I/O queue, or what there is in its place, on which I/Os were done.
fn works(one: &Value) -> bool {
    one["ios"].as_u64().unwrap_or(0) > 0
}

#[test]
fn name_of_a_host_neither_commands_a_terminal_nor_turns_its_line_around() {
    let open = Open::start();
    let name = "nqn.2026-01.org.example:\u{202e}tsrif";
    let load = open.nvme_load(name, 1);
    open.connections(&["--host", name], 1);
    let doctor: &[&str] = &["doctor", "client", name];
    for arguments in [&["get", "hosts"][..], &["get", "connections"], doctor] {
        let told = open.answer(arguments);
        assert!(told.contains("example:\\u{202e}tsrif"), "{told}");
        assert!(!told.contains('\u{202e}'), "{told}");
    }
    drop(load);
    end_in_order(open.serving);
}

#[test]
fn connections_are_listed_with_what_is_done_on_them() {
    let open = Open::start();
    assert!(
        open.answer(&["get", "connections"])
            .contains("nothing is connected")
    );
    let loads = [
        open.nvme_load(HOST, 1),
        open.iscsi_load(INITIATOR),
        open.nfs_load("file"),
    ];
    let working = |protocol: &str| {
        let arguments = ["get", "connections", "--protocol", protocol];
        let list = open.list(&arguments, "connections", |list| list.iter().any(works));
        list.into_iter().find(works).expect("looked at")
    };
    let [nvme, iscsi, nfs] = ["nvme-tcp", "iscsi", "nfs"].map(working);
    let listener = |port: u16| Value::from(format!("127.0.0.1:{port}"));
    assert_eq!(
        (&nvme["host"], &nvme["target"]),
        (&HOST.into(), &NQN.into())
    );
    assert_eq!(
        (&nvme["listener"], &nvme["state"]),
        (&listener(open.nvme), &"connected".into())
    );
    assert_eq!(
        (&nvme["qid"], &nvme["entries"].is_u64()),
        (&1.into(), &true)
    );
    assert!(nvme["io_bytes"].as_u64() >= Some(4096), "{nvme:#}");
    assert_eq!(
        (&iscsi["host"], &iscsi["target"]),
        (&INITIATOR.into(), &IQN.into())
    );
    assert_eq!(
        (&iscsi["state"], &iscsi["cid"]),
        (&"full feature".into(), &0.into())
    );
    assert_eq!(
        (&nfs["state"], &nfs["listener"]),
        (&"connected".into(), &listener(open.nfs))
    );
    assert!(
        nfs["host"].is_string() && nfs["client"].is_string(),
        "{nfs:#}"
    );
    // Each filter alone.
    for (filter, value, protocol) in [
        ("--host", HOST, "nvme-tcp"),
        ("--host", INITIATOR, "iscsi"),
        ("--volume", "disk0", "nvme-tcp"),
        ("--volume", "disk1", "iscsi"),
    ] {
        let arguments = ["get", "connections", filter, value];
        let list = open.list(&arguments, "connections", |list| !list.is_empty());
        assert!(
            list.iter().all(|one| one["protocol"] == protocol),
            "{list:#?}"
        );
    }
    let all = open.connections(&["--host", "127.0.0.1"], 2 + 1 + 1);
    assert!(open.connections(&["--volume", "disk3"], 0).is_empty());
    let id = nvme["id"].as_str().expect("text");
    assert!(all.iter().any(|one| one["id"] == id), "{all:#?}");
    assert_eq!(open.json(&["get", "connections", id])["qid"], 1);
    let table = open.answer(&["get", "connections"]);
    assert!(table.starts_with("ID") && table.contains(HOST), "{table}");
    loads.into_iter().for_each(Load::end);
    end_in_order(open.serving);
}

#[test]
fn hosts_sessions_and_clients_are_listed_with_what_they_have() {
    let open = Open::start();
    for (kind, none) in [
        ("hosts", "no host is connected"),
        ("sessions", "no iSCSI session"),
        ("nfs-clients", "no NFS client"),
    ] {
        let shown = open.answer(&["get", kind]);
        assert!(shown.contains(none), "{shown}");
    }
    let loads = [
        open.nvme_load(HOST, 1),
        open.nvme_load(OTHER_HOST, 2),
        open.iscsi_load(INITIATOR),
        open.nfs_load("file"),
    ];
    open.connections(&[], 2 + 2 + 1 + 1);
    let hosts = open.list(&["get", "hosts"], "hosts", |list| {
        list.len() == 4 && list.iter().all(works)
    });
    let named = |name: &str| {
        let found = hosts.iter().find(|host| host["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {hosts:#?}"))
    };
    for host in [HOST, OTHER_HOST] {
        let host = named(host);
        assert!(host["connections"].as_u64() >= Some(2), "{host:#}");
        assert_eq!(
            host["controllers"].as_array().map(Vec::len),
            Some(1),
            "{host:#}"
        );
    }
    assert_eq!(named(INITIATOR)["targets"][0], IQN);
    let sessions = open.list(&["get", "sessions"], "sessions", |list| list.len() == 1);
    assert_eq!(sessions[0]["initiator"], INITIATOR);
    assert!(sessions[0]["max_burst_length"].is_u64(), "{sessions:#?}");
    let clients = open.list(&["get", "nfs-clients"], "clients", |list| list.len() == 1);
    let client = &clients[0];
    assert_eq!(
        (&client["address"], &client["status"]),
        (&"127.0.0.1".into(), &"confirmed".into())
    );
    assert!(client["opens"].as_u64() >= Some(1), "{client:#}");
    for (kind, id) in [
        ("sessions", sessions[0]["id"].as_str()),
        ("nfs-clients", client["id"].as_str()),
        ("hosts", Some(HOST)),
    ] {
        let id = id.expect("text");
        let shown = open.answer(&["get", kind, id]);
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }
    loads.into_iter().for_each(Load::end);
    end_in_order(open.serving);
}

#[test]
fn host_by_rdma_is_told_as_one_wherever_hosts_are() {
    let open = Open::start_with("allow_any_host = true\n", "rdma = true\n");
    let url = format!("rdma://127.0.0.1:{}/{NQN}?nsid=1", open.nvme);
    let loads = [
        Load::start_as(&url, &["--hostnqn", HOST]),
        open.nvme_load(OTHER_HOST, 2),
    ];
    open.connections(&[], 2 + 2);
    let told = |arguments: &[&str], name: &str| {
        let all = open.answer(arguments);
        let line = all.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{name}: {all}")).to_owned()
    };
    for (name, speaks) in [(HOST, "nvme-rdma "), (OTHER_HOST, "nvme-tcp ")] {
        for arguments in [
            &["get", "connections"][..],
            &["get", "hosts"],
            &["doctor", "client", name],
        ] {
            let line = told(arguments, name);
            assert!(line.contains(speaks), "{arguments:?}: {line}");
        }
    }
    let listener = told(&["status"], &format!("127.0.0.1:{}", open.nvme));
    assert!(listener.ends_with(" nvme-tcp, nvme-rdma"), "{listener}");
    loads.into_iter().for_each(Load::end);
    end_in_order(open.serving);
}

#[test]
fn host_that_is_not_connected_is_told_with_those_that_are() {
    let open = Open::start();
    let load = open.nvme_load(HOST, 1);
    open.connections(&[], 2);
    for (arguments, code, parts) in [
        (
            &["get", "connections", "0-7-7"][..],
            1,
            &["no connection 0-7-7", "there are "][..],
        ),
        (&["get", "hosts", "nqn.x"], 1, &["no host nqn.x", HOST]),
        (
            &["get", "hosts", "\u{1b}[2J/../x"],
            1,
            &["no host \\u{1b}[2J/../x"],
        ),
        (
            &["get", "sessions", "1"],
            1,
            &["no iSCSI session 1", "there is none"],
        ),
        (
            &["get", "nfs-clients", "0x1"],
            1,
            &["no NFS client 0x1", "there is none"],
        ),
        (
            &["get", "connections", "--volume", "disk9"],
            1,
            &["no volume disk9", "disk0, disk1"],
        ),
        (
            &["get", "connections", "--protocol", "smb"],
            1,
            &["nvme-tcp, nvme-rdma, iscsi, iser, nfs, nfs-rdma"],
        ),
        (
            &["get", "hosts", "--host", "x"],
            2,
            &["weft get connections --host NAME"],
        ),
    ] {
        let told = open.refusal(arguments, code);
        for part in parts {
            assert!(told.contains(part), "{arguments:?}: {part}: {told}");
        }
    }
    load.end();
    end_in_order(open.serving);
}

/// The IDs of connections, or of what else is listed.
fn ids(list: &[Value]) -> Vec<String> {
    let ids = list
        .iter()
        .map(|one| one["id"].as_str().expect("text").to_owned());
    ids.collect()
}

#[test]
fn eviction_ends_what_is_named_and_costs_no_other_host_an_error() {
    let open = Open::start();
    let stays = [open.nvme_load(OTHER_HOST, 2), open.nfs_load("stays")];
    let is_one = |list: &[Value]| list.len() == 1;
    let other = open.list(&["get", "nfs-clients"], "clients", is_one);
    let other_queues = ["get", "connections", "--host", OTHER_HOST];
    let queues = open.list(&other_queues, "connections", |list| list.iter().any(works));
    let evicted = [
        open.nvme_load(HOST, 1),
        open.iscsi_load(INITIATOR),
        open.nfs_load("goes"),
    ];
    let of_host = ["get", "connections", "--host", HOST];
    let before = open.list(&of_host, "connections", |list| list.iter().any(works));
    let shown = open.answer(&["evict", "host", HOST]);
    for part in [
        "controller 2 of nqn.2026-01.org.example:first at",
        "has ended",
        "may come back",
        "`allow_any_host`",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A controller that came anew has other queues.
    let gone = ids(&before);
    let is_gone = |list: &[Value]| ids(list).iter().all(|id| !gone.contains(id));
    open.list(&of_host, "connections", is_gone);
    let twice = open.refusal(&["evict", "connection", &gone[0]], 1);
    assert!(twice.contains("or not any more"), "{twice}");

    let sessions = open.list(&["get", "sessions"], "sessions", is_one);
    let session = &ids(&sessions)[0];
    let shown = open.answer(&["evict", "session", session]);
    assert!(
        shown.contains("was asked to log out") && shown.contains("`initiators`"),
        "{shown}"
    );
    open.refusal(&["get", "sessions", session], 1);

    let clients = open.list(&["get", "nfs-clients"], "clients", |list| list.len() == 2);
    let client = ids(&clients).into_iter().find(|id| *id != ids(&other)[0]);
    let client = client.expect("two of them");
    let shown = open.answer(&["evict", "nfs-client", &client]);
    assert!(
        shown.contains("has lost its sessions") && shown.contains("`clients`"),
        "{shown}"
    );
    open.refusal(&["evict", "nfs-client", &client], 1);

    let left = open.list(&other_queues, "connections", |_| true);
    assert_eq!(ids(&left), ids(&queues), "the other host keeps its queues");
    drop(evicted);
    stays.into_iter().for_each(Load::end);
    end_in_order(open.serving);
}

#[test]
fn eviction_of_a_listed_host_names_the_command_that_keeps_it_out() {
    for hosts in [
        format!("hosts = [\"{OTHER_HOST}\", \"{HOST}\"]\n"),
        format!(
            "hosts = [\"{OTHER_HOST}\"]\n\
             [[nvme.subsystem.host]]\nnqn = \"{HOST}\"\nnetworks = [\"127.0.0.0/8\"]\n"
        ),
    ] {
        let open = Open::start_for(&hosts);
        let load = open.nvme_load(HOST, 1);
        open.connections(&["--host", HOST], 2);
        let shown = open.answer(&["evict", "host", HOST]);
        let (_, command) = shown.split_once("`weft rm ").expect("a command");
        let (command, _) = command.split_once('`').expect("its end");
        let words = command.split_whitespace();
        open.answer(&Vec::from_iter(["rm"].into_iter().chain(words)));
        let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}", open.nvme);
        let again = weft(&["perf", &url, "--hostnqn", HOST, "--runtime", "100ms"]);
        assert_ne!(again.status.code(), Some(0));
        drop(load);
        end_in_order(open.serving);
    }
}

#[test]
fn eviction_of_what_is_not_there_is_told_with_what_is() {
    let open = Open::start();
    let load = open.nvme_load(HOST, 1);
    let queues = open.connections(&["--host", HOST], 2);
    for (arguments, code, part) in [
        (["evict", "connection", "9-9-9"], 1, "no connection 9-9-9"),
        (["evict", "host", "nqn.x"], 1, HOST),
        (["evict", "session", "7"], 1, "no iSCSI session 7"),
        (["evict", "nfs-client", "7"], 1, "no NFS client 7"),
        (["evict", "volume", "disk0"], 2, "possible values"),
    ] {
        let told = open.refusal(&arguments, code);
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    // One queue takes its controller with it.
    let id = &ids(&queues)[0];
    let shown = open.answer(&["evict", "connection", id]);
    assert!(shown.contains("controller 1 of"), "{shown}");
    let is_gone = |list: &[Value]| ids(list).iter().all(|id| !ids(&queues).contains(id));
    open.list(&["get", "connections"], "connections", is_gone);
    drop(load);
    end_in_order(open.serving);
}

#[test]
fn doctor_says_of_a_client_what_is_well_slow_and_refused() {
    let open = Open::start();
    let told = open.refusal(&["doctor", "client", HOST], 1);
    assert!(told.contains("nothing is known of a client"), "{told}");
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", open.nvme);
    let well = Load::start_as(&url, &["--hostnqn", HOST, "--iodepth", "64"]);
    let url = url.replace("nsid=1", "nsid=2");
    let more = ["--hostnqn", OTHER_HOST, "--iodepth", "4", "--data-digest"];
    let slow = Load::start_as(&url, &more);
    let file = open.nfs_load("file");
    for host in [HOST, OTHER_HOST] {
        open.connections(&["--host", host], 2);
    }
    let told = open.answer(&["doctor", "client", HOST]);
    assert!(
        told.contains("all is well") && told.contains("nvme-tcp"),
        "{told}"
    );
    let told = open.answer(&["doctor", "client", OTHER_HOST]);
    for part in ["! queue 1", "--queue-size=128", "has data digests"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let near = open.refusal(&["doctor", "client", &HOST.replace("first", "fist")], 1);
    assert!(near.contains(&format!("did you mean `{HOST}`?")), "{near}");
    let by_address = open.json(&["doctor", "client", "127.0.0.1"]);
    assert_eq!(
        by_address["hosts"].as_array().map(Vec::len),
        Some(3),
        "{by_address:#}"
    );
    // A subsystem that is not there.
    let wrong = format!(
        "nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:none",
        open.nvme
    );
    let refused = "nqn.2026-01.org.example:refused";
    let run = [
        "perf",
        &wrong,
        "--hostnqn",
        refused,
        "--runtime",
        "100ms",
        "--ramp-time",
        "0",
    ];
    assert_ne!(weft(&run).status.code(), Some(0));
    let told = open.answer(&["doctor", "client", refused]);
    assert!(
        told.contains("Connect refused") && told.contains("no such subsystem"),
        "{told}"
    );
    [well, slow, file].into_iter().for_each(Load::end);
    end_in_order(open.serving);
}
