//! `[[snapshot_schedule]]`.

use server::{Change, SnapshotSchedule};

use super::*;

fn schedule(text: &str) -> String {
    let sound = file(SIZE, "", ANY, LOCAL, "");
    let sound = sound.replace("kind = \"ram\"", "kind = \"file\"\npath = \"a.img\"");
    let other = "[[volume]]\nname = \"r\"\nkind = \"ram\"\nsize = \"1MiB\"\n";
    format!("{other}{sound}[[snapshot_schedule]]\n{text}")
}

#[test]
fn a_schedule_says_of_which_volumes_and_how_many_stay() {
    let text = "name = \"auto\"\nvolumes = [\"a\"]\nhourly = 24\nweekly = 256\n";
    let config = read(&schedule(text)).expect("sound");
    let expected = SnapshotSchedule {
        name: "auto".to_owned(),
        volumes: vec!["a".to_owned()],
        hourly: 24,
        daily: 0,
        weekly: 256,
    };
    assert_eq!(config.snapshot_schedules, [expected]);
}

#[test]
fn mistake_in_a_schedule_is_told() {
    let named = "name = \"auto\"\nvolumes = [\"a\"]\n";
    let nothing = format!("{named}daily = 0\nhourly = 0\n");
    let twice = format!("{named}daily = 1\n[[snapshot_schedule]]\n{named}daily = 1\n");
    for (text, part) in [
        ("volumes = [\"a\"]\ndaily = 1\n", "`name`"),
        ("name = \"auto\"\ndaily = 1\n", "`volumes`"),
        (&nothing, "makes nothing: set `hourly`, `daily` or `weekly`"),
        (
            "name = \"x\"\nvolumes = [\"a\", \"r\"]\ndaily = 1\n",
            "volume \"r\" is of the kind \"ram\", which has no snapshots",
        ),
        (named, "makes nothing: set `hourly`, `daily` or `weekly`"),
        (
            "name = \"-\"\nvolumes = [\"a\"]\ndaily = 1\n",
            "a schedule's name is",
        ),
        ("name = \"x\"\nvolumes = []\ndaily = 1\n", "names no volume"),
        (
            "name = \"x\"\nvolumes = [\"c\"]\ndaily = 1\n",
            "there is no volume \"c\"",
        ),
        (
            "name = \"x\"\nvolumes = [\"a\", \"a\"]\ndaily = 1\n",
            "in the list already",
        ),
        (
            "name = \"x\"\nvolumes = [\"a\"]\ndaily = 257\n",
            "`daily` is 256 at most",
        ),
        (&twice, "a schedule \"auto\" is there already"),
    ] {
        let told = only(&schedule(text));
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn change_of_schedules_is_planned_and_disturbs_nothing() {
    let text = |count: u32| {
        let text = format!("name = \"auto\"\nvolumes = [\"a\"]\ndaily = {count}\n");
        read(&schedule(&text)).expect("sound")
    };
    let (from, to) = (text(1), text(2));
    let plan = crate::plan::plan(&from, &to).expect("it can be changed");
    assert_eq!(plan.len(), 1);
    assert!(!plan[0].disturbs);
    let awaited = Change::SetSnapshotSchedules(to.snapshot_schedules.clone());
    assert_eq!(plan[0].change, awaited);
}
