//! Certificates of a file: those that a server shows, and names of those that clients show.

use std::path::Path;
use std::time::SystemTime;

use tls::{Certificate, ClientAuthorities, Identity, MakeSide, SAN_KINDS, TlsFiles};

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
    let [certificate, key, client_ca, client_crl] =
        ["certificate", "key", "client_ca", "client_crl"].map(&mut path);
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
    let (certificate, key) = (certificate?, key?);
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

/// That the days of the certificate in a table are over, or have not come; `refused_by`: what takes
/// it no more.
pub(crate) fn out_of_time(table: &str, file: &Path, refused_by: &str) -> Option<String> {
    let chain = tls::read_certificates(file).ok()?;
    let certificate = Certificate::new(chain.first()?).ok()?;
    let why = certificate.is_out_of_time(SystemTime::now())?;
    let file = file.display();
    Some(format!(
        "{table} certificate: {file} {why}: {refused_by} refuse it; put another in its place"
    ))
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

/// Whether a text is meant as one.
pub(crate) fn is_alternative_name(text: &str) -> bool {
    let kind = text.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| SAN_KINDS.contains(&kind))
}
