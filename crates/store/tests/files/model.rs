//! Random operations, each compared with a model.

use super::*;
use std::collections::HashMap;
use store::fs::{Label, ObjectKind, Seek};

/// An object as simple as can be.
struct Object {
    attr: Attr,
    data: Vec<u8>,
    /// Cookie, name, object.
    entries: Vec<(u64, Vec<u8>, FileId)>,
    next_cookie: u64,
    parent: FileId,
    opens: u32,
}

struct Model {
    objects: HashMap<FileId, Object>,
    now: Time,
}

type Done = Result<(), Error>;

impl Model {
    fn object(&mut self, file: FileId) -> Result<&mut Object, Error> {
        self.objects.get_mut(&file).ok_or(Error::Stale)
    }

    fn dir(&mut self, dir: FileId) -> Result<&mut Object, Error> {
        let object = self.object(dir)?;
        match object.attr.kind {
            ObjectKind::Directory => Ok(object),
            ObjectKind::Symlink => Err(Error::Symlink),
            _ => Err(Error::NotDir),
        }
    }

    fn file(&mut self, file: FileId) -> Result<&mut Object, Error> {
        let object = self.object(file)?;
        match object.attr.kind {
            ObjectKind::Regular => Ok(object),
            ObjectKind::Directory => Err(Error::IsDir),
            ObjectKind::Symlink => Err(Error::Symlink),
            _ => Err(Error::WrongType),
        }
    }

    fn lookup(&mut self, dir: FileId, name: &[u8]) -> Result<FileId, Error> {
        let dir = self.dir(dir)?;
        let found = dir.entries.iter().find(|entry| entry.1 == name);
        found.map(|entry| entry.2).ok_or(Error::NoEnt)
    }

    fn touch(&mut self, file: FileId) {
        let now = self.now;
        let attr = &mut self.object(file).unwrap().attr;
        (attr.changed, attr.change) = (now, attr.change + 1);
    }

    fn touch_content(&mut self, file: FileId) {
        let now = self.now;
        self.object(file).unwrap().attr.modified = now;
        self.touch(file);
    }

    fn note_read(&mut self, file: FileId) {
        let now = self.now;
        let attr = &mut self.object(file).unwrap().attr;
        if attr.accessed <= attr.modified || attr.accessed <= attr.changed {
            attr.accessed = now;
        }
    }

    fn add_entry(&mut self, dir: FileId, name: &[u8], file: FileId) {
        let dir = self.dir(dir).unwrap();
        dir.entries.push((dir.next_cookie, name.to_vec(), file));
        dir.next_cookie += 1;
    }

    fn take_entry(&mut self, dir: FileId, name: &[u8]) {
        self.dir(dir)
            .unwrap()
            .entries
            .retain(|entry| entry.1 != name);
    }

    fn create(
        &mut self,
        (dir, name): (FileId, &[u8]),
        attr: Option<Attr>,
        new: New<'_>,
    ) -> Result<FileId, Error> {
        if let Ok(found) = self.lookup(dir, name) {
            if new != New::Unchecked {
                return Err(Error::Exist);
            }
            return self.file(found).map(|object| object.attr.file);
        }
        self.dir(dir)?;
        let attr = attr.expect("the file system made it, too");
        assert_eq!(attr.changed, self.now);
        let object = Object {
            attr: attr.clone(),
            data: Vec::new(),
            entries: Vec::new(),
            next_cookie: 3,
            parent: dir,
            opens: 0,
        };
        assert!(
            self.objects.insert(attr.file, object).is_none(),
            "a number is used again"
        );
        self.add_entry(dir, name, attr.file);
        if attr.kind == ObjectKind::Directory {
            self.object(dir)?.attr.links += 1;
        }
        self.touch_content(dir);
        Ok(attr.file)
    }

    fn drop_if_unused(&mut self, file: FileId) {
        let object = &self.objects[&file];
        let is_used = object.attr.links > 0 || object.opens > 0;
        if !is_used || object.attr.kind == ObjectKind::Directory {
            self.objects.remove(&file);
        }
    }

    fn link(&mut self, file: FileId, dir: FileId, name: &[u8]) -> Done {
        self.object(file)?;
        match self.lookup(dir, name) {
            Ok(_) => return Err(Error::Exist),
            Err(Error::NoEnt) => {}
            Err(error) => return Err(error),
        }
        let object = self.object(file)?;
        match object.attr.kind {
            ObjectKind::Directory => return Err(Error::IsDir),
            _ if object.attr.links == 0 => return Err(Error::NoEnt),
            _ => object.attr.links += 1,
        }
        self.touch(file);
        self.add_entry(dir, name, file);
        self.touch_content(dir);
        Ok(())
    }

