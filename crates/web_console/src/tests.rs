use api::{
    ConfigObject, ConfigObjects, ConnectionStatus, Connections, Protocol, RefusalSummary, Refusals,
};

use super::*;

const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;";

fn page(path: &str) -> Page<'_> {
    Page {
        path,
        caller: HOSTILE,
        role: "viewer",
    }
}

fn connection(number: u64) -> ConnectionStatus {
    let address = "127.0.0.1:4420".parse().expect("an address");
    ConnectionStatus {
        id: number.to_string(),
        protocol: Protocol::NvmeTcp,
        peer: address,
        local: address,
        listener: Some(address),
        host: Some(format!("{HOSTILE}{number}")),
        target: Some(HOSTILE.to_owned()),
        state: "connected".to_owned(),
        reactor: 0,
        age_ms: 0,
        idle_ms: 0,
        ios: number * 7919 % 10_007,
        io_bytes: 0,
        in_flight: 0,
        held_bytes: 0,
        waits_for_memory: false,
        header_digest: false,
        data_digest: false,
        cntlid: Some(1),
        qid: Some(1),
        entries: Some(32),
        tsih: None,
        cid: None,
        client: None,
    }
}

fn connections_of(count: u64) -> Connections {
    Connections {
        connections: (0..count).map(connection).collect(),
        has_more: false,
        silent_reactors: 0,
    }
}

#[track_caller]
fn assert_harmless(html: &str) {
    // What a host sends is text everywhere: no element and no attribute of its own.
    assert_eq!(html.matches("<script").count(), 1, "{html}");
    assert!(!html.contains("<img"), "{html}");
    // The policy forbids what stands inline.
    for forbidden in [" style=", " onclick=", "javascript:", "<style"] {
        assert!(!html.contains(forbidden), "{forbidden}: {html}");
    }
}

#[test]
fn names_that_are_html_are_text() {
    let query = TableQuery::of([("filter", HOSTILE), ("sort", HOSTILE)]);
    let refused = RefusalSummary {
        first_unix_s: 0,
        last_unix_s: 1,
        count: 1,
        kind: "Connect refused".to_owned(),
        address: None,
        host: Some(HOSTILE.to_owned()),
        target: Some(HOSTILE.to_owned()),
        reason: HOSTILE.to_owned(),
        allow: Some(HOSTILE.to_owned()),
    };
    let object = ConfigObject {
        object: format!("volume {HOSTILE}"),
        kind: "volume".to_owned(),
        names: vec![HOSTILE.to_owned()],
        fields: [(HOSTILE.to_owned(), HOSTILE.into())].into_iter().collect(),
    };
    let all = ConfigObjects {
        generation: 1,
        objects: vec![object],
    };
    let refused = Refusals {
        refusals: vec![refused],
    };
    assert_harmless(&connections(&page(HOSTILE), &connections_of(3), &query));
    assert_harmless(&refusals(&page("/refusals"), &refused, &query));
    assert_harmless(&objects(&page("/volumes"), ObjectsPage::Volumes, &all));
}

#[test]
fn table_of_ten_thousand_lines_shows_a_part_that_is_ordered_and_filtered() {
    let all = connections_of(10_000);
    let page = page("/connections");
    let lines = |html: &str| html.matches("<tr>").count() - 1;
    let query = TableQuery::of([("sort", "I/Os"), ("order", "descending"), ("page", "1")]);
    let html = connections(&page, &all, &query);
    assert_eq!(lines(&html), 200);
    assert!(html.contains("Part 2 of 50"), "{html}");
    assert!(html.contains("aria-sort=\"descending\""));
    let mut ios: Vec<u64> = all.connections.iter().map(|one| one.ios).collect();
    ios.sort_unstable_by(|a, b| b.cmp(a));
    let first = html
        .find(&format!(">{}</td>", ios[200]))
        .expect("the first");
    let last = html.find(&format!(">{}</td>", ios[399])).expect("the last");
    assert!(first < last);
    // A page that is not there is the last.
    let query = TableQuery::of([("page", "99999")]);
    assert_eq!(lines(&connections(&page, &all, &query)), 200);
    let query = TableQuery::of([("filter", "&AMP;9999")]);
    assert_eq!(lines(&connections(&page, &all, &query)), 1);
    let query = TableQuery::of([("filter", "nothing has this"), ("sort", "no such head")]);
    assert_eq!(lines(&connections(&page, &all, &query)), 0);
}

#[test]
fn every_cell_has_the_head_of_its_column() {
    let html = connections(
        &page("/connections"),
        &connections_of(1),
        &TableQuery::default(),
    );
    let row = html.split("<tbody>").nth(1).expect("a body");
    assert_eq!(
        row.matches("<td").count(),
        row.matches("data-head=\"").count()
    );
}
