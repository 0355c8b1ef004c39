//! How the process is asked and told to change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use server::{AdminClient, AdminGroup, AdminListen, AdminRole, AdminSocket, AdminSpec, AdminToken};
use tls::ServerSide;

use crate::certificates::{alternative_name, out_of_time, tls_files};
use crate::policy::pick;
use crate::schema::{ADMIN, ADMIN_CLIENT, ADMIN_TLS, GROUP, SCHEMA, TOKEN};
use crate::source::{At, Section, Sink};
use crate::without_secrets::check_is_shown;

/// More names than a machine has.
const NAMES_MAX: usize = 64;

/// More programs than ask.
const TOKENS_MAX: usize = 256;

/// More groups than let in.
const GROUPS_MAX: usize = 64;
/// More people and programs than ask.
const CLIENTS_MAX: usize = 256;

const NAME_BYTES_MAX: usize = 64;

const ROLES: [(&str, AdminRole); 3] = {
    let [viewer, operator, admin] = AdminRole::ALL;
    [
        (viewer.name(), viewer),
        (operator.name(), operator),
        (admin.name(), admin),
    ]
};

pub(crate) fn read(sink: &mut Sink, file: &Section, folder: &Path) -> AdminSpec {
    let Some(section) = file.table(sink, SCHEMA, "admin", ADMIN) else {
        return AdminSpec::default();
    };
    let section = &section;
    let tokens = tokens(sink, section);
    let table = section.table(sink, SCHEMA, "tls", ADMIN_TLS);
    let tls = table.and_then(|tls| tls_files(sink, &tls, folder, ServerSide::new));
    let has_ca = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    // What is wrong with its files is no reason to tell more.
    let is_open = !tokens.is_empty() || section.has("tls");
    AdminSpec {
        socket: socket(sink, section, folder),
        listen: listen(sink, section, is_open),
        state: state(sink, section, folder),
        names: names(sink, section),
        clients: clients(
            sink,
            section,
            has_ca || (tls.is_none() && section.has("tls")),
        ),
        tokens,
        groups: groups(sink, section),
        tls,
    }
}

fn socket(sink: &mut Sink, section: &Section, folder: &Path) -> AdminSocket {
    let socket = section.text(sink, "socket");
    match socket.map(|text| (text.value, text.span)) {
        None => AdminSocket::Usual,
        Some(("off", _)) => AdminSocket::Off,
        Some((path, span)) if path.is_empty() || path.contains('\0') => {
            let text = "`socket` takes the path of a Unix socket, or \"off\"";
            sink.add(&span, text);
            AdminSocket::Off
        }
        Some((path, _)) => AdminSocket::At(folder.join(path)),
    }
}

fn state(sink: &mut Sink, section: &Section, folder: &Path) -> Option<PathBuf> {
    let state = section.text(sink, "state")?;
    if state.value.is_empty() || state.value.contains('\0') {
        sink.add(&state.span, "`state` takes the path of a folder");
        return None;
    }
    Some(folder.join(state.value))
}

fn listen(sink: &mut Sink, section: &Section, is_open: bool) -> AdminListen {
    let Some(At { value, span }) = section.text(sink, "listen") else {
        return AdminListen::Usual;
    };
    if value == "off" {
        return AdminListen::Off;
    }
    let wrong = match value.parse::<SocketAddr>() {
        Err(_) => {
            "`listen` takes an IP address with port, \"127.0.0.1:4480\" or \"[::1]:4480\", or \
             \"off\""
        }
        Ok(address) if address.port() == 0 => {
            "port 0 would be another port at every start: name one, such as 4480"
        }
        Ok(address) if !is_open && !is_loopback(address) => {
            "`listen` takes an address of this machine alone, 127.0.0.1 or ::1, where there is \
             neither [admin.tls] nor [[admin.token]]: nobody elsewhere could log in; `ssh -L \
             4480:127.0.0.1:4480` reaches it, encrypted"
        }
        Ok(address) => return AdminListen::At(address),
    };
    sink.add(&span, format!("{wrong}, not \"{value}\""));
    AdminListen::Off
}

/// What somebody may want to know who lets others in over TCP.
pub(crate) fn notes(spec: &AdminSpec) -> Vec<String> {
    match (&spec.listen, &spec.tls) {
        (AdminListen::Off, _) => Vec::new(),
        // A certificate that nobody takes keeps no host from its volumes.
        (_, Some(tls)) => out_of_time("[admin.tls]", tls, "browsers and commands"),
        (AdminListen::At(address), None) if !is_loopback(*address) => vec![format!(
            "[admin] listen: what goes over {address} is not encrypted, tokens and sessions \
             neither: name a certificate in [admin.tls], or keep it to a network that you trust"
        )],
        _ => Vec::new(),
    }
}

