//! Writes the first inputs of every target into `target/corpus/`, made from the repository's own fixtures: the
//! captured hosts, the netlink messages of a real kernel, synthetic hosts and trials.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_analysis::record::Record;
use linerate_host::capture::Captured;
use linerate_host::read::read_host;
use linerate_model::build;
use linerate_model::protocol::{Reply, Request, Token};
use serde::Serialize;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How many readers of files there are, about: `linerate_host::fuzz::sysfs_text`.
const READERS: u8 = 48;

/// The longest seed: a fuzzer does little with long ones.
const SEED_BYTES_MAX: usize = 32 << 10;

fn main() -> Outcome<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = Seeds(here.join("target/corpus"));
    let repository = here.join("..");
    for entry in fs::read_dir(repository.join("fixtures/hosts"))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "lrcap")
        {
            seeds_of_host(&seeds, &path)?;
        }
    }
    seeds_of_netlink(&seeds, &repository.join("crates/host/src/netlink/captured"))?;
    seed_of_links(&seeds)?;
    seeds_of_memory(&seeds)?;
    seeds_of_trials(&seeds)?;
    seeds_of_channel(&seeds)?;
    for (place, bytes) in PACKETS.iter().enumerate() {
        seeds.put("events", &format!("packet-{place}"), bytes)?;
    }
    seeds.put("plan", "plan", PLAN)?;
    for (place, text) in SETTINGS.iter().enumerate() {
        seeds.put("setting_key", &place.to_string(), text)?;
    }
    for (place, text) in QOS.iter().enumerate() {
        seeds.put("qos", &place.to_string(), text)?;
    }
    for (place, text) in HTTP_REQUESTS.iter().enumerate() {
        seeds.put("http_request", &place.to_string(), text)?;
    }
    for (place, text) in HTTP_RESPONSES.iter().enumerate() {
        seeds.put("http_response", &place.to_string(), text)?;
    }
    for (place, text) in IPERF3.iter().enumerate() {
        let mut bytes = vec![7];
        bytes.extend(u32::try_from(text.len())?.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        seeds.put("iperf3", &place.to_string(), bytes)?;
    }
    seeds.put("host_facts", "none", [0; 12])
}

/// A file of classes, class rules, and qdisc hierarchies in words.
const QOS: [&str; 6] = [
    "[qos]\ninterface = \"eth1\"\n\n[[class]]\nname = \"storage\"\nvlan = 10\naddress = \"12.0.10.2/24\"\nlimit = \"1gbit\"\nguarantee = \"200mbit\"\npriority = 1\n",
    "[qos]\ninterface = \"eth1\"\nlimit-of = \"wire\"\nmechanism = \"htb\"\n[[class]]\nname = \"a\"\ndscp = \"af21\"\nlimit = \"5 %\"\n[[class]]\nname = \"b\"\nports = [80, 443]\n[[class]]\nname = \"c\"\nmark = 7\nlimit = \"none\"\n",
    "priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 1 -> 1:30",
    "htb default 30 class 1:1 rate 1gbit class 1:10 parent 1:1 rate 50mbit ceil 100mbit leaf 1:10 pfifo limit 100",
    "mqprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0",
    "tbf rate 10mbit burst 16kb limit 100kb",
];

const HTTP_REQUESTS: [&str; 3] = [
    "GET / HTTP/1.1\r\nHost: linerate.localhost\r\n\r\n",
    "\r\nHEAD /a?b HTTP/1.0\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n",
    "GET http://far/ HTTP/1.1\r\nhost: far\r\nTransfer-Encoding: chunked\r\n\r\n",
];

const HTTP_RESPONSES: [&str; 4] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: u\r\n\r\n",
    "HTTP/1.0 200 OK\nConnection: keep-alive\n\nuntil the end",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
];

