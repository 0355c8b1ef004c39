//! Contexts of `crates/kerberos`, both sides, with tickets of MIT's KDC.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::gss::{ContextStep, GssContext, GssError, Unfinished};
use auth::gss_acceptor::{AcceptError, GssAcceptor};
use auth::gss_initiator::GssInitiator;
use interop::kdc::Realm;
use interop::weft::{WeftProcess, free_address};
use kerberos::{Acceptor, Initiator, Keys, Users};
use needs::needs;

/// Where the realm's files are, for the process that the test goes on in.
const FOLDER: &str = "WEFT_TEST_REALM";

/// Goes on with `body` in a process of its own, which has a realm that `prepare` has filled: the
/// library finds it by the environment alone.
fn in_realm(test: &str, more: &str, prepare: fn(&Realm) -> Result<(), String>, body: fn(&Path)) {
    if let Some(folder) = env::var_os(FOLDER) {
        return body(Path::new(&folder));
    }
    let realm = Realm::start(more).expect("a KDC, as everything for it is there");
    filled(&realm)
        .and_then(|()| prepare(&realm))
        .expect("principals and keys");
    let this = env::current_exe().expect("this program");
    let child = Command::new(this)
        .args([test, "--exact", "--nocapture"])
        .env(FOLDER, realm.folder())
        .env("KRB5_CONFIG", realm.folder().join("krb5.conf"))
        .env("KRB5CCNAME", realm.folder().join("tickets"))
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&child.stdout);
    let wrong = String::from_utf8_lossy(&child.stderr);
    let is_well = child.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_well, "{said}{wrong}");
}

/// A service on one host, and two clients.
fn filled(realm: &Realm) -> Result<(), String> {
    for (principal, keytab) in [
        ("nfs/host", "nfs.keytab"),
        ("root", "root.keytab"),
        ("alice", "alice.keytab"),
    ] {
        realm.add(principal)?;
        realm.add_keys(principal, keytab)?;
    }
    Ok(())
}

fn nothing_more(_: &Realm) -> Result<(), String> {
    Ok(())
}

fn acceptor(keytab: &Path) -> Acceptor {
    Acceptor::open(keytab, "nfs", Users::new("TEST")).expect("an acceptor")
}

fn initiator(folder: &Path, user: &str) -> Initiator {
    let keys = Keys::Keytab(folder.join(format!("{user}.keytab")));
    let principal = format!("{user}@TEST");
    Initiator::open(&keys, &principal, "nfs@host").expect("an initiator")
}

/// The initiator's first token. Nothing of Kerberos needs a second.
fn first_token(initiator: &Initiator) -> (Unfinished, Vec<u8>) {
    match initiator.step(None, b"") {
        Ok(ContextStep::Continue { token, unfinished }) => (unfinished, token),
        Ok(ContextStep::Done { .. }) => panic!("established before the acceptor proved itself"),
        Err(error) => panic!("{error}"),
    }
}

/// An acceptor's own token and the context, or why there is none.
type Accepted = Result<(Vec<u8>, Box<dyn GssContext>), (u32, String)>;

/// What an acceptor made of a token.
fn accepted(acceptor: &Acceptor, token: &[u8]) -> Accepted {
    match acceptor.step(None, token) {
        Ok(ContextStep::Done { token, context }) => Ok((token, context)),
        Err(AcceptError { major, why, .. }) => Err((major, why)),
        Ok(ContextStep::Continue { .. }) => panic!("Kerberos needs one token"),
    }
}

fn refusal(acceptor: &Acceptor, token: &[u8]) -> String {
    match accepted(acceptor, token) {
        Ok(_) => panic!("a context was made"),
        Err((major, why)) => {
            assert_ne!(major & 0xffff_0000, 0, "{why}");
            why
        }
    }
}

/// A context as its initiator and its acceptor have it.
fn pair(initiator: &Initiator, acceptor: &Acceptor) -> [Box<dyn GssContext>; 2] {
    let (begun, token) = first_token(initiator);
    let (answer, server) = accepted(acceptor, &token).expect("a context");
    match initiator.step(Some(begun), &answer) {
        Ok(ContextStep::Done { token, context }) => {
            assert!(token.is_empty());
            [context, server]
        }
        Ok(ContextStep::Continue { .. }) => panic!("a third token"),
        Err(error) => panic!("{error}"),
    }
}

fn mic(context: &mut Box<dyn GssContext>, message: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    context.mic(message, &mut out).expect("a MIC");
    out.split_off(6)
}

