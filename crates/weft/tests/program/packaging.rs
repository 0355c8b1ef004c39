//! What the packages install: units and configuration. `cargo xtask lab package` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::needs;

use super::serving::{free_port, text, weft};

/// Exposure, in tenths, above which `systemd-analyze security` fails.
const EXPOSURE_MAX: &str = "--threshold=19";

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaging(name)).expect("packaging/")
}

fn systemd_analyze(words: &[&str], unit: &Path) {
    let output = Command::new("systemd-analyze")
        .args(words)
        .arg(unit)
        .output();
    let output = output.expect("systemd-analyze starts");
    let (said, why) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{why}");
    assert_eq!(why, "", "{words:?}");
}

#[needs(program(systemd-analyze))]
#[test]
fn units_are_well_formed_and_the_service_may_do_little() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["weft.service", "weft.socket"] {
        // Only what is installed is executable there.
        let unit = read(name).replace("/usr/bin/weft", env!("CARGO_BIN_EXE_weft"));
        std::fs::write(folder.path().join(name), unit).expect("room");
    }
    let unit = |name: &str| folder.path().join(name);
    systemd_analyze(&["verify", "--man=no"], &unit("weft.service"));
    systemd_analyze(&["verify", "--man=no"], &unit("weft.socket"));
    let security = ["security", "--offline=true", EXPOSURE_MAX];
    systemd_analyze(&security, &unit("weft.service"));
}

#[test]
fn installed_configuration_is_fine_and_the_socket_unit_has_its_addresses() {
    let listens = |line: &&str| line.starts_with("address = ") || line.starts_with("ListenStream=");
    let address = |line: &str| {
        line.split(['=', '#'])
            .nth(1)
            .map(|word| word.trim().replace('"', ""))
    };
    let addresses = |text: &str| -> Vec<_> { text.lines().filter(listens).map(address).collect() };
    let config = read("weft.toml");
    assert_eq!(addresses(&config), addresses(&read("weft.socket")));
    assert_eq!(addresses(&config), [Some("127.0.0.1:4420".to_owned())]);

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft.toml");
    let state = folder.path().display().to_string();
    let config = config.replace("/var/lib/weft", &state);
    let config = config.replace(":4420", &format!(":{}", free_port()));
    std::fs::write(&path, config).expect("room");
    let check = weft(&["check", "-c", &path.display().to_string()]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
}

/// The configuration in the example for Kubernetes.
fn kubernetes_config() -> String {
    let example = std::fs::read_to_string(packaging("../contrib/kubernetes/weft.yaml"));
    let example = example.expect("contrib/");
    let lines = example
        .lines()
        .skip_while(|line| line.trim() != "weft.toml: |");
    let block = lines.skip(1).take_while(|line| *line != "---");
    block.map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn configurations_of_containers_are_fine_and_write_where_the_image_may() {
    for config in [read("container.toml"), kubernetes_config()] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("files")).expect("room");
        let here = |config: &str, name: &str| {
            let shown = format!("\"/{name}");
            config.replace(&shown, &format!("\"{}/{name}", folder.path().display()))
        };
        assert!(config.contains("path = \"/data/disk0.img\""), "{config}");
        let config = here(&config, "data");
        // Of the export, which is not a folder, the name alone changes.
        let config = here(&config, "files");
        let path = folder.path().join("weft.toml");
        std::fs::create_dir(folder.path().join("data")).expect("room");
        std::fs::write(&path, &config).expect("room");
        let check = weft(&["check", &path.display().to_string()]);
        assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
        let outside = config.lines().filter(|line| line.contains("\"/"));
        let outside: Vec<_> = outside
            .filter(|line| !line.contains(&folder.path().display().to_string()))
            .collect();
        assert!(outside.is_empty(), "{outside:?}");
    }
}

#[test]
fn image_and_kubernetes_example_name_the_same_user_and_ports() {
    let (image, config) = (read("Containerfile"), kubernetes_config());
    assert!(image.contains("\nUSER 65532:65532\n"), "{image}");
    let exposed = image.lines().find_map(|line| line.strip_prefix("EXPOSE "));
    let exposed: Vec<&str> = exposed.expect("ports").split(' ').collect();
    let listens = config
        .lines()
        .filter_map(|line| line.split_once("\"0.0.0.0:"));
    let ports: Vec<_> = listens
        .map(|(_, port)| port.trim_end_matches('"'))
        .collect();
    assert_eq!(ports, ["4420", "2049", "4480"]);
    assert!(
        ports.iter().all(|port| exposed.contains(port)),
        "{exposed:?}"
    );
}

#[test]
fn maintainer_scripts_are_shell() {
    let scripts = [
        "debian/postinst",
        "debian/prerm",
        "debian/postrm",
        "rpm/post",
        "rpm/preun",
        "rpm/postun",
    ];
    for script in scripts {
        let output = Command::new("sh").arg("-n").arg(packaging(script)).output();
        let output = output.expect("a shell");
        assert!(
            output.status.success(),
            "{script}: {}",
            text(&output.stderr)
        );
    }
}
