//! Quotas of a directory, which weft counts itself: room is taken before an operation that may
//! need it, and what the object has become is looked at after it.
//!
//! What an operation takes that cannot be foreseen, as a directory that grows by a name or an
//! extended attribute, is counted after it; whoever is beyond a limit by that gets no more of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::DirInner;
use super::beneath::SeenObject;
use super::counting::Counting;
use super::ledger::{Credit, Ledger, ObjectKey, UsageSeen};
use super::opens::{OpenFile, ReadyFile};
use crate::fs::quota::{Charged, Quota, QuotaRefused, QuotaSubject, Quotas};
use crate::fs::{Attr, Caller, Error, FileId, Statfs, Time};

#[derive(Default)]
pub(super) struct DirQuotas {
    pub(super) accounts: Quotas,
    pub(super) ledger: Ledger,
    is_on: AtomicBool,
    pub(super) counting: Counting,
}

/// Room that an operation has taken; what it does not use is given back.
#[derive(Default)]
pub(super) struct Reserved {
    quotas: Option<Arc<DirQuotas>>,
    pub(super) credit: Credit,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let (Some(quotas), Some((of, bytes, objects))) = (&self.quotas, self.credit.take()) {
            quotas.accounts.give(&of, bytes, objects);
        }
    }
}

impl DirQuotas {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The time of a look that comes now; `None` where nothing is counted.
    #[inline]
    pub(super) fn version(&self) -> Option<u64> {
        self.is_on().then(|| self.ledger.tick())
    }
}

fn take(
    quotas: &Arc<DirQuotas>,
    of: Charged,
    (bytes, objects): (u64, u64),
    now: Time,
) -> Result<Reserved, Error> {
    quotas.accounts.at(now);
    quotas.accounts.take(&of, bytes, objects)?;
    Ok(Reserved {
        quotas: Some(Arc::clone(quotas)),
        credit: Some((of, bytes, objects)),
    })
}

impl DirInner {
    /// Takes room for a new object, that of a user and a group.
    pub(super) fn reserve_object(
        &self,
        caller: &Caller<'_>,
        (attr, dir): (&Attr, &Attr),
        bytes: u64,
    ) -> Result<Reserved, Error> {
        if !self.quotas.is_on() {
            return Ok(Reserved::default());
        }
        self.check_not_over(dir)?;
        let of = self.quotas.accounts.charged(attr.uid, attr.gid, &None);
        take(&self.quotas, of, (bytes, 1), caller.now)
    }

    /// Refuses what may take more, where more than a limit allows is there already.
    pub(super) fn check_not_over(&self, attr: &Attr) -> Result<(), Error> {
        if !self.quotas.is_on() {
            return Ok(());
        }
        let of = self.quotas.accounts.charged(attr.uid, attr.gid, &None);
        match self.quotas.accounts.is_over(&of) {
            true => Err(Error::DQuot),
            false => Ok(()),
        }
    }

    fn key_of(&self, file: FileId) -> Result<ObjectKey, Error> {
        let record = self.table().get(file.0)?.ok_or(Error::Stale)?;
        Ok(record.identity.into())
    }

    /// Takes room for what is to be written to a range of a file.
    pub(super) fn reserve_range(
        &self,
        caller: &Caller<'_>,
        (ready, attr): (&ReadyFile, &Attr),
        (offset, len): (u64, u64),
    ) -> Result<Reserved, Error> {
        if !self.quotas.is_on() || len == 0 {
            return Ok(Reserved::default());
        }
        let of = self.quotas.accounts.charged(attr.uid, attr.gid, &None);
        let bytes = self.growth(ready, attr, (offset, len))?;
        take(&self.quotas, of, (bytes, 0), caller.now)
    }

    /// The largest part of a range that a limit leaves room for, and one block at least.
    pub(super) fn len_that_fits(&self, attr: &Attr, len: u64) -> u64 {
        if !self.quotas.is_on() {
            return len;
        }
        let of = self.quotas.accounts.charged(attr.uid, attr.gid, &None);
        let room = self.quotas.accounts.room(&of).avail_hard;
        len.min(room.max(u64::from(self.info.clone_block_bytes)))
    }

    /// Bytes at most that a file takes more when a range of it is written.
    fn growth(
        &self,
        ready: &ReadyFile,
        attr: &Attr,
        (offset, len): (u64, u64),
    ) -> Result<u64, Error> {
        let block = u64::from(self.info.clone_block_bytes).max(512);
        let up = |at: u64| at.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let end = offset.saturating_add(len);
        // As large as if it had no hole.
        let most = up(attr.size.max(end)).saturating_sub(attr.used_bytes);
        let mut from = offset;
        if most > 0 && offset < attr.size {
            from = match seek(&*ready.fd, SeekFrom::Hole(offset)) {
                Ok(hole) => hole,
                Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => offset,
                Err(errno) => return Err(errno.into()),
            };
            if from >= end {
                return Ok(0);
            }
        }
        Ok((up(end) - from / block * block).min(most))
    }

    /// What an object has become counts.
    pub(super) fn charge(
        &self,
        seen: &SeenObject,
        attr: &Attr,
        version: Option<u64>,
        room: &mut Reserved,
    ) {
        let Some(version) = version else { return };
        let look = UsageSeen {
            version,
            bytes: attr.used_bytes,
            owner: Some((attr.uid, attr.gid)),
        };
        let is_there = || {
            let now = self.beneath.look(Arc::clone(&seen.fd));
            now.is_ok_and(|seen| seen.stat.stx_nlink > 0)
        };
        let quotas = &*self.quotas;
        let with = (&mut room.credit, is_there);
        quotas
            .ledger
            .put(&quotas.accounts, seen.identity.into(), look, with);
    }

