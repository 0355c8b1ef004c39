//! Where file descriptors enter a driver and leave it: files that were opened, sockets
//! that were bound, accepted or inherited. To all others they are opaque, so that a
//! driver whose connections and files are not the kernel's fits behind the same interface.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::{SocketOptions, cpu, socket_options, sys};

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
    /// A service manager has it too, and hosts queue up there when this process has closed it.
    is_inherited: bool,
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
            is_inherited: false,
        }
    }

    /// Where it accepts, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor.expect(NOT_THE_KERNELS)
    }
}

impl TryFrom<TcpListener> for BoundListener {
    type Error = io::Error;

    /// Of a socket that listens already.
    fn try_from(listener: TcpListener) -> io::Result<BoundListener> {
        let address = listener.local_addr()?;
        sys::unpace_loopback(&listener, &address);
        Ok(BoundListener {
            address,
            descriptor: Some(listener.into()),
            is_inherited: false,
        })
    }
}

/// Sockets that a service manager has opened for this process, and that listen already
/// (sd_listen_fds(3)).
#[derive(Debug, Default)]
pub struct InheritedSockets {
    /// Of TCP.
    pub tcp: Vec<BoundListener>,
    /// Of Unix streams.
    pub unix: Vec<UnixListener>,
}

impl InheritedSockets {
    /// Takes them, once: no program that this process starts finds them in its environment.
    ///
    /// # Errors
    /// One of them does not listen, or is of another kind.
    pub fn take() -> io::Result<InheritedSockets> {
        let mut handed = ListenFd::from_env();
        let mut sockets = InheritedSockets::default();
        for at in 0..handed.len() {
            if let Ok(Some(socket)) = handed.take_tcp_listener(at) {
                check_listening(&socket, at)?;
                let listener = BoundListener::try_from(socket)?;
                sockets.tcp.push(BoundListener {
                    is_inherited: true,
                    ..listener
                });
            } else if let Ok(Some(socket)) = handed.take_unix_listener(at) {
                check_listening(&socket, at)?;
                sockets.unix.push(socket);
            } else {
                return Err(not_a_listener(at));
            }
        }
        Ok(sockets)
    }
}

fn check_listening(socket: impl AsFd, at: usize) -> io::Result<()> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err(not_a_listener(at)),
        Err(error) => Err(error.into()),
    }
}

fn not_a_listener(at: usize) -> io::Error {
    io::Error::other(format!(
        "number {} of the sockets that the service manager hands over is no listener of TCP or \
         of Unix streams: leave it out of the socket unit, which has Accept=no",
        at + 1
    ))
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

    /// Sets options; what the kernel refuses, by the name of the option, and why.
    pub fn set_options(&self, options: &SocketOptions) -> Vec<(&'static str, io::Error)> {
        match &self.0 {
            Connected::Descriptor(descriptor) => options.set(descriptor),
            Connected::Numbered { .. } => Vec::new(),
        }
    }

    /// The processor on which the kernel last processed packets of it, where it says so.
    pub fn incoming_cpu(&self) -> Option<usize> {
        match &self.0 {
            Connected::Descriptor(descriptor) => cpu::incoming_cpu(descriptor),
            Connected::Numbered { .. } => None,
        }
    }

    /// The NAPI ID of the receive queue by which packets of it last came, where the kernel names one.
    pub fn incoming_napi_id(&self) -> Option<NonZeroU32> {
        match &self.0 {
            Connected::Descriptor(descriptor) => socket_options::incoming_napi_id(descriptor),
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
