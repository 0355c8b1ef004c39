//! Changes of single objects of random texts: what they say, and nothing else, changes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use control::{Edit, ObjectPath, Origin, edit, objects, parse};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// What a text has of each kind; `true` is the form with a pattern, or the short one.
#[derive(Clone, Debug)]
struct Parts {
    volumes: Vec<bool>,
    subsystems: Vec<Host>,
    targets: Vec<Host>,
    exports: Vec<bool>,
    settings: Vec<bool>,
}

/// What a subsystem or target has.
#[derive(Clone, Debug)]
struct Host {
    is_pattern: bool,
    /// `None`: any may.
    hosts: Option<Vec<bool>>,
    /// By places of volumes.
    in_short: Vec<usize>,
    in_tables: Vec<usize>,
    has_ana: bool,
}

fn host() -> impl Strategy<Value = Host> {
    let flags = || prop::collection::vec(any::<bool>(), 0..4);
    (
        any::<bool>(),
        prop::option::of(flags()),
        prop::collection::vec(0..4_usize, 0..3),
        prop::collection::vec(0..4_usize, 0..3),
        any::<bool>(),
    )
        .prop_map(|(is_pattern, hosts, in_short, in_tables, has_ana)| Host {
            is_pattern,
            hosts,
            in_short,
            in_tables,
            has_ana,
        })
}

fn parts() -> impl Strategy<Value = Parts> {
    let flags = |len| prop::collection::vec(any::<bool>(), len);
    let hosts = || prop::collection::vec(host(), 0..3);
    (flags(4..5), hosts(), hosts(), flags(0..3), flags(3..4)).prop_map(
        |(volumes, subsystems, targets, exports, settings)| Parts {
            volumes,
            subsystems,
            targets,
            exports,
            settings,
        },
    )
}

/// A comment that no other is like.
struct Comments(usize);

impl Comments {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("# comment {};", self.0)
    }
}

impl Parts {
    fn text(&self) -> String {
        let mut text = "# comment 0;\n\n".to_owned();
        let mut comments = Comments(0);
        for (at, is_pattern) in self.volumes.iter().enumerate() {
            let (above, beside) = (comments.next(), comments.next());
            let name = self.volume(at);
            let path = if *is_pattern { "d{5..7}" } else { "d" };
            let _ = write!(
                text,
                "{above}\n[[volume]]\nname = \"{name}\" {beside}\nkind = \"file\"\n\
                 path = \"{path}{at}.img\"\nsize = \"1MiB\"\n\n"
            );
        }
        if self.settings[0] {
            let _ = writeln!(text, "[nvme]\nio_queues_max = 4 {}\n", comments.next());
        }
        for (at, host) in self.subsystems.iter().enumerate() {
            let _ = writeln!(text, "{}\n[[nvme.subsystem]]", comments.next());
            let name = if host.is_pattern { "x{08..10}" } else { "x" };
            let _ = writeln!(text, "nqn = \"nqn.2026-01.io.weft:{name}.{at}\"");
            host.write(&mut text, ("nqn", "allow_any_host", "hosts"));
            self.write_units(
                &mut text,
                host,
                ("nvme.subsystem.namespace", "nsid"),
                &mut comments,
            );
            // A group with no namespace would be a mistake.
            if host.has_ana && !(host.in_short.is_empty() && host.in_tables.is_empty()) {
                text += "[[nvme.subsystem.ana]]\ngroup = 1\nstate = \"non-optimized\"\n";
            }
        }
        for (at, host) in self.targets.iter().enumerate() {
            let _ = writeln!(text, "{}\n[[iscsi.target]]", comments.next());
            let name = if host.is_pattern { "x{08..10}" } else { "x" };
            let _ = writeln!(text, "name = \"iqn.2026-01.io.weft:{name}.{at}\"");
            host.write(&mut text, ("iqn", "allow_any_initiator", "initiators"));
            self.write_units(&mut text, host, ("iscsi.target.lun", "lun"), &mut comments);
        }
        for (at, in_short) in self.exports.iter().enumerate() {
            let _ = write!(
                text,
                "[[file_system]]\nname = \"f{at}\"\nkind = \"mem\"\nsize = \"1MiB\" {}\n\
                 [[export]]\npath = \"/e{at}\"\nfile_system = \"f{at}\"\n",
                comments.next()
            );
            text += match in_short {
                true => "clients = [\"192.0.2.{1..3}\", \"198.51.100.0/24\"]\n",
                false => "allow_any_client = true\n",
            };
            text += "[[export.client]]\nclients = [\"203.0.113.7\"]\nsquash = \"all\"\n";
        }
        if self.settings[1] {
            let _ = writeln!(text, "[policy]\nspin_us_max = 3 {}", comments.next());
        }
        for (port, protocol) in [(4420, "nvme-tcp"), (3260, "iscsi"), (2049, "nfs")] {
            let _ = writeln!(
                text,
                "\n[[listener]]\naddress = \"127.0.0.1:{port}\" {}\nprotocol = \"{protocol}\"",
                comments.next()
            );
        }
        match self.settings[2] {
            true => text + "# comment last;\n",
            false => text.trim_end().to_owned(),
        }
    }

