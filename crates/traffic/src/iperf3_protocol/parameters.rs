//! What an iperf3 client asks for: the parameters that it sends as JSON.

use std::time::Duration;

use linerate_model::units::{BitRate, Bytes};
use linerate_model::workload::{Direction, TrialSpec, Workload};
use serde_json::{Map, Value, json};

use super::json::{Object, parse};
use super::{STREAMS_MAX, TalkError};

/// What an iperf3 client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one of the protocol's own keys"
)]
pub struct Parameters {
    /// Datagrams instead of TCP.
    pub udp: bool,
    /// The time at the beginning that does not count.
    pub omit_s: u32,
    /// How long the client means to test; `None` when an amount decides.
    pub time_s: Option<u32>,
    /// The amount that ends the test, which the client watches; `None` when the time does.
    pub bytes: Option<Bytes>,
    /// The same in blocks.
    pub blocks: Option<u64>,
    /// Streams in each direction.
    pub parallel: u32,
    /// The direction of the bytes, seen from the client.
    pub direction: Direction,
    /// The size of each send; of a datagram.
    pub len: Bytes,
    /// `TCP_MAXSEG`, which the client's own socket has already made effective.
    pub mss: Option<Bytes>,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// Socket buffers.
    pub window: Option<Bytes>,
    /// The rate of each stream; `None` is unlimited.
    pub bandwidth: Option<BitRate>,
    /// `SO_MAX_PACING_RATE` of each stream.
    pub fqrate: Option<BitRate>,
    /// The congestion control.
    pub congestion: Option<String>,
    /// The type of service.
    pub tos: u8,
    /// The CPU for the server.
    pub server_affinity: Option<u32>,
    /// Packet numbers have 64 bits.
    pub counters_64bit: bool,
    /// The receiver has the kernel throw the payload away.
    pub skip_rx_copy: bool,
    /// The client's version, as it reports it.
    pub client_version: Option<String>,
}

const WHAT: &str = "parameters";

impl Parameters {
    /// TCP's largest block.
    pub const LEN_MAX: u64 = 1 << 20;
    /// UDP's largest datagram.
    pub const DATAGRAM_MAX: u64 = 65_507;
    /// UDP's smallest: its header with wide counters.
    pub const DATAGRAM_MIN: u64 = 16;
    /// The longest test in seconds.
    pub const TIME_MAX: u64 = 86_400;