/// The parameters of an iperf3 client, and the results of both ends.
const IPERF3: [&str; 3] = [
    r#"{"tcp":true,"omit":0,"time":2,"num":0,"parallel":4,"reverse":true,"len":131072,"MSS":1400,"window":65536,"congestion":"reno","client_version":"3.16"}"#,
    r#"{"udp":true,"omit":1,"time":1e1,"bidirectional":1,"len":1460,"bandwidth":5000000,"udp_counters_64bit":1,"TOS":16}"#,
    r#"{"cpu_util_total":1.5,"cpu_util_user":1,"cpu_util_system":0.5,"sender_has_retransmits":1,"congestion_used":"bbr","streams":[{"id":1,"bytes":99,"retransmits":3,"jitter":0.1,"errors":1,"omitted_errors":0,"packets":7,"omitted_packets":1,"start_time":0,"end_time":1.5}]}"#,
];

/// A gratuitous ARP, a VRRP advertisement, a neighbor advertisement, each after the byte that chooses its parser.
const PACKETS: [&[u8]; 3] = [
    &[
        5, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1,
    ],
    &[
        6, 0x45, 0xc0, 0, 32, 0, 1, 0, 0, 255, 112, 0, 0, 10, 0, 0, 2, 224, 0, 0, 18, 0x31, 51,
        150, 1, 0, 10, 0, 0, 10, 0, 0, 1,
    ],
    &[
        3, 0x60, 0, 0, 0, 0, 24, 58, 255, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 136, 0, 0, 0, 0x20, 0, 0, 0, 0xfe, 0x80,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    ],
];

/// The folder of all seeds.
struct Seeds(PathBuf);

impl Seeds {
    fn put(&self, target: &str, name: &str, bytes: impl AsRef<[u8]>) -> Outcome<()> {
        let folder = self.0.join(target);
        fs::create_dir_all(&folder)?;
        if bytes.as_ref().len() <= SEED_BYTES_MAX {
            fs::write(folder.join(format!("seed-{name}")), bytes)?;
        }
        Ok(())
    }
}

/// Pairing lines and other names of peers, a frame of each kind, and the greeting of a data connection.
fn seeds_of_channel(seeds: &Seeds) -> Outcome<()> {
    let secrets = format!("{}.{}.1795000900", "a5".repeat(32), "0f".repeat(16));
    let lines = [
        format!("tls://10.77.0.2:5210#{secrets}"),
        format!("tls://[fd00::1]#{secrets}\n"),
        "ssh://me@apricot:2222".to_owned(),
        "exec:docker exec x linerate agent --stdio".to_owned(),
    ];
    for (place, line) in lines.iter().enumerate() {
        seeds.put("channel", &format!("peer-{place}"), line)?;
    }
    let kinds: [(u8, &[u8]); 9] = [
        (1, b"input"),
        (2, b""),
        (3, b"output"),
        (4, b"errors"),
        (5, &[0]),
        (6, &[7; 16]),
        (7, b""),
        (8, b""),
        (9, b"\x15not paired"),
    ];
    let mut frames = Vec::new();
    for (kind, payload) in kinds {
        frames.push(kind);
        frames.extend(u16::try_from(payload.len())?.to_be_bytes());
        frames.extend(payload);
    }
    seeds.put("channel", "frames", frames)?;
    let greeting = linerate_model::greeting::write(Token([7; 16]), 3);
    seeds.put("channel", "greeting", greeting)
}

/// One of each kind: hard links, symbolic links, a name in a separate header, one path of many folders.
fn seed_of_links(seeds: &Seeds) -> Outcome<()> {
    let mut tar = tar::Builder::new(Vec::new());
    let entry = |kind, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size);
        header
    };
    let deep = format!("sys/{}x", "a/".repeat(100));
    for path in ["sys/d/queues/rx-0/rps_cpus", deep.as_str()] {
        let mut header = entry(tar::EntryType::Regular, 2);
        tar.append_data(&mut header, path, b"0\n".as_slice())?;
    }
    for name in ["0", "1"] {
        let mut header = entry(tar::EntryType::Link, 0);
        tar.append_link(&mut header, format!("sys/hard{name}"), &deep)?;
        let mut header = entry(tar::EntryType::Symlink, 0);
        tar.append_link(&mut header, format!("sys/class/net/e{name}"), "../../d")?;
    }
    seeds.put("tarball", "links", tar.into_inner()?)
}

