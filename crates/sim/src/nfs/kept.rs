//! A file system that outlives the target's process: memory that the world keeps.
//! What was written and not made stable may go with a crash, answers are late.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use mem::BufRange;
use random::Random;
use reactor::{Bell, DiskFile, FallocateMode, FileIo, Ticket, Token};
use store::fs::{
    Attr, Caller, Error, FileId, FileSystem, FsOp, Info, Memory, New, ObjectKind, Output, Progress,
    Quota, QuotaLimits, QuotaSubject, QuotaUsage, SetAttr, Task, Time, Written,
};

use crate::checker::{Verdict, Violation};
use crate::plan::NfsPlan;

/// Bytes of it, and of one in the target's own memory; those that names of others take
/// not counted.
const SIZE_BYTES: u64 = 8 << 20;
/// What a name of others takes, and more.
const OTHER_BYTES: u64 = 256;
/// Operations between two changes of the limits, where there are any.
const LIMIT_OPS: u64 = 32;
/// Bytes that an operation takes at most beside what it writes.
const SLACK_BYTES: u64 = 64 << 10;
/// What its handles carry.
pub const INSTANCE: u64 = 0x6b65_7074;

/// Tickets of operations whose answers are to come.
pub type Late = Arc<Mutex<Vec<Ticket>>>;

/// Bytes that a write has taken the place of.
struct Undo {
    file: FileId,
    offset: u64,
    bytes: Vec<u8>,
}

struct KeptState {
    random: Random,
    /// How often, of a hundred, an answer is late.
    late_percent: u64,
    /// What each file holds.
    content: HashMap<FileId, Vec<u8>>,
    /// Writes that are not stable, in their order.
    undo: Vec<Undo>,
    opens: HashMap<FileId, u32>,
    starts: u64,
    /// Operations until the limits change; `None` where there are none.
    limits_change_in: Option<u64>,
    /// What quotas have done wrong first.
    wrong: Option<String>,
}

/// What is left of the file system while no target serves it.
#[derive(Clone)]
pub struct Medium {
    memory: Arc<Memory>,
    state: Arc<Mutex<KeptState>>,
    late: Late,
}

/// The file system as one start of the target has it.
pub struct KeptFiles {
    medium: Medium,
    info: Info,
}

/// A file system in memory, with as many names of one file in its root.
pub fn memory(instance: u64, others: u32) -> Memory {
    let bytes = SIZE_BYTES + u64::from(others) * OTHER_BYTES;
    let memory = Memory::new("kept", bytes, instance, Time::default());
    let memory = memory.expect("memory is left");
    let mut first = None;
    for number in 0..others {
        let name = format!("other{number}");
        let (dir, name) = (memory.root(), name.as_bytes());
        let op = match first {
            None => FsOp::Create {
                dir,
                name,
                new: New::Guarded,
                set: SetAttr::default(),
            },
            Some(file) => FsOp::Link { file, dir, name },
        };
        if let Output::Created { attr, .. } = ask(&memory, &superuser(), op).expect("room") {
            first = Some(attr.file);
        }
    }
    memory
}

/// What the memory says at once, as it does of all that is small.
fn ask(memory: &Memory, caller: &Caller<'_>, op: FsOp<'_>) -> Result<Output, Error> {
    let mut none = NoFiles(Bell::new(None));
    match memory.start(caller, op, &mut none, 0) {
        Progress::Done(result) => result,
        Progress::Pending(_) => unreachable!("only what is large takes its time"),
    }
}

impl Medium {
    /// One that was not written yet.
    pub fn new(memory: Memory, random: Random, plan: &NfsPlan, late: Late) -> Medium {
        let state = KeptState {
            random,
            late_percent: plan.late_percent,
            content: HashMap::new(),
            undo: Vec::new(),
            opens: HashMap::new(),
            starts: 0,
            limits_change_in: plan.has_limits.then_some(0),
            wrong: None,
        };
        Medium {
            memory: Arc::new(memory),
            state: Arc::new(Mutex::new(state)),
            late,
        }
    }

