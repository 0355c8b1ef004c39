//! Patterns of host names, as in exports(5).

/// Whether a name fits a pattern, in which `*` stands for any characters and `?` for one, dots
/// included (exports(5)).
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut taken) = (0, 0);
    // Behind the last `*`, and what stands for that so far.
    let mut star = None;
    while taken < name.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, taken));
            }
            (Some(c), _) if *c == b'?' || c.eq_ignore_ascii_case(&name[taken]) => {
                (at, taken) = (at + 1, taken + 1);
            }
            (_, Some((behind, until))) => {
                (at, taken) = (behind, until + 1);
                star = Some((behind, taken));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names_dots_included() {
        for (pattern, name, is_one) in [
            ("*.example.org", "web.example.org", true),
            ("*.example.org", "a.b.EXAMPLE.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "web.example.org.evil", false),
            ("web?.example.org", "web1.example.org", true),
            ("web?.example.org", "web12.example.org", false),
            ("*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false),
            ("*a*a*b", "xaxaxb", true),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, name), is_one, "{pattern} {name}");
        }
    }
}
