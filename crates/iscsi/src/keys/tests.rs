use proptest::prelude::*;

use super::*;

/// What `pairs` are answered with, as text with `\0` written as a bar.
fn answers(
    negotiation: &mut Negotiation,
    pairs: &[(&str, &str)],
) -> Result<String, NegotiationFailed> {
    let mut out = Vec::new();
    negotiation.receive(pairs, &mut out)?;
    let text = String::from_utf8(out).expect("UTF-8");
    Ok(text.trim_end_matches('\0').replace('\0', "|"))
}

fn target() -> Target {
    Target {
        limits: SessionLimits {
            max_recv_data_segment_bytes: 100_000,
            first_burst_bytes: 50_000,
            max_burst_bytes: 80_000,
            r2ts_max: 4,
            connections_max: 3,
            ..SessionLimits::default()
        },
        ..Target::new("iqn.2026-01.org.example:t")
    }
}

fn leading(target: &Target) -> Negotiation {
    Negotiation::leading(Some((target, &PortalGroup::default())))
}

#[test]
fn every_key_is_answered_by_its_rule() {
    let table = [
        ("MaxConnections", "8", "3"),
        ("MaxConnections", "2", "2"),
        ("MaxConnections", "0", "Reject"),
        ("MaxConnections", "65536", "Reject"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Yes", "Yes"),
        ("InitialR2T", "yes", "Reject"),
        ("ImmediateData", "No", "No"),
        ("ImmediateData", "Yes", "Yes"),
        ("MaxBurstLength", "262144", "80000"),
        ("MaxBurstLength", "0x10000", "65536"),
        ("MaxBurstLength", "511", "Reject"),
        ("MaxBurstLength", "16777216", "Reject"),
        ("FirstBurstLength", "65536", "50000"),
        ("FirstBurstLength", "512", "512"),
        ("DefaultTime2Wait", "0", "2"),
        ("DefaultTime2Wait", "3600", "3600"),
        ("DefaultTime2Wait", "3601", "Reject"),
        ("DefaultTime2Retain", "20", "0"),
        ("MaxOutstandingR2T", "1", "1"),
        ("MaxOutstandingR2T", "100", "4"),
        ("DataPDUInOrder", "No", "Yes"),
        ("DataSequenceInOrder", "No", "Yes"),
        ("ErrorRecoveryLevel", "2", "1"),
        ("ErrorRecoveryLevel", "0", "0"),
        ("ErrorRecoveryLevel", "3", "Reject"),
        ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
        ("TaskReporting", "FastAbort", "Reject"),
        ("iSCSIProtocolLevel", "2", "1"),
        ("iSCSIProtocolLevel", "0", "0"),
        ("iSCSIProtocolLevel", "32", "Reject"),
        ("IFMarker", "Yes", "No"),
        ("OFMarker", "No", "No"),
        ("IFMarkInt", "2048~4096", "Reject"),
        ("OFMarkInt", "2048", "Reject"),
        ("HeaderDigest", "CRC32C,None", "CRC32C"),
        ("HeaderDigest", "None,CRC32C", "None"),
        ("HeaderDigest", "X-org.example.sum,CRC32C", "CRC32C"),
        ("HeaderDigest", "X-org.example.sum", "Reject"),
        ("DataDigest", "None", "None"),
        ("DataDigest", "CRC32C", "CRC32C"),
        ("RDMAExtensions", "Yes", "No"),
        ("RDMAExtensions", "No", "No"),
        ("RDMAExtensions", "1", "Reject"),
        ("TaggedBufferForSolicitedDataOnly", "Yes", "Irrelevant"),
        ("iSERHelloRequired", "No", "Irrelevant"),
        ("MaxOutstandingUnexpectedPDUs", "0", "Irrelevant"),
        ("MaxAHSLength", "256", "Irrelevant"),
        ("TargetRecvDataSegmentLength", "8192", "Irrelevant"),
        ("InitiatorRecvDataSegmentLength", "8192", "Irrelevant"),
    ];
    for (key, value, expected) in table {
        let mut negotiation = leading(&target());
        let answer = answers(&mut negotiation, &[(key, value)]);
        assert_eq!(answer, Ok(format!("{key}={expected}")), "{key}={value}");
    }
    assert!(ROWS.iter().all(|row| {
        table.iter().any(|line| line.0 == row.name) || row.name == "MaxRecvDataSegmentLength"
    }));
}

/// The same of a connection by RDMA.
fn by_rdma(target: &Target) -> Negotiation {
    let mut negotiation = leading(target);
    let carrier = Carrier::Rdma { has_crc: true };
    negotiation.set_carrier(carrier).expect("it may be");
    negotiation
}

#[test]
fn keys_of_iser_are_answered_by_rdma() {
    // What is declared has no answer.
    let table = [
        ("RDMAExtensions", "Yes", "Yes"),
        ("RDMAExtensions", "yes", "Reject"),
        ("TaggedBufferForSolicitedDataOnly", "Yes", ""),
        ("TaggedBufferForSolicitedDataOnly", "No", ""),
        ("TaggedBufferForSolicitedDataOnly", "0", "Reject"),
        ("iSERHelloRequired", "Yes", ""),
        ("iSERHelloRequired", "maybe", "Reject"),
        ("MaxOutstandingUnexpectedPDUs", "0", ""),
        ("MaxOutstandingUnexpectedPDUs", "2", ""),
        ("MaxOutstandingUnexpectedPDUs", "1", "Reject"),
        ("MaxAHSLength", "256", ""),
        ("MaxAHSLength", "long", "Reject"),
        ("TargetRecvDataSegmentLength", "262144", "100000"),
        ("TargetRecvDataSegmentLength", "512", "512"),
        ("TargetRecvDataSegmentLength", "511", "Reject"),
        ("InitiatorRecvDataSegmentLength", "262144", "262144"),
        ("InitiatorRecvDataSegmentLength", "0", "Reject"),
        ("HeaderDigest", "CRC32C,None", "None"),
        ("DataDigest", "CRC32C", "Reject"),
        ("InitialR2T", "No", "Yes"),
        ("ErrorRecoveryLevel", "2", "0"),
    ];
    for (key, value, expected) in table {
        let answer = answers(&mut by_rdma(&target()), &[(key, value)]);
        let expected = match expected {
            "" => String::new(),
            expected => format!("{key}={expected}"),
        };
        assert_eq!(answer, Ok(expected), "{key}={value}");
    }
    let refused = answers(&mut by_rdma(&target()), &[("RDMAExtensions", "No")]);
    assert!(refused.expect_err("it is by RDMA").0.contains("by RDMA"));
}

#[test]
fn keys_of_iser_that_are_not_sent_are_as_the_standard_has_them() {
    let expected = Negotiated {
        rdma_extensions: true,
        ..Negotiated::default()
    };
    assert_eq!(by_rdma(&target()).agreed(), expected);
    let mut out = Vec::new();
    by_rdma(&target()).declare(&mut out);
    assert!(out.is_empty(), "MaxRecvDataSegmentLength is not of iSER");
    let mut discovery = Negotiation::leading(None);
    let carrier = Carrier::Rdma { has_crc: false };
    discovery.set_carrier(carrier).expect("it may be");
    let declared = [("MaxRecvDataSegmentLength", "32768")];
    assert_eq!(answers(&mut discovery, &declared).as_deref(), Ok(""));
    assert_eq!(discovery.agreed().max_send_data_segment_length, 8192);
}

#[test]
fn immediate_data_by_rdma_needs_to_be_known_where_the_rest_begins() {
    let offer = ("ImmediateData", "Yes");
    let told = ("TaggedBufferForSolicitedDataOnly", "Yes");
    let mut negotiation = by_rdma(&target());
    let text = answers(&mut negotiation, &[offer]);
    assert_eq!(text.as_deref(), Ok("ImmediateData=No"));
    assert!(!negotiation.agreed().immediate_data);
    let mut negotiation = by_rdma(&target());
    let text = answers(&mut negotiation, &[offer, told]);
    assert_eq!(text.as_deref(), Ok("ImmediateData=Yes"));
    assert_eq!(negotiation.agreed().solicited_only, Some(true));
}

#[test]
fn digests_that_a_target_requires_are_there_by_rdma_if_crcs_are() {
    let target = Target {
        data_digest: DigestPolicy::Required,
        ..target()
    };
    let mut negotiation = by_rdma(&target);
    let text = answers(&mut negotiation, &[("DataDigest", "None")]);
    assert_eq!(text.as_deref(), Ok("DataDigest=None"));
    assert!(negotiation.is_acceptable() && !negotiation.is_open());
    let carrier = Carrier::Rdma { has_crc: false };
    let refused = leading(&target).set_carrier(carrier).expect_err("no CRC");
    assert_eq!(refused.status, LoginStatus::InitiatorError);
}

#[test]
fn connections_of_a_session_are_all_by_rdma_or_all_by_tcp() {
    let carriers = [Carrier::Tcp, Carrier::Rdma { has_crc: false }];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let agreed = Negotiated {
            rdma_extensions: carriers[first].is_rdma(),
            ..Negotiated::default()
        };
        let group = PortalGroup::default();
        let mut joining = Negotiation::joining((&target(), &group), &agreed);
        let joined = joining.set_carrier(carriers[second]);
        let status = joined.map_err(|refused| refused.status);
        let expected = match first == second {
            true => Ok(()),
            false => Err(LoginStatus::CannotIncludeInSession),
        };
        assert_eq!(status, expected);
    }
}

