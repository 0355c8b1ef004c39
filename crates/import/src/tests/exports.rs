use server::nfs::{ClientName, Clients, FileSystemKind, Net, Rule, Squash, Xprtsec};

use super::{imported, loaded, mistakes, path, tells};

fn net(text: &str) -> Net {
    text.parse().expect(text)
}

fn nets(rule: &Rule) -> Vec<Net> {
    let Clients::Named(names) = &rule.clients else {
        panic!("everybody");
    };
    let net = |name: &ClientName| match name {
        ClientName::Net(net) => *net,
        name => panic!("{name}"),
    };
    names.iter().map(net).collect()
}

/// Wildcards, netgroups, several clients a line, a line that goes on, quoting and a default.
const LINUX: &str = r#"# what the house shares
/srv/homes  192.0.2.0/24(rw,sync,no_subtree_check,insecure) \
            192.0.2.7(rw,no_root_squash) 2001:db8::/32(ro)
/srv/my\040files  -all_squash,anonuid=1000,anongid=1000  *(ro)
"/srv/a \"b"  localhost(rw,sec=krb5:sys,fsid=0,crossmnt)
/srv/lab    *.lab.example.org(rw) @staff(rw) 198.51.100.0/255.255.255.0(rw,anonuid=-2)
/srv/pub
"#;

