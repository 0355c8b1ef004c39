//! `kind = "remote"`: where the namespace of a volume is, and who weft is to its target.

use std::sync::Arc;
use std::time::Duration;

use nvmf::dhchap::DhchapKeys;
use store::{Kind, RemoteAt};
use store_remote::{NamespaceUrl, RemoteTarget, TIMEOUT_DEFAULT};

use crate::secret::Secrets;
use crate::source::{Section, Sink};

/// How long an I/O may wait, milliseconds.
const TIMEOUTS_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// Paths of a volume.
const URLS_MAX: usize = 8;

pub(super) fn kind(sink: &mut Sink, section: &Section, secrets: &Secrets) -> Option<Kind> {
    let example = "urls = [\"nvme-tcp://192.0.2.1/nqn.2026-01.org.example:there?nsid=1\"]";
    section.missing(sink, "urls", example);
    let urls = urls(sink, section);
    let timeout = timeout(sink, section);
    let hostnqn = section.text(sink, "host_nqn");
    if let Some(nqn) = &hostnqn
        && let Err(why) = nvmf::check_host_nqn(nqn.value)
    {
        sink.add(&nqn.span, why.to_string());
        return None;
    }
    let urls = urls?;
    let mut host = store_remote::host_identity(hostnqn.map(|nqn| nqn.value));
    let names = (host.hostnqn.as_str(), urls[0].subnqn.as_str());
    let psk = secrets.own_psk(sink, section, names);
    let own = ("dhchap_secret", "dhchap_secret_file");
    let of_host = secrets.dhchap_keys(sink, section, own, names.0);
    let theirs = ("dhchap_ctrl_secret", "dhchap_ctrl_secret_file");
    let controller = secrets.dhchap_key(sink, section, theirs, names.1);
    if section.has(theirs.1) && !section.has(own.1) {
        let text = "a target proves itself where weft does: set `dhchap_secret_file` too";
        sink.add(&section.span_of(theirs.1), text);
    }
    host.psk = psk.map(Into::into);
    let first = of_host.and_then(|keys| keys.into_iter().next());
    host.dhchap = first.map(|first| DhchapKeys {
        host: vec![first.key.into()],
        controller,
    });
    let timeout = timeout?;
    let target = RemoteTarget {
        urls,
        host,
        timeout,
    };
    Some(Kind::remote(RemoteAt(Arc::new(target))))
}

fn urls(sink: &mut Sink, section: &Section) -> Option<Vec<NamespaceUrl>> {
    let texts = section.texts(sink, "urls")?;
    if !(1..=URLS_MAX).contains(&texts.len()) {
        let text = format!("`urls` has 1 to {URLS_MAX}: the ways to one namespace");
        sink.add(&section.span_of("urls"), text);
        return None;
    }
    let urls = texts
        .iter()
        .map(|text| match store_remote::parse_url(text.value) {
            Ok(url) => Some(url),
            Err(why) => {
                sink.add(&text.span, why);
                None
            }
        });
    // All that is wrong is told.
    let urls: Vec<Option<NamespaceUrl>> = urls.collect();
    urls.into_iter().collect()
}

fn timeout(sink: &mut Sink, section: &Section) -> Option<Duration> {
    let Some(ms) = section.number(sink, "timeout_ms", false) else {
        return (!section.has("timeout_ms")).then_some(TIMEOUT_DEFAULT);
    };
    if !TIMEOUTS_MS.contains(&ms.value) {
        let (least, most) = (TIMEOUTS_MS.start(), TIMEOUTS_MS.end());
        sink.add(&ms.span, format!("`timeout_ms` is from {least} to {most}"));
        return None;
    }
    Some(Duration::from_millis(ms.value))
}
