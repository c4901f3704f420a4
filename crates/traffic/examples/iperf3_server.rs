//! Serves iperf3's clients on the loopback until it is killed, for a look by hand: `iperf3_server PORT`.

use std::error::Error;
use std::net::Ipv4Addr;

use linerate_traffic::Abort;
use linerate_traffic::iperf3::Iperf3Server;

#[expect(clippy::print_stdout, reason = "what was done is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("a port")?.parse()?;
    let server = Iperf3Server::open((Ipv4Addr::UNSPECIFIED, port).into())?;
    server.serve(&Abort::new()?, |finished| {
        println!(
            "{} {:?} {:?}",
            finished.client,
            finished.moved(),
            finished.outcome
        );
    })?;
    Ok(())
}
