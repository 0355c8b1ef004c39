//! What owners of files are called.

use server::check;
use server::nfs::OwnerNaming;

use crate::source::{Section, Sink};

pub(super) fn read(sink: &mut Sink, nfs: &Section) -> OwnerNaming {
    let naming = OwnerNaming {
        domain: domain(sink, nfs),
        user_ids: ids(sink, nfs, "user_ids"),
        group_ids: ids(sink, nfs, "group_ids"),
    };
    let has_domain = nfs.has("domain") || nfs.has("kerberos");
    for key in ["user_ids", "group_ids"] {
        if nfs.has(key) && !has_domain {
            let text = format!(
                "`{key}` counts for owners with names alone: write `domain = \"example.org\"`, too"
            );
            sink.add(&nfs.span_of(key), text);
        }
    }
    naming
}

/// What stands behind the `@` in names of owners.
pub(super) fn domain(sink: &mut Sink, section: &Section) -> Option<String> {
    let domain = section.text(sink, "domain")?;
    if let Err(why) = check::host(domain.value) {
        let text = format!("{why}: `domain` is as in \"example.org\"");
        sink.add(&domain.span, text);
    }
    Some(domain.value.to_owned())
}

/// Names with their numbers, as `alice=1000`.
fn ids(sink: &mut Sink, section: &Section, key: &str) -> Vec<(String, u32)> {
    let mut ids: Vec<(String, u32)> = Vec::new();
    for item in section.texts(sink, key).unwrap_or_default() {
        match id(item.value) {
            Some((name, _)) if ids.iter().any(|(other, _)| *other == name) => {
                let text = format!("\"{name}\" is in the list already");
                sink.add(&item.span, text);
            }
            Some(id) => ids.push(id),
            None => {
                let text = format!(
                    "`{key}` holds names with their numbers, as \"alice=1000\", not \"{}\"",
                    item.value
                );
                sink.add(&item.span, text);
            }
        }
    }
    ids
}

fn id(text: &str) -> Option<(String, u32)> {
    let (name, id) = text.split_once('=')?;
    // The last number means "leave it" to `chown`.
    let id = id.parse().ok().filter(|id| *id != u32::MAX)?;
    let is_name = !name.is_empty() && !name.contains(['@', '\0']);
    is_name.then(|| (name.to_owned(), id))
}
