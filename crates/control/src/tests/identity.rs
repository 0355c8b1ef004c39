//! The identity of volumes: what is configured, and what follows where nothing is.

use store::memory::MemoryLimit;
use store::{Info, Names, Spec};
use uuid::Uuid;

use super::*;

/// A volume with these lines.
fn volume(lines: &str) -> String {
    file(&format!("{SIZE}\n{lines}"), "", ANY, LOCAL, "")
}

/// Two volumes with these lines each.
fn two(first: &str, second: &str) -> String {
    let other = "[[volume]]\nname = \"b\"\nkind = \"ram\"\nsize = \"1MiB\"";
    volume(first).replace("[nvme]", &format!("{other}\n{second}\n[nvme]"))
}

#[test]
fn every_configured_name_of_a_volume_arrives() {
    let lines = "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"\n\
                 nguid = \"00112233-44556677-8899aabb-ccddeeff\"\n\
                 eui64 = \"0025385b71b00a01\"\n\
                 naa = \"6001405AB1234567890ABCDEF0123456\"\nserial = \"ab1234\"\n\
                 vendor = \"LIO-ORG\"\nproduct = \"disk0\"\nrevision = \"4.0\"";
    let config = read(&volume(lines)).expect(lines);
    let spec = &config.volumes[0];
    let uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    assert_eq!(
        spec.uuid.map(|uuid| uuid.to_string()).as_deref(),
        Some(uuid)
    );
    let naa = [
        0x60, 0x01, 0x40, 0x5a, 0xb1, 0x23, 0x45, 0x67, 0x89, 0x0a, 0xbc, 0xde, 0xf0,
    ];
    let names = Names {
        nguid: Some(core::array::from_fn(|n| n as u8 * 0x11)),
        eui64: Some([0x00, 0x25, 0x38, 0x5b, 0x71, 0xb0, 0x0a, 0x01]),
        naa: Some([&naa[..], &[0x12, 0x34, 0x56]].concat()),
        serial: Some("ab1234".to_owned()),
        vendor: Some("LIO-ORG".to_owned()),
        product: Some("disk0".to_owned()),
        revision: Some("4.0".to_owned()),
    };
    assert_eq!(spec.names, names);
    // And they are what the volume tells hosts.
    let opened = store::open(spec).expect("memory");
    let info = opened.info();
    assert_eq!((Some(info.nguid), info.eui64), (names.nguid, names.eui64));
    assert_eq!(Some(&info.naa), names.naa.as_ref());
    assert_eq!(Some(&info.serial), names.serial.as_ref());
    assert_eq!(info.vendor, names.vendor);
}

#[test]
fn configured_name_of_a_wrong_form_is_told_with_its_place() {
    for (line, parts) in [
        (
            "nguid = \"0011\"",
            &["`nguid` is 32 hexadecimal digits", "0011"][..],
        ),
        (
            "nguid = \"00000000000000000000000000000000\"",
            &["not all of them 0"],
        ),
        (
            "eui64 = \"0025385b71b00a0\"",
            &["`eui64` is 16 hexadecimal digits"],
        ),
        ("eui64 = \"0025385b71b00ax1\"", &["`eui64` is 16"]),
        (
            "naa = \"6001405ab1234567\"",
            &["`naa` is 16 hexadecimal digits", "32 with a 6"],
        ),
        ("naa = \"4001405ab1234567\"", &["the first is 2, 3 or 5"]),
        ("naa = \"\"", &["`naa` is 16"]),
        ("serial = \"\"", &["`serial` is 1 to 64"]),
        ("vendor = \"LIO-ORG-X\"", &["`vendor` is 1 to 8 printable"]),
        ("product = \"a product of 17 c\"", &["`product` is 1 to 16"]),
        (
            "revision = \"v\u{e4}\"",
            &["`revision` is 1 to 4 printable ASCII"],
        ),
    ] {
        expect(
            &volume(line),
            &format!("5:{}", line.find(" = ").unwrap() + 4),
            parts,
        );
    }
}

#[test]
fn identity_that_two_volumes_share_is_refused_with_both_lines() {
    for (first, second) in [
        (
            "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"",
            "uuid = \"F81D4FAE7DEC11D0A76500A0C91E6BF6\"",
        ),
        (
            "nguid = \"00112233445566778899aabbccddeeff\"",
            "nguid = \"00112233-445566778899AABBCCDDEEFF\"",
        ),
        (
            "eui64 = \"0025385b71b00a01\"",
            "eui64 = \"0025385B71B00A01\"",
        ),
        ("naa = \"3001405ab1234567\"", "naa = \"3001405AB1234567\""),
        ("serial = \"same\"", "serial = \"same\""),
    ] {
        let at = format!("10:{}", second.find(" = ").unwrap() + 4);
        expect(
            &two(first, second),
            &at,
            &["the volume in line 1", "one disk"],
        );
    }
    let patterns = volume("").replace("name = \"a\"", "name = \"a{0..1}\"");
    let patterns = patterns.replace(SIZE, &format!("{SIZE}\nserial = \"S{{0..1}}\""));
    let patterns = patterns.replace("volume = \"a\"", "volume = \"a0\"");
    let config = read(&patterns).expect("each has its own");
    assert_eq!(config.volumes[1].names.serial.as_deref(), Some("S1"));
}

