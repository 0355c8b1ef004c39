//! `[[connection_policy]]`: what the kernel is to do with what goes over connections.

use std::collections::HashMap;
use std::net::IpAddr;

use reactor::SocketOptions;
use server::{ConnectionPolicy, ListenerSpec, check};

use crate::format_size;
use crate::nvme::listener;
use crate::schema::{CONNECTION_POLICY, SCHEMA};
use crate::source::{Section, Sink};
use crate::targets::networks;

/// The keys that say what is set.
const OPTIONS: [&str; 8] = [
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "pacing_bytes",
    "priority",
    "dscp",
    "busy_poll_us",
    "congestion_control",
    "fast_path",
];

/// Bytes of a socket's buffer (the kernel keeps twice as much, and counts it in 31 bits).
const BUFFER_BYTES: (u64, u64) = (4 << 10, 1 << 30);
/// Bytes a second; below that TCP stands still.
const PACING_BYTES: (u64, u64) = (64 << 10, 64 << 30);
/// Higher ones are for CAP_NET_ADMIN alone (socket(7)).
const PRIORITIES: (u64, u64) = (0, 6);
/// Six bits (RFC 2474, section 3).
const DSCPS: (u64, u64) = (0, 63);
/// A reactor that polls longer does nothing else for too long.
const BUSY_POLL_US: (u64, u64) = (0, 1_000);
/// Bytes of a name with its end (TCP_CA_NAME_MAX).
const CONGESTION_NAME_BYTES: usize = 16;

pub(crate) fn connection_policies(
    sink: &mut Sink,
    file: &Section,
    listeners: &[ListenerSpec],
) -> Vec<ConnectionPolicy> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut policies = Vec::new();
    for section in file.tables(sink, SCHEMA, "connection_policy", CONNECTION_POLICY) {
        section.missing(sink, "name", "name = \"backup\"");
        let name = section.text(sink, "name");
        if let Some(name) = &name {
            if let Err(why) = check::connection_policy_name(name.value) {
                sink.add(&name.span, why);
            }
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(name.value.to_owned(), line) {
                let there = format!("a connection policy \"{}\" is there already, ", name.value);
                sink.add_with_line(&name.span, (&there, first, ""));
            }
        }
        let has_addresses = expect_addresses(sink, &section);
        let by = section.texts(sink, "listeners").unwrap_or_default();
        let by = by.iter().filter_map(|text| listener(sink, text, listeners));
        policies.push(ConnectionPolicy {
            name: name.map(|name| name.value.to_owned()).unwrap_or_default(),
            listeners: by.collect(),
            networks: has_addresses
                .then(|| networks(sink, &section))
                .flatten()
                .unwrap_or_default(),
            options: options(sink, &section),
            fast_path: section.flag(sink, "fast_path"),
        });
    }
    policies
}

/// Whether its networks are such. An empty list would be one that is about all, and names of
/// hosts come too late.
fn expect_addresses(sink: &mut Sink, section: &Section) -> bool {
    for key in ["networks", "listeners"] {
        if section
            .texts(sink, key)
            .is_some_and(|texts| texts.is_empty())
        {
            let text = format!(
                "`{key}` is empty: name some, or leave it out, and the policy is about all"
            );
            sink.add(&section.span_of(key), text);
        }
    }
    let texts = section.texts(sink, "networks").unwrap_or_default();
    let is_name = |text: &str| {
        ["nqn.", "iqn.", "eui.", "naa."]
            .iter()
            .any(|of| text.starts_with(of))
    };
    let named = texts.iter().find(|text| is_name(text.value));
    if let Some(name) = named {
        let text = format!(
            "\"{}\": what a connection policy sets is set when a connection is accepted, before its \
             host says its name: write the addresses of that host",
            name.value
        );
        sink.add(&name.span, text);
    }
    named.is_none()
}