#[test]
fn exports_of_linux_are_carried_over() {
    let text = LINUX.replace(r#""/srv/a \"b""#, r#""/srv/a b""#);
    let (found, config) = loaded("exports", &text);
    let paths: Vec<&str> = config.exports.iter().map(|export| &*export.path).collect();
    assert_eq!(
        paths,
        [
            "/srv/homes",
            "/srv/my files",
            "/srv/a b",
            "/srv/lab",
            "/srv/pub"
        ]
    );
    let FileSystemKind::Dir { path: folder, .. } = &config.file_systems[1].kind else {
        panic!("a directory");
    };
    assert_eq!(folder, path("/srv/my files"));
    // A host counts before its network, wherever it stands.
    let [one, net4, net6] = &config.exports[0].rules[..] else {
        panic!("three rules");
    };
    assert_eq!(
        (nets(one), one.squash),
        (vec![net("192.0.2.7")], Squash::None)
    );
    assert_eq!(
        (nets(net4), net4.is_read_only),
        (vec![net("192.0.2.0/24")], false)
    );
    assert_eq!(
        (nets(net6), net6.is_read_only),
        (vec![net("2001:db8::/32")], true)
    );
    let all = &config.exports[1].rules[0];
    assert_eq!((&all.clients, all.squash), (&Clients::Any, Squash::All));
    assert_eq!(
        (all.anon_uid, all.anon_gid, all.is_read_only),
        (1000, 1000, true)
    );
    let lab = &config.exports[3].rules;
    assert_eq!(nets(&lab[0]), [net("198.51.100.0/24")]);
    assert_eq!((lab.len(), lab[0].anon_uid), (1, 65_534));
    assert!(
        config.exports[4].rules[0].is_read_only,
        "a path alone is for reading"
    );
    tells(
        &found,
        &["source:6", "ACCESS", "*.lab.example.org is a pattern"],
    );
    tells(&found, &["source:6", "ACCESS", "@staff is a netgroup"]);
    tells(
        &found,
        &["source:5", "ACCESS", "krb5 is left out", "[nfs.kerberos]"],
    );
    tells(&found, &["source:5", "lost", "fsid", "HOST:/srv/a b/x"]);
    tells(&found, &["source:5", "lost", "crossmnt"]);
    // Who says nothing of ports wants one below 1024.
    assert_eq!(
        [one, net4, net6].map(|rule| rule.secure),
        [true, false, true]
    );
}

#[test]
fn clients_that_must_use_unsupported_security_are_not_let_in() {
    let found = imported(
        "exports",
        "/srv/a *(rw,sec=krb5p)\n/srv/b *(rw,xprtsec=ipsec)\n",
    );
    assert!(
        !found.document.contains("allow_any_client"),
        "{}",
        found.document
    );
    tells(
        &found,
        &["source:1", "ACCESS", "who needs it is not let in"],
    );
    tells(&found, &["source:2", "ACCESS", "xprtsec"]);
    super::load(&found);
    // What is taken over lets nobody in before there is a certificate.
    let text = "/srv/a *(xprtsec=mtls:tls)\n/srv/b *(xprtsec=none:tls)\n";
    let (found, config) = loaded("exports", text);
    tells(&found, &["source:1", "ACCESS", "xprtsec", "[nfs.tls]"]);
    tells(&found, &["source:2", "lost", "xprtsec", "[nfs.tls]"]);
    let named = |at: usize| {
        let ways = config.exports[at].rules[0].xprtsec.named();
        ways.map(Xprtsec::word).collect::<Vec<_>>()
    };
    assert_eq!(
        (named(0), named(1)),
        (vec!["tls", "mtls"], vec!["none", "tls"])
    );
    // Read-only by AUTH_SYS, all by Kerberos: what is first counts if weft has it.
    let (_, config) = loaded("exports", "/srv/a *(sec=sys,ro,sec=krb5,rw)\n");
    assert!(config.exports[0].rules[0].is_read_only);
    let found = imported("exports", "/srv/a *(rw,frobnicate)\n");
    tells(&found, &["ACCESS", "frobnicate", "does not know"]);
}

#[test]
fn a_blank_before_the_bracket_is_told() {
    let (found, config) = loaded("exports", "/srv/a 192.0.2.1 (rw)\n");
    tells(&found, &["source:1", "lost", "after a blank"]);
    let [one, all] = &config.exports[0].rules[..] else {
        panic!("two rules");
    };
    assert!(one.is_read_only && !all.is_read_only, "as Linux reads it");
}

#[test]
fn exports_in_exports_are_left_out() {
    let (found, config) = loaded("exports", "/srv *(ro)\n/srv/home 192.0.2.1(rw)\n");
    assert_eq!(config.exports.len(), 1);
    tells(&found, &["source:2", "ACCESS", "/srv/home is left out"]);
}

#[test]
fn mistakes_of_exports_have_lines() {
    for (text, part) in [
        ("srv *(ro)\n", "source:1: \"srv\" is no path"),
        (
            "/a\n/srv *(ro\n",
            "source:2: *(ro: the bracket is not closed",
        ),
        (
            "/srv 192.0.2.0/33(ro)\n",
            "source:1: 192.0.2.0/33: \"33\" is no length",
        ),
        (
            "/srv 192.0.2.0/255.0.255.0(ro)\n",
            "is no length of a prefix and no mask",
        ),
        ("/srv \"*(ro)\n", "source:1: a quotation mark is not closed"),
        ("/srv/../etc *(ro)\n", "is no path to export"),
        ("# nothing\n", "there is no export in it"),
        ("/srv a!b(ro)\n", "is no IP address and no host name"),
        ("/srv\\377 *(ro)\n", "no text in UTF-8"),
    ] {
        let told = mistakes("exports", text);
        assert!(told.contains(part), "{text:?}: {told}");
    }
    let told = mistakes("exports", "/srv\\173\\060..3} *(ro)\n");
    assert!(
        told.contains("is a pattern"),
        "escapes do not hide it: {told}"
    );
}

#[test]
fn exports_of_bsd_are_carried_over() {
    let text = "\
V4: /shared -sec=sys
/shared/one /shared/two -mapall=root -network 192.0.2.0 -mask 255.255.255.0
/shared/one -maproot=0 -ro localhost
/shared/three -maproot=1000:100:200 -network 2001:db8::/32
/shared/four -alldirs
/shared/five -maproot=alice -sec=krb5:sys localhost
/shared/six -tls -network 192.0.2.0/24
/shared/seven -tlscert -network 192.0.2.0/24
";
    let (found, config) = loaded("exports-bsd", text);
    assert_eq!(config.exports.len(), 7);
    let [one, net4] = &config.exports[0].rules[..] else {
        panic!("two rules");
    };
    assert_eq!((one.squash, one.is_read_only), (Squash::None, true));
    assert_eq!(
        (net4.squash, net4.anon_uid, net4.anon_gid),
        (Squash::All, 0, 0)
    );
    assert_eq!(nets(net4), [net("192.0.2.0/24")]);
    assert_eq!(config.exports[1].rules.len(), 1);
    let three = &config.exports[2].rules[0];
    assert_eq!(
        (three.squash, three.anon_uid, three.anon_gid),
        (Squash::Root, 1000, 100)
    );
    assert_eq!(config.exports[3].rules[0].clients, Clients::Any);
    tells(&found, &["source:1", "lost", "HOST:/shared/x"]);
    tells(&found, &["source:6", "lost", "-maproot", "alice"]);
    tells(
        &found,
        &["source:6", "ACCESS", "krb5 is left out", "[nfs.kerberos]"],
    );
    tells(&found, &["source:7", "ACCESS", "-tls"]);
    let ways = |at: usize| -> Vec<&str> {
        let ways = config.exports[at].rules[0].xprtsec.named();
        ways.map(|way| way.word()).collect()
    };
    assert_eq!((ways(5), ways(6)), (vec!["tls", "mtls"], vec!["mtls"]));
    let told = mistakes("exports-bsd", "/a -network 192.0.2.0 -mask 255.0.255.0\n");
    assert!(
        told.contains("source:1: -network 192.0.2.0: write"),
        "{told}"
    );
}

#[test]
fn client_that_a_rule_keeps_out_gets_no_more_from_a_later_rule() {
    // The network had to use Kerberos: it is not let in with everybody.
    let found = imported("exports", "/srv/a 192.0.2.0/24(rw,sec=krb5) *(rw)\n");
    assert!(
        !found.document.contains("allow_any_client"),
        "{}",
        found.document
    );
    tells(&found, &["source:1", "ACCESS", "must not be let in"]);
    let (_, config) = loaded(
        "exports",
        "/srv/a 192.0.2.9(sec=krb5) 192.0.2.0/24(rw) 10.0.0.0/8(ro)\n",
    );
    let [rule] = &config.exports[0].rules[..] else {
        panic!("one rule");
    };
    assert_eq!(nets(rule), [net("10.0.0.0/8")]);
    // Whom the pattern names may only read, and weft does not know who they are.
    let (found, config) = loaded(
        "exports",
        "/srv/a *.lab.example.org(ro) *(rw,no_root_squash)\n",
    );
    let rule = &config.exports[0].rules[0];
    assert_eq!((rule.is_read_only, rule.squash), (true, Squash::Root));
    tells(&found, &["source:1", "ACCESS", "no more than the pattern"]);
}