    fn remove(&mut self, dir: FileId, name: &[u8]) -> Done {
        let file = self.lookup(dir, name)?;
        let object = self.object(file)?;
        if !object.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        object.attr.links -= 1;
        if object.attr.kind == ObjectKind::Directory {
            self.object(dir)?.attr.links -= 1;
        }
        self.touch(file);
        self.take_entry(dir, name);
        self.touch_content(dir);
        self.drop_if_unused(file);
        Ok(())
    }

    fn lies_in(&self, mut at: FileId, dir: FileId) -> bool {
        loop {
            let parent = self.objects[&at].parent;
            if at == dir || parent == at {
                return at == dir;
            }
            at = parent;
        }
    }

    fn rename(&mut self, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Done {
        let file = self.lookup(from.0, from.1)?;
        let target = match self.lookup(to.0, to.1) {
            Ok(target) => Some(target),
            Err(Error::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let is_dir = self.object(file)?.attr.kind == ObjectKind::Directory;
        if is_dir && from.0 != to.0 && self.lies_in(to.0, file) {
            return Err(Error::Inval);
        }
        if target == Some(file) {
            return Ok(());
        }
        if let Some(target) = target {
            let target = self.object(target)?;
            match (is_dir, target.attr.kind == ObjectKind::Directory) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                _ if !target.entries.is_empty() => return Err(Error::NotEmpty),
                _ => {}
            }
        }
        self.take_entry(from.0, from.1);
        let goal = self.dir(to.0)?;
        match goal.entries.iter_mut().find(|entry| entry.1 == to.1) {
            Some(entry) => entry.2 = file,
            None => self.add_entry(to.0, to.1, file),
        }
        self.touch(file);
        if is_dir {
            self.object(file)?.parent = to.0;
            self.object(from.0)?.attr.links -= 1;
            self.object(to.0)?.attr.links += 1;
        }
        self.touch_content(from.0);
        if from.0 != to.0 {
            self.touch_content(to.0);
        }
        if let Some(target) = target {
            self.touch(target);
            self.object(target)?.attr.links -= 1;
            if is_dir {
                self.object(to.0)?.attr.links -= 1;
            }
            self.drop_if_unused(target);
        }
        Ok(())
    }

    fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Done {
        let object = self.file(file)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (at, end) = (offset as usize, offset as usize + bytes.len());
        object.data.resize(object.data.len().max(end), 0);
        object.data[at..end].copy_from_slice(bytes);
        object.attr.size = object.data.len() as u64;
        self.touch_content(file);
        Ok(())
    }

    fn read(&mut self, file: FileId, offset: u64, len: u32) -> Result<(Vec<u8>, bool), Error> {
        let data = &self.file(file)?.data;
        let from = (offset as usize).min(data.len());
        let to = (from + len as usize).min(data.len());
        let read = (data[from..to].to_vec(), to == data.len());
        self.note_read(file);
        Ok(read)
    }

    fn resize(&mut self, file: FileId, size: u64) -> Done {
        let object = self.object(file)?;
        match object.attr.kind {
            ObjectKind::Regular => {}
            ObjectKind::Directory => return Err(Error::IsDir),
            _ => return Err(Error::Inval),
        }
        object.data.resize(size as usize, 0);
        object.attr.size = size;
        self.touch_content(file);
        Ok(())
    }

    fn label(&mut self, file: FileId, label: &Option<Label>) -> Done {
        self.object(file)?.attr.label.clone_from(label);
        self.touch(file);
        Ok(())
    }

    fn clear(&mut self, file: FileId, offset: u64, len: u64) -> Done {
        let data = &mut self.file(file)?.data;
        let end = (offset + len).min(data.len() as u64).max(offset) as usize;
        if (offset as usize) < end {
            data[offset as usize..end].fill(0);
        }
        self.touch_content(file);
        Ok(())
    }

    fn copy(&mut self, from: (FileId, u64), to: (FileId, u64), len: u64) -> Result<u64, Error> {
        self.object(from.0)?;
        self.object(to.0)?;
        self.file(to.0)?;
        let data = &self.file(from.0)?.data;
        let rest = (data.len() as u64)
            .checked_sub(from.1)
            .ok_or(Error::Inval)?;
        let len = if len == 0 { rest } else { len.min(rest) };
        if from.0 == to.0 && from.1.abs_diff(to.1) < len {
            return Err(Error::Inval);
        }
        let bytes = data[from.1 as usize..(from.1 + len) as usize].to_vec();
        self.write(to.0, to.1, &bytes)?;
        Ok(len)
    }
}

struct Pair<'a> {
    user: User<'a>,
    model: Model,
    random: Random,
    known: Vec<FileId>,
}

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"name", b"other name"];

