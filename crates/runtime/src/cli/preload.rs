//! `--preload` and `mover`: a library in LD_PRELOAD (ld.so(8)) that takes over the socket calls of a plain program.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

/// `--preload`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreloadArg {
    /// librspreload of rdma-core, where distributions install it.
    Rsocket,
    /// The library at this absolute path, on both hosts.
    Library(PathBuf),
}

impl PreloadArg {
    const RSOCKET: &str = "rsocket";

    /// What results call it: `rsocket`, or the name of the file.
    pub fn name(&self) -> String {
        match self {
            Self::Rsocket => Self::RSOCKET.to_owned(),
            Self::Library(path) => {
                let name = path.file_name().map(|name| name.to_string_lossy());
                name.unwrap_or_else(|| path.to_string_lossy()).into_owned()
            }
        }
    }
}

impl fmt::Display for PreloadArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsocket => f.write_str(Self::RSOCKET),
            Self::Library(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for PreloadArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::RSOCKET {
            return Ok(Self::Rsocket);
        }
        let path = Path::new(text);
        if !path.is_absolute() || path.file_name().is_none() {
            return Err("expected `rsocket` or the absolute path of a shared library".to_owned());
        }
        // LD_PRELOAD separates its entries by spaces and colons and expands `$ORIGIN`; a shell at an ssh peer splits and
        // expands much more.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
        if !text.chars().all(is_plain) {
            return Err(
                "expected a path of letters, digits and `/._+-` only; a link to the library will do"
                    .to_owned(),
            );
        }
        Ok(Self::Library(path.to_owned()))
    }
}

/// `mover`.
#[derive(Debug, Args)]
pub struct MoverArgs {
    /// Re-execute with this library in LD_PRELOAD.
    #[arg(long)]
    pub preload: Option<PreloadArg>,
    /// The file that LD_PRELOAD names, to check that it was loaded.
    #[arg(long, conflicts_with = "preload")]
    pub loaded: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_rsocket_or_an_absolute_path_that_ld_preload_can_hold() {
        for text in ["rsocket", "/usr/lib64/libvma.so", "/opt/a-b/c_d/lib+.so.8"] {
            let read: PreloadArg = text.parse().expect(text);
            assert_eq!(read.to_string(), text);
        }
        let vma: PreloadArg = "/usr/lib64/libvma.so".parse().expect("a path");
        assert_eq!(vma.name(), "libvma.so");
        for text in [
            "libvma.so",
            "./libvma.so",
            "",
            "/",
            "/a b.so",
            "/a:b.so",
            "/$ORIGIN/b.so",
            "/a;b.so",
            "/a\nb.so",
        ] {
            assert!(text.parse::<PreloadArg>().is_err(), "{text:?}");
        }
    }
}