#[test]
fn the_first_burst_is_no_longer_than_the_burst_whatever_comes_first() {
    let orders = [
        [("FirstBurstLength", "60000"), ("MaxBurstLength", "1024")],
        [("MaxBurstLength", "1024"), ("FirstBurstLength", "60000")],
    ];
    for pairs in orders {
        let mut negotiation = leading(&target());
        let text = answers(&mut negotiation, &pairs).expect("answers");
        assert!(text.contains("FirstBurstLength=1024"), "{text}");
        // The answers stand as the questions do.
        assert!(text.starts_with(pairs[0].0), "{text}");
        assert_eq!(negotiation.agreed().first_burst_length, 1024);
    }
    // The default of a key that is not sent is bounded as well.
    let mut negotiation = leading(&target());
    answers(&mut negotiation, &[("MaxBurstLength", "512")]).expect("answers");
    assert_eq!(negotiation.agreed().first_burst_length, 512);
}

#[test]
fn declaration_of_a_segment_length_has_no_answer() {
    let mut negotiation = leading(&target());
    let text = answers(
        &mut negotiation,
        &[("MaxRecvDataSegmentLength", "16777216")],
    );
    assert_eq!(text.as_deref(), Ok(""));
    let agreed = negotiation.agreed();
    assert_eq!(agreed.max_send_data_segment_length, (1 << 24) - 1);
    assert_eq!(agreed.max_recv_data_segment_length, 100_000);
    for value in ["511", "-1", "many"] {
        let mut negotiation = leading(&target());
        let pairs = [("MaxRecvDataSegmentLength", value)];
        let failed = answers(&mut negotiation, &pairs).expect_err(value);
        let told = format!("MaxRecvDataSegmentLength is `{value}`: 512 is the least");
        assert_eq!(failed.0, told);
    }
    let mut out = Vec::new();
    negotiation.declare(&mut out);
    negotiation.declare(&mut out);
    assert_eq!(out, b"MaxRecvDataSegmentLength=100000\0", "told once");
}