impl Pair<'_> {
    fn offset(&mut self) -> u64 {
        match self.random.below(5) {
            0 => self.random.below(300),
            1 => self.random.below(20_000),
            2 => (1 << 20) - 20_000 + self.random.below(40_000),
            3 => self.random.below(150) << 14,
            _ => self.random.below(2_200_000),
        }
    }

    fn len(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.below(100),
            1 => self.random.below(9000),
            2 => self.random.below(100_000),
            _ => 1 << (10 + self.random.below(11)),
        }
    }

    fn place(&mut self) -> (FileId, &'static [u8]) {
        (self.random.pick(&self.known), self.random.pick(&NAMES))
    }

    fn some(&mut self) -> FileId {
        self.random.pick(&self.known)
    }

    fn names(&mut self) {
        let place = self.place();
        match self.random.below(7) {
            0 | 1 => {
                let new = match self.random.below(6) {
                    0 => New::Unchecked,
                    1 | 2 => New::Guarded,
                    3 => New::Fifo,
                    4 => New::Symlink(b"somewhere else"),
                    _ => New::Directory,
                };
                let made = self.user.create(place.0, place.1, new, mode(0o644));
                let attr = made.as_ref().ok().map(|made| made.0.clone());
                let expected = self.model.create(place, attr, new);
                assert_eq!(made.map(|made| made.0.file), expected);
                self.known.extend(expected.ok());
            }
            2 => {
                let expected = self.model.remove(place.0, place.1);
                let removed = self.user.remove(place.0, place.1);
                assert_eq!(removed.map(|_| ()), expected);
            }
            3 => {
                let file = self.some();
                let expected = self.model.link(file, place.0, place.1);
                let (dir, name) = place;
                let linked = self.user.run(FsOp::Link { file, dir, name });
                // Which of two is stale first is not compared.
                assert_eq!(linked.map(|_| ()), expected);
            }
            _ => {
                let to = self.place();
                let expected = self.model.rename(place, to);
                let renamed = self.user.rename(place, to);
                assert_eq!(renamed.map(|_| ()), expected, "{place:?} {to:?}");
            }
        }
    }

    fn data(&mut self) {
        let (file, offset, len) = (self.some(), self.offset(), self.len());
        match self.random.below(9) {
            way @ 0..3 => {
                let bytes = bytes(&mut self.random, len as usize);
                let expected = self.model.write(file, offset, &bytes);
                let written = match way {
                    0 => self.user.write(file, offset, &bytes),
                    1 => self.user.receive(file, offset, &bytes),
                    _ => self.user.write_buf(file, offset, &bytes),
                };
                assert_eq!(written.map(|_| ()), expected);
            }
            3 | 4 => {
                let expected = self.model.read(file, offset, len as u32);
                assert!(self.user.read(file, offset, len as u32) == expected);
            }
            5 => {
                let expected = self.model.resize(file, offset);
                assert_eq!(self.user.set(file, size(offset)).map(|_| ()), expected);
            }
            6 => {
                let expected = self.model.clear(file, offset, len);
                let cleared = self.user.run(FsOp::Deallocate { file, offset, len });
                assert_eq!(cleared.map(|_| ()), expected);
                self.take_change(file);
            }
            7 => self.allocate_or_seek(file, offset, len),
            _ => {
                let (to, to_offset) = (self.some(), self.offset());
                let expected = self.model.copy((file, offset), (to, to_offset), len);
                let copied = self.user.run(FsOp::Copy {
                    from: file,
                    from_offset: offset,
                    to,
                    to_offset,
                    len,
                });
                assert_eq!(copied, expected.map(Output::Copied));
                self.take_change(to);
            }
        }
    }

    /// After an operation in several steps, each of which counts.
    fn take_change(&mut self, file: FileId) {
        if let (Ok(attr), Ok(object)) = (self.user.attr(file), self.model.object(file)) {
            assert!(attr.change >= object.attr.change);
            object.attr.change = attr.change;
        }
    }

    fn allocate_or_seek(&mut self, file: FileId, offset: u64, len: u64) {
        if self.random.below(2) == 0 && len > 0 {
            let expected = self.model.file(file).map(|object| {
                let end = object.data.len().max((offset + len) as usize);
                object.data.resize(end, 0);
                object.attr.size = end as u64;
            });
            if expected.is_ok() {
                self.model.touch_content(file);
            }
            let allocated = self.user.run(FsOp::Allocate { file, offset, len });
            assert_eq!(allocated.map(|_| ()), expected);
            self.take_change(file);
            return;
        }
        let what = self.random.pick(&[Seek::Data, Seek::Hole]);
        let found = self.user.run(FsOp::Seek { file, offset, what });
        let Ok(object) = self.model.file(file) else {
            assert!(found.is_err());
            return;
        };
        let end = object.data.len() as u64;
        match found {
            Ok(Output::Found { offset: at, is_end }) => {
                assert!(offset < end && at >= offset && is_end == (at == end));
                let between = &object.data[offset as usize..at as usize];
                let is_skipped = what == Seek::Hole || between.iter().all(|&byte| byte == 0);
                assert!(is_skipped, "data was taken for a hole");
                if what == Seek::Hole && at < end {
                    assert_eq!(object.data[at as usize], 0);
                }
            }
            other => assert_eq!((other, offset >= end), (Err(Error::Nxio), true)),
        }
    }

    fn opens(&mut self) {
        let file = self.some();
        let opens = self.model.object(file).map_or(0, |object| object.opens);
        if opens > 0 && self.random.below(2) == 0 {
            assert_eq!(self.user.run(FsOp::Close { file }), Ok(Output::Done));
            self.model.object(file).unwrap().opens -= 1;
            self.model.drop_if_unused(file);
        } else {
            let expected = self.model.file(file).map(|object| object.opens += 1);
            assert_eq!(self.user.open(file), expected);
        }
    }

    fn labels(&mut self) {
        let (file, len) = (self.some(), 1 + self.random.below(300));
        if file == self.user.top() {
            // It stays, and its label with it.
            return;
        }
        let data = bytes(&mut self.random, len as usize);
        let label = Label::new((len as u32, 0), &data);
        let expected = self.model.label(file, &label);
        let set = SetAttr {
            label,
            ..SetAttr::default()
        };
        assert_eq!(self.user.set(file, set).map(|_| ()), expected);
    }

    fn listing(&mut self) {
        let dir = self.some();
        let cookie = self.random.below(4);
        let Ok(object) = self.model.dir(dir) else {
            assert!(self.user.list(dir, 0, 100).is_err());
            return;
        };
        let knows = cookie == 0 || (3..object.next_cookie).contains(&cookie);
        let entries: Vec<_> = (object.entries.iter())
            .filter(|entry| entry.0 > cookie)
            .cloned()
            .collect();
        let listed = self.user.list(dir, cookie, 100);
        match knows {
            false => assert_eq!(listed, Err(Error::BadCookie)),
            true => {
                let listing = listed.unwrap();
                let seen: Vec<_> = (listing.iter())
                    .map(|(entry, name)| (entry.cookie, name.to_vec(), entry.file))
                    .collect();
                // Over an entry that was there another takes its place.
                assert_eq!(seen, entries);
                self.model.note_read(dir);
            }
        }
    }

    fn compare(&mut self, file: FileId) {
        let (found, object) = (self.user.attr(file), self.model.object(file));
        let (found, expected) = match (found, object) {
            (Ok(found), Ok(object)) => (found, object.attr.clone()),
            (found, object) => {
                assert_eq!(found.map(|_| ()), object.map(|_| ()));
                return;
            }
        };
        let is_dir = expected.kind == ObjectKind::Directory;
        let ignored = Attr {
            used_bytes: found.used_bytes,
            size: if is_dir { found.size } else { expected.size },
            ..expected
        };
        assert_eq!(found, ignored);
    }
}

