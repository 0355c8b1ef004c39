//! A client whose calls go by RPCSEC_GSS (RFC 2203).

use std::sync::Arc;

use auth::gss::{GssContext, GssError};
use doubles::gss::{FakeContext, SERVICES, token_of};
use nfs::gss::{Contexts, ContextsSettings, major};
use nfs::server::Secret;
use wire::rpc::rpc_gss_service_t;

use super::*;

const NAME: &str = "user7@TEST";
/// Seconds since 1970 that no test comes to.
const LATER: u64 = 1 << 40;
const INTEGRITY: rpc_gss_service_t = SERVICES[1];

/// A client, its server, and what the server knows of contexts.
struct World {
    client: Client,
    server: RpcDouble,
    contexts: Arc<Contexts>,
    model: Model,
}

impl World {
    fn new(service: rpc_gss_service_t) -> World {
        let contexts = Contexts::new(ContextsSettings::default(), Secret([7; 16]));
        let contexts = Arc::new(contexts);
        let mut client = Client::new(settings());
        client.end.machine.secure(service);
        World {
            server: served(&contexts),
            client,
            contexts,
            model: Model::default(),
        }
    }

    /// The server has what the client sends, and the client what the server answers at once.
    fn exchange(&mut self) {
        self.client.end.machine.prepare().expect("it protects");
        let mut sent = self.client.send();
        while self.server.receive(&mut sent, usize::MAX) {}
        self.answers(usize::MAX);
    }

    fn answers(&mut self, max: usize) {
        let mut told = told(&mut self.server);
        self.client.receive_all(&mut told, max);
    }

    /// Makes a context of this name.
    fn establish(&mut self, name: &str) {
        assert!(self.client.end.machine.wants_context());
        self.client.end.machine.send_token(&token_of(name, LATER));
        self.exchange();
        let mut answer = self.answer();
        if answer.is_continued() {
            let machine = &mut self.client.end.machine;
            machine.send_token(&token_of(name, LATER));
            self.exchange();
            answer = self.answer();
        }
        assert!(answer.is_complete() && answer.token == b"welcome");
        let context = Box::new(FakeContext::new(name, LATER));
        let machine = &mut self.client.end.machine;
        machine.establish(context, &answer).expect("the server's");
    }

    fn answer(&mut self) -> ContextAnswer {
        let answer = self.client.tokens.pop().expect("an answer");
        answer.expect("it was let in")
    }

    /// Executes all calls that the server has.
    fn execute(&mut self) {
        while !self.server.calls.is_empty() {
            self.model.execute(&mut self.server, 0);
        }
    }
}

fn served(contexts: &Arc<Contexts>) -> RpcDouble {
    let machine = Served::new(ServedSettings::default(), 0);
    RpcDouble::with_contexts(machine, contexts.clone())
}

fn told(server: &mut RpcDouble) -> VecDeque<u8> {
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 3);
    }
    out
}

#[test]
fn calls_wait_for_a_context_and_go_in_it_with_their_data() {
    for service in SERVICES {
        for (max, name) in [(1, NAME), (37, "slow7"), (usize::MAX, NAME)] {
            let mut world = World::new(service);
            let data = content(11, 1001);
            let write = world.client.write(4096, &data);
            let read = world.client.read(8192, 4097);
            world.exchange();
            assert!(world.server.calls.is_empty(), "they wait");
            world.establish(name);
            world.exchange();
            assert_eq!(world.server.calls.len(), 2, "{service:?}");
            world.execute();
            world.answers(max);
            assert_eq!(world.client.fatal, None);
            assert_eq!(world.model.written, [(4096, data)]);
            let tags: Vec<Tag> = world.client.answers.iter().map(|(tag, ..)| *tag).collect();
            assert_eq!(tags, [write, read]);
            let (_, results, data) = world.client.answers.pop().expect("the READ's");
            assert_eq!(data, content(8192, 4097), "{service:?}, {max}");
            let results = results.expect("it succeeded");
            let mut results = Results::read(&results, true).expect("results");
            results.done(nfs_opnum4::OP_PUTFH).expect("PUTFH");
            let read: READ4resok = results.take(nfs_opnum4::OP_READ).expect("READ");
            assert!(read.data.len == 4097 && results.rest().is_empty());
        }
    }
}

