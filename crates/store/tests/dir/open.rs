//! What is in the way of serving a directory, and changes nothing.

use super::*;
use store::fs::{Removable, SetXattr};

fn refused(spec: &DirSpec) -> (DirProblem, String) {
    let examined = Dir::examine(spec).err();
    let error: DirError = Dir::open(spec).err().expect("something is in the way");
    let text = error.to_string();
    match error.problem {
        // That may be the one that is to be started again.
        DirProblem::StateInUse(_) => assert!(examined.is_none(), "{examined:?}"),
        _ => assert_eq!(examined.expect("the same").to_string(), text),
    }
    assert!(text.contains(spec.path.to_str().unwrap()), "{text}");
    (error.problem, text)
}

#[test]
fn directory_that_cannot_be_served_is_refused_with_the_remedy() {
    let place = Place::new();
    let spec = place.spec();
    fs::write(place.path("file"), b"").unwrap();
    let file = DirSpec {
        path: place.path("file"),
        ..spec.clone()
    };
    assert!(matches!(refused(&file).0, DirProblem::NotADirectory));
    let nothing = DirSpec {
        path: place.path("nothing"),
        ..spec.clone()
    };
    let (problem, text) = refused(&nothing);
    assert!(matches!(problem, DirProblem::Missing) && text.contains("mkdir -p"));
    for inside in [place.path("state"), place.served.path().into()] {
        let inside = DirSpec {
            state: inside,
            ..spec.clone()
        };
        assert!(matches!(refused(&inside).0, DirProblem::StateInside(_)));
    }
    let open = place.open();
    let (problem, text) = refused(&spec);
    assert!(matches!(problem, DirProblem::StateInUse(_)) && text.contains("stop the other"));
    drop(open);
    // Closed, it can be opened again at once.
    drop(place.open());
    let other = Place::new();
    let foreign = DirSpec {
        path: other.served.path().into(),
        ..spec.clone()
    };
    assert!(matches!(refused(&foreign).0, DirProblem::OtherDirectory(_)));
    fs::write(place.state.path().join("objects"), b"something else").unwrap();
    let (problem, text) = refused(&spec);
    assert!(
        matches!(problem, DirProblem::StateDamaged(_)) && text.contains("remove what is in it")
    );
}

#[needs(root)]
#[test]
fn directory_is_refused_with_other_owners_than_at_first() {
    for (first, then) in [
        (Owners::Real, Owners::Recorded),
        (Owners::Recorded, Owners::Real),
    ] {
        let place = Place {
            owners: Some(first),
            ..Place::new()
        };
        drop(place.open());
        let other = DirSpec {
            owners: Some(then),
            ..place.spec()
        };
        let (problem, _) = refused(&other);
        let was_recorded = first == Owners::Recorded;
        assert!(
            matches!(problem, DirProblem::OtherOwners { was_recorded: w, .. } if w == was_recorded)
        );
        drop(place.open());
    }
}

#[test]
fn read_only_directory_refuses_every_change() {
    let place = Place::new();
    let (file, dir) = {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        let file = user.file(top, b"f");
        user.write(file, 0, b"content").unwrap();
        (file, user.dir(top, b"d"))
    };
    let spec = DirSpec {
        read_only: true,
        ..place.spec()
    };
    let fs = Dir::open(&spec).unwrap();
    let mut user = User::root(&fs);
    let top = user.top();
    assert_eq!(user.read(file, 0, 9).unwrap().0, b"content");
    assert_eq!(user.lookup(top, b"f"), Ok(file));
    let (name, value) = (&b"x"[..], &b"y"[..]);
    let (from, from_offset, to, to_offset, len) = (file, 0, file, 10, 1);
    for op in [
        FsOp::Setattr {
            file,
            set: mode(0),
            guard: None,
        },
        FsOp::Create {
            dir,
            name,
            new: New::Guarded,
            set: mode(0),
        },
        FsOp::Link { file, dir, name },
        FsOp::Remove {
            dir: top,
            name: b"d",
            what: Removable::Any,
        },
        FsOp::Rename {
            from_dir: top,
            from: b"f",
            to_dir: dir,
            to: b"f",
        },
        FsOp::SetXattr {
            file,
            name,
            value,
            how: SetXattr::Either,
        },
        FsOp::RemoveXattr { file, name },
        FsOp::Allocate {
            file,
            offset: 0,
            len,
        },
        FsOp::Deallocate {
            file,
            offset: 0,
            len,
        },
        FsOp::Copy {
            from,
            from_offset,
            to,
            to_offset,
            len,
        },
        FsOp::Open {
            file,
            read: true,
            write: true,
        },
    ] {
        assert_eq!(user.run(op.clone()), Err(Error::RoFs), "{op:?}");
    }
    assert_eq!(user.write(file, 0, b"x"), Err(Error::RoFs));
    let open = FsOp::Open {
        file,
        read: true,
        write: false,
    };
    assert_eq!(user.run(open), Ok(Output::Done));
    assert_eq!(user.run(FsOp::Close { file }), Ok(Output::Done));
    assert_eq!(fs::read(place.path("f")).unwrap(), b"content");
}

#[test]
fn a_file_system_says_that_it_has_extended_attributes() {
    assert!(Place::on_disk().open().info().has_xattrs);
}
