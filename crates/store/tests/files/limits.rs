//! Where a file system is full, and other ends.

use super::*;

fn fill_with_files(user: &mut User<'_>, each: usize) -> u64 {
    let top = user.top();
    for count in 0.. {
        let made = user.create(
            top,
            format!("f{count}").as_bytes(),
            New::Guarded,
            mode(0o600),
        );
        let written = made.and_then(|(attr, ..)| user.write(attr.file, 0, &vec![1; each]));
        match written {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Error::NoSpc);
                return count;
            }
        }
    }
    unreachable!("it is full at last")
}

#[test]
fn names_and_content_count_against_the_size_until_removed() {
    for (each, at_most) in [(0, 7000), (1, 6100), (5000, 500), (100_000, 36)] {
        let fs = memory(4 << 20);
        let mut user = User::root(&fs);
        let top = user.top();
        let free = user.free();
        let count = fill_with_files(&mut user, each);
        assert!(
            count <= at_most && count >= at_most / 2,
            "{count} of {each} bytes"
        );
        // Full, it still reads, removes, and writes over what is there.
        let file = user.lookup(top, b"f0").unwrap();
        if each > 0 {
            user.write(file, 0, b"2").unwrap();
            assert_eq!(user.read_buf(file, 0, 1).unwrap().0, b"2");
        }
        let long = [b'n'; 255];
        while user.create(top, &long, New::Fifo, mode(0)).is_ok() {
            user.remove(top, &long).unwrap();
            let name = format!("x{}", user.free());
            user.create(top, name.as_bytes(), New::Fifo, mode(0))
                .unwrap();
        }
        let mut link = |name: &[u8]| {
            let dir = top;
            user.run(FsOp::Link { file, dir, name }).map(|_| ())
        };
        let full = (0..100).find_map(|i| link(&[b'A' + i]).err());
        assert_eq!(full, Some(Error::NoSpc));
        assert_eq!(link(&long), Err(Error::NoSpc));
        assert_eq!(user.rename((top, b"f0"), (top, &long)), Err(Error::NoSpc));
        for name in user.names(top) {
            user.remove(top, &name).unwrap();
        }
        assert_eq!(user.free(), free);
    }
}

#[test]
fn a_full_file_system_keeps_what_it_has() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.write_buf(file, 0, &vec![3; 2 << 20]).unwrap();
    let free = user.free();
    for result in [
        user.write_buf(file, 1 << 20, &vec![4; 3 << 20]),
        user.receive(file, (3 << 20) + 5, &vec![4; 2 << 20]),
        user.receive(file, 3 << 20, &vec![4; 2 << 20]),
    ] {
        match result {
            Ok(_) => panic!("there is no room for it"),
            Err(error) => assert_eq!(error, Error::NoSpc),
        }
    }
    let op = FsOp::Allocate {
        file,
        offset: 0,
        len: 5 << 20,
    };
    assert_eq!(user.run(op), Err(Error::NoSpc));
    assert_eq!(user.free(), free);
    assert_eq!(user.attr(file).unwrap().size, 2 << 20);
    let (bytes, _) = user.read_buf(file, 0, 2 << 20).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 3));
    // A file that lies beside its attributes stays there.
    let small = user.file(top, b"small");
    user.write(small, 0, b"small").unwrap();
    while user.write(file, user_size(&fs, file), &[5; 16384]).is_ok() {}
    assert_eq!(user.write(small, 9000, b"x"), Err(Error::NoSpc));
    assert_eq!(user.read_buf(small, 0, 100).unwrap().0, b"small");
}

fn user_size(fs: &dyn FileSystem, file: FileId) -> u64 {
    User::root(fs).attr(file).unwrap().size
}

