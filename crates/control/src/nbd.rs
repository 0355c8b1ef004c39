//! What volumes of a file are exported over NBD, and to which clients.

use std::collections::HashMap;

use auth::Network;
use server::{NbdExportSpec, check};

use crate::nvme::known_volume;
use crate::schema::{NBD_EXPORT, SCHEMA};
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

/// Where clients come from; `None` for anywhere.
fn clients(sink: &mut Sink, section: &Section) -> Option<Vec<Network>> {
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
        match text.value.parse() {
            Ok(network) => clients.push(network),
            Err(auth::NetworkError) => {
                let why = format!("\"{}\": {}", text.value, auth::NetworkError);
                sink.add(&text.span, why);
            }
        }
    }
    (!any).then_some(clients)
}
