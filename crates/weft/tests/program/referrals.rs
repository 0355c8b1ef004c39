//! Referrals of NFSv4, as an administrator makes them while weft serves.

use crate::admin::Admin;
use crate::serving::{free_port, text, weft};
use crate::told::end_in_order;

/// Files at `/near`, and what else is exported.
fn document(port: u16, more: &str) -> String {
    format!(
        "[[file_system]]\nname = \"m\"\nkind = \"mem\"\nsize = \"4MiB\"\n\
         [[export]]\npath = \"/near\"\nfile_system = \"m\"\nallow_any_client = true\n{more}\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"256MiB\"\n"
    )
}

fn referral(servers: &[&str]) -> String {
    format!("[[export]]\npath = \"/far\"\nreferral = {servers:?}\nallow_any_client = true\n")
}

#[test]
fn apply_adds_changes_and_removes_a_referral_and_names_what_leads_back() {
    let port = free_port();
    let admin = Admin::serving(&document(port, ""), port);
    let apply = |more: &str, options: &[&str]| {
        let other = admin.other_file(&document(port, more));
        let output = admin.ask(&[&["apply", "-c", &other][..], options].concat());
        let told = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), told)
    };
    let listed = || {
        let output = weft(&["discover", &format!("nfs://127.0.0.1:{port}/")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let one = ["192.0.2.7:/files"];
    let two = ["192.0.2.7:/files", "[2001:db8::7]:20490:/files"];
    for (servers, part) in [
        (&one[..], "export /far is added"),
        (&two[..], "export /far: it refers clients to other servers"),
    ] {
        let (code, told) = apply(&referral(servers), &[]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains(part), "{part}: {told}");
        let shown = listed();
        let line = shown.lines().find(|line| line.contains("/far"));
        assert!(line.expect(&shown).contains("referral"), "{shown}");
    }
    let output = weft(&["discover", &format!("nfs://127.0.0.1:{port}/far")]);
    let told = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        told.contains("/far is a referral: name the server"),
        "{told}"
    );
    let back = format!("127.0.0.1:{port}:/far");
    let (code, told) = apply(&referral(&[&back]), &[]);
    assert_ne!(code, Some(0), "{told}");
    assert!(told.contains("go round for ever"), "{told}");
    let (code, told) = apply("", &["--disconnect"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(!listed().contains("/far"));
    end_in_order(admin.serving);
}
