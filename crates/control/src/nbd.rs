//! What volumes of a file are exported over NBD, and to which clients.

use std::collections::HashMap;
use std::path::Path;

use server::{Config, NbdClientName, NbdExportSpec, check};
use tls::{ServerSide, TlsFiles};

use crate::certificates::{alternative_name, is_alternative_name, out_of_time, tls_files};
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
pub(crate) fn tls(sink: &mut Sink, file: &Section, folder: &Path) -> Option<TlsFiles> {
    let nbd = file.table(sink, SCHEMA, "nbd", NBD)?;
    nbd.missing(sink, "tls", "[nbd.tls]");
    let table = nbd.table(sink, SCHEMA, "tls", NBD_TLS)?;
    tls_files(sink, &table, folder, ServerSide::for_nbd)
}

/// What is allowed, but keeps clients out.
pub(crate) fn notes(config: &Config) -> impl Iterator<Item = String> {
    let tls = config.nbd_tls.as_ref();
    let late = tls.map(|tls| out_of_time("[nbd.tls]", tls, "NBD clients"));
    let judges = tls.is_some_and(|tls| tls.client_ca.is_some());
    let unjudged = config.nbd_exports.iter().filter_map(move |export| {
        let mut names = export.clients.iter().flatten();
        let is_certificate = |name: &&NbdClientName| matches!(name, NbdClientName::Certificate(_));
        let name = names.find(is_certificate).filter(|_| !judges)?;
        Some(format!(
            "`clients` of the NBD export \"{}\": \"{name}\" lets no client in: [nbd.tls] names no \
             `client_ca`, by which clients' certificates are judged",
            export.name
        ))
    });
    late.into_iter().flatten().chain(unjudged)
}

/// Clients by networks or names of their certificates; `None` for any.
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
