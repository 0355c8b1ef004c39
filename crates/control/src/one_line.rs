//! What is served by a command line, as the text of a configuration.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use toml::Value;

use crate::Problems;
use crate::built_in::{BUILT_IN, NFS_PORT};
use crate::value::format_size;

const NVME_PORT: u16 = 4420;
const ISCSI_PORT: u16 = 3260;

/// What a command line asks to be served, each value checked by itself.
#[derive(Clone, Debug, Default)]
pub struct OneLine {
    /// RAM volumes: a name or none, and bytes.
    pub ram: Vec<(Option<String>, u64)>,
    /// Files and block devices, as they are, by absolute paths.
    pub files: Vec<OneLineFile>,
    /// Folders, by absolute paths.
    pub exports: Vec<PathBuf>,
    /// Where hosts connect; none: on this machine alone.
    pub listen: Vec<IpAddr>,
    /// NFS's port; `None`: its own.
    pub nfs_port: Option<u16>,
    /// The folder that keeps what file handles mean; needed where there are exports.
    pub nfs_state: PathBuf,
}

/// A file, or a block device, that is a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneLineFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length; `None` of a block device, which is served whole.
    pub size_bytes: Option<u64>,
}

/// Names that are taken.
#[derive(Default)]
struct TakenNames(BTreeSet<String>);

impl TakenNames {
    /// The name as far as it may be one, with a number behind it where it is taken.
    fn take(&mut self, wanted: &str) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
        let plain: String = wanted.chars().filter(is_plain).take(32).collect();
        let plain = match plain.trim_start_matches('.') {
            "" => "unnamed",
            plain => plain,
        };
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let mut all = std::iter::once(plain.to_owned()).chain(numbered);
        all.find(|name| self.0.insert(name.clone()))
            .expect("numbers do not end")
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn last_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Lines of the configuration, and the option that they are of; `None`: of all that is said.
struct OneLinePart {
    option: Option<String>,
    text: String,
}

impl OneLinePart {
    fn of(option: String, text: String) -> OneLinePart {
        OneLinePart {
            option: Some(option),
            text,
        }
    }

    fn of_all(text: String) -> OneLinePart {
        OneLinePart { option: None, text }
    }
}

impl OneLine {
    /// The configuration: every host that reaches it may use it.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts().into_iter().map(|part| part.text).collect()
    }

    /// Mistakes of that text by the options that they are of, each with an end of line.
    #[must_use]
    pub fn told(&self, problems: &Problems) -> String {
        let mut options: Vec<Option<String>> = Vec::new();
        for part in self.parts() {
            let lines = part.text.matches('\n').count();
            options.extend(std::iter::repeat_n(part.option, lines));
        }
        let option = |line: usize| options.get(line.checked_sub(1)?)?.as_ref();
        let told = problems.list.iter().map(|problem| {
            let mut text = problem.text.clone();
            if let Some((at, line)) = &problem.other_line {
                let there = option(*line).map_or("the options", String::as_str);
                text.replace_range(at.clone(), &format!("of {there}"));
            }
            let own = option(problem.line).map_or("the options", String::as_str);
            format!("weft serve: {own}: {text}\n")
        });
        told.collect()
    }

    fn parts(&self) -> Vec<OneLinePart> {
        let head = "# What a command line of `weft serve` says; weft.example.toml explains every \
                    key.\n";
        let mut parts = vec![OneLinePart::of_all(head.to_owned())];
        let volumes = self.volumes(&mut parts);
        let addresses = match &self.listen[..] {
            [] => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            listen => listen.to_vec(),
        };
        let nfs = self.nfs_port.unwrap_or(NFS_PORT);
        let mut ports = Vec::new();
        if !volumes.is_empty() {
            parts.push(OneLinePart::of_all(block_tables(&volumes, &addresses)));
            ports.extend([(NVME_PORT, "nvme-tcp"), (ISCSI_PORT, "iscsi")]);
        }
        if !self.exports.is_empty() {
            self.export_tables(&mut parts);
            ports.push((nfs, "nfs"));
        }
        for address in &addresses {
            let listeners = ports.iter().map(|(port, protocol)| {
                let address = SocketAddr::new(*address, *port);
                format!("\n[[listener]]\naddress = \"{address}\"\nprotocol = \"{protocol}\"\n")
            });
            parts.push(OneLinePart::of(
                format!("--listen {address}"),
                listeners.collect(),
            ));
        }
        parts
    }

