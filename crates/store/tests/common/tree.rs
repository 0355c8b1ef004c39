//! A tree of names as a whole.

use std::collections::HashMap;

use store::fs::{FileId, FsOp, ObjectKind, Output};

use crate::user::User;

/// Walks the tree: every directory knows its parent and has one name, every other
/// object has as many links as names, and there is a way to each. All directories, with
/// how many others each holds.
pub fn check_tree(user: &mut User<'_>) -> HashMap<FileId, u32> {
    let mut todo = vec![user.top()];
    let (mut names, mut dirs) = (HashMap::<_, u32>::new(), HashMap::new());
    while let Some(dir) = todo.pop() {
        let mut subdirs = 0;
        let listing = user.list(dir, 0, u32::MAX).unwrap();
        for (entry, name) in listing.iter() {
            let attr = entry.attr.clone().unwrap();
            assert_eq!(user.lookup(dir, name), Ok(attr.file));
            assert_eq!(user.attr(attr.file).unwrap().kind, attr.kind);
            *names.entry(attr.file).or_default() += 1;
            if attr.kind == ObjectKind::Directory {
                let parent = user.run(FsOp::Parent { dir: attr.file });
                assert_eq!(parent, Ok(Output::File(dir)));
                subdirs += 1;
                todo.push(attr.file);
            }
        }
        dirs.insert(dir, subdirs);
    }
    for (file, count) in names {
        let attr = user.attr(file).unwrap();
        match attr.kind {
            ObjectKind::Directory => assert_eq!(count, 1, "a directory has one name"),
            _ => assert_eq!(attr.links, count),
        }
    }
    dirs
}

/// Removes everything below `dir`.
pub fn remove_all(user: &mut User<'_>, dir: FileId) {
    for name in user.names(dir) {
        let file = user.lookup(dir, &name).unwrap();
        if user.attr(file).unwrap().kind == ObjectKind::Directory {
            remove_all(user, file);
        }
        user.remove(dir, &name).unwrap();
    }
}
