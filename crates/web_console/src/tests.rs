use api::{
    Changed, ConfigObject, ConfigObjects, ConnectionStatus, Connections, Document, DocumentSource,
    EventLine, Evicted, FileProblem, Generation, GenerationText, Holds, ObjectChange,
    ObjectProblem, ObjectVerb, PlanLine, ProblemDetails, Protocol, RefusalSummary, Refusals,
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
        rdma: false,
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
        tls: None,
        authenticated: false,
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
        change: Some(ObjectChange {
            verb: ObjectVerb::Add,
            kind: HOSTILE.to_owned(),
            names: vec![HOSTILE.to_owned()],
            fields: [(HOSTILE.to_owned(), HOSTILE.into())].into_iter().collect(),
        }),
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
    let operator = Page {
        role: "operator",
        ..page("/refusals")
    };
    assert_harmless(&refusals(&operator, &refused, &query));
    let operator = Page {
        role: "operator",
        ..page("/volumes")
    };
    for page in [page("/volumes"), operator] {
        assert_harmless(&objects(
            &page,
            ObjectsPage::Volumes,
            &all,
            &TableQuery::default(),
        ));
        let names = [HOSTILE.to_owned()];
        assert_harmless(&inner_objects(&page, HOSTILE, &names, &all, &query));
    }
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

fn document() -> Document {
    Document {
        file: Some(HOSTILE.to_owned()),
        source: DocumentSource::File,
        folder: None,
        generation: 1,
        holds: Holds::File,
        why: Some(HOSTILE.to_owned()),
    }
}

fn hostile_problem() -> ProblemDetails {
    let text = || HOSTILE.to_owned();
    ProblemDetails {
        title: text(),
        detail: text(),
        hint: Some(text()),
        problems: vec![FileProblem {
            line: 1,
            column: 1,
            text: text(),
            excerpt: text(),
        }],
        objects: vec![ObjectProblem {
            object: text(),
            field: Some(text()),
            reason: text(),
            hint: text(),
        }],
        lines: vec![text()],
        ..ProblemDetails::default()
    }
}

#[test]
fn names_that_are_html_are_text_in_forms_and_plans() {
    let page = Page {
        role: "operator",
        ..page("/configuration")
    };
    let (problem, texts) = (hostile_problem(), vec![HOSTILE.to_owned()]);
    let text = format!("{HOSTILE}</textarea>{HOSTILE}");
    assert_harmless(&editor(&page, &document(), &text, &[&problem]));
    let pairs = [(HOSTILE.to_owned(), HOSTILE.to_owned())];
    let proposal = Proposal {
        title: HOSTILE,
        pairs: &pairs,
        generation: 1,
        has_form: true,
    };
    let changed = Changed {
        document: document(),
        done: texts.clone(),
        not_served: texts.clone(),
        at_restart: texts.clone(),
        not_read: texts.clone(),
        plan: Some(vec![PlanLine {
            text: HOSTILE.to_owned(),
            disturbs: true,
        }]),
    };
    assert_harmless(&plan(&page, &proposal, ("a", &text), &changed, &[&problem]));
    let forms = [
        FieldForm::Text,
        FieldForm::Word,
        FieldForm::Flag,
        FieldForm::Number,
        FieldForm::Size,
        FieldForm::List,
        FieldForm::Secret { is_set: true },
    ];
    let fields = forms.map(|form| FormField {
        key: HOSTILE.to_owned(),
        form,
        value: text.clone(),
        known: texts.clone(),
        is_needed: true,
    });
    let form = ObjectForm {
        title: HOSTILE,
        change: "add",
        kind: HOSTILE,
        names: &texts,
        fields: fields.to_vec(),
        generation: 1,
        problems: &[&problem],
    };
    assert_harmless(&object_form(&page, &form));
    let what = Evictable {
        kind: HOSTILE,
        id: HOSTILE,
    };
    let ended = Evicted {
        done: texts.clone(),
        may_return: texts.clone(),
    };
    assert_harmless(&evict(&page, what, &ended));
    assert_harmless(&evicted(&page, what, &ended));
    let event = EventLine {
        id: 1,
        time: HOSTILE.to_owned(),
        level: HOSTILE.to_owned(),
        event: HOSTILE.to_owned(),
        text: HOSTILE.to_owned(),
        details: HOSTILE.to_owned(),
    };
    let other = EventLine {
        event: "other".to_owned(),
        ..event.clone()
    };
    let query = TableQuery::default();
    assert_harmless(&events(&page, &[event, other], Some(HOSTILE), &query));
    let made = Generation {
        by: Some(HOSTILE.to_owned()),
        generation: 2,
        unix_s: 0,
        uid: 0,
        verb: HOSTILE.to_owned(),
        sha256: String::new(),
        file_sha256: None,
        done: texts.clone(),
        not_served: texts.clone(),
        at_restart: texts,
        request: None,
    };
    let shown = GenerationText { made, text };
    let before = GenerationText {
        text: String::new(),
        ..shown.clone()
    };
    assert_harmless(&generation(&page, &shown, Some(&before), 1));
}

#[test]
fn characters_that_turn_the_direction_of_writing_are_written_out() {
    let mut all = connections_of(1);
    all.connections[0].host = Some("nqn\u{202e}\u{7}gnp.exe".to_owned());
    let html = connections(&page("/connections"), &all, &TableQuery::default());
    assert!(html.contains("nqn\\u{202e}\\u{7}gnp.exe"), "{html}");
    assert!(!html.contains('\u{202e}'));
}

fn object(kind: &str, names: &[&str]) -> ConfigObject {
    ConfigObject {
        object: names.join("/"),
        kind: kind.to_owned(),
        names: names.iter().map(|&name| name.to_owned()).collect(),
        fields: serde_json::Map::new(),
    }
}

#[test]
fn ten_thousand_objects_are_a_part_a_page_alone_or_in_another() {
    let hosts = (0..10_000).map(|n| object("subsystem/host", &["s", &format!("h{n}")]));
    let subsystems = (0..1000).map(|n| object("subsystem", &[&format!("s{n}")]));
    let own = [object("subsystem", &["s"])];
    let all = ConfigObjects {
        generation: 1,
        objects: own.into_iter().chain(subsystems).chain(hosts).collect(),
    };
    let page = Page {
        role: "operator",
        ..page("/nvme")
    };
    let html = objects(&page, ObjectsPage::Nvme, &all, &TableQuery::default());
    assert_eq!(html.matches("<section class=\"object\"").count(), 50);
    assert_eq!(html.matches("<strong>h").count(), 10);
    assert!(html.contains(">All 10000</a>"), "{html}");
    let query = TableQuery::of([("filter", "S999")]);
    let html = objects(&page, ObjectsPage::Nvme, &all, &query);
    assert_eq!(html.matches("<section class=\"object\"").count(), 1);
    let query = TableQuery::of([("filter", "h99"), ("page", "0")]);
    let html = inner_objects(&page, "subsystem/host", &["s".to_owned()], &all, &query);
    assert_eq!(html.matches("<tr>").count() - 1, 111);
    // What the list is of stays with the form that filters it.
    assert!(
        html.contains("name=\"kind\" value=\"subsystem/host\""),
        "{html}"
    );
}

#[test]
fn difference_of_long_texts_is_cut_and_says_so() {
    let long = |word: &str| -> String { (0..5000).map(|n| format!("{word} {n}\n")).collect() };
    let shown = crate::difference::difference(&long("a"), &long("b")).expect("they differ");
    let html = shown.into_string();
    assert!(html.matches('\n').count() <= 1002);
    assert!(html.contains("More lines change than are shown"));
    assert!(crate::difference::difference("a", "a").is_none());
}
