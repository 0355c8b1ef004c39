//! What the io_uring driver keeps of a socket.

use crate::batch::Batch;
use crate::receive::pieces;
use crate::sys;
use crate::types::Token;
use mem::{BufRange, Stage};
use rustix::net::SocketAddrAny;
use std::io;
use std::ops::{Index, IndexMut};
use std::os::fd::OwnedFd;

/// A receive that is under way.
pub(super) struct Recv {
    pub(super) token: Token,
    pub(super) direct: Option<BufRange>,
    /// None where the bytes go to a stage of the ring, if there are to be any.
    pub(super) stage: Option<Stage>,
    pub(super) stage_max: u32,
    /// The stage was the caller's: it goes back even if nothing came.
    pub(super) stage_given: bool,
}

impl Recv {
    /// Whether its bytes go to a stage of the ring.
    #[inline]
    pub(super) fn picks(&self) -> bool {
        self.direct.is_none() && self.stage.is_none()
    }
}

/// A send that is under way.
pub(super) struct Send {
    pub(super) token: Token,
    pub(super) batch: Box<Batch>,
}

/// A connect that is under way.
pub(super) struct Connect {
    pub(super) token: Token,
    pub(super) addr: SocketAddrAny,
}

/// Sockets whose memory is taken at a time.
const BLOCK_LEN: usize = 64;

/// The table of sockets. Each stays where it is, since the kernel reads and writes its
/// `message` and `pieces`. They lie in blocks: one by one among what else a connection
/// takes, each would keep a page of the heap when the connection is gone.
#[derive(Default)]
pub(super) struct Sockets {
    blocks: Vec<Box<[Socket]>>,
    len: usize,
}

impl Sockets {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// One more place; its index.
    pub(super) fn grow(&mut self) -> u32 {
        if self.len == self.blocks.len() * BLOCK_LEN {
            let block = (0..BLOCK_LEN).map(|_| Socket::new());
            self.blocks.push(block.collect());
        }
        self.len += 1;
        self.len as u32 - 1
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.blocks.iter_mut().flatten()
    }
}

impl Index<usize> for Sockets {
    type Output = Socket;

    #[inline]
    fn index(&self, index: usize) -> &Socket {
        &self.blocks[index / BLOCK_LEN][index % BLOCK_LEN]
    }
}

impl IndexMut<usize> for Sockets {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Socket {
        &mut self.blocks[index / BLOCK_LEN][index % BLOCK_LEN]
    }
}

/// One place in the table of sockets.
pub(super) struct Socket {
    pub(super) generation: u32,
    pub(super) fd: Option<OwnedFd>,
    /// Completions that the kernel still owes us.
    pub(super) owed: u32,
    pub(super) closing: Option<Token>,
    pub(super) accept: Option<Token>,
    /// A listener that others go on with: it is closed and not shut down.
    pub(super) is_inherited: bool,
    pub(super) connect: Option<Box<Connect>>,
    pub(super) recv: Option<Recv>,
    pub(super) send: Option<Send>,
    /// A zero-copy send has not been answered yet.
    pub(super) zero_copy: bool,
    pub(super) worth: Worth,
    /// More bytes lay in the socket when the last receive ended.
    pub(super) has_more: bool,
    /// The last batch was a single PDU.
    pub(super) is_lone: bool,
    pub(super) last_recv_bytes: u32,
    pub(super) message: libc::msghdr,
    pub(super) pieces: [libc::iovec; 2],
}

impl Socket {
    pub(super) fn new() -> Socket {
        Socket {
            generation: 0,
            fd: None,
            owed: 0,
            closing: None,
            accept: None,
            is_inherited: false,
            connect: None,
            recv: None,
            send: None,
            zero_copy: false,
            worth: Worth::default(),
            has_more: false,
            is_lone: false,
            last_recv_bytes: 0,
            message: sys::empty_message(),
            pieces: pieces(None, None, 0).0,
        }
    }

    /// Whether nothing is outstanding.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.owed == 0
    }
}

/// Notices after which it is decided whether zero-copy sends go on, and how
/// many of them may say that the kernel did not copy while it is still no use.
const NOTICES: u8 = 16;
const NOT_COPIED_MAX: u8 = 1;

/// Whether zero-copy sends of a socket are: on some ways (loopback, a bridge of
/// virtual machines) the kernel copies everything after all.
#[derive(Default)]
pub(super) struct Worth {
    notices: u8,
    not_copied: u8,
    pub(super) is_given_up: bool,
}

impl Worth {
    /// A send was copied after all, or was not; whether that ends it.
    pub(super) fn notice(&mut self, copied: bool) -> bool {
        self.notices += 1;
        self.not_copied += u8::from(!copied);
        if self.notices < NOTICES || self.is_given_up {
            return false;
        }
        self.is_given_up = self.not_copied <= NOT_COPIED_MAX;
        (self.notices, self.not_copied) = (0, 0);
        self.is_given_up
    }
}

/// A zero-copy send: its batch is the kernel's until the last notification.
pub(super) struct Flight {
    pub(super) socket: u32,
    pub(super) token: Token,
    pub(super) batch: Box<Batch>,
    pub(super) notifications: u32,
    /// Requests of it that are not answered, and the first error among those
    /// that are.
    pub(super) unanswered: u32,
    pub(super) error: Option<io::Error>,
    /// The kernel refused; the rest is copied.
    pub(super) is_plain: bool,
    pub(super) is_answered: bool,
}

/// A table whose free places are used again.
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = Some(item);
                index
            }
            None => {
                self.items.push(Some(item));
                // So that taking out never allocates.
                self.free.reserve(self.items.len());
                (self.items.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(super) fn get(&mut self, index: u32) -> &mut T {
        self.items[index as usize]
            .as_mut()
            .expect("a completion belongs to a live operation")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let items = (0..).zip(&self.items);
        items.filter_map(|(index, item)| Some((index, item.as_ref()?)))
    }

    #[inline]
    pub(super) fn take(&mut self, index: u32) -> T {
        let item = self.items[index as usize].take();
        self.free.push(index);
        item.expect("a completion belongs to a live operation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_copy_ends_where_nearly_all_is_copied() {
        let told = |copied: [bool; 16]| {
            let mut worth = Worth::default();
            let ended = copied.map(|copied| worth.notice(copied));
            assert!(!ended[..15].contains(&true), "too early");
            assert_eq!(ended[15], worth.is_given_up);
            worth.is_given_up
        };
        assert!(told([true; 16]));
        let mut some = [true; 16];
        some[3] = false;
        assert!(told(some));
        some[15] = false;
        assert!(!told(some));
    }

    #[test]
    fn zero_copy_ends_once_and_each_window_counts_for_itself() {
        let mut worth = Worth::default();
        assert!((0..16).all(|_| !worth.notice(false)));
        let ended = (0..64).filter(|_| worth.notice(true)).count();
        assert_eq!(ended, 1);
    }
}
