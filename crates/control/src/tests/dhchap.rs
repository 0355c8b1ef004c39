//! Hosts that authenticate: every key arrives, every mistake is told, no secret is shown.

use auth::HostDhchap;
use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey};
use nvmf::dhchap::{DhchapChoice, DhchapKeys};

use super::*;

pub(super) const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(super) const OWN: &str = "DHHC-1:01:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOeXryU:";

/// A subsystem with these lines, and one host with those.
fn with(subsystem: &str, host: &str) -> String {
    let table = "[[nvme.subsystem.host]]\nnqn = \"nqn.2026-01.io.weft:i\"";
    file(
        SIZE,
        "",
        &format!("{subsystem}\n{table}\n{host}"),
        LOCAL,
        "",
    )
}

fn keys(config: &Config) -> Option<&DhchapKeys> {
    config.subsystems[0].terms.first()?.dhchap.as_ref()
}

#[test]
fn secrets_of_hosts_arrive_from_files_and_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    secret_file(folder.path(), "i", &format!("{KEY}\n"), 0o600);
    let text = with(
        "",
        &format!("dhchap_secret_file = \"i.secret\"\ndhchap_ctrl_secret = \"{OWN}\""),
    );
    let origin = origin(folder.path().to_str().unwrap());
    let config = parse(&text, &origin, &[0]).unwrap();
    let wanted = DhchapKeys {
        host: vec![DhchapKey::parse(KEY).unwrap().into()],
        controller: DhchapKey::parse(OWN).ok(),
    };
    assert_eq!(keys(&config), Some(&wanted));
    let shown = format!("{config:?}");
    assert!(
        !shown.contains("DHHC") && !shown.contains("AAECAw"),
        "{shown}"
    );
    let left = without_secrets(&text).unwrap();
    assert!(
        !left.contains("DHHC") && left.contains("i.secret"),
        "{left}"
    );
    // Without a secret the table says no more than the list.
    let plain = read(&with("", "")).unwrap();
    assert_eq!(plain.subsystems[0].terms, []);
}

#[test]
fn file_has_several_secrets_of_a_host_each_for_its_time() {
    const OTHER: &str = "DHHC-1:00:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOeXryU:";
    let folder = tempfile::tempdir().unwrap();
    let origin = origin(folder.path().to_str().unwrap());
    let text = with("", "dhchap_secret_file = \"i.secret\"");
    let of = |lines: &str, text: &str| {
        secret_file(folder.path(), "i", lines, 0o600);
        parse(text, &origin, &[0])
    };
    let over = format!("{OTHER} until 2026-01-01T00:00:00Z\n");
    let config = of(&format!("# rotated\n{KEY}\n{over}"), &text).unwrap();
    let until = Some(std::time::Duration::from_secs(1_767_225_600));
    let wanted = [
        DhchapKey::parse(KEY).unwrap().into(),
        HostDhchap {
            key: DhchapKey::parse(OTHER).unwrap(),
            until,
        },
    ];
    assert_eq!(keys(&config).unwrap().host, wanted);
    assert_eq!(notes(&config), Vec::<String>::new());
    let told = notes(&of(&over, &text).unwrap()).concat();
    let part = "every secret of host nqn.2026-01.io.weft:i has expired";
    assert!(told.contains(part), "{told}");
    // Weft proves itself by one, which is none of the host's.
    let own = |lines: &str, own: &str| {
        let text = with("", &format!("dhchap_secret_file = \"i.secret\"\n{own}"));
        let list = of(lines, &text).unwrap_err();
        list.into_iter().map(|one| one.text).collect::<String>()
    };
    let same = own(
        &format!("{KEY}\n{over}"),
        &format!("dhchap_ctrl_secret = \"{OTHER}\""),
    );
    assert!(same.contains("the same secret"), "{same}");
    let several = own(
        &format!("{KEY}\n{over}"),
        "dhchap_ctrl_secret_file = \"i.secret\"",
    );
    let remedy = "proves itself by one secret, which is good for good: leave one line there";
    assert!(several.contains(remedy), "{several}");
    let for_a_time = own(
        KEY,
        &format!("dhchap_ctrl_secret = \"{over}\"").replace('\n', ""),
    );
    assert!(for_a_time.contains(remedy), "{for_a_time}");
}

