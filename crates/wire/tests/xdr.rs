//! What the build script tells of descriptions that are wrong.

#[path = "../build/xdr.rs"]
mod xdr;

#[test]
fn mistake_in_a_description_is_told_with_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let group = folder.path().join("group");
    std::fs::create_dir(&group).expect("a folder");
    std::fs::write(group.join("name.x"), "struct a {\n int x\n};").expect("a file");
    let why = xdr::generate(folder.path(), folder.path()).expect_err("a mistake");
    assert!(why.contains("name.x: ") && why.contains("line 3"), "{why}");
}
