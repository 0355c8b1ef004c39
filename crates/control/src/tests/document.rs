//! Objects of a text, and changes of single ones.

use serde_json::{Map, Value, json};

use super::*;

const FILE: &str = "\
# What is stored.

# The first.
[[volume]]
name = \"a\"            # short
kind = \"ram\"
size = \"1MiB\"

[[volume]]
name = \"ram{00..03}\"  # four
kind = \"ram\"
size = \"1MiB\"         # each

[[nvme.subsystem]]
nqn = \"nqn.2026-01.io.weft:s\"
hosts = [
    \"nqn.2026-01.io.weft:h1\", # alice
    \"nqn.2026-01.io.weft:h2\", # bob
    \"nqn.2026-01.io.weft:x{1..3}\",
]
volumes = [\"a\", \"ram{00..02}\"]

[[iscsi.target]]
name = \"iqn.2026-01.io.weft:t{0..1}\"
initiators = [\"iqn.2026-01.io.weft:i\"]
volumes = [\"ram0{0..1}\"]

[[iscsi.target.initiator]]
name = \"iqn.2026-01.io.weft:own\"
chap = { user = \"alice\", secret = \"not a good one\" }

[[listener]]
address = \"127.0.0.1:4420\"

[[listener]]
address = \"127.0.0.1:3260\"
protocol = \"iscsi\"
# The end.
";

const SUB: &str = "nqn.2026-01.io.weft:s";

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn add(kind: &str, names: &[&str], value: Value) -> Edit {
    let (object, fields) = (ObjectPath::new(kind, names), fields(value));
    Edit::Add { object, fields }
}

fn set(kind: &str, names: &[&str], value: Value) -> Edit {
    let (object, fields) = (ObjectPath::new(kind, names), fields(value));
    Edit::Set { object, fields }
}

fn remove(kind: &str, names: &[&str]) -> Edit {
    let object = ObjectPath::new(kind, names);
    Edit::Remove { object }
}

/// The lines that go and come, and that the new text is sound.
#[track_caller]
fn changes(text: &str, edits: &[Edit]) -> Vec<String> {
    let edited = edit(text, edits).unwrap_or_else(|problems| panic!("{problems:#?}"));
    if let Err(problems) = read(&edited) {
        panic!("{problems:#?}\n{edited}");
    }
    line_changes(text, &edited)
}

fn line_changes(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    // The longest common part, from the end.
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for (a, line) in old.iter().enumerate().rev() {
        for (b, other) in new.iter().enumerate().rev() {
            common[a][b] = match line == other {
                true => common[a + 1][b + 1] + 1,
                false => common[a + 1][b].max(common[a][b + 1]),
            };
        }
    }
    let (mut a, mut b, mut changes) = (0, 0, Vec::new());
    while a < old.len() || b < new.len() {
        if a < old.len() && b < new.len() && old[a] == new[b] {
            (a, b) = (a + 1, b + 1);
        } else if b == new.len() || (a < old.len() && common[a + 1][b] >= common[a][b + 1]) {
            changes.push(format!("-{}", old[a]));
            a += 1;
        } else {
            changes.push(format!("+{}", new[b]));
            b += 1;
        }
    }
    changes
}

#[track_caller]
fn refused(edits: &[Edit], part: &str) {
    let problems = edit(FILE, edits).expect_err(part);
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|text| text.contains(part)), "{shown:#?}");
}

#[test]
fn an_edit_touches_its_lines_alone() {
    let edits = [set(
        "volume",
        &["a"],
        json!({"size": "2MiB", "read_only": true}),
    )];
    let lines = ["-size = \"1MiB\"", "+size = \"2MiB\"", "+read_only = true"];
    assert_eq!(changes(FILE, &edits), lines);
    let edits = [add("volume", &["b"], json!({"size": 4096, "kind": "ram"}))];
    let lines = [
        "+[[volume]]",
        "+name = \"b\"",
        "+kind = \"ram\"",
        "+size = 4096",
        "+",
    ];
    assert_eq!(changes(FILE, &edits), lines);
    let edits = [set("policy", &[], json!({"spin_us_max": "always"}))];
    let lines = ["+", "+[policy]", "+spin_us_max = \"always\""];
    assert_eq!(changes(FILE, &edits), lines);
    let edits = [set("nvme", &[], json!({"io_queues_max": 4}))];
    assert!(changes(FILE, &edits).contains(&"+io_queues_max = 4".to_owned()));
    assert_eq!(
        changes(FILE, &[set("volume", &["a"], json!({"adopt": null}))]),
        [""; 0]
    );
    // Lines end as they did.
    let crlf = FILE.replace('\n', "\r\n");
    let edited = edit(&crlf, &[set("nfs", &[], json!({"lease_ms": 2000}))]).unwrap();
    assert_eq!(edited.matches('\n').count(), edited.matches("\r\n").count());
}

#[test]
fn one_of_a_pattern_changes_alone() {
    let edits = [set("volume", &["ram01"], json!({"size": "2MiB"}))];
    let expected = [
        "-name = \"ram{00..03}\"  # four",
        "+name = \"ram00\"  # four",
        "+",
        "+[[volume]]",
        "+name = \"ram01\"",
        "+kind = \"ram\"",
        "+size = \"2MiB\"",
        "+",
        "+[[volume]]",
        "+name = \"ram{02..03}\"",
        "+kind = \"ram\"",
        "+size = \"1MiB\"",
    ];
    let mut found = changes(FILE, &edits);
    let mut wanted = expected.map(str::to_owned).to_vec();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    let edited = edit(FILE, &edits).unwrap();
    let (old, new) = (read(FILE).unwrap(), read(&edited).unwrap());
    for (old, new) in old.volumes.iter().zip(&new.volumes) {
        let size_bytes = if old.name == "ram01" {
            2 << 20
        } else {
            1 << 20
        };
        assert_eq!(
            *new,
            store::Spec {
                size_bytes,
                ..old.clone()
            }
        );
    }
    // Everything in a table goes with its name.
    let name = "iqn.2026-01.io.weft:t0";
    let edits = [set("target", &[name], json!({"alias": "first"}))];
    let new = read(&edit(FILE, &edits).unwrap()).unwrap();
    assert_eq!(new.iscsi_targets.len(), 2);
    for (old, new) in old.iscsi_targets.iter().zip(&new.iscsi_targets) {
        assert_eq!((&old.luns, &old.target.acl), (&new.luns, &new.target.acl));
        let is_first = new.target.name == name;
        assert_eq!(new.target.alias.as_deref(), is_first.then_some("first"));
    }
    assert_eq!(
        changes(FILE, &[remove("volume", &["ram03"])]),
        [
            "-name = \"ram{00..03}\"  # four",
            "+name = \"ram{00..02}\"  # four"
        ]
    );
}

#[test]
fn short_list_with_one_removed_keeps_the_numbers_of_the_others() {
    let numbers = |text: &str| -> Vec<(u32, String)> {
        let config = read(text).unwrap();
        let all = config.subsystems[0].namespaces.iter();
        all.map(|one| (one.nsid, one.volume.clone())).collect()
    };
    let old = numbers(FILE);
    assert_eq!(old.len(), 4);
    for gone in 1..=4 {
        let edits = [remove("subsystem/namespace", &[SUB, &gone.to_string()])];
        let new = numbers(&edit(FILE, &edits).unwrap());
        let left: Vec<_> = old
            .iter()
            .filter(|(nsid, _)| *nsid != gone)
            .cloned()
            .collect();
        assert_eq!(new, left, "{gone}");
        let edits = [set(
            "subsystem/namespace",
            &[SUB, &gone.to_string()],
            json!({"ana_group": 2}),
        )];
        assert_eq!(numbers(&edit(FILE, &edits).unwrap()), old, "{gone}");
    }
    let all: Vec<_> = (1..=4)
        .map(|n| remove("subsystem/namespace", &[SUB, &n.to_string()]))
        .collect();
    let edited = edit(FILE, &all).unwrap();
    assert!(numbers(&edited).is_empty());
    let again = [add(
        "subsystem/namespace",
        &[SUB, "7"],
        json!({"volume": "a"}),
    )];
    assert_eq!(
        numbers(&edit(&edited, &again).unwrap()),
        [(7, "a".to_owned())]
    );
}

#[test]
fn hosts_come_and_go_with_the_comments_beside_them() {
    let host = |name: &str| [SUB.to_owned(), format!("nqn.2026-01.io.weft:{name}")];
    let with = |name: &str, edit: fn(&str, &[&str]) -> Edit| {
        let names = host(name);
        edit("subsystem/host", &[&names[0], &names[1]])
    };
    let gone = changes(FILE, &[with("h1", remove)]);
    assert_eq!(gone, ["-    \"nqn.2026-01.io.weft:h1\", # alice"]);
    let gone = changes(FILE, &[with("h2", remove)]);
    assert_eq!(gone, ["-    \"nqn.2026-01.io.weft:h2\", # bob"]);
    let gone = changes(FILE, &[with("x2", remove)]);
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(gone[1].contains("x1") && gone[1].contains("x3"), "{gone:?}");
    let come = changes(
        FILE,
        &[with("new", |kind, names| add(kind, names, json!({})))],
    );
    assert_eq!(come, ["+    \"nqn.2026-01.io.weft:new\","]);
    let come_and_go = [
        with("new", |kind, names| add(kind, names, json!({}))),
        with("new", remove),
    ];
    assert_eq!(changes(FILE, &come_and_go), [""; 0]);
}

#[test]
fn an_initiator_gets_terms_of_its_own() {
    let names = ["iqn.2026-01.io.weft:t1", "iqn.2026-01.io.weft:i"];
    let edits = [set("target/initiator", &names, json!({"luns": [0]}))];
    let new = read(&edit(FILE, &edits).unwrap()).unwrap();
    let masks = |at: usize| -> Vec<_> {
        let acl = new.iscsi_targets[at].target.acl.iter();
        acl.map(|entry| (entry.name.clone(), entry.luns.clone()))
            .collect()
    };
    let name = |name: &str| Some(format!("iqn.2026-01.io.weft:{name}"));
    assert_eq!(masks(0), [(name("own"), None), (name("i"), None)]);
    assert_eq!(masks(1), [(name("own"), None), (name("i"), Some(vec![0]))]);
}

#[test]
fn comments_stay_but_those_of_what_goes() {
    let edits = [
        remove("subsystem/namespace", &[SUB, "1"]),
        remove("volume", &["a"]),
    ];
    let edited = edit(FILE, &edits).unwrap();
    assert!(
        edited.starts_with("# What is stored.\n\n[[volume]]\nname = \"ram"),
        "{edited}"
    );
    assert!(!edited.contains("The first") && edited.ends_with("# The end.\n"));
    for comment in ["# four", "# each", "# alice", "# bob"] {
        assert_eq!(edited.matches(comment).count(), 1, "{comment}");
    }
}

#[test]
fn impossible_edits_say_why() {
    let some = || json!({"kind": "ram", "size": "1MiB"});
    refused(
        &[remove("volum", &["a"])],
        "no kind of object `volum`; did you mean `volume`?",
    );
    refused(
        &[remove("volume", &[])],
        "takes 1 names, not 0; write volume/NAME",
    );
    refused(
        &[remove("volume", &["ram04"])],
        "no volume \"ram04\"; did you mean \"ram0",
    );
    refused(
        &[add("volume", &["ram02"], some())],
        "there is a volume \"ram02\" already",
    );
    refused(&[add("nfs", &[], json!({}))], "settings are there already");
    let names = [SUB, "2"];
    let volume = || json!({"volume": "a"});
    refused(
        &[add("subsystem/namespace", &names, volume())],
        "a namespace \"2\" already",
    );
    refused(
        &[add("subsystem/namespace", &[SUB, "x"], volume())],
        "a whole number, not \"x\"",
    );
    refused(
        &[set("volume", &["a"], json!({"sise": 1}))],
        "`sise`: unknown key `sise` in [[volume]]",
    );
    refused(
        &[set("volume", &["a"], json!({"sise": 1}))],
        "did you mean `size`?",
    );
    refused(
        &[set("volume", &["a"], json!({"size": true}))],
        "not true or false",
    );
    refused(
        &[set("volume", &["a"], json!({"name": "b"}))],
        "is what it is called",
    );
    refused(
        &[add("volume", &["b"], json!({"name": "c"}))],
        "is another name than \"b\"",
    );
    refused(
        &[set("nvme", &[], json!({"subsystem": []}))],
        "objects of their own",
    );
    refused(
        &[set("subsystem/host", &[SUB, "h"], json!({"a": 1}))],
        "unknown key `a` in [[nvme.subsystem.host]]",
    );
    let gone = [remove("volume", &["ram00"])];
    refused(
        &gone,
        "subsystem/nqn.2026-01.io.weft:s/namespace/2 and 1 more names it",
    );
    let both = [remove("volume", &["x"]), remove("volume", &["y"])];
    assert_eq!(edit(FILE, &both).expect_err("two").len(), 2);
    let broken = edit("[[volume]\n", &[remove("volume", &["a"])]).expect_err("no TOML");
    assert!(broken[0].reason.contains("no TOML"), "{broken:?}");
}

#[test]
fn objects_are_shown_without_secrets_and_patterns() {
    let all = objects(FILE);
    let find = |kind: &str, names: &[&str]| -> &Map<String, Value> {
        let path = ObjectPath::new(kind, names);
        let found: Vec<_> = all.iter().filter(|(known, _)| *known == path).collect();
        assert_eq!(found.len(), 1, "{path}");
        &found[0].1
    };
    let volumes = all.iter().filter(|(path, _)| path.kind == "volume");
    assert_eq!(volumes.count(), 5);
    assert_eq!(find("volume", &["ram03"])["size"], "1MiB");
    assert_eq!(find("subsystem/namespace", &[SUB, "4"])["volume"], "ram02");
    let host = "nqn.2026-01.io.weft:x2";
    assert_eq!(find("subsystem/host", &[SUB, host])["nqn"], host);
    assert_eq!(find("subsystem", &[SUB]), &fields(json!({"nqn": SUB})));
    let names = ["iqn.2026-01.io.weft:t1", "iqn.2026-01.io.weft:own"];
    let chap = &find("target/initiator", &names)["chap"];
    assert_eq!(*chap, json!({"user": "alice", "secret": "(set)"}));
    find("target/lun", &[names[0], "0"]);
    let path = ObjectPath::new("target/lun", &["iqn.2026-01.io.weft:t1", "0"]);
    assert_eq!(path.to_string(), "target/iqn.2026-01.io.weft:t1/lun/0");
    assert_eq!(objects("[[volume]]\nname = 3\n[[").len(), 1);
}

#[test]
fn a_problem_is_told_of_its_object_and_field() {
    let wrong = [
        (
            set("volume", &["ram01"], json!({"size": "1XiB"})),
            Some("size"),
        ),
        (
            set("nvme", &[], json!({"io_queues_max": 0})),
            Some("io_queues_max"),
        ),
        (
            set(
                "subsystem/namespace",
                &[SUB, "2"],
                json!({"volume": "none"}),
            ),
            Some("volume"),
        ),
        (
            add("listener", &["127.0.0.1:4421"], json!({"protocol": "smb"})),
            Some("protocol"),
        ),
        (add("volume", &["b"], json!({"kind": "ram"})), None),
    ];
    for (change, field) in wrong {
        let edited = edit(FILE, std::slice::from_ref(&change)).unwrap();
        let problems = read(&edited).expect_err("a problem");
        assert_eq!(problems.len(), 1, "{problems:#?}");
        let (path, found) = object_at(&edited, &problems[0]).expect("an object");
        assert_eq!(found.as_deref(), field, "{path}: {problems:?}");
        let (Edit::Set { object, .. } | Edit::Add { object, .. } | Edit::Remove { object }) =
            change;
        assert_eq!(path, object);
    }
}

#[test]
fn paths_of_a_text_that_moves_become_absolute() {
    let text = "[[volume]] # here\nname = \"a{0..1}\"\npath = \"a{0..1}.img\" # there\n\
                [nfs]\nstate = \"/var/nfs\"\n[admin]\nsocket = \"off\"\n[iscsi.discovery]\n\
                chap = { user = \"u\", secret_file = \"s\" }\n[[export]]\npath = \"/a\"\n";
    let moved = with_absolute_paths(text, Path::new("/etc/weft"));
    let lines = [
        "-path = \"a{0..1}.img\" # there",
        "+path = \"/etc/weft/a{0..1}.img\" # there",
        "-chap = { user = \"u\", secret_file = \"s\" }",
        "+chap = { user = \"u\", secret_file = \"/etc/weft/s\" }",
    ];
    assert_eq!(line_changes(text, &moved), lines);
    assert_eq!(with_absolute_paths(&moved, Path::new("/else")), moved);
}
