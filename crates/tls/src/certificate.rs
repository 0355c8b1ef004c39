//! What a certificate says.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The kinds of subject alternative names that clients are known by, as OpenSSL writes them.
pub const SAN_KINDS: [&str; 3] = ["DNS", "URI", "email"];

/// What is known of one.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its subject alternative names of [`SAN_KINDS`], such as `DNS:storage.example.org`.
    pub names: Vec<String>,
    /// Its subject, as `CN=storage,O=Example`.
    pub subject: String,
    not_before: SystemTime,
    not_after: SystemTime,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(der: &CertificateDer<'_>) -> Result<Certificate, String> {
        let read = x509_cert::Certificate::from_der(der);
        let read = read.map_err(|error| format!("no certificate of X.509: {error}"))?;
        let read = read.tbs_certificate();
        let names = read.get_extension::<SubjectAltName>();
        let names = names.map_err(|error| format!("its subject alternative names: {error}"))?;
        let names = names.map(|(_, SubjectAltName(names))| names);
        Ok(Certificate {
            names: names.iter().flatten().filter_map(name_of).collect(),
            subject: read.subject().to_string(),
            not_before: read.validity().not_before.to_system_time(),
            not_after: read.validity().not_after.to_system_time(),
            der: der.clone().into_owned(),
        })
    }

    /// Whether a client that asks for this name or address takes it.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(parsed), Ok(name)) = (
            ParsedCertificate::try_from(&self.der),
            ServerName::try_from(name),
        ) else {
            return false;
        };
        rustls::client::verify_server_name(&parsed, &name).is_ok()
    }

    /// The first DNS name that is none of many.
    #[must_use]
    pub fn dns_name(&self) -> Option<&str> {
        let mut names = self.names.iter();
        names.find_map(|name| name.strip_prefix("DNS:").filter(|name| !name.contains('*')))
    }

    /// Why nobody takes it at a time: its days are over, or have not come.
    #[must_use]
    pub fn is_out_of_time(&self, now: SystemTime) -> Option<String> {
        let days = |long: Duration| long.as_secs() / 86_400;
        if let Ok(ago) = now.duration_since(self.not_after)
            && !ago.is_zero()
        {
            return Some(format!("has expired, {} days ago", days(ago)));
        }
        let early = self.not_before.duration_since(now).ok();
        let early = early.filter(|early| !early.is_zero())?;
        Some(format!("is not valid yet, for {} days", days(early)))
    }
}

/// A name as OpenSSL writes it. Names of DNS mean the same in lower case.
fn name_of(name: &GeneralName) -> Option<String> {
    let [dns, uri, email] = SAN_KINDS;
    match name {
        GeneralName::DnsName(name) => Some(format!("{dns}:{}", name.as_str().to_ascii_lowercase())),
        GeneralName::UniformResourceIdentifier(name) => Some(format!("{uri}:{}", name.as_str())),
        GeneralName::Rfc822Name(name) => Some(format!("{email}:{}", name.as_str())),
        _ => None,
    }
}