fn run(seed: u64, steps: u32) {
    let fs = memory(256 << 20);
    let mut user = User::root(&fs);
    let (top, free) = (user.top(), user.free());
    let root = Object {
        attr: user.attr(top).unwrap(),
        data: Vec::new(),
        entries: Vec::new(),
        next_cookie: 3,
        parent: top,
        opens: 0,
    };
    let model = Model {
        objects: HashMap::from([(top, root)]),
        now: at(0),
    };
    let mut pair = Pair {
        user,
        model,
        random: Random::new(seed),
        known: vec![top],
    };
    for step in 0..steps {
        pair.user.seconds = i64::from(step / 3 + 1);
        pair.model.now = at(pair.user.seconds);
        match pair.random.below(10) {
            0..4 => pair.names(),
            4..8 => pair.data(),
            8 if pair.random.below(2) == 0 => pair.labels(),
            8 => pair.opens(),
            _ => pair.listing(),
        }
        let some = pair.some();
        pair.compare(some);
        if pair.known.len() > 24 {
            let at = 1 + pair.random.below(23) as usize;
            let file = pair.known[at];
            // What is open and without a name would never go.
            if pair.model.object(file).map_or(0, |object| object.opens) == 0 {
                pair.known.swap_remove(at);
            }
        }
    }
    let files: Vec<FileId> = pair.model.objects.keys().copied().collect();
    for file in files {
        pair.compare(file);
        for _ in 0..pair.model.objects[&file].opens {
            pair.user.run(FsOp::Close { file }).unwrap();
        }
    }
    tree::remove_all(&mut pair.user, top);
    assert_eq!(pair.user.free(), free, "something is left");
}

#[test]
fn random_operations_do_what_the_model_does() {
    for seed in 0..6 {
        let ran = std::panic::catch_unwind(|| run(seed, 4000));
        assert!(ran.is_ok(), "seed {seed}");
    }
}
