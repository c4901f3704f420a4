//! The picture of a trial as data: when the packets of each flow were lost or late, and what happened meanwhile. Times count
//! from the start of the trial, by the clock of the host that linerate was started on.

use linerate_model::end::End;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;
use serde::Serialize;

/// Flows over time, and what happened meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The duration of the trial.
    pub length_ns: Nanoseconds,
    /// Each direction and workload.
    pub lanes: Vec<Lane>,
    /// In order of time.
    pub marks: Vec<Mark>,
}

/// One direction and workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The direction.
    pub direction: Direction,
    /// The workload.
    pub workload: &'static str,
    /// Its flows, in order.
    pub flows: Vec<Vec<Span>>,
}

/// A time in which the packets of a flow were lost or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub from_ns: Nanoseconds,
    /// When it ended.
    pub to_ns: Nanoseconds,
    /// What became of the packets.
    pub kind: SpanKind,
}

/// What became of packets, the worse one last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    /// All of them arrived, late.
    Late,
    /// Some or all were lost.
    Lost,
}

/// Something that happened during a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// When, since the start of the trial.
    pub at_ns: Nanoseconds,
    /// What kind of event it is.
    pub kind: MarkKind,
    /// The host that saw it; null for a command.
    pub end: Option<End>,
    /// In words.
    pub what: String,
    /// How many events of the same kind it stands for: those that follow one another closely are one mark.
    pub count: u64,
}

/// What kind of event a mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// The command of the failure started or ended.
    Failure,
    /// The command of the return started or ended.
    Return,
    /// An interface of the path lost its carrier or got it back.
    Carrier,
    /// A member of a bond stopped or started carrying traffic.
    BondMember,
    /// Routes or next hops changed, also by BGP and OSPF.
    Routes,
    /// A BFD session of FRR went down or came up.
    Bfd,
    /// The neighbor entry of a gateway changed.
    Neighbor,
    /// A gateway announced its link-layer address.
    Gateway,
    /// Another VRRP router began to advertise.
    Vrrp,
}

/// Events of one kind that follow one another within this share of the trial are one mark.
const ONE_MARK: u64 = 200;
/// More marks than these are left out, the last ones.
const MARKS_MAX: usize = 100;

/// The marks in order of time, those that are close together as one.
pub fn gathered(mut marks: Vec<Mark>, length: Nanoseconds) -> Vec<Mark> {
    marks.sort_by_key(|mark| mark.at_ns);
    let near = length.as_u64() / ONE_MARK;
    let mut all: Vec<(Mark, Nanoseconds)> = Vec::new();
    for mark in marks {
        let same = all.iter_mut().rev().find(|(one, last)| {
            one.end.is_some()
                && (one.kind, one.end) == (mark.kind, mark.end)
                && mark.at_ns.as_u64().saturating_sub(last.as_u64()) <= near
        });
        if let Some((one, last)) = same {
            one.count += 1;
            *last = mark.at_ns;
        } else {
            let at = mark.at_ns;
            all.push((mark, at));
        }
    }
    all.truncate(MARKS_MAX);
    all.into_iter().map(|(mark, _)| mark).collect()
}

/// The flows `first` to `end` of a lane, which look alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The first flow, from 0.
    pub first: usize,
    /// One more than the last.
    pub end: usize,
    /// What each column shows.
    pub cells: Vec<Cell>,
}

/// A time in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// No flow had a packet lost or late.
    OnTime,
    /// Packets of some or all flows were late, none was lost.
    Late,
    /// Packets of some flows were lost.
    SomeLost,
    /// Packets of all flows were lost.
    AllLost,
}

impl Lane {
    /// The lane as rows of `columns` cells: a row for each set of neighboring flows that look alike, or if these are more than
    /// `most`, for sets of equal size. An interruption that is shorter than a column fills it.
    pub fn rows(&self, columns: usize, length: Nanoseconds, most: usize) -> Vec<Row> {
        let painted: Vec<Vec<Option<SpanKind>>> = self
            .flows
            .iter()
            .map(|spans| painted(spans, columns, length))
            .collect();
        let alike = painted.chunk_by(|one, next| one == next);
        let mut sizes: Vec<usize> = alike.map(<[_]>::len).collect();
        if sizes.len() > most {
            let size = painted.len().div_ceil(most.max(1));
            sizes = painted.chunks(size).map(<[_]>::len).collect();
        }
        let mut first = 0;
        let mut rows = Vec::with_capacity(sizes.len());
        for size in sizes {
            let end = first + size;
            let own = &painted[first..end];
            let cells = (0..columns).map(|column| cell(own, column)).collect();
            rows.push(Row { first, end, cells });
            first = end;
        }
        rows
    }
}

