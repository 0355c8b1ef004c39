//! What volumes of a file are exported over NBD, and to which clients.

use std::collections::HashMap;
use std::path::Path;

use server::{Config, NbdClientName, NbdExportSpec, NbdTlsSpec, OF_KEY, check};
use tls::{ClientPsks, SecretPlace, ServerSide, is_psk_name};

use crate::certificates::{
    alternative_name, is_alternative_name, no_pattern, out_of_time, tls_files,
};
use crate::nvme::known_volume;
use crate::schema::{NBD, NBD_EXPORT, NBD_TLS, SCHEMA};
use crate::source::{Section, Sink};
use crate::volume::Volumes;

/// The exports; each has the name of its volume, unless it has one of its own.
pub(crate) fn exports(sink: &mut Sink, file: &Section, volumes: &Volumes) -> Vec<NbdExportSpec> {
    let mut exports: Vec<NbdExportSpec> = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for section in file.tables(sink, SCHEMA, "nbd_export", NBD_EXPORT) {
        section.missing(sink, "volume", "volume = \"disk\"");
        let volume = section.text(sink, "volume");
        if let Some(volume) = &volume {
            known_volume(sink, volume, volumes);
        }
        let name = section.text(sink, "name");
        let place = if name.is_some() { "name" } else { "volume" };
        let spec = NbdExportSpec {
            name: match (&name, &volume) {
                (Some(name), _) => name.value.to_owned(),
                (None, Some(volume)) => volume.value.to_owned(),
                (None, None) => continue,
            },
            volume: volume.map_or_else(String::new, |volume| volume.value.to_owned()),
            description: section
                .text(sink, "description")
                .map_or_else(String::new, |text| text.value.to_owned()),
            is_read_only: section.flag(sink, "read_only").unwrap_or(false),
            clients: clients(sink, &section),
        };
        if let Err(why) = check::nbd_export_name(&spec.name) {
            sink.add(&section.span_of(place), why);
        }
        if let Err(why) = check::nbd_description(&spec.description) {
            sink.add(&section.span_of("description"), why);
        }
        let line = sink.line(&section.span);
        if let Some(first) = lines.insert(spec.name.clone(), line) {
            let there = format!("an NBD export \"{}\" is there already, ", spec.name);
            sink.add_with_line(&section.span_of(place), (&there, first, ""));
        }
        if !spec.volume.is_empty() {
            exports.push(spec);
        }
    }
    exports
}

/// What NBD speaks TLS by.
pub(crate) fn tls(sink: &mut Sink, file: &Section, folder: &Path) -> Option<NbdTlsSpec> {
    let nbd = file.table(sink, SCHEMA, "nbd", NBD)?;
    nbd.missing(sink, "tls", "[nbd.tls]");
    let table = nbd.table(sink, SCHEMA, "tls", NBD_TLS)?;
    let psk_file = psk_file(sink, &table, folder);
    let of_certificates = ["certificate", "key", "client_ca", "client_crl"];
    let has_certificates = of_certificates.iter().any(|key| table.has(key));
    let certificates = match has_certificates || !table.has("psk_file") {
        true => Some(tls_files(sink, &table, folder, ServerSide::for_nbd)?),
        false => None,
    };
    Some(NbdTlsSpec {
        certificates,
        psk_file,
    })
}

fn psk_file(sink: &mut Sink, table: &Section, folder: &Path) -> Option<SecretPlace> {
    let text = table.text(sink, "psk_file")?;
    let place = SecretPlace::parse(text.value, folder);
    let read = place.and_then(|place| ClientPsks::read(&place).map(|_| place));
    read.map_err(|why| sink.add(&text.span, format!("`psk_file`: {why}")))
        .ok()
}

/// What is allowed, but keeps clients out.
pub(crate) fn notes(config: &Config) -> impl Iterator<Item = String> {
    let tls = config.nbd_tls.as_ref();
    let certificates = tls.and_then(|tls| tls.certificates.as_ref());
    let late = certificates.map(|files| out_of_time("[nbd.tls]", files, "NBD clients"));
    let judges = certificates.is_some_and(|files| files.client_ca.is_some());
    let place = tls.and_then(|tls| tls.psk_file.as_ref());
    let psks = place.and_then(|place| ClientPsks::read(place).ok());
    let closed = config.nbd_exports.iter().filter_map(move |export| {
        let why = |name: &NbdClientName| match name {
            NbdClientName::Certificate(_) if !judges => {
                Some("names no `client_ca`, by which clients' certificates are judged")
            }
            NbdClientName::Key(name) => {
                let name = name.strip_prefix(OF_KEY).unwrap_or_default();
                let has_key = psks.as_ref().is_some_and(|psks| psks.has(name));
                (!has_key).then_some("has no `psk_file` with a key of that name")
            }
            NbdClientName::Certificate(_) | NbdClientName::Network(_) => None,
        };
        let mut names = export.clients.iter().flatten();
        let (name, why) = names.find_map(|name| Some((name, why(name)?)))?;
        Some(format!(
            "`clients` of the NBD export \"{}\": \"{name}\" lets no client in: [nbd.tls] {why}",
            export.name
        ))
    });
    let patterns = config.nbd_exports.iter().filter_map(|export| {
        let names = export.clients.iter().flatten();
        let names = names.filter_map(|name| match name {
            NbdClientName::Certificate(name) => Some(name),
            _ => None,
        });
        no_pattern(&format!("the NBD export \"{}\"", export.name), names)
    });
    late.into_iter().flatten().chain(closed).chain(patterns)
}

/// Clients by networks, or names of their certificates or keys; `None` for any.
fn clients(sink: &mut Sink, section: &Section) -> Option<Vec<NbdClientName>> {
    let any = section.flag(sink, "allow_any_client").unwrap_or(false);
    if any && section.has("clients") {
        let text = "`allow_any_client = true` and `clients` contradict each other";
        sink.add(&section.span_of("clients"), text);
    } else if !any && !section.has("clients") {
        let text = "no client could connect: give `clients = [\"192.0.2.0/24\"]` or \
                    `allow_any_client = true`";
        sink.add(&section.span, text);
    }
    let texts = section.texts(sink, "clients").unwrap_or_default();
    if texts.is_empty() && section.has("clients") {
        let text = "`clients` names no client: name a network, or set `allow_any_client = true`";
        sink.add(&section.span_of("clients"), text);
    }
    let mut clients = Vec::new();
    for text in texts {
        if let Some(name) = text.value.strip_prefix(OF_KEY) {
            match is_psk_name(name) {
                true => clients.push(NbdClientName::Key(text.value.to_owned())),
                false => {
                    let why = "behind `PSK:` stands a name as `psk_file` of [nbd.tls] has it";
                    sink.add(&text.span, why);
                }
            }
            continue;
        }
        if is_alternative_name(text.value) {
            match alternative_name(text.value) {
                Ok(name) => clients.push(NbdClientName::Certificate(name)),
                Err(why) => sink.add(&text.span, format!("`clients` takes {why}")),
            }
            continue;
        }
        match text.value.parse() {
            Ok(network) => clients.push(NbdClientName::Network(network)),
            Err(auth::NetworkError) => {
                let why = format!("\"{}\": {}", text.value, auth::NetworkError);
                sink.add(&text.span, why);
            }
        }
    }
    (!any).then_some(clients)
}
