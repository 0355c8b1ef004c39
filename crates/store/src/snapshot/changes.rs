//! What differs between the data of two snapshots, as far as the file system tells without
//! any of it being read.
//!
//! Both have been shared from one file, and nothing is written to them. So where both have
//! their bytes at one place they hold the same. What the file system does not tell counts as
//! changed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use reactor::ExtentPlace;
use rustix::fs::{SeekFrom, fstatfs, seek};
use rustix::io::Errno;

use crate::Range;

/// File systems that have one space of addresses, in which no two runs of bytes have the same:
/// XFS, but for files on its realtime device, and Btrfs, by their numbers in `statfs`.
const ADDRESSED: [u32; 2] = [0x5846_5342, 0x9123_683e];

/// Runs of bytes and holes that are looked at together.
const RUNS: usize = 256;

/// A range of a snapshot that may hold what another does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    /// Where.
    pub range: Range,
    /// Whether it holds zeros, which take no space.
    pub is_zeros: bool,
}

/// Bytes of a file up to `end`, which lie at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) end: u64,
    pub(super) held: Held,
}

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Zeros,
    /// Bytes at a place, less where they are in the file.
    At(u64),
    Unknown,
}

impl Held {
    pub(super) fn may_differ(self, other: Held) -> bool {
        self != other || self == Held::Unknown
    }
}

/// The data of a snapshot, in which no byte is changed any more; or of a volume, with all that was
/// written before it was opened here.
pub(super) struct DataFile {
    pub(super) file: File,
    pub(super) bytes: u64,
    /// Whether the places of its extents say what is the same.
    is_addressed: bool,
}

impl DataFile {
    pub(super) fn new(file: File) -> io::Result<DataFile> {
        let kind = fstatfs(&file)?.f_type as u32;
        let is_told = || {
            let is_elsewhere = reactor::is_realtime(file.as_fd());
            is_elsewhere.is_ok_and(|is| !is) && reactor::extents(file.as_fd(), 0, true).is_ok()
        };
        Ok(DataFile {
            bytes: file.metadata()?.len(),
            is_addressed: ADDRESSED.contains(&kind) && is_told(),
            file,
        })
    }

    /// What it has from `at` on, as far as is looked at in one step. Behind its end are zeros.
    fn runs(&self, at: u64) -> io::Result<Vec<Run>> {
        if at >= self.bytes {
            let (end, held) = (u64::MAX, Held::Zeros);
            return Ok(vec![Run { end, held }]);
        }
        let mut runs = match self.is_addressed {
            true => self.runs_by_extents(at)?,
            false => self.runs_by_holes(at)?,
        };
        if runs.last().is_none_or(|last| last.end >= self.bytes) {
            runs.iter_mut()
                .for_each(|run| run.end = run.end.min(self.bytes));
            let (end, held) = (u64::MAX, Held::Zeros);
            runs.push(Run { end, held });
        }
        Ok(runs)
    }

    fn runs_by_extents(&self, at: u64) -> io::Result<Vec<Run>> {
        let (extents, are_all) = reactor::extents(self.file.as_fd(), at, false)?;
        let (mut runs, mut reached) = (Vec::new(), at);
        for extent in extents {
            if extent.offset > reached {
                let (end, held) = (extent.offset, Held::Zeros);
                runs.push(Run { end, held });
            }
            reached = extent.offset.saturating_add(extent.len);
            let held = match extent.place {
                ExtentPlace::At(place) => Held::At(place.wrapping_sub(extent.offset)),
                ExtentPlace::Unwritten => Held::Zeros,
                ExtentPlace::Unknown => Held::Unknown,
            };
            runs.push(Run { end: reached, held });
        }
        let (end, held) = (u64::MAX, Held::Zeros);
        match are_all {
            true => runs.push(Run { end, held }),
            false if reached <= at => return Err(io::ErrorKind::InvalidData.into()),
            false => {}
        }
        Ok(runs)
    }