    /// Reads and checks what a client sent. Keys of later versions are passed over.
    pub fn read(json: &[u8]) -> Result<Self, TalkError> {
        let value = parse(WHAT, json)?;
        let keys = Object::of(WHAT, &value)?;
        let udp = keys.flag("udp")?;
        if keys.flag("sctp")? || keys.flag("mptcp")? {
            return Err(TalkError::NotSupported {
                what: "SCTP or MPTCP",
            });
        }
        let default_len = if udp { 1_460 } else { 128 << 10 };
        let len = keys.count("len")?.filter(|&len| len > 0);
        let len = len.unwrap_or(default_len);
        let (least, most, allowed) = if udp {
            (Self::DATAGRAM_MIN, Self::DATAGRAM_MAX, "16 to 65507 bytes")
        } else {
            (1, Self::LEN_MAX, "1 byte to 1 MiB")
        };
        limit("len", len, least..=most, allowed)?;
        let parallel = keys.count("parallel")?.unwrap_or(1);
        limit("parallel", parallel, 1..=u64::from(STREAMS_MAX), "1 to 128")?;
        let time = keys.count("time")?.unwrap_or(0);
        limit("time", time, 0..=Self::TIME_MAX, "0 to 86400 seconds")?;
        let omit = keys.count("omit")?.unwrap_or(0);
        limit("omit", omit, 0..=600, "0 to 600 seconds")?;
        let window = keys.count("window")?.unwrap_or(0);
        limit("window", window, 0..=1 << 30, "up to 1 GiB")?;
        let mss = keys.count("MSS")?.unwrap_or(0);
        limit("MSS", mss, 0..=32_767, "up to 32767 bytes")?;
        let direction = match (keys.flag("reverse")?, keys.flag("bidirectional")?) {
            (_, true) => Direction::Bidirectional,
            (true, false) => Direction::Reverse,
            _ => Direction::Forward,
        };
        let nonzero = |count: Option<u64>| count.filter(|&count| count > 0);
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Self {
            udp,
            omit_s: small(omit),
            time_s: Some(small(time)).filter(|&time| time > 0),
            bytes: nonzero(keys.count("num")?).map(Bytes::new),
            blocks: nonzero(keys.count("blockcount")?),
            parallel: small(parallel),
            direction,
            len: Bytes::new(len),
            mss: Some(Bytes::new(mss)).filter(|_| mss > 0),
            nodelay: keys.flag("nodelay")?,
            window: Some(Bytes::new(window)).filter(|_| window > 0),
            bandwidth: nonzero(keys.count("bandwidth")?).map(BitRate::from_bit_per_s),
            fqrate: nonzero(keys.count("fqrate")?).map(BitRate::from_bit_per_s),
            congestion: congestion(keys.text("congestion")?)?,
            tos: u8::try_from(keys.count("TOS")?.unwrap_or(0)).unwrap_or(0),
            server_affinity: keys
                .whole("server_affinity")?
                .and_then(|cpu| u32::try_from(cpu).ok()),
            counters_64bit: keys.flag("udp_counters_64bit")?,
            skip_rx_copy: keys.flag("skip_rx_copy")?,
            client_version: keys
                .text("client_version")?
                .map(|text| text.chars().filter(|c| !c.is_control()).take(64).collect()),
        })
    }

    /// What to ask an iperf3 server for to have `spec`.
    pub fn of_spec(spec: &TrialSpec) -> Result<Self, TalkError> {
        limit(
            "parallel",
            u64::from(spec.flows),
            1..=u64::from(STREAMS_MAX),
            "1 to 128",
        )?;
        let (udp, len, bandwidth, bytes) = match &spec.workload {
            Workload::Stream(stream) => (false, spec.buffer_bytes, None, stream.bytes),
            Workload::Udp(udp) => (true, udp.datagram_bytes, udp.rate_bit_per_s, None),
            _ => {
                return Err(TalkError::NotSupported {
                    what: "a workload other than stream and udp",
                });
            }
        };
        let (least, most) = if udp {
            (Self::DATAGRAM_MIN, Self::DATAGRAM_MAX)
        } else {
            (1, Self::LEN_MAX)
        };
        limit(
            "len",
            len.as_u64(),
            least..=most,
            "1 byte to 1 MiB, of a datagram 16 to 65507 bytes",
        )?;
        // The server only has to know that it is not shorter: this end decides.
        let seconds = Duration::from(spec.duration_ns).as_secs_f64().ceil();
        let time = (1..=86_400u32).find(|&time| f64::from(time) >= seconds);
        Ok(Self {
            udp,
            omit_s: 0,
            time_s: time.filter(|_| bytes.is_none()),
            bytes,
            blocks: None,
            parallel: spec.flows,
            direction: spec.direction,
            len,
            mss: spec.mss_bytes,
            nodelay: false,
            window: spec.socket_buffer_bytes,
            bandwidth,
            fqrate: spec.pacing_bit_per_s,
            congestion: spec.congestion_control.clone(),
            tos: 0,
            server_affinity: None,
            counters_64bit: udp,
            skip_rx_copy: false,
            client_version: Some(concat!("linerate ", env!("CARGO_PKG_VERSION")).to_owned()),
        })
    }

    /// As a client sends them.
    pub fn write(&self) -> String {
        let mut keys = Map::new();
        let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
        put(if self.udp { "udp" } else { "tcp" }, json!(true));
        put("omit", json!(self.omit_s));
        if let Some(cpu) = self.server_affinity {
            put("server_affinity", json!(cpu));
        }
        put("time", json!(self.time_s.unwrap_or(0)));
        put("num", json!(self.bytes.map_or(0, Bytes::as_u64)));
        put("blockcount", json!(self.blocks.unwrap_or(0)));
        let sizes = [("MSS", self.mss), ("window", self.window)];
        for (key, size) in sizes {
            if let Some(size) = size {
                put(key, json!(size.as_u64()));
            }
        }
        put("parallel", json!(self.parallel));
        put("len", json!(self.len.as_u64()));
        let rates = [("bandwidth", self.bandwidth), ("fqrate", self.fqrate)];
        for (key, rate) in rates {
            if let Some(rate) = rate {
                put(key, json!(rate.as_bit_per_s()));
            }
        }
        if self.tos > 0 {
            put("TOS", json!(self.tos));
        }
        put("pacing_timer", json!(1_000));
        let flags = [
            ("reverse", self.direction == Direction::Reverse),
            ("bidirectional", self.direction == Direction::Bidirectional),
            ("nodelay", self.nodelay),
            ("udp_counters_64bit", self.counters_64bit),
            ("skip_rx_copy", self.skip_rx_copy),
        ];
        for (key, _) in flags.iter().filter(|(_, set)| *set) {
            put(key, json!(1));
        }
        let texts = [
            ("congestion", &self.congestion),
            ("client_version", &self.client_version),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                put(key, json!(text));
            }
        }
        Value::Object(keys).to_string()
    }

    /// How many streams the test has, both directions together.
    pub fn streams(&self) -> u32 {
        match self.direction {
            Direction::Bidirectional => self.parallel * 2,
            _ => self.parallel,
        }
    }
}

