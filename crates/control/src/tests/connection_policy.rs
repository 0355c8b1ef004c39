//! `[[connection_policy]]`.

use reactor::SocketOptions;
use server::{Change, ConnectionPolicy};

use super::*;

fn policies(text: &str) -> String {
    format!(
        "{}[[listener]]\naddress = \"127.0.0.1:4421\"\n{text}",
        file(SIZE, "", ANY, LOCAL, "")
    )
}

fn policy(text: &str) -> String {
    policies(&format!("[[connection_policy]]\n{text}"))
}

const ALL: &str = "name = \"a\"\nnetworks = [\"192.0.2.0/24\", \"2001:db8::1\"]\n\
                   listeners = [\"127.0.0.1:4421\"]\nsend_buffer_bytes = \"4KiB\"\n\
                   receive_buffer_bytes = \"1GiB\"\npacing_bytes = \"64GiB\"\npriority = 6\n\
                   dscp = 63\nbusy_poll_us = 1000\ncongestion_control = \"tcp_bbr-2\"\n\
                   fast_path = false\n";

#[test]
fn a_connection_policy_says_what_is_set_and_where() {
    let text = policy(&format!(
        "{ALL}[[connection_policy]]\nname = \"b\"\ndscp = 0\n"
    ));
    let config = read(&text).expect("sound");
    let first = ConnectionPolicy {
        name: "a".to_owned(),
        networks: vec![
            "192.0.2.0/24".parse().unwrap(),
            "2001:db8::1".parse().unwrap(),
        ],
        listeners: vec![1],
        options: SocketOptions {
            send_buffer_bytes: Some(4 << 10),
            receive_buffer_bytes: Some(1 << 30),
            pacing_bytes: Some(64 << 30),
            priority: Some(6),
            dscp: Some(63),
            busy_poll_us: Some(1000),
            congestion_control: Some("tcp_bbr-2".to_owned()),
        },
        fast_path: Some(false),
    };
    let second = ConnectionPolicy {
        name: "b".to_owned(),
        options: SocketOptions {
            dscp: Some(0),
            ..SocketOptions::default()
        },
        ..ConnectionPolicy::default()
    };
    assert_eq!(config.connection_policies, [first, second]);
}

#[test]
fn mistakes_of_connection_policies_are_told() {
    let told = |text: &str, part: &str| {
        let problems = read(&policy(text)).expect_err(text);
        let texts: Vec<&str> = problems.iter().map(|one| &*one.text).collect();
        assert!(texts.len() == 1 && texts[0].contains(part), "{texts:?}");
    };
    for (text, part) in [
        ("dscp = 1", "lacks the key `name`"),
        ("name = \"a b\"\ndscp = 1", "a connection policy's name is"),
        (
            "name = \"a\"",
            "sets nothing: it has none of `send_buffer_bytes`",
        ),
        ("name = \"a\"\ndscp = 64", "`dscp` is from 0 to 63"),
        ("name = \"a\"\npriority = 7", "`priority` is from 0 to 6"),
        ("name = \"a\"\nbusy_poll_us = 1001", "from 0 to 1000"),
        ("name = \"a\"\npacing_bytes = 1", "from 64KiB to 64GiB"),
        (
            "name = \"a\"\npacing_bytes = \"65GiB\"",
            "from 64KiB to 64GiB",
        ),
        ("name = \"a\"\nsend_buffer_bytes = 1", "from 4KiB to 1GiB"),
        (
            "name = \"a\"\nreceive_buffer_bytes = \"2GiB\"",
            "from 4KiB to 1GiB",
        ),
        (
            "name = \"a\"\ncongestion_control = \"\"",
            "such as \"reno\"",
        ),
        (
            "name = \"a\"\ncongestion_control = \"a b\"",
            "such as \"reno\"",
        ),
        (
            "name = \"a\"\ncongestion_control = \"abcdefghijklmnop\"",
            "such as",
        ),
        (
            "name = \"a\"\ndscp = 1\nnetworks = []",
            "`networks` is empty",
        ),
        (
            "name = \"a\"\ndscp = 1\nlisteners = []",
            "`listeners` is empty",
        ),
        ("name = \"a\"\ndscp = 1\nnetworks = [\"x\"]", "\"x\": "),
        (
            "name = \"a\"\ndscp = 1\nlisteners = [\"127.0.0.1:9\"]",
            "there is no [[listener]]",
        ),
        (
            "name = \"a\"\ndscp = 1\nnetworks = [\"nqn.2026-01.io.weft:h\"]",
            "before its host says its name",
        ),
        (
            "name = \"a\"\ndscp = 1\nnetworks = [\"iqn.2026-01.io.weft:h\"]",
            "before its host says its name",
        ),
        (
            "name = \"a\"\ndscp = 1\n[[connection_policy]]\nname = \"a\"\ndscp = 2",
            "is there already",
        ),
    ] {
        told(text, part);
    }
}

#[test]
fn policies_change_while_hosts_are_connected_and_cut_none() {
    let [none, a, b] = ["", ALL, "name = \"b\"\ndscp = 0\n"].map(|text| match text {
        "" => read(&policies("")).unwrap(),
        text => read(&policy(text)).unwrap(),
    });
    for (old, new) in [(&none, &a), (&a, &b), (&b, &none)] {
        let steps = plan(old, new).expect("it may change");
        let [step] = &steps[..] else {
            panic!("{steps:?}");
        };
        let set =
            |config: &Config| Change::SetConnectionPolicies(config.connection_policies.clone());
        assert_eq!((&step.change, &step.undo), (&set(new), &Some(set(old))));
        assert!(!step.disturbs && step.text.contains("those that there are stay"));
    }
    assert_eq!(plan(&a, &a), Ok(Vec::new()));
    // A listener that gets another place is the same one.
    let moved = policy(ALL).replacen("address = \"127.0.0.1:4420\"", "MARK", 1);
    let moved = moved.replacen("127.0.0.1:4421", "127.0.0.1:4420", 1);
    let moved = read(&moved.replacen("MARK", "address = \"127.0.0.1:4421\"", 1)).unwrap();
    assert_eq!(moved.connection_policies[0].listeners, [0]);
    assert_eq!(plan(&a, &moved), Ok(Vec::new()));
}

#[test]
fn explanation_names_the_policies_up_to_the_one_that_holds_and_why() {
    let config = read(&policy(&format!(
        "{ALL}[[connection_policy]]\nname = \"b\"\nnetworks = [\"192.0.2.128/25\"]\n\
         pacing_bytes = \"1MiB\"\ndscp = 8\n"
    )))
    .unwrap();
    let explain = |peer: &str, at| {
        let peer = peer.parse().unwrap();
        explain_connection_policy(&config.connection_policies, (peer, at)).join("\n")
    };
    let first = explain("192.0.2.200", 1);
    assert!(
        first.starts_with(
            "\"a\" holds: 192.0.2.200 is in 192.0.2.0/24; it sets send_buffer_bytes 4KiB"
        ),
        "{first}"
    );
    assert_eq!(
        explain("192.0.2.200", 0),
        "\"a\" does not hold: it is about other listeners\n\
         \"b\" holds: 192.0.2.200 is in 192.0.2.128/25; it sets pacing_bytes 1MiB, dscp 8"
    );
    assert_eq!(
        explain("192.0.2.1", 0),
        "\"a\" does not hold: it is about other listeners\n\
         \"b\" does not hold: 192.0.2.1 is in none of its networks\n\
         no policy holds: the kernel's own settings do"
    );
}
