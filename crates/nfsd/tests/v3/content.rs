//! READ, WRITE, COMMIT.

use super::*;

fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

#[test]
fn data_is_read_as_it_was_written() {
    let mut world = world();
    let root = world.root();
    for (index, len) in [1, 3, 4, 100, 4096, 8191, 70_001, 1 << 20]
        .into_iter()
        .enumerate()
    {
        for offset in [0, 5, 4096, 999_999] {
            let file = world.file(&root, &format!("{index}-{offset}"));
            let data = data(len, index);
            assert_eq!(world.write(&file, offset, &data), Ok(len as u32));
            assert_eq!(
                world.read(&file, offset, len as u32),
                Ok((data.clone(), true))
            );
            let (zeros, is_end) = world.read(&file, 0, offset.min(1000) as u32).unwrap();
            assert_eq!((zeros, is_end), (vec![0; offset.min(1000) as usize], false));
            assert!(!world.read(&file, offset, len as u32 / 2).unwrap().1);
            let end = offset + len as u64;
            assert_eq!(world.read(&file, end, 10), Ok((vec![], true)));
            assert_eq!(
                world.read(&file, end - 1, 10),
                Ok((vec![data[len - 1]], true))
            );
            assert_eq!(world.getattr(&file).unwrap().size, end);
        }
    }
}

#[test]
fn reads_and_writes_of_no_bytes_are_answered() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    assert_eq!(world.write(&file, 0, b""), Ok(0));
    assert_eq!(world.read(&file, 0, 0), Ok((vec![], true)));
    world.write(&file, 0, b"abc").unwrap();
    assert_eq!(world.write(&file, 9, b""), Ok(0));
    assert_eq!(world.getattr(&file).unwrap().size, 3);
    assert_eq!(world.read(&file, 0, 0), Ok((vec![], false)));
    assert_eq!(world.read(&file, 3, 0), Ok((vec![], true)));
    assert_eq!(world.read(&file, u64::MAX, 9), Ok((vec![], true)));
}

#[test]
fn reads_and_writes_of_directories_and_symlinks_are_refused() {
    let mut world = world();
    let root = world.root();
    let args = SYMLINK3args {
        where_: named(&root, "l"),
        symlink_attributes: nothing(),
        symlink_data: Opaque(b"f"),
    };
    let link = world
        .make(nfs_proc3::NFSPROC3_SYMLINK, &root, &args)
        .unwrap();
    for (object, status) in [
        (&root, nfsstat3::NFS3ERR_ISDIR),
        (&link, nfsstat3::NFS3ERR_INVAL),
    ] {
        assert_eq!(world.read(object, 0, 9), Err(status));
        assert_eq!(world.write(object, 0, b"x"), Err(status));
        assert_eq!(world.write(object, 0, &[1; 50_000]), Err(status));
    }
    let file = world.file(&root, "f");
    assert_eq!(
        world.write(&file, u64::MAX - 3, b"abcd"),
        Err(nfsstat3::NFS3ERR_FBIG)
    );
}

#[test]
fn a_read_beyond_the_largest_is_answered_in_part() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let data = data(3 << 20, 1);
    for (at, part) in data.chunks(1 << 20).enumerate() {
        world.write(&file, (at as u64) << 20, part).unwrap();
    }
    let (read, is_end) = world.read(&file, 4096, u32::MAX).unwrap();
    assert_eq!((read.len(), is_end), (1 << 20, false));
    assert!(read == data[4096..4096 + (1 << 20)]);
    assert_eq!(
        world.write(&file, 0, &vec![1; (1 << 20) + 4]),
        Err(nfsstat3::NFS3ERR_INVAL)
    );
    assert_eq!(world.read(&file, 0, 4), Ok((data[..4].to_vec(), false)));
}