fn limit(
    key: &'static str,
    given: u64,
    range: std::ops::RangeInclusive<u64>,
    allowed: &'static str,
) -> Result<(), TalkError> {
    if range.contains(&given) {
        return Ok(());
    }
    Err(TalkError::Limit {
        key,
        given: given.to_string(),
        allowed,
    })
}

fn congestion(name: Option<&str>) -> Result<Option<String>, TalkError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    if name.len() > 15 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TalkError::Limit {
            key: "congestion",
            given: name.chars().take(20).collect(),
            allowed: "a name of 1 to 15 characters",
        });
    }
    Ok(Some(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use linerate_model::workload::{Stream, Udp};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parameters_of_a_real_client_are_read() {
        let json = br#"{"tcp":true,"omit":0,"time":2,"num":0,"blockcount":0,"parallel":1,
            "len":131072,"pacing_timer":1000,"client_version":"3.21+"}"#;
        let read = Parameters::read(json).expect("a real client's");
        assert_eq!((read.udp, read.time_s, read.bytes), (false, Some(2), None));
        assert_eq!((read.parallel, read.len), (1, Bytes::kib(128)));
        assert_eq!(read.bandwidth, None);
    }

    #[test]
    fn large_numbers_may_be_written_with_an_exponent() {
        let read = Parameters::read(br#"{"tcp":1,"num":1e+15}"#).expect("a number");
        assert_eq!(read.bytes, Some(Bytes::new(1_000_000_000_000_000)));
    }

    #[test]
    fn what_is_out_of_its_limits_is_refused() {
        for json in [
            r#"{"parallel":129}"#,
            r#"{"parallel":0}"#,
            r#"{"parallel":-1}"#,
            r#"{"parallel":1.5}"#,
            r#"{"time":86401}"#,
            r#"{"len":1048577}"#,
            r#"{"udp":true,"len":15}"#,
            r#"{"udp":true,"len":65508}"#,
            r#"{"omit":601}"#,
            r#"{"sctp":true}"#,
            r#"{"congestion":"a name that is far too long"}"#,
            r#"{"num":1e400}"#,
            r"[1]",
            r"{",
            "",
        ] {
            assert!(Parameters::read(json.as_bytes()).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn what_we_ask_for_reads_back(
            flows in 1u32..=128,
            len in 24u64..60_000,
            rate in proptest::option::of(1u64..1_000_000_000_000),
            udp: bool,
            mss in proptest::option::of(88u64..32_767),
        ) {
            let spec = TrialSpec {
                workload: if udp {
                    Workload::Udp(Udp {
                        datagram_bytes: Bytes::new(len),
                        rate_bit_per_s: rate.map(BitRate::from_bit_per_s),
                        batch: linerate_model::workload::DatagramBatch::Single,
                        probe: None,
                    })
                } else {
                    Workload::Stream(Stream { bytes: rate.map(Bytes::new), ..Stream::default() })
                },
                flows,
                buffer_bytes: Bytes::new(len),
                mss_bytes: mss.map(Bytes::new),
                ..TrialSpec::default()
            };
            let asked = Parameters::of_spec(&spec).expect("within the limits");
            prop_assert_eq!(Parameters::read(asked.write().as_bytes()), Ok(asked));
        }

        #[test]
        fn no_text_makes_the_reader_panic(json in "\\PC*") {
            let _ = Parameters::read(json.as_bytes());
        }
    }
}
