//! Volumes of another machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use auth::key_lines;
use auth::psk::{Psk, PskHash};
use server::Change;
use store::RemoteAt;
use store_remote::{RemoteTarget, TIMEOUT_DEFAULT, host_identity, parse_url};

use super::dhchap::{KEY, OWN};
use super::*;

pub(super) const URL: &str = "nvme-tcp://192.0.2.1/nqn.2026-01.org.example:there?nsid=1";

/// A configuration with one of these keys.
pub(super) fn remote(keys: &str) -> String {
    format!(
        "[[volume]]\nname = \"there\"\nkind = \"remote\"\n{keys}\n[[nvme.subsystem]]\nnqn = \
         \"nqn.2026-01.io.weft:a\"\nallow_any_host = true\nvolumes = [\"there\"]\n[[listener]]\n\
         address = \"127.0.0.1:4420\"\n"
    )
}

fn target(urls: &[&str]) -> RemoteTarget {
    RemoteTarget {
        urls: urls.iter().map(|url| parse_url(url).unwrap()).collect(),
        host: host_identity(None),
        timeout: TIMEOUT_DEFAULT,
    }
}

fn kind(target: RemoteTarget) -> Kind {
    Kind::remote(RemoteAt(Arc::new(target)))
}

#[test]
fn remote_volume_has_the_size_and_the_blocks_of_its_namespace() {
    let config = read(&remote(&format!("urls = [\"{URL}\"]"))).unwrap();
    let [spec] = &config.volumes[..] else {
        panic!("there is one");
    };
    assert_eq!((spec.size_bytes, spec.block_bytes), (0, 0));
    assert_eq!(spec.kind, kind(target(&[URL])));
    let second = "nvme-tcp://192.0.2.2:9/nqn.2026-01.org.example:there?nsid=1";
    let keys = format!(
        "urls = [\"{URL}\", \"{second}\"]\nhost_nqn = \"nqn.2026-01.org.example:weft\"\n\
         timeout_ms = 5000\nsize = \"1GiB\"\nblock_bytes = 512"
    );
    let config = read(&remote(&keys)).unwrap();
    let spec = &config.volumes[0];
    assert_eq!((spec.size_bytes, spec.block_bytes), (1 << 30, 512));
    let named = RemoteTarget {
        host: host_identity(Some("nqn.2026-01.org.example:weft")),
        timeout: Duration::from_secs(5),
        ..target(&[URL, second])
    };
    assert_eq!(spec.kind, kind(named));
}

#[test]
fn impossible_keys_of_a_remote_volume_say_what_is_possible() {
    expect(&remote(""), "1:1", &["lacks the key `urls`"]);
    expect(&remote("urls = []"), "4:8", &["`urls` has 1 to 8"]);
    let iscsi = "urls = [\"iscsi://192.0.2.1/iqn.2026-01.org.example:a/0\"]";
    expect(&remote(iscsi), "4:9", &["not by iSCSI yet", "nvme-tcp://"]);
    let with = |key: &str| remote(&format!("urls = [\"{URL}\"]\n{key}"));
    expect(&with("timeout_ms = 10"), "5:14", &["from 1000 to 3600000"]);
    expect(&with("host_nqn = \"\""), "5:12", &["NQN"]);
    let path = with("path = \"a.img\"");
    expect(&path, "5:8", &["a \"remote\" volume has no `path`"]);
    let ram = remote("").replace("remote", "ram");
    let ram = ram.replace(
        "kind",
        &format!("size = \"1GiB\"\nurls = [\"{URL}\"]\nkind"),
    );
    expect(&ram, "4:8", &["a \"ram\" volume has no `urls`"]);
}

