use wire::nfs4::nfs_ftype4;

use super::*;

const TIME: nfstime4 = nfstime4 {
    seconds: 5,
    nseconds: 6,
};

const LABEL: sec_label4<'static> = sec_label4 {
    slai_lfs: nfs4::labelformat_spec4 {
        lfs_lfs: 7,
        lfs_pi: 8,
    },
    slai_data: Opaque(b"user:role:type:s0"),
};

fn values() -> Values<'static> {
    Values {
        object: Object {
            kind: nfs_ftype4::NF4REG,
            change: 1,
            size: 2,
            used_bytes: 3,
            fileid: 4,
            mounted_on_fileid: 4,
            mode: 0o644,
            links: 1,
            uid: 1000,
            gid: 0,
            device: (8, 9),
            accessed: TIME,
            created: TIME,
            changed: TIME,
            modified: TIME,
        },
        handle: b"handle",
        system: System {
            fsid: (1, 2),
            lease_s: 90,
            file_bytes_max: 1 << 40,
            links_max: 100,
            name_bytes_max: 255,
            io_bytes_max: 1 << 20,
            clone_block_bytes: 4096,
            has_xattrs: true,
            has_acls: true,
            has_labels: true,
            has_quotas: true,
            is_absent: false,
        },
        room: FreeSpace::default(),
        owner: None,
        group: None,
        acl: &[0; 4],
        label: Some(LABEL),
        locations: &[0; 8],
        locations_info: &[0; 16],
        rdattr_error: nfsstat4::NFS4_OK,
    }
}

fn mask(numbers: &[u32]) -> Vec<u32> {
    let mut words = vec![0; 3];
    for number in numbers {
        words[*number as usize / 32] |= 1 << (number % 32);
    }
    words
}

fn fattr<'a>(words: &'a [u32], vals: &'a [u8]) -> fattr4<'a> {
    fattr4 {
        attrmask: List::Of(words),
        attr_vals: Opaque(vals),
    }
}

fn encoded(values: &[&dyn Encode]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.encode(&mut bytes));
    bytes
}

#[test]
fn the_table_is_in_order() {
    assert!(TABLE.windows(2).all(|rows| rows[0].0 < rows[1].0));
    // What every server must have (RFC 8881, section 5.6), but for the
    // settable times.
    let required = (0..=11).chain([nfs4::FATTR4_FILEHANDLE]);
    assert!(
        required
            .into_iter()
            .all(|number| has(&SUPPORTED[0], number))
    );
    assert!(!has(&SUPPORTED[0], nfs4::FATTR4_SUPPATTR_EXCLCREAT));
    assert!(has(&SUPPORTED[1], nfs4::FATTR4_SUPPATTR_EXCLCREAT));
    assert!(!has(&SUPPORTED[1], nfs4::FATTR4_XATTR_SUPPORT));
}

#[test]
fn values_come_in_the_order_of_their_numbers() {
    let words = mask(&[
        nfs4::FATTR4_OWNER_GROUP,
        nfs4::FATTR4_OWNER,
        nfs4::FATTR4_SIZE,
        nfs4::FATTR4_MODE,
        nfs4::FATTR4_TYPE,
        nfs4::FATTR4_ACL,
        nfs4::FATTR4_TIME_MODIFY,
    ]);
    let asked = AskedAttributes::new(&List::Of(&words), 0).unwrap();
    assert!(!asked.needs_room() && !asked.has_rdattr_error());
    let mut bytes = Vec::new();
    asked.write(&values(), &mut bytes);
    let read = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
    // No third word.
    let words: Vec<u32> = read.attrmask.iter().collect();
    assert_eq!(words, [0x1012, 0x0020_0032]);
    let group = Opaque::<4>(b"0");
    let expected = encoded(&[
        &nfs_ftype4::NF4REG,
        &2u64,
        &0u32,
        &0o644u32,
        &Opaque::<4>(b"1000"),
        &group,
        &TIME,
    ]);
    assert_eq!(read.attr_vals.0, expected);
}