#[test]
fn a_key_is_negotiated_once() {
    let mut negotiation = leading(&target());
    let twice = [("ImmediateData", "Yes"), ("ImmediateData", "No")];
    let failed = answers(&mut negotiation, &twice).expect_err("twice");
    assert!(
        failed
            .0
            .starts_with("ImmediateData is `No`: it came before"),
        "{failed:?}"
    );
    let mut negotiation = leading(&target());
    answers(&mut negotiation, &twice[..1]).expect("an answer");
    answers(&mut negotiation, &twice[..1]).expect_err("twice");
}

#[test]
fn in_discovery_the_keys_of_scsi_are_irrelevant() {
    let mut negotiation = Negotiation::leading(None);
    let pairs = [
        ("MaxBurstLength", "65536"),
        ("HeaderDigest", "CRC32C"),
        ("InitialR2T", "No"),
        ("DefaultTime2Wait", "2"),
    ];
    let text = answers(&mut negotiation, &pairs).expect("answers");
    assert_eq!(
        text,
        "MaxBurstLength=Irrelevant|HeaderDigest=CRC32C|InitialR2T=Irrelevant|DefaultTime2Wait=2"
    );
}

#[test]
fn a_further_connection_negotiates_what_is_its_own() {
    let agreed = Negotiated {
        max_burst_length: 70_000,
        header_digest: true,
        max_send_data_segment_length: 4096,
        ..Negotiated::default()
    };
    let mut negotiation = Negotiation::joining((&target(), &PortalGroup::default()), &agreed);
    let pairs = [
        ("MaxBurstLength", "1024"),
        ("DataDigest", "CRC32C"),
        ("MaxRecvDataSegmentLength", "2048"),
    ];
    let text = answers(&mut negotiation, &pairs).expect("answers");
    assert_eq!(text, "MaxBurstLength=Reject|DataDigest=CRC32C");
    let expected = Negotiated {
        max_burst_length: 70_000,
        header_digest: false,
        data_digest: true,
        max_send_data_segment_length: 2048,
        max_recv_data_segment_length: 100_000,
        ..Negotiated::default()
    };
    assert_eq!(negotiation.agreed(), expected);
}