    /// What the content of a file has become counts.
    pub(super) fn settle(&self, ready: &ReadyFile, room: &mut Reserved) -> Result<(), Error> {
        let Some(version) = self.quotas.version() else {
            return Ok(());
        };
        let seen = self.beneath.look(ready.fd.file().clone())?;
        let bytes = seen.stat.stx_blocks * 512;
        ready.entry.set_dense(seen.stat.stx_size, bytes);
        let look = UsageSeen {
            version,
            bytes,
            owner: None,
        };
        let (quotas, key) = (&*self.quotas, seen.identity.into());
        let with = (&mut room.credit, || true);
        if !quotas.ledger.put(&quotas.accounts, key, look, with) {
            let attr = self.attr(ready.entry.file, &seen, false)?;
            self.charge(&seen, &attr, Some(version), room);
        }
        Ok(())
    }

    /// Files that were closed are looked at again: what was set aside for their growth is given
    /// back then.
    pub(super) fn look_again(&self, files: &[Arc<OpenFile>]) {
        for entry in files {
            if self.quotas.is_on() && entry.take_unsettled() {
                self.look_at(entry.file);
            }
        }
    }

    pub(super) fn look_at(&self, file: FileId) {
        let version = self.quotas.version();
        if let Ok(seen) = self.object(file)
            && let Ok(attr) = self.attr(file, &seen, false)
        {
            self.charge(&seen, &attr, version, &mut Reserved::default());
        }
    }

    /// An object is to belong to others: whether they may have it. The caller looks at it again
    /// if it does not come to that.
    pub(super) fn give_to(
        &self,
        caller: &Caller<'_>,
        (seen, old): (&SeenObject, &Attr),
        new: &Attr,
    ) -> Result<(), Error> {
        if (old.uid, old.gid) == (new.uid, new.gid) || !self.quotas.is_on() {
            return Ok(());
        }
        let version = self.quotas.version();
        self.charge(seen, old, version, &mut Reserved::default());
        let quotas = &*self.quotas;
        quotas.accounts.at(caller.now);
        let (key, owner) = (seen.identity.into(), (new.uid, new.gid));
        quotas
            .ledger
            .give_to(&quotas.accounts, &key, owner, caller.is_root())
    }

    /// Before the record of an object goes: it counts no more.
    pub(super) fn uncharge(&self, identity: ObjectKey) {
        let quotas = &self.quotas;
        if quotas.is_on() {
            quotas.ledger.remove(&quotas.accounts, &identity);
            if quotas.ledger.has_room_again() {
                quotas.counting.ask_again();
            }
        }
    }

    /// An object has lost its last name, and a client has it open: it counts until that ends.
    pub(super) fn keep_nameless(&self, identity: ObjectKey) {
        if self.quotas.is_on() {
            self.quotas.ledger.keep_nameless(&identity);
        }
    }

    /// An object that has a number counts no more.
    pub(super) fn uncharge_file(&self, file: FileId) {
        if self.quotas.is_on()
            && let Ok(key) = self.key_of(file)
        {
            self.uncharge(key);
        }
    }

    pub(super) fn statfs_of(&self, caller: &Caller<'_>, file: FileId) -> Result<Statfs, Error> {
        let mut stat = self.statfs()?;
        if !self.quotas.is_on() {
            return Ok(stat);
        }
        let quotas = &*self.quotas;
        quotas.accounts.at(caller.now);
        let attr = self.getattr(file)?;
        let of = |uid, gid| quotas.accounts.charged(uid, gid, &None);
        let free = stat.bytes_free;
        stat.quota = quotas.accounts.room(&of(attr.uid, attr.gid));
        stat.quota.avail_hard = stat.quota.avail_hard.min(free);
        stat.quota.avail_soft = stat.quota.avail_soft.min(free);
        let own = quotas.accounts.room(&of(caller.uid, caller.gid));
        stat.bytes_avail = own.avail_hard.min(free);
        Ok(stat)
    }

    /// From now on these are the limits. What is there is counted in the background, unless it
    /// has been.
    pub(super) fn set_quotas(self: &Arc<DirInner>, list: &[Quota]) -> Result<(), QuotaRefused> {
        let is_tree =
            |quota: &&Quota| matches!(&quota.subject, QuotaSubject::Tree(path) if path != "/");
        if let Some(quota) = list.iter().find(is_tree) {
            return Err(QuotaRefused {
                subject: quota.subject.clone(),
                error: Error::NotSupp,
            });
        }
        let quotas = &self.quotas;
        quotas.accounts.set(list, &[]);
        let was_on = quotas.is_on.swap(!list.is_empty(), Ordering::AcqRel);
        match (was_on, list.is_empty()) {
            (false, false) => self.count(),
            (true, true) => {
                quotas.counting.stop();
                quotas.ledger.clear(&quotas.accounts);
                quotas.accounts.set_counting(false);
            }
            _ => {}
        }
        Ok(())
    }

    /// What of an object's content is known to be on blocks is less than it was.
    pub(super) fn not_dense(&self, ready: &ReadyFile) {
        ready.entry.set_dense(1, 0);
    }
}
