//! The bytes below a machine.
//!
//! A link asks its stream for bytes and gives it batches; the stream alone asks the
//! driver. It passes bytes as they are, or opens records of TLS before the link sees their
//! bytes and seals them before the driver sees the batch (`secure.rs`).

use auth::psk::TlsPsk;
use mem::{BufRange, Pool, Stage};
use reactor::{Batch, ConnectedSocket, Driver, Received, SocketId, Token};
use tls::{Handshake, ProvenPeer};

use crate::secure::{
    HandshakeDone, HandshakeWork, Opening, OpeningLayer, RecordLayer, StreamProblem, TlsBytes,
};

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

/// What lies between the link and the socket.
enum Layer {
    /// Nothing.
    Plain,
    /// A handshake, or the first byte that tells whether there is one.
    Opening(Box<OpeningLayer>),
    /// Records.
    Secure(Box<RecordLayer>),
}

/// A connected socket of a driver, with one receive and one send at a time.
pub struct Stream {
    socket: SocketId,
    tokens: StreamTokens,
    receiving: bool,
    sending: bool,
    /// More lies in the socket: the next receive ends at once.
    has_more: bool,
    layer: Layer,
    /// Why nothing more is received; told once.
    problem: Option<StreamProblem>,
    has_failed: bool,
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
            layer: Layer::Plain,
            problem: None,
            has_failed: false,
        }
    }

    /// The same of a server that makes a handshake of TLS first, or, where that is allowed,
    /// none with peers that begin with something else.
    #[must_use]
    pub fn with_handshake(self, handshake: impl Into<Handshake>, allows_plain: bool) -> Stream {
        let layer = OpeningLayer::looking(handshake.into(), allows_plain);
        Stream {
            layer: Layer::Opening(Box::new(layer)),
            ..self
        }
    }

    /// Makes a handshake of TLS from here on, of a client first of all, of a server once the
    /// peer begins it: what was sent and received up to now was in the clear, what follows is
    /// not. Panics where TLS is spoken already, or something is under way.
    pub fn begin_handshake(&mut self, handshake: impl Into<Handshake>) {
        let is_quiet = !self.sending && !self.receiving;
        assert!(
            is_quiet && matches!(self.layer, Layer::Plain),
            "a plain stream"
        );
        self.layer = Layer::Opening(Box::new(OpeningLayer::begun(handshake.into())));
    }

    /// Whether the next receive ends at once, with what lies in the socket.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether a batch is on its way to the kernel.
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.sending || matches!(&self.layer, Layer::Secure(layer) if layer.has_unsealed())
    }

    /// Whether the driver has a batch of it.
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.sending
    }

    /// The key that both sides have proved to have; `None`: there is none.
    pub fn psk(&self) -> Option<&TlsPsk> {
        match self.proven_peer()? {
            ProvenPeer::Psk(psk) => Some(psk),
            ProvenPeer::Certificate(_) => None,
        }
    }

    /// What the peer has proved in a handshake of TLS; `None`: what is sent is not encrypted.
    pub fn proven_peer(&self) -> Option<&ProvenPeer> {
        match &self.layer {
            Layer::Secure(layer) => Some(layer.peer()),
            Layer::Plain | Layer::Opening(_) => None,
        }
    }

    /// The cipher suite of the connection, as TLS calls it; `None`: it is not encrypted.
    pub fn cipher_suite(&self) -> Option<&'static str> {
        match &self.layer {
            Layer::Secure(layer) => Some(layer.cipher_suite()),
            Layer::Plain | Layer::Opening(_) => None,
        }
    }

    /// What was in the records of the connection so far; `None`: it is not encrypted.
    #[inline]
    pub fn tls_bytes(&self) -> Option<TlsBytes> {
        match &self.layer {
            Layer::Secure(layer) => Some(layer.bytes()),
            Layer::Plain | Layer::Opening(_) => None,
        }
    }

    /// Whether a handshake of TLS is under way.
    pub fn is_in_handshake(&self) -> bool {
        matches!(self.layer, Layer::Opening(_))
    }

    /// Whether the peer has said that nothing more comes of it.
    #[inline]
    pub fn peer_has_ended(&self) -> bool {
        matches!(&self.layer, Layer::Secure(layer) if layer.peer_has_ended())
    }

    /// Whether nothing more is taken of it: it closes when all is sent.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Why that is so, once.
    #[inline]
    pub fn take_problem(&mut self) -> Option<StreamProblem> {
        self.problem.take()
    }

    /// The connection ends: a handshake that has begun and is not over has failed by that.
    #[cold]
    pub fn end_handshake(&mut self, why: StreamProblem) {
        let is_begun = matches!(&self.layer, Layer::Opening(layer) if layer.is_begun());
        if is_begun && !self.has_failed {
            self.fail(why);
        }
    }

    /// Whether the key of what is sent has become used up, once, where the peer is not known to
    /// take another: it has to connect again.
    #[inline]
    pub fn take_key_used_up(&mut self) -> bool {
        match &mut self.layer {
            Layer::Plain | Layer::Opening(_) => false,
            Layer::Secure(layer) => layer.take_key_used_up(),
        }
    }

    #[cold]
    fn fail(&mut self, problem: StreamProblem) {
        if let (Layer::Secure(layer), StreamProblem::Record(error)) = (&mut self.layer, &problem) {
            layer.fail(error.alert());
        }
        self.problem = Some(problem);
        self.has_failed = true;
    }

    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        self.receiving
    }

    /// Whether bytes can be asked for now.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        let is_away = || matches!(&self.layer, Layer::Opening(layer) if layer.wanted_bytes() == 0);
        !self.receiving && !self.has_failed && !self.peer_has_ended() && !is_away()
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
        let (direct, stage, stage_max) = match &mut self.layer {
            Layer::Plain => (direct, stage, stage_max),
            // No protocol has begun, so none has bytes that it keeps.
            Layer::Opening(layer) => (None, None, layer.wanted_bytes()),
            Layer::Secure(layer) => {
                let (cipher, cipher_max) = layer.begin_receive(direct, stage, stage_max);
                (None, cipher, cipher_max)
            }
        };
        driver.recv(self.socket, direct, stage, stage_max, self.tokens.receive);
    }

    /// What the link gets of what was received.
    #[inline]
    pub(crate) fn on_received(&mut self, received: Received) -> Received {
        self.receiving = false;
        self.has_more = received.more;
        match self.layer {
            Layer::Plain => received,
            Layer::Opening(_) | Layer::Secure(_) => self.open(received),
        }
    }

    fn open(&mut self, received: Received) -> Received {
        let nothing = Received {
            direct: 0,
            stage: None,
            ..received
        };
        let opened = match &mut self.layer {
            Layer::Plain => return received,
            Layer::Opening(layer) => match layer.on_received(&received) {
                // What came before the end says why it ends; then the socket tells of it again.
                Ok(Opening::Handshake) => Ok(Received {
                    eof: nothing.eof && layer.is_idle(),
                    ..nothing
                }),
                Ok(Opening::Plain) => {
                    self.layer = Layer::Plain;
                    return received;
                }
                Err(problem) => Err(problem),
            },
            Layer::Secure(layer) => layer.on_received(received).map_err(StreamProblem::from),
        };
        opened.unwrap_or_else(|problem| {
            self.fail(problem);
            Received {
                direct: 0,
                stage: None,
                eof: false,
                more: false,
            }
        })
    }

    /// A step of a handshake that is to be made, elsewhere if others wait.
    #[inline]
    pub fn take_handshake(&mut self) -> Option<HandshakeWork> {
        match &mut self.layer {
            Layer::Plain | Layer::Secure(_) => None,
            Layer::Opening(layer) => layer.take_work(),
        }
    }

    /// A step was made. `Some`: with the last, and what was received behind the handshake,
    /// which is to be taken as if it had been received now.
    pub fn on_handshake<D: Driver>(&mut self, done: HandshakeDone, driver: &D) -> Option<Received> {
        let Layer::Opening(layer) = &mut self.layer else {
            return None;
        };
        match layer.on_step(done)? {
            Err(error) => {
                self.fail(StreamProblem::Handshake(error));
                None
            }
            Ok(mut secured) => {
                let left = std::mem::take(&mut secured.left);
                let (ahead, pool) = (layer.take_output(), driver.pool().clone());
                let stage = (!left.is_empty()).then(|| {
                    let mut stage = pool.stage_of(left.len() as u32);
                    stage.make_room(&pool, left.len() as u32);
                    stage.append(&left);
                    stage
                });
                self.layer = Layer::Secure(Box::new(RecordLayer::new(secured, ahead, pool)));
                stage.map(|stage| Received {
                    direct: 0,
                    stage: Some(stage),
                    eof: false,
                    more: self.has_more,
                })
            }
        }
    }

    /// A send of records has several buffers from now on, all but the first of `pool`, which
    /// counts them to a host. That is for targets: a target waits for what its host sends, and
    /// is faster where the first of it leaves early. Without records nothing changes.
    pub fn count_to(&mut self, pool: &Pool) {
        if let Layer::Secure(layer) = &mut self.layer {
            layer.count_to(pool);
        }
    }

    /// Whether it has bytes of its own to send, or a rest of a batch.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        match &self.layer {
            Layer::Plain => false,
            Layer::Opening(layer) => layer.has_output(),
            Layer::Secure(layer) => layer.has_output(),
        }
    }

    /// Whether a batch can be given to it.
    #[inline]
    pub(crate) fn takes_batches(&self) -> bool {
        !self.has_failed && !matches!(self.layer, Layer::Opening(_))
    }

    /// As [`Driver::send`].
    #[inline]
    pub(crate) fn send<D: Driver>(&mut self, driver: &mut D, batch: Box<Batch>) {
        match &mut self.layer {
            Layer::Secure(layer) => {
                layer.take(batch);
                self.send_output(driver);
            }
            Layer::Plain | Layer::Opening(_) => {
                self.sending = true;
                driver.send(self.socket, batch, self.tokens.send);
            }
        }
    }

    /// Sends what it has of its own, and the next of a batch.
    pub(crate) fn send_output<D: Driver>(&mut self, driver: &mut D) {
        let batch = match &mut self.layer {
            Layer::Plain => return,
            Layer::Opening(layer) => {
                let mut batch = driver.batch();
                batch.header(&layer.take_output());
                batch
            }
            Layer::Secure(layer) => layer.seal(driver),
        };
        self.sending = true;
        driver.send(self.socket, batch, self.tokens.send);
    }

    #[inline]
    pub(crate) fn on_sent(&mut self) {
        self.sending = false;
    }

    /// Nothing more is to be sent: the peer is told, where there is a way to.
    #[inline]
    pub fn end_output(&mut self) {
        if let Layer::Secure(layer) = &mut self.layer
            && !self.has_failed
        {
            layer.end();
        }
    }

    /// The same at once, behind what is sealed already: nothing is sent afterwards.
    pub fn say_end<D: Driver>(&mut self, driver: &mut D) {
        self.end_output();
        if matches!(self.layer, Layer::Secure(_)) && self.has_output() && !self.sending {
            self.send_output(driver);
        }
    }

    /// Bytes of memory that wait in it.
    pub(crate) fn held_bytes(&self) -> u64 {
        match &self.layer {
            Layer::Plain | Layer::Opening(_) => 0,
            Layer::Secure(layer) => layer.held_bytes(),
        }
    }

    /// As [`Driver::peer_has_closed`].
    pub fn peer_has_closed<D: Driver>(&self, driver: &mut D) -> bool {
        driver.peer_has_closed(self.socket)
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