#[test]
fn every_supported_attribute_can_be_read() {
    for minor in 0..=2 {
        let set_only = TABLE.iter().filter(|row| matches!(row.2, SetOnly));
        let mut words = SUPPORTED[minor as usize];
        for AttributeRow(number, ..) in set_only {
            words[*number as usize / 32] &= !(1 << (number % 32));
        }
        let asked = AskedAttributes::new(&List::Of(&words), minor).unwrap();
        assert!(asked.needs_room() && asked.has_rdattr_error());
        let mut bytes = Vec::new();
        asked.write(&values(), &mut bytes);
        let read = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
        let mut from = Reader::new(read.attr_vals.0);
        let supported = bitmap4::decode(&mut from).unwrap();
        let expected = SUPPORTED[minor as usize]
            .into_iter()
            .filter(|&word| word != 0);
        assert!(supported.iter().eq(expected));
        // It is what VERIFY takes it for, but for the one that is no attribute.
        words[0] &= !(1 << nfs4::FATTR4_RDATTR_ERROR);
        let asked = AskedAttributes::new(&List::Of(&words), minor).unwrap();
        bytes.clear();
        asked.write(&values(), &mut bytes);
        let read = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(verify(&read, minor, &values()), Ok(true));
        let mut other = values();
        other.object.change += 1;
        assert_eq!(verify(&read, minor, &other), Ok(false));
    }
    for number in [nfs4::FATTR4_TIME_ACCESS_SET, nfs4::FATTR4_MODE_UMASK] {
        let words = mask(&[number]);
        let asked = AskedAttributes::new(&List::Of(&words), 2);
        assert_eq!(asked, Err(nfsstat4::NFS4ERR_INVAL));
    }
}

#[test]
fn values_of_attributes_to_set_are_checked() {
    let words = mask(&[
        nfs4::FATTR4_SIZE,
        nfs4::FATTR4_OWNER,
        nfs4::FATTR4_TIME_ACCESS_SET,
        nfs4::FATTR4_TIME_MODIFY_SET,
    ]);
    let accessed = settime4::SET_TO_SERVER_TIME4;
    let modified = settime4::SET_TO_CLIENT_TIME4(TIME);
    let vals = encoded(&[&7u64, &Opaque::<9>(b"65534"), &accessed, &modified]);
    let set = SetAttributes::read(&fattr(&words, &vals), 0, false, NO_NAMES);
    let expected = SetAttributes {
        size: Some(7),
        uid: Some(65534),
        accessed: Some(accessed),
        modified: Some(modified),
        ..SetAttributes::default()
    };
    assert_eq!(set, Ok(expected));
    let bad_time = settime4::SET_TO_CLIENT_TIME4(nfstime4 {
        seconds: 0,
        nseconds: 1_000_000_000,
    });
    let late = [0, 0, 0, 1];
    for (numbers, vals, error) in [
        (
            &[nfs4::FATTR4_ARCHIVE][..],
            vec![],
            nfsstat4::NFS4ERR_ATTRNOTSUPP,
        ),
        // More entries than there are bytes.
        (
            &[nfs4::FATTR4_ACL],
            [encoded(&[&2u32]), vec![0; 16]].concat(),
            nfsstat4::NFS4ERR_BADXDR,
        ),
        (&[nfs4::FATTR4_CHANGE], vec![0; 8], nfsstat4::NFS4ERR_INVAL),
        (&[nfs4::FATTR4_SIZE], vec![0; 7], nfsstat4::NFS4ERR_BADXDR),
        (&[nfs4::FATTR4_SIZE], vec![0; 12], nfsstat4::NFS4ERR_BADXDR),
        (
            &[nfs4::FATTR4_MODE],
            encoded(&[&0o10000u32]),
            nfsstat4::NFS4ERR_INVAL,
        ),
        (
            &[nfs4::FATTR4_OWNER],
            encoded(&[&Opaque::<9>(b"root")]),
            nfsstat4::NFS4ERR_BADOWNER,
        ),
        (
            &[nfs4::FATTR4_OWNER],
            encoded(&[&Opaque::<9>(b"")]),
            nfsstat4::NFS4ERR_INVAL,
        ),
        (
            &[nfs4::FATTR4_OWNER],
            encoded(&[&Opaque::<9>(b"007")]),
            nfsstat4::NFS4ERR_BADOWNER,
        ),
        (
            &[nfs4::FATTR4_OWNER],
            encoded(&[&Opaque::<9>(b"+7")]),
            nfsstat4::NFS4ERR_BADOWNER,
        ),
        (
            &[nfs4::FATTR4_OWNER_GROUP],
            encoded(&[&Opaque::<10>(b"4294967296")]),
            nfsstat4::NFS4ERR_BADOWNER,
        ),
        (
            &[nfs4::FATTR4_TIME_MODIFY_SET],
            encoded(&[&bad_time]),
            nfsstat4::NFS4ERR_INVAL,
        ),
    ] {
        let words = mask(numbers);
        let result = SetAttributes::read(&fattr(&words, &vals), 2, false, NO_NAMES);
        assert_eq!(result, Err(error), "{numbers:?}");
    }
    // A fourth word.
    let result = SetAttributes::read(&fattr(&late, &[]), 2, false, NO_NAMES);
    assert_eq!(result, Err(nfsstat4::NFS4ERR_ATTRNOTSUPP));
}