fn info(spec: &Spec) -> Info {
    store::open(spec).expect("memory").info().clone()
}

/// Processes that serve memory of one name serve two disks; one that starts again
/// serves the same to hosts.
#[test]
fn memory_of_one_name_in_two_files_has_two_identities_that_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["a.toml", "b.toml"] {
        std::fs::write(path(name), volume("")).expect("a file");
    }
    let volume_in = |path: &Path| info(&load(path).expect("a good file").volumes[0]);
    let (a, b) = (volume_in(&path("a.toml")), volume_in(&path("b.toml")));
    assert_ne!(a.uuid, b.uuid);
    assert_ne!(a.nguid, b.nguid);
    assert_ne!(a.naa, b.naa);
    assert_ne!(a.serial, b.serial);
    assert_eq!(volume_in(&path("a.toml")), a);
    assert_eq!(volume_in(&path("./a.toml")), a, "by another way");
    assert_ne!(info(&default_config().volumes[0]).uuid, a.uuid);
    let given = "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"";
    std::fs::write(path("a.toml"), volume(given)).expect("a file");
    let uuid = Uuid::parse_str("f81d4fae-7dec-11d0-a765-00a0c91e6bf6").ok();
    assert_eq!(load(&path("a.toml")).expect("good").volumes[0].uuid, uuid);
}

/// The path of a descriptor is the same for every process.
#[test]
fn memory_of_a_configuration_from_a_descriptor_is_known_by_the_file_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("there").join("a.toml");
    std::fs::write(&path, volume("")).expect("a file");
    let _opened = std::fs::File::open(&path).expect("a file");
    let mut descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    let leads_there = |way: &Path| std::fs::read_link(way).is_ok_and(|to| to == path);
    let way = descriptors.find(|entry| leads_there(&entry.path()));
    let uuid_at = |path: &Path| load(path).expect("good").volumes[0].uuid;
    assert_eq!(uuid_at(&way.expect("is open").path()), uuid_at(&path));
    // What is no file comes once.
    let device = || file_behind("/dev/null".into());
    assert_ne!(device(), device());
}

/// Each version of a configuration in a folder of its own, and a link to the one
/// that counts.
#[test]
fn memory_is_the_same_where_a_link_leads_to_another_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let uuid_in = |version: &str| {
        std::fs::create_dir(at(version)).expect("a folder");
        std::fs::write(at(version).join("weft.toml"), volume("")).expect("a file");
        let _ = std::fs::remove_file(at("current"));
        std::os::unix::fs::symlink(version, at("current")).expect("a link");
        let config = load(&at("current/weft.toml")).expect("good");
        config.volumes[0].uuid.expect("of memory")
    };
    assert_eq!(uuid_in("1"), uuid_in("2"));
}

#[test]
fn memory_with_a_state_file_has_the_uuid_in_it_wherever_the_configuration_lies() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let text = volume(&format!("state = {:?}", at("state")));
    for name in ["a.toml", "b.toml"] {
        std::fs::write(at(name), &text).expect("a file");
    }
    let spec_in = |name: &str| load(&at(name)).expect("good").volumes[0].clone();
    assert_ne!(spec_in("a.toml").uuid, spec_in("b.toml").uuid, "no state");
    let first = store::open(&spec_in("a.toml")).expect("memory");
    let host = store::reservation::Registrant::NvmeHost([1; 16]);
    let register = store::reservation::ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    let reservations = first.reservations();
    reservations.change(&host, &register).expect("kept");
    let uuid = first.info().uuid;
    drop(first);
    let second = store::open(&spec_in("b.toml")).expect("its own state");
    assert_eq!(second.info().uuid, uuid);
    assert_eq!(second.reservations().report().registrants.len(), 1);
    // What is configured counts before it.
    let given = "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"";
    std::fs::write(
        at("c.toml"),
        text.replace("state =", &format!("{given}\nstate =")),
    )
    .unwrap();
    assert_eq!(spec_in("c.toml").uuid, Uuid::parse_str(&given[8..44]).ok());
}

