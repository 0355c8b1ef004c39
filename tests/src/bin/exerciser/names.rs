//! Names: files, folders, links and extended attributes against a model.

use crate::{ExerciserRun, Wrong, errno, expect, must};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Every folder has these names to give.
const NAMES: usize = 12;
const DEPTH_MAX: usize = 3;

#[derive(Clone, Debug, PartialEq)]
enum NameKind {
    File(Vec<u8>),
    Folder,
    Link(PathBuf),
}

#[derive(Clone, Debug)]
struct Object {
    kind: NameKind,
    links: u64,
    mode: u32,
    attributes: BTreeMap<String, Vec<u8>>,
}

/// What there must be; the root has number 0 and the path "".
struct NameTree {
    /// Objects by number.
    objects: HashMap<u32, Object>,
    /// Numbers by path.
    names: BTreeMap<PathBuf, u32>,
    next: u32,
    /// Files without a name that are held open: what is in them.
    held: Vec<(File, Vec<u8>)>,
    has_attributes: bool,
}

type NameStep = fn(&mut ExerciserRun, &mut NameTree) -> Result<(), Wrong>;

const STEPS: &[(u32, NameStep)] = &[
    (10, create),
    (6, make_folder),
    (5, remove_folder),
    (6, remove),
    (6, link),
    (3, make_link),
    (12, rename),
    (8, look),
    (6, list),
    (3, set_mode),
    (8, attribute),
    (3, hold),
    (3, look_at_held),
    (1, look_elsewhere),
];

pub fn run(run: &mut ExerciserRun, steps: u32) -> Result<(), Wrong> {
    let root = Object {
        kind: NameKind::Folder,
        links: 2,
        mode: 0o777,
        attributes: BTreeMap::new(),
    };
    let mut tree = NameTree {
        objects: HashMap::from([(0, root)]),
        names: BTreeMap::from([(PathBuf::new(), 0)]),
        next: 1,
        held: Vec::new(),
        has_attributes: true,
    };
    for _ in 0..steps {
        run.random.weighted(STEPS)(run, &mut tree)?;
    }
    look_at_held(run, &mut tree)?;
    tree.held.clear();
    compare(&tree, &run.dir, tree.has_attributes)?;
    look_elsewhere(run, &mut tree)
}

impl NameTree {
    fn get(&self, path: &Path) -> Option<&Object> {
        self.names.get(path).map(|number| &self.objects[number])
    }

    fn is_folder(&self, path: &Path) -> bool {
        self.get(path).is_some_and(|o| o.kind == NameKind::Folder)
    }

    fn is_empty(&self, folder: &Path) -> bool {
        self.children(folder).is_empty()
    }

    fn children(&self, folder: &Path) -> BTreeSet<String> {
        let names = self.names.keys().filter(|p| p.parent() == Some(folder));
        names
            .filter_map(|p| Some(p.file_name()?.to_str()?.to_owned()))
            .collect()
    }

    fn add(&mut self, path: PathBuf, kind: NameKind, mode: u32) {
        let number = self.next;
        self.next += 1;
        let object = Object {
            kind,
            links: 1,
            mode,
            attributes: BTreeMap::new(),
        };
        self.objects.insert(number, object);
        self.names.insert(path, number);
    }

    fn drop_name(&mut self, path: &Path) {
        let number = self.names.remove(path).expect("a name");
        let object = self.objects.get_mut(&number).expect("an object");
        object.links -= 1;
        if object.links == 0 || object.kind == NameKind::Folder {
            self.objects.remove(&number);
        }
    }

    /// A folder with room for one more level below.
    fn folder(&self, run: &mut ExerciserRun) -> PathBuf {
        let folders: Vec<&PathBuf> = (self.names.keys())
            .filter(|p| self.is_folder(p) && p.components().count() < DEPTH_MAX)
            .collect();
        folders[run.number(folders.len())].clone()
    }

    /// A name that may be there.
    fn any(&self, run: &mut ExerciserRun) -> PathBuf {
        let folder = self.folder(run);
        let number = run.number(NAMES);
        // Some are long: a name of 200 bytes is one.
        let name = match number % 5 {
            4 => format!("{number:0200}"),
            _ => format!("n{number}"),
        };
        folder.join(name)
    }

    /// Mostly one that is there.
    fn some(&self, run: &mut ExerciserRun) -> PathBuf {
        let names: Vec<&PathBuf> = self.names.keys().filter(|p| **p != Path::new("")).collect();
        match names.is_empty() || run.random.one_in(6) {
            true => self.any(run),
            false => names[run.number(names.len())].clone(),
        }
    }
}

