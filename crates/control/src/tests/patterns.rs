//! Patterns in names: one table of a file that stands for many.

use super::*;

/// Thirty-two RAM disks, each in a subsystem of its own.
const MANY: &str = "[[volume]]\nname = \"ram{00..31}\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
                    [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:ram{00..31}\"\n\
                    allow_any_host = true\nvolumes = [\"ram{00..31}\"]\n\
                    [[listener]]\naddress = \"127.0.0.1:4420\"\n";

#[test]
fn one_table_makes_many_volumes_and_subsystems() {
    let config = read(MANY).unwrap();
    assert_eq!(config.volumes.len(), 32);
    assert_eq!(config.volumes[7].name, "ram07");
    assert_eq!(config.volumes[31].name, "ram31");
    assert_eq!(config.subsystems.len(), 32);
    for (subsystem, volume) in config.subsystems.iter().zip(&config.volumes) {
        assert_eq!(
            subsystem.nqn,
            format!("nqn.2026-01.io.weft:{}", volume.name)
        );
        let [namespace] = &*subsystem.namespaces else {
            panic!("{subsystem:?}");
        };
        assert_eq!((namespace.nsid, &namespace.volume), (1, &volume.name));
    }
    let mut serials: Vec<_> = config.subsystems.iter().map(|s| &s.serial).collect();
    serials.dedup();
    assert_eq!(serials.len(), 32, "each has its own");
}

#[test]
fn a_list_takes_all_of_a_pattern_where_the_name_has_none() {
    let text = MANY.replace(":ram{00..31}", ":all");
    let config = read(&text).unwrap();
    let [subsystem] = &*config.subsystems else {
        panic!("{:?}", config.subsystems);
    };
    let found = subsystem.namespaces.iter().map(|n| (n.nsid, &*n.volume));
    let names: Vec<String> = (0..32).map(|n| format!("ram{n:02}")).collect();
    let all = (1..).zip(names.iter().map(String::as_str));
    assert!(found.eq(all), "{:?}", subsystem.namespaces);
    // With tables for others beside it.
    let more = "[[nvme.subsystem.namespace]]\nnsid = 9\nvolume = \"ram01\"\n[[listener]]";
    let some = text.replace("[\"ram{00..31}\"]", "[\"ram{10..11}\"]");
    let config = read(&some.replace("[[listener]]", more)).unwrap();
    let nsids = config.subsystems[0].namespaces.iter().map(|n| n.nsid);
    assert_eq!(nsids.collect::<Vec<_>>(), [1, 2, 9]);
}

#[test]
fn everything_in_the_table_goes_with_the_name() {
    let text = MANY.replace(
        "kind = \"ram\"",
        "kind = \"file\"\npath = \"d{0..31}/{1..32}.img\"",
    );
    let hosts = "hosts = [\"nqn.2026-01.a:{100..131}\", \"nqn.2026-01.a:b\"]";
    let config = read(&text.replace(ANY, hosts)).unwrap();
    let path = PathBuf::from("d4/5.img");
    assert_eq!(config.volumes[4].kind, Kind::file(path));
    let hosts = config.subsystems[4].hosts.as_deref().unwrap();
    assert_eq!(hosts, ["nqn.2026-01.a:104", "nqn.2026-01.a:b"]);
}

#[test]
fn collision_within_a_pattern_is_reported_once() {
    let again = "[[volume]]\nname = \"ram05\"\nkind = \"ram\"\nsize = 4096\n";
    let text = format!("{MANY}{again}");
    expect(&text, "12:8", &["\"ram05\" is there already, in line 1"]);
    let text = format!("{again}{MANY}");
    expect(&text, "6:8", &["\"ram05\" is there already, in line 1"]);
    let text = MANY.replace("kind = \"ram\"", "kind = \"file\"\npath = \"one.img\"");
    expect(&text, "4:8", &["/one.img already"]);
    let uuid = "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"\nsize";
    expect(
        &MANY.replace("size", uuid),
        "4:8",
        &["has this `uuid` already", "leave `uuid` out"],
    );
}

#[test]
fn patterns_that_do_not_fit_are_refused() {
    expect(
        &MANY.replace("[\"ram{00..31}\"]", "[\"ram{00..30}\"]"),
        "8:12",
        &["`volumes`: stands for 31, but `nqn` for 32"],
    );
    let list = read(&MANY.replace("name = \"ram{00..31}\"", "name = \"ram{31..00}\""));
    let told = "`name`: the pattern {31..00} runs backwards: write {0..31}";
    assert_eq!(list.unwrap_err()[0].text, told);
    let text = MANY.replace("kind = \"ram\"", "kind = \"file\"\npath = \"{0..1}\"");
    let one = text.replace("name = \"ram{00..31}\"", "name = \"ram\"");
    let list = read(&one).unwrap_err();
    let told = "`path` has a pattern, but the name of this table has none";
    assert!(list.iter().any(|p| p.text.contains(told)), "{list:?}");
    expect(
        &MANY.replace("allow_any_host = true", "hosts = []\nmodel = \"m{1..2}\""),
        "8:9",
        &["`model`: stands for 2"],
    );
    // What is wrong with all of them is told once.
    expect(&MANY.replace("\"64MiB\"", "5000"), "4:8", &["no multiple"]);
    expect(
        &MANY.replace("[\"ram{00..31}\"]", "[\"rum{00..31}\"]"),
        "8:12",
        &["no volume \"rum00\"", "`ram00`?"],
    );
}
