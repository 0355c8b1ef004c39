//! exports(5) of Linux: a path, then clients, each with options in brackets.
//!
//! A path with blanks stands in quotation marks or has them as \040; a backslash at the end of a
//! line goes on in the next; options after a dash before the clients hold for all of them. Of the
//! clients that fit, the kernel takes a host before a network, that before a pattern, a netgroup
//! and everybody.

use std::collections::HashMap;

use crate::Import;
use crate::clients::{AskedClient, Client, ExportTerms, left_out_flavor};
use crate::model::{ExportModel, Notes};
use crate::report::Place;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::SourceKey;
use crate::words::logical_lines;

/// Options that change nothing here, or that weft lacks.
const OPTIONS: &[(&str, crate::Weight, &str)] = &[
    ("sync", Default, "weft answers as the client asks"),
    (
        "async",
        Default,
        "weft answers what is stable when it is stable, as without this option",
    ),
    ("wdelay", Default, "weft gathers syncs itself"),
    ("no_wdelay", Default, "weft gathers syncs itself"),
    (
        "subtree_check",
        Default,
        "weft lets nobody out of the directory",
    ),
    (
        "no_subtree_check",
        Default,
        "weft lets nobody out of the directory",
    ),
    (
        "hide",
        Lost,
        "file systems that are mounted below are seen, or not, as weft decides",
    ),
    ("nohide", Default, "an export of its own"),
    (
        "crossmnt",
        Lost,
        "weft serves one directory: see docs/nfs.md for what is mounted below",
    ),
    ("secure_locks", Default, "locks are of clients"),
    ("auth_nlm", Default, "locks are of clients"),
    ("insecure_locks", Default, "locks are of clients"),
    ("no_auth_nlm", Default, "locks are of clients"),
    ("acl", Default, "see `acl` of [[file_system]]"),
    ("no_acl", Default, "see `acl` of [[file_system]]"),
    ("nordirplus", Default, "weft has READDIRPLUS"),
    (
        "security_label",
        Lost,
        "write `security_label` of [[export]] yourself: a directory keeps no labels",
    ),
    ("pnfs", Lost, "weft has no layouts"),
    ("no_pnfs", Default, "weft has no layouts"),
    ("no_root_squash", Default, "`squash`"),
    (
        "mountpoint",
        Lost,
        "weft serves the directory whatever is mounted there",
    ),
    (
        "mp",
        Lost,
        "weft serves the directory whatever is mounted there",
    ),
    (
        "fsid",
        Default,
        "weft makes file handles itself: clients mount anew",
    ),
    ("refer", Lost, "write `referral` of [[export]] yourself"),
    ("replicas", Lost, "weft names no other server"),
    ("reexport", Default, "weft makes file handles itself"),
];

pub(crate) fn read(import: &mut Import, text: &str) {
    let mut exports: ByPath<ReadExport> = ByPath::new();
    for (at, words) in export_lines(import, text) {
        let (path, clients) = (&words[0], &words[1..]);
        if !path.starts_with('/') {
            let text = format!("{path:?} is no path: a line begins with one, as /srv/files");
            import.report.mistake(at.place, text);
            continue;
        }
        let known = exports.entry(path, || ReadExport::new(at.clone()));
        known.read(import, &at, clients);
    }
    for (path, read) in exports.all(import) {
        read.finish(import, &path);
    }
}

/// The words of each line that has some.
pub(crate) fn export_lines(import: &mut Import, text: &str) -> Vec<(SourceKey, Vec<String>)> {
    let mut lines = Vec::new();
    for (line, text) in logical_lines(text) {
        let at = SourceKey::new("", Place { file: 0, line });
        match export_words(&text) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => lines.push((at, words)),
            Err(why) => import.report.mistake(at.place, why),
        }
    }
    lines
}

/// What the lines of a file say of each path, in the order in which they name it first.
pub(crate) struct ByPath<T> {
    list: Vec<(String, T)>,
    places: HashMap<String, usize>,
}

