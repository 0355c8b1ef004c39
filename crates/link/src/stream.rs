//! The bytes below a machine.
//!
//! A link asks its stream for bytes and gives it batches; the stream alone asks the
//! driver. It passes bytes as they are. The place for TLS is here: records are opened
//! before the link sees their bytes, and sealed before the driver sees the batch.

use mem::{BufRange, Stage};
use reactor::{Batch, ConnectedSocket, Driver, Received, SocketId, Token};

/// What the completions of a stream carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamTokens {
    /// Of a receive.
    pub receive: Token,
    /// Of a send.
    pub send: Token,
    /// Of its end.
    pub close: Token,
}

/// A connected socket of a driver, with one receive and one send at a time.
pub struct Stream {
    socket: SocketId,
    tokens: StreamTokens,
    receiving: bool,
    sending: bool,
    /// More lies in the socket: the next receive ends at once.
    has_more: bool,
}

impl Stream {
    /// Of a socket that nothing is under way on, but perhaps its connect.
    pub fn new(socket: SocketId, tokens: StreamTokens) -> Stream {
        Stream {
            socket,
            tokens,
            receiving: false,
            sending: false,
            has_more: false,
        }
    }

    /// Whether the next receive ends at once, with what lies in the socket.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether a batch is on its way to the kernel.
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.sending
    }

    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        self.receiving
    }

    /// As [`Driver::recv`].
    #[inline]
    pub(crate) fn receive<D: Driver>(
        &mut self,
        driver: &mut D,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
    ) {
        self.receiving = true;
        driver.recv(self.socket, direct, stage, stage_max, self.tokens.receive);
    }

    #[inline]
    pub(crate) fn on_received(&mut self, received: &Received) {
        self.receiving = false;
        self.has_more = received.more;
    }

    /// As [`Driver::send`].
    #[inline]
    pub(crate) fn send<D: Driver>(&mut self, driver: &mut D, batch: Box<Batch>) {
        self.sending = true;
        driver.send(self.socket, batch, self.tokens.send);
    }

    #[inline]
    pub(crate) fn on_sent(&mut self) {
        self.sending = false;
    }

    /// Ends it, once; nothing but the completion of that comes afterwards.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        driver.close(self.socket, self.tokens.close);
    }

    /// Takes the connection out of its driver, for another one. `None`: something of it
    /// is under way.
    pub fn leave<D: Driver>(&mut self, driver: &mut D) -> Option<ConnectedSocket> {
        driver.remove_socket(self.socket)
    }
}