    fn volume(&self, at: usize) -> String {
        match self.volumes[at] {
            true => format!("v{{0..2}}.{at}"),
            false => format!("v.{at}"),
        }
    }

    /// One that a volume's pattern makes.
    fn one_volume(&self, at: usize) -> String {
        self.volume(at).replace("{0..2}", "1")
    }

    /// Namespaces or logical units.
    fn write_units(
        &self,
        text: &mut String,
        host: &Host,
        (section, number): (&str, &str),
        comments: &mut Comments,
    ) {
        let mut seen = Vec::new();
        let mut fresh = |at: &usize| {
            let is_new = !seen.contains(at);
            seen.push(*at);
            is_new
        };
        let in_short: Vec<_> = host
            .in_short
            .iter()
            .copied()
            .filter(|at| fresh(at))
            .collect();
        let names = in_short.iter().map(|at| match host.is_pattern {
            true => format!("\"{}\"", self.one_volume(*at)),
            false => format!("\"{}\"", self.volume(*at)),
        });
        let names: Vec<_> = names.collect();
        let _ = writeln!(text, "volumes = [{}]", names.join(", "));
        for at in host.in_tables.iter().filter(|at| fresh(at)) {
            let volume = self.one_volume(*at);
            let _ = writeln!(
                text,
                "[[{section}]] {}\n{number} = {}\nvolume = \"{volume}\"",
                comments.next(),
                20 + at
            );
        }
    }
}

impl Host {
    fn write(&self, text: &mut String, (prefix, any, list): (&str, &str, &str)) {
        let Some(hosts) = &self.hosts else {
            let _ = writeln!(text, "{any} = true");
            return;
        };
        let names = hosts
            .iter()
            .enumerate()
            .map(|(at, is_pattern)| match is_pattern {
                true => format!("\"{prefix}.2026-01.a:{{1..3}}.{at}\""),
                false => format!("\"{prefix}.2026-01.a:h.{at}\""),
            });
        let names: Vec<_> = names.collect();
        let _ = writeln!(text, "{list} = [{}]", names.join(", "));
    }
}

type Objects = BTreeMap<ObjectPath, Map<String, Value>>;

fn all(text: &str) -> Objects {
    objects(text).into_iter().collect()
}

fn config(text: &str) -> Option<String> {
    let origin = Origin {
        folder: Path::new("/nowhere"),
        access: Some(auth::FileAccess::OWN),
    };
    let parsed = parse(text, &origin, &[0, 1]).ok()?;
    Some(format!("{parsed:?}"))
}

/// That a sound text is the same configuration as before, in the same order.
fn same_config(old: &str, new: &str) -> Result<(), TestCaseError> {
    let before = config(old);
    if before.is_some() {
        prop_assert_eq!(config(new), before, "{}\n{}", old, new);
    }
    Ok(())
}

/// Whether one object is another or in it.
fn is_in(path: &ObjectPath, parent: &ObjectPath) -> bool {
    path == parent
        || (path.kind.starts_with(&format!("{}/", parent.kind))
            && path.names.starts_with(&parent.names)
            && !parent.names.is_empty())
}