#[test]
fn errors_of_operations_come_through_every_service() {
    for service in SERVICES {
        let mut world = World::new(service);
        world.establish(NAME);
        world.model.status = Some(nfsstat4::NFS4ERR_IO);
        world.client.read(0, 100);
        world.exchange();
        world.execute();
        world.answers(usize::MAX);
        let (_, results, data) = world.client.answers.pop().expect("an answer");
        let results = results.expect("RPC succeeded");
        let mut results = Results::read(&results, true).expect("results");
        results.done(nfs_opnum4::OP_PUTFH).expect("PUTFH");
        let read = results.take::<READ4resok>(nfs_opnum4::OP_READ);
        let status = read.expect_err("it failed").status();
        assert_eq!((status, data), (Some(nfsstat4::NFS4ERR_IO), Vec::new()));
    }
}

#[test]
fn call_whose_context_the_server_has_lost_goes_again_in_another() {
    for service in SERVICES {
        let mut world = World::new(service);
        world.establish(NAME);
        let data = content(0, 300);
        world.client.write(0, &data);
        world.client.getattr();
        world.contexts.clear();
        world.exchange();
        assert!(world.server.calls.is_empty() && world.client.answers.is_empty());
        world.establish("user8@TEST");
        world.exchange();
        assert_eq!(world.server.calls.len(), 2, "{service:?}");
        world.execute();
        world.answers(usize::MAX);
        assert_eq!(world.client.answers.len(), 2);
        assert_eq!(world.model.written, [(0, data)]);
    }
}

#[test]
fn answers_in_the_context_before_are_taken() {
    let mut world = World::new(INTEGRITY);
    world.establish(NAME);
    world.client.getattr();
    world.exchange();
    // The server answers this one, and has lost its context before the next comes.
    world.execute();
    let mut first = told(&mut world.server);
    world.contexts.clear();
    world.client.getattr();
    world.exchange();
    world.establish(NAME);
    world.client.receive_all(&mut first, usize::MAX);
    assert!(world.client.answers.len() == 1 && world.client.fatal.is_none());
    world.exchange();
    world.execute();
    world.answers(usize::MAX);
    assert!(world.client.answers.len() == 2 && world.client.fatal.is_none());
}

#[test]
fn server_that_loses_every_context_has_refused_the_call() {
    let mut world = World::new(INTEGRITY);
    world.client.getattr();
    for _ in 0..3 {
        world.establish(NAME);
        world.contexts.clear();
        world.exchange();
        assert!(world.client.answers.is_empty());
    }
    world.establish(NAME);
    world.contexts.clear();
    world.exchange();
    let why = rejected_reply::AUTH_ERROR(auth_stat::RPCSEC_GSS_CREDPROBLEM);
    let (_, refused, _) = world.client.answers.pop().expect("an answer");
    assert_eq!(refused, Err(RpcRefused::Denied(why)));
}

#[test]
fn context_that_the_server_refuses_is_told_with_its_reason() {
    let mut world = World::new(INTEGRITY);
    world.client.end.machine.send_token(&token_of("bad", LATER));
    world.exchange();
    let answer = world.answer();
    assert!(!answer.is_complete() && !answer.is_continued());
    assert_eq!((answer.major, answer.minor), (major::FAILURE, 77));
    let forged = Box::new(FakeContext::new("bad", LATER));
    let machine = &mut world.client.end.machine;
    assert!(machine.establish(forged, &answer).is_err());
    // A server without Kerberos.
    let mut world = World::new(INTEGRITY);
    world.server = server();
    world.client.end.machine.send_token(&token_of(NAME, LATER));
    world.exchange();
    let refused = world.client.tokens.pop().expect("an answer");
    assert!(matches!(refused, Err(RpcRefused::Denied(_))), "{refused:?}");
}