#[test]
fn a_commit_has_the_verifier_of_the_write() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let handle = file.clone();
    let commit = |world: &mut World| {
        let args = COMMIT3args {
            file: Opaque(&handle),
            offset: 0,
            count: 0,
        };
        match world.call(nfs_proc3::NFSPROC3_COMMIT, &args) {
            COMMIT3res::NFS3_OK(res) => res,
            COMMIT3res::default(status, _) => panic!("{status:?}"),
        }
    };
    let mut record = world.header((NFS4_PROGRAM, 7));
    let (wire, _) = write3(0, &file, 0, b"data");
    record.extend(&wire[call_header(0, |_| {}).len()..]);
    let WRITE3res::NFS3_OK(written) = decoded(&world.results(&record)) else {
        panic!("written");
    };
    let committed = commit(&mut world);
    assert_eq!(committed.verf, written.verf);
    assert_eq!(committed.file_wcc.after, world.getattr(&file).ok());
    assert!(committed.file_wcc.before.is_some(), "it is unchanged");
    // Another file system, as after a restart, has another one.
    let exports = vec![Export::new("/pub", memory(MIB, 10), rule(|_| {})).unwrap()];
    let exports = Exports::new(exports, Time::default()).unwrap();
    let mut other = NfsdDouble::new(
        Nfsd::new(NfsdSettings::default(), 4, [], exports, 0),
        16 << 20,
    );
    let conn = other.connect(address("192.0.2.1:1"));
    let before = std::mem::replace(&mut world.server, other);
    world.conn = conn;
    drop(before);
    assert_eq!(world.getattr(&file), Err(nfsstat3::NFS3ERR_STALE));
    let args = COMMIT3args {
        file: Opaque(&file),
        offset: 0,
        count: 0,
    };
    let status = match world.call(nfs_proc3::NFSPROC3_COMMIT, &args) {
        COMMIT3res::default(status, _) => status,
        COMMIT3res::NFS3_OK(_) => panic!("another file system"),
    };
    assert_eq!(status, nfsstat3::NFS3ERR_STALE);
}

#[test]
fn without_memory_it_is_to_be_tried_again() {
    let exports = vec![Export::new("/pub", memory(64 * MIB, 11), rule(|_| {})).unwrap()];
    let exports = Exports::new(exports, Time::default()).unwrap();
    let nfsd = Nfsd::new(NfsdSettings::default(), 3, [], exports, 0);
    let mut world = world();
    world.server = NfsdDouble::new(nfsd, 4 << 20);
    world.conn = world.server.connect(address("192.0.2.1:700"));
    let root = world.root();
    let file = world.file(&root, "f");
    // What fits goes, however often.
    for round in 0..20 {
        let data = data(1 << 20, round);
        assert_eq!(world.write(&file, 1, &data), Ok(1 << 20));
        assert!(world.read(&file, 1, 1 << 20).unwrap().0 == data);
    }
}

#[test]
fn answers_go_out_in_any_order_of_many() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    let mut stream = Vec::new();
    let mut push = |record: &[u8]| {
        let mark = (1u32 << 31) | record.len() as u32;
        stream.extend(mark.to_be_bytes());
        stream.extend(record);
    };
    for at in 0..50u64 {
        let mut record = world.header((NFS4_PROGRAM, 7));
        let (wire, _) = write3(0, &file, at * 1000, &data(1000, at as usize));
        record.extend(&wire[call_header(0, |_| {}).len()..]);
        push(&record);
        let args = READ3args {
            file: Opaque(&file),
            offset: at * 1000,
            count: 1000,
        };
        push(&world.record(nfs_proc3::NFSPROC3_READ, &args));
    }
    // In pieces that end anywhere.
    for piece in stream.chunks(777) {
        world.server.receive(world.conn, piece);
    }
    let mut sent = world.server.sent(world.conn).into();
    let answers = testkit::nfs::call::cut(&mut sent);
    assert_eq!(answers.len(), 100);
    for (at, answer) in answers.iter().skip(1).step_by(2).enumerate() {
        assert!(answer.ends_with(&data(1000, at)), "{at}");
    }
}

/// The number of an object is a count. It is the third word of a handle.
#[test]
fn handle_with_a_guessed_number_is_refused() {
    let mut world = world();
    let root = world.root();
    let dir = world.mkdir(&root, "private", 0o700).unwrap();
    let secret = world.file(&dir, "secret");
    world.setattr(&secret, with_mode(0o644), None);
    world.write(&secret, 0, b"only for root").unwrap();
    world.caller = Some((1000, 1000));
    let own = world.file(&root, "own");
    let number = u64::from_le_bytes(own[16..24].try_into().unwrap());
    for guess in number - 4..number {
        let mut forged = own.clone();
        forged[16..24].copy_from_slice(&guess.to_le_bytes());
        let bad = nfsstat3::NFS3ERR_BADHANDLE;
        assert_eq!(world.read(&forged, 0, 100), Err(bad), "guess {guess}");
        assert_eq!(world.getattr(&forged), Err(bad), "guess {guess}");
    }
    // The handle that the server gave out still leads there.
    world.caller = Some((0, 0));
    let (content, _) = world.read(&secret, 0, 100).unwrap();
    assert_eq!(content, b"only for root");
}