/// A captured host: its archive, every one of its files to every reader of files, and the host.
fn seeds_of_host(seeds: &Seeds, path: &Path) -> Outcome<()> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path)?;
    // The target puts head and end itself.
    let body: Vec<&str> = text.lines().skip(3).collect();
    let body = body[..body.len() - 1].join("\n");
    for (place, part) in parts(&body).iter().enumerate() {
        seeds.put("archive", &format!("{name}-{place}"), part)?;
    }
    let captured = Captured::open(path)?;
    let mut tar = tar::Builder::new(Vec::new());
    let mut lines = body.lines();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let ["file", _, count, path] = words.as_slice() else {
            continue;
        };
        let text: Vec<&str> = lines.by_ref().take(count.parse()?).collect();
        let text = text.join("\n");
        let path = Path::new(path).strip_prefix("/")?;
        if path.starts_with("sys/class/net") || path.starts_with("proc/sys/net") || text.len() < 8 {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            if tar.get_ref().len() + 2048 < SEED_BYTES_MAX {
                tar.append_data(&mut header, path, text.as_bytes())?;
            }
        }
        // Every reader is chosen by one byte; a text that suits one is a seed for all.
        if text.len() > 40 && text.len() < 4096 {
            let file = path.to_string_lossy().replace('/', "-");
            for which in 0..READERS {
                let bytes = [&[which], text.as_bytes()].concat();
                seeds.put("sysfs_text", &format!("{which}-{file}"), bytes)?;
            }
        }
    }
    seeds.put("tarball", &name, tar.into_inner()?)?;
    let host = read_host(captured.root(), &captured);
    seeds.put("host_json", &name, serde_json::to_vec(&host)?)
}

/// A host's archive in pieces that begin at an entry.
fn parts(body: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut left = 0;
    for line in body.lines() {
        let part = parts.len() - 1;
        if left == 0 {
            let words: Vec<&str> = line.split(' ').collect();
            left = match words.as_slice() {
                ["file" | "folder", _, count, ..] | ["nic", count, ..] => {
                    count.parse().unwrap_or(0)
                }
                ["link" | "gap", ..] => 1,
                _ => 0,
            };
            if parts[part].len() > SEED_BYTES_MAX / 2 {
                parts.push(String::new());
            }
        } else {
            left -= 1;
        }
        let part = parts.len() - 1;
        parts[part].push_str(line);
        parts[part].push('\n');
    }
    parts
}

/// A real kernel's answers, to every question.
fn seeds_of_netlink(seeds: &Seeds, folder: &Path) -> Outcome<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let digits: Vec<u8> = fs::read_to_string(&path)?
            .chars()
            .filter_map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let datagram: Vec<u8> = digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect();
        seeds.put(
            "netlink",
            &format!("whole-{name}"),
            [&[0], datagram.as_slice()].concat(),
        )?;
        seeds.put(
            "events",
            &format!("whole-{name}"),
            [&[0], datagram.as_slice()].concat(),
        )?;
        // Each message: length, type, flags, number, port (netlink(7)), and its payload.
        let mut answers = Vec::new();
        let mut rest = datagram.as_slice();
        while let Some(head) = rest.first_chunk::<16>() {
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let Some(body) = rest.get(16..length) else {
                break;
            };
            answers.push(head[4]);
            answers.extend(u16::try_from(body.len())?.to_le_bytes());
            answers.extend(body);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        for which in 0..13u8 {
            // The same answers to a few questions, as a reader may ask who it is about first.
            let one = [&[7u8], answers.as_slice()].concat();
            let all = [&[which], one.as_slice(), &one, &one, &one].concat();
            seeds.put("netlink", &format!("{which}-{name}"), all)?;
        }
    }
    Ok(())
}

