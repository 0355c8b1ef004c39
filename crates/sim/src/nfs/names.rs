//! What a client knows of the names in its own directory: no other client changes
//! them, so it knows how each operation must end.

use wire::nfs4::{nfs_ftype4, nfsstat4};

use super::ask::{Ask, New};
use crate::checker::{Verdict, Violation};

/// Names in a directory.
pub const NAMES: usize = 5;

/// What a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameEntry {
    Absent,
    /// With this fileid, if it is known.
    There {
        fileid: Option<u64>,
        is_dir: bool,
    },
}

/// One name.
#[derive(Clone, Debug)]
struct OneName {
    /// More than one after an operation that failed, or whose answer was lost with the
    /// server.
    may_be: Vec<NameEntry>,
    /// What a power cut may make of it besides.
    falls_back: Vec<NameEntry>,
    is_busy: bool,
}

/// All names of a directory.
#[derive(Clone, Debug)]
pub struct Names(Vec<OneName>);

impl Default for Names {
    fn default() -> Names {
        let name = OneName {
            may_be: vec![NameEntry::Absent],
            falls_back: Vec::new(),
            is_busy: false,
        };
        Names(vec![name; NAMES])
    }
}

fn concerned(ask: &Ask) -> Vec<usize> {
    match ask {
        Ask::Make(name, _) | Ask::Remove(name) | Ask::Look(name) => vec![*name],
        Ask::Rename(from, to) => vec![*from, *to],
        _ => Vec::new(),
    }
}

impl Names {
    /// Whether an operation on these names may begin; what to look at first
    /// where one of them is in doubt.
    pub fn begin(&mut self, ask: &Ask) -> Option<Ask> {
        let names = concerned(ask);
        if names.iter().any(|&name| self.0[name].is_busy) {
            return None;
        }
        let in_doubt = names
            .iter()
            .copied()
            .find(|&name| self.0[name].may_be.len() > 1);
        let ask = in_doubt.map_or_else(|| ask.clone(), Ask::Look);
        concerned(&ask)
            .iter()
            .for_each(|&name| self.0[name].is_busy = true);
        Some(ask)
    }

    /// The same for one that has begun and was not executed.
    pub fn begin_again(&mut self, ask: &Ask) -> Ask {
        self.free(ask);
        self.begin(ask).expect("it had these names for itself")
    }

    fn free(&mut self, ask: &Ask) {
        concerned(ask)
            .iter()
            .for_each(|&name| self.0[name].is_busy = false);
    }

    fn at(&self, name: usize) -> NameEntry {
        self.0[name].may_be[0]
    }

    fn set(&mut self, name: usize, entry: NameEntry) {
        self.0[name].may_be = vec![entry];
    }

    /// How an operation on names that are not in doubt must end.
    fn expected(&self, ask: &Ask) -> &'static [nfsstat4] {
        const OK: &[nfsstat4] = &[nfsstat4::NFS4_OK];
        const EXIST: &[nfsstat4] = &[nfsstat4::NFS4ERR_EXIST];
        const EXIST_DIR: &[nfsstat4] = &[nfsstat4::NFS4ERR_EXIST, nfsstat4::NFS4ERR_ISDIR];
        const NOENT: &[nfsstat4] = &[nfsstat4::NFS4ERR_NOENT];
        let is_there = |name| self.at(name) != NameEntry::Absent;
        match *ask {
            Ask::Make(name, _) if !is_there(name) => OK,
            Ask::Make(_, New::Directory) => EXIST,
            Ask::Make(..) => EXIST_DIR,
            Ask::Remove(name) if is_there(name) => OK,
            Ask::Remove(_) => NOENT,
            Ask::Rename(from, to) => match (self.at(from), self.at(to)) {
                (NameEntry::Absent, _) => NOENT,
                (NameEntry::There { is_dir, .. }, NameEntry::There { is_dir: over, .. })
                    if is_dir != over =>
                {
                    EXIST
                }
                _ => OK,
            },
            _ => OK,
        }
    }

    fn effect(&self, ask: &Ask, fileid: Option<u64>) -> Vec<(usize, NameEntry)> {
        match *ask {
            Ask::Make(name, new) => {
                let is_dir = new == New::Directory;
                vec![(name, NameEntry::There { fileid, is_dir })]
            }
            Ask::Remove(name) => vec![(name, NameEntry::Absent)],
            Ask::Rename(from, to) => vec![(to, self.at(from)), (from, NameEntry::Absent)],
            _ => Vec::new(),
        }
    }

    /// An operation has ended, with this object where one was found.
    pub fn ended(
        &mut self,
        ask: &Ask,
        status: nfsstat4,
        object: Option<(u64, nfs_ftype4)>,
    ) -> Verdict {
        self.free(ask);
        let wrong = |names: &Names, what: String| {
            let text = format!("{ask:?} of NFS {what}; {:?}", names.0);
            Err(Violation(text))
        };
        if let Ask::Look(name) = *ask {
            let found = match (status, object) {
                (nfsstat4::NFS4ERR_NOENT, _) => NameEntry::Absent,
                (nfsstat4::NFS4_OK, Some((fileid, kind))) => NameEntry::There {
                    fileid: Some(fileid),
                    is_dir: kind == nfs_ftype4::NF4DIR,
                },
                _ => return wrong(self, format!("ended with {status:?}")),
            };
            if !self.0[name].may_be.iter().any(|entry| fits(entry, &found)) {
                return wrong(self, format!("finds {found:?}"));
            }
            self.set(name, found);
            return Ok(());
        }
        if !self.expected(ask).contains(&status) {
            return wrong(
                self,
                format!("was executed otherwise than once: {status:?}"),
            );
        }
        if status == nfsstat4::NFS4_OK {
            for (name, entry) in self.effect(ask, object.map(|(fileid, _)| fileid)) {
                self.set(name, entry);
                // It was synced.
                self.0[name].falls_back.clear();
            }
        }
        Ok(())
    }

    /// An operation may have been executed, or not; if so, it may not be on the disk.
    pub fn lost(&mut self, ask: &Ask) {
        self.free(ask);
        if self.expected(ask) == [nfsstat4::NFS4_OK] {
            for (name, entry) in self.effect(ask, None) {
                let OneName {
                    may_be, falls_back, ..
                } = &mut self.0[name];
                add(may_be, &[entry]);
                add(falls_back, may_be);
            }
        }
    }

    /// The power has failed: a name that was not synced is what it was, or is not.
    pub fn power_failed(&mut self) {
        for name in &mut self.0 {
            add(&mut name.may_be, &name.falls_back);
        }
    }

    /// It was not executed.
    pub fn refused(&mut self, ask: &Ask) {
        self.free(ask);
    }
}

fn add(to: &mut Vec<NameEntry>, entries: &[NameEntry]) {
    for entry in entries {
        if !to.contains(entry) {
            to.push(*entry);
        }
    }
}

fn fits(known: &NameEntry, found: &NameEntry) -> bool {
    match (known, found) {
        (
            NameEntry::There {
                fileid: None,
                is_dir,
            },
            NameEntry::There { is_dir: other, .. },
        ) => is_dir == other,
        _ => known == found,
    }
}
