//! Volumes of a source: named, identified, and each path once.

use std::collections::HashMap;

use server::check;

use crate::Import;
use crate::model::{Backing, OWN, VolumeModel};
use crate::report::Weight;
use crate::tree::SourceKey;
use crate::write::file_name;

/// Names that are given out, and which volume lies where.
#[derive(Default)]
pub(crate) struct KnownVolumes {
    by_path: HashMap<String, usize>,
    count_of: HashMap<String, usize>,
}

impl KnownVolumes {
    /// The name of the volume that is wished: one that lies there already, or this one.
    pub fn add(&mut self, import: &mut Import, at: &SourceKey, mut wish: VolumeModel) -> String {
        check_identity(import, at, &mut wish);
        let path = wish.backing.path().map(str::to_owned);
        if let Some(known) = path.as_ref().and_then(|path| self.by_path.get(path)) {
            let known = &mut import.model.volumes[*known];
            for (key, value) in wish.identity {
                if known.identity.get(key).is_some_and(|said| *said != value) {
                    let why = format!(
                        "volume {} has another `{key}` already: what lies in one place is one \
                         volume, with one identity",
                        known.name
                    );
                    import.report.add(at.place, &at.name, Weight::Lost, why);
                } else if let Some(note) = wish.notes.get(key) {
                    let note = note.to_owned();
                    known.identify(key, value, note);
                }
            }
            return known.name.clone();
        }
        self.measure(import, at, &mut wish);
        wish.name = self.name(&wish.name);
        let name = wish.name.clone();
        if let Some(path) = path {
            self.by_path.insert(path, import.model.volumes.len());
        }
        let number = import.model.volumes.len();
        import.volume_named.insert(name.clone(), number);
        import.model.volumes.push(wish);
        name
    }

    /// Whether a volume lies there.
    pub fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// A name that no other volume has.
    fn name(&mut self, wish: &str) -> String {
        let wish = file_name(wish);
        let mut name = wish.clone();
        loop {
            let count = self.count_of.entry(wish.clone()).or_default();
            *count += 1;
            if *count > 1 {
                name = format!("{wish}-{count}");
            }
            if name == wish || !self.count_of.contains_key(&name) {
                self.count_of.entry(name.clone()).or_insert(1);
                return name;
            }
        }
    }

    /// How large it is, where the source does not say it.
    fn measure(&self, import: &mut Import, at: &SourceKey, wish: &mut VolumeModel) {
        if let Some(bytes) = wish.size_bytes
            && !bytes.is_multiple_of(wish.block_bytes.into())
        {
            let block = u64::from(wish.block_bytes);
            wish.size_bytes = Some(bytes / block * block);
            let why = format!("{bytes} bytes are no multiple of {block}: rounded down");
            import.report.add(at.place, &at.name, Weight::Lost, why);
        }
        let Backing::File(path) = &wish.backing else {
            return;
        };
        if wish.size_bytes.is_none() {
            wish.size_bytes = import.files.bytes(path);
            wish.notes.set("size", "as long as the file is now");
        }
        if wish.size_bytes.is_none() {
            let why = format!(
                "how large {path} is stands nowhere, and the file is not here: fill `size` in, \
                 the document does not load before"
            );
            import.report.add(at.place, &at.name, Weight::Access, why);
        }
    }
}

/// Takes out what weft could not show to hosts, or shows for another volume already.
fn check_identity(import: &mut Import, at: &SourceKey, wish: &mut VolumeModel) {
    let bounds = [
        ("serial", check::UNIT_SERIAL_BYTES_MAX),
        ("vendor", check::VENDOR_BYTES),
        ("product", check::PRODUCT_BYTES),
        ("revision", check::REVISION_BYTES),
    ];
    for (key, bytes_max) in bounds {
        let Some(value) = wish.identity.get(key) else {
            continue;
        };
        if let Err(why) = check::fixed_text(key, value, bytes_max) {
            let why = format!("{why}: hosts see another");
            import.report.add(at.place, &at.name, Weight::Lost, why);
            wish.identity.remove(key);
        }
    }
    for (key, digits) in [("nguid", 32), ("eui64", 16), ("uuid", 32), ("naa", 0)] {
        let Some(value) = wish.identity.get(key) else {
            continue;
        };
        let hex: String = value.chars().filter(|c| *c != '-').collect();
        let are_digits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_nothing = hex.bytes().all(|byte| byte == b'0');
        let fits = match (key, hex.as_bytes().first()) {
            ("naa", Some(b'2' | b'3' | b'5')) => hex.len() == 16,
            ("naa", Some(b'6')) => hex.len() == 32,
            ("naa", _) => false,
            _ => hex.len() == digits,
        };
        if !(is_nothing || are_digits && fits) {
            let why = format!("`{key}` is none that weft could show: hosts see another");
            import.report.add(at.place, &at.name, Weight::Lost, why);
        }
        if is_nothing || !are_digits || !fits {
            wish.identity.remove(key);
        }
    }
}

/// No two volumes say they are one disk.
pub(crate) fn separate(import: &mut Import) {
    let mut taken: HashMap<(&str, String), String> = HashMap::new();
    for volume in &mut import.model.volumes {
        for key in OWN {
            let Some(value) = volume.identity.get(key) else {
                continue;
            };
            let same = (*key, value.to_ascii_lowercase());
            if let Some(other) = taken.get(&same) {
                let why = format!(
                    "volume {} has the `{key}` of volume {other}, and hosts would take both for \
                     one disk: it gets its own, and hosts see a new disk",
                    volume.name
                );
                let whole = crate::Place::default();
                import.report.add(whole, key, Weight::Lost, why);
                volume.identity.remove(key);
            } else {
                taken.insert(same, volume.name.clone());
            }
        }
    }
}
