//! `linerate capture`: a host as a file that can be shared.

use std::io::Write;
use std::path::Path as FilePath;

use linerate_host::capture::{CaptureOptions, capture};
use linerate_host::netlink::Netlink;
use linerate_host::regular_file;
use linerate_host::root::LiveHost;
use linerate_model::exit::{Outcome, Stop};
use linerate_runtime::console::say::Say;

/// `linerate capture`.
pub(crate) fn run(file: &FilePath, say: &Say) -> Outcome<()> {
    let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
    let netlink = Netlink::open().map_err(|error| Stop::io("open a netlink socket", error))?;
    let options = CaptureOptions {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pseudonyms: true,
    };
    let archive = capture(live.root(), &netlink, &options);
    let text = archive.to_text();
    regular_file::write_named(file, 0o666, |file| file.write_all(text.as_bytes()))
        .map_err(|error| Stop::io(format!("write {}", file.display()), error))?;
    say.note(&format!(
        "{} written: plain text, names and addresses replaced by pseudonyms; review it before \
         sharing",
        file.display()
    ));
    Ok(())
}