fn create(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.any(run);
    run.tell("create", &path);
    let len = run.number(3000);
    let bytes = run.bytes(len);
    let mut options = OpenOptions::new();
    let mode = 0o400 | run.random.below(0o400) as u32;
    let opened = (options.write(true).create_new(true).mode(mode)).open(run.dir.join(&path));
    if tree.get(&path).is_some() {
        return expect("create", errno(&opened), Errno::EXIST.raw_os_error());
    }
    must("write", must("create", opened)?.write_all_at(&bytes, 0))?;
    tree.add(path, NameKind::File(bytes), mode);
    Ok(())
}

fn make_folder(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.any(run);
    run.tell("mkdir", &path);
    let made = fs::create_dir(run.dir.join(&path));
    if tree.get(&path).is_some() {
        return expect("mkdir", errno(&made), Errno::EXIST.raw_os_error());
    }
    must("mkdir", made)?;
    tree.add(path, NameKind::Folder, 0o777);
    Ok(())
}

fn remove_folder(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.some(run);
    run.tell("rmdir", &path);
    let removed = fs::remove_dir(run.dir.join(&path));
    let expected = match tree.get(&path) {
        None => Errno::NOENT.raw_os_error(),
        Some(object) if object.kind != NameKind::Folder => Errno::NOTDIR.raw_os_error(),
        Some(_) if !tree.is_empty(&path) => Errno::NOTEMPTY.raw_os_error(),
        Some(_) => 0,
    };
    expect("rmdir", errno(&removed), expected)?;
    if expected == 0 {
        tree.drop_name(&path);
    }
    Ok(())
}

fn remove(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.some(run);
    run.tell("unlink", &path);
    let removed = fs::remove_file(run.dir.join(&path));
    let expected = match tree.get(&path) {
        None => Errno::NOENT.raw_os_error(),
        Some(object) if object.kind == NameKind::Folder => Errno::ISDIR.raw_os_error(),
        Some(_) => 0,
    };
    expect("unlink", errno(&removed), expected)?;
    if expected == 0 {
        tree.drop_name(&path);
    }
    Ok(())
}

fn link(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let (from, to) = (tree.some(run), tree.any(run));
    run.tell("link", (&from, &to));
    let linked = fs::hard_link(run.dir.join(&from), run.dir.join(&to));
    let expected = match (tree.get(&from), tree.get(&to)) {
        (None, _) => Errno::NOENT.raw_os_error(),
        (_, Some(_)) => Errno::EXIST.raw_os_error(),
        (Some(object), _) if object.kind == NameKind::Folder => Errno::PERM.raw_os_error(),
        (Some(_), None) => 0,
    };
    expect("link", errno(&linked), expected)?;
    if expected == 0 {
        let number = tree.names[&from];
        tree.objects.get_mut(&number).expect("an object").links += 1;
        tree.names.insert(to, number);
    }
    Ok(())
}

fn make_link(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.any(run);
    let to = PathBuf::from(format!("to/{}", "x".repeat(run.number(900))));
    run.tell("symlink", &path);
    let made = symlink(&to, run.dir.join(&path));
    if tree.get(&path).is_some() {
        return expect("symlink", errno(&made), Errno::EXIST.raw_os_error());
    }
    must("symlink", made)?;
    tree.add(path, NameKind::Link(to), 0o777);
    Ok(())
}

fn rename_comes_to(tree: &NameTree, from: &Path, to: &Path) -> i32 {
    let Some(object) = tree.get(from) else {
        return Errno::NOENT.raw_os_error();
    };
    let is_folder = object.kind == NameKind::Folder;
    if is_folder && to != from && to.starts_with(from) {
        return Errno::INVAL.raw_os_error();
    }
    if from != to && from.starts_with(to) {
        // A folder that holds what is moved is not empty.
        return Errno::NOTEMPTY.raw_os_error();
    }
    match tree.get(to).map(|o| o.kind == NameKind::Folder) {
        Some(false) if is_folder => Errno::NOTDIR.raw_os_error(),
        Some(true) if !is_folder => Errno::ISDIR.raw_os_error(),
        Some(true) if from != to && !tree.is_empty(to) => Errno::NOTEMPTY.raw_os_error(),
        _ => 0,
    }
}