#[test]
fn sparse_files_cannot_use_up_addresses() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let file = user.file(top, b"f");
    // Many chunks, each for a moment.
    for round in 1..20_000_u64 {
        let offset = round * (32 << 20);
        user.write(file, offset, b"x").unwrap();
        let op = FsOp::Deallocate {
            file,
            offset,
            len: 16384,
        };
        user.run(op).unwrap();
    }
    assert_eq!(user.attr(file).unwrap().used_bytes, 0);
    // And as many as there is room for.
    let mut count = 0;
    while user.write(file, count * (32 << 20), b"x").is_ok() {
        count += 1;
    }
    assert!(count > 1900, "{count}");
    user.remove(top, b"f").unwrap();
    assert_eq!(user.free(), free);
}

#[test]
fn sizes_and_links_have_ends() {
    let fs = memory(64 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let max = fs.info().file_bytes_max;
    assert_eq!(user.set(file, size(max + 1)), Err(Error::FBig));
    assert_eq!(user.set(file, size(max)).unwrap().size, max);
    assert_eq!(user.write(file, max, b"x"), Err(Error::FBig));
    assert_eq!(user.write(file, u64::MAX, b"x"), Err(Error::FBig));
    assert_eq!(user.write(file, max, b"").unwrap().len, 0);
    assert_eq!(user.read(file, max - 1, 5).unwrap(), (vec![0], true));
    assert_eq!(user.read(file, u64::MAX, 5).unwrap(), (vec![], true));
    user.write(file, max - 1, b"x").unwrap();
    assert_eq!(user.read(file, max - 1, 5).unwrap(), (b"x".to_vec(), true));
    for op in [
        FsOp::Allocate {
            file,
            offset: max,
            len: 1,
        },
        FsOp::Allocate {
            file,
            offset: 1,
            len: u64::MAX,
        },
    ] {
        assert_eq!(user.run(op), Err(Error::FBig));
    }
    let op = FsOp::Deallocate {
        file,
        offset: 0,
        len: max,
    };
    assert_eq!(user.run(op), Ok(Output::Done));
    let max = fs.info().links_max;
    for count in 1..max {
        let name = format!("l{count}");
        let name = name.as_bytes();
        user.run(FsOp::Link {
            file,
            dir: top,
            name,
        })
        .unwrap();
    }
    let name = b"more";
    let link = user.run(FsOp::Link {
        file,
        dir: top,
        name,
    });
    assert_eq!(link, Err(Error::MLink));
    assert_eq!(user.attr(file).unwrap().links, max);
}

/// Listed and looked up like any other, and in order.
#[test]
fn large_directory_is_listed_in_order_and_looked_up() {
    const FILES: usize = 100_000;
    let fs = memory(256 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let free = user.free();
    let dir = user.dir(top, b"d");
    let name = |i: usize| format!("file-{i}").into_bytes();
    for i in 0..FILES {
        user.file(dir, &name(i));
    }
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let listing = user.list(dir, cookie, 1000).unwrap();
        for (entry, listed) in listing.iter() {
            assert_eq!(listed, name(seen));
            (cookie, seen) = (entry.cookie, seen + 1);
        }
        if listing.is_end {
            break;
        }
    }
    assert_eq!(seen, FILES);
    for i in (0..FILES).rev() {
        let file = user.lookup(dir, &name(i)).unwrap();
        assert_eq!(user.remove(dir, &name(i)), Ok(file));
    }
    user.remove(top, b"d").unwrap();
    assert_eq!(user.free(), free);
}

/// All of a write or nothing, and what there is room for is as stable as it was asked.
#[test]
fn stable_write_beyond_the_limit_is_refused_whole() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let region = mem::Region::anonymous(1 << 20).unwrap();
    let mut offset = 0;
    let refused = loop {
        let written = user.run(FsOp::Write {
            file,
            offset,
            buf: region.range(0, 1 << 20),
            is_stable: true,
        });
        match written {
            Ok(Output::Written(written)) => {
                assert_eq!((written.len, written.is_stable), (1 << 20, true));
                offset += 1 << 20;
            }
            other => break other,
        }
    };
    assert_eq!(refused, Err(Error::NoSpc));
    assert!(offset > 0);
    assert_eq!(user.attr(file).unwrap().size, offset);
}
