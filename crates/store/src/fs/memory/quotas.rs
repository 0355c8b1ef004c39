//! Limits of quotas, their trees, and the room that they leave.

use super::MemoryInner;
use super::node::NODE_BYTES;
use crate::fs::quota::{Quota, QuotaRefused, QuotaSubject, Tree};
use crate::fs::{Asker, Caller, Error, FileId, MODE_MASK, New, Output, SetAttr, Statfs, Time};

/// Entries of a directory that are looked at under its lock.
const ENTRIES_MAX: usize = 256;

impl MemoryInner {
    pub(super) fn statfs(&self, caller: &Caller<'_>, file: FileId) -> Result<Statfs, Error> {
        let (space, quotas) = (&self.store.space, &self.store.quotas);
        let charged = self.table.read(file)?.charged.clone();
        let own = quotas.charged(caller.uid, caller.gid, &charged.tree);
        let mut quota = quotas.room(&charged);
        quota.avail_hard = quota.avail_hard.min(space.free());
        quota.avail_soft = quota.avail_soft.min(space.free());
        Ok(Statfs {
            bytes: space.bytes(),
            bytes_free: space.free(),
            files: space.bytes() / NODE_BYTES,
            files_free: space.free() / NODE_BYTES,
            bytes_avail: quotas.room(&own).avail_hard.min(space.free()),
            quota,
        })
    }

    /// Directories of trees that are not there are made, as this file system is empty when it
    /// starts.
    pub(super) fn set_quotas(&self, list: &[Quota], now: Time) -> Result<(), QuotaRefused> {
        let mut roots = Vec::new();
        for quota in list {
            let QuotaSubject::Tree(path) = &quota.subject else {
                continue;
            };
            if path == "/" {
                continue;
            }
            let refused = |error| QuotaRefused {
                subject: quota.subject.clone(),
                error,
            };
            let root = self.tree_root(path, now).map_err(refused)?;
            roots.push((path.clone(), root));
        }
        let changes = self.store.quotas.set(list, &roots);
        for root in changes.gone {
            self.move_tree(root, &None);
        }
        for tree in changes.come {
            if let Some(root) = tree.root() {
                self.move_tree(root, &Some(tree));
            }
        }
        Ok(())
    }

    /// The directory at a path, which is made if it is not there, for all users, as the
    /// uppermost one.
    fn tree_root(&self, path: &str, now: Time) -> Result<FileId, Error> {
        let caller = Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now,
            is_open: false,
            from: Asker::default(),
        };
        let mut at = self.root;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let set = SetAttr {
                mode: Some(self.table.read(self.root)?.attr.mode & MODE_MASK),
                ..SetAttr::default()
            };
            let name = name.as_bytes();
            at = match self.create(&caller, (at, name), New::Directory, &set) {
                Ok((Output::Created { attr, .. }, _)) => attr.file,
                Err(Error::Exist) => self.lookup(&caller, at, name)?,
                Ok(_) => unreachable!("made or not"),
                Err(error) => return Err(error),
            };
        }
        self.table.read(at)?.directory()?;
        Ok(at)
    }

    /// A directory with all below comes into a tree, or out of one. What is made there
    /// meanwhile belongs to the tree of its directory; what is moved waits until it does
    /// itself.
    fn move_tree(&self, root: FileId, tree: &Tree) {
        let Ok(mut node) = self.table.write(root) else {
            return;
        };
        let charge = node.charge();
        let quotas = &self.store.quotas;
        quotas.move_tree(&mut node.charged, tree, charge);
        drop(node);
        let mut left = vec![root];
        while let Some(dir) = left.pop() {
            let mut cookie = 0;
            while let Some(found) = self.names_after(dir, cookie) {
                for (at, name, file) in found {
                    cookie = at;
                    let Ok(mut both) = self.table.lock(&[dir, file]) else {
                        continue;
                    };
                    let directory = both.get(dir).directory();
                    let is_there = directory.is_ok_and(|directory| {
                        directory.get(self.hash(&name), &name) == Some(file)
                    });
                    if !is_there {
                        continue;
                    }
                    let node = both.get(file);
                    let charge = node.charge();
                    quotas.move_tree(&mut node.charged, tree, charge);
                    if node.is_directory() {
                        left.push(file);
                    }
                }
            }
        }
    }

    /// Some entries behind a cookie; `None` where there are no more.
    #[expect(clippy::type_complexity, reason = "cookie, name and object")]
    fn names_after(&self, dir: FileId, cookie: u64) -> Option<Vec<(u64, Box<[u8]>, FileId)>> {
        let node = self.table.read(dir).ok()?;
        let entries = node.directory().ok()?.after(cookie).take(ENTRIES_MAX);
        let found: Vec<_> = entries
            .map(|(cookie, entry)| (cookie, entry.name.clone(), entry.file))
            .collect();
        (!found.is_empty()).then_some(found)
    }
}