fn rename(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let (from, to) = (tree.some(run), tree.any(run));
    // What is below goes along and must not become too deep.
    if tree.is_folder(&from) && !tree.is_empty(&from) && to.components().count() > 1 {
        return Ok(());
    }
    run.tell("rename", (&from, &to));
    let renamed = fs::rename(run.dir.join(&from), run.dir.join(&to));
    let expected = rename_comes_to(tree, &from, &to);
    let mut found = errno(&renamed);
    if found == Errno::EXIST.raw_os_error() {
        // POSIX lets a file system choose.
        found = Errno::NOTEMPTY.raw_os_error();
    }
    expect("rename", found, expected)?;
    if expected != 0 || tree.names.get(&from) == tree.names.get(&to) {
        // Two names of one file: nothing is done (rename(2)).
        return Ok(());
    }
    if tree.get(&to).is_some() {
        tree.drop_name(&to);
    }
    let below: Vec<PathBuf> = (tree.names.keys())
        .filter(|path| path.starts_with(&from))
        .cloned()
        .collect();
    for path in below {
        let number = tree.names.remove(&path).expect("a name");
        let rest = path.strip_prefix(&from).expect("below");
        let new = match rest == Path::new("") {
            true => to.clone(),
            false => to.join(rest),
        };
        tree.names.insert(new, number);
    }
    Ok(())
}

/// One object is what it must be.
fn check(tree: &NameTree, path: &Path, at: &Path, has_attributes: bool) -> Result<(), Wrong> {
    let object = tree.get(path).expect("an object");
    let found = must(path, fs::symlink_metadata(at))?;
    expect((path, "mode"), found.mode() & 0o7777, object.mode)?;
    match &object.kind {
        NameKind::Folder => expect(path, found.is_dir(), true),
        NameKind::Link(to) => expect(path, must(path, fs::read_link(at))?, to.clone()),
        NameKind::File(bytes) => {
            expect((path, "links"), found.nlink(), object.links)?;
            expect((path, "size"), found.len(), bytes.len() as u64)?;
            expect(path, must(path, fs::read(at))? == *bytes, true)
        }
    }?;
    if !has_attributes || matches!(object.kind, NameKind::Link(_)) {
        return Ok(());
    }
    let mut names = vec![0; 4096];
    let len = match rustix::fs::listxattr(at, &mut names) {
        Err(Errno::OPNOTSUPP) if object.attributes.is_empty() => 0,
        other => must((path, "listxattr"), other)?,
    };
    let listed: BTreeSet<String> = (names[..len].split(|byte| *byte == 0))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| name.starts_with("user."))
        .collect();
    let expected: BTreeSet<String> = object.attributes.keys().cloned().collect();
    expect((path, "attributes"), listed, expected)?;
    for (name, value) in &object.attributes {
        let mut found = vec![0; 4096];
        let len = must(
            (path, name),
            rustix::fs::getxattr(at, name.as_str(), &mut found),
        )?;
        expect((path, name), &found[..len], value.as_slice())?;
    }
    Ok(())
}

fn look(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.some(run);
    run.tell("look", &path);
    let at = run.dir.join(&path);
    match tree.get(&path) {
        Some(_) => check(tree, &path, &at, tree.has_attributes),
        None => {
            let found = errno(&fs::symlink_metadata(at));
            expect("look", found, Errno::NOENT.raw_os_error())
        }
    }
}

/// What is in a folder; what a client keeps for files that are open is left out.
fn listed(at: &Path) -> Result<Vec<String>, Wrong> {
    let mut names = Vec::new();
    for entry in must(at, fs::read_dir(at))? {
        let name = must(at, entry)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with(".nfs") && !name.starts_with("held"));
    names.sort();
    Ok(names)
}

fn list(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let folder = tree.folder(run);
    run.tell("list", &folder);
    let expected: Vec<String> = tree.children(&folder).into_iter().collect();
    expect("list", listed(&run.dir.join(&folder))?, expected)
}

fn set_mode(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.some(run);
    let mode = 0o700 | run.random.below(0o100) as u32;
    let number = tree.names.get(&path).copied();
    let Some(object) = number.and_then(|number| tree.objects.get_mut(&number)) else {
        return Ok(());
    };
    if matches!(object.kind, NameKind::Link(_)) {
        return Ok(());
    }
    run.tell("chmod", (&path, mode));
    let done = fs::set_permissions(run.dir.join(&path), Permissions::from_mode(mode));
    must("chmod", done)?;
    object.mode = mode;
    Ok(())
}