/// Whether this machine alone reaches an address.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn tokens(sink: &mut Sink, section: &Section) -> Vec<AdminToken> {
    let sections = section.tables(sink, SCHEMA, "token", TOKEN);
    let named = named_roles(sink, "token", TOKENS_MAX, &sections);
    let mut tokens = Vec::new();
    for (section, named) in sections.iter().zip(named) {
        section.missing(sink, "sha256", "what `weft token add` writes");
        let sha256 = section.text(sink, "sha256");
        let (Some((name, role)), Some(sha256)) = (named, sha256) else {
            continue;
        };
        let is_hex = |byte: u8| byte.is_ascii_hexdigit();
        if let Err(why) = check_is_shown(sha256.value) {
            sink.add(&sha256.span, format!("`sha256`: {why}"));
        } else if sha256.value.len() != 64 || !sha256.value.bytes().all(is_hex) {
            let text = "`sha256` is the digest of a token, 64 hexadecimal digits, not the token \
                        itself: `weft token add` makes both";
            sink.add(&sha256.span, text);
        }
        let sha256 = sha256.value.to_ascii_lowercase();
        tokens.push(AdminToken { name, role, sha256 });
    }
    tokens
}

fn groups(sink: &mut Sink, section: &Section) -> Vec<AdminGroup> {
    let sections = section.tables(sink, SCHEMA, "group", GROUP);
    let named = named_roles(sink, "group", GROUPS_MAX, &sections);
    let named = named.into_iter().flatten();
    named
        .map(|(name, role)| AdminGroup { name, role })
        .collect()
}

/// The `name` and `role` of each, where both are right.
fn named_roles(
    sink: &mut Sink,
    what: &str,
    count_max: usize,
    sections: &[Section],
) -> Vec<Option<(String, AdminRole)>> {
    if let Some(section) = sections.get(count_max) {
        sink.add(
            &section.span,
            format!("`{what}` holds {count_max} tables at most"),
        );
    }
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for section in sections {
        section.missing(sink, "name", "name = \"storage\"");
        section.missing(sink, "role", "role = \"viewer\"");
        let role = pick(sink, Some(section), "role", &ROLES);
        let name = section.text(sink, "name");
        if let Some(name) = &name {
            if name.value.is_empty() || name.value.len() > NAME_BYTES_MAX {
                let text = format!("`name` has 1 to {NAME_BYTES_MAX} bytes");
                sink.add(&name.span, text);
            }
            if !names.insert(name.value) {
                let text = format!("there is a {what} \"{}\" already", name.value);
                sink.add(&name.span, text);
            }
        }
        all.push(
            name.zip(role)
                .map(|(name, role)| (name.value.to_owned(), role)),
        );
    }
    all
}

/// Who is known by a certificate.
fn clients(sink: &mut Sink, section: &Section, has_ca: bool) -> Vec<AdminClient> {
    let mut clients: Vec<AdminClient> = Vec::new();
    let sections = section.tables(sink, SCHEMA, "client", ADMIN_CLIENT);
    if let Some(section) = sections.get(CLIENTS_MAX) {
        let text = format!("there are {CLIENTS_MAX} clients at most");
        sink.add(&section.span, text);
    }
    if let Some(section) = sections.first().filter(|_| !has_ca) {
        let text = "no client can show a certificate: [admin.tls] names no `client_ca`";
        sink.add(&section.span, text);
    }
    for section in &sections {
        section.missing(sink, "name", "name = \"email:alice@example.org\"");
        section.missing(sink, "role", "role = \"operator\"");
        let role = pick(sink, Some(section), "role", &ROLES);
        let (Some(name), Some(role)) = (section.text(sink, "name"), role) else {
            continue;
        };
        let known = alternative_name(name.value);
        match known {
            Err(why) => sink.add(&name.span, format!("`name` takes {why}")),
            Ok(known) if clients.iter().any(|client| client.name == known) => {
                let text = format!("there is a client \"{known}\" already");
                sink.add(&name.span, text);
            }
            Ok(name) => clients.push(AdminClient { name, role }),
        }
    }
    clients
}

fn names(sink: &mut Sink, section: &Section) -> Vec<String> {
    let names = section.texts(sink, "names").unwrap_or_default();
    if let Some(name) = names.get(NAMES_MAX) {
        sink.add(
            &name.span,
            format!("`names` holds {NAMES_MAX} names at most"),
        );
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    for name in &names {
        if name.value.is_empty() || !name.value.bytes().all(is_of_name) {
            let text = format!(
                "`names` holds names of this machine as browsers are given them, such as \
                 \"storage.example.org\", without port, not \"{}\"",
                name.value
            );
            sink.add(&name.span, text);
        }
    }
    names
        .iter()
        .map(|name| name.value.to_ascii_lowercase())
        .collect()
}