/// Two processes that see different folders under one path, as in mount namespaces
/// of their own, serve two disks.
#[test]
fn memory_of_one_path_in_two_folders_has_two_identities() {
    let around = tempfile::tempdir().expect("a folder");
    let at = |name: &str| around.path().join(name);
    let uuid_in = || load(&at("etc/weft.toml")).expect("good").volumes[0].uuid;
    let make = || {
        std::fs::create_dir(at("etc")).expect("a folder");
        std::fs::write(at("etc/weft.toml"), volume("")).expect("a file");
    };
    make();
    let first = uuid_in();
    std::fs::remove_file(at("etc/weft.toml")).expect("ours");
    std::fs::write(at("etc/weft.toml"), volume("")).expect("a file");
    assert_eq!(uuid_in(), first, "the file was written anew");
    std::fs::rename(at("etc"), at("other")).expect("ours");
    make();
    assert_ne!(uuid_in(), first);
}

/// A volume in memory with a state file; its registrations are kept.
fn registered(spec: &Spec) -> (Uuid, usize) {
    let volume = store::open(spec).expect("memory");
    let host = store::reservation::Registrant::NvmeHost([1; 16]);
    let register = store::reservation::ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    let reservations = volume.reservations();
    let before = reservations.report().registrants.len();
    reservations.change(&host, &register).expect("kept");
    (volume.info().uuid, before)
}

#[test]
fn copied_state_file_gives_memory_an_identity_of_its_own_unless_the_uuid_is_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let spec_of = |state: &str, more: &str| {
        let text = volume(&format!("state = {:?}\n{more}", at(state)));
        std::fs::write(at("weft.toml"), text).expect("a file");
        load(&at("weft.toml")).expect("good").volumes[0].clone()
    };
    let (original, _) = registered(&spec_of("first", ""));
    // As `cp` and `cp -a` do it; and over a file that was another's.
    std::fs::copy(at("first"), at("second")).expect("a copy");
    let (copy, before) = registered(&spec_of("second", ""));
    assert_ne!(copy, original);
    assert_eq!(before, 0, "the reservations are those of the original");
    assert_eq!(
        registered(&spec_of("second", "")),
        (copy, 1),
        "after a restart"
    );
    assert_eq!(registered(&spec_of("first", "")), (original, 1));
    std::fs::copy(at("first"), at("second")).expect("a copy over it");
    assert_ne!(registered(&spec_of("second", "")).0, original);
    // A backup that takes the place of the original.
    std::fs::copy(at("first"), at("third")).expect("a copy");
    let given = format!("uuid = \"{original}\"");
    assert_eq!(registered(&spec_of("third", &given)), (original, 1));
    assert_eq!(
        registered(&spec_of("third", "")),
        (original, 1),
        "from now on"
    );
}

#[test]
fn names_of_what_is_built_in_are_this_machines_and_stay() {
    let config = default_config();
    let nqn = &config.subsystems[0].nqn;
    let machine = store::identity::of_machine("built-in");
    assert_eq!(nqn, &format!("nqn.2026-01.io.weft:default-{machine}"));
    let iqn = &config.iscsi_targets[0].target.name;
    assert_eq!(iqn, &format!("iqn.2026-01.io.weft:default-{machine}"));
    assert_eq!(config.subsystems[0].serial, nvme::serial_of(nqn));
    assert_eq!(default_config().volumes, config.volumes);
}

#[test]
fn sum_of_what_lies_in_memory_is_told_where_it_is_more_than_there_is() {
    let files = "[[file_system]]\nname = \"f\"\nkind = \"mem\"\nsize = \"2MiB\"\n[nvme]";
    let text = volume("")
        .replace("[nvme]", files)
        .replace("[policy]", "[policy]\nmemory_max = \"64MiB\"");
    let config = read(&text).expect("good");
    let limit = |bytes| MemoryLimit {
        bytes,
        group: Some("/sys/fs/cgroup/weft".into()),
    };
    // A volume of 1 MiB, files of 2 MiB and buffers of 64 MiB.
    assert_eq!(memory_note(&config, Some(limit(67 << 20))), None);
    assert_eq!(memory_note(&config, None), None);
    let note = memory_note(&config, Some(limit((67 << 20) - 1))).expect("too much");
    for part in [
        "1MiB",
        "2MiB",
        "64MiB",
        "70254591 bytes",
        "/sys/fs/cgroup/weft",
        "smaller",
    ] {
        assert!(note.contains(part), "{part:?} is not in: {note}");
    }
}

#[test]
fn configuration_is_no_disk_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft.toml");
    std::os::unix::fs::symlink(&path, folder.path().join("link")).expect("a link");
    for (lines, key) in [
        (
            "kind = \"file\"\npath = \"weft.toml\"\nadopt = true",
            "`path`",
        ),
        ("kind = \"file\"\npath = \"link\"\nadopt = true", "`path`"),
        ("kind = \"ram\"\nstate = \"weft.toml\"", "`state`"),
    ] {
        let text = volume(lines).replacen("kind = \"ram\"\n", "", 1);
        std::fs::write(&path, text).expect("a file");
        let told = load(&path).expect_err(lines).to_string();
        let part = format!("{key} of the volume \"a\" is this very file");
        assert!(
            told.contains(&part) && told.contains("name another"),
            "{told}"
        );
    }
}
