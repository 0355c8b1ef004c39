//! What every page has: head, navigation, the place of what it shows.

use maud::{DOCTYPE, Markup, html};

use tables::plain;

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
const PAGES: [(&str, &str); 12] = [
    ("/", "Overview"),
    ("/volumes", "Volumes"),
    ("/nvme", "NVMe"),
    ("/iscsi", "iSCSI"),
    ("/files", "Files"),
    ("/listeners", "Listeners"),
    ("/connections", "Connections"),
    ("/performance", "Performance"),
    ("/refusals", "Refusals"),
    ("/configuration", "Configuration"),
    ("/events", "Events"),
    ("/connect", "Connect"),
];

/// Pages that stand beside one of those, by the first part of their path.
const BESIDE: [(&str, &str); 2] = [("history", "/configuration"), ("audit", "/events")];

pub(crate) fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (plain(title)) " – weft" }
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
        self.written(title, is_live.then_some(""), content)
    }

    /// A whole page, which the script asks for again when something comes on `stream`.
    pub(crate) fn live(&self, title: &str, stream: &str, content: &Markup) -> String {
        self.written(title, Some(stream), content)
    }

    fn written(&self, title: &str, live: Option<&str>, content: &Markup) -> String {
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
                        p.caller { (plain(self.caller)) ", " (self.role) }
                    }
                    main #content tabindex="-1" data-live=[live] {
                        h1 { (plain(title)) }
                        (content)
                    }
                }
            }
        };
        page.into_string()
    }

    /// Whether whoever sees it may change something.
    pub(crate) fn may_change(&self) -> bool {
        self.role != "viewer"
    }

    fn is_on(&self, path: &str) -> bool {
        let first = self.path.split('/').nth(1);
        let beside = BESIDE.iter().find(|(word, _)| Some(*word) == first);
        match (path, beside) {
            ("/", _) => self.path == "/",
            (path, Some((_, holds))) => path == *holds,
            (path, None) => first == path.strip_prefix('/'),
        }
    }

    /// Links to pages that stand beside this one.
    pub(crate) fn beside(&self, label: &str, all: &[(&str, &str)]) -> Markup {
        html! {
            nav.kinds aria-label=(label) {
                ul {
                    @for (path, name) in all {
                        li {
                            a href=(path) aria-current=[(self.path == *path).then_some("page")] {
                                (name)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The pages of the configuration.
pub(crate) const CONFIGURATION: [(&str, &str); 2] =
    [("/configuration", "Text"), ("/history", "History")];

/// The pages of what has happened.
pub(crate) const HAPPENED: [(&str, &str); 2] = [("/events", "Events"), ("/audit", "Audit")];
