//! A volume of this process, without a network: what a target would do for an
//! I/O, and nothing else.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use machine::Tag;
use mem::BufRange;
use reactor::{Driver, Token};
use store::{Kind as StoreKind, Progress, Spec, Task, Volume};

use super::line::{IoFailed, LineEvent, LoadIo};
use super::workload::IoDirection;
use crate::units::parse_bytes;

/// Bytes of a volume where the user has not given a size.
const SIZE_DEFAULT: u64 = 1 << 30;
/// Bytes of one write that fills memory before a load.
const FILL_BYTES: u64 = 1 << 20;

/// A volume as an URL names it: `local:ram?size=1g&block=512`,
/// `local:null?size=1t`, `local:file?path=disk.img&size=1g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    kind: StoreKind,
    size_bytes: u64,
    block_bytes: u32,
}

impl LocalAddress {
    /// Of what stands behind `local:`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(text: &str) -> Result<LocalAddress, String> {
        let (kind, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut size_bytes, mut block_bytes, mut path) = (SIZE_DEFAULT, 4096, None);
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("size", size)) => size_bytes = parse_bytes(size)?,
                Some(("block", block)) => block_bytes = parse_bytes(block)? as u32,
                Some(("path", file)) if kind == "file" => path = Some(PathBuf::from(file)),
                _ => {
                    return Err(format!(
                        "`{word}` says nothing about a local volume: size=, block=, and path= \
                         of a file do"
                    ));
                }
            }
        }
        let kind = match (kind, path) {
            ("ram", _) => StoreKind::RAM,
            ("null", _) => StoreKind::NULL,
            ("file", Some(path)) => StoreKind::file(path),
            ("file", None) => return Err("local:file needs ?path=FILE".into()),
            _ => {
                return Err(format!(
                    "local volumes are ram, null and file, not `{kind}`"
                ));
            }
        };
        Ok(LocalAddress {
            kind,
            size_bytes,
            block_bytes,
        })
    }

    /// Opens it; memory is written, so that it is there.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn open(&self) -> Result<Arc<dyn Volume>, String> {
        let spec = Spec::new(
            "local",
            self.kind.clone(),
            self.size_bytes,
            self.block_bytes,
        );
        let volume = store::open(&spec).map_err(|error| error.to_string())?;
        let bytes = vec![0x5a; FILL_BYTES as usize];
        let mut at = 0;
        while at < self.size_bytes {
            let len = FILL_BYTES.min(self.size_bytes - at);
            match volume.write_now(at, &bytes[..len as usize]) {
                // It is no memory.
                None => break,
                Some(result) => result.map_err(|error| error.to_string())?,
            }
            at += len;
        }
        Ok(volume)
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.path() {
            Some(path) => path.display().fmt(f),
            None => f.write_str(self.kind.name()),
        }
    }
}

/// I/Os on a volume of this process.
pub struct LocalLine {
    volume: Arc<dyn Volume>,
    base: Token,
    free: Vec<Tag>,
    queued: Vec<(Tag, store::Io)>,
    /// By tag.
    tasks: Vec<Option<Task>>,
    pending: usize,
    done: VecDeque<(Tag, Result<(), store::Error>)>,
}

impl LocalLine {
    /// With as many tags as I/Os in flight, whose tokens begin with `base`.
    pub fn new(volume: Arc<dyn Volume>, iodepth: u16, base: Token) -> LocalLine {
        LocalLine {
            volume,
            base,
            free: (0..=iodepth).rev().collect(),
            queued: Vec::with_capacity(usize::from(iodepth) + 1),
            tasks: (0..=iodepth).map(|_| None).collect(),
            pending: 0,
            done: VecDeque::with_capacity(usize::from(iodepth) + 1),
        }
    }

    /// Whether every I/O that was started has ended.
    pub fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// Whether I/Os have ended that were not taken yet.
    #[inline]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    pub fn submit(&mut self, io: &LoadIo, memory: impl FnOnce(Tag) -> BufRange) -> Option<Tag> {
        let tag = self.free.pop()?;
        let offset = io.lba * u64::from(self.volume.info().block_bytes);
        let buf = memory(tag).slice(0, io.len);
        let io = match io.kind {
            IoDirection::Write => store::Io::Write {
                offset,
                buf,
                durable: false,
            },
            IoDirection::Read | IoDirection::Metadata => store::Io::Read { offset, buf },
        };
        self.queued.push((tag, io));
        Some(tag)
    }

    /// Starts what was submitted.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut queued = std::mem::take(&mut self.queued);
        for (tag, io) in queued.drain(..) {
            let token = self.base + Token::from(tag);
            let progress = self.volume.start(io, driver, token);
            self.on_progress(tag, progress);
        }
        self.queued = queued;
    }

    #[inline]
    fn on_progress(&mut self, tag: Tag, progress: Progress) {
        match progress {
            Progress::Done(result) => self.done.push_back((tag, result)),
            Progress::Pending(task) => {
                self.tasks[usize::from(tag)] = Some(task);
                self.pending += 1;
            }
        }
    }

    /// Takes the completion of a file operation.
    pub fn on_completion<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        completion: reactor::Completion,
    ) {
        let reactor::Completion::File { result, .. } = completion else {
            unreachable!("a volume has no sockets");
        };
        let tag = (token - self.base) as Tag;
        let task = self.tasks[usize::from(tag)].take();
        let task = task.expect("what completes was started");
        self.pending -= 1;
        let progress = self.volume.resume(task, result, driver, token);
        self.on_progress(tag, progress);
    }

    #[inline]
    pub fn next_event(&mut self) -> Option<LineEvent> {
        let (tag, result) = self.done.pop_front()?;
        self.free.push(tag);
        Some(LineEvent::Completed(tag, result.map_err(IoFailed::Local)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_volumes() {
        let ram = LocalAddress::parse("ram?size=8m&block=512").expect("an address");
        assert_eq!((ram.size_bytes, ram.block_bytes), (8 << 20, 512));
        assert_eq!(ram.kind, StoreKind::RAM);
        let null = LocalAddress::parse("null").expect("an address");
        assert_eq!((null.size_bytes, null.block_bytes), (1 << 30, 4096));
        let file = LocalAddress::parse("file?path=a/b").expect("an address");
        assert_eq!(file.to_string(), "a/b");
        for wrong in ["", "disk", "file", "ram?path=x", "ram?size", "ram?size=q"] {
            assert!(LocalAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_is_there_before_it_is_read() {
        let volume = LocalAddress::parse("ram?size=3m")
            .expect("an address")
            .open();
        let volume = volume.expect("a volume");
        assert_eq!(volume.stats().write_bytes, 3 << 20);
    }
}
