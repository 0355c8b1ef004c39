//! Client records that survive the process (RFC 8881, section 8.4.2.1): which clients
//! may reclaim after a restart, and the number of the start.
//!
//! One text file. Each line ends with a checksum of its own: `server` and what
//! clients know it by, `boot` and the number of the start, then `kept` or `gone`, a
//! client's name in hexadecimal, and the principal that made its record. Lines are
//! appended and synced before the client gets an answer; at each start, and when more was
//! appended than it had, a new file takes the place of the old one. Files of the
//! first version have no principals: the next line about such a name takes its place.
//! A last line that a crash has cut off was never answered for, and is left out.
//! Any other damage is an error: a server that took it for an empty file would let
//! clients take what others may still reclaim.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nfs::server::{Principal, Record, RecordedClient};
use reactor::must_fill_random;

/// First words of the file, with the version of the format.
const MAGIC: &str = "weft-nfs-clients 2";
/// The same of a file without principals.
const MAGIC_OF_NAMES: &str = "weft-nfs-clients 1";
/// The file in the state folder.
const FILE: &str = "nfs-clients";
/// No file is larger: the clients of both kinds that a server may have, and as many that reclaim,
/// with the longest names, are less than half of it, and so are the lines behind them.
const BYTES_MAX: u64 = 512 << 20;
/// Bytes that are appended whatever the number of clients.
const APPENDED_MIN: usize = 64 << 10;
/// How long to wait for a process that is about to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Where records lie: a file, or what a test or the simulator has in its place.
pub trait Journal: Send {
    /// What lies there; `None` if nothing was ever written. Blocks.
    fn load(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Puts `bytes` in the place of what lies there. A crash at any point leaves
    /// the old or the new; the new when it has returned. Blocks.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Puts `bytes` behind what lies there, for good when it has returned; of a
    /// crash before, or an error, some of them may be there. Blocks.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// How it is called in messages.
    fn path(&self) -> &Path;
}

/// What would be in the way of [`Records::in_folder`], but for another
/// process that has the folder now; nothing is made, changed or locked.
///
/// # Errors
/// What is wrong with it.
pub fn examine(folder: &Path) -> io::Result<()> {
    let path = folder.join(FILE);
    expect_files(&path)?;
    match load(&path)? {
        Some(bytes) => known(&path, &bytes).map(drop),
        None => Ok(()),
    }
}

/// Where the file is written before it takes the place of the old one.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Refuses what lies in the place of a file: opening a pipe would wait.
fn expect_files(path: &Path) -> io::Result<()> {
    [path, &temporary(path)]
        .iter()
        .try_for_each(|path| store::expect_own_file(path))
}

/// What is in the file, if it is there.
fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// A file in a folder that belongs to this process alone.
struct Folder {
    /// Locked, and synced when names in it change.
    folder: File,
    path: PathBuf,
    file: Option<File>,
}

impl Folder {
    /// Makes the folder if it is not there.
    fn open(folder: &Path) -> io::Result<Folder> {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(FILE);
        expect_files(&path)?;
        let folder = File::open(folder)?;
        let give_up = Instant::now() + LOCK_PATIENCE;
        loop {
            match folder.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    let why = "another weft uses this folder: each needs its own";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
            }
        }
        Ok(Folder {
            folder,
            path,
            file: None,
        })
    }
}

impl Journal for Folder {
    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        load(&self.path)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(&self.path);
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        self.folder.sync_all()?;
        self.file = None;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().append(true).open(&self.path)?;
                self.file.insert(file)
            }
        };
        file.write_all(bytes)?;
        file.sync_data()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// What clients know a server by, whichever start it is.
pub type ServerIdentity = [u8; 16];

/// One that no other server has.
pub fn new_identity() -> ServerIdentity {
    let mut identity = [0; 16];
    must_fill_random(&mut identity);
    identity
}

/// The records of one server.
pub struct Records {
    journal: Box<dyn Journal>,
    identity: ServerIdentity,
    boot: u32,
    kept: BTreeSet<RecordedClient>,
    /// Bytes of the journal when it was written anew,
    rewritten: usize,
    /// and what was appended since.
    appended: usize,
    /// What an append left that failed must not be followed by anything.
    is_torn: bool,
}

