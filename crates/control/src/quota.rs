//! `[[quota]]`: how much users, groups and trees may have in a file system.

use std::collections::HashMap;

use server::check;
use server::nfs::{FileSystemKind, FileSystemSpec, QuotaSpec, check_path, clash};
use store::fs::{GRACE_S_DEFAULT, Quota, QuotaLimits, QuotaSubject};

use crate::policy::{Number, Rule, count, size};
use crate::schema::{QUOTA, SCHEMA};
use crate::source::{At, Section, Sink, hint};

/// 0 is the superuser, who has no limits; 4294967295 is no number of a user.
const USER: Number = count("user", 1, u32::MAX as u64 - 1);
const GROUP: Number = count("group", 1, u32::MAX as u64 - 1);
const HARD_BYTES: Number = size("hard_bytes", 1, 1 << 60, Rule::Any);
const SOFT_BYTES: Number = size("soft_bytes", 1, 1 << 60, Rule::Any);
const HARD_OBJECTS: Number = count("hard_objects", 1, 1 << 48);
const SOFT_OBJECTS: Number = count("soft_objects", 1, 1 << 48);
const GRACE_S: Number = count("grace_s", 0, 10 * 365 * 24 * 3600);

/// The keys that say whose usage is limited.
const SUBJECTS: [&str; 4] = ["user", "each_user", "group", "tree"];
/// The keys that limit it.
const LIMITS: [&str; 4] = ["hard_bytes", "soft_bytes", "hard_objects", "soft_objects"];

pub(crate) fn quotas(
    sink: &mut Sink,
    file: &Section,
    file_systems: &[FileSystemSpec],
) -> Vec<QuotaSpec> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut subjects: Vec<(String, QuotaSubject, usize)> = Vec::new();
    let mut quotas = Vec::new();
    for section in file.tables(sink, SCHEMA, "quota", QUOTA) {
        section.missing(sink, "name", "name = \"home\"");
        section.missing(sink, "file_system", "file_system = \"files\"");
        let line = sink.line(&section.span);
        let name = section.text(sink, "name");
        if let Some(name) = &name {
            if let Err(why) = check::quota_name(name.value) {
                sink.add(&name.span, why);
            }
            if let Some(first) = lines.insert(name.value.to_owned(), line) {
                let there = format!("a quota \"{}\" is there already, ", name.value);
                sink.add_with_line(&name.span, (&there, first, ""));
            }
        }
        let file_system = section.text(sink, "file_system");
        if let Some(name) = &file_system {
            is_known(sink, name, file_systems);
        }
        let subject = subject(sink, &section);
        if let (Some(name), Some(subject)) = (&file_system, &subject) {
            keeps_quota(sink, name, subject, file_systems);
        }
        let limits = limits(sink, &section);
        let (Some(name), Some(file_system), Some(subject)) = (name, file_system, subject) else {
            continue;
        };
        let file_system = file_system.value.to_owned();
        is_apart(sink, &section, &subjects, (&file_system, &subject));
        subjects.push((file_system.clone(), subject.clone(), line));
        quotas.push(QuotaSpec {
            name: name.value.to_owned(),
            file_system,
            quota: Quota { subject, limits },
        });
    }
    quotas
}

fn is_known(sink: &mut Sink, name: &At<&str>, file_systems: &[FileSystemSpec]) {
    let names = || file_systems.iter().map(|spec| &*spec.name);
    if !names().any(|known| known == name.value) {
        let hint = hint(name.value, names());
        let text = format!("there is no file system \"{}\"{hint}", name.value);
        sink.add(&name.span, text);
    }
}

/// Directories of the machine count for users, groups and as a whole.
fn keeps_quota(
    sink: &mut Sink,
    name: &At<&str>,
    subject: &QuotaSubject,
    file_systems: &[FileSystemSpec],
) {
    let is_dir = |spec: &FileSystemSpec| {
        spec.name == name.value && matches!(spec.kind, FileSystemKind::Dir { .. })
    };
    if let QuotaSubject::Tree(path) = subject
        && path != "/"
        && file_systems.iter().any(is_dir)
    {
        let text = format!(
            "the file system \"{}\" is a directory of this machine, in which no tree but \"/\" has \
             a quota: write `tree = \"/\"`, or make the tree a file system of its own",
            name.value
        );
        sink.add(&name.span, text);
    }
}