/// How often each comment of `old` is in `new`.
fn comments_are_kept(old: &str, new: &str) -> bool {
    let comments = old
        .split_inclusive(';')
        .filter_map(|part| part.find("# c").map(|at| &part[at..]));
    comments
        .into_iter()
        .all(|comment| new.matches(comment).count() == 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn an_edit_changes_what_it_says_and_nothing_else(
        parts in parts(),
        which in any::<prop::sample::Index>(),
        field in any::<prop::sample::Index>(),
    ) {
        let text = parts.text();
        let before = all(&text);
        let paths: Vec<_> = before.keys().collect();
        let object = which.get(&paths);
        let object = (*object).clone();
        // It goes.
        if let Ok(edited) = edit(&text, &[Edit::Remove { object: object.clone() }]) {
            let mut left = before.clone();
            let is_settings = object.names.is_empty();
            left.retain(|path, _| !is_in(path, &object));
            let mut after = all(&edited);
            if is_settings {
                after.remove(&object);
            }
            prop_assert_eq!(after, left, "without {}:\n{}\n{}", object, text, edited);
        }
        // It is said again: the order of all others stays too.
        let said = before[&object].clone();
        let fields = said.clone();
        let same = Edit::Set { object: object.clone(), fields };
        let edited = edit(&text, &[same]).map_err(|why| TestCaseError::fail(format!("{why:?}")))?;
        prop_assert_eq!(all(&edited), before.clone(), "{}:\n{}\n{}", object, text, edited);
        prop_assert!(comments_are_kept(&text, &edited), "{}:\n{}\n{}", object, text, edited);
        if !["subsystem/host", "target/initiator", "export/client"].contains(&&*object.kind) {
            same_config(&text, &edited)?;
        }
        // One field changes, or goes.
        let keys: Vec<_> = said.iter().filter(|(_, value)| !value.is_array()).map(|(key, _)| key).collect();
        if !keys.is_empty() {
            let key = field.get(&keys).to_string();
            let fields = Map::from_iter([(key.clone(), Value::Null)]);
            if let Ok(edited) = edit(&text, &[Edit::Set { object: object.clone(), fields }]) {
                let mut wanted = before.clone();
                wanted.get_mut(&object).expect("there").remove(&key);
                wanted.retain(|path, fields| !path.names.is_empty() || !fields.is_empty());
                prop_assert_eq!(all(&edited), wanted, "{} {}:\n{}\n{}", object, key, text, edited);
            }
        }
    }

    #[test]
    fn object_that_is_added_and_removed_leaves_the_same_configuration(
        parts in parts(),
        which in any::<prop::sample::Index>(),
    ) {
        let text = parts.text();
        let before = all(&text);
        let mut new = vec![
            (ObjectPath::new("volume", &["new"]), json!({"kind": "ram", "size": "1MiB"})),
            (ObjectPath::new("subsystem", &["nqn.2026-01.io.weft:new"]),
                json!({"allow_any_host": true, "serial": "new"})),
            (ObjectPath::new("listener", &["127.0.0.1:4421"]), json!({})),
            (ObjectPath::new("referral", &["192.0.2.1"]), json!({})),
            (ObjectPath::new("portal_group", &["7"]), json!({"listeners": ["127.0.0.1:3260"]})),
        ];
        for path in before.keys() {
            let within = |kind: &str, name: &str| ObjectPath::new(kind, &[&path.names[0], name]);
            match &*path.kind {
                "subsystem" => {
                    let name = "nqn.2026-01.a:new";
                    new.push((within("subsystem/host", name), json!({})));
                    let fields = json!({"volume": parts.one_volume(0)});
                    new.push((within("subsystem/namespace", "99"), fields));
                }
                "target" => {
                    let name = "iqn.2026-01.a:new";
                    new.push((within("target/initiator", name), json!({"networks": ["192.0.2.1"]})));
                    let fields = json!({"volume": parts.one_volume(0)});
                    new.push((within("target/lun", "99"), fields));
                }
                "export" => {
                    new.push((within("export/client", "192.0.2.99"), json!({})));
                    new.push((within("export/client", "192.0.2.98"), json!({"read_only": true})));
                }
                _ => {}
            }
        }
        let (object, fields) = which.get(&new).clone();
        let fields = fields.as_object().expect("an object").clone();
        let add = Edit::Add { object: object.clone(), fields: fields.clone() };
        let edited = edit(&text, std::slice::from_ref(&add));
        let edited = edited.map_err(|why| TestCaseError::fail(format!("{why:?}")))?;
        let mut after = all(&edited);
        let there = after.remove(&object).expect("it is there");
        prop_assert!(fields.iter().all(|(key, value)| there.get(key) == Some(value)), "{:?}", there);
        prop_assert_eq!(&after, &before, "{}:\n{}\n{}", object, text, edited);
        prop_assert!(comments_are_kept(&text, &edited), "{}:\n{}", text, edited);
        let again = edit(&edited, &[add]).expect_err("it is there already");
        prop_assert!(again[0].reason.contains("already"), "{:?}", again);
        let back = edit(&edited, &[Edit::Remove { object: object.clone() }]);
        let back = back.map_err(|why| TestCaseError::fail(format!("{why:?}")))?;
        // A list that is left empty where any may is a mistake, as one of no clients is.
        if object.kind != "export/client" && object.kind != "subsystem/host" {
            same_config(&text, &back)?;
        }
        prop_assert_eq!(all(&back), before);
    }

    #[test]
    fn no_text_makes_an_edit_panic(
        parts in parts(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..20_usize, ".{0,3}"), 0..4),
    ) {
        let mut text = parts.text();
        for (at, len, with) in cuts {
            let boundary = |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at));
            let start = boundary(at.index(text.len().max(1))).unwrap_or(0);
            let end = boundary((start + len).min(text.len())).unwrap_or(start);
            text.replace_range(start..end, &with);
        }
        control::fuzz_edits(text.as_bytes());
    }
}

#[test]
fn corpus_of_texts_makes_no_edit_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/edits");
    let files = std::fs::read_dir(folder).expect("the corpus is there");
    let mut count = 0;
    for file in files {
        control::fuzz_edits(&std::fs::read(file.expect("a file").path()).expect("is read"));
        count += 1;
    }
    assert!(count > 3, "{count}");
}
