//! Quotas as clients of NFSv3 meet them, and what RQUOTA tells of them.

use std::net::IpAddr;
use std::sync::Mutex;

use nfsd::client_names::NameService;
use nfsd::datagram::Datagram;
use nfsd::exports::ClientName;
use store::fs::{Quota, QuotaLimits, QuotaSubject};
use wire::rquota::*;

use super::*;

const ANN: u32 = 1000;
const STAFF: u32 = 50;
const KIB: u64 = 1 << 10;

fn with_quotas() -> World {
    let world = world();
    let list = [
        (QuotaSubject::User(ANN), Some(256 * KIB)),
        (QuotaSubject::Group(STAFF), Some(1 << 50)),
    ];
    let list = list.map(|(subject, hard_bytes)| Quota {
        subject,
        limits: QuotaLimits {
            hard_bytes,
            soft_bytes: Some(64 * KIB),
            hard_objects: Some(7),
            ..QuotaLimits::default()
        },
    });
    world.fs.set_quotas(&list, Time::default()).unwrap();
    world
}

fn ext(path: &str, gqa_type: u32, gqa_id: u32) -> Vec<u8> {
    let mut args = Vec::new();
    let gqa_pathp = Opaque(path.as_bytes());
    ext_getquota_args {
        gqa_pathp,
        gqa_type,
        gqa_id,
    }
    .encode(&mut args);
    args
}

impl World {
    fn quota_call(&mut self, version: u32, args: &[u8]) -> Vec<u8> {
        let mut record = self.header((RQUOTAPROG, rquota_proc::RQUOTAPROC_GETQUOTA as u32));
        // The version stands behind the program.
        record[16..20].copy_from_slice(&version.to_be_bytes());
        record.extend(args);
        record
    }

    fn quota(&mut self, path: &str, gqa_type: u32, id: u32) -> getquota_rslt {
        let record = self.quota_call(EXT_RQUOTAVERS, &ext(path, gqa_type, id));
        decoded(&self.results(&record))
    }
}

#[test]
fn write_beyond_a_quota_is_refused_and_what_was_answered_is_there() {
    let mut world = with_quotas();
    world.caller = Some((ANN, STAFF));
    let root = world.root();
    let file = world.file(&root, "f");
    let block = vec![5; 16 << 10];
    let mut at = 0;
    let refused = loop {
        match world.write(&file, at, &block) {
            Ok(count) => at += u64::from(count),
            Err(status) => break status,
        }
    };
    assert_eq!((refused, at), (nfsstat3::NFS3ERR_DQUOT, 256 * KIB));
    let (data, is_end) = world.read(&file, 0, 256 << 10).unwrap();
    assert!(is_end && data.iter().all(|&byte| byte == 5));
    for at in 1..7 {
        world.file(&root, &format!("f{at}"));
    }
    let how = createhow3::GUARDED(with_mode(0o666));
    let made = world.create(&root, "more", how);
    assert_eq!(made, Err(nfsstat3::NFS3ERR_DQUOT));
}

