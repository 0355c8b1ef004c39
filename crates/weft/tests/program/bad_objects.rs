//! Mistakes in single objects, key by key, as the description of the API has the keys.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::{Map, Value, json};

use crate::admin::{Admin, exchange, with_socket};
use crate::serving::{file, free_port, good, serve};
use crate::told::end_in_order;

/// One object of each kind, beside what every test serves.
const ONE_OF_EACH: &str = r#"
[[volume]]
name = "disk1"
kind = "null"
size = "8MiB"

[[file_system]]
name = "files"
kind = "mem"
size = "16MiB"

[[export]]
path = "/files"
file_system = "files"
[[export.client]]
clients = ["127.0.0.0/8"]

[nvme]
io_queues_max = 4
[[nvme.subsystem]]
nqn = "nqn.2026-01.io.weft:second"
hosts = ["nqn.2026-01.io.weft:host"]
[[nvme.subsystem.namespace]]
nsid = 1
volume = "disk1"
[[nvme.subsystem.ana]]
group = 1
state = "optimized"
[[nvme.referral]]
address = "192.0.2.1:4420"

[iscsi]
queue_depth = 64
[iscsi.discovery.chap]
user = "someone"
secret = "twelve characters"
[[iscsi.portal_group]]
tag = 1
listeners = ["127.0.0.1:ISCSI"]
[[iscsi.target]]
name = "iqn.2026-01.io.weft:second"
portal_groups = [1]
[[iscsi.target.lun]]
lun = 0
volume = "disk1"
[[iscsi.target.initiator]]
name = "iqn.2026-01.io.weft:initiator"
[[iscsi.target.ana]]
group = 1
state = "optimized"

[nfs]
lease_ms = 60000

[[quota]]
name = "ann"
file_system = "files"
user = 1000
hard_bytes = 1048576

[[limit]]
name = "few"
volumes = ["disk1"]
iops = 1000

[[connection_policy]]
name = "far"
networks = ["192.0.2.0/24"]
dscp = 10

[[nbd_export]]
volume = "disk1"
clients = ["127.0.0.0/8"]

[[snapshot_schedule]]
name = "auto"
volumes = ["disk0"]
weekly = 1

[[listener]]
address = "127.0.0.1:ISCSI"
protocol = "iscsi"
[[listener]]
address = "127.0.0.1:NFS"
protocol = "nfs"
[[listener]]
address = "127.0.0.1:NBD"
protocol = "nbd"
"#;

const OF_ADMIN: &str = r#"[[admin.token]]
name = "one"
role = "viewer"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[[admin.group]]
name = "storage"
role = "viewer"
"#;

/// It needs certificates: tests of TLS have it.
const IN_OTHER_TESTS: &str = "admin_client";

/// A target that serves all of it.
fn start() -> Admin {
    let port = free_port();
    let all = ONE_OF_EACH.replace("ISCSI", &free_port().to_string());
    let all = all.replace("NFS", &free_port().to_string());
    let all = all.replace("NBD", &free_port().to_string());
    let file = file(&(with_socket(&(good(port) + &all)) + OF_ADMIN));
    // It holds a secret.
    fs::set_permissions(&file.path, Permissions::from_mode(0o600)).expect("ours");
    Admin::of(serve(&file.path), file, port)
}

/// A status and what is answered with it.
struct Told {
    status: u16,
    body: Value,
}

impl Told {
    fn of(answer: &str) -> Told {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.expect("a status");
        let is_problem = head.contains("content-type: application/problem+json");
        assert_eq!(is_problem, status >= 400, "{answer}");
        let body = serde_json::from_str(body).expect("JSON");
        Told { status, body }
    }

