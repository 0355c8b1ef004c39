//! By what the keys of a `[[volume]]` are wrapped.

use std::path::Path;
use tls::SecretPlace;

use store::{EncryptionSettings, WrappingKey};

use crate::source::{Section, Sink};

/// The keys of a volume that name a key, and a passphrase.
const NAMES: (&str, &str) = ("key_file", "passphrase_file");
/// The same of what wrapped before.
const FORMER: (&str, &str) = ("former_key_file", "former_passphrase_file");

/// What a key is, or why it could not be read.
type KeyRead = Result<WrappingKey, String>;

/// As a section says it; `Some(None)` where the volume is not encrypted.
pub(super) fn settings(
    sink: &mut Sink,
    section: &Section,
    folder: &Path,
) -> Option<Option<EncryptionSettings>> {
    let key = key_of(sink, section, folder, NAMES)?;
    let former = key_of(sink, section, folder, FORMER)?;
    let Some(key) = key else {
        if former.is_some() {
            let (named, _) = named(section, FORMER)?;
            let text =
                format!("`{named}` is of a volume that has a `key_file` or `passphrase_file` too");
            sink.add(&section.span_of(named), text);
            return None;
        }
        return Some(None);
    };
    Some(Some(EncryptionSettings { key, former }))
}

/// Which of two keys is there, and whether it names a passphrase.
fn named(
    section: &Section,
    (key, passphrase): (&'static str, &'static str),
) -> Option<(&'static str, bool)> {
    match section.has(key) {
        true => Some((key, false)),
        false => section.has(passphrase).then_some((passphrase, true)),
    }
}

/// The key that a section names; `Some(None)`: it names none.
fn key_of(
    sink: &mut Sink,
    section: &Section,
    folder: &Path,
    names: (&'static str, &'static str),
) -> Option<Option<KeyRead>> {
    let Some((name, is_passphrase)) = named(section, names) else {
        return Some(None);
    };
    let mut wrong = |why: String| {
        sink.add(&section.span_of(name), why);
        None
    };
    if section.has(names.0) && section.has(names.1) {
        let (key, passphrase) = names;
        return wrong(format!(
            "`{key}` and `{passphrase}` contradict each other; keep one"
        ));
    }
    let text = section.text(sink, name)?;
    let mut wrong = |why: String| {
        sink.add(&text.span, format!("`{name}`: {why}"));
        None
    };
    if text.value.is_empty() {
        return wrong("it is empty".to_owned());
    }
    let place = match SecretPlace::parse(text.value, folder) {
        Ok(place) => place,
        Err(why) => return wrong(why),
    };
    let made = match is_passphrase {
        true => "write the passphrase to it, and no other line",
        false => "`umask 077; openssl rand -hex 32 > FILE` makes one for a volume that is new",
    };
    let content = match place.read(WrappingKey::CONTENT_BYTES_MAX, made) {
        Ok(content) => content,
        // The volume is locked, and others are served.
        Err(why) => return Some(Some(Err(format!("`{name}`: {why}")))),
    };
    let key = match is_passphrase {
        true => WrappingKey::of_passphrase_file(&content),
        false => WrappingKey::of_key_file(&content),
    };
    match key {
        Ok(key) => Some(Some(Ok(key))),
        Err(why) => wrong(format!("{place}: {why}")),
    }
}
