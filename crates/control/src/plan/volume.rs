//! What changes of a volume while it is served.

use server::Change;
use store::{EncryptionSettings, Kind, Settings, Spec};

use super::{Phase, Planner};
use crate::format_size;

impl Planner<'_> {
    /// A mirror that has other legs, or another rate.
    fn mirror(&mut self, old: &Spec, new: &Spec) {
        let Settings::Mirror { resync_rate } = new.kind.settings() else {
            return;
        };
        let change = |spec: &Spec, resync_rate| Change::SetMirror {
            name: spec.name.clone(),
            of: spec.kind.of().to_vec(),
            resync_rate,
        };
        let undo = match old.kind.settings() {
            Settings::Mirror { resync_rate } => Some(change(old, resync_rate)),
            _ => None,
        };
        let (name, of) = (&new.name, new.kind.of().join("\", \""));
        let text = match old.kind.of() == new.kind.of() {
            true if resync_rate == 0 => {
                format!("volume \"{name}\": nothing is copied to a leg until that is over")
            }
            true => format!(
                "volume \"{name}\": {} are copied to a leg in a second at most",
                format_size(resync_rate)
            ),
            false => format!(
                "volume \"{name}\" is made of \"{of}\", and what a leg lacks is copied to it"
            ),
        };
        self.add(Phase::Set, change(new, resync_rate), undo, text);
    }

    /// A volume that is in both documents.
    pub(super) fn volume(&mut self, old: &Spec, new: &Spec) {
        let are_mirrors = [old, new]
            .iter()
            .all(|spec| matches!(spec.kind.settings(), Settings::Mirror { .. }));
        let places = old.kind.place().zip(new.kind.place());
        let is_same_place = places.is_some_and(|(old, new)| old.equals_but_for_credentials(&**new));
        let changed = Spec {
            size_bytes: new.size_bytes,
            encryption: new.encryption.clone(),
            scrub_rate: new.scrub_rate,
            kind: match are_mirrors || is_same_place {
                true => new.kind.clone(),
                false => old.kind.clone(),
            },
            ..old.clone()
        };
        let name = new.name.clone();
        if changed != *new || old.encryption.is_some() != new.encryption.is_some() {
            return self.refuse(format!(
                "volume \"{name}\": nothing but its size, keys and rates changes while it is served; \
                 remove it first, or restart"
            ));
        }
        self.encryption(old, new);
        self.scrub_rate(old, new);
        if old.kind != new.kind {
            self.mirror(old, new);
            self.remote(old, new);
        }
        if old.size_bytes == new.size_bytes {
            return;
        }
        let (from, to) = (format_size(old.size_bytes), format_size(new.size_bytes));
        if new.size_bytes != 0 && new.size_bytes < old.size_bytes {
            // A file that is larger than its volume is not opened.
            let and_cut = match new.kind.path() {
                Some(path) if new.kind == Kind::file(path) => {
                    format!("`truncate -s {} {}`, ", new.size_bytes, path.display())
                }
                _ => String::new(),
            };
            return self.refuse(format!(
                "volume \"{name}\" would shrink from {from} to {to}, and what lies behind would \
                 be lost: remove it, {and_cut}and add it again under the new size"
            ));
        }
        let change = Change::ResizeVolume {
            name: name.clone(),
            size_bytes: new.size_bytes,
            allow_shrink: false,
        };
        let text = match new.size_bytes {
            0 => format!("volume \"{name}\" becomes as large as what is below it"),
            _ => {
                let told = self.told_of_growth(&name);
                format!("volume \"{name}\" grows from {from} to {to}: {told}")
            }
        };
        self.add(Phase::Grow, change, None, text);
    }

    /// What clients learn of another size of a volume: NBD has no word for that.
    fn told_of_growth(&self, name: &str) -> &'static str {
        let desired = self.desired;
        let is_exported = desired.nbd_exports.iter().any(|spec| spec.volume == name);
        let mut namespaces = desired.subsystems.iter().flat_map(|spec| &spec.namespaces);
        let mut luns = desired.iscsi_targets.iter().flat_map(|spec| &spec.luns);
        let has_hosts =
            namespaces.any(|spec| spec.volume == name) || luns.any(|spec| spec.volume == name);
        match (is_exported, has_hosts) {
            (false, _) => "its hosts are told",
            (true, true) => "its hosts are told, and NBD clients see it when they connect again",
            (true, false) => "its NBD clients see it when they connect again",
        }
    }

    /// A remote volume that other credentials reach.
    fn remote(&mut self, old: &Spec, new: &Spec) {
        let change = |spec: &Spec| {
            let place = spec.kind.place()?.clone();
            let name = spec.name.clone();
            Some(Change::SetRemote { name, place })
        };
        if let Some(to_new) = change(new) {
            let name = &new.name;
            let text = format!(
                "volume \"{name}\" connects by other credentials from now on; connections that are \
                 up stay"
            );
            self.add(Phase::Set, to_new, change(old), text);
        }
    }

    fn scrub_rate(&mut self, old: &Spec, new: &Spec) {
        if old.scrub_rate == new.scrub_rate {
            return;
        }
        let change = |spec: &Spec| Change::SetScrubRate {
            name: spec.name.clone(),
            rate: spec.scrub_rate,
        };
        let (name, rate) = (&new.name, format_size(new.scrub_rate));
        let text = match new.scrub_rate {
            0 => format!("volume \"{name}\": a scrub reads nothing until that is over"),
            _ => format!("volume \"{name}\": a scrub reads {rate} in a second at most"),
        };
        self.add(Phase::Set, change(new), Some(change(old)), text);
    }

    /// A key that cannot be read, but was, stays as it was read. Which key was the former one says
    /// nothing where the key is the same.
    fn encryption(&mut self, old: &Spec, new: &Spec) {
        let (Some(from), Some(to)) = (&old.encryption, &new.encryption) else {
            return;
        };
        let Ok(key) = &to.key else {
            return;
        };
        if from.key == to.key {
            return;
        }
        let name = new.name.clone();
        let text =
            format!("volume \"{name}\" goes by the key that is named, and is unlocked by it");
        let set = |settings| Change::SetEncryption {
            name: name.clone(),
            settings,
        };
        let undo = from.key.is_ok().then(|| EncryptionSettings {
            key: from.key.clone(),
            former: Some(Ok(key.clone())),
        });
        self.add(Phase::Set, set(to.clone()), undo.map(set), text);
    }
}