fn subject(sink: &mut Sink, section: &Section) -> Option<QuotaSubject> {
    let given: Vec<&str> = SUBJECTS
        .into_iter()
        .filter(|key| section.has(key))
        .collect();
    match given[..] {
        [] => {
            let text = format!(
                "{QUOTA} says not whose: write `user = 1000`, `group = 1000`, \
                 `tree = \"/projects/a\"`, or `each_user = true`"
            );
            sink.add(&section.span, text);
            None
        }
        ["user"] => {
            let uid = USER.find(sink, Some(section))?;
            Some(QuotaSubject::User(uid as u32))
        }
        ["group"] => {
            let gid = GROUP.find(sink, Some(section))?;
            Some(QuotaSubject::Group(gid as u32))
        }
        ["each_user"] => {
            if section.flag(sink, "each_user")? {
                return Some(QuotaSubject::EachUser);
            }
            let text = "`each_user` is true, or left out";
            sink.add(&section.span_of("each_user"), text);
            None
        }
        ["tree"] => {
            let path = section.text(sink, "tree")?;
            if let Err(why) = check_path(path.value) {
                sink.add(&path.span, format!("`tree`: {why}"));
                return None;
            }
            Some(QuotaSubject::Tree(path.value.to_owned()))
        }
        [first, second, ..] => {
            let text = format!("`{first}` and `{second}` are two quotas: write {QUOTA} for each");
            sink.add(&section.span_of(second), text);
            None
        }
        [_] => unreachable!("each is known"),
    }
}

/// One quota for each, and no tree in another.
fn is_apart(
    sink: &mut Sink,
    section: &Section,
    known: &[(String, QuotaSubject, usize)],
    (file_system, subject): (&str, &QuotaSubject),
) {
    let mut known = known.iter().filter(|known| known.0 == file_system);
    let found = known.find_map(|(_, other, line)| match (other, subject) {
        _ if other == subject => Some(("has a quota already, ", *line)),
        (QuotaSubject::Tree(one), QuotaSubject::Tree(other))
            if one != "/" && other != "/" && clash(one, other).is_some() =>
        {
            Some(("and another tree lie in each other, ", *line))
        }
        _ => None,
    });
    if let Some((why, line)) = found {
        let text = format!("{subject} {why}");
        sink.add_with_line(&section.span, (&text, line, ""));
    }
}

fn limits(sink: &mut Sink, section: &Section) -> QuotaLimits {
    if !LIMITS.iter().any(|key| section.has(key)) {
        let all = LIMITS.map(|key| format!("`{key}`")).join(", ");
        let text = format!("{QUOTA} limits nothing: it has none of {all}");
        sink.add(&section.span, text);
    }
    let from = Some(section);
    let limits = QuotaLimits {
        hard_bytes: HARD_BYTES.find(sink, from),
        soft_bytes: SOFT_BYTES.find(sink, from),
        hard_objects: HARD_OBJECTS.find(sink, from),
        soft_objects: SOFT_OBJECTS.find(sink, from),
        grace_s: GRACE_S.read(sink, from, GRACE_S_DEFAULT),
    };
    let pairs = [
        ("bytes", limits.soft_bytes.zip(limits.hard_bytes)),
        ("objects", limits.soft_objects.zip(limits.hard_objects)),
    ];
    for (of, pair) in pairs {
        if pair.is_some_and(|(soft, hard)| soft > hard) {
            let text = format!("`soft_{of}` is more than `hard_{of}`: it would never be passed");
            sink.add(&section.span_of(&format!("soft_{of}")), text);
        }
    }
    if section.has("grace_s") && limits.soft_bytes.is_none() && limits.soft_objects.is_none() {
        let text = "`grace_s` is for soft limits, and there is none";
        sink.add(&section.span_of("grace_s"), text);
    }
    limits
}