impl<T> ByPath<T> {
    pub fn new() -> Self {
        ByPath {
            list: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// What is said of a path so far; `first` before anything is.
    pub fn entry(&mut self, path: &str, first: impl FnOnce() -> T) -> &mut T {
        let place = *self.places.entry(path.to_owned()).or_insert_with(|| {
            self.list.push((path.to_owned(), first()));
            self.list.len() - 1
        });
        &mut self.list[place].1
    }

    /// All of it. A file without an export, and without a mistake that says why, is one itself.
    pub fn all(self, import: &mut Import) -> Vec<(String, T)> {
        if self.list.is_empty() && import.report.mistakes.is_empty() {
            let place = Place { file: 0, line: 0 };
            import.report.mistake(place, "there is no export in it");
        }
        self.list
    }
}

/// The lines of one path.
struct ReadExport {
    at: SourceKey,
    /// Rights, and for whom, in the file's order.
    asked: Vec<AskedClient>,
    is_root: bool,
}

impl ReadExport {
    fn new(at: SourceKey) -> Self {
        ReadExport {
            at,
            asked: Vec::new(),
            is_root: false,
        }
    }

    fn read(&mut self, import: &mut Import, at: &SourceKey, clients: &[String]) {
        let mut general = "";
        if clients.is_empty() {
            let why = "a path without a client is exported to everybody, for reading";
            import.report.add(at.place, "clients", Default, why);
            self.client(import, at, "", "");
        }
        for word in clients {
            if let Some(options) = word.strip_prefix('-') {
                general = options;
                continue;
            }
            let (client, options) = match word.split_once('(') {
                None => (word.as_str(), ""),
                Some((client, options)) => match options.strip_suffix(')') {
                    Some(options) => (client, options),
                    None => {
                        let text = format!("{word}: the bracket is not closed");
                        import.report.mistake(at.place, text);
                        continue;
                    }
                },
            };
            if client.is_empty() && clients.len() > 1 {
                let why = "options after a blank are for everybody, not for the client before it: \
                           so it is carried over";
                import.report.add(at.place, "(", Lost, why);
            }
            let options = format!("{general},{options}");
            self.client(import, at, client, &options);
        }
    }

    fn client(&mut self, import: &mut Import, at: &SourceKey, client: &str, options: &str) {
        // Before there was `sec=`, Kerberos was a client. It takes nothing from others.
        if client.starts_with("gss/") {
            let why = format!("{client}: weft has no Kerberos: it is not let in");
            return import.report.add(at.place, "client", Access, why);
        }
        let found = import.client(at, client);
        let terms = self.terms(import, at, options);
        self.asked.extend(found.map(|client| AskedClient {
            client,
            terms,
            note: format!("line {}", at.place.line),
        }));
    }

    /// What options give; `None`: nobody, because weft has no such security.
    fn terms(&mut self, import: &mut Import, at: &SourceKey, options: &str) -> Option<ExportTerms> {
        let mut base = ExportTerms {
            read_only: true,
            squash: "root",
            anon_uid: 65_534,
            anon_gid: 65_534,
            security: vec!["sys"],
            xprtsec: Vec::new(),
            secure: true,
        };
        // Options after `sec=` hold for what it names.
        let mut found: Option<ExportTerms> = None;
        let mut has_security = false;
        for option in options.split(',').map(str::trim) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if name == "sec" {
                has_security = true;
                let flavors = security(import, at, value);
                let was = found.take_if(|found| !found.security.is_empty());
                if let Some(was) = was {
                    if flavors.is_empty() {
                        return Some(was);
                    }
                    let why = "another `sec=` with rights of its own: the first counts";
                    import.report.add(at.place, "sec", Access, why);
                    return Some(was);
                }
                let mut own = base.clone();
                own.security = flavors;
                found = Some(own);
                continue;
            }
            let terms = found.as_mut().unwrap_or(&mut base);
            self.option(import, at, (name, value), terms);
        }
        let terms = match has_security {
            false => base,
            true => found?,
        };
        if terms.security.is_empty() {
            let why = "nothing is left that can be taken over: who needs it is not let in";
            import.report.add(at.place, "sec", Access, why);
            return None;
        }
        Some(terms)
    }

    fn option(
        &mut self,
        import: &mut Import,
        at: &SourceKey,
        (name, value): (&str, &str),
        terms: &mut ExportTerms,
    ) {
        let mut key = at.clone();
        name.clone_into(&mut key.name);
        match name {
            "" => {}
            "ro" => terms.read_only = true,
            "rw" => terms.read_only = false,
            "root_squash" => terms.squash = "root",
            "no_root_squash" => terms.squash = "none",
            "all_squash" => terms.squash = "all",
            "no_all_squash" if terms.squash == "all" => terms.squash = "root",
            "no_all_squash" => {}
            "secure" => terms.secure = true,
            "insecure" => terms.secure = false,
            "anonuid" => terms.anon_uid = import.id(&key, value).unwrap_or(terms.anon_uid),
            "anongid" => terms.anon_gid = import.id(&key, value).unwrap_or(terms.anon_gid),
            "xprtsec" => self::xprtsec(import, at, value, terms),
            "fsid" if matches!(value, "0" | "root") => self.is_root = true,
            name => match OPTIONS.iter().find(|(known, ..)| *known == name) {
                Some((_, Default, _)) => {}
                Some((_, weight, why)) => import.report.add(at.place, name, *weight, *why),
                None => {
                    let why = "weft does not know this option: see in exports(5) whether it keeps \
                               anybody out";
                    import.report.add(at.place, name, Access, why);
                }
            },
        }
    }

    fn finish(self, import: &mut Import, path: &str) {
        let mut notes = Notes::default();
        let line = self.at.place.line;
        notes.set("path", format!("line {line}"));
        if self.is_root {
            let why = format!(
                "{path} was the root of NFSv4 (`fsid=0`): clients that mounted HOST:/x mount \
                 HOST:{}/x now, as those of NFSv3 do",
                path.trim_end_matches('/')
            );
            import.report.add(self.at.place, "fsid", Lost, why);
        }
        let rules = import.rules(&self.at, in_order(self.asked));
        import.export(
            &self.at,
            ExportModel {
                path: path.to_owned(),
                folder: path.to_owned(),
                rules,
                notes,
            },
        );
    }
}

/// The order in which the kernel looks: hosts, networks, patterns and netgroups, everybody.
pub(crate) fn in_order(mut asked: Vec<AskedClient>) -> Vec<AskedClient> {
    asked.sort_by_key(|asked| match asked.client {
        Client::One(_) => 0,
        Client::Net(_) => 1,
        Client::Unknown => 2,
        Client::Any => 3,
    });
    asked
}

/// How connections may be protected.
fn xprtsec(import: &mut Import, at: &SourceKey, value: &str, terms: &mut ExportTerms) {
    let is_named = |way: &&str| value.split(':').any(|named| named == *way);
    let ways = ["none", "tls", "mtls"].into_iter().filter(is_named);
    terms.xprtsec = ways.collect();
    let (weight, why) = match &terms.xprtsec[..] {
        [] => {
            terms.security.clear();
            (
                Access,
                "weft has no such protection: who needs it is not let in",
            )
        }
        ["none"] => return,
        ["none", ..] => (
            Lost,
            "none comes with TLS before [nfs.tls] names tlshd's certificate",
        ),
        _ => (
            Access,
            "nobody is let in before [nfs.tls] names tlshd's certificate (/etc/tlshd.conf)",
        ),
    };
    import.report.add(at.place, "xprtsec", weight, why);
}

fn security(import: &mut Import, at: &SourceKey, value: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for flavor in value.split(':') {
        match flavor {
            "sys" if !found.contains(&"sys") => found.push("sys"),
            "none" | "null" if !found.contains(&"none") => found.push("none"),
            "sys" | "none" | "null" => {}
            other => {
                let why = left_out_flavor(other);
                import.report.add(at.place, "sec", Access, why);
            }
        }
    }
    found
}

/// Words of a line, with \040 and the like, and quotation marks.
fn export_words(line: &str) -> Result<Vec<String>, String> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let (mut is_quoted, mut is_word) = (false, false);
    let mut rest = line.bytes().peekable();
    let take = |bytes: &mut Vec<u8>| {
        let word = String::from_utf8(std::mem::take(bytes));
        word.map_err(|_| "an escape makes no text in UTF-8".to_owned())
    };
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => (is_quoted, is_word) = (!is_quoted, true),
            b'#' if !is_quoted && !is_word => break,
            b' ' | b'\t' if !is_quoted => {
                if std::mem::take(&mut is_word) {
                    words.push(take(&mut bytes)?);
                }
            }
            b'\\' => {
                let mut ahead = rest.clone();
                let digits: Vec<u8> = ahead.by_ref().take(3).collect();
                let text = std::str::from_utf8(&digits).ok();
                let octal = text.filter(|text| text.len() == 3 && !text.starts_with('+'));
                match octal.and_then(|text| u8::from_str_radix(text, 8).ok()) {
                    Some(octal) => {
                        bytes.push(octal);
                        rest = ahead;
                    }
                    None => bytes.push(byte),
                }
                is_word = true;
            }
            byte => {
                bytes.push(byte);
                is_word = true;
            }
        }
    }
    if is_quoted {
        return Err("a quotation mark is not closed: write the other one".to_owned());
    }
    if is_word {
        words.push(take(&mut bytes)?);
    }
    Ok(words)
}