#[test]
fn secrets_of_a_remote_volume_are_read_and_only_together() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let path = folder.path().join("secret");
    fs::write(&path, secret).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = path.display();
    let url = format!("urls = [\"{URL}\"]");
    let both =
        format!("{url}\ndhchap_secret_file = \"{file}\"\ndhchap_ctrl_secret_file = \"{file}\"");
    let config = read(&remote(&both)).unwrap();
    let key = auth::dhchap::DhchapKey::parse(secret).unwrap();
    let mut with_keys = target(&[URL]);
    with_keys.host.dhchap = Some(nvmf::dhchap::DhchapKeys {
        host: vec![key.clone().into()],
        controller: Some(key),
    });
    assert_eq!(config.volumes[0].kind, kind(with_keys));
    assert_ne!(config.volumes[0].kind, kind(target(&[URL])));
    // Weft proves itself by the first: what stands behind it changes nothing.
    let rotated = folder.path().join("rotated");
    let until = "until 2026-01-01T00:00:00Z";
    fs::write(&rotated, format!("{secret}\n{secret} {until}\n")).unwrap();
    fs::set_permissions(&rotated, fs::Permissions::from_mode(0o600)).unwrap();
    let of_host = format!("dhchap_secret_file = \"{}\"", rotated.display());
    let again = both.replacen(&format!("dhchap_secret_file = \"{file}\""), &of_host, 1);
    let again = read(&remote(&again)).unwrap();
    assert_eq!(again.volumes[0].kind, config.volumes[0].kind);
    let half = remote(&format!("{url}\ndhchap_ctrl_secret_file = \"{file}\""));
    expect(&half, "5:27", &["`dhchap_secret_file` too"]);
    // One that is there and cannot be read is told as that, and as nothing else.
    let missing = both.replacen(&file.to_string(), "/none", 1);
    expect(&remote(&missing), "5:22", &["`dhchap_secret_file`: /none"]);
}

#[test]
fn size_of_a_remote_volume_changes_while_it_is_served_and_its_place_does_not() {
    let with = |key: &str| read(&remote(&format!("urls = [\"{URL}\"]\n{key}"))).unwrap();
    let steps = plan(&with(""), &with("size = \"2GiB\"")).expect("it may change");
    let resized = |change: &Change| matches!(change, Change::ResizeVolume { size_bytes, .. } if *size_bytes == 2 << 30);
    assert!(steps.iter().any(|step| resized(&step.change)));
    let refused = plan(&with(""), &with("timeout_ms = 5000"));
    assert!(refused.is_err());
}

#[test]
fn credentials_of_a_remote_volume_change_while_it_is_served_and_show_in_no_plan() {
    let folder = tempfile::tempdir().unwrap();
    let psk = |byte: u8| {
        let key = Psk::new(PskHash::Sha256, |bytes| bytes.fill(byte));
        String::from_utf8(key_lines(&[key.into()]).bytes().to_vec()).unwrap()
    };
    let with = |psk: &str, secret: &str, more: &str| {
        let path = |name: &str| folder.path().join(format!("{name}.secret"));
        secret_file(folder.path(), "psk", psk, 0o600);
        secret_file(folder.path(), "own", secret, 0o600);
        let keys = format!(
            "urls = [\"{URL}\"]\npsk_file = {:?}\ndhchap_secret_file = {:?}\n{more}",
            path("psk"),
            path("own")
        );
        read(&remote(&keys)).unwrap()
    };
    let old = with(&psk(1), KEY, "");
    for new in [
        with(&psk(2), KEY, ""),
        with(&psk(1), OWN, ""),
        // The first is the one that weft goes by.
        with(
            &format!("{}{}", psk(2), psk(1)),
            &format!("{OWN}\n{KEY}"),
            "",
        ),
        read(&remote(&format!("urls = [\"{URL}\"]"))).unwrap(),
    ] {
        let steps = plan(&old, &new).expect("it may change");
        let [step] = &steps[..] else {
            panic!("{steps:?}");
        };
        let set = |config: &Config| Change::SetRemote {
            name: "there".to_owned(),
            place: config.volumes[0].kind.place().unwrap().clone(),
        };
        assert_eq!((&step.change, &step.undo), (&set(&new), &Some(set(&old))));
        assert!(!step.disturbs && step.text.contains("connections that are up stay"));
    }
    let behind = with(
        &format!("{}{}", psk(1), psk(2)),
        &format!("{KEY}\n{OWN}"),
        "",
    );
    assert_eq!(plan(&old, &behind), Ok(Vec::new()));
    let both = with(&psk(2), KEY, "timeout_ms = 5000");
    let refused = plan(&old, &both).expect_err("its place does not change");
    assert!(refused[0].contains("size, keys and rates"), "{refused:?}");
}
