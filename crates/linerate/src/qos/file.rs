//! Reads a file of classes, with the line of what is wrong.

use std::path::Path;

use linerate_host::regular_file;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::qos::{Qos, QosFile};

/// The largest file, bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The text of a file, and its classes.
pub(super) fn read(path: &Path) -> Outcome<(String, Qos)> {
    let text = regular_file::read_named_text(path, BYTES_MAX)
        .map_err(|error| Stop::io(format!("read the classes of {}", path.display()), error))?;
    let qos = parse(&text, &path.display().to_string())?;
    Ok((text, qos))
}

/// The classes of a text; `name` is where it is from.
pub(crate) fn parse(text: &str, name: &str) -> Outcome<Qos> {
    let file: QosFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        let why = error.message().trim().replace('\n', "; ");
        Stop::new(Code::BadInput, format!("{name}, line {line}: {why}"))
    })?;
    file.read()
        .map_err(|error| Stop::new(Code::BadInput, format!("{name}: {error}")))
}
