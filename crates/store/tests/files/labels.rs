//! Security labels.

use super::*;
use store::fs::{LABEL_BYTES_MAX, Label};

fn label(data: &[u8]) -> SetAttr {
    SetAttr {
        label: Label::new((1, 2), data),
        ..SetAttr::default()
    }
}

#[test]
fn label_stays_with_its_object_whatever_becomes_of_names_and_content() {
    let fs = memory(4 << 20);
    let mut user = User::root(&fs);
    let (top, free) = (user.top(), user.free());
    assert_eq!(user.attr(top).unwrap().label, None);
    let made = SetAttr {
        label: label(b"first").label,
        ..mode(0o600)
    };
    let kinds = [New::Guarded, New::Directory, New::Symlink(b"x"), New::Fifo];
    for (name, new) in [b"f", b"d", b"l", b"p"].into_iter().zip(kinds) {
        let (attr, ..) = user.create(top, name, new, made.clone()).unwrap();
        assert_eq!(attr.label, made.label);
    }
    let file = user.lookup(top, b"f").unwrap();
    let before = user.attr(file).unwrap();
    user.seconds += 1;
    let set = user.set(file, label(b"second")).unwrap();
    assert_eq!(set.label, label(b"second").label);
    assert!(set.change > before.change && set.changed > before.changed);
    assert_eq!(set.modified, before.modified);
    // What is copied is content.
    let other = user.file(top, b"other");
    user.write(file, 0, b"content").unwrap();
    let (from, to) = (file, other);
    user.run(FsOp::Clone {
        from,
        from_offset: 0,
        to,
        to_offset: 0,
        len: 0,
    })
    .unwrap();
    assert_eq!(user.attr(other).unwrap().label, None);
    user.rename((top, b"f"), (top, b"other")).unwrap();
    assert_eq!(user.attr(file).unwrap().label, set.label);
    let listing = user.list(top, 0, 100).unwrap();
    let labels = listing
        .iter()
        .map(|(entry, _)| &entry.attr.as_ref().unwrap().label);
    assert!(labels.eq([&made.label, &made.label, &made.label, &set.label]));
    // It is no extended attribute.
    let names = user.run(FsOp::ListXattrs {
        file,
        cookie: 0,
        name_bytes_max: 4096,
    });
    assert!(matches!(names, Ok(Output::Listing(names)) if names.is_empty()));
    tree::remove_all(&mut user, top);
    assert_eq!(user.free(), free);
}

#[test]
fn labels_count_against_the_size_and_one_that_does_not_fit_changes_nothing() {
    let fs = memory(1 << 20);
    let mut user = User::root(&fs);
    let (top, free) = (user.top(), user.free());
    let file = user.file(top, b"f");
    let bare = user.free();
    user.set(file, label(&[7; LABEL_BYTES_MAX])).unwrap();
    assert_eq!(bare - user.free(), LABEL_BYTES_MAX as u64 + 64);
    user.set(file, label(b"short")).unwrap();
    assert_eq!(bare - user.free(), 5 + 64);
    let mut count = 0;
    let long = SetAttr {
        label: label(&[7; LABEL_BYTES_MAX]).label,
        ..mode(0o600)
    };
    while user
        .create(top, format!("{count}").as_bytes(), New::Fifo, long.clone())
        .is_ok()
    {
        count += 1;
    }
    assert!(
        (300..400).contains(&count),
        "{count} of 2 KiB each and more"
    );
    let left = user.free();
    assert_eq!(user.set(file, long), Err(Error::NoSpc));
    let attr = user.attr(file).unwrap();
    assert_eq!((attr.label, user.free()), (label(b"short").label, left));
    tree::remove_all(&mut user, top);
    assert_eq!(user.free(), free);
}
