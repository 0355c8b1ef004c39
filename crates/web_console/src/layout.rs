//! What every page has: head, navigation, the place of what it shows.

use maud::{DOCTYPE, Markup, html};

/// What is served beside the pages.
pub struct Asset {
    /// `Content-Type`.
    pub media_type: &'static str,
    /// Its bytes.
    pub text: &'static str,
}

const ASSETS: [(&str, Asset); 2] = [
    (
        "console.css",
        Asset {
            media_type: "text/css; charset=utf-8",
            text: include_str!("console.css"),
        },
    ),
    (
        "console.js",
        Asset {
            media_type: "text/javascript; charset=utf-8",
            text: include_str!("console.js"),
        },
    ),
];

/// What is served under `/console/NAME`.
#[must_use]
pub fn asset(name: &str) -> Option<&'static Asset> {
    let found = ASSETS.iter().find(|(own, _)| *own == name);
    found.map(|(_, asset)| asset)
}

/// The pages of the navigation: path and name.
const PAGES: [(&str, &str); 10] = [
    ("/", "Overview"),
    ("/volumes", "Volumes"),
    ("/nvme", "NVMe"),
    ("/iscsi", "iSCSI"),
    ("/files", "Files"),
    ("/connections", "Connections"),
    ("/refusals", "Refusals"),
    ("/configuration", "Configuration"),
    ("/history", "History"),
    ("/audit", "Audit"),
];

pub(crate) fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " – weft" }
            link rel="stylesheet" href="/console/console.css";
            link rel="icon" href="data:,";
            script src="/console/console.js" defer {}
        }
    }
}

/// Who sees a page, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The path that it was asked by.
    pub path: &'a str,
    /// What whoever sees it is called.
    pub caller: &'a str,
    /// The role of that caller.
    pub role: &'a str,
}

impl Page<'_> {
    /// A whole page. `is_live`: the script asks for it again every few seconds.
    pub(crate) fn whole(&self, title: &str, is_live: bool, content: &Markup) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (head(title))
                body {
                    a.skip href="#content" { "Skip to content" }
                    header {
                        a.name href="/" { "weft" }
                        nav aria-label="Pages" {
                            ul {
                                @for (path, name) in PAGES {
                                    li {
                                        a href=(path) aria-current=[self.is_on(path).then_some("page")] {
                                            (name)
                                        }
                                    }
                                }
                            }
                        }
                        p.caller { (self.caller) ", " (self.role) }
                    }
                    main #content tabindex="-1" data-live=[is_live.then_some("")] {
                        h1 { (title) }
                        (content)
                    }
                }
            }
        };
        page.into_string()
    }

    fn is_on(&self, path: &str) -> bool {
        match path {
            "/" => self.path == "/",
            path => self.path.split('/').nth(1) == path.strip_prefix('/'),
        }
    }
}
