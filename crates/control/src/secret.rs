//! CHAP names and secrets of a file, and those of DH-HMAC-CHAP: from files of their own or from the
//! configuration itself, and shown nowhere.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use auth::Secret;
use auth::dhchap::DhchapKey;
use iscsi::Credentials;

use crate::Origin;
use crate::schema::SCHEMA;
use crate::source::file;
use crate::source::{Section, Sink};

/// What others may do with a file so that it holds no secret: read or write it.
const OPEN_TO_ALL: u32 = 0o006;

/// The secrets that were read so far: those of one side are not the other's.
pub(crate) struct Secrets<'o> {
    origin: &'o Origin<'o>,
    list: Vec<KnownFile>,
}

struct KnownFile {
    secret: Secret,
    /// Weft proves its own name by it.
    is_mutual: bool,
    span: Range<usize>,
}

impl<'o> Secrets<'o> {
    pub fn new(origin: &'o Origin<'o>) -> Self {
        Secrets {
            origin,
            list: Vec::new(),
        }
    }

    /// What relative paths start from.
    pub fn folder(&self) -> &Path {
        self.origin.folder
    }

    /// The credentials under `key`, `chap` or `mutual_chap`, if that is there.
    pub fn credentials(
        &mut self,
        sink: &mut Sink,
        section: &Section,
        key: &'static str,
        title: &'static str,
    ) -> Option<Credentials> {
        let section = section.table(sink, SCHEMA, key, title)?;
        section.missing(sink, "user", "user = \"alice\"");
        let user = section.text(sink, "user");
        if let Some(user) = &user
            && let Err(why) = server::check::chap_user(user.value)
        {
            sink.add(&user.span, why);
        }
        let secret = self.secret(sink, &section);
        let (user, (secret, span)) = (user?.value.to_owned(), secret?);
        self.list.push(KnownFile {
            secret: secret.clone(),
            is_mutual: key == "mutual_chap",
            span,
        });
        Some(Credentials { user, secret })
    }

    fn secret(&self, sink: &mut Sink, section: &Section) -> Option<(Secret, Range<usize>)> {
        if !section.has("secret") {
            section.missing(sink, "secret_file", "secret_file = \"alice.secret\"");
        }
        self.made(sink, section, ("secret", "secret_file"), |bytes| {
            let secret = Secret::new(bytes);
            server::check::chap_secret(&secret)?;
            Ok(secret)
        })
    }

    /// The key of DH-HMAC-CHAP under one of two names, if it is there.
    pub fn dhchap_key(
        &self,
        sink: &mut Sink,
        section: &Section,
        names: (&'static str, &'static str),
    ) -> Option<DhchapKey> {
        let made = self.made(sink, section, names, |bytes| {
            let text = String::from_utf8(bytes).unwrap_or_default();
            DhchapKey::parse(text.trim_end()).map_err(|why| why.to_string())
        });
        made.map(|(key, _)| key)
    }

    /// What `make` makes of the bytes that stand under the first of two names, or in the file
    /// that the second names, and where that is.
    fn made<T>(
        &self,
        sink: &mut Sink,
        section: &Section,
        (itself, in_file): (&'static str, &'static str),
        make: impl FnOnce(Vec<u8>) -> Result<T, String>,
    ) -> Option<(T, Range<usize>)> {
        let key = match (section.has(itself), section.has(in_file)) {
            (true, true) => {
                let text = format!("`{itself}` and `{in_file}` contradict each other");
                sink.add(&section.span_of(itself), text);
                return None;
            }
            (true, false) => itself,
            (false, true) => in_file,
            (false, false) => return None,
        };
        let span = section.span_of(key);
        let found = match key == itself {
            true => {
                let text = section.text(sink, key)?;
                let mode = self.origin.mode;
                match mode.map_or(Ok(()), |mode| is_private("this file", mode)) {
                    Ok(()) => Ok(text.value.as_bytes().to_vec()),
                    Err(why) => Err(format!("{why}; or use `{in_file}`")),
                }
            }
            false => read(&file(sink, section, key, self.origin.folder)?),
        };
        match found.and_then(make) {
            Ok(made) => Some((made, span)),
            Err(why) => {
                sink.add(&span, format!("`{key}`: {why}"));
                None
            }
        }
    }

    /// Reports secrets by which both sides prove themselves (RFC 7143, section
    /// 9.2.1).
    pub fn compare(&self, sink: &mut Sink) {
        let (own, theirs): (Vec<_>, Vec<_>) = self.list.iter().partition(|known| known.is_mutual);
        for own in own {
            if let Some(other) = theirs.iter().find(|known| known.secret == own.secret) {
                let line = sink.line(&other.span);
                let before = "an initiator proves itself by the same secret, ";
                let after = ": weft needs one of its own";
                sink.add_with_line(&own.span, (before, line, after));
            }
        }
    }
}

/// The bytes of a file that other users may not read, without the end of its
/// line.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = private_bytes(path, Secret::LEN_MAX as u64 + 3)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// The first `most` bytes of a file that other users may not read.
pub(crate) fn private_bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error| format!("{shown} cannot be read: {error}");
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!("{shown} is no file"));
    }
    let file = File::open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    is_private(&shown.to_string(), about.mode())?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

fn is_private(file: &str, mode: u32) -> Result<(), String> {
    match mode & OPEN_TO_ALL {
        0 => Ok(()),
        _ => Err(format!(
            "everybody on this machine may read or write {file} (mode {:04o}): `chmod 600` it",
            mode & 0o7777
        )),
    }
}