    /// What is wrong with which objects.
    fn objects(&self) -> &[Value] {
        self.body["objects"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// An object of the document, as the API shows it, and the schema of its fields.
struct Object {
    told: Value,
    path: String,
    keys: Map<String, Value>,
}

/// One object of each kind. Settings need not be in the document.
fn objects(admin: &Admin) -> Vec<Object> {
    let ask = |path: &str| {
        let answer =
            admin.exchange(format!("GET {path} HTTP/1.0\r\nHost: weft\r\n\r\n").as_bytes());
        Told::of(&answer).body
    };
    let described = ask("/v1/openapi.json");
    let there = ask("/v1/objects");
    let there = there["objects"].as_array().expect("objects");
    let kinds = control::object_kinds().filter(|kind| *kind != IN_OTHER_TESTS);
    let kinds = kinds.map(|kind| {
        // Of two, the one that has most in it stands behind.
        let mut told = there.iter().rev();
        let told = told.find(|object| object["kind"] == kind).cloned();
        let told = told.unwrap_or_else(|| json!({ "object": kind, "kind": kind, "names": [] }));
        let word = kind.replace('/', "%2F");
        let names = told["names"].as_array().expect("names").iter();
        let names: Vec<String> = names
            .map(|name| encoded(name.as_str().expect("text")))
            .collect();
        let path = [&[format!("/v1/objects/{word}")], &names[..]]
            .concat()
            .join("/");
        let is_its_own = |known: &String| {
            let rest = known.strip_prefix(&format!("/v1/objects/{word}"));
            let parts = rest.map(|rest| rest.split("/{").collect::<Vec<_>>());
            parts.is_some_and(|parts| parts[0].is_empty() && parts.len() == names.len() + 1)
        };
        let mut paths = described["paths"].as_object().expect("paths").iter();
        let (_, item) = paths.find(|(known, _)| is_its_own(known)).expect(kind);
        let schema = &item["patch"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let schema = schema.as_str().expect("a schema").trim_start_matches('#');
        let keys = described.pointer(schema).expect("there")["properties"].clone();
        let Value::Object(keys) = keys else {
            panic!("{keys}")
        };
        Object { told, path, keys }
    });
    kinds.collect()
}

/// A name in a path (RFC 3986, section 2.1).
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(one).collect()
}

/// Whether a schema takes a value, by the words that the description uses of fields.
fn takes(schema: &Value, value: &Value) -> bool {
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|one| takes(one, value));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    match schema["type"].as_str().expect("a type") {
        // What has a pattern the configuration judges.
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => {
            let items = value.as_array();
            items.is_some_and(|all| all.iter().all(|item| takes(&schema["items"], item)))
        }
        "object" => value.as_object().is_some_and(|members| {
            let is_known = |key: &String| schema["properties"].get(key).is_some();
            members.keys().all(is_known)
        }),
        other => panic!("{other} is no type that is known here"),
    }
}

/// Of every type, and at the ends of what a type has.
fn values() -> Vec<Value> {
    vec![
        json!(true),
        json!(0),
        json!(-1),
        json!(0.5),
        json!(u64::from(u32::MAX) + 1),
        json!(u64::MAX),
        json!(""),
        json!("no such word"),
        json!("a\u{0}\u{7f}\u{202e}b"),
        json!("../../../../etc/passwd"),
        json!("x".repeat(70_000)),
        json!([]),
        json!([true]),
        json!(["no such word", "no such word"]),
        json!([0, u64::MAX]),
        json!({ "no_such_key": 1 }),
    ]
}

#[test]
fn every_key_of_every_object_refuses_what_is_no_value_of_it_by_its_name() {
    let admin = start();
    let before = fs::read(&admin.file.path).expect("there");
    let (mut keys, mut refused) = (0, 0);
    for object in objects(&admin) {
        let own = object.told["object"].as_str().expect("text");
        let patch = format!("PATCH {}?dry_run=true&disconnect=true", object.path);
        for (key, schema) in &object.keys {
            keys += 1;
            for value in values() {
                let body = json!({ key: value }).to_string();
                let told = Told::of(&admin.send(&patch, "", body.as_bytes()));
                let shown: String = body.chars().take(99).collect();
                let shown = format!("{own} {shown}: {}", told.body);
                // What is right may need a restart.
                let allowed = [200, 409, 422].contains(&told.status);
                assert!(allowed, "{shown}");
                if !takes(schema, &value) {
                    assert_eq!(told.status, 422, "{shown}");
                    let first = &told.objects()[0];
                    assert_eq!(
                        (&first["object"], &first["field"]),
                        (&json!(own), &json!(key)),
                        "{shown}"
                    );
                }
                if told.status == 422 {
                    refused += 1;
                    assert!(!told.objects().is_empty(), "{shown}");
                }
                for mistake in told.objects() {
                    assert_ne!(mistake["reason"], "", "{shown}");
                    assert_ne!(mistake["hint"], "", "{shown}");
                    assert_ne!(mistake["object"], "", "{shown}");
                }
            }
        }
        let told = Told::of(&admin.send(&patch, "", b"{\"no_such_key\": 1}"));
        assert_eq!(told.status, 422, "{own}");
        assert_eq!(told.objects()[0]["field"], "no_such_key", "{own}");
        if let Some(key) = object.keys.keys().next() {
            let twice = format!("{{\"{key}\": null, \"{key}\": null}}");
            let told = Told::of(&admin.send(&patch, "", twice.as_bytes()));
            assert_eq!(told.status, 400, "{own}");
            let detail = told.body["detail"].as_str().expect("text");
            assert!(detail.contains(key) && detail.contains("twice"), "{detail}");
        }
    }
    assert!(
        keys > 150 && refused > keys * 8,
        "{keys} keys, {refused} refused"
    );
    assert_eq!(fs::read(&admin.file.path).expect("there"), before);
    assert_eq!(admin.status()["document"]["generation"], 1);
    end_in_order(admin.serving);
}

#[test]
fn object_without_a_key_that_it_needs_is_refused_by_the_name_of_the_key() {
    let admin = start();
    let mut missed = BTreeSet::new();
    for object in objects(&admin) {
        let Some(names) = object.told["names"]
            .as_array()
            .filter(|names| !names.is_empty())
        else {
            continue;
        };
        let (kind, own) = (&object.told["kind"], &object.told["object"]);
        let own_name = encoded(names.last().and_then(Value::as_str).expect("text"));
        let Some(Value::Object(fields)) = object.told.get("fields") else {
            continue;
        };
        for key in fields.keys() {
            let mut left = fields.clone();
            left.remove(key);
            // Its own name is in the path.
            let path = object.path.clone();
            let other = format!(
                "{}{}",
                path.strip_suffix(&own_name).expect("its end"),
                other_name(kind, &own_name)
            );
            left.retain(|_, value| value.as_str().is_none_or(|text| encoded(text) != own_name));
            let add = format!("POST {other}?dry_run=true&disconnect=true");
            let told = Told::of(&admin.send(&add, "", json!(left).to_string().as_bytes()));
            assert!(
                [200, 409, 422].contains(&told.status),
                "{own}: {}",
                told.body
            );
            if told.status == 422 && told.body.to_string().contains(&format!("`{key}`")) {
                missed.insert(format!("{} {key}", kind.as_str().expect("text")));
            }
        }
        let told = Told::of(&admin.send(&format!("POST {}", object.path), "", b"{}"));
        assert_eq!(told.status, 422, "{own}: {}", told.body);
        let reason = told.objects()[0]["reason"].as_str().expect("text");
        assert!(reason.contains("already"), "{own}: {reason}");
    }
    for needed in [
        "volume kind",
        "volume size",
        "file_system kind",
        "export file_system",
    ] {
        assert!(missed.contains(needed), "{needed}: {missed:?}");
    }
    end_in_order(admin.serving);
}

/// Another name of the same form.
fn other_name(kind: &Value, name: &str) -> String {
    match name.parse::<u32>() {
        Ok(number) => (number + 6).to_string(),
        Err(_) if kind == "listener" || kind == "referral" => "127.0.0.1%3A9".to_owned(),
        Err(_) => format!("{name}6"),
    }
}

#[test]
fn object_that_others_name_is_not_removed_and_they_are_told() {
    let admin = start();
    for (path, by) in [
        (
            "volume/disk1",
            &[
                "subsystem/nqn.2026-01.io.weft:second/namespace/1",
                "and 3 more",
            ][..],
        ),
        ("file_system/files", &["quota/ann", "and 1 more"]),
        ("portal_group/1", &["target/iqn.2026-01.io.weft:second"]),
    ] {
        let remove = format!("DELETE /v1/objects/{path}?dry_run=true&disconnect=true");
        let told = Told::of(&admin.send(&remove, "", b""));
        assert_eq!(told.status, 422, "{path}: {}", told.body);
        for by in by {
            assert!(
                told.body.to_string().contains(by),
                "{path}, {by}: {}",
                told.body
            );
        }
    }
    end_in_order(admin.serving);
}

#[test]
fn request_that_is_no_json_of_a_few_levels_is_refused_and_costs_no_other() {
    let admin = start();
    let deep = |open: &str, close: &str| {
        let inner = open.repeat(10_000) + &close.repeat(10_000);
        format!("{{\"kind\": {inner}}}").into_bytes()
    };
    let long = [&b"{\"kind\": \""[..], &vec![b'x'; 1 << 20], b"\"}"].concat();
    for (what, body, status) in [
        ("deep lists", deep("[", "]"), 400),
        ("deep objects", deep("{\"a\":", "}"), 400),
        ("more than 1 MiB", long, 413),
        ("NUL", b"{\"kind\": \"\0\"}".to_vec(), 400),
        ("no UTF-8", b"{\"kind\": \"\xff\"}".to_vec(), 400),
        ("half a surrogate", b"{\"kind\": \"\\ud800\"}".to_vec(), 400),
        ("an end too early", b"{\"kind\": ".to_vec(), 400),
        ("two values", b"{} {}".to_vec(), 400),
        ("a text", b"\"kind\"".to_vec(), 400),
    ] {
        let told = Told::of(&admin.send("POST /v1/objects/volume/new", "", &body));
        assert_eq!(told.status, status, "{what}: {}", told.body);
        assert_eq!(told.body["status"], status, "{what}");
    }
    for name in [
        "..%2F..%2Fetc",
        "a%00b",
        "%C0%AF",
        "%E2%80%AE",
        "a%0Ab",
        "%FF",
    ] {
        let add = format!("POST /v1/objects/volume/{name}");
        let body = br#"{"kind": "file", "path": "new.img", "size": "1MiB"}"#;
        let told = Told::of(&admin.send(&add, "", body));
        assert!([400, 422].contains(&told.status), "{name}: {}", told.body);
    }
    assert_eq!(admin.status()["document"]["generation"], 1);
    end_in_order(admin.serving);
}

#[test]
fn writers_at_the_same_time_add_all_their_objects_and_no_generation_is_left_out() {
    const WRITERS: u64 = 200;
    let admin = start();
    let socket = admin.file.path.with_file_name("admin.sock");
    let add = |n: u64| {
        let body = r#"{"kind": "null", "size": "1MiB"}"#;
        let len = body.len();
        loop {
            let shown = exchange(
                &socket,
                b"GET /v1/objects/volume/disk1 HTTP/1.0\r\nHost: weft\r\n\r\n",
            );
            let generation = Told::of(&shown).body["generation"].clone();
            let request = format!(
                "POST /v1/objects/volume/writer{n} HTTP/1.0\r\nHost: weft\r\n\
                 If-Match: \"{generation}\"\r\nContent-Length: {len}\r\n\r\n{body}"
            );
            let told = Told::of(&exchange(&socket, request.as_bytes()));
            match told.status {
                200 => return told.body["generation"].as_u64().expect("a number"),
                409 => assert_ne!(told.body["served"]["generation"], generation),
                other => panic!("{other}: {}", told.body),
            }
        }
    };
    let made: BTreeSet<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || add(n))).collect();
        let made = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"));
        made.collect()
    });
    assert_eq!(made, (2..WRITERS + 2).collect());
    let now = fs::read_to_string(&admin.file.path).expect("there");
    for n in 0..WRITERS {
        assert_eq!(now.matches(&format!("\"writer{n}\"")).count(), 1, "{n}");
    }
    let verified = admin.ask(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(0));
    end_in_order(admin.serving);
}