    fn runs_by_holes(&self, at: u64) -> io::Result<Vec<Run>> {
        let (mut runs, mut reached) = (Vec::new(), at);
        while reached < self.bytes && runs.len() < RUNS {
            let data = match seek(&self.file, SeekFrom::Data(reached)) {
                Err(Errno::NXIO) => self.bytes,
                data => data?,
            };
            if data > reached {
                let (end, held) = (data, Held::Zeros);
                runs.push(Run { end, held });
            }
            if data >= self.bytes {
                break;
            }
            reached = seek(&self.file, SeekFrom::Hole(data))?;
            let held = Held::Unknown;
            runs.push(Run { end: reached, held });
        }
        Ok(runs)
    }
}

/// What both have from `at` on, as far as is looked at in one step.
pub(super) fn runs_of_both(
    data: &DataFile,
    since: &DataFile,
    at: u64,
) -> io::Result<(Vec<Run>, Vec<Run>)> {
    let before = since.runs(at)?;
    let runs = data.runs(at)?;
    // A file system may move what it has, as in a balance of Btrfs: places say what is the same
    // only if neither has moved while both were looked at.
    match since.runs(at)? == before {
        true => Ok((runs, before)),
        false => {
            let (end, held) = (u64::MAX, Held::Unknown);
            Ok((runs, vec![Run { end, held }]))
        }
    }
}

/// A walk over what a snapshot holds that another does not, in order. Blocks.
pub(super) struct ChangedRanges<'f> {
    data: &'f DataFile,
    /// `None`: compared with zeros.
    since: Option<&'f DataFile>,
    reached: u64,
    /// Those that are found and not told, the next one last.
    found: Vec<ChangedRange>,
}

impl<'f> ChangedRanges<'f> {
    /// What lies behind `from`.
    pub(super) fn new(data: &'f DataFile, since: Option<&'f DataFile>, from: u64) -> Self {
        ChangedRanges {
            data,
            since,
            reached: from,
            found: Vec::new(),
        }
    }

    /// Runs of both from where it has come to.
    fn runs(&self) -> io::Result<(Vec<Run>, Vec<Run>)> {
        match self.since {
            Some(since) => runs_of_both(self.data, since, self.reached),
            None => {
                let (end, held) = (u64::MAX, Held::Zeros);
                Ok((self.data.runs(self.reached)?, vec![Run { end, held }]))
            }
        }
    }

    /// Looks at the next runs of both.
    fn step(&mut self) -> io::Result<()> {
        let (mine, theirs) = self.runs()?;
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), theirs.into_iter().peekable());
        while self.reached < self.data.bytes
            && let (Some(&one), Some(&other)) = (mine.peek(), theirs.peek())
        {
            let end = one.end.min(other.end).min(self.data.bytes);
            if one.held.may_differ(other.held) {
                self.add(end, one.held == Held::Zeros);
            }
            self.reached = end;
            mine.next_if(|run| run.end <= end);
            theirs.next_if(|run| run.end <= end);
        }
        self.found.reverse();
        Ok(())
    }

    fn add(&mut self, end: u64, is_zeros: bool) {
        let (offset, len) = (self.reached, end - self.reached);
        match self.found.last_mut() {
            _ if len == 0 => {}
            Some(last)
                if last.range.offset + last.range.len == offset && last.is_zeros == is_zeros =>
            {
                last.range.len += len;
            }
            _ => self.found.push(ChangedRange {
                range: Range { offset, len },
                is_zeros,
            }),
        }
    }
}

impl Iterator for ChangedRanges<'_> {
    type Item = io::Result<ChangedRange>;

    fn next(&mut self) -> Option<io::Result<ChangedRange>> {
        while self.found.is_empty() && self.reached < self.data.bytes {
            if let Err(error) = self.step() {
                self.reached = self.data.bytes;
                return Some(Err(error));
            }
        }
        self.found.pop().map(Ok)
    }
}
