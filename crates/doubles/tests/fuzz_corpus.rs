//! What fuzzing has reached stays reached without a fuzzer: the corpus through the
//! bodies of the targets. And some inputs more.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use doubles::fuzz::{self, TARGETS};
use random::Random;

/// Targets whose bodies and replay stand in the rooms of what they try: `import`, `control`.
const ELSEWHERE: &[&str] = &["import", "edits"];

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names in a folder, without what follows a dot.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let stems = paths.map(|path| path.file_stem().expect("a name").to_owned());
    stems
        .map(|stem| stem.into_string().expect("UTF-8"))
        .collect()
}

#[test]
fn programs_and_corpora_are_those_of_the_fuzz_targets() {
    let here = TARGETS.iter().map(|(name, _)| *name);
    let targets = here.chain(ELSEWHERE.iter().copied());
    let targets = targets.map(str::to_owned).collect();
    for folder in ["corpus", "fuzz_targets"] {
        let found: BTreeSet<String> = names(&fuzz_folder().join(folder));
        assert_eq!(found, targets, "fuzz/{folder} and doubles::fuzz::TARGETS");
    }
}

/// Gives the body of `target` all of its corpus.
fn replay(target: &str) {
    let (_, body) = TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .expect(target);
    let folder = fuzz_folder().join("corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus of a target") {
        let path = entry.expect("an entry").path();
        // The name of a failing input shows in the captured output.
        println!("{}", path.display());
        body(&fs::read(&path).expect("an input"));
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {}", folder.display());
}

/// One test for each target, under its name.
macro_rules! replays {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*

        #[test]
        fn every_corpus_is_replayed() {
            let replayed = [$(stringify!($target)),*];
            assert!(TARGETS.iter().map(|(name, _)| *name).eq(replayed));
        }
    };
}

replays! {
    dhchap
    iscsi_login_text
    iscsi_pdu
    iscsi_target
    iser_target
    iwarp_stream
    mirror_log
    nbd_connection
    nfs_acls
    nfs_compounds
    nfs_connection
    nfs_rdma_client
    nlm
    nvme_rdma_host
    nvme_tcp_controller
    nvme_tcp_host
    nvme_tcp_pdu
    portmap
    rpc_rdma
    rpcsec_gss
    scsi_cdb
    snapshot_stream
    sums_file
    tls_hello
    tls_records
    tls_stream
    volume_keys
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

#[test]
fn bodies_take_random_inputs() {
    for (name, body) in TARGETS {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let len = random.below(600) as usize;
            println!("{name}, seed {seed}");
            body(&bytes(&mut random, len));
        }
    }
}

#[test]
fn controllers_of_the_corpus_complete_commands_and_make_every_kind_of_mistake() {
    let folder = fuzz_folder().join("corpus/nvme_rdma_host");
    let entries = fs::read_dir(folder).expect("a corpus");
    let inputs = entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("bytes"));
    let told: Vec<String> = inputs
        .flat_map(|input| fuzz::nvme_rdma_host_told(&input))
        .collect();
    let count = |words: &str| told.iter().filter(|op| op.contains(words)).count();
    assert!(count("Completed") > 40, "{told:?}");
    for mistake in ["Cid", "Invalidation", "ResponseLen", "NoReceives", "Stream"] {
        assert!(count(mistake) > 0, "{mistake}: {told:?}");
    }
}

#[test]
fn servers_of_the_corpus_answer_calls_and_make_every_kind_of_mistake() {
    let folder = fuzz_folder().join("corpus/nfs_rdma_client");
    let entries = fs::read_dir(folder).expect("a corpus");
    let inputs = entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("bytes"));
    let told: Vec<String> = inputs
        .flat_map(|input| fuzz::nfs_rdma_client_told(&input))
        .collect();
    let count = |words: &str| told.iter().filter(|op| op.contains(words)).count();
    assert!(count("Answered") > 40 && count("CallBack") > 5, "{told:?}");
    for mistake in ["Invalidation", "Chunk", "Header", "NoMessage", "Rdma(Sent"] {
        assert!(count(mistake) > 0, "{mistake}: {told:?}");
    }
}

#[test]
fn clients_of_the_corpus_have_requests_executed() {
    let folder = fuzz_folder().join("corpus/nbd_connection");
    let entries = fs::read_dir(folder).expect("a corpus");
    let inputs = entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("bytes"));
    let executed: usize = inputs
        .map(|input| fuzz::nbd_requests_executed(&input))
        .sum();
    assert!(executed > 50, "{executed}");
}

#[test]
fn nbd_clients_of_the_corpus_have_requests_executed_behind_starttls_alone() {
    let folder = fuzz_folder().join("corpus/nbd_connection");
    let executed = |name: &str| {
        let input = fs::read(folder.join(name)).expect("it is there");
        fuzz::nbd_requests_executed(&input)
    };
    assert_eq!(executed("starttls_offered"), 2);
    assert_eq!(executed("starttls_required"), 2);
    assert_eq!(executed("starttls_with_bytes_behind"), 0);
    assert_eq!(executed("starttls_awaited"), 0);
}

#[test]
fn random_compounds_execute_at_least_35_operations() {
    let mut done = 0;
    for seed in 0..150 {
        done |= fuzz::nfs_operations_done(&bytes(&mut Random::new(seed), 6000));
    }
    let never: Vec<u32> = (3..76).filter(|op| done >> op & 1 == 0).collect();
    assert!(
        done.count_ones() >= 35,
        "only {} went well, not {never:?}",
        done.count_ones()
    );
}