#[test]
fn rquota_tells_users_of_themselves_and_their_groups() {
    let mut world = with_quotas();
    world.caller = Some((ANN, STAFF));
    let root = world.root();
    let file = world.file(&root, "f");
    world.write(&file, 0, &vec![1; 100 << 10]).unwrap();
    let getquota_rslt::Q_OK(quota) = world.quota("/pub", RQUOTA_USRQUOTA, ANN) else {
        panic!("no quota");
    };
    let expected = rquota {
        rq_bsize: 1024,
        rq_active: true,
        rq_bhardlimit: 256,
        rq_bsoftlimit: 64,
        rq_curblocks: 112,
        rq_fhardlimit: 7,
        rq_fsoftlimit: 0,
        rq_curfiles: 1,
        rq_btimeleft: 7 * 24 * 3600,
        rq_ftimeleft: 0,
    };
    assert_eq!(quota, expected);
    // Version 1, and a directory in the export.
    let mut args = Vec::new();
    getquota_args {
        gqa_pathp: Opaque(b"/pub/in"),
        gqa_uid: ANN,
    }
    .encode(&mut args);
    let record = world.quota_call(RQUOTAVERS, &args);
    let told: getquota_rslt = decoded(&world.results(&record));
    assert_eq!(told, getquota_rslt::Q_OK(expected));
    // Larger units where there is much.
    let getquota_rslt::Q_OK(group) = world.quota("/pub", RQUOTA_GRPQUOTA, STAFF) else {
        panic!("no quota");
    };
    let hard = u64::from(group.rq_bhardlimit) * u64::from(group.rq_bsize);
    assert_eq!(hard, 1 << 50);
    for (path, kind, id, expected) in [
        ("/pub", RQUOTA_USRQUOTA, ANN + 1, getquota_rslt::Q_EPERM),
        ("/pub", RQUOTA_GRPQUOTA, STAFF + 1, getquota_rslt::Q_EPERM),
        ("/pub", 2, ANN, getquota_rslt::Q_NOQUOTA),
        ("/none", RQUOTA_USRQUOTA, ANN, getquota_rslt::Q_NOQUOTA),
        // A client that may not use it does not learn what is in it.
        ("/closed", RQUOTA_USRQUOTA, ANN, getquota_rslt::Q_NOQUOTA),
    ] {
        assert_eq!(world.quota(path, kind, id), expected, "{path} {kind} {id}");
    }
    world.caller = Some((0, 0));
    let of_ann = world.quota("/pub", RQUOTA_USRQUOTA, ANN);
    assert_eq!(of_ann, getquota_rslt::Q_OK(expected));
    let of_ann = world.quota("/in/root", RQUOTA_USRQUOTA, ANN);
    assert_eq!(of_ann, getquota_rslt::Q_EPERM, "the superuser is squashed");
}

impl World {
    /// The answer to a datagram, if there is one.
    fn datagram(&self, bytes: &[u8]) -> Option<getquota_rslt> {
        let sent: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
        let to = sent.clone();
        let datagram = Datagram {
            bytes: bytes.to_vec(),
            from: address("192.0.2.1:700"),
            local: address("198.51.100.7:2049"),
            answer: Box::new(move |answer| *to.lock().unwrap() = Some(answer)),
        };
        let nfsd = &self.server.nfsd;
        nfsd.take_datagram(datagram, (0, Time::default()));
        let answer = sent.lock().unwrap().take();
        answer.map(|answer| decoded(&answer[24..]))
    }
}

#[test]
fn rquota_is_answered_by_datagrams_where_there_is_a_port_mapper() {
    let mut world = with_quotas();
    world.caller = Some((ANN, STAFF));
    let record = world.quota_call(EXT_RQUOTAVERS, &ext("/pub", RQUOTA_USRQUOTA, ANN));
    let told = world.datagram(&record);
    assert!(matches!(told, Some(getquota_rslt::Q_OK(_))), "{told:?}");
}

/// A name service in which every client is called so.
struct Called(&'static str);

impl NameService for Called {
    fn addresses(&self, _: &str) -> Option<Vec<IpAddr>> {
        Some(vec![address("192.0.2.1:700").ip()])
    }

    fn names(&self, _: IpAddr) -> Option<Vec<String>> {
        Some(vec![self.0.to_owned()])
    }

    fn members(&self, _: &str) -> Option<Vec<String>> {
        None
    }
}

#[test]
fn rquota_by_a_datagram_is_answered_when_the_name_of_its_client_is_known() {
    let mut world = with_quotas();
    let rule = Rule {
        clients: Clients::Named(vec![ClientName::Pattern("*.test".to_owned())]),
        ..Rule::default()
    };
    let export = Export::new("/pub", world.fs.clone(), vec![rule]).expect("an export");
    let exports = Exports::new(vec![export], Time::default()).expect("exports");
    world.server.nfsd.set_exports(exports);
    world.caller = Some((ANN, STAFF));
    let record = world.quota_call(EXT_RQUOTAVERS, &ext("/pub", RQUOTA_USRQUOTA, ANN));
    assert_eq!(world.datagram(&record), None);
    let nfsd = &world.server.nfsd;
    let asked = nfsd.client_names.take_asked();
    assert_eq!(asked, [address("192.0.2.1:700").ip()]);
    nfsd.look_up_names(asked[0], &Called("web.test"), (0, &|| 0));
    let told = world.datagram(&record);
    assert!(matches!(told, Some(getquota_rslt::Q_OK(_))), "{told:?}");
}