fn wrapped(context: &mut Box<dyn GssContext>, message: &[u8]) -> Vec<u8> {
    let ahead = context.wrap_ahead();
    let mut out = Vec::with_capacity(ahead + message.len() + 128);
    out.extend_from_slice(b"before");
    out.resize(6 + ahead, 0);
    out.extend_from_slice(message);
    let lies = out[6 + ahead..].as_ptr();
    context.wrap(&mut out, 6..6 + ahead).expect("a token");
    assert_eq!(out[6 + ahead..].as_ptr(), lies, "it is encrypted in place");
    assert_eq!(&out[..6], b"before");
    out.split_off(6)
}

fn unwrapped(context: &mut Box<dyn GssContext>, token: &[u8]) -> Result<Vec<u8>, GssError> {
    let mut token = token.to_vec();
    let range = context.unwrap(&mut token)?;
    Ok(token[range].to_vec())
}

/// Around the block of the cipher, and beyond what a call of NFS carries.
const SIZES: &[usize] = &[0, 1, 15, 16, 17, 4096, (1 << 20) + 300];

fn message(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn context_signs_and_encrypts_messages_of_any_size_in_either_direction() {
    let name = "context_signs_and_encrypts_messages_of_any_size_in_either_direction";
    in_realm(name, "", nothing_more, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let mut pair = pair(&initiator(folder, "alice"), &acceptor);
        for size in SIZES {
            for _ in 0..2 {
                let [from, to] = &mut pair;
                let message = message(*size);
                let mic = mic(from, &message);
                to.verify_mic(&message, &mic).expect("the same message");
                let token = wrapped(from, &message);
                assert_eq!(unwrapped(to, &token).as_ref(), Ok(&message), "{size}");
                assert!(*size < 16 || !token.windows(16).any(|at| at == &message[..16]));
                pair.reverse();
            }
        }
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn message_or_token_of_which_a_bit_differs_is_refused_and_the_next_is_taken() {
    let name = "message_or_token_of_which_a_bit_differs_is_refused_and_the_next_is_taken";
    in_realm(name, "", nothing_more, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let [mut client, mut server] = pair(&initiator(folder, "alice"), &acceptor);
        let message = message(100);
        let (right_mic, token) = (mic(&mut client, &message), wrapped(&mut client, &message));
        let bad = Err(GssError::BadMessage);
        let flipped = |bytes: &[u8], at: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            bytes
        };
        for at in 0..right_mic.len() {
            let wrong = flipped(&right_mic, at);
            assert_eq!(
                server.verify_mic(&message, &wrong),
                bad,
                "byte {at} of the MIC"
            );
        }
        for at in 0..message.len() {
            let wrong = flipped(&message, at);
            assert_eq!(server.verify_mic(&wrong, &right_mic), bad, "byte {at}");
        }
        for at in 0..token.len() {
            // How far it was rotated, which says nothing of the message (RFC 4121, section
            // 4.2.5), may be any number that leads to the same bytes.
            let wrong = unwrapped(&mut server, &flipped(&token, at));
            assert_ne!(wrong.as_ref(), Ok(&message), "byte {at} of the token");
            assert!(wrong.is_err(), "byte {at} of the token");
        }
        for length in 0..token.len() {
            assert!(
                unwrapped(&mut server, &token[..length]).is_err(),
                "{length} bytes"
            );
        }
        assert_eq!(server.verify_mic(&message, &right_mic), Ok(()));
        assert_eq!(unwrapped(&mut server, &token), Ok(message));
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn messages_of_another_context_or_direction_are_refused_and_their_order_is_free() {
    let name = "messages_of_another_context_or_direction_are_refused_and_their_order_is_free";
    in_realm(name, "", nothing_more, |folder| {
        let (acceptor, initiator) = (
            acceptor(&folder.join("nfs.keytab")),
            initiator(folder, "alice"),
        );
        let [mut client, mut server] = pair(&initiator, &acceptor);
        let [mut other, _] = pair(&initiator, &acceptor);
        let bad = Err(GssError::BadMessage);
        let foreign = mic(&mut other, b"message");
        assert_eq!(server.verify_mic(b"message", &foreign), bad);
        let foreign = wrapped(&mut other, b"message");
        assert_eq!(unwrapped(&mut server, &foreign), Err(GssError::BadMessage));
        let own = mic(&mut server, b"message");
        assert_eq!(server.verify_mic(b"message", &own), bad);
        let mics: Vec<_> = (0..10).map(|_| mic(&mut client, b"message")).collect();
        for mic in mics.iter().rev().chain(&mics) {
            assert_eq!(server.verify_mic(b"message", mic), Ok(()));
        }
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn context_knows_its_client_the_user_here_and_the_end_of_its_ticket() {
    let name = "context_knows_its_client_the_user_here_and_the_end_of_its_ticket";
    in_realm(
        name,
        "ticket_lifetime = 1000s\nclockskew = 100",
        nothing_more,
        |folder| {
            let acceptor = acceptor(&folder.join("nfs.keytab"));
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("after 1970").as_secs();
            for (user, uid) in [("root", Some(0)), ("alice", None)] {
                let pair = pair(&initiator(folder, user), &acceptor);
                for context in &pair {
                    assert_eq!(context.client_name(), format!("{user}@TEST"));
                    let end = context.expires_at_s();
                    assert!(end > now && end <= now + 1000 + 100 + 60, "{end}, {now}");
                }
                assert_eq!(pair[1].user().map(|user| user.uid), uid, "{user}");
            }
        },
    );
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn tickets_in_a_file_serve_as_a_keytab_does() {
    let name = "tickets_in_a_file_serve_as_a_keytab_does";
    let prepare = |realm: &Realm| {
        let keytab = realm.folder().join("alice.keytab");
        realm
            .get_tickets("alice@TEST", &keytab, "tickets", &[])
            .map(drop)
    };
    in_realm(name, "", prepare, |folder| {
        let keys = Keys::Cache(folder.join("tickets"));
        let initiator = Initiator::open(&keys, "alice@TEST", "nfs@host").expect("tickets");
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let [_, server] = pair(&initiator, &acceptor);
        assert_eq!(server.client_name(), "alice@TEST");
        let other = Initiator::open(&keys, "root@TEST", "nfs@host");
        assert!(other.is_err(), "the tickets are of alice");
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn context_after_the_users_tickets_expired_and_were_renewed_is_made_by_one_initiator() {
    let name = "context_after_the_users_tickets_expired_and_were_renewed_is_made_by_one_initiator";
    let prepare = |realm: &Realm| {
        let keytab = realm.folder().join("alice.keytab");
        realm.get_tickets("alice@TEST", &keytab, "renewed", &[])?;
        let short = &["-l", "4s"];
        realm
            .get_tickets("alice@TEST", &keytab, "tickets", short)
            .map(drop)
    };
    in_realm(name, "clockskew = 1", prepare, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let initiator = Initiator::of_user("nfs@host").expect("tickets");
        let [_, server] = pair(&initiator, &acceptor);
        assert_eq!(server.client_name(), "alice@TEST");
        thread::sleep(Duration::from_secs(6));
        let why = match initiator.step(None, b"") {
            Ok(_) => panic!("the ticket has expired"),
            Err(why) => why,
        };
        assert!(why.contains("expired") && why.contains("kinit"), "{why}");
        fs::rename(folder.join("renewed"), folder.join("tickets")).expect("renamed");
        let [_, server] = pair(&initiator, &acceptor);
        assert_eq!(server.client_name(), "alice@TEST");
        fs::remove_file(folder.join("tickets")).expect("removed");
        let why = match Initiator::of_user("nfs@host") {
            Ok(_) => panic!("there are no tickets"),
            Err(error) => error.to_string(),
        };
        assert!(why.contains("`kinit` gets them"), "{why}");
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn renewed_keytab_is_taken_without_opening_it_again() {
    let name = "renewed_keytab_is_taken_without_opening_it_again";
    let prepare = |realm: &Realm| {
        // New keys of the next version, beside the older ones.
        let keytab = realm.folder().join("nfs.keytab");
        let old = realm.folder().join("old.keytab");
        fs::copy(&keytab, old).map_err(|error| error.to_string())?;
        realm.add_keys("nfs/host", "nfs.keytab").map(drop)
    };
    in_realm(name, "", prepare, |folder| {
        let keytab = folder.join("old.keytab");
        let acceptor = acceptor(&keytab);
        let initiator = initiator(folder, "alice");
        let (_, token) = first_token(&initiator);
        let why = refusal(&acceptor, &token);
        assert!(why.contains("KRB5KRB_AP_ERR_BADKEYVER"), "{why}");
        fs::rename(folder.join("nfs.keytab"), &keytab).expect("renamed");
        assert!(accepted(&acceptor, &token).is_ok());
        fs::remove_file(&keytab).expect("removed");
        let why = refusal(&acceptor, &token);
        assert!(why.contains("old.keytab"), "{why}");
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn ticket_for_another_service_or_key_is_refused_in_words_that_name_it() {
    let name = "ticket_for_another_service_or_key_is_refused_in_words_that_name_it";
    let prepare = |realm: &Realm| {
        realm.add("nfs/other")?;
        let other = realm.add_keys("nfs/other", "other.keytab")?;
        // The key of the one by the name of the other: the names are as long.
        let mut bytes = fs::read(other).map_err(|error| error.to_string())?;
        let service = b"nfs\0\x05other";
        while let Some(at) = bytes.windows(service.len()).position(|at| at == service) {
            bytes[at + 5..at + 10].copy_from_slice(b"hostx");
        }
        fs::write(realm.folder().join("wrong.keytab"), bytes).map_err(|e| e.to_string())?;
        realm.add("nfs/hostx")?;
        realm.add_keys("nfs/hostx", "hostx.keytab").map(drop)
    };
    in_realm(name, "", prepare, |folder| {
        let keys = Keys::Keytab(folder.join("alice.keytab"));
        let to = |target: &str| {
            let initiator = Initiator::open(&keys, "alice@TEST", target).expect("an initiator");
            first_token(&initiator).1
        };
        let why = refusal(&acceptor(&folder.join("other.keytab")), &to("nfs@host"));
        assert!(
            why.contains("nfs/host@TEST") && why.contains("klist -k"),
            "{why}"
        );
        fs::set_permissions(
            folder.join("wrong.keytab"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .expect("a mode");
        let why = refusal(&acceptor(&folder.join("wrong.keytab")), &to("nfs@hostx"));
        assert!(why.contains("not the one that the KDC has"), "{why}");
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn token_of_another_time_or_of_an_expired_ticket_is_refused_in_words_that_say_so() {
    let name = "token_of_another_time_or_of_an_expired_ticket_is_refused_in_words_that_say_so";
    let short = "clockskew = 1\nticket_lifetime = 4s";
    in_realm(name, short, nothing_more, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let initiator = initiator(folder, "alice");
        let (_, token) = first_token(&initiator);
        assert!(accepted(&acceptor, &token).is_ok());
        thread::sleep(Duration::from_millis(2_500));
        let why = refusal(&acceptor, &token);
        assert!(
            why.contains("KRB5KRB_AP_ERR_SKEW") && why.contains("NTP"),
            "{why}"
        );
        thread::sleep(Duration::from_millis(3_500));
        let why = refusal(&acceptor, &token);
        assert!(
            why.contains("KRB5KRB_AP_ERR_TKT_EXPIRED") && why.contains("kinit"),
            "{why}"
        );
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn initiator_says_that_kdc_or_keytab_does_not_know_its_service_or_client() {
    let name = "initiator_says_that_kdc_or_keytab_does_not_know_its_service_or_client";
    in_realm(name, "", nothing_more, |folder| {
        let keys = Keys::Keytab(folder.join("alice.keytab"));
        let why = |principal: &str, target: &str| {
            let initiator = match Initiator::open(&keys, principal, target) {
                Ok(initiator) => initiator,
                Err(error) => return error.to_string(),
            };
            match initiator.step(None, b"") {
                Ok(_) => panic!("{principal} has a ticket for {target}"),
                Err(error) => error.to_string(),
            }
        };
        let service = why("alice@TEST", "nfs@unknown");
        assert!(
            service.contains("KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN"),
            "{service}"
        );
        let client = why("bob@TEST", "nfs@host");
        assert!(
            client.contains("alice.keytab: ") && client.contains("klist -k"),
            "{client}"
        );
    });
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn contexts_of_many_threads_are_made_by_one_acceptor() {
    const THREADS: usize = 8;
    const CONTEXTS: usize = 25;
    let name = "contexts_of_many_threads_are_made_by_one_acceptor";
    in_realm(name, "", nothing_more, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let initiator = initiator(folder, "alice");
        let made: usize = thread::scope(|scope| {
            let many = |_| {
                scope.spawn(|| {
                    let verified = (0..CONTEXTS).filter(|_| {
                        let [mut client, mut server] = pair(&initiator, &acceptor);
                        let mic = mic(&mut client, b"message");
                        server.verify_mic(b"message", &mic).is_ok()
                    });
                    verified.count()
                })
            };
            let threads: Vec<_> = (0..THREADS).map(many).collect();
            let counts = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            counts.sum()
        });
        assert_eq!(made, THREADS * CONTEXTS);
    });
}

/// RPCSEC_GSS takes nothing without the key, so that no cache of tokens is kept.
#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn token_that_is_sent_again_makes_a_context_whose_key_the_sender_has_not() {
    let name = "token_that_is_sent_again_makes_a_context_whose_key_the_sender_has_not";
    in_realm(name, "", nothing_more, |folder| {
        let acceptor = acceptor(&folder.join("nfs.keytab"));
        let (_, token) = first_token(&initiator(folder, "alice"));
        let (first, mut one) = accepted(&acceptor, &token).expect("a context");
        let (again, mut other) = accepted(&acceptor, &token).expect("a context");
        assert_ne!(first, again, "each has an answer of its own");
        let mic = mic(&mut one, b"message");
        assert_eq!(
            other.verify_mic(b"message", &mic),
            Err(GssError::BadMessage)
        );
    });
}

/// A call that begins a context of RPCSEC_GSS with a token (RFC 2203, section 5.2.2): the NULL
/// procedure of NFS version 4.
fn init_call(token: &[u8]) -> Vec<u8> {
    const RPCSEC_GSS: u32 = 6;
    const INIT: u32 = 1;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let head: Vec<u8> = words(&[7, 0, 2, 100_003, 4, 0]);
    // Version 1, no sequence number, no integrity, no handle.
    let credential: Vec<u8> = words(&[RPCSEC_GSS, 20, 1, INIT, 0, 1, 0]);
    let mut argument: Vec<u8> = words(&[0, 0, token.len() as u32]);
    argument.extend_from_slice(token);
    argument.resize(argument.len().next_multiple_of(4), 0);
    let call = [head, credential, argument].concat();
    let mark = 1 << 31 | call.len() as u32;
    [&mark.to_be_bytes()[..], &call].concat()
}

/// Shows weft a token, waits for its answer, and says what `weft doctor client` and `weft events`
/// tell then, each in one line.
fn told_of(target: &WeftProcess, token: &[u8]) -> [String; 2] {
    let mut stream = TcpStream::connect(target.address()).expect("it listens");
    stream.write_all(&init_call(token)).expect("it reads");
    stream.read_exact(&mut [0; 16]).expect("an answer");
    let one_line = |told: String| told.split_whitespace().collect::<Vec<_>>().join(" ");
    [&["doctor", "client", "127.0.0.1"][..], &["events"]].map(|words| one_line(target.run(words)))
}

fn config_with(kerberos: &str, address: SocketAddr, state: &Path) -> String {
    format!(
        "[[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
         [[export]]\npath = \"/files\"\nfile_system = \"files\"\nallow_any_client = true\n\
         [nfs]\nstate = \"{}\"\n{kerberos}\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [admin]\nsocket = \"admin.sock\"\nlisten = \"off\"\n",
        state.display()
    )
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn clock_key_or_keytab_that_keeps_a_client_out_is_told_by_doctor_and_events() {
    let name = "clock_key_or_keytab_that_keeps_a_client_out_is_told_by_doctor_and_events";
    let prepare = |realm: &Realm| {
        realm.add("nfs/other")?;
        realm.add_keys("nfs/other", "other.keytab").map(drop)
    };
    in_realm(name, "clockskew = 1", prepare, |folder| {
        let token = || first_token(&initiator(folder, "alice")).1;
        let (address, keytab) = (free_address(), folder.join("weft.keytab"));
        fs::copy(folder.join("nfs.keytab"), &keytab).expect("a copy");
        let kerberos = format!(
            "[nfs.kerberos]\nkeytab = \"{}\"\ndomain = \"test\"\n",
            keytab.display()
        );
        let config = config_with(&kerberos, address, &folder.join("state"));
        let target = WeftProcess::serve("kerberos-words", &config, address);
        let expect = |token: &[u8], parts: &[&str]| {
            for told in told_of(&target, token) {
                for part in parts {
                    assert!(told.contains(part), "{part}: {told}");
                }
            }
        };
        let late = token();
        thread::sleep(Duration::from_millis(2_500));
        expect(&late, &["KRB5KRB_AP_ERR_SKEW", "set both by NTP"]);
        fs::rename(folder.join("other.keytab"), &keytab).expect("renamed");
        expect(&token(), &["nfs/host@TEST", "`klist -k` shows what it has"]);
        fs::remove_file(&keytab).expect("ours");
        expect(&token(), &["weft.keytab", "`ktadd -k"]);
        target.expect_orderly_end();
    });
}

#[test]
fn client_that_asks_for_kerberos_is_told_to_need_a_keytab_where_weft_has_none() {
    let (folder, address) = (tempfile::tempdir().expect("a folder"), free_address());
    let config = config_with("", address, folder.path());
    let target = WeftProcess::serve("kerberos-none", &config, address);
    for told in told_of(&target, b"a token") {
        for part in ["it asks for Kerberos", "`keytab` of [nfs.kerberos]"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    target.expect_orderly_end();
}
