//! Whether a client gets through, tried by weft itself.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::admin::{Admin, with_socket};
use crate::serving::{file, free_port, serve};
use crate::tcp::Tcp;
use crate::told::end_in_order;

const OPEN: &str = "nqn.2026-01.io.weft:open";
const CLOSED: &str = "nqn.2026-01.io.weft:closed";
const HOST: &str = "nqn.2026-01.io.weft:host";
const OTHER: &str = "nqn.2026-01.io.weft:other";
const IQN: &str = "iqn.2026-01.io.weft:target";

/// One of everything, open and closed.
fn start() -> (Admin, [u16; 3]) {
    let ports = [free_port(), free_port(), free_port()];
    let [nvme, iscsi, nfs] = ports;
    let file = file(&with_socket(&format!(
        "[[volume]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"8MiB\"\nblock_bytes = 4096\n\
         [[nvme.subsystem]]\nnqn = \"{OPEN}\"\nvolumes = [\"disk\"]\nallow_any_host = true\n\
         [[nvme.subsystem]]\nnqn = \"{CLOSED}\"\nvolumes = [\"disk\"]\nhosts = [\"{HOST}\"]\n\
         [[iscsi.target]]\nname = \"{IQN}\"\nvolumes = [\"disk\"]\nallow_any_initiator = true\n\
         [[iscsi.target]]\nname = \"{IQN}-chap\"\nvolumes = [\"disk\"]\nallow_any_initiator = true\n\
         chap = {{ user = \"alice\", secret = \"what alice knows\" }}\n\
         [[iscsi.target]]\nname = \"{IQN}-closed\"\nvolumes = [\"disk\"]\n\
         initiators = [\"{IQN}-client\"]\n\
         [[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
         [[export]]\npath = \"/files\"\nfile_system = \"files\"\nallow_any_client = true\n\
         [[export]]\npath = \"/far\"\nfile_system = \"files\"\nclients = [\"192.0.2.1\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{nvme}\"\n\
         [[listener]]\naddress = \"127.0.0.1:{iscsi}\"\nprotocol = \"iscsi\"\n\
         [[listener]]\naddress = \"127.0.0.1:{nfs}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    )));
    // A secret stands in it.
    fs::set_permissions(&file.path, Permissions::from_mode(0o600)).expect("a mode");
    (Admin::of(serve(&file.path), file, nvme), ports)
}

/// The status of the answer to a test, and what it says.
fn tried(admin: &Admin, asked: &Value) -> (u16, Value) {
    let answer = admin.send(
        "POST /v1/self-test",
        "Connection: close\r\n",
        asked.to_string().as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"));
    (status.expect("a status"), body)
}

#[test]
fn client_that_is_let_in_reads_a_block_and_leaves() {
    let (admin, [nvme, ..]) = start();
    for (asked, steps, last) in [
        (
            json!({"subsystem": OPEN}),
            "2048 blocks of 4096 bytes",
            "disconnected",
        ),
        (
            json!({"subsystem": CLOSED, "host": HOST, "nsid": 1}),
            "read its first block",
            "disconnected",
        ),
        (
            json!({"target": IQN}),
            "2048 blocks of 4096 bytes",
            "logged out",
        ),
        (
            json!({"target": format!("{IQN}-closed"), "lun": 0, "host": format!("{IQN}-client")}),
            "read its first block",
            "logged out",
        ),
        (
            json!({"export": "/files"}),
            "read its directory: 0 names",
            "disconnected",
        ),
    ] {
        let (status, told) = tried(&admin, &asked);
        assert_eq!(status, 200, "{asked}: {told:#}");
        assert_eq!(told["outcome"], "passed", "{asked}: {told:#}");
        assert!(told["why"].is_null() && told["allow"].is_null(), "{told:#}");
        let all = told["steps"].as_array().expect("steps");
        let has = |part: &str| {
            all.iter()
                .any(|step| step.as_str().is_some_and(|s| s.contains(part)))
        };
        assert!(has(steps), "{asked}: {told:#}");
        assert_eq!(all.last().expect("a step"), last, "{told:#}");
        if asked.get("host").is_some() {
            assert_eq!(told["host"], asked["host"]);
        }
    }
    let listener = json!({"subsystem": OPEN, "listener": format!("127.0.0.1:{nvme}")});
    assert_eq!(tried(&admin, &listener).1["outcome"], "passed");
    end_in_order(admin.serving);
}

#[test]
fn client_that_is_refused_is_told_the_lines_that_let_it_in() {
    let (admin, _) = start();
    let (_, told) = tried(&admin, &json!({"subsystem": CLOSED, "host": OTHER}));
    assert_eq!(told["outcome"], "refused", "{told:#}");
    assert_eq!(told["steps"], json!([]));
    let allow = told["allow"].as_str().expect("lines");
    assert!(allow.contains(&format!("\"{OTHER}\",")), "{allow}");
    assert!(allow.contains("[[nvme.subsystem]]"), "{allow}");

    let name = format!("{IQN}-stranger");
    let (_, told) = tried(
        &admin,
        &json!({"target": format!("{IQN}-closed"), "host": name}),
    );
    assert_eq!(told["outcome"], "refused", "{told:#}");
    let allow = told["allow"].as_str().expect("lines");
    assert!(allow.contains(&name), "{allow}");

    let (_, told) = tried(&admin, &json!({"target": format!("{IQN}-chap")}));
    assert_eq!(told["outcome"], "unproven", "{told:#}");
    let unproven = told["unproven"].to_string();
    assert!(unproven.contains("the same secret"), "{unproven}");
    assert!(!told.to_string().contains("what alice knows"), "{told:#}");

    let (_, told) = tried(&admin, &json!({"export": "/far"}));
    assert_eq!(told["outcome"], "refused", "{told:#}");
    let allow = told["allow"].as_str().expect("lines");
    assert!(
        allow.contains("127.0.0.1") && allow.contains("/far"),
        "{allow}"
    );
    // Nothing of it was in the way of others.
    assert_eq!(
        tried(&admin, &json!({"subsystem": OPEN})).1["outcome"],
        "passed"
    );
    end_in_order(admin.serving);
}

#[test]
fn self_test_of_nothing_that_is_served_is_told_what_is_wrong() {
    let (admin, _) = start();
    for (asked, status, part) in [
        (json!({}), 422, "name one of subsystem, target and export"),
        (
            json!({"subsystem": OPEN, "export": "/files"}),
            422,
            "name one of",
        ),
        (json!({"subsystem": "nqn.2026-01.io.weft:opn"}), 404, OPEN),
        (
            json!({"target": "iqn.2026-01.io.weft:none"}),
            404,
            "no target",
        ),
        (json!({"export": "/nowhere"}), 404, "no export"),
        (
            json!({"subsystem": OPEN, "listener": "127.0.0.1:1"}),
            404,
            "at no such listener",
        ),
        (json!({"subsystem": OPEN, "colour": "red"}), 422, "colour"),
        (json!({"target": IQN, "lun": 16384}), 422, "from 0 to 16383"),
        (json!({"target": IQN, "lun": 65536}), 422, "65536"),
        (json!("one"), 422, "what is tried"),
        (
            json!({"subsystem": OPEN, "listener": ""}),
            422,
            "its address and port",
        ),
    ] {
        let (found, told) = tried(&admin, &asked);
        assert_eq!(found, status, "{asked}: {told:#}");
        assert!(told.to_string().contains(part), "{asked}: {told:#}");
    }
    // A namespace that is not there, and a name that is none, are what the client finds.
    for asked in [
        json!({"subsystem": OPEN, "nsid": 9}),
        json!({"subsystem": OPEN, "host": "no name"}),
        json!({"target": IQN, "lun": 9}),
        json!({"target": IQN, "host": "no name\n"}),
    ] {
        let (found, told) = tried(&admin, &asked);
        assert_eq!(
            (found, &told["outcome"]),
            (200, &json!("failed")),
            "{asked}: {told:#}"
        );
    }
    end_in_order(admin.serving);
}

/// The page has the form, and what it came to.
#[test]
fn connect_page_tests_from_here_for_operators_alone() {
    let tcp = Tcp::start();
    let nqn = "nqn.2026-01.io.weft:cli";
    let (operator, viewer) = (tcp.session("operator"), tcp.session("viewer"));
    assert!(
        tcp.get("/connect", &operator)
            .body
            .contains("Test from here")
    );
    assert!(!tcp.get("/connect", &viewer).body.contains("Test from here"));
    let to = format!("NVMe {nqn}");
    let pairs = [("to", &*to), ("host", "")];
    assert_eq!(tcp.post("/connect", &pairs, &viewer).status, 403);
    let tested = tcp.post("/connect", &pairs, &operator);
    assert_eq!(tested.status, 200, "{}", tested.body);
    assert!(
        tested.body.contains("Passed: a client gets through."),
        "{}",
        tested.body
    );
    assert!(
        tested.body.contains("read its first block"),
        "{}",
        tested.body
    );
    let wrong = tcp.post("/connect", &[("to", "nothing")], &operator);
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let wrong = tcp.post("/connect", &[("to", &*to), ("listener", "x")], &operator);
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}