#[test]
fn digests_of_a_portal_group_go_before_those_of_the_target() {
    let target = Target {
        header_digest: DigestPolicy::None,
        data_digest: DigestPolicy::Required,
        ..target()
    };
    let offer = [("HeaderDigest", "CRC32C,None"), ("DataDigest", "None")];
    let at = |header_digest, data_digest| {
        let group = PortalGroup {
            header_digest,
            data_digest,
            ..PortalGroup::default()
        };
        answers(&mut Negotiation::leading(Some((&target, &group))), &offer)
    };
    at(None, None).expect_err("required");
    let on = at(Some(DigestPolicy::Required), Some(DigestPolicy::Allowed));
    assert_eq!(on.as_deref(), Ok("HeaderDigest=CRC32C|DataDigest=None"));
    let off = at(None, Some(DigestPolicy::None));
    assert_eq!(off.as_deref(), Ok("HeaderDigest=None|DataDigest=None"));
}

#[test]
fn digests_that_are_required_are_asked_for() {
    let required = Target {
        header_digest: DigestPolicy::Required,
        data_digest: DigestPolicy::None,
        ..target()
    };
    let mut negotiation = leading(&required);
    assert!(!negotiation.is_acceptable());
    let mut out = Vec::new();
    negotiation.declare(&mut out);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("HeaderDigest=CRC32C\0"), "{text}");
    assert!(!text.contains("DataDigest"), "{text}");
    assert!(negotiation.is_open());
    let mut refused = negotiation.clone();
    let failed = answers(&mut refused, &[("HeaderDigest", "Reject")]).expect_err("required");
    assert!(
        failed
            .0
            .starts_with("HeaderDigest is `Reject`: the target requires"),
        "{failed:?}"
    );
    let text = answers(&mut negotiation, &[("HeaderDigest", "CRC32C")]);
    assert_eq!(text.as_deref(), Ok(""), "an answer is not answered");
    assert!(!negotiation.is_open() && negotiation.is_acceptable());
    assert!(negotiation.agreed().header_digest);

    let mut negotiation = leading(&required);
    answers(&mut negotiation, &[("HeaderDigest", "None")]).expect_err("required");
    let mut negotiation = leading(&required);
    let text = answers(
        &mut negotiation,
        &[
            ("HeaderDigest", "None,CRC32C"),
            ("DataDigest", "CRC32C,None"),
        ],
    );
    assert_eq!(text.as_deref(), Ok("HeaderDigest=CRC32C|DataDigest=None"));
    let mut negotiation = leading(&required);
    assert_eq!(
        answers(&mut negotiation, &[("DataDigest", "CRC32C")]).as_deref(),
        Ok("DataDigest=Reject")
    );
}

#[test]
fn unknown_keys_are_not_understood_and_answers_are_not_answered() {
    assert_eq!(unknown("1"), Some(NOT_UNDERSTOOD));
    for answer in [NOT_UNDERSTOOD, IRRELEVANT, REJECT] {
        assert_eq!(unknown(answer), None);
    }
}