/// What became of a flow's packets in each column.
fn painted(spans: &[Span], columns: usize, length: Nanoseconds) -> Vec<Option<SpanKind>> {
    let mut cells = vec![None; columns];
    for span in spans {
        let (from, to) = columns_of(span, columns, length);
        for cell in cells.iter_mut().take(to).skip(from) {
            *cell = (*cell).max(Some(span.kind));
        }
    }
    cells
}

/// The columns that a span fills: the first, and one more than the last.
pub fn columns_of(span: &Span, columns: usize, length: Nanoseconds) -> (usize, usize) {
    let place = |time: Nanoseconds| {
        let place = u128::from(time.as_u64()) * columns as u128;
        usize::try_from(place / u128::from(length.as_u64().max(1))).unwrap_or(usize::MAX)
    };
    let from = place(span.from_ns).min(columns.saturating_sub(1));
    let to = place(span.to_ns).min(columns).max(from + 1);
    (from, to)
}

fn cell(flows: &[Vec<Option<SpanKind>>], column: usize) -> Cell {
    let of = |flow: &Vec<Option<SpanKind>>| flow.get(column).copied().flatten();
    let lost = flows.iter().filter(|flow| of(flow) == Some(SpanKind::Lost));
    match lost.count() {
        0 if flows.iter().any(|flow| of(flow).is_some()) => Cell::Late,
        0 => Cell::OnTime,
        lost if lost == flows.len() => Cell::AllLost,
        _ => Cell::SomeLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn span(from: u64, to: u64, kind: SpanKind) -> Span {
        Span {
            from_ns: Nanoseconds::new(from),
            to_ns: Nanoseconds::new(to),
            kind,
        }
    }

    fn words(row: &Row) -> String {
        let cells = row.cells.iter().map(|cell| match cell {
            Cell::OnTime => '.',
            Cell::Late => '-',
            Cell::SomeLost => '+',
            Cell::AllLost => '#',
        });
        cells.collect()
    }

    fn lane(flows: Vec<Vec<Span>>) -> Lane {
        Lane {
            direction: Direction::Forward,
            workload: "udp",
            flows,
        }
    }

    #[test]
    fn flows_that_look_alike_share_a_row_and_a_short_interruption_fills_a_column() {
        let hole = vec![span(2 * SECOND, 5 * SECOND, SpanKind::Lost)];
        let short = vec![span(9 * SECOND, 9 * SECOND + 1, SpanKind::Late)];
        let lane = lane(vec![hole.clone(), hole, Vec::new(), short]);
        let rows = lane.rows(10, Nanoseconds::new(10 * SECOND), 8);
        let shown: Vec<(usize, usize, String)> = rows
            .iter()
            .map(|row| (row.first, row.end, words(row)))
            .collect();
        assert_eq!(
            shown,
            [
                (0, 2, "..###.....".to_owned()),
                (2, 3, "..........".to_owned()),
                (3, 4, ".........-".to_owned())
            ]
        );
    }

    #[test]
    fn too_many_different_flows_are_shown_in_sets_that_say_whether_all_were_interrupted() {
        let every_second = (0..64).map(|flow| {
            let spans = vec![span(0, SECOND, SpanKind::Lost)];
            if flow % 2 == 0 { spans } else { Vec::new() }
        });
        let rows = lane(every_second.collect()).rows(2, Nanoseconds::new(2 * SECOND), 8);
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| words(row) == "+."), "{rows:?}");
        assert_eq!((rows[7].first, rows[7].end), (56, 64));
    }

    #[test]
    fn events_of_a_kind_that_follow_closely_are_one_mark_and_commands_never_are() {
        let mark = |at_ns, kind, end| Mark {
            at_ns: Nanoseconds::new(at_ns),
            kind,
            end,
            what: "it".to_owned(),
            count: 1,
        };
        let local = Some(End::Local);
        let marks = vec![
            mark(1_020, MarkKind::Routes, local),
            mark(1_000, MarkKind::Routes, local),
            mark(1_010, MarkKind::Failure, None),
            mark(1_012, MarkKind::Failure, None),
            mark(90_000, MarkKind::Routes, local),
        ];
        let marks = gathered(marks, Nanoseconds::new(100_000));
        let shown: Vec<(u64, u64)> = marks
            .iter()
            .map(|mark| (mark.at_ns.as_u64(), mark.count))
            .collect();
        assert_eq!(shown, [(1_000, 2), (1_010, 1), (1_012, 1), (90_000, 1)]);
    }
}