#[test]
fn mode_umask_is_only_for_new_objects() {
    let words = mask(&[nfs4::FATTR4_MODE_UMASK]);
    let vals = encoded(&[&0o777u32, &0o022u32]);
    let set = SetAttributes::read(&fattr(&words, &vals), 2, true, NO_NAMES).unwrap();
    assert_eq!((set.mode, set.umask), (Some(0o777), 0o022));
    let set = SetAttributes::read(&fattr(&words, &vals), 2, false, NO_NAMES);
    assert_eq!(set, Err(nfsstat4::NFS4ERR_INVAL));
    let set = SetAttributes::read(&fattr(&words, &vals), 1, true, NO_NAMES);
    assert_eq!(set, Err(nfsstat4::NFS4ERR_ATTRNOTSUPP));
    let both = mask(&[nfs4::FATTR4_MODE, nfs4::FATTR4_MODE_UMASK]);
    let vals = encoded(&[&0o777u32, &0o777u32, &0o022u32]);
    let set = SetAttributes::read(&fattr(&both, &vals), 2, true, NO_NAMES);
    assert_eq!(set, Err(nfsstat4::NFS4ERR_INVAL));
}

#[test]
fn owners_are_written_and_read_by_name_where_a_server_knows_names() {
    let words = mask(&[nfs4::FATTR4_OWNER, nfs4::FATTR4_OWNER_GROUP]);
    let asked = AskedAttributes::new(&List::Of(&words), 2).unwrap();
    assert!(asked.needs_owners());
    let named = Values {
        owner: Some("alice@example.org"),
        group: None,
        ..values()
    };
    let mut bytes = Vec::new();
    asked.write(&named, &mut bytes);
    let written = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
    let vals = encoded(&[&Opaque::<20>(b"alice@example.org"), &Opaque::<20>(b"0")]);
    assert_eq!(written.attr_vals.0, vals);
    let names: &ReadOwner<'_> = &|kind, name| match (kind, name) {
        (AccountKind::User, b"alice@example.org") => Ok(7),
        (AccountKind::Group, b"staff@example.org") => Ok(8),
        _ => Err(nfsstat4::NFS4ERR_BADOWNER),
    };
    let read = |owner: &'static [u8], group: &'static [u8]| {
        let vals = encoded(&[&Opaque::<20>(owner), &Opaque::<20>(group)]);
        let set = SetAttributes::read(&fattr(&words, &vals), 2, false, names);
        set.map(|set| (set.uid, set.gid))
    };
    let both = Ok((Some(7), Some(8)));
    assert_eq!(read(b"alice@example.org", b"staff@example.org"), both);
    assert_eq!(read(b"7", b"staff@example.org"), both);
    let bad = Err(nfsstat4::NFS4ERR_BADOWNER);
    assert_eq!(read(b"staff@example.org", b"8"), bad);
    // No number, though it has digits alone.
    assert_eq!(read(b"4294967296", b"8"), bad);
}