impl Records {
    /// How the place where they lie is called in messages.
    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    /// As [`Records::open`], of a file in a folder that is made if it is not there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn in_folder(folder: &Path, first: u32) -> io::Result<Records> {
        Records::open(Box::new(Folder::open(folder)?), first)
    }

    /// Reads what is there and begins a new start of the server, the first one
    /// with the number `first`.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn open(mut journal: Box<dyn Journal>, first: u32) -> io::Result<Records> {
        let bytes = journal.load()?;
        let (identity, boot, kept) = match bytes {
            Some(bytes) => known(journal.path(), &bytes)?,
            None => (new_identity(), first.wrapping_sub(1), BTreeSet::new()),
        };
        let mut records = Records {
            journal,
            identity,
            boot: boot.wrapping_add(1).max(1),
            kept,
            rewritten: 0,
            appended: 0,
            is_torn: false,
        };
        records.rewrite()?;
        Ok(records)
    }

    /// What clients know the server by.
    pub fn identity(&self) -> ServerIdentity {
        self.identity
    }

    /// The number of this start, no other has had.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// The clients on record.
    pub fn kept(&self) -> impl Iterator<Item = &RecordedClient> {
        self.kept.iter()
    }

    /// On the disk when it returns. Blocks.
    pub fn note(&mut self, changes: &[Record]) -> io::Result<()> {
        let mut text = String::new();
        for change in changes {
            if apply(&mut self.kept, change) {
                push_change(&mut text, change);
            }
        }
        if text.is_empty() && !self.is_torn {
            return Ok(());
        }
        self.appended += text.len();
        if self.is_torn || self.appended > self.rewritten + APPENDED_MIN {
            return self.rewrite();
        }
        self.is_torn = true;
        self.journal.append(text.as_bytes())?;
        self.is_torn = false;
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let mut text = format!("{MAGIC}\n");
        push(
            &mut text,
            &format!("server {}", hexadecimal(&self.identity)),
        );
        push(&mut text, &format!("boot {}", self.boot));
        for client in &self.kept {
            push_change(&mut text, &Record::Kept(client.clone()));
        }
        self.is_torn = true;
        self.journal.replace(text.as_bytes())?;
        self.is_torn = false;
        self.rewritten = text.len();
        self.appended = 0;
        Ok(())
    }
}

/// What a change makes of the clients on record; whether it is one.
fn apply(kept: &mut BTreeSet<RecordedClient>, change: &Record) -> bool {
    let (Record::Kept(client) | Record::Gone(client)) = change;
    let unproven = RecordedClient {
        owner: client.owner.clone(),
        principal: None,
    };
    let had_name = client.principal.is_some() && kept.remove(&unproven);
    had_name
        | match change {
            Record::Kept(client) => kept.insert(client.clone()),
            Record::Gone(client) => kept.remove(client),
        }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn push_change(text: &mut String, change: &Record) {
    let (word, RecordedClient { owner, principal }) = match change {
        Record::Kept(client) => ("kept", client),
        Record::Gone(client) => ("gone", client),
    };
    let mut line = format!("{word} {}", hexadecimal(owner));
    if let Some(principal) = principal {
        line.push_str(&format!(" {principal}"));
    }
    push(text, &line);
}

/// What [`push_change`] has written, without the checksum.
fn change(line: &str) -> Option<Record> {
    let (word, rest) = line.split_once(' ')?;
    let (digits, principal) = match rest.split_once(' ') {
        None => (rest, None),
        Some((digits, principal)) => (digits, Some(Principal::parse(principal)?)),
    };
    let client = RecordedClient {
        owner: bytes(digits)?,
        principal,
    };
    match word {
        "kept" => Some(Record::Kept(client)),
        "gone" => Some(Record::Gone(client)),
        _ => None,
    }
}

/// A line, and its checksum: CRC32C in hexadecimal.
fn push(text: &mut String, line: &str) {
    let sum = mem::crc32c_bytes(line.as_bytes(), 0);
    text.push_str(&format!("{line} {sum:08x}\n"));
}

/// One line without its checksum, if that is right.
fn checked(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    let (line, sum) = line.rsplit_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == mem::crc32c_bytes(line.as_bytes(), 0)).then_some(line)
}

fn bytes(digits: &str) -> Option<Box<[u8]>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        (pair.len() == 2).then_some(u8::from_str_radix(pair, 16).ok()?)
    };
    pairs.map(byte).collect()
}

/// What the server is known by, the number of its last start, and the clients on
/// record.
type KnownServer = (ServerIdentity, u32, BTreeSet<RecordedClient>);