/// Modules of every map, and a configuration space with a PCI Express capability.
fn seeds_of_memory(seeds: &Seeds) -> Outcome<()> {
    for identifier in [0x03u8, 0x0d, 0x11, 0x18, 0x1e] {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(128 * 8).collect();
        bytes[0] = identifier;
        seeds.put("eeprom", &format!("{identifier:02x}"), &bytes)?;
    }
    let mut space = vec![0u8; 512];
    space[..2].copy_from_slice(&[0x86, 0x80]);
    space[0x06] = 0x10;
    space[0x34] = 0x40;
    space[0x40..0x42].copy_from_slice(&[0x10, 0x00]);
    space[0x4c..0x54].copy_from_slice(&[0x03, 0x11, 0, 0, 0x40, 0, 0x03, 0x11]);
    space[0x100..0x104].copy_from_slice(&[0x0d, 0, 1, 0]);
    seeds.put("pcie_config", "express", &space)?;
    seeds.put("pcie_config", "short", &space[..64])
}

/// The messages of two ends, and what a run stores of them.
fn seeds_of_trials(seeds: &Seeds) -> Outcome<()> {
    let host = || Box::new(build::host().nic("eth2", |nic| nic.gbit(10)).build());
    let sample = || Box::new(build::sample().build());
    let staged = |place, without: &[usize]| Record::Staged {
        stage: 0,
        place,
        without: without.to_vec(),
        sample: sample(),
    };
    let records = [
        Record::Hosts {
            local: host(),
            remote: host(),
        },
        Record::Before(sample()),
        Record::Remedy {
            remedy: 0,
            rule: "qdisc-shaper".to_owned(),
            changes: Vec::new(),
            level: 0.05,
            beside: Vec::new(),
        },
        staged(0, &[0]),
        staged(1, &[]),
        staged(2, &[]),
        staged(3, &[0]),
        Record::Decided {
            remedy: 0,
            kept: true,
            note: None,
        },
        Record::After(sample()),
        Record::Ended {
            restored: true,
            kept: false,
        },
    ];
    seeds.put("store", "run", lines(&records)?)?;
    seeds.put("store", "one", lines(&records[..2])?)?;
    let trial = build::sample().build();
    let requests = [
        Request::Hello {
            protocol: 1,
            version: "0".to_owned(),
        },
        Request::ReadHost,
        Request::Prepare {
            spec: Box::new(trial.spec.clone()),
            token: Token([7; 16]),
            bind: String::new(),
            report_ns: None,
        },
        Request::Start,
        Request::Bye,
    ];
    let replies = [
        Reply::Host(host()),
        Reply::Prepared { port: 5001 },
        Reply::Done(Box::new(trial.local.clone())),
        Reply::Aborted,
    ];
    seeds.put(
        "protocol",
        "requests",
        [&[9], lines(&requests)?.as_slice()].concat(),
    )?;
    seeds.put(
        "protocol",
        "replies",
        [&[255], lines(&replies)?.as_slice()].concat(),
    )
}

fn lines(all: &[impl Serialize]) -> Outcome<Vec<u8>> {
    let mut lines = Vec::new();
    for one in all {
        serde_json::to_writer(&mut lines, one)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

const PLAN: &str = r#"[settings]
"sysctl/net.core.rmem_max" = 212992
"sysctl/net.ipv4.tcp_rmem" = [4096, 131072, 33554432]
"nic/eth0/mtu" = 9000
"nic/eth0/feature/rx-gro" = true
"nic/eth0/qdisc" = "fq"
"irq/24/cpus" = "0-3"
"#;

const SETTINGS: [&str; 12] = [
    "sysctl/net.ipv4.tcp_rmem\n4096 131072 6291456",
    "nic/eth0/mtu\n9000",
    "nic/eth0/feature/rx-gro\non",
    "nic/eth0/queue/rx-0/rps-cpus\n0-3",
    "nic/eth0/qdisc\nfq",
    "irq/24/cpus\n0-3,7",
    "cpu/3/governor\nperformance",
    "128KiB",
    "10Gbit/s",
    "0000:81:00.0",
    "ssh://someone@[fe80::1]:22",
    "ffffffff,00000000",
];