#[test]
fn file_system_without_lists_has_no_attribute_of_them() {
    let words = mask(&[
        nfs4::FATTR4_ACL,
        nfs4::FATTR4_ACLSUPPORT,
        nfs4::FATTR4_SUPPORTED_ATTRS,
    ]);
    let asked = AskedAttributes::new(&List::Of(&words), 1).unwrap();
    let mut without = values();
    without.system.has_acls = false;
    for (values, is_there) in [(values(), true), (without, false)] {
        let mut bytes = Vec::new();
        asked.write(&values, &mut bytes);
        let read = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
        let told: Vec<u32> = read.attrmask.iter().collect();
        assert_eq!(told[0] >> nfs4::FATTR4_ACL & 1 == 1, is_there);
        let supported = bitmap4::decode(&mut Reader::new(read.attr_vals.0)).unwrap();
        let first = supported.iter().next().unwrap();
        assert_eq!(first >> nfs4::FATTR4_ACL & 1 == 1, is_there);
        let acl = mask(&[nfs4::FATTR4_ACL]);
        let same = verify(&fattr(&acl, &[0; 4]), 1, &values);
        let missing = Err(nfsstat4::NFS4ERR_ATTRNOTSUPP);
        assert_eq!(same, if is_there { Ok(true) } else { missing });
    }
}

#[test]
fn label_is_there_in_minor_version_2_where_the_system_keeps_labels_and_the_object_has_one() {
    let words = mask(&[
        nfs4::FATTR4_SUPPORTED_ATTRS,
        nfs4::FATTR4_SUPPATTR_EXCLCREAT,
        nfs4::FATTR4_SEC_LABEL,
    ]);
    let label = encoded(&[&LABEL]);
    let (mut unlabeled, mut without) = (values(), values());
    unlabeled.label = None;
    without.system.has_labels = false;
    for (minor, values, is_supported, is_told) in [
        (1, values(), false, false),
        (2, values(), true, true),
        (2, unlabeled, true, false),
        (2, without, false, false),
    ] {
        let asked = AskedAttributes::new(&List::Of(&words), minor).unwrap();
        assert_eq!(asked.needs_label(), minor == 2);
        let mut bytes = Vec::new();
        asked.write(&values, &mut bytes);
        let read = fattr4::decode(&mut Reader::new(&bytes)).unwrap();
        let mut from = Reader::new(read.attr_vals.0);
        for _ in 0..2 {
            let all: Vec<u32> = bitmap4::decode(&mut from).unwrap().iter().collect();
            let third = all.get(2).copied().unwrap_or_default();
            assert_eq!(
                third >> (nfs4::FATTR4_SEC_LABEL % 32) & 1 == 1,
                is_supported
            );
        }
        assert_eq!(from.rest(), if is_told { &label[..] } else { &[] });
        let third = read.attrmask.iter().nth(2).unwrap_or_default();
        assert_eq!(third >> (nfs4::FATTR4_SEC_LABEL % 32) & 1 == 1, is_told);
        let only = mask(&[nfs4::FATTR4_SEC_LABEL]);
        for (vals, is_same) in [(&label[..], is_told), (&label[..20], false), (&[], false)] {
            let expected = match is_supported {
                true => Ok(is_same),
                false => Err(nfsstat4::NFS4ERR_ATTRNOTSUPP),
            };
            assert_eq!(verify(&fattr(&only, vals), minor, &values), expected);
        }
    }
    let only = mask(&[nfs4::FATTR4_SEC_LABEL]);
    let set = |minor, vals| SetAttributes::read(&fattr(&only, vals), minor, false, NO_NAMES);
    assert_eq!(set(2, &label).map(|set| set.label), Ok(Some(LABEL)));
    assert_eq!(set(2, &label[..20]), Err(nfsstat4::NFS4ERR_BADXDR));
    assert_eq!(set(1, &label), Err(nfsstat4::NFS4ERR_ATTRNOTSUPP));
}