    fn state(&self) -> MutexGuard<'_, KeptState> {
        self.state.lock().expect("one thread")
    }

    /// The target starts.
    pub fn open(&self) -> KeptFiles {
        let mut state = self.state();
        state.starts += 1;
        let info = Info {
            verifier: state.starts,
            ..self.memory.info().clone()
        };
        KeptFiles {
            medium: self.clone(),
            info,
        }
    }

    /// The target is gone: so is some of what was not stable, and nothing is open
    /// any more.
    pub fn crash(&self) {
        let mut state = self.state();
        let loses = state.random.percent(70);
        let undo = std::mem::take(&mut state.undo);
        for undo in undo.into_iter().rev() {
            if !loses || state.random.one_in(3) {
                continue;
            }
            let caller = superuser();
            let written = (self.memory).write_now(&caller, undo.file, undo.offset, &undo.bytes);
            // A file that is gone has nothing to lose.
            if written.is_some_and(|written| written.is_ok()) {
                state.put(undo.file, undo.offset, &undo.bytes);
            }
        }
        let opens = std::mem::take(&mut state.opens);
        let mut opens: Vec<_> = opens.into_iter().collect();
        opens.sort();
        for (file, count) in opens {
            for _ in 0..count {
                let _ = self.ask(&superuser(), FsOp::Close { file });
            }
        }
    }

    /// What all of it has and may have.
    fn usage(&self) -> QuotaUsage {
        let quotas = self.memory.quotas().expect("memory has them");
        quotas.usage_of(&whole())
    }

    /// Now and then the whole file system may have a little more than it has, or as much as
    /// there is room for: what is refused for long is asked for without an end.
    fn change_limits(&self) {
        let mut state = self.state();
        let Some(left) = state.limits_change_in else {
            return;
        };
        if left > 0 {
            state.limits_change_in = Some(left - 1);
            return;
        }
        state.limits_change_in = Some(LIMIT_OPS);
        let usage = self.usage();
        let limits = QuotaLimits {
            hard_bytes: Some(usage.bytes + state.random.below(3 * SLACK_BYTES)),
            hard_objects: Some(usage.objects + state.random.below(4)),
            ..QuotaLimits::default()
        };
        let quota = Quota {
            subject: whole(),
            limits,
        };
        let list = if state.random.one_in(2) {
            vec![quota]
        } else {
            Vec::new()
        };
        let set = self.memory.set_quotas(&list, Time::default());
        set.expect("the whole is no directory to be found");
    }

    /// Whether an operation that writes so much has kept to the limits, and was not refused
    /// what they allow.
    fn check_limits(&self, before: &QuotaUsage, bytes: u64, result: &Result<Output, Error>) {
        let (now, limits) = (self.usage(), before.limits);
        let grown = [
            (before.bytes, now.bytes, limits.hard_bytes),
            (before.objects, now.objects, limits.hard_objects),
        ];
        let is_beyond = |(was, is, hard): (u64, u64, Option<u64>)| {
            is > was && hard.is_some_and(|hard| is > hard)
        };
        let room =
            |hard: Option<u64>, used: u64| hard.map_or(u64::MAX, |hard| hard.saturating_sub(used));
        let fits = room(limits.hard_bytes, before.bytes) >= bytes + SLACK_BYTES
            && room(limits.hard_objects, before.objects) > 0;
        let wrong = match result {
            _ if grown.into_iter().any(is_beyond) => {
                format!("quota: more than {limits:?} is taken: {now:?}")
            }
            Err(Error::DQuot) if fits => {
                format!("quota: {bytes} bytes are refused beside {before:?}")
            }
            _ => return,
        };
        self.state().wrong.get_or_insert(wrong);
    }

    /// Counts all objects anew, and compares with what quotas have counted.
    pub fn check_usage(&self) -> Verdict {
        if let Some(wrong) = self.state().wrong.take() {
            return Err(Violation(wrong));
        }
        let mut sums: BTreeMap<QuotaSubject, (u64, u64)> = BTreeMap::new();
        let (mut seen, mut dirs) = (HashSet::new(), vec![self.memory.root()]);
        let mut found = vec![self.attr(self.memory.root())];
        while let Some(dir) = dirs.pop() {
            let op = FsOp::Readdir {
                dir,
                cookie: 0,
                verifier: 0,
                entries_max: u32::MAX,
                name_bytes_max: u32::MAX,
                with_attrs: true,
            };
            let Ok(Output::Listing(listing)) = self.ask(&superuser(), op) else {
                return Err(Violation("a directory is not listed".into()));
            };
            for attr in listing.iter().filter_map(|(entry, _)| entry.attr.clone()) {
                if attr.kind == ObjectKind::Directory {
                    dirs.push(attr.file);
                }
                found.push(Some(attr));
            }
        }
        for attr in found.into_iter().flatten() {
            if !seen.insert(attr.file) {
                continue;
            }
            let (user, group) = (QuotaSubject::User(attr.uid), QuotaSubject::Group(attr.gid));
            for subject in [user, group, whole()] {
                let sum = sums.entry(subject).or_default();
                *sum = (sum.0 + attr.used_bytes, sum.1 + 1);
            }
        }
        let quotas = self.memory.quotas().expect("memory has them");
        for usage in quotas.usage() {
            let is = sums.remove(&usage.subject).unwrap_or_default();
            let counted = (usage.bytes, usage.objects);
            if counted != is {
                let subject = usage.subject;
                let text = format!("quota: {subject} has {is:?}, but {counted:?} is counted");
                return Err(Violation(text));
            }
        }
        match sums.first_key_value() {
            None => Ok(()),
            Some((subject, _)) => Err(Violation(format!("quota: {subject} is not counted"))),
        }
    }

    fn attr(&self, file: FileId) -> Option<Attr> {
        match self.ask(&superuser(), FsOp::Getattr { file }) {
            Ok(Output::Attr(attr)) => Some(attr),
            _ => None,
        }
    }

    fn ask(&self, caller: &Caller<'_>, op: FsOp<'_>) -> Result<Output, Error> {
        ask(&self.memory, caller, op)
    }
}