    /// Whether hosts of other machines reach it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.listen.iter().any(|address| !address.is_loopback())
    }

    /// The names of volumes; adds their tables.
    fn volumes(&self, parts: &mut Vec<OneLinePart>) -> Vec<String> {
        let mut names = TakenNames::default();
        let mut all = Vec::new();
        // Those that are named have their names.
        for (given, _) in &self.ram {
            names.0.extend(given.clone());
        }
        for (given, size) in &self.ram {
            let name = given.clone().unwrap_or_else(|| names.take("ram"));
            let size = format_size(*size);
            let option = match given {
                Some(given) => format!("--ram {given}={size}"),
                None => format!("--ram {size}"),
            };
            let text = format!(
                "\n[[volume]]\nname = {}\nkind = \"ram\"                    # gone when weft ends\n\
                 size = \"{size}\"\n",
                quoted(&name),
            );
            parts.push(OneLinePart::of(option, text));
            all.push(name);
        }
        for file in &self.files {
            let name = names.take(&last_name(&file.path));
            let (name_shown, path) = (quoted(&name), quoted_path(&file.path));
            let text = match file.size_bytes {
                None => {
                    format!("\n[[volume]]\nname = {name_shown}\nkind = \"block\"\npath = {path}\n")
                }
                Some(size) => format!(
                    "\n[[volume]]\nname = {name_shown}\nkind = \"file\"\npath = {path}\n\
                     size = \"{}\"\nblock_bytes = 512\nadopt = true                    # taken as it \
                     is\n",
                    format_size(size)
                ),
            };
            let option = format!("--file {}", file.path.display());
            parts.push(OneLinePart::of(option, text));
            all.push(name);
        }
        all
    }

    /// Adds the tables of folders.
    fn export_tables(&self, parts: &mut Vec<OneLinePart>) {
        let mut names = TakenNames::default();
        let text = format!("\n[nfs]\nstate = {}\n", quoted_path(&self.nfs_state));
        parts.push(OneLinePart::of_all(text));
        // Who tries it on one machine mounts it as root; from others root is nobody.
        let squash = match self.is_open() {
            true => "",
            false => "squash = \"none\"\n",
        };
        for folder in &self.exports {
            let name = names.take(&last_name(folder));
            let path = quoted_path(folder);
            let text = format!(
                "\n[[file_system]]\nname = {0}\nkind = \"dir\"\npath = {path}\n\
                 \n[[export]]\npath = \"/{name}\"\nfile_system = {0}\nallow_any_client = true\n{squash}",
                quoted(&name)
            );
            let option = format!("--export {}", folder.display());
            parts.push(OneLinePart::of(option, text));
        }
    }
}

/// A subsystem and a target of all volumes, with the states of paths in common.
fn block_tables(volumes: &[String], addresses: &[IpAddr]) -> String {
    let machine = store::identity::of_machine(BUILT_IN);
    let list = |all: Vec<String>| format!("[{}]", all.join(", "));
    let volumes = list(volumes.iter().map(|name| quoted(name)).collect());
    let portals = addresses.iter().flat_map(|address| {
        [NVME_PORT, ISCSI_PORT].map(|port| quoted(&SocketAddr::new(*address, port).to_string()))
    });
    let portals = list(portals.collect());
    format!(
        "\n[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:default-{machine}\"\n\
         allow_any_host = true\nvolumes = {volumes}\n\
         \n[[iscsi.portal_group]]\ntag = 1\n\
         # With NVMe's listeners, so that the states of paths are one.\n\
         listeners = {portals}\n\
         \n[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:default-{machine}\"\n\
         allow_any_initiator = true\nsubsystem = \"nqn.2026-01.io.weft:default-{machine}\"\n\
         portal_groups = [1]\nvolumes = {volumes}\n"
    )
}

#[cfg(test)]
mod tests {
    use server::Protocol;

    use super::*;
    use crate::FileText;

