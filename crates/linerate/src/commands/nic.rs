//! `linerate nic`: what card it is, and whether it is well.

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Profile};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::rules;
use linerate_model::watch::Watch;
use linerate_report::nic::{NicDocument, NicView, nic_text};
use linerate_runtime::cli::{FormatArg, NicArgs};
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::host_source::check_nic;

use crate::commands::watched::{Live, captured};

/// `linerate nic`.
pub(crate) fn run(args: &NicArgs, format: FormatArg, say: &Say) -> Outcome<()> {
    let (host, watch) = read(args, say)?;
    check_nic(&host, Some(&args.nic))?;
    let Some(nic) = host.nic(&args.nic) else {
        return Ok(());
    };
    if args.opcode.is_some() && !nic.kind.has_wire() {
        let why = format!(
            "cannot explain `--opcode` of {}: it has no physical port",
            args.nic
        );
        return Err(Stop::new(Code::Usage, why));
    }
    let diagnosis = rules::diagnose(&Context {
        end: End::Local,
        host: &host,
        nic: Some(&args.nic),
        other: None,
        sample: None,
        watch: watch.as_ref(),
        // The health of a NIC does not depend on the role of its host.
        profile: Profile::Throughput,
        owns_shapers: false,
    });
    let view = NicView::new(nic, &diagnosis, watch.as_ref(), args.opcode);
    if format == FormatArg::Json {
        return say.json(&NicDocument(&view));
    }
    say.lines(&nic_text(&view))
}

/// The host, and its counters over an interval if the NIC can have bit errors.
fn read(args: &NicArgs, say: &Say) -> Outcome<(Host, Option<Watch>)> {
    if let Some(from) = &args.from {
        return captured(from, args.then.as_deref());
    }
    let live = Live::open()?;
    let host = live.host();
    check_nic(&host, Some(&args.nic))?;
    let has_wire = host.nic(&args.nic).is_some_and(|nic| nic.kind.has_wire());
    if args.watch.is_zero() || !has_wire {
        return Ok((host, None));
    }
    let watch = live.watch(&host, args.watch, " (`--watch 0` skips this)", say)?;
    Ok((host, Some(watch)))
}