#[test]
fn answer_of_which_a_byte_differs_is_none() {
    for service in SERVICES {
        let begin = |world: &mut World| {
            world.establish(NAME);
            world.client.getattr();
            world.exchange();
            world.execute();
            told(&mut world.server)
        };
        let len = begin(&mut World::new(service)).len();
        let mut ended = 0;
        // From behind the identifier and the type on: the verifier, and what is protected.
        for at in 12..len {
            let mut world = World::new(service);
            let mut told = begin(&mut world);
            told[at] ^= 1;
            world.client.receive_all(&mut told, usize::MAX);
            ended += usize::from(world.client.fatal == Some(RpcClientFatalError::Unproven));
            let is_changed = world.client.answers.iter().any(|(_, results, _)| {
                let results = results.as_ref().ok();
                results.is_some_and(|results| results[results.len() - 21..] != *ATTRS)
            });
            assert!(
                service == SERVICES[0] || !is_changed,
                "byte {at}, {service:?}"
            );
        }
        assert!(ended >= 16, "{service:?}: {ended} of {len}");
    }
}

#[test]
fn lost_stream_costs_neither_calls_nor_the_context() {
    for service in SERVICES {
        let mut world = World::new(service);
        world.client.write(0, &content(0, 50));
        // While the context is made.
        world.client.end.machine.send_token(&token_of(NAME, LATER));
        world.client.end.machine.prepare().expect("it protects");
        world.client.send();
        world.client.restart();
        world.server = served(&world.contexts);
        world.establish(NAME);
        // When the call has gone out.
        world.client.end.machine.prepare().expect("it protects");
        assert!(!world.client.send().is_empty());
        world.client.restart();
        world.server = served(&world.contexts);
        assert!(!world.client.end.machine.wants_context());
        world.exchange();
        world.execute();
        world.answers(usize::MAX);
        assert_eq!(world.client.answers.len(), 1, "{service:?}");
        assert_eq!(world.model.written, [(0, content(0, 50))]);
    }
}

#[test]
fn calls_for_every_slot_are_taken_while_a_context_is_made() {
    let mut world = World::new(INTEGRITY);
    world.client.end.machine.send_token(&token_of(NAME, LATER));
    assert_eq!(world.client.end.machine.room(), settings().calls_max);
    for _ in 0..settings().calls_max {
        world.client.getattr();
    }
    assert_eq!(world.client.end.machine.room(), 0);
    let more = world.client.end.machine.null();
    assert_eq!(more, None);
}

#[test]
fn calls_under_way_are_no_more_than_the_window_of_the_server() {
    let mut world = World::new(INTEGRITY);
    let settings = RpcClientSettings {
        calls_max: 200,
        ..settings()
    };
    world.client = Client::new(settings);
    world.client.end.machine.secure(INTEGRITY);
    world.establish(NAME);
    for _ in 0..200 {
        world.client.getattr();
    }
    world.exchange();
    assert_eq!(world.server.calls.len(), 128);
    world.execute();
    world.answers(usize::MAX);
    world.exchange();
    assert_eq!(world.server.calls.len(), 72);
    world.execute();
    world.answers(usize::MAX);
    assert_eq!(world.client.answers.len(), 200);
}

/// A context that is good for nothing.
struct Useless(FakeContext);

impl GssContext for Useless {
    fn mic(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), GssError> {
        Err(GssError::NoContext)
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        self.0.verify_mic(message, mic)
    }

    fn wrap_ahead(&self) -> usize {
        self.0.wrap_ahead()
    }

    fn wrap(&mut self, _: &mut Vec<u8>, _: std::ops::Range<usize>) -> Result<(), GssError> {
        Err(GssError::NoContext)
    }

    fn unwrap(&mut self, _: &mut [u8]) -> Result<std::ops::Range<usize>, GssError> {
        Err(GssError::NoContext)
    }

    fn client_name(&self) -> &str {
        self.0.client_name()
    }

    fn expires_at_s(&self) -> u64 {
        self.0.expires_at_s()
    }
}

#[test]
fn contexts_that_protect_nothing_are_not_made_for_ever() {
    let mut world = World::new(INTEGRITY);
    world.client.getattr();
    for made in 1..=3 {
        assert!(world.client.end.machine.wants_context());
        world.client.end.machine.send_token(&token_of(NAME, LATER));
        world.exchange();
        let answer = world.answer();
        let context = Box::new(Useless(FakeContext::new(NAME, LATER)));
        let machine = &mut world.client.end.machine;
        machine.establish(context, &answer).expect("the server's");
        let prepared = machine.prepare();
        assert_eq!(prepared.is_err(), made == 3, "{made}");
        assert!(!machine.has_transmit() && machine.wants_context());
    }
}