#[test]
fn plan_tells_that_connections_by_former_keys_stay_where_a_host_had_some() {
    let none = file(SIZE, "", ANY, LOCAL, "");
    let one = |key: &str| with(ANY, &format!("dhchap_secret = \"{key}\""));
    let mutual = |own: &str| one(&format!("{KEY}\"\ndhchap_ctrl_secret = \"{own}"));
    let rotated = format!("{OWN}\\n{KEY} until 2027-01-01T00:00:00Z");
    for (old, new, is_told) in [
        (none.clone(), one(KEY), false),
        (one(KEY), one(OWN), true),
        // By a key that is there yet, for a time: none is said to be gone.
        (one(KEY), one(&rotated), true),
        (mutual(OWN), mutual(&OWN.replace("-1:01", "-1:00")), true),
        (one(KEY), none, true),
    ] {
        let plan = plan(&read(&old).unwrap(), &read(&new).unwrap()).expect("it may change");
        let texts: Vec<_> = plan.iter().map(|planned| &*planned.text).collect();
        let texts = texts.join("\n");
        assert!(texts.contains("get other terms"), "{texts}");
        let is_said = texts.contains("connections by former keys stay");
        assert_eq!(is_said, is_told, "{texts}");
    }
}

#[test]
fn secrets_that_are_none_are_refused_and_not_shown() {
    let damaged = KEY.replace("AAEC", "AAED");
    let one = |key: &str, value: &str| with("", &format!("{key} = \"{value}\""));
    let both = format!("dhchap_secret = \"{KEY}\"\ndhchap_ctrl_secret = \"{KEY}\"");
    for (text, part) in [
        (one("dhchap_secret", &damaged), "its checksum is wrong"),
        (one("dhchap_secret", "correct horse"), "one reads DHHC-1:00"),
        (one("dhchap_secret_file", "missing"), "cannot be read"),
        (
            one("dhchap_secret", "(set)"),
            "`dhchap_secret`: \"(set)\" is what weft shows in the place of a secret: write the \
             secret itself, or use `dhchap_secret_file`",
        ),
        (one("dhchap_secret", "(set, another)"), "is what weft shows"),
        (one("dhchap_ctrl_secret", OWN), "give `dhchap_secret_file`"),
        (with("", &both), "the same secret"),
        (
            with(
                "",
                &format!("dhchap_secret = \"{KEY}\"\ndhchap_secret_file = \"f\""),
            ),
            "contradict each other",
        ),
    ] {
        let shown = only(&text);
        assert!(shown.contains(part), "{part}: {shown}");
        assert!(
            !shown.contains("AAE") && !shown.contains("horse"),
            "{shown}"
        );
    }
    let open = Origin {
        access: Some(FileAccess {
            mode: 0o100_644,
            ..FileAccess::OWN
        }),
        ..origin("")
    };
    let list = parse(&one("dhchap_secret", KEY), &open, &[0]).unwrap_err();
    assert!(
        list[0].text.contains("use `dhchap_secret_file`"),
        "{list:?}"
    );
}

#[test]
fn hashes_and_groups_are_taken_in_the_order_of_the_file() {
    let all = &read(&with("", "")).unwrap().subsystems[0].dhchap;
    assert_eq!(*all, DhchapChoice::default());
    let lines =
        "dhchap_hashes = [\"sha256\", \"sha512\"]\ndhchap_groups = [\"null\", \"ffdhe2048\"]";
    let some = &read(&with(lines, "")).unwrap().subsystems[0].dhchap;
    let wanted = DhchapChoice {
        hashes: vec![DhchapHash::Sha256, DhchapHash::Sha512],
        groups: vec![DhchapGroup::Null, DhchapGroup::Ffdhe2048],
    };
    assert_eq!(*some, wanted);
    for (lines, parts) in [
        ("dhchap_hashes = []", "is empty"),
        (
            "dhchap_hashes = [\"sha1\"]",
            "`dhchap_hashes` holds \"sha512\"",
        ),
        (
            "dhchap_groups = [\"ffdhe2049\"]",
            "did you mean `ffdhe2048`?",
        ),
        (
            "dhchap_groups = [\"null\", \"null\"]",
            "is in the list already",
        ),
    ] {
        let shown = only(&with(lines, ""));
        assert!(shown.contains(parts), "{shown}");
    }
}

#[test]
fn keys_that_have_all_expired_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin(folder.path().to_str().unwrap());
    let key = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let over = format!("{key} until 2026-01-01T00:00:00Z\n");
    for (keys, is_noted) in [
        (over.clone(), true),
        (format!("{over}{key}\n"), false),
        (format!("{over}{key} until 2999-01-01T00:00:00Z\n"), false),
    ] {
        secret_file(folder.path(), "i", &keys, 0o600);
        let text = with("", "psk_file = \"i.secret\"");
        let told = notes(&parse(&text, &origin, &[0]).unwrap()).concat();
        let is_told = told.contains("every key of host nqn.2026-01.io.weft:i has expired");
        assert_eq!(is_told, is_noted, "{keys}: {told}");
    }
}
