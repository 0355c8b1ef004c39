//! Directories, entry by entry.
//!
//! A cookie is the place that the file system below gives an entry (`d_off`),
//! and three more, since the first of NFS's are taken. ext4, XFS, Btrfs and
//! tmpfs (Linux 6.6) keep it while others come and go. For those that count
//! entries a listing goes on with the descriptor that it began with, as long as
//! there is no pause.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::fs::{OFlags, RawDir, SeekFrom, Statx, seek};
use rustix::io::Errno;

use super::DirInner;
use super::beneath::{SeenObject, proc_path};
use super::table::Record;
use crate::fs::{Attr, Caller, Error, FileId, FsOp, Listing, Rights, access};

/// What a place below is more as a cookie.
const COOKIES_FROM: u64 = 3;
/// Bytes of entries that are read at once.
const ENTRIES_BYTES: usize = 32 << 10;
/// Listings that go on with their descriptor.
const STREAMS_MAX: usize = 32;

/// A listing that may go on.
pub(super) struct Stream {
    dir: FileId,
    /// Of the last entry that was given out.
    cookie: u64,
    fd: OwnedFd,
}

/// What a client asks for.
struct Wanted {
    cookie: u64,
    entries_max: usize,
    name_bytes_max: usize,
    with_attrs: bool,
}

impl DirInner {
    fn streams(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No client has gone on with a listing for a while.
    pub(super) fn close_streams(&self) {
        drop(std::mem::take(&mut *self.streams()));
    }

    /// A descriptor that reads on behind a cookie.
    fn stream(&self, dir: FileId, seen: &SeenObject, cookie: u64) -> Result<OwnedFd, Error> {
        let mut streams = self.streams();
        let is_it = |stream: &Stream| stream.dir == dir && stream.cookie == cookie;
        let found = streams.iter().position(is_it);
        let stream = found.map(|at| streams.swap_remove(at));
        drop(streams);
        let fd = match stream {
            // It may have been replaced by another directory meanwhile.
            Some(stream)
                if self
                    .beneath
                    .look(Arc::new(stream.fd.try_clone()?))?
                    .identity
                    .is(&seen.identity) =>
            {
                stream.fd
            }
            _ => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                self.beneath.reopen(seen.fd.as_fd(), flags)?
            }
        };
        let place = cookie.saturating_sub(COOKIES_FROM);
        match seek(&fd, SeekFrom::Start(place)) {
            Ok(_) => Ok(fd),
            Err(Errno::INVAL | Errno::OVERFLOW) => Err(Error::BadCookie),
            Err(errno) => Err(errno.into()),
        }
    }

    fn keep_stream(&self, dir: FileId, cookie: u64, fd: OwnedFd) {
        let mut streams = self.streams();
        let oldest = (streams.len() >= STREAMS_MAX).then(|| streams.remove(0));
        streams.push(Stream { dir, cookie, fd });
        drop(streams);
        drop(oldest);
    }

    /// Entries of one directory, as `op` asks for them.
    pub(super) fn readdir(&self, caller: &Caller<'_>, op: &FsOp<'_>) -> Result<Listing, Error> {
        let FsOp::Readdir {
            dir,
            cookie,
            verifier,
            entries_max,
            name_bytes_max,
            with_attrs,
        } = *op
        else {
            unreachable!("asked for a listing");
        };
        let _shared = self.share(dir);
        let (seen, attr) = self.directory(dir)?;
        access::check(&attr, caller, Rights::READ)?;
        if cookie != 0 && verifier != self.info.instance {
            return Err(Error::NotSame);
        }
        if (1..COOKIES_FROM).contains(&cookie) {
            return Err(Error::BadCookie);
        }
        let wanted = Wanted {
            cookie,
            entries_max: entries_max as usize,
            name_bytes_max: name_bytes_max as usize,
            with_attrs,
        };
        let fd = self.stream(dir, &seen, cookie)?;
        let listing = self.list(dir, &seen, &fd, &wanted)?;
        if let Some(last) = listing.last_cookie()
            && !listing.is_end
        {
            self.keep_stream(dir, last, fd);
        }
        Ok(listing)
    }

    fn list(
        &self,
        dir: FileId,
        seen: &SeenObject,
        fd: &OwnedFd,
        wanted: &Wanted,
    ) -> Result<Listing, Error> {
        let mut bytes = [const { MaybeUninit::uninit() }; ENTRIES_BYTES];
        let mut entries = RawDir::new(fd, &mut bytes);
        let mut listing = Listing::new(self.info.instance);
        let mut are_known = true;
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The directory was removed while it was read.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name_bytes = listing.name_bytes() + name.len();
            if listing.len() == wanted.entries_max || name_bytes > wanted.name_bytes_max {
                return match listing.is_empty() {
                    true => Err(Error::TooSmall),
                    false => Ok(listing),
                };
            }
            let cookie = entry.next_entry_cookie().wrapping_add(COOKIES_FROM);
            if cookie <= COOKIES_FROM || cookie == wanted.cookie {
                // A file system below whose places mean nothing.
                return Err(Error::NotSupp);
            }
            let name = entry.file_name();
            let Some((file, attr)) =
                self.entry((dir, seen), name, wanted.with_attrs, &mut are_known)?
            else {
                continue;
            };
            listing.push(cookie, file, name.to_bytes());
            if let Some(attr) = attr {
                listing.set_attr(attr);
            }
        }
        listing.is_end = true;
        Ok(listing)
    }

    /// An entry's object; nothing if it is not there for clients. Where one is
    /// new to the table the next one often is, too.
    fn entry(
        &self,
        (dir, seen): (FileId, &SeenObject),
        name: &CStr,
        with_attrs: bool,
        are_known: &mut bool,
    ) -> Result<Option<(FileId, Option<Attr>)>, Error> {
        let bytes = name.to_bytes();
        let way = || [proc_path(seen.fd.as_fd()).as_bytes(), b"/", bytes].concat();
        let found = match *are_known {
            true => self.known_entry((dir, seen), name),
            false => Ok(None),
        };
        let found = found.and_then(|known| match known {
            Some(known) => Ok(known),
            None => {
                let found = self.beneath.look_up(seen, bytes)?;
                let (file, record, is_new) = self.number_and_record(&found, dir, bytes)?;
                *are_known = !is_new;
                Ok((file, record, found.stat))
            }
        });
        let (file, record, stat) = match found {
            Ok(found) => found,
            // What has just gone, and what is mounted there.
            Err(Error::NoEnt | Error::XDev) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attr = with_attrs.then(|| self.attr_of(file, &record, &stat, way));
        Ok(Some((file, attr.transpose()?)))
    }

    /// An entry that is where the table says, met without opening it.
    fn known_entry(
        &self,
        (dir, seen): (FileId, &SeenObject),
        name: &CStr,
    ) -> Result<Option<(FileId, Record, Statx)>, Error> {
        let (stat, identity) = self.beneath.peek(seen, name)?;
        let mut table = self.table();
        let known = table.find(&identity)?.filter(|(_, record)| {
            (record.dir, &record.name[..], record.is_lost) == (dir.0, name.to_bytes(), false)
        });
        let Some((number, mut record)) = known else {
            return Ok(None);
        };
        let file = FileId(number);
        self.note_change(&mut table, (file, &mut record), &stat, false)?;
        Ok(Some((file, record, stat)))
    }
}
