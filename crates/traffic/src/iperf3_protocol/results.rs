//! The results that the two ends of an iperf3 test exchange when it is over.

use linerate_model::units::Bytes;
use serde_json::{Map, Value, json};

use super::TalkError;
use super::json::{Object, parse};

/// The results of one end of an iperf3 test.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// CPU time of its process while the test ran, in percent of one CPU.
    pub cpu_percent: f64,
    /// Of it, in user mode.
    pub cpu_user_percent: f64,
    /// Of it, in the kernel.
    pub cpu_system_percent: f64,
    /// Whether its `retransmits` mean something; `None` at an end that only received.
    pub has_retransmits: Option<bool>,
    /// The congestion control of its sockets.
    pub congestion: Option<String>,
    /// Its streams, in its own order.
    pub streams: Vec<StreamResults>,
}

/// A server's results.
pub type ServerResults = Results;

/// One stream at one end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamResults {
    /// The number of the stream; equal at both ends.
    pub id: u32,
    /// What was sent or received, without what was omitted.
    pub bytes: Bytes,
    /// Segments retransmitted; `None` when this end does not know.
    pub retransmits: Option<u64>,
    /// The smoothed difference of transit times, in seconds, at a UDP receiver.
    pub jitter_s: f64,
    /// Datagrams lost, at a receiver.
    pub errors: u64,
    /// Datagrams, lost ones included.
    pub packets: u64,
    /// Of `errors` and `packets`, those at the beginning that do not count; `None` if not reported.
    pub omitted: Option<Omitted>,
    /// When the counting began, in seconds.
    pub start_s: f64,
    /// When it ended, in seconds.
    pub end_s: f64,
}

/// Datagrams at the beginning of a test that do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Omitted {
    /// Lost ones.
    pub errors: u64,
    /// All of them.
    pub packets: u64,
}

const WHAT: &str = "results";

/// The number of flow `number`: iperf3 leaves out 2.
pub fn stream_id(number: u32) -> u32 {
    if number == 0 { 1 } else { number + 2 }
}

impl Results {
    /// Parses the other end's results.
    pub fn read(json: &[u8]) -> Result<Self, TalkError> {
        let value = parse(WHAT, json)?;
        let keys = Object::of(WHAT, &value)?;
        let percent = |key| keys.real(key).map(|percent| percent.unwrap_or(0.0));
        let retransmits = keys.whole("sender_has_retransmits")?;
        Ok(Self {
            cpu_percent: percent("cpu_util_total")?,
            cpu_user_percent: percent("cpu_util_user")?,
            cpu_system_percent: percent("cpu_util_system")?,
            has_retransmits: retransmits.filter(|&has| has >= 0).map(|has| has > 0),
            congestion: keys
                .text("congestion_used")?
                .map(|name| name.chars().filter(|c| !c.is_control()).take(32).collect()),
            streams: keys
                .objects("streams")?
                .into_iter()
                .map(StreamResults::read)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The JSON to send.
    pub fn write(&self) -> String {
        let mut keys = Map::new();
        let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
        put("cpu_util_total", json!(self.cpu_percent));
        put("cpu_util_user", json!(self.cpu_user_percent));
        put("cpu_util_system", json!(self.cpu_system_percent));
        let has = self.has_retransmits.map_or(-1, i64::from);
        put("sender_has_retransmits", json!(has));
        if let Some(name) = &self.congestion {
            put("congestion_used", json!(name));
        }
        let streams = self.streams.iter().map(StreamResults::write);
        put("streams", streams.collect());
        Value::Object(keys).to_string()
    }

    /// The stream of flow `number`.
    pub fn stream(&self, number: u32) -> Option<&StreamResults> {
        let id = stream_id(number);
        self.streams.iter().find(|stream| stream.id == id)
    }
}

impl StreamResults {
    fn read(keys: Object<'_>) -> Result<Self, TalkError> {
        let seconds = |key| keys.real(key).map(|time| time.unwrap_or(0.0));
        let omitted = match (
            keys.count("omitted_errors")?,
            keys.count("omitted_packets")?,
        ) {
            (Some(errors), Some(packets)) => Some(Omitted { errors, packets }),
            _ => None,
        };
        let retransmits = keys.whole("retransmits")?;
        Ok(Self {
            id: u32::try_from(keys.needed("id")?).unwrap_or(u32::MAX),
            bytes: Bytes::new(keys.needed("bytes")?),
            retransmits: retransmits.and_then(|count| u64::try_from(count).ok()),
            jitter_s: seconds("jitter")?,
            // A late datagram rolls back a loss that was counted before the omitted time ended.
            errors: u64::try_from(keys.whole("errors")?.unwrap_or(0)).unwrap_or(0),
            packets: u64::try_from(keys.whole("packets")?.unwrap_or(0)).unwrap_or(0),
            omitted,
            start_s: seconds("start_time")?,
            end_s: seconds("end_time")?,
        })
    }

    fn write(&self) -> Value {
        let omitted = self.omitted.unwrap_or_default();
        let retransmits = self
            .retransmits
            .map_or_else(|| json!(-1), |count| json!(count));
        json!({
            "id": self.id,
            "bytes": self.bytes.as_u64(),
            "retransmits": retransmits,
            "jitter": self.jitter_s,
            "errors": self.errors,
            "omitted_errors": omitted.errors,
            "packets": self.packets,
            "omitted_packets": omitted.packets,
            "start_time": self.start_s,
            "end_time": self.end_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_second_stream_has_number_three() {
        let ids: Vec<u32> = (0..4).map(stream_id).collect();
        assert_eq!(ids, [1, 3, 4, 5]);
    }

    #[test]
    fn what_is_not_told_is_unknown_and_not_zero() {
        let json = br#"{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,
            "sender_has_retransmits":-1,
            "streams":[{"id":1,"bytes":10,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#;
        let read = Results::read(json).expect("all that a reader needs");
        assert_eq!(
            (read.has_retransmits, read.congestion.as_deref()),
            (None, None)
        );
        assert_eq!(
            (read.streams[0].retransmits, read.streams[0].omitted),
            (None, None)
        );
    }

    proptest! {
        #[test]
        fn what_we_tell_reads_back(
            numbers in proptest::collection::vec((0u64..1 << 53, 0u64..1 << 40, 0u64..1 << 40), 0..20),
            eighths in 0u32..51_200,
        ) {
            // Exact in decimal and in binary.
            let percent = f64::from(eighths) / 8.0;
            let results = Results {
                cpu_percent: percent,
                cpu_user_percent: percent / 4.0,
                cpu_system_percent: percent / 2.0,
                has_retransmits: Some(percent > 100.0),
                congestion: Some("cubic".to_owned()),
                streams: (0u32..).zip(&numbers).map(|(number, &(bytes, errors, packets))| StreamResults {
                    id: stream_id(number),
                    bytes: Bytes::new(bytes),
                    retransmits: Some(errors).filter(|errors| errors % 2 == 0),
                    jitter_s: percent / 1024.0,
                    errors,
                    packets,
                    omitted: Some(Omitted { errors: 0, packets: errors }),
                    start_s: 0.0,
                    end_s: percent,
                }).collect(),
            };
            prop_assert_eq!(Results::read(results.write().as_bytes()), Ok(results));
        }
    }
}
