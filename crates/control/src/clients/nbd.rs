//! How clients reach NBD exports.

use server::{ListenerSpec, NbdClientName, NbdExportSpec, OF_KEY};

use super::{ClientStep, Reached, quoted, step};

/// What clients of an NBD export prove themselves by at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NbdProof<'a> {
    /// Nothing: they come in the clear.
    #[default]
    Clear,
    /// By what a certificate says, or no more than that weft shows its own; over TLS.
    Certificate,
    /// That they have the pre-shared key of this name, over TLS.
    Key(&'a str),
}

impl<'a> NbdProof<'a> {
    /// That of the clients of `export` at `listener`; `has_certificate`: weft shows one.
    #[must_use]
    pub fn of(
        export: &'a NbdExportSpec,
        listener: &ListenerSpec,
        has_certificate: bool,
    ) -> NbdProof<'a> {
        let names = || export.clients.iter().flatten();
        let is_network = |name: &NbdClientName| matches!(name, NbdClientName::Network(_));
        let is_open = export.clients.is_none() || names().any(is_network);
        let key = names().find_map(|name| match name {
            NbdClientName::Key(name) => name.strip_prefix(OF_KEY),
            _ => None,
        });
        match key {
            _ if is_open && !listener.requires_tls => NbdProof::Clear,
            Some(key) => NbdProof::Key(key),
            None if has_certificate => NbdProof::Certificate,
            None => NbdProof::Key("NAME"),
        }
    }
}

impl Reached<'_> {
    pub(super) fn nbd_linux(&self, name: &str, proof: NbdProof<'_>) -> Vec<ClientStep> {
        let (title, more) = match proof {
            NbdProof::Clear => ("From Linux, as root, with nbd-client", ""),
            NbdProof::Certificate => (
                "From Linux, as root, with nbd-client, in a folder with the authority of weft's \
                 certificate; -certfile and -keyfile, too, where a client shows one",
                " -cacertfile ca-cert.pem",
            ),
            // It knows no pre-shared keys.
            NbdProof::Key(_) => return self.nbd_own(name, proof),
        };
        let (ip, port) = (self.address.ip(), self.address.port());
        let name = quoted(name);
        vec![step(
            title,
            &[
                "modprobe nbd".to_owned(),
                format!("nbd-client {ip} {port} /dev/nbd0 -name {name}{more}"),
            ],
        )]
    }

    pub(super) fn nbd_own(&self, name: &str, proof: NbdProof<'_>) -> Vec<ClientStep> {
        let address = self.address;
        let (title, url, credentials) = match proof {
            NbdProof::Clear => (
                "With libnbd, QEMU or fio, as anybody",
                format!("nbd://{address}/{name}"),
                None,
            ),
            NbdProof::Certificate => (
                "With libnbd or QEMU, as anybody, in a folder with ca-cert.pem, and with \
                 client-cert.pem and client-key.pem where a client shows a certificate",
                format!("nbds://{address}/{name}?tls-certificates=."),
                Some("tls-creds-x509,id=tls,endpoint=client,dir=.".to_owned()),
            ),
            NbdProof::Key(key) => (
                "With libnbd or QEMU, as anybody, in a folder with keys.psk, which has the \
                 line of the client",
                format!("nbds://{key}@{address}/{name}?tls-psk-file=keys.psk"),
                Some(format!(
                    "tls-creds-psk,id=tls,endpoint=client,username={key},dir=."
                )),
            ),
        };
        let url = quoted(&url);
        let qemu = match credentials {
            None => format!("qemu-img info {url}"),
            Some(credentials) => {
                let (host, port) = (address.ip(), address.port());
                let disk =
                    format!("driver=nbd,host={host},port={port},export={name},tls-creds=tls");
                let (credentials, disk) = (quoted(&credentials), quoted(&disk));
                format!("qemu-img info --object {credentials} --image-opts {disk}")
            }
        };
        let mut commands = vec![format!("nbdinfo {url}"), qemu];
        // fio lets libnbd read no files of keys or certificates.
        if proof == NbdProof::Clear {
            commands.push(format!(
                "fio --name=nbd --ioengine=nbd --uri={url} --rw=randread --bs=4k --iodepth=32 \
                 --size=64m"
            ));
        }
        vec![step(title, &commands)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientSystem;
    use crate::clients::ReachedObject;

    #[test]
    fn export_is_reached_over_tls_where_its_clients_or_its_listener_want_that() {
        let name = |text: &str| match text.split_once(':') {
            Some(("PSK", _)) => NbdClientName::Key(text.to_owned()),
            Some(_) => NbdClientName::Certificate(text.to_owned()),
            None => NbdClientName::Network(text.parse().expect("a network")),
        };
        let export = |clients: Option<&[&str]>| NbdExportSpec {
            name: "disk".to_owned(),
            volume: "disk".to_owned(),
            description: String::new(),
            is_read_only: false,
            clients: clients.map(|clients| clients.iter().map(|text| name(text)).collect()),
        };
        let address = "127.0.0.1:10809".parse().expect("an address");
        let listener = |requires_tls| ListenerSpec {
            requires_tls,
            ..ListenerSpec::nbd(address)
        };
        let (certificate, key) = (NbdProof::Certificate, NbdProof::Key("vm1"));
        let both = &["192.0.2.1", "PSK:vm1"][..];
        for (clients, requires_tls, has_certificate, wanted) in [
            (None, false, true, NbdProof::Clear),
            (None, true, true, certificate),
            (None, true, false, NbdProof::Key("NAME")),
            (Some(&["192.0.2.1"][..]), false, true, NbdProof::Clear),
            (Some(&["DNS:vm1"]), false, true, certificate),
            (Some(&["PSK:vm1"]), false, true, key),
            (Some(both), false, true, NbdProof::Clear),
            (Some(both), true, true, key),
        ] {
            let export = export(clients);
            let proof = NbdProof::of(&export, &listener(requires_tls), has_certificate);
            assert_eq!(proof, wanted, "{clients:?} {requires_tls}");
        }
        for (proof, url) in [
            (NbdProof::Clear, "nbdinfo nbd://127.0.0.1:10809/disk"),
            (
                certificate,
                "'nbds://127.0.0.1:10809/disk?tls-certificates=.'",
            ),
            (
                key,
                "'nbds://vm1@127.0.0.1:10809/disk?tls-psk-file=keys.psk'",
            ),
        ] {
            let what = ReachedObject::NbdExport("disk", proof);
            let reached = Reached {
                what,
                address,
                weft: "weft",
            };
            let steps = reached.steps(ClientSystem::Other);
            assert!(steps[0].lines[0].ends_with(url), "{steps:?}");
            let is_clear = proof == NbdProof::Clear;
            assert_eq!(steps[0].lines[1].contains("tls-creds=tls"), !is_clear);
        }
    }
}
