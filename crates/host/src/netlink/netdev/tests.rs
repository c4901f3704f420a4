//! netdev responses, written by hand in the kernel's form. (The numbers are those of Linux 6.18's `<linux/netdev.h>`,
//! which most installed headers do not have yet.)

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn answer(fill: impl FnOnce(&mut Request)) -> Answer {
    let mut request = Request::new(0, &[0; GENERIC_HEADER_BYTES]);
    fill(&mut request);
    Answer {
        kind: 0,
        body: request.into_body(),
    }
}

#[test]
fn counters_have_the_numbers_of_the_kernels_header() {
    // NETDEV_A_QSTATS_TX_WAKE and NETDEV_A_PAGE_POOL_STATS_RECYCLE_RELEASED_REFCNT, the last ones.
    assert_eq!(usize::from(FIRST_COUNTER) + QSTATS.len() - 1, 34);
    assert_eq!(usize::from(FIRST_COUNTER) + POOL_STATS.len() - 1, 18);
    assert_eq!(QSTATS[24 - 8], "tx-hw-drops");
}

#[test]
fn polling_contexts_have_their_queues() {
    let napis = [
        answer(|napi| {
            napi.put_u32(INDEX, 2)
                .put_u32(NAPI_ID, 514)
                .put_u32(NAPI_IRQ, 31);
            napi.put_u32(NAPI_PID, 99).put_u32(NAPI_DEFER_HARD_IRQS, 2);
            napi.put(NAPI_GRO_FLUSH_TIMEOUT, &200_000_u32.to_ne_bytes());
            napi.put(NAPI_IRQ_SUSPEND_TIMEOUT, &5_000_000_000_u64.to_ne_bytes());
        }),
        answer(|napi| {
            napi.put_u32(INDEX, 2).put_u32(NAPI_ID, 513);
        }),
    ];
    let queue = |kind, id, napi: Option<u32>| {
        answer(|queue| {
            queue
                .put_u32(QUEUE_ID, id)
                .put_u32(QUEUE_INDEX, 2)
                .put_u32(QUEUE_TYPE, kind);
            if let Some(napi) = napi {
                queue.put_u32(QUEUE_NAPI, napi);
            }
        })
    };
    let queues = [
        queue(0, 1, Some(514)),
        queue(0, 0, Some(514)),
        queue(1, 0, Some(513)),
        queue(1, 1, None),
    ];
    let napis = napis_of(&napis, &queues, "p").expect("our own");
    assert_eq!((napis[0].id, napis[1].id), (513, 514));
    assert_eq!(
        (&napis[0].tx_queues[..], &napis[1].rx_queues[..]),
        (&[0][..], &[0, 1][..])
    );
    assert_eq!(napis[1].irq, Known::Value(IrqNumber(31)));
    assert_eq!(napis[1].thread, Known::Value(99));
    assert_eq!(napis[1].gro_flush_timeout_ns, Known::Value(200_000));
    assert_eq!(napis[1].irq_suspend_timeout_ns, Known::Value(5_000_000_000));
    let cause = |gap: Option<&linerate_model::known::Gap>| gap.map(|gap| gap.cause);
    assert_eq!(cause(napis[0].irq.gap()), Some(Cause::Absent));
    assert_eq!(
        cause(napis[0].thread_cpus.gap()),
        Some(Cause::Absent),
        "no thread"
    );
    assert_eq!(cause(napis[1].thread_cpus.gap()), Some(Cause::NotAsked));
}

#[test]
fn xdp_features_are_told_in_the_kernels_words() {
    let device = answer(|device| {
        device.put_u32(INDEX, 2);
        device.put(DEVICE_XDP_FEATURES, &0x103_u64.to_ne_bytes());
    });
    let features = xdp_features(&device.body).expect("our own");
    assert_eq!(features, ["basic", "redirect", "bit 8"]);
}

#[test]
fn counters_are_named_by_queue_and_added_up_over_pools() {
    let queue = answer(|queue| {
        queue
            .put_u32(INDEX, 2)
            .put_u32(QSTATS_TYPE, 0)
            .put_u32(QSTATS_ID, 3);
        queue.put(FIRST_COUNTER, &7_u32.to_ne_bytes());
        queue.put(FIRST_COUNTER + 4, &(1_u64 << 40).to_ne_bytes());
    });
    let counters = queue_counters(&queue.body, 2).expect("our own");
    assert_eq!(counters["rx-3/packets"], 7);
    assert_eq!(counters["rx-3/alloc-fail"], 1 << 40);
    assert!(
        queue_counters(&queue.body, 5).expect("our own").is_empty(),
        "another's"
    );
    let whole = answer(|all| {
        all.put_u32(INDEX, 2)
            .put(FIRST_COUNTER + 4, &1_u32.to_ne_bytes());
    });
    assert_eq!(
        queue_counters(&whole.body, 2).expect("our own")["rx-alloc-fail"],
        1
    );

    let pool = |index, slow: u32| {
        answer(|pool| {
            pool.nest(POOL_STATS_INFO, |info| {
                info.put_u32(1, 9).put_u32(POOL_INDEX, index);
            });
            pool.put_u32(FIRST_COUNTER + 1, slow);
        })
    };
    let pools = [pool(2, 4), pool(2, 5), pool(3, 100)];
    let sums = summed(&pools, |body| pool_counters(body, 2)).expect("our own");
    assert_eq!(sums, Counters::from([("alloc-slow".to_owned(), 9)]));
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..160)) {
        let _ = (parse_napi(&body, "p").is_ok(), xdp_features(&body).is_ok());
        let _ = (queue_counters(&body, 2).is_ok(), pool_counters(&body, 2).is_ok());
        let answers = [Answer { kind: 0, body }];
        let _ = napis_of(&answers, &answers, "p").is_ok();
    }
}