fn options(sink: &mut Sink, section: &Section) -> SocketOptions {
    if !OPTIONS.iter().any(|key| section.has(key)) {
        let all = OPTIONS.map(|key| format!("`{key}`")).join(", ");
        let text = format!("{CONNECTION_POLICY} sets nothing: it has none of {all}");
        sink.add(&section.span, text);
    }
    let size = |sink: &mut Sink, key, range| within(sink, section, key, (range, true));
    let number = |sink: &mut Sink, key, range| within(sink, section, key, (range, false));
    SocketOptions {
        send_buffer_bytes: size(sink, "send_buffer_bytes", BUFFER_BYTES).map(|n| n as u32),
        receive_buffer_bytes: size(sink, "receive_buffer_bytes", BUFFER_BYTES).map(|n| n as u32),
        pacing_bytes: size(sink, "pacing_bytes", PACING_BYTES),
        priority: number(sink, "priority", PRIORITIES).map(|n| n as u32),
        dscp: number(sink, "dscp", DSCPS).map(|n| n as u8),
        busy_poll_us: number(sink, "busy_poll_us", BUSY_POLL_US).map(|n| n as u32),
        congestion_control: congestion_control(sink, section),
    }
}

fn within(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    ((least, most), sized): ((u64, u64), bool),
) -> Option<u64> {
    let number = section.number(sink, key, sized)?;
    if (least..=most).contains(&number.value) {
        return Some(number.value);
    }
    let shown = |value: u64| match sized {
        true => format_size(value),
        false => value.to_string(),
    };
    let text = format!("`{key}` is from {} to {}", shown(least), shown(most));
    sink.add(&number.span, text);
    None
}

/// A name that the kernel may know: whether it does is its own to say.
fn congestion_control(sink: &mut Sink, section: &Section) -> Option<String> {
    let name = section.text(sink, "congestion_control")?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let fits = !name.value.is_empty() && name.value.len() < CONGESTION_NAME_BYTES;
    if fits && name.value.chars().all(is_word) {
        return Some(name.value.to_owned());
    }
    let text = "`congestion_control` is a name from `sysctl net.ipv4.tcp_allowed_congestion_control`, \
                such as \"reno\"";
    sink.add(&name.span, text);
    None
}

/// Which connection policy holds for what comes from `peer` by a listener, and why: a line for
/// each that is asked, up to the first that matches.
#[must_use]
pub fn explain_connection_policy(
    policies: &[ConnectionPolicy],
    (peer, at): (IpAddr, u16),
) -> Vec<String> {
    let mut lines = Vec::new();
    for policy in policies {
        let name = &policy.name;
        let networks = &policy.networks;
        let network = networks.iter().find(|network| network.has(peer));
        if !policy.listeners.is_empty() && !policy.listeners.contains(&at) {
            lines.push(format!(
                "\"{name}\" does not hold: it is about other listeners"
            ));
        } else if network.is_none() && !networks.is_empty() {
            lines.push(format!(
                "\"{name}\" does not hold: {peer} is in none of its networks"
            ));
        } else {
            let why = match network {
                Some(network) => format!("{peer} is in {network}"),
                None => "it is about every address".to_owned(),
            };
            lines.push(format!("\"{name}\" holds: {why}; it sets {}", told(policy)));
            return lines;
        }
    }
    lines.push("no policy holds: the kernel's own settings do".to_owned());
    lines
}

fn told(policy: &ConnectionPolicy) -> String {
    let options = &policy.options;
    let size = |bytes: Option<u32>| bytes.map(|bytes| format_size(bytes.into()));
    let values = [
        size(options.send_buffer_bytes),
        size(options.receive_buffer_bytes),
        options.pacing_bytes.map(format_size),
        options.priority.map(|value| value.to_string()),
        options.dscp.map(|value| value.to_string()),
        options.busy_poll_us.map(|value| value.to_string()),
        options.congestion_control.clone(),
        policy.fast_path.map(|fast| fast.to_string()),
    ];
    let set = OPTIONS.iter().zip(values);
    let set = set.filter_map(|(key, value)| Some(format!("{key} {}", value?)));
    set.collect::<Vec<_>>().join(", ")
}
