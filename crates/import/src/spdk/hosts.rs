//! Hosts of subsystems, and the keys that they prove themselves by.

use super::{Spdk, see_all, subsystem_of};
use crate::Import;
use crate::model::{HostKey, HostModel};
use crate::report::Weight::Access;
use crate::tree::SourceKey;

impl Spdk {
    pub(super) fn host(&mut self, import: &mut Import, params: &SourceKey) {
        let Some(host) = params.key("host") else {
            return import.report.mistake(params.place, "there is no `host`");
        };
        let word = host.word().unwrap_or_default();
        let Some(at) = subsystem_of(import, params) else {
            return see_all(params);
        };
        let is_new = self.taken.insert((at, format!("host {word}")));
        let keys = self.keys(import, params);
        if !import.fits(host, nvmf::check_host_nqn(word)) || !is_new {
            return;
        }
        let Some(keys) = keys else { return };
        if let Some(hosts) = &mut import.model.subsystems[at].hosts {
            hosts.push(HostModel {
                nqn: word.to_owned(),
                keys,
            });
        } else if !keys.is_empty() {
            // Others are let in without keys; it is not.
            let why = "`allow_any_host` lets hosts in without a key; this one has one: give it a \
                       table [[nvme.subsystem.host]]";
            import.report.add(host.place, "host", Access, why);
        }
    }

    pub(super) fn key_file(&mut self, import: &mut Import, params: &SourceKey) {
        match params.text("name").zip(params.text("path")) {
            Some((name, path)) => {
                self.key_files.insert(name.to_owned(), path.to_owned());
            }
            None => {
                let text = "a key needs `name` and `path`";
                import.report.mistake(params.place, text);
            }
        }
    }

    /// Where the keys of a host lie; `None` if weft cannot name one: it is let in nowhere.
    fn keys(
        &self,
        import: &mut Import,
        params: &SourceKey,
    ) -> Option<Vec<(&'static str, HostKey)>> {
        let mut keys = Vec::new();
        for (name, weft) in [
            ("psk", "psk_file"),
            ("dhchap_key", "dhchap_secret_file"),
            ("dhchap_ctrlr_key", "dhchap_ctrl_secret_file"),
        ] {
            let Some(key) = params.key(name) else {
                continue;
            };
            let Some(word) = key.word() else { continue };
            let place = match self.key_files.get(word) {
                Some(path) => path.clone(),
                None if word.starts_with('/') => word.to_owned(),
                // The kernel's keyring.
                None if word.starts_with(':') => format!("keyring:{word}"),
                None => {
                    let why = format!(
                        "no call adds the key {word}: the host is let in nowhere; give it a table \
                         [[nvme.subsystem.host]] with `{weft}`"
                    );
                    import.report.add(key.place, name, Access, why);
                    return None;
                }
            };
            keys.push((weft, HostKey::At(place)));
        }
        Some(keys)
    }
}