/// What the file `path` says in `bytes`.
fn known(path: &Path, bytes: &[u8]) -> io::Result<KnownServer> {
    read(bytes).map_err(|why| {
        let path = path.display();
        let why = format!(
            "{path} {why}; without it no client can reclaim what it had: put back a copy, or \
             remove the file and mount anew"
        );
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// What a file says.
fn read(file: &[u8]) -> Result<KnownServer, String> {
    if file.len() as u64 > BYTES_MAX {
        return Err(format!("has more than {BYTES_MAX} bytes"));
    }
    let damaged = |number: usize| format!("is damaged in line {number}");
    let mut lines = file.split(|byte| *byte == b'\n').zip(1..);
    let first = lines.next().map_or(&b""[..], |(line, _)| line);
    if ![MAGIC, MAGIC_OF_NAMES].map(str::as_bytes).contains(&first) {
        return Err(format!(
            "does not begin with '{MAGIC}': a later version of weft has written it, or it is damaged"
        ));
    }
    let mut next = || lines.next().and_then(|(line, _)| checked(line));
    let identity = next().and_then(|line| bytes(line.strip_prefix("server ")?));
    let identity = identity.and_then(|identity| (*identity).try_into().ok());
    let identity = identity.ok_or_else(|| damaged(2))?;
    let boot = next().and_then(|line| line.strip_prefix("boot ")?.parse().ok());
    let boot = boot.ok_or_else(|| damaged(3))?;
    let mut kept = BTreeSet::new();
    let mut cut = None;
    for (line, number) in lines {
        let Some(line) = checked(line) else {
            cut = cut.or(Some(number));
            continue;
        };
        if let Some(number) = cut {
            return Err(damaged(number));
        }
        let change = change(line).ok_or_else(|| damaged(number))?;
        apply(&mut kept, &change);
    }
    Ok((identity, boot, kept))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nfs::connection::Credential;

    use super::*;

    /// A disk, on which an append may fail half-way.
    #[derive(Clone, Default)]
    struct Disk {
        bytes: Arc<Mutex<Option<Vec<u8>>>>,
        fails_after: Arc<Mutex<Option<usize>>>,
    }

    impl Journal for Disk {
        fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.bytes.lock().unwrap().clone())
        }

        fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
            *self.bytes.lock().unwrap() = Some(bytes.to_vec());
            Ok(())
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let mut disk = self.bytes.lock().unwrap();
            let disk = disk.as_mut().expect("replaced before");
            let Some(most) = self.fails_after.lock().unwrap().take() else {
                disk.extend_from_slice(bytes);
                return Ok(());
            };
            disk.extend_from_slice(&bytes[..most]);
            Err(io::ErrorKind::StorageFull.into())
        }

        fn path(&self) -> &Path {
            Path::new("disk")
        }
    }

    fn open(disk: &Disk) -> Records {
        Records::open(Box::new(disk.clone()), 7).expect("whole")
    }

    fn user(uid: u32) -> Option<Principal> {
        Some(Principal::new(&Credential::sys(uid, 0, []), None))
    }

    fn client(name: &[u8], principal: Option<Principal>) -> RecordedClient {
        RecordedClient {
            owner: name.into(),
            principal,
        }
    }

    fn kept(name: &[u8]) -> Record {
        Record::Kept(client(name, user(0)))
    }

    fn gone(name: &[u8]) -> Record {
        Record::Gone(client(name, user(0)))
    }

    fn names(records: &Records) -> Vec<Vec<u8>> {
        records.kept().map(|client| client.owner.to_vec()).collect()
    }

    fn all(records: &Records) -> Vec<RecordedClient> {
        records.kept().cloned().collect()
    }

    #[test]
    fn clients_and_the_number_of_the_start_are_there_after_a_restart() {
        let disk = Disk::default();
        let mut records = open(&disk);
        assert_eq!((records.boot(), names(&records)), (7, Vec::new()));
        let odd = b"\x00odd\xff\n name";
        records
            .note(&[kept(b"a"), kept(odd), kept(b"a")])
            .expect("room");
        records.note(&[gone(b"a"), kept(b"b")]).expect("room");
        let identity = records.identity();
        let records = open(&disk);
        assert_eq!((records.boot(), records.identity()), (8, identity));
        assert_eq!(names(&records), [odd.to_vec(), b"b".to_vec()]);
        assert_eq!(open(&disk).boot(), 9);
        assert_ne!(open(&Disk::default()).identity(), identity);
    }

    #[test]
    fn clients_of_one_name_are_told_apart_by_their_principals() {
        let disk = Disk::default();
        let of_first = user(0).map(|own| Principal::parse(&format!("{own} certificate ff")));
        let of_first = of_first.expect("a principal");
        let [first, second] = [of_first, user(1)].map(|of| client(b"a", of));
        let mut records = open(&disk);
        let changes = [&first, &second].map(|client| Record::Kept(client.clone()));
        records.note(&changes).expect("room");
        let mut records = open(&disk);
        assert_eq!(all(&records).len(), 2);
        records.note(&[Record::Gone(second)]).expect("room");
        assert_eq!(all(&open(&disk)), [first]);
    }

    /// A file of the version before: names alone.
    #[test]
    fn names_without_principals_are_kept_until_their_clients_are_back() {
        let lines = ["server 00112233445566778899aabbccddeeff", "boot 4"];
        let lines = lines
            .into_iter()
            .chain(["kept 61", "kept 62", "kept 63", "gone 63"]);
        let mut file = "weft-nfs-clients 1\n".to_owned();
        lines.for_each(|line| push(&mut file, line));
        let disk = Disk::default();
        *disk.bytes.lock().unwrap() = Some(file.into_bytes());
        let mut records = open(&disk);
        assert_eq!(records.boot(), 5);
        assert_eq!(all(&records), [client(b"a", None), client(b"b", None)]);
        assert_eq!(all(&open(&disk)), all(&records));
        records.note(&[kept(b"a"), gone(b"b")]).expect("room");
        assert_eq!(all(&open(&disk)), [client(b"a", user(0))]);
    }

    /// Whatever a crash leaves of the last append, what was synced before is
    /// there.
    #[test]
    fn a_last_line_that_was_cut_off_is_left_out() {
        let disk = Disk::default();
        open(&disk).note(&[kept(b"whole")]).expect("room");
        let before = disk.bytes.lock().unwrap().clone().expect("something");
        open(&disk).note(&[kept(b"cut")]).expect("room");
        let after = disk.bytes.lock().unwrap().clone().expect("something");
        let added = after.len() - before.len();
        for left in 2..added {
            let torn = after[..after.len() - left].to_vec();
            *disk.bytes.lock().unwrap() = Some(torn);
            assert_eq!(names(&open(&disk)), [b"whole"], "{left} bytes less");
        }
    }

    #[test]
    fn damage_before_the_last_line_is_an_error_with_the_remedy() {
        let disk = Disk::default();
        let mut records = open(&disk);
        records
            .note(&[kept(b"first"), kept(b"second")])
            .expect("room");
        let whole = disk.bytes.lock().unwrap().clone().expect("something");
        let last = whole.len() - b"kept 7365636f6e64 uid 0 01234567\n".len();
        for at in 0..last - 1 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            *disk.bytes.lock().unwrap() = Some(bytes);
            let error = Records::open(Box::new(disk.clone()), 7).map(|_| ());
            let error = error.expect_err("damaged").to_string();
            assert!(error.contains("remove the file"), "byte {at}: {error}");
        }
    }

    #[test]
    fn records_are_whole_after_a_failed_append() {
        let disk = Disk::default();
        let mut records = open(&disk);
        *disk.fails_after.lock().unwrap() = Some(9);
        records.note(&[kept(b"one")]).expect_err("the disk is full");
        records.note(&[kept(b"two")]).expect("there is room again");
        assert_eq!(names(&open(&disk)), [b"one", b"two"]);
    }

    /// What is read at the next start is bounded by the clients that there are, however long
    /// their names.
    #[test]
    fn records_of_gone_clients_are_compacted() {
        let disk = Disk::default();
        let mut records = open(&disk);
        let name = [b'n'; 1024];
        for _ in 0..100 {
            records.note(&[kept(&name)]).expect("room");
            records.note(&[gone(&name)]).expect("room");
            let len = disk.bytes.lock().unwrap().as_ref().map_or(0, Vec::len);
            assert!(len < 2 * APPENDED_MIN, "{len} bytes of no client");
        }
    }

    #[test]
    fn a_folder_is_one_server_s_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("state");
        let mut records =
            Records::open(Box::new(Folder::open(&path).expect("new")), 7).expect("new");
        records.note(&[kept(b"me")]).expect("room");
        let error = Folder::open(&path).map(|_| ()).expect_err("locked");
        assert!(error.to_string().contains("another weft"), "{error}");
        drop(records);
        let again = Folder::open(&path).expect("free");
        let records = Records::open(Box::new(again), 7).expect("whole");
        assert_eq!((records.boot(), names(&records)), (8, vec![b"me".to_vec()]));
    }

    #[test]
    fn pipe_in_the_place_of_the_folder_or_a_file_is_refused() {
        for name in ["state", "state/nfs-clients", "state/nfs-clients.new"] {
            let parent = tempfile::tempdir().expect("a folder");
            let folder = parent.path().join("state");
            let pipe = parent.path().join(name);
            if pipe != folder {
                fs::create_dir(&folder).expect("made");
            }
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.expect("coreutils").success());
            let opened = Folder::open(&folder).map(|_| ()).expect_err("a pipe");
            let examined = examine(&folder).expect_err("a pipe");
            assert_eq!(opened.to_string(), examined.to_string());
            if pipe != folder {
                let text = opened.to_string();
                assert!(text.contains(&*pipe.display().to_string()), "{text}");
            }
        }
    }
}
