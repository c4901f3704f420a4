//! Whether an address can be reached: this decides whether changes are kept.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use linerate_model::exit::{Code, Outcome, Stop};

/// Opens a new TCP connection, and closes it.
pub(crate) fn reach(address: &str) -> Outcome<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    let failed =
        |error| Stop::new(Code::PeerUnreachable, format!("cannot reach {address}")).because(error);
    let known: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| {
            Stop::new(
                Code::BadInput,
                format!("expected HOST:PORT, got `{address}`"),
            )
            .because(error)
        })?
        .collect();
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for one in known {
        match TcpStream::connect_timeout(&one, LIMIT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}