/// What the initiator holds after it has read the answers to what it offered:
/// another reading of the standard's result functions than the target's.
fn as_the_initiator_sees(offers: &[(&str, String)], text: &str) -> Negotiated {
    let mut seen = Negotiated::default();
    let answer = |key: &str| {
        text.split('|')
            .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    };
    for (key, offer) in offers {
        let Some(answer) = answer(key).filter(|answer| *answer != "Reject") else {
            continue;
        };
        let number = || answer.parse::<u32>().expect("a number");
        match *key {
            "HeaderDigest" => seen.header_digest = answer == "CRC32C",
            "DataDigest" => seen.data_digest = answer == "CRC32C",
            "MaxConnections" => seen.max_connections = number() as u16,
            "InitialR2T" => seen.initial_r2t = offer == "Yes" || answer == "Yes",
            "ImmediateData" => seen.immediate_data = offer == "Yes" && answer == "Yes",
            "MaxBurstLength" => seen.max_burst_length = number(),
            "FirstBurstLength" => seen.first_burst_length = number(),
            "DefaultTime2Wait" => seen.default_time2wait = number() as u16,
            "DefaultTime2Retain" => seen.default_time2retain = number() as u16,
            "MaxOutstandingR2T" => seen.max_outstanding_r2t = number() as u16,
            "ErrorRecoveryLevel" => seen.error_recovery_level = number() as u8,
            _ => unreachable!("{key}"),
        }
        let is_numeric = offer.parse::<u64>().is_ok();
        if is_numeric && *key != "DefaultTime2Wait" {
            assert!(
                u64::from(number()) <= offer.parse().expect("a number"),
                "{key}"
            );
        }
    }
    seen.first_burst_length = seen.first_burst_length.min(seen.max_burst_length);
    seen
}

fn offers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let boolean = || prop_oneof![Just("Yes".to_owned()), Just("No".to_owned())];
    let digest = || {
        let lists = ["CRC32C", "None", "CRC32C,None", "None,CRC32C"];
        proptest::sample::select(lists.to_vec()).prop_map(str::to_owned)
    };
    let number = |range: std::ops::Range<u32>| range.prop_map(|number| number.to_string());
    let all = (
        (digest(), digest(), number(0..70_000), boolean(), boolean()),
        (number(0..200_000), number(0..200_000), number(0..4000)),
        (number(0..4000), number(0..10), number(0..4)),
        proptest::collection::vec(any::<bool>(), 11),
    );
    all.prop_map(
        |(
            (hd, dd, connections, r2t, immediate),
            (burst, first, wait),
            (retain, r2ts, erl),
            sent,
        )| {
            let offers = [
                ("HeaderDigest", hd),
                ("DataDigest", dd),
                ("MaxConnections", connections),
                ("InitialR2T", r2t),
                ("ImmediateData", immediate),
                ("FirstBurstLength", first),
                ("MaxBurstLength", burst),
                ("DefaultTime2Wait", wait),
                ("DefaultTime2Retain", retain),
                ("MaxOutstandingR2T", r2ts),
                ("ErrorRecoveryLevel", erl),
            ];
            let sent = offers.into_iter().zip(sent).filter(|(_, is_sent)| *is_sent);
            sent.map(|(offer, _)| offer).collect()
        },
    )
}

proptest! {
    #[test]
    fn both_sides_reach_the_same_values(offers in offers()) {
        let mut negotiation = leading(&target());
        let pairs: Vec<_> = offers.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let text = answers(&mut negotiation, &pairs).expect("answers");
        let mut expected = as_the_initiator_sees(&offers, &text);
        expected.max_recv_data_segment_length = 100_000;
        prop_assert_eq!(negotiation.agreed(), expected);
        prop_assert_eq!(text.split('|').filter(|answer| !answer.is_empty()).count(), offers.len());
    }

    #[test]
    fn any_value_is_answered_or_refused(
        key in proptest::sample::select(ROWS.iter().map(|row| row.name).collect::<Vec<_>>()),
        value in prop_oneof![".{0,20}", "[0-9]{1,22}", "0x[0-9a-f]{0,18}"],
    ) {
        let group = PortalGroup::default();
        for target in [None, Some(&target())] {
            let mut negotiation = Negotiation::leading(target.map(|target| (target, &group)));
            let _ = answers(&mut negotiation, &[(key, &value)]);
            let agreed = negotiation.agreed();
            prop_assert!(agreed.first_burst_length <= agreed.max_burst_length);
            prop_assert!(agreed.max_connections >= 1 && agreed.max_outstanding_r2t >= 1);
            prop_assert!((LENGTH_MIN..=LENGTH_MAX).contains(&agreed.max_send_data_segment_length));
        }
    }
}
