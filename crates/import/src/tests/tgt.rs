use super::{SomeFiles, format, imported, load, loaded, mistakes, tells};
use crate::import;

const WHOLE: &str = "\
# what tgt-admin reads
default-driver iscsi
include conf.d/*.conf

<target iqn.2008-09.com.example:server.target1>
    backing-store /dev/vg0/monitoring   # LUN 1
    incominguser backup secretpass12
    outgoinguser userA secretpassA1
    initiator-address 192.0.2.2
    initiator-address 192.0.2.128/25
</target>

<target iqn.2008-09.com.example:server.target2>
    <backing-store /srv/disk2.img>
        scsi_sn  SN0002
        vendor_id ACME Corp
        lun 5
        write-cache off
        block-size 4096
    </backing-store>
    backing-store /srv/disk3.img
    readonly 1
    initiator-name iqn.2001-04.com.example:host1
</target>
";

#[test]
fn targets_are_carried_over() {
    let (found, config) = loaded("tgt", WHOLE);
    let [one, two] = &config.iscsi_targets[..] else {
        panic!("two targets");
    };
    assert_eq!(one.target.name, "iqn.2008-09.com.example:server.target1");
    assert_eq!(one.luns[0].lun, 1, "0 is the controller");
    assert_eq!(one.target.acl[0].networks.len(), 2);
    assert_eq!(one.target.auth.chap.as_ref().expect("CHAP").user, "backup");
    assert!(one.target.auth.mutual.is_some());
    let luns: Vec<u16> = two.luns.iter().map(|lun| lun.lun).collect();
    assert_eq!(luns, [1, 5]);
    assert_eq!(
        two.target.acl[0].name.as_deref(),
        Some("iqn.2001-04.com.example:host1")
    );
    let disk = &config.volumes[1];
    assert_eq!((disk.block_bytes, disk.read_only), (4096, true));
    assert_eq!(disk.names.serial.as_deref(), Some("SN0002"));
    assert_eq!(
        disk.names.vendor.as_deref(),
        Some("ACME Cor"),
        "as tgt cuts it"
    );
    assert_eq!(disk.names.product.as_deref(), Some("VIRTUAL-DISK"));
    assert_eq!(config.listeners[0].address.to_string(), "0.0.0.0:3260");
    tells(&found, &["default", "naa", "sg_inq"]);
    tells(&found, &["source:3", "lost", "no file fits"]);
    assert!(!found.report.changes_access(), "{}", found.report);
}

#[test]
fn more_secrets_than_weft_takes_are_told() {
    let text = WHOLE.replace(
        "    outgoinguser",
        "    incominguser other otherpass1234\n    outgoinguser",
    );
    tells(
        &imported("tgt", &text),
        &["source:8", "ACCESS", "incominguser", "the first"],
    );
    let found = imported("tgt", &WHOLE.replace("secretpass12", "short"));
    assert_eq!(load(&found).iscsi_targets[0].target.acl, []);
    tells(&found, &["ACCESS", "secret", "5 bytes"]);
}

#[test]
fn mistake_in_targets_conf_is_told_with_its_line() {
    for (text, part) in [
        (
            "<target iqn.2008-09.com.example:a>\n backing-store /srv/a\n",
            "source:1: <target> is not closed",
        ),
        ("</target>\n", "source:1: </target> closes nothing"),
        (
            "<target iqn.2008-09.com.example:a>\n <backing-store /srv/a>\n <x>\n",
            "source:3: blocks are nested",
        ),
        (
            "<target iqn.2008-09.com.example:a>\n backing-store /srv/a\n initiator-address nowhere\n</target>",
            "source:3: \"nowhere\" is no address",
        ),
        (
            "<target iqn.2008-09.com.example:a>\n backing-store /srv/a\n backing-store /srv/a\n</target>",
            "source:3: LUN 2 or /srv/a is in the target already",
        ),
        (
            "include /etc/tgt/gone.conf\n",
            "source:1: /etc/tgt/gone.conf cannot be read",
        ),
        ("# nothing\n", "nothing in it that weft could serve"),
    ] {
        let told = mistakes("tgt", text);
        assert!(told.contains(part), "{text:?}: {told}");
    }
}

#[test]
fn included_files_are_read_and_circles_are_told() {
    let one =
        "<target iqn.2008-09.com.example:one>\n backing-store /srv/one\n colour red\n</target>\n";
    let files = SomeFiles::of(&[
        ("/etc/tgt/conf.d/one.conf", one),
        ("/etc/tgt/conf.d/two.conf~", "nonsense"),
        ("/etc/tgt/circle.conf", "include circle.conf\n"),
    ]);
    let import = |text: &str| import(format("tgt"), "/etc/tgt/targets.conf", text, &files);
    let found = import("include conf.d/*.conf\n").expect("fine");
    tells(&found, &["/etc/tgt/conf.d/one.conf:3", "ACCESS", "colour"]);
    let told = import("include circle.conf\n")
        .expect_err("a circle")
        .to_string();
    assert!(
        told.contains("/etc/tgt/circle.conf:1: /etc/tgt/circle.conf includes itself"),
        "{told}"
    );
}

#[test]
fn thirty_two_units_are_carried_over() {
    let units: String = (0..32)
        .map(|nth| format!(" backing-store /srv/disk{nth}.img\n"))
        .collect();
    let text = format!("<target iqn.2008-09.com.example:many>\n{units}</target>\n");
    let (_, config) = loaded("tgt", &text);
    let luns: Vec<u16> = config.iscsi_targets[0]
        .luns
        .iter()
        .map(|lun| lun.lun)
        .collect();
    assert_eq!(luns, (1..=32).collect::<Vec<u16>>());
}

/// tgt-admin goes through targets by name and through units by path; initiators know a unit by
/// the numbers that come of it.
#[test]
fn targets_and_units_have_the_numbers_that_tgt_admin_gives() {
    let text = "\
<target iqn.2008-09.com.example:z>
    backing-store /srv/z
    backing-store /srv/b
    direct-store /dev/sdx
</target>
<target iqn.2008-09.com.example:b>
    controller_tid 7
    <backing-store /srv/c>
        scsi_id IET     0007000F
        scsi_sn C0FFEE
    </backing-store>
    <backing-store /srv/d>
        lun 1
    </backing-store>
</target>
<target iqn.2008-09.com.example:a>
    backing-store /srv/a
</target>
";
    let (_, config) = loaded("tgt", text);
    let names_of = |target: usize, lun: u16| {
        let luns = &config.iscsi_targets[target].luns;
        let at = luns.iter().find(|known| known.lun == lun).expect("a unit");
        let volume = config.volumes.iter().find(|known| known.name == at.volume);
        let volume = volume.expect("a volume");
        let naa: String = volume
            .names
            .naa
            .iter()
            .flatten()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (
            volume.name.clone(),
            volume.names.serial.clone().unwrap_or_default(),
            naa,
        )
    };
    let one = |name: &str, serial: &str, naa: &str| (name.into(), serial.into(), naa.into());
    // The digits of IET are 0, e and 0.
    let naa = |numbers: &str| format!("6000000000000000{}{numbers}", "0e000000");
    assert_eq!(names_of(2, 1), one("a", "beaf11", &naa("00010001")));
    assert_eq!(names_of(1, 1), one("d", "beaf71", &naa("00070001")));
    assert_eq!(names_of(1, 2), one("c", "C0FFEE", &naa("0007000f")));
    assert_eq!(names_of(0, 1), one("b", "beaf81", &naa("00080001")));
    assert_eq!(names_of(0, 2), one("z", "beaf82", &naa("00080002")));
    assert_eq!(names_of(0, 3), one("sdx", "", &naa("00080003")));
}