    fn config(one_line: &OneLine) -> server::Config {
        let text = FileText::of_own(one_line.text());
        let config = text.parse(Path::new("a command line"));
        config.unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn volumes_are_for_every_host_over_both_protocols_on_each_address() {
        let config = config(&OneLine {
            ram: vec![
                (None, 1 << 30),
                (Some("ram-2".to_owned()), 4096),
                (None, 8192),
            ],
            files: vec![
                OneLineFile {
                    path: "/srv/a \"b\" {0}.img".into(),
                    size_bytes: Some(1 << 20),
                },
                OneLineFile {
                    path: "/dev/sdx".into(),
                    size_bytes: None,
                },
            ],
            listen: vec!["0.0.0.0".parse().unwrap(), "::1".parse().unwrap()],
            ..OneLine::default()
        });
        let names: Vec<_> = config.volumes.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["ram", "ram-2", "ram-3", "ab0.img", "sdx"]);
        let sizes: Vec<_> = config.volumes.iter().map(|one| one.size_bytes).collect();
        assert_eq!(sizes, [1 << 30, 4096, 8192, 1 << 20, 0]);
        assert_eq!(config.volumes[4].kind.name(), "block");
        let [subsystem] = &config.subsystems[..] else {
            panic!("one subsystem");
        };
        assert_eq!((&subsystem.hosts, subsystem.namespaces.len()), (&None, 5));
        let [target] = &config.iscsi_targets[..] else {
            panic!("one target");
        };
        assert_eq!(target.luns.len(), 5);
        let listeners: Vec<_> = config.listeners.iter().map(|one| one.address).collect();
        let wanted = ["0.0.0.0:4420", "0.0.0.0:3260", "[::1]:4420", "[::1]:3260"];
        assert_eq!(listeners, wanted.map(|text| text.parse().unwrap()));
        assert!(config.exports.is_empty());
    }

    #[test]
    fn folders_are_exported_under_their_names_and_root_is_nobody_from_elsewhere() {
        let exports = ["/srv/a/files", "/srv/b/files", "/srv/é"].map(PathBuf::from);
        let mut one_line = OneLine {
            exports: exports.to_vec(),
            nfs_port: Some(20_490),
            nfs_state: "/var/lib/weft/nfs".into(),
            ..OneLine::default()
        };
        let here = config(&one_line);
        let paths: Vec<_> = here.exports.iter().map(|one| &*one.path).collect();
        assert_eq!(paths, ["/files", "/files-2", "/unnamed"]);
        assert_eq!(here.exports[0].rules[0].squash, server::nfs::Squash::None);
        let [listener] = &here.listeners[..] else {
            panic!("one listener");
        };
        assert_eq!(listener.address, "127.0.0.1:20490".parse().unwrap());
        assert_eq!(listener.protocol, Protocol::Nfs);
        one_line.listen = vec!["192.0.2.1".parse().unwrap()];
        let elsewhere = config(&one_line);
        assert_eq!(
            elsewhere.exports[0].rules[0].squash,
            server::nfs::Squash::Root
        );
        assert!(one_line.is_open());
    }

    #[test]
    fn mistake_of_options_names_the_option_and_no_line() {
        let named = |name: &str| (Some(name.to_owned()), 1 << 20);
        let file = |path: &str| OneLineFile {
            path: path.into(),
            size_bytes: Some(1 << 20),
        };
        let one_line = OneLine {
            ram: vec![named("a"), named("b"), named("b")],
            files: vec![file("/srv/c.img"), file("/srv/c.img")],
            listen: vec!["127.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()],
            exports: vec!["/srv/in line 2".into(), "/srv/in line 2".into()],
            nfs_state: "/var/lib/weft/nfs".into(),
            ..OneLine::default()
        };
        let text = FileText::of_own(one_line.text());
        let problems = text.parse(Path::new("a command line"));
        let told = one_line.told(&problems.expect_err("mistakes"));
        for part in [
            "weft serve: --ram b=1MiB: a volume \"b\" is there already, of --ram b=1MiB\n",
            "weft serve: --file /srv/c.img: the volume of --file /srv/c.img lies in /srv/c.img already",
            "weft serve: --export /srv/in line 2: the file system of --export /srv/in line 2 is this",
            "weft serve: --listen 127.0.0.1: 127.0.0.1:4420 is there already",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = told.replace("/srv/in line 2", "");
        assert!(!told.contains("line "), "a folder may be called so: {told}");
    }
}