/// All of it, as quotas call it.
fn whole() -> QuotaSubject {
    QuotaSubject::Tree("/".to_owned())
}

fn superuser() -> Caller<'static> {
    Caller {
        uid: 0,
        gid: 0,
        gids: &[],
        now: Time::default(),
        is_open: true,
        from: store::fs::Asker::default(),
    }
}

impl KeptState {
    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let content = self.content.entry(file).or_default();
        let range = offset as usize..offset as usize + bytes.len();
        if content.len() < range.end {
            content.resize(range.end, 0);
        }
        let old = content[range.clone()].to_vec();
        content[range].copy_from_slice(bytes);
        old
    }

    fn is_late(&mut self) -> bool {
        let percent = self.late_percent;
        self.random.percent(percent)
    }
}

impl KeptFiles {
    fn write(
        &self,
        caller: &Caller<'_>,
        (file, offset): (FileId, u64),
        buf: BufRange,
        is_stable: bool,
    ) -> Result<Output, Error> {
        let mut bytes = vec![0; buf.len() as usize];
        mem::copy_out(buf, &mut bytes);
        let written = self.medium.memory.write_now(caller, file, offset, &bytes);
        let written = written.expect("it is memory")?;
        assert_eq!(written.len, buf.len(), "there is room");
        let mut state = self.medium.state();
        let bytes = state.put(file, offset, &bytes);
        match is_stable {
            true => state.undo.retain(|undo| undo.file != file),
            false => state.undo.push(Undo {
                file,
                offset,
                bytes,
            }),
        }
        Ok(Output::Written(Written {
            len: written.len,
            is_stable,
        }))
    }

    fn execute(&self, caller: &Caller<'_>, op: FsOp<'_>) -> Result<Output, Error> {
        match op {
            FsOp::Write {
                file,
                offset,
                buf,
                is_stable,
            } => return self.write(caller, (file, offset), buf, is_stable),
            FsOp::Commit { file } => {
                let done = self.medium.ask(caller, FsOp::Commit { file })?;
                let mut state = self.medium.state();
                state.undo.retain(|undo| undo.file != file);
                return Ok(done);
            }
            _ => {}
        }
        let done = self.medium.ask(caller, op.clone())?;
        let mut state = self.medium.state();
        match op {
            FsOp::Open { file, .. } => *state.opens.entry(file).or_default() += 1,
            FsOp::Close { file } => {
                let count = state.opens.get_mut(&file).expect("it is open");
                *count -= 1;
            }
            _ => {}
        }
        Ok(done)
    }
}

impl FileSystem for KeptFiles {
    fn info(&self) -> &Info {
        &self.info
    }

    fn root(&self) -> FileId {
        self.medium.memory.root()
    }

    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let bytes = match &op {
            FsOp::Write { buf, .. } => buf.len().into(),
            _ => 0,
        };
        self.medium.change_limits();
        let before = self.medium.usage();
        let result = self.execute(caller, op);
        self.medium.check_limits(&before, bytes, &result);
        if !self.medium.state().is_late() {
            return Progress::Done(result);
        }
        let mut late = self.medium.late.lock().expect("one thread");
        late.push(files.ticket(token));
        Progress::Pending(Task::of_other(result))
    }

    fn resume(
        &self,
        task: Task,
        _result: io::Result<u32>,
        _files: &mut dyn FileIo,
        _token: Token,
    ) -> Progress {
        Progress::Done(task.into_other())
    }
}

/// I/O of a file system without files.
struct NoFiles(Arc<Bell>);

impl FileIo for NoFiles {
    fn read_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: Token) {
        unreachable!("memory has no files");
    }

    fn write_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: bool, _: Token) {
        unreachable!("memory has no files");
    }

    fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {
        unreachable!("memory has no files");
    }

    fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {
        unreachable!("memory has no files");
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.0.ticket(token)
    }

    fn cancel_file(&mut self, _: Token) {}
}
