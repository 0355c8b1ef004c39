//! Certificates of a file: those that a server shows, and names of those that clients show.

use std::path::Path;
use std::time::SystemTime;

use tls::{Certificate, ClientAuthorities, Identity, MakeSide, SAN_KINDS, SecretPlace, TlsFiles};

use crate::source::{Section, Sink, file};

/// A URI names more than a machine.
const SAN_BYTES_MAX: usize = 1024;

/// The files of TLS, which are read now to see whether they will do.
pub(crate) fn tls_files(
    sink: &mut Sink,
    section: &Section,
    folder: &Path,
    make: MakeSide,
) -> Option<TlsFiles> {
    section.missing(sink, "certificate", "certificate = \"server.pem\"");
    section.missing(sink, "key", "key = \"server.key\"");
    let mut path = |key| file(sink, section, key, folder);
    let [certificate, client_ca, client_crl] =
        ["certificate", "client_ca", "client_crl"].map(&mut path);
    let told = |sink: &mut Sink, key: &str, why: String| {
        sink.add(&section.span_of(key), format!("`{key}`: {why}"));
    };
    if let (Some(crl), None) = (&client_crl, &client_ca) {
        let why = format!(
            "{} revokes certificates of clients, and there is no `client_ca`",
            crl.display()
        );
        told(sink, "client_crl", why);
    }
    let authorities = client_ca.as_ref().map(|ca| {
        let crl = client_crl.as_deref();
        let read = ClientAuthorities::read(ca, None);
        let read = read.map_err(|why| ("client_ca", why))?;
        match crl {
            None => Ok(read),
            Some(_) => ClientAuthorities::read(ca, crl).map_err(|why| ("client_crl", why)),
        }
    });
    let authorities = authorities.transpose();
    let key = section.text(sink, "key");
    let (certificate, key) = (certificate?, key?);
    let key = match SecretPlace::parse(key.value, folder) {
        Ok(key) => key,
        Err(why) => {
            told(sink, "key", why);
            return None;
        }
    };
    let chain = tls::read_certificates(&certificate).map_err(|why| ("certificate", why));
    let identity = chain.and_then(|chain| {
        let read = tls::read_key(&key);
        let fits = read.and_then(|key| Identity::new(chain, key));
        fits.map_err(|why| ("key", why))
    });
    let side = identity.and_then(|identity| {
        let side = make(identity, authorities?);
        side.map_err(|why| ("certificate", why))
    });
    match side {
        Ok(_) => Some(TlsFiles {
            certificate,
            key,
            client_ca,
            client_crl,
        }),
        Err((key, why)) => {
            told(sink, key, why);
            None
        }
    }
}

/// That the days of the certificate in a table, or of an authority of clients', are over or have
/// not come; `refused_by`: what takes the certificate no more.
pub(crate) fn out_of_time(table: &str, files: &TlsFiles, refused_by: &str) -> Vec<String> {
    let now = SystemTime::now();
    let first_of = |file: &Path, most: usize| {
        let all = tls::read_certificates(file).unwrap_or_default();
        let all = all.iter().take(most);
        let mut whys = all.filter_map(|one| Certificate::new(one).ok()?.is_out_of_time(now));
        Some((file.display().to_string(), whys.next()?))
    };
    // Behind the first are those that it is signed by.
    let own = first_of(&files.certificate, 1).map(|(file, why)| {
        format!(
            "{table} certificate: {file} {why}: {refused_by} refuse it; put another in its place"
        )
    });
    let authorities = files.client_ca.as_deref();
    let authority = authorities.and_then(|file| first_of(file, usize::MAX));
    // TLS looks at the days of what an authority has signed, and not at its own (RFC 5280, section
    // 6.1).
    let authority = authority.map(|(file, why)| {
        format!(
            "{table} client_ca: an authority in {file} {why}: clients are let in by what it has \
             signed all the same; put its successor in its place, or take it out"
        )
    });
    own.into_iter().chain(authority).collect()
}

/// A subject alternative name as weft compares it.
///
/// # Errors
/// What is taken instead.
pub(crate) fn alternative_name(text: &str) -> Result<String, String> {
    let (kind, name) = text.split_once(':').unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_graphic();
    let is_known = SAN_KINDS.contains(&kind) && !name.is_empty();
    if !is_known || !name.bytes().all(is_name) || text.len() > SAN_BYTES_MAX {
        return Err(format!(
            "a subject alternative name with its kind, {}:, as `openssl x509 -noout \
             -ext subjectAltName` prints it, such as \"email:alice@example.org\", not \"{text}\"",
            SAN_KINDS.join(":, ")
        ));
    }
    // DNS knows no difference.
    Ok(match kind {
        "DNS" => format!("{kind}:{}", name.to_ascii_lowercase()),
        _ => text.to_owned(),
    })
}

/// That one of the names of certificates in the `clients` of an export looks like a pattern, which
/// it is not.
pub(crate) fn no_pattern<'n>(
    export: &str,
    mut names: impl Iterator<Item = &'n String>,
) -> Option<String> {
    let name = names.find(|name| name.contains('*'))?;
    Some(format!(
        "`clients` of {export}: \"{name}\" is no pattern: it lets in those whose certificate \
         has this very name, with the asterisk; write the own name of each client in its place, \
         as `openssl x509 -noout -ext subjectAltName` shows it"
    ))
}

/// Whether a text is meant as one.
pub(crate) fn is_alternative_name(text: &str) -> bool {
    let kind = text.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| SAN_KINDS.contains(&kind))
}
