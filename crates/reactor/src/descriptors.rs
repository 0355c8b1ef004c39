//! Where file descriptors enter a driver and leave it: files that were opened, sockets
//! that were bound, accepted or inherited. To all others they are opaque, so that a
//! driver whose connections and files are not the kernel's fits behind the same interface.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::{cpu, sys};

/// What a driver over the kernel cannot take.
pub(crate) const NOT_THE_KERNELS: &str = "a socket or listener of the kernel";

/// A file or block device that drivers read and write.
#[derive(Debug)]
pub struct DiskFile(OwnedFd);

impl From<OwnedFd> for DiskFile {
    fn from(descriptor: OwnedFd) -> DiskFile {
        DiskFile(descriptor)
    }
}

impl From<std::fs::File> for DiskFile {
    fn from(file: std::fs::File) -> DiskFile {
        DiskFile(file.into())
    }
}

/// For what is asked of a file beside reads and writes: its size, its attributes.
impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DiskFile {
    #[inline]
    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// An address to accept connections on; any driver takes it.
#[derive(Debug)]
pub struct BoundListener {
    address: SocketAddr,
    /// None where the driver's listeners are not the kernel's.
    descriptor: Option<OwnedFd>,
}

impl BoundListener {
    /// Takes `address` and lets connections queue up. Port 0 lets the kernel choose.
    ///
    /// # Errors
    /// The kernel's: the address is in use, is not ours, or takes a privilege.
    pub fn bind(address: SocketAddr) -> io::Result<BoundListener> {
        TcpListener::bind(address)?.try_into()
    }

    /// For a driver whose network is not the kernel's: it makes of the address what it needs.
    pub fn unbound(address: SocketAddr) -> BoundListener {
        BoundListener {
            address,
            descriptor: None,
        }
    }

    /// Where it accepts, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor.expect(NOT_THE_KERNELS)
    }
}

impl TryFrom<TcpListener> for BoundListener {
    type Error = io::Error;

    /// Of a socket that listens already.
    fn try_from(listener: TcpListener) -> io::Result<BoundListener> {
        Ok(BoundListener {
            address: listener.local_addr()?,
            descriptor: Some(listener.into()),
        })
    }
}

/// A connection that no driver has: just accepted, or on its way to the driver of
/// another core. To drop it closes it.
#[derive(Debug)]
pub struct ConnectedSocket(Connected);

#[derive(Debug)]
enum Connected {
    Descriptor(OwnedFd),
    /// Of a network that is not the kernel's.
    Numbered {
        number: u64,
        local: SocketAddr,
    },
}

impl ConnectedSocket {
    /// The connection of this number in a network that is not the kernel's, and our address.
    pub fn numbered(number: u64, local: SocketAddr) -> ConnectedSocket {
        ConnectedSocket(Connected::Numbered { number, local })
    }

    /// Its number, if it has one instead of a descriptor.
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            Connected::Numbered { number, .. } => Some(number),
            Connected::Descriptor(_) => None,
        }
    }

    /// Our address.
    ///
    /// # Errors
    /// The kernel's, where the connection is gone.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Connected::Descriptor(descriptor) => sys::local_addr(descriptor),
            Connected::Numbered { local, .. } => Ok(*local),
        }
    }

    /// The processor on which the kernel last processed packets of it, where it says so.
    pub fn incoming_cpu(&self) -> Option<usize> {
        match &self.0 {
            Connected::Descriptor(descriptor) => cpu::incoming_cpu(descriptor),
            Connected::Numbered { .. } => None,
        }
    }

    /// Its descriptor, unless it has a number instead.
    pub fn into_descriptor(self) -> Option<OwnedFd> {
        match self.0 {
            Connected::Descriptor(descriptor) => Some(descriptor),
            Connected::Numbered { .. } => None,
        }
    }
}

impl From<OwnedFd> for ConnectedSocket {
    /// Of a stream socket that is connected.
    fn from(descriptor: OwnedFd) -> ConnectedSocket {
        ConnectedSocket(Connected::Descriptor(descriptor))
    }
}

impl From<TcpStream> for ConnectedSocket {
    fn from(stream: TcpStream) -> ConnectedSocket {
        OwnedFd::from(stream).into()
    }
}
