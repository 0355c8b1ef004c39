//! Files of TLS that are replaced while weft runs are looked at: certificates end, and clients
//! are revoked.

use std::convert::Infallible;
use std::time::Duration;

use tls::Renewed;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// How often a server looks whether files are others.
pub(crate) const EVERY: Duration = Duration::from_secs(60);

/// Looks at once and then `every` so long, for ever. A look may block.
pub(crate) async fn look_at_files(
    look: impl Fn() + Clone + Send + 'static,
    every: Duration,
) -> Infallible {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let _ = spawn_blocking(look.clone()).await;
    }
}

/// Takes the files of a section where they are others by now, and tells of it. Wrong ones change
/// nothing but what is told.
pub(crate) fn look(section: &str, tls: &dyn Renewed) {
    match tls.look() {
        None => {}
        Some(Ok(())) => {
            tracing::info!("{section}: renewed files hold from the next connection on");
        }
        Some(Err(why)) => tracing::warn!("{}", warning(section, &why)),
    }
}

/// What is told while the files of a section will not do.
pub(crate) fn warning(section: &str, why: &str) -> String {
    format!(
        "{section}: {why}: what was read before holds still: put files in its place that belong \
         together"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    use tls::{RenewedTls, ServerSide, TlsFiles};
    use tokio::time::{sleep, timeout};

    use super::*;

    /// How often a test looks.
    const SOON: Duration = Duration::from_millis(1);
    /// How long it waits for what never comes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A certificate and its key among the test data of `tls`, in a folder of the test's own.
    fn files_in(folder: &Path) -> TlsFiles {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
        let [certificate, key] = ["server.pem", "server.key"].map(|name| {
            let path = folder.join(name);
            fs::copy(testdata.join(name), &path).expect("test data");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
            path
        });
        TlsFiles {
            certificate,
            key: key.into(),
            client_ca: None,
            client_crl: None,
        }
    }

    #[test]
    fn files_that_are_renewed_hold_after_the_next_look_and_wrong_ones_are_told_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files_in(folder.path());
        let tls = RenewedTls::read(&files, ServerSide::new).expect("good files");
        let first = tls.side();
        let changes = async {
            let good = fs::read_to_string(&files.certificate).expect("there");
            fs::write(&files.certificate, format!("{good}\n")).expect("room");
            while Arc::ptr_eq(&tls.side(), &first) {
                sleep(SOON).await;
            }
            assert_eq!(tls.wrong(), None);
            let second = tls.side();
            fs::write(&files.certificate, "not a certificate").expect("room");
            while tls.wrong().is_none() {
                sleep(SOON).await;
            }
            assert!(Arc::ptr_eq(&tls.side(), &second), "the old one holds still");
        };
        let looked = tls.clone();
        let looks = look_at_files(move || look("[admin.tls]", &*looked), SOON);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(async {
            tokio::select! {
                never = looks => match never {},
                done = timeout(PATIENCE, changes) => done.expect("it looks"),
            }
        });
    }
}