/// Sets, replaces or removes an extended attribute.
fn attribute(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let path = tree.some(run);
    let number = tree.names.get(&path).copied();
    let Some(object) = number.and_then(|number| tree.objects.get_mut(&number)) else {
        return Ok(());
    };
    if matches!(object.kind, NameKind::Link(_)) || !tree.has_attributes {
        return Ok(());
    }
    let name = format!("user.a{}", run.number(6));
    let at = run.dir.join(&path);
    let has = object.attributes.contains_key(&name);
    if run.random.one_in(4) {
        run.tell("removexattr", (&path, &name));
        let expected = if has { Ok(()) } else { Err(Errno::NODATA) };
        let done = rustix::fs::removexattr(&at, name.as_str());
        if done == Err(Errno::OPNOTSUPP) {
            run.lacks("removexattr");
            return Ok(());
        }
        object.attributes.remove(&name);
        return expect("removexattr", done, expected);
    }
    let flags = match run.number(3) {
        0 => XattrFlags::CREATE,
        1 => XattrFlags::REPLACE,
        _ => XattrFlags::empty(),
    };
    let len = run.number(700);
    let value = run.bytes(len);
    run.tell("setxattr", (&path, &name, len, flags));
    let done = rustix::fs::setxattr(&at, name.as_str(), &value, flags);
    if done == Err(Errno::OPNOTSUPP) {
        run.lacks("setxattr");
        tree.has_attributes = false;
        return Ok(());
    }
    let expected = match flags {
        XattrFlags::CREATE if has => Err(Errno::EXIST),
        XattrFlags::REPLACE if !has => Err(Errno::NODATA),
        _ => Ok(()),
    };
    expect("setxattr", done, expected)?;
    if expected.is_ok() {
        object.attributes.insert(name, value);
    }
    Ok(())
}

/// A file that loses its name while it is open, by unlink or under a rename.
fn hold(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    if tree.held.len() == 8 {
        return Ok(());
    }
    let by_rename = run.random.one_in(2);
    run.tell("hold", by_rename);
    let len = 1 + run.number(30_000);
    let bytes = run.bytes(len);
    let at = run.dir.join("held");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = must("create", options.open(&at))?;
    must("write", file.write_all_at(&bytes, 0))?;
    if by_rename {
        let over = run.dir.join("held-too");
        must("create", fs::write(&over, b"another"))?;
        must("rename", fs::rename(over, &at))?;
    }
    must("unlink", fs::remove_file(&at))?;
    tree.held.push((file, bytes));
    Ok(())
}

fn look_at_held(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    run.tell("look at held", tree.held.len());
    for (file, bytes) in &mut tree.held {
        let mut found = vec![0; bytes.len()];
        must("read", file.read_exact_at(&mut found, 0))?;
        expect("what has no name", found == *bytes, true)?;
        let more = run.bytes(64);
        must("write", file.write_all_at(&more, bytes.len() as u64))?;
        must("fsync", file.sync_all())?;
        bytes.extend(more);
    }
    if run.random.one_in(3) {
        tree.held.clear();
    }
    Ok(())
}

fn compare(tree: &NameTree, root: &Path, has_attributes: bool) -> Result<(), Wrong> {
    for path in tree.names.keys() {
        let at = root.join(path);
        if tree.is_folder(path) {
            let expected: Vec<String> = tree.children(path).into_iter().collect();
            expect(path, listed(&at)?, expected)?;
        }
        if path != Path::new("") {
            check(tree, path, &at, has_attributes)?;
        }
    }
    Ok(())
}

fn look_elsewhere(run: &mut ExerciserRun, tree: &mut NameTree) -> Result<(), Wrong> {
    let Some(other) = run.other.clone() else {
        return Ok(());
    };
    run.tell("look elsewhere", tree.names.len());
    // It may be by a version that has no extended attributes.
    compare(tree, &other, false)
}

/// A folder of `files` files is listed while others come and go: what stays is
/// seen exactly once, what never was is not.
pub fn listing(run: &mut ExerciserRun, files: u32) -> Result<(), Wrong> {
    let dir = run.dir.join("listing");
    must("mkdir", fs::create_dir(&dir))?;
    let name = |n: u32| format!("file-with-a-name-of-some-length-{n:06}");
    for n in 0..files {
        must("create", fs::write(dir.join(name(n)), b""))?;
    }
    let mut gone = BTreeSet::new();
    let mut new = BTreeSet::new();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (at, entry) in must("open", fs::read_dir(&dir))?.enumerate() {
        let found = must("readdir", entry)?.file_name();
        *seen
            .entry(found.to_string_lossy().into_owned())
            .or_default() += 1;
        if at % 16 != 0 {
            continue;
        }
        run.tell("change", at);
        let victim = run.random.below(files.into()) as u32;
        if gone.insert(victim) {
            must("unlink", fs::remove_file(dir.join(name(victim))))?;
        }
        let extra = files + at as u32;
        must("create", fs::write(dir.join(name(extra)), b""))?;
        new.insert(extra);
        if new.len() as u32 > files {
            return Err("the listing does not end".into());
        }
    }
    let known: BTreeSet<String> = (0..files).chain(new.iter().copied()).map(name).collect();
    for (found, times) in &seen {
        expect(
            ("listed", found),
            (*times, known.contains(found)),
            (1, true),
        )?;
    }
    for n in (0..files).filter(|n| !gone.contains(n)) {
        expect(("listed", n), seen.get(&name(n)).copied(), Some(1))?;
    }
    let left: io::Result<()> = fs::remove_dir_all(&dir);
    must("remove", left)
}
