//! `[[quota]]`.

use server::Change;
use server::nfs::QuotaSpec;
use store::fs::{GRACE_S_DEFAULT, Quota, QuotaLimits, QuotaSubject};

use super::*;

fn quota(text: &str) -> String {
    let files = "[[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
                 [[file_system]]\nname = \"d\"\nkind = \"dir\"\npath = \"d\"\nstate = \"s\"\n";
    format!("{files}{}[[quota]]\n{text}", file(SIZE, "", ANY, LOCAL, ""))
}

fn named(text: &str) -> String {
    quota(&format!("name = \"q\"\nfile_system = \"m\"\n{text}"))
}

#[test]
fn a_quota_says_whose_and_how_much() {
    let text = "user = 1000\nhard_bytes = \"10GiB\"\nsoft_objects = 90\nhard_objects = 100\n\
                grace_s = 60\n\
                [[quota]]\nname = \"r\"\nfile_system = \"m\"\ntree = \"/a/b\"\nsoft_bytes = 5\n";
    let config = read(&named(text)).expect("sound");
    let spec = |name: &str, subject, limits| QuotaSpec {
        name: name.to_owned(),
        file_system: "m".to_owned(),
        quota: Quota { subject, limits },
    };
    let ann = QuotaLimits {
        hard_bytes: Some(10 << 30),
        soft_bytes: None,
        hard_objects: Some(100),
        soft_objects: Some(90),
        grace_s: 60,
    };
    let tree = QuotaLimits {
        soft_bytes: Some(5),
        grace_s: GRACE_S_DEFAULT,
        ..QuotaLimits::default()
    };
    let expected = [
        spec("q", QuotaSubject::User(1000), ann),
        spec("r", QuotaSubject::Tree("/a/b".to_owned()), tree),
    ];
    assert_eq!(config.quotas, expected);
}

#[test]
fn mistake_in_a_quota_is_told() {
    let again = |text: &str| format!("[[quota]]\nname = \"r\"\nfile_system = \"m\"\n{text}");
    let twice = format!(
        "each_user = true\nhard_bytes = 1\n{}",
        again("each_user = true\nhard_bytes = 2\n")
    );
    let nested = format!(
        "tree = \"/a\"\nhard_bytes = 1\n{}",
        again("tree = \"/a/b\"\nhard_bytes = 2\n")
    );
    for (text, part) in [
        ("hard_bytes = 1\n", "says not whose"),
        ("user = 0\nhard_bytes = 1\n", "`user` is from 1 to"),
        ("user = 1\ngroup = 1\nhard_bytes = 1\n", "are two quotas"),
        ("each_user = false\nhard_bytes = 1\n", "`each_user` is true"),
        ("tree = \"a\"\nhard_bytes = 1\n", "`tree`: "),
        ("user = 1\n", "limits nothing"),
        (
            "user = 1\nsoft_bytes = 2\nhard_bytes = 1\n",
            "`soft_bytes` is more than `hard_bytes`",
        ),
        (
            "user = 1\nhard_bytes = 1\ngrace_s = 1\n",
            "`grace_s` is for soft limits",
        ),
        (&twice, "each user has a quota already"),
        (&nested, "tree /a/b and another tree lie in each other"),
    ] {
        let told = only(&named(text));
        assert!(told.contains(part), "{part}: {told}");
    }
    let user = "user = 1\nhard_bytes = 1\n";
    for (text, part) in [
        ("file_system = \"m\"\n", "`name`"),
        ("name = \"q\"\n", "`file_system`"),
        (
            "name = \"q\"\nfile_system = \"x\"\n",
            "there is no file system \"x\"",
        ),
        ("name = \"a b\"\nfile_system = \"m\"\n", "a quota's name is"),
    ] {
        let told = only(&quota(&format!("{text}{user}")));
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_directory_has_quotas_of_all_but_trees() {
    let of = |text: &str| {
        quota(&format!(
            "name = \"q\"\nfile_system = \"d\"\n{text}hard_bytes = 1\n"
        ))
    };
    for text in [
        "user = 1\n",
        "group = 1\n",
        "each_user = true\n",
        "tree = \"/\"\n",
    ] {
        assert_eq!(read(&of(text)).expect("sound").quotas.len(), 1, "{text}");
    }
    let told = only(&of("tree = \"/a\"\n"));
    assert!(told.contains("no tree but \"/\" has a quota"), "{told}");
}

#[test]
fn change_of_quotas_is_planned_and_disturbs_nothing() {
    let text = |bytes: u32| named(&format!("user = 1\nhard_bytes = {bytes}\n"));
    let (from, to) = (
        read(&text(1)).expect("sound"),
        read(&text(2)).expect("sound"),
    );
    let plan = crate::plan::plan(&from, &to).expect("it can be changed");
    assert_eq!(plan.len(), 1);
    assert!(!plan[0].disturbs);
    assert_eq!(plan[0].change, Change::SetQuotas(to.quotas.clone()));
    assert_eq!(plan[0].text, "quotas: \"q\" changes; what is there stays");
}
