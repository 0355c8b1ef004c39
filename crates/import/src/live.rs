//! The kernel's NVMe target as it runs: configfs below a folder, into the tree that nvmetcli's
//! JSON has.

use crate::model::Model;
use crate::report::{Place, Report};
use crate::tree::SourceKey;
use crate::{Files, Import, Imported, finish, nvmetcli};

/// Attributes that are folders of their own in nvmetcli's JSON, by how their files begin.
const GROUPS: &[&str] = &["attr", "device", "addr", "param", "ana"];

/// Reads what the kernel serves, from the folder of nvmet in configfs.
///
/// # Errors
/// A report of mistakes: the folder is not there, or what stands in it.
pub fn import_live(folder: &str, files: &dyn Files) -> Result<Imported, Report> {
    let mut import = Import::new(files);
    import.report.files.push(folder.to_owned());
    let found = files.list(folder);
    match found {
        Err(error) => {
            let text = format!(
                "{folder} cannot be read: {error}; is configfs mounted, nvmet loaded, and are \
                 you root?"
            );
            import.report.mistake(Place::default(), text);
        }
        Ok(_) => {
            let tree = tree(&mut import, folder);
            nvmetcli::read_tree(&mut import, &tree);
        }
    }
    finish(import).and_then(|found: (Model, Report)| crate::document(&found))
}

/// Names in a folder; none where it is not there, as older kernels lack some.
fn names(import: &Import, folder: &str) -> Vec<String> {
    import.files.list(folder).unwrap_or_default()
}

/// Begins with an object, which is told as the folder that it has.
fn object(import: &mut Import, name: &str, folder: &str) -> SourceKey {
    let number = import.report.files.len();
    let file = u16::try_from(number).unwrap_or(0);
    if file > 0 {
        import.report.files.push(folder.to_owned());
    }
    SourceKey::new(name, Place { file, line: 0 })
}

fn tree(import: &mut Import, root: &str) -> SourceKey {
    let mut tree = SourceKey::default();
    for (list, name, read) in [
        (
            "hosts",
            "nqn",
            host as fn(&mut Import, &str, &mut SourceKey),
        ),
        ("subsystems", "nqn", subsystem),
        ("ports", "portid", port),
    ] {
        let folder = format!("{root}/{list}");
        tree.keys.push(objects(import, list, &folder, name, read));
    }
    tree
}

/// The objects of a folder, each with its name under a key.
fn objects(
    import: &mut Import,
    list: &str,
    folder: &str,
    named: &str,
    read: fn(&mut Import, &str, &mut SourceKey),
) -> SourceKey {
    let mut key = SourceKey::new(list, Place::default());
    for name in names(import, folder) {
        let folder = format!("{folder}/{name}");
        let mut item = object(import, "", &folder);
        let mut said = SourceKey::new(named, item.place);
        said.words.push(name);
        item.keys.push(said);
        attributes(import, &folder, &mut item);
        read(import, &folder, &mut item);
        key.keys.push(item);
    }
    key
}

/// The attributes of a folder: `addr_traddr` is `traddr` of `addr`.
fn attributes(import: &mut Import, folder: &str, item: &mut SourceKey) {
    for name in names(import, folder) {
        let path = format!("{folder}/{name}");
        let Ok(text) = import.files.read(&path) else {
            continue;
        };
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let group = name
            .split_once('_')
            .filter(|(group, _)| GROUPS.contains(group));
        // The one key of a namespace that begins so is none of a group.
        let group = group.filter(|_| name != "ana_grpid");
        let mut value = SourceKey::new(group.map_or(&*name, |(_, name)| name), item.place);
        value.words.push(text.to_owned());
        let Some((group, _)) = group else {
            item.keys.push(value);
            continue;
        };
        let known = item.keys.iter().position(|key| key.name == group);
        let at = known.unwrap_or_else(|| {
            item.keys.push(SourceKey::new(group, item.place));
            item.keys.len() - 1
        });
        item.keys[at].keys.push(value);
    }
}

/// The names of links in a folder, under a key.
fn links(import: &mut Import, folder: &str, name: &str, item: &mut SourceKey) {
    let mut key = SourceKey::new(name, item.place);
    key.words = names(import, &format!("{folder}/{name}"));
    item.keys.push(key);
}

fn host(_: &mut Import, _: &str, _: &mut SourceKey) {}

fn subsystem(import: &mut Import, folder: &str, item: &mut SourceKey) {
    links(import, folder, "allowed_hosts", item);
    let below = format!("{folder}/namespaces");
    let list = objects(import, "namespaces", &below, "nsid", host);
    item.keys.push(list);
    // Without a device it hands nothing through.
    let passthru = format!("{folder}/passthru");
    if import
        .files
        .read(&format!("{passthru}/enable"))
        .is_ok_and(|text| text.trim() == "1")
    {
        item.keys.push(SourceKey::new("passthru", item.place));
    }
}

fn port(import: &mut Import, folder: &str, item: &mut SourceKey) {
    links(import, folder, "subsystems", item);
    for (list, named) in [("ana_groups", "grpid"), ("referrals", "name")] {
        let below = format!("{folder}/{list}");
        let found = objects(import, list, &below, named, host);
        item.keys.push(found);
    }
}
